"""Solvers as models, by the name of their method; the model's answer is the function that solves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.families.efficiency.system.qubo import (
    Solver,
    Workload,
    anneal,
    exact,
    tabu,
)
from neuroledger.models.model import Fit
from neuroledger.spec.channels import Channels

__all__ = ["ASKS", "GIVES", "TAKES", "Method", "SolverModel", "first_fit", "solver_of"]

ASKS: Final = "answers:optimisation"
TAKES: Final[Channels] = frozenset({"problems"})
GIVES: Final[Channels] = frozenset({ASKS})
Method = Literal["tabu", "anneal", "exact", "first_fit"]


def first_fit(work: Workload, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the greedy solution without a search: each vertex in turn that has no edge to a chosen one."""
    chosen = np.zeros(work.nodes)
    for vertex in range(work.nodes):
        chosen[vertex] = not (work.adjacency[vertex] * chosen).any()
    yield chosen


def solver_of(method: Method, steps: int | None) -> Solver:
    """Return the solver of this name; ``steps`` are those of the tabu search, or sweeps of the annealing."""
    if method == "tabu":
        if steps is None:
            return tabu
        return partial(tabu, steps=steps)
    if method == "anneal":
        if steps is None:
            return anneal
        return partial(anneal, sweeps=steps)
    if method == "exact":
        return exact
    return first_fit


@dataclass(frozen=True)
class SolverModel:
    """A solver as a model; its answer is the function that yields increasingly better solutions of a workload."""

    id: str
    solver: Solver
    takes = TAKES
    gives = GIVES

    def answer(self, question: Fit) -> Solver:
        """Return the solver."""
        return self.solver
