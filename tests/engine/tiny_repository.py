"""A repository with one small valid data set, in which tests introduce single errors."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import yaml
from PIL import Image

from neuroledger.data import assembly as assemblies
from neuroledger.spec.catalog import Catalog, open_catalog

IDS = [f"im{i}" for i in range(4)]
EXPECTATIONS: dict[str, Any] = {
    "stimuli": [
        {"check": "unique", "column": "stimulus_id"},
        {"check": "equal_set", "column": "object_name", "values": ["face", "car"]},
        {"check": "files_decode", "mode": "L", "size": [8, 8]},
        {"check": "files_match_sha256"},
    ],
    "assembly": [
        {"check": "dims", "dims": ["presentation", "neuroid"]},
        {"check": "shape", "sizes": {"presentation": 12, "neuroid": [2, 5]}},
        {"check": "repetitions", "count": 3},
        {"check": "aligned", "complete": True},
    ],
}


def image(i: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(content, "PNG")
    return content.getvalue()


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "stimulus_id": IDS,
            "filename": [f"{id}.png" for id in IDS],
            "object_name": ["face", "car", "face", "car"],
            "sha256": [hashlib.sha256(image(i)).hexdigest() for i in range(4)],
        }
    )


def responses() -> xr.DataArray:
    values = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    coords = {
        "stimulus_id": ("presentation", IDS * 3),
        "repetition": ("presentation", np.repeat(np.arange(3), 4)),
        "neuroid_id": ("neuroid", ["a", "b", "c"]),
        "region": ("neuroid", ["V4", "V4", "IT"]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


@dataclass
class Tiny:
    """The repository at ``root``; files are pinned as they are when ``pin`` is called."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data" / "tiny"

    def write(
        self,
        *,
        stimuli: pd.DataFrame | None = None,
        assembly: xr.DataArray | None = None,
        images: dict[str, bytes] | None = None,
    ) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        (table() if stimuli is None else stimuli).to_csv(
            self.data / "stimuli.csv", index=False
        )
        assemblies.write(
            responses() if assembly is None else assembly, self.data / "responses.nc"
        )
        held = (
            {f"{id}.png": image(i) for i, id in enumerate(IDS)}
            if images is None
            else images
        )
        with zipfile.ZipFile(self.data / "stimuli.zip", "w") as archive:
            for name, content in held.items():
                archive.writestr(zipfile.ZipInfo(name), content)

    def pin(self, expectations: dict[str, Any] | None = None, **fields: Any) -> Catalog:
        files = {
            path.name: {
                "url": f"https://example.org/{path.name}",
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted(self.data.glob("*"))
        }
        spec = {
            "id": "tiny",
            "version": 1,
            "title": "A tiny data set",
            "license": "CC0-1.0",
            "files": files,
            "reader": {"name": "netcdf"},
            "expectations": EXPECTATIONS if expectations is None else expectations,
            **fields,
        }
        folder = self.root / "specs" / "datasets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tiny.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        (self.root / "dvc.yaml").write_text("stages: {}\n")
        return open_catalog(self.root)
