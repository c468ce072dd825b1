"""False ranks and power of the board and of `compare`: metrics of every kind, many models, few benchmarks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.stats.calibration import rate
from neuroledger.stats.differences import (
    Joint,
    clearly_better,
    difference,
    joint_mean,
    rank_sets,
)
from tests.long import long
from tests.varying import mean_score

Floats = npt.NDArray[np.float64]
MODELS, BENCHMARKS, RUNS = 20, 3, 100


def board(rng: np.random.Generator, shift: Floats, items: int = 60) -> list[Joint]:
    """The suite means of models over benchmarks whose items they share, with half of each item's variance in common."""
    common = rng.standard_normal((BENCHMARKS, items))
    result = []
    for at in range(len(shift)):
        own = rng.standard_normal((BENCHMARKS, items))
        parts = [
            (
                1 / BENCHMARKS,
                mean_score(shift[at] + np.sqrt(0.5) * (common[b] + own[b]), f"b{b}"),
            )
            for b in range(BENCHMARKS)
        ]
        result.append(joint_mean(parts))
    return result


@pytest.mark.slow
def test_twenty_equal_models_on_few_benchmarks_get_no_false_rank() -> None:
    """The rate is at most 6 %: it is 5.8 % [5.1, 6.5] of 4,000 boards. Here chance may add two standard errors to that."""
    rng, runs = np.random.default_rng(20), 4 * RUNS
    boards = (board(rng, np.zeros(MODELS)) for _ in range(runs))
    false = rate(
        [
            any(rank != (1, MODELS) for rank in rank_sets(clearly_better(item)))
            for item in boards
        ]
    )
    assert false.value <= 0.06 + 2 * np.sqrt(0.06 * 0.94 / runs), false


@pytest.mark.parametrize(
    ("models", "items", "runs"),
    [(5, 8, 600), long(20, 8, 300), long(20, 20, 300), long(50, 10, 150)],
)
def test_leagues_on_few_items_get_no_false_rank(
    models: int, items: int, runs: int
) -> None:
    """Of 20 equal models on 8 people 18 in 100 leagues had a false rank, and 25 of 50 models on 10, when the largest
    difference was taken to be as far out as that of normal deviates. Chance may add three standard errors to 6 %."""
    rng, false = np.random.default_rng([models, items]), 0
    for run in range(runs):
        common = 2 * rng.standard_normal(items)
        league = [
            joint_mean(
                [(1.0, mean_score(common + rng.standard_normal(items), f"r{run}"))]
            )
            for _ in range(models)
        ]
        false += any(rank != (1, models) for rank in rank_sets(clearly_better(league)))
    assert false / runs <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / runs)


@pytest.mark.slow
def test_the_board_finds_a_better_model_as_often_as_tukeys_range_would() -> None:
    """One of 20 models is better by what an exact test of all pairs at once finds in about four of five leagues."""
    rng = np.random.default_rng(21)
    items = 60
    error = np.sqrt(0.5 * 2 / (items * BENCHMARKS))  # of a difference of two models
    reach = stats.studentized_range.ppf(0.95, MODELS, 1000) / np.sqrt(2)
    shift = np.zeros(MODELS)
    shift[0] = (reach + stats.norm.ppf(0.8)) * error
    mine, exact = [], []
    for _ in range(60):
        entry = board(rng, shift, items)
        values = np.array([item.value for item in entry])
        mine.append(clearly_better(entry)[0, 1:].mean())
        exact.append(((values[0] - values[1:]) > reach * error).mean())
    assert 0.7 < np.mean(exact) < 0.9
    assert np.mean(mine) >= np.mean(exact) - 0.1


def assembly(values: Floats, kind: str) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))]),
        "neuroid_id": ("neuroid", [f"{kind}{i}" for i in range(values.shape[1])]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def experiment(
    rng: np.random.Generator, stimuli: int = 50, neurons: int = 25
) -> list[xr.DataArray]:
    Z = rng.standard_normal((stimuli, 6))
    Y = Z @ rng.standard_normal((6, neurons)) / np.sqrt(6) + rng.standard_normal(
        (stimuli, neurons)
    )
    return [
        assembly(Y, "n"),
        *(assembly(Z + 0.8 * rng.standard_normal(Z.shape), "f") for _ in range(2)),
    ]


@pytest.mark.parametrize(
    "metric",
    [
        long("pls"),
        long("ridgecv"),
        "linear_predictivity",
        long("neuron_to_neuron"),
        long("cka_biased"),
        long("rdm"),
    ],
)
def test_compare_of_equal_models_has_few_false_positives(metric: str) -> None:
    options = {"estimator": {"components": 3}} if metric == "pls" else {}
    bound, rng, p = nl.metric(metric, **options), np.random.default_rng(22), []
    for _ in range(30):
        target, *models = experiment(rng)
        p.append(difference("b", *(bound(item, target) for item in models)).p)
    assert np.mean(np.array(p) < 0.05) <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / len(p)), (
        "chance may add three errors"
    )
    assert np.mean(np.array(p) < 0.5) > 0.15


FREE = ("pls", "linear_predictivity", "neuron_to_neuron", "cka", "cka_biased", "rdm")


@pytest.mark.parametrize(
    ("metric", "side"),
    [
        *((metric, side) for metric in FREE for side in ("source", "target", "both")),
        ("ridge", "target"),
        ("ridgecv", "target"),
    ],
)
def test_scores_do_not_depend_on_units(metric: str, side: str) -> None:
    """From 1e-13 to 1e13 of the units: the same score, the same interval, or an error with its reason.

    Of a ridge the target's units alone: its penalty is in squared units of the features, by definition.
    """
    target, source, _ = experiment(np.random.default_rng(23))
    bound = nl.metric(
        metric, **({"estimator": {"components": 3}} if metric == "pls" else {})
    )
    plain = bound(source, target)
    for power in (-13, -6, -3, 3, 6, 13):
        X = source * 10.0**power if side != "target" else source
        Y = target * 10.0**power if side != "source" else target
        try:
            scaled = bound(X, Y)
        except MetricError as error:
            assert str(error)
            continue
        assert scaled.value == pytest.approx(plain.value, abs=1e-8), power
        assert (scaled.low, scaled.high) == pytest.approx(
            (plain.low, plain.high), abs=1e-6
        ), power
