"""Optimisation: a solver searches for good solutions of problems; costs are recorded over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from pydantic import NonNegativeInt, PositiveFloat

from neuroledger.data.dataset import Dataset
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.efficiency.cost import read_costs
from neuroledger.families.efficiency.counting.counts import Trace
from neuroledger.families.efficiency.system.qubo import THRESHOLDS, evaluate, workload
from neuroledger.families.efficiency.system.solvers import ASKS
from neuroledger.models.model import Model, fit
from neuroledger.spec.base import Override, id_of
from neuroledger.spec.catalog import Catalog, open_definitions
from neuroledger.spec.registry import paradigm

__all__ = ["optimisation"]


@paradigm(
    "optimisation",
    version=1,
    shows={"problems"},
    asks={ASKS},
    itself=False,
    permuted=None,
)
def optimisation(
    model: Model,
    data: Dataset,
    *,
    seconds: PositiveFloat = 60.0,
    seed: NonNegativeInt = 0,
    metrics: Sequence[str | Override] = (),
    catalog: Catalog | None = None,
) -> Measurement:
    """Return costs of the best solutions found and the best known costs, ``(presentation,)``, one for each graph.

    The source has the coordinate ``conflicts``, the number of edges within the solution. The measurement's costs are the
    seconds and joules until the solver came within 10, 5 and 1 % of the known cost, measured on this machine.

    Parameters
    ----------
    model
        A solver of maximum independent sets.
    data
        An assembly (presentation,) of the best known costs, with ``nodes``, ``density`` and ``seed`` of each graph.
    seconds
        Time limit for a solver that has not reached the known cost. Costs are the same on every machine if solvers stop
        by themselves before the limit.
    seed
        Seed of the solver's random numbers, combined with the graph's.

    Raises
    ------
    DataError
        The data have no graphs.
    ModelError
        The model is not a solver.
    RequestError
        The solver yields an invalid solution.
    """
    best_known = data.assembly
    needed = ("nodes", "density", "seed")
    if (
        best_known is None
        or best_known.dims != ("presentation",)
        or any(name not in best_known.coords for name in needed)
    ):
        raise DataError(
            f"data set {data.id!r} has no costs (presentation,) with nodes, density and seed"
        )
    works = [
        workload(int(nodes), float(density), int(graph), target=int(cost))
        for nodes, density, graph, cost in zip(
            *(best_known[name].values for name in needed),
            best_known.values,
            strict=True,
        )
    ]
    rows = evaluate(fit(model, ASKS, None), works, seed=seed, seconds=seconds)
    source = xr.DataArray(
        rows["cost"].to_numpy(np.float64),
        dims=("presentation",),
        coords={
            **{
                str(name): ("presentation", coord.values)
                for name, coord in best_known.coords.items()
            },
            "conflicts": ("presentation", rows["conflicts"].to_numpy(np.int64)),
        },
    )
    names = [
        f"{unit}_{share:g}" for share in THRESHOLDS for unit in ("seconds", "joules")
    ]
    problems = (
        best_known["stimulus_id"].values.astype(str)
        if "stimulus_id" in best_known.coords
        else range(len(rows))
    )
    solving = {
        str(problem): {name: float(row[name]) for name in names}
        for problem, (_, row) in zip(problems, rows.iterrows(), strict=True)
    }
    trace = Trace("strict", frozenset(), samples=len(rows), solving=solving)
    metrics_by_id = {id_of(item): item for item in metrics}
    costs = read_costs(metrics_by_id, trace, catalog or open_definitions())
    return Measurement(source, best_known.astype(np.float64), costs=costs, trace=trace)
