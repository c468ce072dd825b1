"""Quadratic unconstrained binary optimisation: the maximum independent sets of NeuroBench's system track, offline [yik2025].

A workload is a random graph. A solution ``x`` of zeros and ones chooses vertices and costs ``x' Q x``: -1 for each chosen
vertex and 8 for each edge between two of them. Solvers yield solutions as they find them; the harness verifies each cost,
records when it was reached, and compares it with the best published cost.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from neuroledger.data.arrays import Array, Indices
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.efficiency.counting.meters import Meter, rapl

__all__ = [
    "DENSITIES",
    "NODES",
    "SEEDS",
    "THRESHOLDS",
    "Solver",
    "Workload",
    "anneal",
    "evaluate",
    "exact",
    "official",
    "tabu",
    "workload",
]

NODES: Final = (10, 25, 50, 100, 250, 500)
DENSITIES: Final = (0.01, 0.05, 0.1, 0.25)
SEEDS: Final = (0, 1, 2, 3, 4)
"""Seeds published for tuning; others may be drawn for evaluation."""
THRESHOLDS: Final = (0.1, 0.05, 0.01)
PENALTY: Final = 8

# Sizes of the largest independent sets that NeuroBench publishes for its five seeds: global optima up to 50 vertices.
PUBLISHED: Final[Mapping[tuple[int, float], tuple[int, ...]]] = {
    (10, 0.01): (10, 10, 10, 10, 10),
    (10, 0.05): (8, 8, 9, 8, 8),
    (10, 0.1): (7, 7, 7, 8, 7),
    (10, 0.25): (6, 6, 5, 6, 5),
    (25, 0.01): (22, 22, 23, 22, 22),
    (25, 0.05): (15, 18, 17, 17, 17),
    (25, 0.1): (12, 15, 14, 13, 13),
    (25, 0.25): (9, 9, 8, 10, 8),
    (50, 0.01): (40, 42, 41, 43, 40),
    (50, 0.05): (28, 27, 27, 27, 26),
    (50, 0.1): (20, 21, 19, 21, 22),
    (50, 0.25): (12, 13, 12, 12, 13),
    (100, 0.01): (73, 71, 74, 73, 71),
    (100, 0.05): (44, 42, 45, 45, 42),
    (100, 0.1): (30, 29, 30, 31, 30),
    (100, 0.25): (17, 17, 16, 16, 18),
    (250, 0.01): (142, 140, 137, 138, 143),
    (250, 0.05): (69, 62, 59, 61, 58),
    (250, 0.1): (37, 37, 42, 37, 40),
    (250, 0.25): (20, 19, 20, 18, 19),
    (500, 0.01): (196, 190, 185, 188, 188),
    (500, 0.05): (73, 71, 72, 74, 73),
    (500, 0.1): (45, 46, 44, 46, 45),
    (500, 0.25): (22, 23, 23, 21, 22),
}


@dataclass(frozen=True)
class Workload:
    """A graph of ``nodes`` vertices with edges ``(edge, 2)``; ``target`` is the best known cost, None if unknown."""

    nodes: int
    density: float
    seed: int
    edges: Indices
    target: int | None

    @cached_property
    def adjacency(self) -> Array:
        """The adjacency matrix ``(vertex, vertex)`` of zeros and ones."""
        matrix = np.zeros((self.nodes, self.nodes))
        matrix[self.edges[:, 0], self.edges[:, 1]] = matrix[
            self.edges[:, 1], self.edges[:, 0]
        ] = 1
        return matrix

    def matrix(self) -> Array:
        """Return Q ``(vertex, vertex)``: -1 on the diagonal, half the penalty at both entries of an edge."""
        return self.adjacency * (PENALTY // 2) - np.eye(self.nodes)

    def cost(self, solution: Array) -> int:
        """Return the cost ``x' Q x`` of a solution.

        Raises
        ------
        RequestError
            The solution does not have a 0 or 1 for each vertex.
        """
        x = np.asarray(solution)
        if x.shape != (self.nodes,) or not np.isin(x, (0, 1)).all():
            raise RequestError(
                f"invalid solution of shape {x.shape}: it must have 0 or 1 for each of {self.nodes} vertices"
            )
        chosen = x.astype(bool)
        return PENALTY * int(
            (chosen[self.edges[:, 0]] & chosen[self.edges[:, 1]]).sum()
        ) - int(chosen.sum())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the edges as little-endian pairs of 32-bit integers, smaller vertex first, in sorted order."""
        pairs = np.sort(self.edges, axis=1)
        return hashlib.sha256(
            pairs[np.lexsort(pairs.T[::-1])].astype("<i4").tobytes()
        ).hexdigest()

    def gap(self, cost: float) -> float:
        """Return the distance of a cost from the target, as a share of the target; NaN without a target."""
        if self.target is None:
            return float("nan")
        return abs((cost - self.target) / self.target)


def workload(
    nodes: int, density: float, seed: int, *, target: int | None = None
) -> Workload:
    """Draw the graph of NeuroBench's generator: ``int(density nodes^2 / 2)`` edges, uniformly without replacement.

    Pairs of vertices are drawn with Python's generator until there are enough, as in networkx's ``gnm_random_graph``.
    ``target`` is the best known cost; by default the published one, if there is one.

    Raises
    ------
    RequestError
        There are no vertices, or the density is not between 0 and 1.
    """
    if nodes < 1 or not 0 <= density <= 1:
        raise RequestError(
            f"a workload needs at least one vertex and a density of 0 to 1, not {nodes} and {density}"
        )
    count = int(0.5 * density * nodes**2)
    all_edges = nodes * (nodes - 1) // 2
    pairs: dict[tuple[int, int], None] = {}
    if count >= all_edges:
        pairs = {(u, v): None for u in range(nodes) for v in range(u + 1, nodes)}
    rng = random.Random(seed)
    vertices = range(nodes)
    while len(pairs) < min(count, all_edges):
        u = rng.choice(vertices)
        v = rng.choice(vertices)
        if u != v:
            pairs[min(u, v), max(u, v)] = None
    edges = np.array(list(pairs), dtype=np.intp).reshape(-1, 2)
    published = PUBLISHED.get((nodes, density), ())
    if target is None and 0 <= seed < len(published):
        target = -published[seed]
    return Workload(nodes, density, seed, edges, target)


Solver = Callable[[Workload, np.random.Generator], Iterator[Array]]
"""Yields increasingly better solutions ``(vertex,)`` of a workload until it stops."""


def tabu(
    work: Workload,
    rng: np.random.Generator,
    *,
    steps: int = 200_000,
    tenure: int = 3,
    patience: int = 5_000,
) -> Iterator[Array]:
    """Tabu search [glover1989]: flip the best vertex that was not flipped recently; restart after ``patience`` steps.

    A flipped vertex is tabu for ``tenure`` and up to ten further steps, unless flipping it gives the best cost so far.
    """
    neighbours = [np.flatnonzero(row) for row in work.adjacency]
    best = 1.0
    step = 0
    while step < steps:
        x = np.zeros(work.nodes)
        chosen_neighbours = np.zeros(work.nodes)
        tabu_until = np.zeros(work.nodes, dtype=np.int64)
        cost = local = 0.0
        unimproved = 0
        while unimproved < patience and step < steps:
            change = (1 - 2 * x) * (PENALTY * chosen_neighbours - 1)
            noise = rng.random(work.nodes) * 0.5  # ties are broken at random
            allowed = (tabu_until <= step) | (cost + change < best)
            v = int(np.argmin(np.where(allowed, change + noise, np.inf)))
            x[v] = 1 - x[v]
            cost += change[v]
            chosen_neighbours[neighbours[v]] += 2 * x[v] - 1
            tabu_until[v] = step + tenure + int(rng.integers(10))
            unimproved = 0 if cost < local else unimproved + 1
            local = min(local, cost)
            step += 1
            if cost < best:
                best = cost
                yield x.copy()


def anneal(
    work: Workload,
    rng: np.random.Generator,
    *,
    sweeps: int = 2_000,
    hot: float = 2.0,
    cold: float = 0.15,
) -> Iterator[Array]:
    """Simulated annealing [kirkpatrick1983]: sweeps over all vertices while the temperature falls geometrically."""
    neighbours = [np.flatnonzero(row) for row in work.adjacency]
    x = np.zeros(work.nodes)
    chosen_neighbours = np.zeros(work.nodes)
    cost, best = 0.0, 1.0
    for temperature in np.geomspace(hot, cold, sweeps):
        chances = -temperature * np.log(rng.random(work.nodes))
        for v in rng.permutation(work.nodes):
            change = (1 - 2 * x[v]) * (PENALTY * chosen_neighbours[v] - 1)
            if change <= chances[v]:
                x[v] = 1 - x[v]
                cost += change
                chosen_neighbours[neighbours[v]] += 2 * x[v] - 1
        if cost < best:
            best = cost
            yield x.copy()


def exact(
    work: Workload, rng: np.random.Generator, *, seconds: float = 60.0
) -> Iterator[Array]:
    """Yield the optimum, or the best solution found in time, by branch and bound (HiGHS) [huangfu2018]."""
    count = len(work.edges)
    if not count:
        yield np.ones(work.nodes)
        return
    positions = (np.repeat(np.arange(count), 2), work.edges.ravel())
    at_most_one = LinearConstraint(
        coo_array((np.ones(2 * count), positions), shape=(count, work.nodes)),
        -np.inf,
        1,
    )
    optimum = milp(
        -np.ones(work.nodes),
        constraints=at_most_one,
        integrality=np.ones(work.nodes, dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"time_limit": seconds},
    )
    if optimum.x is not None:
        yield np.rint(optimum.x)


def evaluate(
    solver: Solver,
    works: Iterable[Workload],
    *,
    seed: int = 0,
    seconds: float = 60.0,
    meter: Meter | Literal["find"] | None = "find",
) -> pd.DataFrame:
    """Return one row for each workload: the best cost, and the seconds and joules until each threshold was reached.

    A run ends when the solver reaches the target, stops, or has run for ``seconds``. Time starts when the graph is loaded
    and includes the verification of costs. Joules are read from the processor's counters, including idle power; NaN without
    counters. ``chosen`` is the number of vertices, which are an independent set if ``conflicts`` is 0.

    Raises
    ------
    RequestError
        The solver yields an invalid solution.
    """
    counter = _meter(meter)
    rows: list[dict[str, object]] = []
    for work in works:
        _ = work.adjacency  # computed before time starts
        rng = np.random.default_rng([seed, work.nodes, work.seed])
        row: dict[str, object] = {
            "nodes": work.nodes,
            "density": work.density,
            "seed": work.seed,
            "target": work.target,
        }
        best = 0
        chosen = np.zeros(work.nodes)
        times: dict[str, float] = {}
        stop = None
        if counter is not None:
            stop = counter.start()
        began = time.perf_counter()
        for solution in solver(work, rng):
            cost = work.cost(solution)
            now = time.perf_counter() - began
            if cost < best:
                best = cost
                chosen = solution
                joules = stop() if stop is not None else float("nan")
                for threshold in THRESHOLDS:
                    if (
                        work.gap(best) <= threshold
                        and f"seconds_{threshold:g}" not in times
                    ):
                        times |= {
                            f"seconds_{threshold:g}": now,
                            f"joules_{threshold:g}": joules,
                        }
            if now > seconds or (work.target is not None and best <= work.target):
                break
        conflicts = (best + int(chosen.sum())) // PENALTY
        row |= {
            "cost": best,
            "gap": work.gap(best),
            "conflicts": conflicts,
            "chosen": int(chosen.sum()),
        }
        names = [
            f"{unit}_{threshold:g}"
            for threshold in THRESHOLDS
            for unit in ("seconds", "joules")
        ]
        row |= {name: times.get(name, float("nan")) for name in names}
        rows.append(row)
    return pd.DataFrame(rows)


def official(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard error over seeds by nodes and density; NaN if a seed did not reach the threshold."""
    columns = [
        name for name in rows.columns if name.startswith(("seconds_", "joules_"))
    ]
    groups = rows.groupby(["nodes", "density"])[columns]
    complete = groups.count().eq(groups.size(), axis=0)
    return (
        groups.mean().where(complete).join(groups.sem().where(complete), rsuffix="_se")
    )


def _meter(meter: Meter | Literal["find"] | None) -> Meter | None:
    if meter != "find":
        return meter
    try:
        processor = rapl()
        processor.start()
    except MetricError:
        return None
    return processor
