"""``python -m perf``: run each metric and its peer in turn, and print the table that the documentation shows."""

from __future__ import annotations

import argparse
import platform

import numpy as np
from threadpoolctl import threadpool_limits

from perf.layers import layers
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
        "--layers", action="store_true", help="20 layers × 4 assemblies × 3 metrics, and nothing else"
    )
    given = parser.parse_args()
    with threadpool_limits(given.threads):
        speed = gemm_speed(given.clock)
        print(
            f"{platform.machine()}, {given.threads} threads, GEMM {speed / 1e9:.0f} GF/s in float64, blocks in {given.dtype}"
        )
        print(
            f"median of {given.rounds}, sides in turn, {given.clock} clock; peers scaled from {given.peer_splits} splits\n"
        )
        if given.layers:
            grams, scores = layers(given.clock)
            print(
                f"20 layers × 4 assemblies × 3 metrics: {scores.median:.1f} s; one pass of Gram matrices: "
                f"{grams.median:.1f} s; ratio {scores.median / grams.median:.1f}, {scores.megabytes:.0f} MB more"
            )
            return
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


if __name__ == "__main__":
    main()
