"""Rates of simulated experiments have exact intervals, and a calibration passes at its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from neuroledger.errors import MetricError
from neuroledger.stats.calibration import (
    LEAGUE,
    Calibration,
    Experiment,
    Figure,
    Rate,
    calibrate,
    rate,
    share,
)
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty


@pytest.mark.parametrize(
    ("hits", "trials"), [(0, 20), (1, 20), (19, 20), (20, 20), (95, 100), (500, 1000)]
)
def test_a_share_has_the_exact_interval_of_clopper_and_pearson(
    hits: int, trials: int
) -> None:
    expected = binomtest(hits, trials).proportion_ci(0.95, method="exact")
    given = share(hits, trials, trials)
    assert (given.value, given.low, given.high) == pytest.approx(
        (hits / trials, expected.low, expected.high)
    )
    assert given.exact


def test_an_interval_that_does_not_belong_to_its_share_is_not_exact() -> None:
    good = share(9, 10, 2)
    assert good.exact, "two leagues of five models are ten trials"
    for change in (
        {"low": good.low + 0.01}, {"high": good.high - 0.01}, {"value": 0.8}, {"n": 0.0}, {"n": -10.0},
        {"runs": 1}, {"value": 1.5}, {"value": -0.1},
    ):  # fmt: skip
        assert not replace(good, **change).exact, change


def test_hits_of_one_experiment_count_once_if_they_always_agree() -> None:
    outcomes = np.array([1] * 30 + [0] * 11)
    single, repeated = rate(outcomes), rate(np.repeat(outcomes[:, None], 5, axis=1))
    assert (single.value, single.n, single.runs) == pytest.approx((30 / 41, 40, 41))
    assert (repeated.value, repeated.n, repeated.low) == pytest.approx(
        (single.value, 40, single.low)
    )
    assert rate([[1, 0], [0, 1]]).n == 2 and rate([[1, 0]]).n == 1, (
        "equal experiments are single trials"
    )
    spread = np.array([[1, 0, 1, 0]] * 19 + [[1, 1, 1, 0]])
    assert rate(spread).n == spread.size, "never more trials than hits"
    assert rate(np.ones(20)).low == pytest.approx(0.025 ** (1 / 20))


def certificate(**changes: Any) -> Calibration:
    fine = Rate(0.95, 0.9, 1.0, 100, 100.0)
    none = Rate(0.0, 0.0, 0.03, 100, 100.0)
    given = {
        "coverage": fine,
        "length": Figure(1.0, 0.9, 1.1, 100),
        "interval_score": Figure(1.2, 1.1, 1.3, 100),
        "false_positives": none,
        "false_ranks": none,
    }
    return Calibration("new stimuli", {"stimulus": 9}, 1 / 3, **given | changes)


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"coverage": Rate(0.85, 0.8, 0.90, 100, 100.0)}, True),
        ({"coverage": Rate(0.85, 0.8, 0.8999, 100, 100.0)}, False),
        ({"false_positives": Rate(0.3, 0.2, 0.4, 100, 100.0)}, True),
        ({"false_ranks": Rate(0.3, 0.2, 0.4, 100, 100.0)}, True),
    ],
)
def test_a_calibration_fails_only_if_too_few_intervals_contain_the_truth(
    changes: dict[str, Any], passed: bool
) -> None:
    given = certificate(**changes)
    assert given.passed is passed and given.to_dict()["passed"] is passed
    assert (
        f"calibration {'passed' if passed else 'FAILED'}: new stimuli"
        in given._repr_html_()
    )


def test_plain_data_has_six_digits_and_the_card_every_rate() -> None:
    plain = certificate().to_dict()
    assert (
        plain["truth"] == 0.333333
        and plain["coverage"]["high"] == 1.0
        and plain["ceiling"] is None
    )
    assert plain["sizes"] == {"stimulus": 9} and plain["covers"] == "new stimuli"
    html = certificate()._repr_html_()
    for words in (
        "coverage",
        "length over needed",
        "interval score",
        "equal models differ",
        "false ranks",
    ):
        assert f">{words}<" in html
    assert "0.950 [0.900, 1.000]" in html


def test_up_to_a_tenth_of_the_experiments_may_fail() -> None:
    def scored(failing: int) -> dict[str, Any]:
        def score(model: int) -> dict[str, Score]:
            if model < failing:
                raise MetricError("no variance")
            return {"x": Score(0.5)}

        numbers = iter(range(30))

        def draw(rng: np.random.Generator, count: int) -> Experiment[int]:
            assert count == LEAGUE == 5
            return Experiment([next(numbers)] * count)

        return calibrate(score, draw, runs=30, seed=0)

    assert scored(0) == scored(3) == {"x": "the score has no interval"}
    with pytest.raises(
        MetricError, match="4 of 30 simulated experiments cannot be scored: no variance"
    ):
        scored(4)


def test_rates_are_those_of_the_drawn_values() -> None:
    """Values with the standard deviation 1 and the claimed error 1; the true model is at 7 on average."""
    drawn: list[list[float]] = []

    def draw(rng: np.random.Generator, count: int) -> Experiment[float]:
        drawn.append(rng.standard_normal(count).tolist())
        return Experiment(drawn[-1], 7.0 + (-1) ** len(drawn))

    def score(value: float) -> dict[str, Score]:
        ceiling = Score(value, varies=Uncertainty.alone(f"ceiling {value}", 1.0))
        both = {
            name: Score(value, varies=Uncertainty.alone(f"{name} {value}", 1.0))
            for name in ("first", "second")
        }
        return {
            "first": both["first"].replace(ceiling=ceiling),
            "second": both["second"],
        }

    found = calibrate(score, draw, runs=40, seed=5)
    first, second = found["first"], found["second"]
    assert isinstance(first, Calibration) and isinstance(second, Calibration)
    values = np.array(drawn)
    expected = [
        np.random.default_rng([5, run]).standard_normal(LEAGUE) for run in range(40)
    ]
    assert np.array_equal(values, expected)
    assert first.truth == pytest.approx(values.mean())
    assert first.coverage.value == pytest.approx(
        (np.abs(values - values.mean()) <= 1.96).mean(), abs=1e-3
    )
    deviation = values.std(axis=0, ddof=1).mean()
    assert first.length.value == pytest.approx(1 / deviation)
    assert (
        first.length.low <= first.length.value <= first.length.high
        and first.length.runs == 40
    )
    miss = np.maximum(np.abs(values - values.mean()) - 1.959964, 0)
    expected_score = 1 / deviation + 40 * miss.mean() / (2 * 1.959964 * deviation)
    assert first.interval_score.value == pytest.approx(expected_score, rel=1e-6)
    pairs = np.abs(
        [values[:, 0] - values[:, 1], values[:, 2] - values[:, 3]]
    ) > 1.96 * np.sqrt(2)
    assert first.false_positives.value == pytest.approx(pairs.mean())
    assert first.passed and first.ceiling is not None and first.ceiling.runs == 40
    tops = values[:, 0]
    assert first.ceiling.value == pytest.approx(
        (np.abs(tops - tops.mean()) <= 1.96).mean(), abs=1e-3
    )
    half = 1.96 * np.std([6.0, 8.0] * 20, ddof=1) / np.sqrt(40)
    assert first.recovered == Figure(
        7.0, pytest.approx(7 - half), pytest.approx(7 + half), 40
    )
    assert second.ceiling is None and second.recovered is None
