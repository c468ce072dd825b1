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
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import netCDF4
import numpy as np
import pandas as pd

from perf.growth import REPOSITORY

FILES = REPOSITORY / "data" / "Digits.simulated"
REPETITIONS = 8
AREAS = ("V4", "IT")
METRICS = ("cka", "ridge", "pls", "rdm")
CEILED = ("ridge", "pls")
FEATURES = 8
WIDEST = 1 << 16
"""Neuroids in one chunk of a file."""


class Layout(NamedTuple):
    """Ids of the stimuli, number of neuroids, and whether those of both areas alternate in the file."""

    ids: list[str]
    neuroids: int
    alternating: bool

    def texts(self) -> dict[str, tuple[str, np.ndarray]]:
        """Coordinates by name, with their dimension."""
        areas = np.resize(AREAS, self.neuroids)
        return {
            "stimulus_id": ("presentation", np.repeat(self.ids, REPETITIONS)),
            "neuroid_id": (
                "neuroid",
                np.array([f"n{at:07d}" for at in range(self.neuroids)]),
            ),
            "region": ("neuroid", areas if self.alternating else np.sort(areas)[::-1]),
        }

    def counts(self) -> Iterator[np.ndarray]:
        """Simulated counts of spikes, (presentation, neuroid), of one stimulus at a time; few features drive all neurons."""
        rng = np.random.default_rng(0)
        weights = rng.normal(0.0, 0.3, (FEATURES, self.neuroids)).astype(np.float32)
        for _ in self.ids:
            rates = 2 * np.exp(rng.normal(size=FEATURES).astype(np.float32) @ weights)
            yield rng.poisson(rates, (REPETITIONS, self.neuroids)).astype(np.float32)


def write_netcdf(path: Path, layout: Layout) -> None:
    """Write the responses as netCDF, a compressed block of presentations at a time."""
    ids, neuroids, _ = layout
    count = len(ids) * REPETITIONS
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("presentation", count)
        file.createDimension("neuroid", neuroids)
        for name, (dim, values) in layout.texts().items():
            file.createVariable(name, str, (dim,))[:] = values.astype(object)
        repetition = file.createVariable("repetition", "i4", ("presentation",))
        repetition[:] = np.tile(np.arange(REPETITIONS), len(ids))
        data = file.createVariable(
            "data",
            "f4",
            ("presentation", "neuroid"),
            chunksizes=(REPETITIONS, min(neuroids, WIDEST)),
            compression="zlib",
            complevel=1,
        )
        data.coordinates = "stimulus_id neuroid_id region repetition"
        for number, counts in enumerate(layout.counts()):
            data[number * REPETITIONS : (number + 1) * REPETITIONS] = counts


def write_zarr(path: Path, layout: Layout) -> None:
    """Write the responses as a zip of Zarr, likewise."""
    zarr = import_module("zarr")
    ids, neuroids, _ = layout
    with import_module("zarr.storage").ZipStore(path, mode="w") as store:
        group = zarr.create_group(store)
        for name, (dim, values) in layout.texts().items():
            group.create_array(name, data=values, dimension_names=[dim])
        repetition = np.tile(np.arange(REPETITIONS), len(ids))
        group.create_array(
            "repetition", data=repetition, dimension_names=["presentation"]
        )
        data = group.create_array(
            "data",
            shape=(len(ids) * REPETITIONS, neuroids),
            chunks=(REPETITIONS, min(neuroids, WIDEST)),
            dtype="f4",
            dimension_names=["presentation", "neuroid"],
            attributes={"coordinates": "stimulus_id neuroid_id region repetition"},
        )
        for number, counts in enumerate(layout.counts()):
            data[number * REPETITIONS : (number + 1) * REPETITIONS] = counts


WRITERS = {"netcdf": write_netcdf, "zarr": write_zarr}


def repository(root: Path, gigabytes: float, form: str, *, alternating: bool) -> Layout:
    """Write a repository with one data set of so many gigabytes of values, and benchmarks of half of its neuroids."""
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
    layout = Layout(ids, neuroids, alternating)
    WRITERS[form](data / "responses.nc", layout)
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
    }
    for metric in METRICS:
        specs[f"benchmarks/Large.IT-{metric}"] = [
            f"id: Large.IT-{metric}",
            "version: 1",
            "title: Agreement with half of the neurons",
            "parent: IT",
            "dataset: Large",
            "select: {region: IT}",
            "paradigm: {name: recording, region: IT, visual_degrees: 8}",
            f"metric: {metric}",
            *(["ceiling: internal_consistency"] if metric in CEILED else []),
            "controls: {negative: [noise]}",
        ]
    for place, lines in specs.items():
        path = root / "specs" / f"{place}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*lines, ""]))
    return layout


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def limited(root: Path, limit: int, *words: str) -> str:
    """Run a command whose processes may each allocate ``limit`` bytes; return what it prints, and what it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = subprocess.Popen(
        [sys.executable, "-m", "neuroledger", *words],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(  # noqa: PLW1509 - no threads run here
            resource.RLIMIT_DATA, (limit, limit)
        ),
    )
    most = 0
    while running.poll() is None:
        most = max(most, own_bytes(running.pid))
        time.sleep(0.05)
    said = running.communicate()[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (
        f"neuroledger {' '.join(words)}: status {running.returncode}, {seconds:.0f} s of processor time, "
        f"at most {most / 1e6:.0f} MB of its own memory\n{said}"
    )


def own_bytes(process: int) -> int:
    """Bytes of memory of a process that are no pages of files."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return 1024 * int(found[0]) if found else 0


def main() -> None:
    """Write the data set, validate it, and score a control model, each within the limit."""
    parser = argparse.ArgumentParser(prog="python -m perf.large", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--limit-gib", type=float, default=2.0)
    parser.add_argument("--format", choices=sorted(WRITERS), default="netcdf")
    parser.add_argument("--alternating", action="store_true")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=["cka"])
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Arrow's own allocator would reserve half of the limit, and use none of it.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    limit = int(options.limit_gib * 1024**3)
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        root = Path(folder)
        layout = repository(
            root, options.gigabytes, options.format, alternating=options.alternating
        )
        size = (root / "data/Large/responses.nc").stat().st_size
        averaged = len(layout.ids) * (layout.neuroids // 2) * 4
        print(
            f"{options.gigabytes:g} GB of values, {size / 1e9:.1f} GB compressed; the averaged ones of an area are "
            f"{averaged / 1e6:.0f} MB"
        )
        print(limited(root, limit, "validate", "Large"), flush=True)
        for metric in options.metrics:
            words = ("score", "pixels16", f"Large.IT-{metric}")
            print(limited(root, limit, *words), flush=True)


if __name__ == "__main__":
    main()
