"""A small repository for tests: images, simulated neurons that are linear in the pixels, and one benchmark."""

from __future__ import annotations

import hashlib
import io
import shutil
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

IMAGES, NEUROIDS, REPETITIONS = 60, 5, 6


def make_files(folder: Path, *, seed: int = 0) -> None:
    """Write stimuli.csv, stimuli.zip and responses.nc: responses are linear in the pixels, noise has unit variance."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    ids = [f"im{i:02d}" for i in range(IMAGES)]
    pixels = rng.integers(0, 256, (IMAGES, 4, 4), dtype=np.uint8)
    pd.DataFrame({"stimulus_id": ids, "filename": [f"{i}.png" for i in ids]}).to_csv(
        folder / "stimuli.csv", index=False
    )
    with zipfile.ZipFile(folder / "stimuli.zip", "w") as archive:
        for id, image in zip(ids, pixels, strict=True):
            content = io.BytesIO()
            Image.fromarray(image).save(content, "PNG")
            archive.writestr(zipfile.ZipInfo(f"{id}.png"), content.getvalue())
    features = pixels.reshape(IMAGES, -1) / 255.0
    signal = (features - features.mean(0)) @ rng.normal(size=(16, NEUROIDS)) * 2
    values = signal[None] + rng.normal(size=(REPETITIONS, IMAGES, NEUROIDS))
    assembly = xr.DataArray(
        values.reshape(-1, NEUROIDS),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids * REPETITIONS),
            "repetition": ("presentation", np.repeat(np.arange(REPETITIONS), IMAGES)),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(NEUROIDS)]),
            "region": ("neuroid", ["V4"] * NEUROIDS),
        },
    )
    assemblies.write(assembly, folder / "responses.nc")


@dataclass
class Lab:
    """The repository at ``root``."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data" / "lab"

    def spec(self, kind: str, id: str, **fields: Any) -> Path:
        path = self.root / "specs" / kind / f"{id}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"# yaml-language-server: $schema=../schema/{kind[:-1]}.json\n"
        plain = {"id": id, "version": 1, "title": f"The {kind[:-1]} {id}", **fields}
        path.write_text(line + yaml.safe_dump(plain, sort_keys=False))
        return path

    def pins(self, dataset: str = "lab") -> dict[str, Any]:
        return {
            path.name: {
                "url": f"https://example.org/{path.name}",
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted((self.data.parent / dataset).glob("*"))
        }

    def dataset(self, **fields: Any) -> Path:
        known = {
            "license": "CC0-1.0",
            "simulated": True,
            "files": self.pins(),
            "reader": {"name": "netcdf"},
            "expectations": {
                "stimuli": [{"check": "unique", "column": "stimulus_id"}],
                "assembly": [{"check": "repetitions", "count": REPETITIONS}],
            },
        }
        return self.spec("datasets", "lab", **(known | fields))

    def benchmark(self, id: str = "lab.V4-ridge", **fields: Any) -> Path:
        known = {
            "parent": "V4",
            "dataset": "lab",
            "paradigm": {"name": "recording", "region": "V4"},
            "metric": "ridge",
            "ceiling": "internal_consistency",
            "controls": {"positive": ["pixels4"], "negative": ["noise"]},
        }
        return self.spec("benchmarks", id, **(known | fields))

    def open(self) -> Catalog:
        return open_catalog(self.root)


def build(root: Path, repository: Path) -> Lab:
    """Create a lab with data, one model, one benchmark and one suite; others are shipped definitions."""
    lab = Lab(root)
    shutil.copytree(repository / "specs" / "schema", root / "specs" / "schema")
    shutil.copy(
        repository / "specs" / "references.bib", root / "specs" / "references.bib"
    )
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "params.yaml").write_text("suite: lab\n")
    make_files(lab.data)
    lab.dataset()
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 4})
    lab.benchmark()
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4"])
    return lab
