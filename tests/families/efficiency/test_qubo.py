"""Maximum independent sets: the published graphs, their published costs, and what the harness notes about solvers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from neuroledger.errors import RequestError
from neuroledger.families.efficiency.counting.measured import Meter
from neuroledger.families.efficiency.system.qubo import (
    DENSITIES,
    SEEDS,
    Workload,
    anneal,
    evaluate,
    exact,
    official,
    tabu,
    workload,
)


@pytest.mark.parametrize(
    ("nodes", "density", "seed"), [(10, 0.25, 1), (50, 0.1, 3), (100, 0.05, 4), (250, 0.25, 0), (9, 1, 0)]
)
def test_graphs_are_those_of_the_published_generator(nodes, density, seed):
    networkx = pytest.importorskip("networkx")
    drawn = networkx.gnm_random_graph(nodes, int(0.5 * density * nodes**2), seed=seed)
    work = workload(nodes, density, seed)
    np.testing.assert_array_equal(work.adjacency, networkx.to_numpy_array(drawn))
    x = np.random.default_rng(0).integers(0, 2, nodes)
    assert work.cost(x) == x @ work.matrix() @ x


def test_published_costs_of_small_graphs_are_the_optimum_of_all_solutions():
    for density, seed in itertools.product(DENSITIES, SEEDS):
        work = workload(10, density, seed)
        every = np.array(list(itertools.product((0, 1), repeat=10)))
        assert ((every @ work.matrix()) * every).sum(1).min() == work.target


def test_branch_and_bound_proves_published_costs():
    works = [workload(25, density, seed) for density, seed in itertools.product(DENSITIES, SEEDS)]
    works += [workload(100, 0.05, seed) for seed in (0, 2)] + [workload(250, 0.01, seed) for seed in SEEDS]
    rows = evaluate(exact, works, meter=None)
    assert (rows["cost"] == rows["target"]).all() and (rows["conflicts"] == 0).all()


def test_tabu_and_annealing_reach_published_costs():
    works = [workload(50, density, 0) for density in (0.01, 0.25)] + [
        workload(500, density, 0) for density in (0.01, 0.25)
    ]
    rows = evaluate(tabu, works, meter=None)
    assert (rows["cost"] == rows["target"]).all() and rows["seconds_0.01"].notna().all()
    assert (rows["cost"] == evaluate(tabu, works, meter=None)["cost"]).all()
    annealed = evaluate(anneal, [workload(50, density, 1) for density in DENSITIES], meter=None)
    assert (annealed["gap"] <= 0.1).all()


def test_thresholds_conflicts_and_joules():
    work = Workload(4, 0.5, 0, np.array([[0, 1]]), -3)

    def worse_and_better(given, rng):
        yield np.array([1, 1, 0, 0])  # 8 - 2: worse than choosing nothing
        yield np.array([0, 1, 1, 0])  # -2, a gap of a third
        yield np.array([0, 1, 1, 1])  # the optimum
        raise AssertionError("a solver ends at the target")

    joules = itertools.count(5)
    rows = evaluate(worse_and_better, [work], meter=Meter("by hand", lambda: lambda: float(next(joules))))
    row = rows.iloc[0]
    assert (row["cost"], row["gap"], row["conflicts"], row["chosen"]) == (-3, 0, 0, 3)
    assert row["joules_0.1"] == row["joules_0.01"] == 6 and row["seconds_0.1"] > 0

    def early(given, rng):
        yield np.array([0, 1, 1, 0])

    short = evaluate(early, [work, Workload(4, 0.5, 1, work.edges, -2)], meter=None)
    assert short["gap"].tolist() == [pytest.approx(1 / 3), 0] and np.isnan(short["seconds_0.1"][0])
    table = official(short)
    assert table["seconds_0.1"].isna().all()  # one of the seeds did not come near enough
    for wrong in (np.ones(3), np.full(4, 0.5)):
        with pytest.raises(RequestError, match="0 or 1 for each of 4"):
            evaluate(lambda *_, x=wrong: iter([x]), [work], meter=None)
    assert workload(10, 0.25, 7).target is None and np.isnan(workload(10, 0.25, 7).gap(-4))
    with pytest.raises(RequestError, match="density"):
        workload(10, 1.5, 0)
