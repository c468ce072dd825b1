"""A solver's distance from the best known costs, and its time to solution: NeuroBench's system track."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.efficiency import examples
from neuroledger.families.efficiency.counting.counts import (
    Reading,
    Trace,
    cost_metric,
    failed,
)
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["optimality_gap", "to_solution"]


@metric("optimality_gap", version=1, input="predictions", example=examples.of_problems)
def optimality_gap(source: xr.DataArray, target: xr.DataArray) -> Samples:
    """Relative gap ``|c - c*| / |c*|`` of each problem's cost to the best known cost, ``(presentation,)`` [yik2025].

    A cost below the best known one also has a gap, as in the published rules; the count `better` is theirs.

    Raises
    ------
    MetricError
        Shapes differ, a cost is not finite, or a known cost is 0.
    """
    if source.dims != ("presentation",) or source.shape != target.shape:
        raise MetricError(
            f"costs found {source.shape} and known {target.shape}: one for each problem is needed"
        )
    require_same_rows(source, target)
    costs = source.values.astype(np.float64)
    best_known = target.values.astype(np.float64)
    if (
        not np.isfinite(costs).all()
        or not np.isfinite(best_known).all()
        or (best_known == 0).any()
    ):
        raise MetricError("costs must be finite, and known costs must not be 0")
    samples = xr.DataArray(
        np.abs((costs - best_known) / best_known),
        dims=("presentation",),
        coords=target.coords,
    )
    counts = {
        "problems": len(costs),
        "reached": int((costs == best_known).sum()),
        "better": int((costs < best_known).sum()),
    }
    return Samples(samples, counts=counts)


@cost_metric("to_solution", version=1, needs=())
def to_solution(
    trace: Trace,
    *,
    measure: Literal["seconds", "joules"] = "seconds",
    within: Literal["0.1", "0.05", "0.01"] = "0.01",
) -> Reading:
    """Mean seconds or joules until a solution was within the given share of the best known cost, over problems [yik2025].

    Measured on the machine that ran the solver. The score fails if a problem was not solved to that share (the published
    rules require it for all seeds), or if there was no meter.
    """
    if not trace.solving:
        return failed("not applicable: no solver was run")
    late = sum(
        math.isnan(readings[f"seconds_{within}"]) for readings in trace.solving.values()
    )
    if late:
        share = f"{float(within):.0%}"
        return failed(
            f"{late} of {len(trace.solving)} problems were not solved within {share} of the best known cost"
        )
    values = {
        name: readings[f"{measure}_{within}"]
        for name, readings in trace.solving.items()
    }
    if any(map(math.isnan, values.values())):
        return failed(
            "no meter of energy was found on this machine: the processor's counters (RAPL) cannot be read"
        )
    mean = sum(values.values()) / len(values)
    return Reading(
        mean,
        parts=values,
        parts_are="problem",
        n={"problems": len(values)},
        notes=("evidence: measured",),
        evidence="measured",
    )
