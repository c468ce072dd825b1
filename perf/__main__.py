"""``python -m perf``: run each metric and its peer alternately, and print the table of the documentation."""

from __future__ import annotations

import argparse
import platform
from dataclasses import replace

from threadpoolctl import threadpool_limits

from perf.layers import ASSEMBLIES, METRICS, NETWORKS, STIMULI, TARGETS, layers
from perf.measure import gemm_speed
from perf.neural import PACKAGES, SIZES, WARM, Options, cases, is_installed
from perf.table import HEADER, LONG, in_turn, line


def main() -> None:
    """Parse the command line, warm up both sides on a tiny case, and measure."""
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    parser.add_argument(
        "--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), metavar="SIZE"
    )
    parser.add_argument(
        "--metrics",
        nargs="*",
        default=[],
        metavar="METRIC",
        help="such as: pls ridge 'best unit'",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of alternating runs of each side"
    )
    parser.add_argument(
        "--peer-splits",
        type=int,
        default=1,
        help="number of splits that the peer runs; its time is scaled",
    )
    parser.add_argument(
        "--all", action="store_true", help="include cases whose peer takes minutes"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: for a shared machine",
    )
    parser.add_argument(
        "--layers",
        nargs="*",
        choices=list(NETWORKS),
        metavar="NETWORK",
        help=f"measure only 20 layers × 4 assemblies × 3 metrics, of {', '.join(NETWORKS)} (default: all)",
    )
    options = parser.parse_args()
    with threadpool_limits(options.threads):
        speed = gemm_speed(options.clock)
        print(
            f"{platform.machine()}, {options.threads} threads, GEMM {speed / 1e9:.0f} GF/s in float64, "
            f"blocks in {options.dtype}"
        )
        if options.layers is not None:
            _layers(options.layers or list(NETWORKS), options.clock)
            return
        print(
            f"median of {options.rounds}, alternating sides, {options.clock} clock; peers run {options.peer_splits} of the "
            f"splits (10, at fMRI size 2), and their time is scaled; a peer that takes over {LONG:.0f} s runs once\n"
        )
        missing = [name for name in PACKAGES if not is_installed(name)]
        if missing:
            print(
                f"without {' and '.join(missing)}, which `pip install 'neuroledger[perf]'` adds\n"
            )
        case_options = Options(
            frozenset(options.metrics), options.peer_splits, options.dtype, options.all
        )
        for case in cases(WARM, replace(case_options, everything=True)):
            case.ours()
            case.theirs()
        print(HEADER)
        for label in options.sizes:
            for case in cases(SIZES[label], case_options):
                sides = in_turn(case.ours, case.theirs, options.rounds, options.clock)
                print(
                    line(
                        label,
                        case.name,
                        case.peer,
                        sides,
                        case.share,
                        case.operations / speed,
                    ),
                    flush=True,
                )


def _layers(labels: list[str], clock: str) -> None:
    """Print the cost of many scores, compared with the Gram matrices that they all need."""
    print(
        f"20 layers × {ASSEMBLIES} assemblies ({STIMULI} stimuli, {TARGETS // ASSEMBLIES} neuroids, 10 splits) "
        f"× {', '.join(METRICS)}; {clock} seconds, of which gram: keys and matrices of the layers\n"
    )
    parts = ("gram", *METRICS)
    print(
        f"| network | features | one pass of Gram | all scores | ratio | {' | '.join(parts)} | MB more |"
    )
    print(f"|---|---|--:|--:|--:|{'--:|' * len(parts)}--:|")
    for label in labels:
        timing = layers(clock, label)
        counts = timing.network.counts
        columns = " | ".join(f"{timing.parts[part]:.1f}" for part in parts)
        print(
            f"| {label} | {min(counts):,} to {max(counts):,}, {sum(counts):,} in all | {timing.one_pass:.1f} "
            f"| {timing.scoring:.1f} | {timing.scoring / timing.one_pass:.2f} | {columns} | {timing.megabytes:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
