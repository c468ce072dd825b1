"""``python -m perf.large``: validate and score an assembly larger than the memory that the processes may take."""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import netCDF4
import numpy as np
import pandas as pd

from perf.growth import REPOSITORY

FILES = REPOSITORY / "data" / "Digits.simulated"
REPETITIONS = 8
AREAS = ("V4", "IT")


def write_responses(path: Path, ids: list[str], neuroids: int) -> None:
    """Write simulated counts of spikes, a compressed block of presentations at a time."""
    rng, count = np.random.default_rng(0), len(ids) * REPETITIONS
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("presentation", count)
        file.createDimension("neuroid", neuroids)
        texts = {
            "stimulus_id": ("presentation", np.repeat(ids, REPETITIONS)),
            "neuroid_id": ("neuroid", [f"n{at:07d}" for at in range(neuroids)]),
            "region": ("neuroid", np.repeat(AREAS, -(-neuroids // 2))[:neuroids]),
        }
        for name, (dim, values) in texts.items():
            file.createVariable(name, str, (dim,))[:] = np.array(values, object)
        repetition = file.createVariable("repetition", "i4", ("presentation",))
        repetition[:] = np.tile(np.arange(REPETITIONS), len(ids))
        data = file.createVariable(
            "data",
            "f4",
            ("presentation", "neuroid"),
            chunksizes=(REPETITIONS, min(neuroids, 1 << 16)),
            compression="zlib",
            complevel=1,
        )
        data.coordinates = "stimulus_id neuroid_id region repetition"
        for start in range(0, count, REPETITIONS):
            rates = rng.gamma(2.0, 1.0, neuroids)
            data[start : start + REPETITIONS] = rng.poisson(
                rates, (REPETITIONS, neuroids)
            )


def repository(root: Path, gigabytes: float) -> None:
    """Write a repository with one data set of so many gigabytes of values, and a benchmark of half of its neuroids."""
    for name in ("dvc.yaml", "pyproject.toml", ".gitignore"):
        shutil.copy(REPOSITORY / name, root / name)
    for name in ("schema", "metrics", "ceilings", "models"):
        shutil.copytree(REPOSITORY / "specs" / name, root / "specs" / name)
    shutil.copy(REPOSITORY / "specs/references.bib", root / "specs")
    data = root / "data" / "Large"
    data.mkdir(parents=True)
    for name in ("stimuli.csv", "stimuli.zip"):
        shutil.copy(FILES / name, data / name)
    ids = pd.read_csv(data / "stimuli.csv")["stimulus_id"].astype(str).tolist()
    neuroids = int(gigabytes * 1e9 / 4 / (len(ids) * REPETITIONS))
    write_responses(data / "responses.nc", ids, neuroids)
    pins = [
        f"  {path.name}: {{dvc: true, size: {path.stat().st_size}, sha256: {_sha256(path)}}}"
        for path in sorted(data.iterdir())
    ]
    specs = {
        "datasets/Large": [
            "id: Large",
            "version: 1",
            "title: Simulated counts of spikes",
            "license: CC0-1.0",
            "simulated: true",
            "modality: simulated",
            "files:",
            *pins,
            "reader: {name: netcdf}",
            "degrees: 8",
            "expectations:",
            "  stimuli:",
            "    - {check: unique, column: stimulus_id}",
            "  assembly:",
            "    - {check: dims, dims: [presentation, neuroid]}",
            "    - {check: values_finite}",
        ],
        "benchmarks/Large.IT-cka": [
            "id: Large.IT-cka",
            "version: 1",
            "title: Similarity to half of the neurons",
            "parent: IT",
            "dataset: Large",
            "select: {region: IT}",
            "paradigm: {name: recording, region: IT, visual_degrees: 8}",
            "metric: cka",
            "controls: {negative: [noise]}",
        ],
    }
    for place, lines in specs.items():
        path = root / "specs" / f"{place}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*lines, ""]))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def limited(root: Path, limit: int, *words: str) -> str:
    """Run a command whose processes may each allocate ``limit`` bytes; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "neuroledger", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    return f"neuroledger {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}"


def main() -> None:
    """Write the data set, validate it, and score a control model, each within the limit."""
    parser = argparse.ArgumentParser(prog="python -m perf.large", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--limit-gib", type=float, default=2.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    limit = int(options.limit_gib * 1024**3)
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        root = Path(folder)
        repository(root, options.gigabytes)
        size = (root / "data/Large/responses.nc").stat().st_size
        print(f"{options.gigabytes:g} GB of values, {size / 1e9:.1f} GB compressed")
        for words in (("validate", "Large"), ("score", "pixels16", "Large.IT-cka")):
            print(limited(root, limit, *words))


if __name__ == "__main__":
    main()
