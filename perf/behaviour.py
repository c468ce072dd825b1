"""``python -m perf.behaviour``: behavioural metrics and ceilings, compared with the peer's procedure and lean loops."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

import neuroledger as nl
from perf import trial_loops, trial_procedure
from perf.procedure import indexed
from perf.table import HEADER, in_turn, line
from perf.trials import naming_task, object_task

PATTERNS: dict[str, dict[str, bool]] = {
    "i1": {"normalise": False, "mean": True},
    "i1n": {"normalise": True, "mean": True},
    "i2": {"normalise": False, "mean": False},
    "i2n": {"normalise": True, "mean": False},
}
METRICS = (*PATTERNS, "error_consistency")
DEFAULT = ("i1", "i2n", "error_consistency")


def ours(
    name: str, source: xr.DataArray, target: xr.DataArray
) -> Callable[[], np.ndarray]:
    """Score and ceiling by their ids, with the peer's aggregation."""
    metric, ceiling = (
        nl.metric(name, compat="brainscore"),
        nl.ceiling(name, compat="brainscore"),
    )
    return lambda: np.array([metric(source, target).value, ceiling(target).value])


def peers(
    name: str, source: xr.DataArray, target: xr.DataArray
) -> dict[str, Callable[[], np.ndarray]]:
    """The peer's procedure on indexed assemblies, and the lean loop."""
    levels = [
        str(n) for n, coord in source.coords.items() if coord.dims == ("presentation",)
    ]
    sides = source.set_index(presentation=levels), indexed(target)
    if name == "error_consistency":
        return {
            "Brain-Score's procedure": lambda: trial_procedure.agreed(*sides),
            "lean loop": lambda: np.abs(trial_loops.loop_agreement(source, target)),
        }
    kind: Any = PATTERNS[name]
    return {
        "Brain-Score's procedure": lambda: trial_procedure.discriminated(
            *sides, **kind
        ),
        "lean loop": lambda: trial_loops.loop_object_task(source, target, **kind),
    }


def main() -> None:
    """Run all sides alternately, and print a line with medians for each."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.behaviour", description=__doc__
    )
    parser.add_argument(
        "--metrics", nargs="*", default=list(DEFAULT), choices=METRICS, metavar="METRIC"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: for a shared machine",
    )
    options = parser.parse_args()
    print(
        f"score and ceiling; median of {options.rounds}, sides in turn, {options.clock} clock\n"
    )
    print(HEADER.replace("| size |", "| trials |"))
    for name in options.metrics:
        source, target = naming_task() if name == "error_consistency" else object_task()
        run = ours(name, source, target)
        run()
        for against, peer in peers(name, source, target).items():
            sides = in_turn(run, peer, options.rounds, options.clock)
            print(line(f"{target.size:,}", name, against, sides, 1, 0), flush=True)


if __name__ == "__main__":
    main()
