"""Maximum independent sets: the published graphs, their published costs, and the harness's records of solvers."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
import torch

import neuroledger as nl
from neuroledger.data.load import load_dataset
from neuroledger.engine.evaluate import evaluate as scored
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, NeuroLedgerError, RequestError
from neuroledger.families.efficiency.counting.meters import Meter
from neuroledger.families.efficiency.readers.independent_sets import COLUMNS
from neuroledger.families.efficiency.readers.independent_sets import (
    independent_sets as read_independent_sets,
)
from neuroledger.families.efficiency.system.qubo import (
    DENSITIES,
    NODES,
    SEEDS,
    Workload,
    anneal,
    evaluate,
    exact,
    official,
    tabu,
    workload,
)
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.registry import get
from tools.generate import independent_sets


@pytest.mark.parametrize(
    ("nodes", "density", "seed"),
    [(10, 0.25, 1), (50, 0.1, 3), (100, 0.05, 4), (250, 0.25, 0), (9, 1, 0)],
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
    works = [
        workload(25, density, seed)
        for density, seed in itertools.product(DENSITIES, SEEDS)
    ]
    works += [workload(100, 0.05, seed) for seed in (0, 2)] + [
        workload(250, 0.01, seed) for seed in SEEDS
    ]
    rows = evaluate(exact, works, meter=None)
    assert (rows["cost"] == rows["target"]).all() and (rows["conflicts"] == 0).all()


@pytest.mark.slow
def test_tabu_reaches_every_published_cost():
    works = [workload(*item) for item in itertools.product(NODES, DENSITIES, SEEDS)]
    rows = evaluate(tabu, works, meter=None)
    assert (
        len(rows) == 120
        and (rows["cost"] == rows["target"]).all()
        and (rows["conflicts"] == 0).all()
    )
    assert rows["seconds_0.01"].notna().all() and official(rows).shape[0] == 24
    some = works[::13]
    assert (
        evaluate(tabu, some, meter=None)["cost"] == rows["cost"][::13].to_numpy()
    ).all()


def test_annealing_approaches_published_costs():
    annealed = evaluate(
        anneal, [workload(50, density, 1) for density in DENSITIES], meter=None
    )
    assert (annealed["gap"] <= 0.1).all()


def test_thresholds_conflicts_and_joules():
    work = Workload(4, 0.5, 0, np.array([[0, 1]]), -3)

    def worse_and_better(given, rng):
        yield np.array([1, 1, 0, 0])  # 8 - 2: worse than choosing nothing
        yield np.array([0, 1, 1, 0])  # -2, a gap of a third
        yield np.array([0, 1, 1, 1])  # the optimum
        raise AssertionError("a solver ends at the target")

    joules = itertools.count(5)
    rows = evaluate(
        worse_and_better,
        [work],
        meter=Meter("by hand", lambda: lambda: float(next(joules))),
    )
    row = rows.iloc[0]
    assert (row["cost"], row["gap"], row["conflicts"], row["chosen"]) == (-3, 0, 0, 3)
    assert row["joules_0.1"] == row["joules_0.01"] == 6 and row["seconds_0.1"] > 0

    def early(given, rng):
        yield np.array([0, 1, 1, 0])

    short = evaluate(early, [work, Workload(4, 0.5, 1, work.edges, -2)], meter=None)
    assert short["gap"].tolist() == [pytest.approx(1 / 3), 0] and np.isnan(
        short["seconds_0.1"][0]
    )
    table = official(short)
    assert (
        table["seconds_0.1"].isna().all()
    )  # one of the seeds did not come near enough
    for wrong in (np.ones(3), np.full(4, 0.5)):
        with pytest.raises(RequestError, match="0 or 1 for each of 4"):
            evaluate(lambda *_, x=wrong: iter([x]), [work], meter=None)
    assert workload(10, 0.25, 7).target is None and np.isnan(
        workload(10, 0.25, 7).gap(-4)
    )
    with pytest.raises(RequestError, match="density"):
        workload(10, 1.5, 0)


CATALOG = open_catalog()
SMALL = "NeuroBench.qubo.small-optimality_gap"


def test_the_pinned_table_is_what_the_generator_writes(tmp_path):
    (path,) = independent_sets.build(tmp_path)
    pinned = CATALOG.dataset("NeuroBench.qubo").files["workloads.csv"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == pinned.sha256
    costs = load_dataset(CATALOG, "NeuroBench.qubo").assembly
    assert (
        costs.sizes == {"presentation": 120}
        and costs.sel(presentation=costs["nodes"] == 500).min() == -196
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("10,0.25,0,12", "10,0.25,0,13", "line 17: the graph drawn here has 12 edges"),
        (
            "10,0.25,0",
            "10,0.25,7",
            "line 17: the graph drawn here has .* its generator differs",
        ),
        ("-6", "six", "line 17: could not convert"),
        ("cost", "best", "has no column cost"),
    ],
)
def test_a_table_of_other_graphs_is_refused(tmp_path, old, new, words):
    (path,) = independent_sets.build(tmp_path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=words):
        read_independent_sets({"workloads.csv": path})
    path.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(DataError, match="no rows"):
        read_independent_sets({"workloads.csv": path})


def test_solvers_run_as_models_of_a_benchmark():
    session = Session(CATALOG)
    session.valid.update(CATALOG.ids("datasets"))
    best, floor = (
        scored(session, CATALOG.benchmark(SMALL), f"{name}.qubo", controls=False).scores
        for name in ("exact", "first_fit")
    )
    assert (best["optimality_gap"].value, floor["optimality_gap"].value) == (
        1,
        pytest.approx(0),
    )
    assert best["optimality_gap"].n["reached"] == 60
    gaps = []
    for nodes, density, seed in itertools.product((10, 25, 50), DENSITIES, SEEDS):
        work = workload(nodes, density, seed)
        taken: set[int] = set()
        for vertex in range(nodes):
            if not any(work.adjacency[vertex, other] for other in taken):
                taken.add(vertex)
        gaps.append(1 - len(taken) / -work.target)
    assert floor["optimality_gap"].raw == pytest.approx(np.mean(gaps))
    assert (
        best["solution_time_1"].status == "scored" and best["solution_time_1"].value > 0
    )
    assert floor["solution_time_10"].status == "failed"
    assert (
        f"{sum(gap > 0.1 for gap in gaps)} of 60 problems"
        in floor["solution_time_10"].reason
    )


def test_a_solver_supports_only_optimisation():
    with pytest.raises(NeuroLedgerError, match="signals"):
        nl.score("tabu.qubo", "Digits.spikes-accuracy")
    with pytest.raises(NeuroLedgerError, match="problems"):
        nl.score("constant", SMALL)
    assert nl.cost(torch.nn.Linear(2, 2), torch.ones(1, 2), ["solution_time_1"])[
        "solution_time_1"
    ].reason == ("not applicable: no solver was run")
    for method in ("exact", "first_fit"):
        with pytest.raises(ValueError, match="does not take `steps`"):
            get("builder", "independent_set_solver").bind(
                {"method": method, "steps": 3}
            )
