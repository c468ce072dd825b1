"""Psychometric thresholds and elevations: golden values, a planted threshold, failures with a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize
from scipy.stats import norm

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.behavior.psychophysics.psychometric import (
    accuracies,
    before_decline,
    fit,
)
from tests.golden.behaviour_cases import GOLDEN

CASES = GOLDEN["psychometric"]
X = np.repeat(np.asarray(GOLDEN["thresholds_x"], dtype=float), 40)
CORRECT = np.asarray([c == "1" for c in GOLDEN["thresholds_correct"]])
HUMAN = [10.0, 20.0, 40.0, 20.0]


def behaviour(x, correct):
    p = np.where(correct, 0.8, 0.2)
    return xr.DataArray(
        np.stack([p, 1 - p], axis=1),
        dims=("presentation", "choice"),
        coords={
            "choice": ["left", "right"],
            "image_label": ("presentation", np.full(len(x), "left")),
            "offset": ("presentation", x),
        },
    )


def metric(**overrides):
    return bind.metric("threshold", independent_variable="offset", **overrides)


def test_golden_fit():
    levels, rates = accuracies(X, CORRECT)
    np.testing.assert_allclose(rates, CASES["fit"]["accuracy"], atol=1e-15)
    for search in ("fast", "brainscore"):
        found = fit(levels, rates, search=search)
        for ours, theirs in zip(
            found[:4], ("alpha", "beta", "lambda_", "r2"), strict=True
        ):
            assert ours == pytest.approx(CASES["fit"][theirs], abs=1e-6)


@pytest.mark.parametrize("accuracy", ["inflection", 0.75])
def test_golden_scores(accuracy):
    expected = CASES[f"threshold score acc={accuracy} targets [3,4,5]"]
    score = metric(
        threshold_accuracy=accuracy, error={"over": "target", "with": "std"}
    )(behaviour(X, CORRECT), [3.0, 4.0, 5.0])
    assert score.value == pytest.approx(expected["score"], abs=1e-8)
    assert score.error == pytest.approx(expected["error"], abs=1e-8)


def test_the_level_of_one_call_does_not_leak_into_the_next():
    bound = metric()
    first = bound(behaviour(X, CORRECT), [4.0]).value
    bound(behaviour(X[:200], CORRECT[:200] | (X[:200] > 2)), [4.0])
    assert bound(behaviour(X, CORRECT), [4.0]).value == first


def test_golden_asymptote():
    x, y, enough = before_decline(
        np.arange(9.0), np.array([0.5, 0.6, 0.9, 1, 0.95, 0.6, 0.55, 0.5, 0.5])
    )
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 4])
    assert len(y) == 5
    assert enough


def test_golden_nearness_and_ceilings():
    expected = CASES["threshold score source=25"]
    score = bind.metric("threshold", compat="brainscore")(25.0, HUMAN)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)
    assert score.error == pytest.approx(expected["error"], abs=1e-12)
    peer = bind.ceiling("threshold", compat="brainscore")(HUMAN)
    assert peer.value == pytest.approx(
        CASES["threshold ceiling [10,20,40,20]"]["ceiling"], abs=1e-12
    )
    assert peer.error == pytest.approx(
        CASES["threshold ceiling [10,20,40,20]"]["error"], abs=1e-12
    )
    human = {
        "baseline_assembly": xr.DataArray(HUMAN),
        "condition_assembly": xr.DataArray([20.0, 30, 90, 50]),
    }
    expected = CASES["elevation ceiling base[10,20,40,20] test[20,30,90,50]"]
    ceiling = bind.ceiling("threshold_elevation", compat="brainscore")(human)
    np.testing.assert_allclose(ceiling.samples.values, expected["raw"], atol=1e-12)
    expected = CASES["elevation score source=2.1"]
    score = bind.metric("threshold_elevation", compat="brainscore")(2.1, human)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)
    assert score.error == pytest.approx(expected["error"], abs=1e-12)


def test_default_ceiling_leaves_every_person_out_once():
    expected = [
        np.mean([max(1 - abs(t - s) / t, 0) for j, t in enumerate(HUMAN) if j != i])
        for i, s in enumerate(HUMAN)
    ]
    np.testing.assert_allclose(
        bind.ceiling("threshold")(HUMAN).samples.values, expected, atol=1e-15
    )


def test_fast_search_finds_what_scipy_finds_from_the_truth():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 8, 9)
    for _ in range(5):
        slope, mean = rng.uniform(0.4, 1.5), rng.uniform(2, 6)
        y = rng.binomial(60, 0.5 + 0.45 * norm.cdf(slope * (x - mean))) / 60

        def loss(p, y=y):
            q = 0.5 + (0.5 - p[2]) * norm.cdf(p[0] * (x - p[1]))
            return -np.sum(y * np.log(q) + (1 - y) * np.log(1 - q))

        best = minimize(
            loss,
            [slope, mean, 0.05],
            method="L-BFGS-B",
            bounds=[(None, None), (None, None), (0.03, 0.5)],
        )
        assert loss(fit(x, y)[:3]) <= best.fun + 1e-9


def test_planted_threshold_is_found():
    x = np.repeat(np.arange(11.0), 4000)
    correct = np.random.default_rng(1).random(x.size) < 0.5 + 0.46 * norm.cdf(
        0.8 * (x - 5)
    )
    score = metric(threshold_accuracy=0.73)(behaviour(x, correct), [5.0])
    assert score.value > 0.98
    assert not score.notes


@pytest.mark.parametrize(
    ("correct", "word"),
    [
        (np.arange(110) % 2 == 0, "below the required"),
        (np.repeat(np.arange(11), 10) < 2, "below the required"),
        (
            np.tile([True, True, True, False, True, True, True, True, False, True], 11),
            "accuracy falls",
        ),
        (
            np.tile(np.arange(20) % 20 < 17, 6)[:110]
            & (np.repeat(np.arange(11), 10) % 2 == 0)
            | (np.arange(110) % 3 > 0),
            "explains",
        ),
    ],
)
def test_a_model_without_a_threshold_scores_zero_with_a_reason(correct, word):
    score = metric()(behaviour(np.repeat(np.arange(11.0), 10), correct), [3.0, 4.0])
    assert score.value == 0
    assert word in score.notes[0]


def test_an_undetermined_threshold_is_noted():
    x = np.repeat(np.arange(6.0), 40)
    correct = (x > 2.5) & (np.arange(x.size) % 20 > 0) | (x < 2.5) & (
        np.arange(x.size) % 2 == 0
    )
    score = metric(threshold_accuracy=0.75)(behaviour(x, correct), [2.5])
    assert any("jumps" in note for note in score.notes)


def test_elevation_of_a_planted_shift():
    x = np.repeat(np.arange(1.0, 12.0), 3000)
    rng = np.random.default_rng(2)
    sides = {
        name: behaviour(x, rng.random(x.size) < 0.5 + 0.46 * norm.cdf(1.2 * (x - mean)))
        for name, mean in (("alone", 3.0), ("crowded", 6.0))
    }
    names = {
        "baseline_condition": "alone",
        "test_condition": "crowded",
        "independent_variable": "offset",
    }
    bound = bind.metric("threshold_elevation", **names)
    score = bound(sides, [2.0])
    assert score.value > 0.97
    both = xr.concat(
        [
            side.assign_coords(condition=("presentation", np.full(x.size, n)))
            for n, side in sides.items()
        ],
        "presentation",
    )
    assert bound(both, [2.0]).value == score.value


@pytest.mark.slow
def test_new_stimuli_move_an_elevation_through_the_fits_of_both_conditions():
    """The claim is that of leaving out each stimulus of either condition and fitting again, as the jackknife says."""
    rng = np.random.default_rng(5)
    x = np.repeat(np.arange(1.0, 9.0), 15)
    sides = {
        name: behaviour(
            x, rng.random(x.size) < 0.5 + 0.47 * norm.cdf(0.8 * (x - mean))
        ).assign_coords(
            stimulus_id=("presentation", [f"{name} {i % 25}" for i in range(x.size)])
        )
        for name, mean in (("baseline", 3.0), ("test", 4.5))
    }
    people = [
        2.5,
        2.9,
        2.7,
    ]  # all above the model's elevation, so the nearness is a straight line
    bound = bind.metric(
        "threshold_elevation", independent_variable="offset", threshold_accuracy=0.75
    )
    score = bound(sides, people)
    left = []
    for name, side in sides.items():
        for out in range(25):
            rest = side.isel(presentation=side["stimulus_id"].values != f"{name} {out}")
            left.append(bound({**sides, name: rest}, people).value)
    part = score.uncertainty.part(("", ("stimulus",)))
    assert part.variance == pytest.approx((len(left) - 1) * np.var(left))
    assert set(score.uncertainty.factors) == {"stimulus", "subject"}
    # An elevation that was given does not depend on stimuli.
    assert bound(1.5, people).uncertainty.factors == ("subject",)


@pytest.mark.parametrize("name", ["threshold", "threshold_elevation"])
def test_the_ceiling_covers_new_people_who_are_compared_with_all_others(name):
    """Each person is part of all comparisons; taken as independent, they would claim half of the error."""
    rng, bound = np.random.default_rng(4), bind.ceiling(name)
    scores = [
        bound((3 * np.exp(0.3 * rng.normal(size=12))).tolist()) for _ in range(200)
    ]
    mean = np.mean([score.value for score in scores])
    assert np.mean([score.low <= mean <= score.high for score in scores]) > 0.88
    assert (
        0.85
        < np.mean([score.uncertainty.error for score in scores])
        / np.std([score.value for score in scores])
        < 1.2
    )
    assert (
        bound([2.0, 3.0]).uncertainty is None
    )  # one pair does not show how much others would differ


def test_bad_thresholds_are_refused():
    with pytest.raises(MetricError, match="positive numbers"):
        bind.metric("threshold")(2.0, [1.0, float("nan")])
    with pytest.raises(CeilingError, match="one subject"):
        bind.ceiling("threshold")([3.0])
    with pytest.raises(MetricError, match="no numeric coordinate"):
        bind.metric("threshold", independent_variable="size")(
            behaviour(X, CORRECT), [3.0]
        )
    with pytest.raises(MetricError, match="no condition"):
        bind.metric("threshold_elevation")({"baseline": behaviour(X, CORRECT)}, [2.0])
    assert math.isnan(bind.metric("threshold")(2.0, [2.0]).error)


def naming(threshold, people=4, each=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = np.tile(np.repeat([0.1, 0.2, 0.4, 0.8], each // 4), people)
    correct = rng.random(x.size) < 0.1 + 0.86 * norm.cdf(6 * (x - threshold))
    return xr.DataArray(
        np.where(correct, "yes", "no"),
        dims=("presentation",),
        coords={
            "truth": ("presentation", np.full(x.size, "yes")),
            "contrast": ("presentation", x),
            "subject": (
                "presentation",
                np.repeat([f"p{i}" for i in range(people)], each),
            ),
        },
    )


def test_thresholds_of_people_are_fitted_to_their_trials():
    settings = {
        "independent_variable": "contrast",
        "threshold_accuracy": 0.53,
        "required_accuracy": 0.3,
        "guess": 0.1,
    }
    people = naming(0.3)
    assert bind.metric("threshold", **settings)(0.3, people).value > 0.95
    assert (
        bind.metric("threshold", **settings)(
            naming(0.3, people=1, seed=1), people
        ).value
        > 0.95
    )
    assert bind.metric("threshold", **settings)(0.6, people).value < 0.1
    assert bind.ceiling("threshold", **settings)(people).value > 0.95


def test_people_without_a_threshold_are_left_out_and_named():
    settings = {
        "independent_variable": "contrast",
        "threshold_accuracy": 0.53,
        "required_accuracy": 0.3,
        "guess": 0.1,
    }
    people = naming(0.3)
    lost = people.copy(
        data=np.where(people["subject"].values == "p2", "no", people.values)
    )
    score = bind.metric("threshold", **settings)(0.3, lost)
    assert score.samples.size == 3
    assert "p2" in score.notes[0]
    with pytest.raises(MetricError, match="no subject has a threshold"):
        bind.metric("threshold", **settings)(
            0.3, people.copy(data=np.full(people.size, "no"))
        )


NAMED = {
    "independent_variable": "contrast",
    "threshold_accuracy": 0.53,
    "required_accuracy": 0.3,
    "guess": 0.1,
}


def answered(thresholds, rng, digits=60):
    """Answers of observers with these thresholds to the same digits at four contrasts, each with its own luck."""
    contrasts = np.repeat([0.1, 0.2, 0.4, 0.8], digits)
    rows = []
    for at, threshold in enumerate(thresholds):
        p = 0.1 + 0.86 * norm.cdf(8 * (contrasts - threshold))
        coords = {
            "stimulus_id": (
                "presentation",
                [f"s{i:03d}" for i in range(len(contrasts))],
            ),
            "subject": ("presentation", np.full(len(contrasts), f"p{at}")),
            "truth": ("presentation", np.full(len(contrasts), "yes")),
            "contrast": ("presentation", contrasts),
        }
        right = np.where(rng.random(len(p)) < p, "yes", "no")
        rows.append(xr.DataArray(right, dims=("presentation",), coords=coords))
    return xr.concat(rows, "presentation")


@pytest.mark.slow
def test_thresholds_found_with_the_same_stimuli_move_together():
    one = answered([0.3], np.random.default_rng(0))
    people = xr.concat(
        [one.assign_coords(subject=one["subject"].str.replace("0", k)) for k in "12"],
        "presentation",
    )
    score = bind.metric("threshold", **NAMED)(one, people)
    assert score.value == pytest.approx(
        1.0
    ) and score.uncertainty.error == pytest.approx(0.0, abs=1e-9)
    other = bind.metric("threshold", **NAMED)(
        answered([0.3], np.random.default_rng(1)), people
    )
    assert other.uncertainty.error > 0.01
