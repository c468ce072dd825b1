"""``python -m perf.executors``: processor time of several workers, as a ratio to one process, and whether records agree."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from neuroledger.data.gate.validate import validate
from neuroledger.spec.catalog import open_catalog
from perf.growth import REPOSITORY, Cost, cost

EXECUTORS = ("local", "processes:2", "dask")
MODELS = (
    "generator",
    "small_cnn.digits",
    "small_cnn.random",
    "gabor",
    "pixels16",
    "noise",
)
BENCHMARKS = (
    "Digits.simulated.V4-pls",
    "Digits.simulated.V4-ridgecv",
    "Digits.simulated.IT-pls",
    "Digits.simulated.IT-ridge",
    "Digits.simulated.IT-rdm",
    "Digits.simulated.time.IT-ridge",
)
STORE = "NEUROLEDGER_ACTIVATIONS"


class Ran(NamedTuple):
    """What one run of all jobs took, and the hash of the payload of each record."""

    cost: Cost
    payloads: Mapping[str, str]


def repository(root: Path) -> None:
    """Write a repository with the benchmarks and models, whose data are validated."""
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml", ".gitignore"):
        shutil.copy(REPOSITORY / name, root / name)
    shutil.copytree(REPOSITORY / "specs", root / "specs")
    here = open_catalog(REPOSITORY)
    sets = sorted({here.benchmark(id).dataset for id in BENCHMARKS})
    for name in (*sets, *(f"models/{id}" for id in MODELS)):
        if (REPOSITORY / "data" / name).is_dir():
            shutil.copytree(REPOSITORY / "data" / name, root / "data" / name)
    catalog = open_catalog(root)
    for id in sets:
        validate(catalog, id)


def run(root: Path, executor: str) -> Ran:
    """Compute every job with an executor, without activations of an earlier run."""
    words = ["run", *MODELS, "--force", "--executor", executor]
    for id in BENCHMARKS:
        words += ["--benchmark", id]
    with tempfile.TemporaryDirectory(prefix="activations-") as store:
        os.environ[STORE] = store
        try:
            spent = cost(root, *words)
        finally:
            del os.environ[STORE]
    payloads = {
        str(path.relative_to(root)): str(json.loads(path.read_text())["payload_sha256"])
        for path in sorted((root / "results" / "records").rglob("*.json"))
    }
    return Ran(spent, payloads)


def measured(executors: Sequence[str], rounds: int) -> Iterator[tuple[str, Ran]]:
    """Yield each run: the executors in turn, so that a change of the machine's speed concerns them all."""
    with tempfile.TemporaryDirectory(prefix="executors-") as folder:
        root = Path(folder)
        repository(root)
        for _ in range(rounds):
            for executor in executors:
                shutil.rmtree(root / "results" / "records", ignore_errors=True)
                yield executor, run(root, executor)


def main() -> None:
    """Measure each executor, and print its time and the number of records that are equal to those of the first."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.executors", description=__doc__
    )
    parser.add_argument(
        "--executors", nargs="*", default=list(EXECUTORS), metavar="EXECUTOR"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    runs: dict[str, list[Ran]] = {}
    for executor, ran in measured(options.executors, options.rounds):
        runs.setdefault(executor, []).append(ran)
    reference = runs[options.executors[0]]
    expected = reference[0].payloads
    print(
        f"{len(MODELS)} models × {len(BENCHMARKS)} benchmarks, {len(expected)} records, median of {options.rounds} rounds\n"
    )
    print("| executor | processor time | more | ratio | equal records |")
    print("|---|--:|--:|--:|--:|")
    for executor, own in runs.items():
        seconds = statistics.median(each.cost.seconds for each in own)
        pairs = [
            (each.cost.seconds, first.cost.seconds)
            for each, first in zip(own, reference, strict=True)
        ]
        more = statistics.median(spent - alone for spent, alone in pairs)
        ratio = statistics.median(spent / alone for spent, alone in pairs)
        equal = min(len(each.payloads.items() & expected.items()) for each in own)
        print(
            f"| `{executor}` | {seconds:.1f} s | {more:.1f} s | {ratio:.2f} | {equal} of {len(expected)} |"
        )


if __name__ == "__main__":
    main()
