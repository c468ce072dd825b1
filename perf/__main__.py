"""``python -m perf``: run each metric and its peer in turn, and print the table that the documentation shows."""

from __future__ import annotations

import argparse
import platform
from dataclasses import replace

from threadpoolctl import threadpool_limits

from perf.layers import ASSEMBLIES, METRICS, NETWORKS, STIMULI, TARGETS, layers
from perf.measure import gemm_speed
from perf.neural import SIZES, WARM, Options, cases
from perf.table import HEADER, LONG, in_turn, line


def main() -> None:
    """Parse the command line, warm both sides up on a tiny case, then measure."""
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), metavar="SIZE")
    parser.add_argument(
        "--metrics", nargs="*", default=[], metavar="METRIC", help="such as: pls ridge 'best unit'"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs, in turn")
    parser.add_argument(
        "--peer-splits", type=int, default=1, help="the peer runs so many splits; its time is scaled"
    )
    parser.add_argument("--all", action="store_true", help="also the cases whose peer takes minutes")
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
            f"median of {given.rounds}, sides in turn, {given.clock} clock; peers run {given.peer_splits} of the splits "
            f"(10, at fMRI size 2), their time is scaled; a peer that takes over {LONG:.0f} s runs once\n"
        )
        options = Options(frozenset(given.metrics), given.peer_splits, given.dtype, given.all)
        for case in cases(WARM, replace(options, everything=True)):
            case.ours()
            case.theirs()
        print(HEADER)
        for label in given.sizes:
            for case in cases(SIZES[label], options):
                sides = in_turn(case.ours, case.theirs, given.rounds, given.clock)
                print(
                    line(label, case.name, case.peer, sides, case.share, case.operations / speed), flush=True
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
