"""``python -m perf.growth``: what commands cost in repositories of simulated records, and by which power of their number."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuroledger.engine.plan import Job, plan
from neuroledger.engine.record import Record, payload_of, read_record, record_path
from neuroledger.engine.session import Request
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.stats.uncertainty import Uncertainty

REPOSITORY = Path(__file__).resolve().parents[1]
SIZES = ((10, 50), (30, 100), (100, 100))
SETTLED_SECONDS = 3
"""Age of a file from which its state is remembered, with a margin."""
ALIKE = 0.1
"""Relative difference of two numbers of records from which no power can be told."""
MOVED = 0.01
"""Change of a score."""
ON_ONE_SET = 10
"""Number of benchmarks that share a data set."""
DATASET, BENCHMARK = "Digits.simulated", "Digits.simulated.IT-ridge"


PEAK = (
    "import atexit, pathlib, sys; atexit.register(lambda: print([line.split()[1] for line in "
    "pathlib.Path('/proc/self/status').open() if line.startswith('VmHWM')][0], file=sys.stderr))"
)
"""Prints the peak memory in kB of a program when it ends; unlike ``ru_maxrss``, without that of the one that started it."""


CHILD_SUBREAPER = 36


class Cost(NamedTuple):
    """Processor time in s, peak memory in MB, and exit status of a command."""

    seconds: float
    megabytes: float
    status: int


def repository(root: Path, benchmarks: int, models: int) -> None:
    """Write a repository in which every model has a record on every benchmark."""
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml", ".gitignore"):
        shutil.copy(REPOSITORY / name, root / name)
    for name in ("schema", "metrics", "ceilings"):
        shutil.copytree(REPOSITORY / "specs" / name, root / "specs" / name)
    shutil.copy(REPOSITORY / "specs/references.bib", root / "specs")
    for name in ("datasets", "benchmarks", "models", "suites"):
        (root / "specs" / name).mkdir()
    _write_specs(root, benchmarks, models)
    catalog = open_catalog(root)
    suite = catalog.suite("grown")
    jobs = plan(catalog, suites=[suite], request=Request()).jobs
    path = REPOSITORY / "results/records" / BENCHMARK / "gabor.json"
    base, rng = read_record(path), np.random.default_rng(0)
    skill = {job.model: rng.normal(0.45, 0.15) for job in jobs}
    for job in jobs:
        made = _record(base, job, skill[job.model], rng)
        place = record_path(root, job.benchmark, job.model)
        place.parent.mkdir(parents=True, exist_ok=True)
        _write(place, made)


def _write_specs(root: Path, benchmarks: int, models: int) -> None:
    def copies(kind: str, id: str, ids: Sequence[str], **others: str) -> None:
        text = (REPOSITORY / "specs" / kind / f"{id}.yaml").read_text()
        for at, new in enumerate(ids):
            changed = text.replace(f"id: {id}\n", f"id: {new}\n")
            for old, instead in others.items():
                changed = changed.replace(old, instead.format(set=at % sets))
            (root / "specs" / kind / f"{new}.yaml").write_text(changed)

    sets = max(1, benchmarks // ON_ONE_SET)
    names = [f"grown{at:03d}" for at in range(sets)]
    copies("datasets", DATASET, names)
    targets = [f"grown{at % sets:03d}.{at:04d}" for at in range(benchmarks)]
    copies(
        "benchmarks",
        BENCHMARK,
        targets,
        **{
            f"dataset: {DATASET}": "dataset: grown{set:03d}",
            "positive: [generator], ": "",
        },
    )
    copies("models", "noise", ["noise"])
    entrants = [f"model{at:05d}" for at in range(models)]
    copies("models", "gabor", entrants)
    lines = ["id: grown", "version: 1", "title: Simulated", "benchmarks:"]
    lines += [f"  - {id}" for id in targets]
    lines += ["models:", *(f"  - {id}" for id in entrants), ""]
    (root / "specs/suites/grown.yaml").write_text("\n".join(lines))
    (root / "params.yaml").write_text("suite: grown\n")


def _record(base: Record, job: Job, skill: float, rng: np.random.Generator) -> Record:
    """Return a record of a job, with a value and deviations of its own; its hash is that of another."""
    assert base.score is not None and base.score.uncertainty is not None
    value = float(skill + rng.normal(0, 0.03))
    known = base.score.uncertainty.uncertainty(DATASET)
    low, high = known.interval(value)
    varied = StoredUncertainty.of(_varied(known, rng), base.score.limits)
    changed = {"value": value, "low": low, "high": high, "raw": 0.8 * value}
    score = base.score.model_copy(update={**changed, "uncertainty": varied})
    alone = next(iter(base.scores.values())).model_copy(update=changed)
    controls = {
        name: control for name, control in base.controls.items() if name != "generator"
    }
    return base.model_copy(
        update={
            "id": job.id,
            "model": job.model,
            "benchmark": job.benchmark,
            "inputs": job.inputs,
            "score": score,
            "scores": dict.fromkeys(base.scores, alone),
            "controls": controls,
        }
    )


def _varied(known: Uncertainty, rng: np.random.Generator) -> Uncertainty:
    noise = known * 0.3
    for part in noise.parts:
        part.values[:] = rng.permutation(part.values)
    return (known + noise) * (1 / math.hypot(1, 0.3))


def cost(root: Path, *words: str) -> Cost:
    """Run a command of the package in a repository; the time is that of all its processes."""
    code = f"{PEAK}; from neuroledger.cli import main; sys.exit(main())"
    before = _time_of_children()
    done = _run(root, code, *words)
    seconds = _time_of_children() - before
    return Cost(seconds, int(done.stderr.split()[-1]) / 1024, done.returncode)


def time_of(root: Path, code: str) -> float:
    """Return the processor time in s of all processes of a Python program."""
    before = _time_of_children()
    _run(root, code)
    return _time_of_children() - before


def _run(root: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program, and wait for every process that it leaves behind, without which the system does not count its time.

    Such processes become children of this one (prctl(2), PR_SET_CHILD_SUBREAPER), which must have no others.
    """
    ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return done


def _time_of_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _write(path: Path, record: Record) -> None:
    """Write a record, with the hash of its payload."""
    plain = record.model_dump(mode="json")
    plain["payload_sha256"] = payload_of(plain)
    text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n")


def _change_one(root: Path) -> None:
    """Move the score of one model on one benchmark, as another run of a changed model does."""
    path = next((root / "results" / "records").rglob("model*.json"))
    record = read_record(path)
    assert record.score is not None and record.score.low is not None
    assert record.score.value is not None and record.score.high is not None
    changed = {
        "value": record.score.value + MOVED,
        "low": record.score.low + MOVED,
        "high": record.score.high + MOVED,
    }
    scores = {
        metric: each.model_copy(update=changed)
        for metric, each in record.scores.items()
    }
    score = record.score.model_copy(update=changed)
    _write(path, record.model_copy(update={"score": score, "scores": scores}))


def _nothing(root: Path) -> None:
    """Leave the repository as it is."""


STEPS: dict[str, tuple[tuple[str, ...], Callable[[Path], None]]] = {
    "list benchmarks": (("list", "benchmarks"), _nothing),
    "leaderboard, first": (("leaderboard",), _nothing),
    "leaderboard, again": (("leaderboard",), _nothing),
    "leaderboard, one record changed": (("leaderboard",), _change_one),
    "report, first": (("report",), _nothing),
    "report, again": (("report",), _nothing),
    "report, one record changed": (("report",), _change_one),
    "check, first": (("check",), _nothing),
    "check, again": (("check",), _nothing),
    "run --dry-run": (("run", "--dry-run"), _nothing),
    "run, nothing to do": (("run",), _nothing),
    "verify": (("verify",), _nothing),
}


def measured(
    sizes: Sequence[tuple[int, int]], steps: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield one row for each size and command."""
    for benchmarks, models in sizes:
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            root = Path(folder)
            repository(root, benchmarks, models)
            # What the plan above remembered would be missing in the second repository, since this process knows it.
            shutil.rmtree(root / ".cache", ignore_errors=True)
            records = sum(1 for _ in (root / "results/records").rglob("*.json"))
            for name in steps:
                words, prepare = STEPS[name]
                prepare(root)
                time.sleep(SETTLED_SECONDS)
                yield {"step": name, "records": records, **cost(root, *words)._asdict()}


def exponent(rows: Sequence[dict[str, Any]]) -> float:
    """Return the power of the number of records by which time grows between the last two sizes; NaN if they are alike."""
    if len(rows) < 2:
        return math.nan
    small, large = rows[-2:]
    more = large["records"] / small["records"]
    if abs(math.log(more)) < ALIKE:
        return math.nan
    return math.log(large["seconds"] / small["seconds"]) / math.log(more)


def main() -> None:
    """Measure each size, and print the table with the fitted power of each command."""
    parser = argparse.ArgumentParser(prog="python -m perf.growth", description=__doc__)
    parser.add_argument(
        "--sizes",
        nargs="*",
        default=["x".join(map(str, size)) for size in SIZES],
        metavar="BENCHMARKSxMODELS",
    )
    parser.add_argument("--steps", nargs="*", default=list(STEPS), choices=list(STEPS))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes]
    rows = list(measured(sizes, options.steps))
    counts = list(dict.fromkeys(row["records"] for row in rows))
    print(
        "| command |", " | ".join(f"{count:,} records" for count in counts), "| power |"
    )
    print("|---|", *(["--:|"] * (len(counts) + 1)))
    for name in options.steps:
        own = [row for row in rows if row["step"] == name]
        cells = [f"{row['seconds']:.1f} s, {row['megabytes']:.0f} MB" for row in own]
        print(f"| {name} |", " | ".join(cells), f"| {exponent(own):.2f} |")


if __name__ == "__main__":
    main()
