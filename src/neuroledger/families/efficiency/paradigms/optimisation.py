"""Optimisation: a solver seeks good solutions of problems, and what it reached when is noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

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


@paradigm("optimisation", version=1, shows={"problems"}, asks={ASKS}, itself=False, permuted=None)
def optimisation(
    model: Model,
    data: Dataset,
    *,
    seconds: Annotated[float, Field(gt=0)] = 60.0,
    seed: Annotated[int, Field(ge=0)] = 0,
    metrics: Sequence[str | Override] = (),
    catalog: Catalog | None = None,
) -> Measurement:
    """Costs of the best solutions found beside the best known ones, ``(presentation,)``, one for each graph.

    The source carries ``conflicts``, the edges within the solution. Costs are the seconds and joules until the solver came
    within 10, 5 and 1 % of the known cost, measured on this machine.

    Parameters
    ----------
    model
        A solver of maximum independent sets.
    data
        An assembly (presentation,) of the best known costs, with ``nodes``, ``density`` and ``seed`` of each graph.
    seconds
        A solver that has not reached the known cost is stopped after this long. Costs are the same on every machine if
        solvers give up by themselves before.
    seed
        Of the solver's random numbers, together with those of the graph.

    Raises
    ------
    DataError
        The data have no graphs.
    ModelError
        The model is no solver.
    RequestError
        It yields something that is no solution.
    """
    known = data.assembly
    needed = ("nodes", "density", "seed")
    if known is None or known.dims != ("presentation",) or any(name not in known.coords for name in needed):
        raise DataError(f"data set {data.id!r} has no costs (presentation,) with nodes, density and seed")
    works = [
        workload(int(nodes), float(density), int(graph), target=int(cost))
        for nodes, density, graph, cost in zip(
            *(known[name].values for name in needed), known.values, strict=True
        )
    ]
    rows = evaluate(fit(model, ASKS, None), works, seed=seed, seconds=seconds)
    found = xr.DataArray(
        rows["cost"].to_numpy(np.float64),
        dims=("presentation",),
        coords={
            **{str(name): ("presentation", one.values) for name, one in known.coords.items()},
            "conflicts": ("presentation", rows["conflicts"].to_numpy(np.int64)),
        },
    )
    names = [f"{what}_{share:g}" for share in THRESHOLDS for what in ("seconds", "joules")]
    problems = known["stimulus_id"].values.astype(str) if "stimulus_id" in known.coords else range(len(rows))
    solving = {
        str(problem): {name: float(row[name]) for name in names}
        for problem, (_, row) in zip(problems, rows.iterrows(), strict=True)
    }
    trace = Trace("strict", frozenset(), samples=len(rows), solving=solving)
    wanted = {id_of(item): item for item in metrics}
    costs = read_costs(wanted, trace, catalog or open_definitions())
    return Measurement(found, known.astype(np.float64), costs=costs, trace=trace)
