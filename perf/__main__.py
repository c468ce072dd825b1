"""``python -m perf``: run each metric and its peer in turn, and print the table that the documentation shows."""

from __future__ import annotations

import argparse
import platform

import numpy as np
from threadpoolctl import threadpool_limits

from perf.layers import ASSEMBLIES, METRICS, NETWORKS, STIMULI, TARGETS, layers
from perf.measure import Runs, gemm_speed
from perf.neural import SIZES, WARM, cases

HEADER = (
    "| size | metric | against | peer s | ours s | ratio | peer MB | ours MB | largest difference | × limit |\n"
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Parse the command line, warm both sides up on a tiny case, then measure."""
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), metavar="SIZE")
    parser.add_argument(
        "--metrics", nargs="*", default=[], metavar="METRIC", help="such as: pls ridge 'best unit'"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs, in turn")
    parser.add_argument(
        "--peer-splits", type=int, default=10, help="the peer runs so many splits; its time is scaled"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a shared machine")
    parser.add_argument(
        "--layers",
        nargs="*",
        choices=list(NETWORKS),
        metavar="NETWORK",
        help=f"20 layers × 4 assemblies × 3 metrics, and nothing else; of {', '.join(NETWORKS)} (all)",
    )
    given = parser.parse_args()
    with threadpool_limits(given.threads):
        speed = gemm_speed(given.clock)
        print(
            f"{platform.machine()}, {given.threads} threads, GEMM {speed / 1e9:.0f} GF/s in float64, blocks in {given.dtype}"
        )
        if given.layers is not None:
            _layers(given.layers or list(NETWORKS), given.clock)
            return
        print(
            f"median of {given.rounds}, sides in turn, {given.clock} clock; peers scaled from {given.peer_splits} splits\n"
        )
        for case in cases(WARM, set(given.metrics), 2, given.dtype):
            case.ours()
            case.theirs()
        print(HEADER)
        for label in given.sizes:
            for case in cases(SIZES[label], set(given.metrics), given.peer_splits, given.dtype):
                ours, theirs = Runs(given.clock), Runs(given.clock)
                for _ in range(given.rounds):
                    ours.add(case.ours)
                    theirs.add(case.theirs)
                peer = theirs.median / case.share
                mine, reference = np.atleast_1d(ours.values), np.atleast_1d(theirs.values)
                difference = np.nanmax(np.abs(mine[: len(reference)] - reference))
                limit = f"{ours.median * speed / case.operations:.1f}" if case.operations else "–"
                print(
                    f"| {label} | {case.name} | {case.peer} | {peer:.3g} | {ours.median:.3g} "
                    f"| {peer / ours.median:.1f}× "
                    f"| {theirs.megabytes:.0f} | {ours.megabytes:.0f} | {difference:.0e} | {limit} |",
                    flush=True,
                )


def _layers(labels: list[str], clock: str) -> None:
    """Print what many scores cost beyond the Gram matrices that they all need."""
    print(
        f"20 layers × {ASSEMBLIES} assemblies ({STIMULI} stimuli, {TARGETS // ASSEMBLIES} neuroids, 10 splits) "
        f"× {', '.join(METRICS)}; {clock} seconds, of which gram: keys and matrices of the layers\n"
    )
    parts = ("gram", *METRICS)
    print(f"| network | features | one pass of Gram | all scores | ratio | {' | '.join(parts)} | MB more |")
    print(f"|---|---|--:|--:|--:|{'--:|' * len(parts)}--:|")
    for label in labels:
        timed = layers(clock, label)
        counts = timed.network.counts
        each = " | ".join(f"{timed.parts[part]:.1f}" for part in parts)
        print(
            f"| {label} | {min(counts):,} to {max(counts):,}, {sum(counts):,} in all | {timed.one_pass:.1f} "
            f"| {timed.scoring:.1f} | {timed.scoring / timed.one_pass:.2f} | {each} | {timed.megabytes:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
