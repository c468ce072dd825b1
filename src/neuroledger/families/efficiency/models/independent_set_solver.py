"""Reference solvers of maximum independent sets."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from neuroledger.families.efficiency.system.solvers import (
    GIVES,
    TAKES,
    Method,
    SolverModel,
    solver_of,
)
from neuroledger.spec.registry import builder

__all__ = ["independent_set_solver"]


def _require_steps_method(values: Any) -> None:
    if values.steps is not None and values.method not in ("tabu", "anneal"):
        raise ValueError(f"{values.method} does not take `steps`: leave it out")


@builder(
    "independent_set_solver",
    version=2,
    takes=TAKES,
    gives=GIVES,
    together=_require_steps_method,
)
def independent_set_solver(
    *,
    id: str,
    method: Method = "tabu",
    steps: PositiveInt | None = None,
) -> SolverModel:
    """A solver: ``tabu`` search, ``anneal``, ``exact`` (branch and bound), or ``first_fit`` without a search.

    ``steps`` limits the steps of the tabu search or the sweeps of the annealing.
    """
    return SolverModel(id, solver_of(method, steps))
