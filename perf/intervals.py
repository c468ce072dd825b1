"""``python -m perf.intervals``: time of the intervals of ten benchmarks × ten networks, beside that of the scores."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Request, Session
from neuroledger.spec.catalog import open_catalog

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = (
    "Digits.simulated.IT-pls", "Digits.simulated.IT-ridge", "Digits.simulated.IT-ridge_split", "Digits.simulated.IT-rdm",
    "Digits.simulated.V4-pls", "Digits.simulated.V4-ridgecv", "Digits.simulated.subjects.IT-rdm",
    "Digits.simulated.time.IT-ridge", "Digits.simulated.ragged.IT-ridge", "Digits.simulated.choices-i1n",
)  # fmt: skip
NETWORKS = 10


@contextmanager
def repository() -> Iterator[Path]:
    """A copy of the specs with ten networks of random weights, beside the data of this repository."""
    with tempfile.TemporaryDirectory(prefix="intervals-") as name:
        root = Path(name)
        shutil.copytree(ROOT / "specs", root / "specs")
        for part in ("data", "results", "params.yaml", "dvc.yaml"):
            (root / part).symlink_to(ROOT / part)
        text = (ROOT / "specs/models/small_cnn.random.yaml").read_text(encoding="utf-8")
        for seed in range(NETWORKS):
            changed = text.replace(
                "id: small_cnn.random", f"id: small_cnn.random.{seed}"
            )
            changed = changed.replace("seed: 0", f"seed: {seed + 1}")
            (root / f"specs/models/small_cnn.random.{seed}.yaml").write_text(
                changed, encoding="utf-8"
            )
        yield root


def main() -> None:
    """Score every pair once, and print processor time of scores and of their intervals."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.intervals", description=__doc__
    )
    parser.add_argument(
        "--networks",
        type=int,
        default=NETWORKS,
        choices=range(1, NETWORKS + 1),
        metavar="N",
    )
    options = parser.parse_args()
    print(
        "| benchmark | networks | scores, s | intervals, s | ratio |\n|---|--:|--:|--:|--:|"
    )
    with repository() as root:
        catalog = open_catalog(root)
        session, sums = Session(catalog, Request(seed=0)), [0.0, 0.0]
        for id in BENCHMARKS:
            times = [0.0, 0.0]
            for seed in range(options.networks):
                start = time.process_time()
                scores = evaluate(
                    session,
                    catalog.benchmark(id),
                    f"small_cnn.random.{seed}",
                    controls=False,
                ).scores
                scored = time.process_time()
                for score in scores.values():
                    _ = score.low
                times[0] += scored - start
                times[1] += time.process_time() - scored
            sums = [a + b for a, b in zip(sums, times, strict=True)]
            print(line(id, options.networks, times), flush=True)
        print(line("all", options.networks, sums))


def line(name: str, networks: int, times: list[float]) -> str:
    """Format one row of the table."""
    return f"| {name} | {networks} | {times[0]:.2f} | {times[1]:.2f} | {times[1] / times[0]:.2f} |"


if __name__ == "__main__":
    main()
