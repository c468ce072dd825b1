"""``python -m perf.import_large``: simulated data in the size of MajajHong2015, from package to score by three commands.

148,480 presentations of 3,200 images, 256 neuroids as the first dimension, 281 MB of netCDF. Wall time on a two-core x86_64
machine with one other process: import 10.0 s, validate 8.2 s, score (25-component PLS in ten splits, split-half ceiling,
controls) 17.5 s; 35.7 s in total.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from PIL import Image

IMAGES, NEUROIDS, PRESENTATIONS = 3200, 256, 148_480
BENCHMARK = """\
id: large.IT-pls
version: 1
title: Simulated IT, as large as MajajHong2015
parent: IT
dataset: large
select: {region: IT}
paradigm: {name: recording, region: IT, screen: as_is}
metric: {name: pls, splits: {stratify: object_name}}
ceiling: internal_consistency
"""
MODEL = "id: pixels8\nversion: 1\ntitle: Pixels of the images\nbuilder: {name: pixels, size: 8}\n"


def main() -> None:
    """Write the package and a repository without data, and time each command."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = package(root / "package")
        for path, text in (
            ("dvc.yaml", "stages: {}\n"),
            ("params.yaml", "suite: none\n"),
            ("specs/benchmarks/large.IT-pls.yaml", BENCHMARK),
            ("specs/models/pixels8.yaml", MODEL),
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        commands = (
            ["import", "brainscore", "large", *map(str, files)],
            ["validate", "large"],
            ["score", "pixels8", "large.IT-pls"],
        )
        total = 0.0
        for arguments in commands:
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "neuroledger", "--root", str(root), *arguments],
                check=True,
            )
            seconds = time.perf_counter() - start
            total += seconds
            print(f"{arguments[0]}: {seconds:.1f} s")
        print(f"in all: {total:.1f} s")


def package(folder: Path) -> list[Path]:
    """The three files: responses are linear in the 16 fields of each image, with noise of standard deviation 2."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    ids = np.array([f"im{i:04d}" for i in range(IMAGES)])
    fields = rng.integers(0, 256, (IMAGES, 4, 4), dtype=np.uint8)
    names = [f"o{i % 64}" for i in range(IMAGES)]
    table = pd.DataFrame(
        {
            "stimulus_id": ids,
            "filename": [f"{id}.png" for id in ids],
            "object_name": names,
        }
    )
    table.to_csv(folder / "stimulus_large.csv", index=False)
    with zipfile.ZipFile(folder / "stimulus_large.zip", "w") as archive:
        for id, pixels in zip(
            ids, np.kron(fields, np.ones((1, 2, 2), np.uint8)), strict=True
        ):
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG")
            archive.writestr(f"{id}.png", buffer.getvalue())
    repetitions = np.full(IMAGES, PRESENTATIONS // IMAGES)
    repetitions[: PRESENTATIONS % IMAGES] += 1
    rows = np.repeat(np.arange(IMAGES), repetitions)
    signal = (
        (fields.reshape(IMAGES, -1) / 255 - 0.5) @ rng.normal(size=(16, NEUROIDS)) * 4
    )
    values = signal[rows] + 2 * rng.normal(size=(PRESENTATIONS, NEUROIDS))
    coords = {
        "stimulus_id": ("presentation", ids[rows]),
        "repetition": (
            "presentation",
            np.concatenate([np.arange(count) for count in repetitions]),
        ),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(NEUROIDS)]),
        "region": ("neuroid", ["V4"] * 88 + ["IT"] * 168),
        "time_bin_start": ("time_bin", [70]),
        "time_bin_end": ("time_bin", [170]),
    }
    dims = ("neuroid", "presentation", "time_bin")
    xr.DataArray(values.T[:, :, None], dims=dims, coords=coords, name="data").to_netcdf(
        folder / "assy_large.nc", encoding={"data": {"zlib": True, "complevel": 1}}
    )
    return sorted(folder.iterdir())


if __name__ == "__main__":
    main()
