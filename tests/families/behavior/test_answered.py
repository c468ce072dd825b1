"""Errors and accuracies with missing answers: Brain-Score's numbers, and the values without missing answers."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from tests.golden import answered_cases

NUMBERS = json.loads(
    (Path(answered_cases.__file__).parent / "answered.json").read_text("utf-8")
)
CASES = answered_cases.cases()
METRICS = ("kato_error_consistency", "kato_accuracy_distance")


def trials(side) -> xr.DataArray:
    values, coords = side
    return xr.DataArray(
        values,
        dims="presentation",
        coords={name: ("presentation", column) for name, column in coords.items()},
    )


def both(name: str) -> tuple[xr.DataArray, xr.DataArray]:
    (model, people), _ = CASES[name]
    return trials(model), trials(people)


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "MultiIndex"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", CASES)
def test_values_equal_those_of_brain_score(
    name: str, metric: str, indexed: bool
) -> None:
    sides = both(name)
    if indexed:
        sides = tuple(side.set_index(presentation=list(side.coords)) for side in sides)
    variables = (
        {"variables": CASES[name][1]} if metric == "kato_accuracy_distance" else {}
    )
    expected = NUMBERS[name]
    found = nl.metric(metric, compat="brainscore", **variables)(*sides)
    assert found.value == pytest.approx(expected[metric]["value"], abs=1e-12)
    assert found.error == pytest.approx(expected[metric]["error"], abs=1e-12)
    # the peer's ceiling knows no variables
    ceiling = nl.ceiling(metric, compat="brainscore")(sides[1])
    assert ceiling.value == pytest.approx(
        expected[f"{metric} ceiling"]["value"], abs=1e-12
    )
    assert ceiling.error == pytest.approx(
        expected[f"{metric} ceiling"]["error"], abs=1e-12
    )


@pytest.mark.parametrize("metric", METRICS)
def test_without_missing_answers_value_and_interval_are_those_of_the_plain_metric(
    metric: str,
) -> None:
    model, people = both("all answer")
    plain = metric.removeprefix("kato_")
    found, expected = nl.metric(metric)(model, people), nl.metric(plain)(model, people)
    assert found.value == pytest.approx(expected.value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(
        (expected.low, expected.high), abs=1e-9
    )
    assert found.interval_covers == expected.interval_covers
    assert nl.ceiling(metric)(people).value == pytest.approx(
        nl.ceiling(plain)(people).value, abs=1e-12
    )
    assert not nl.metric(metric)(model, people).notes


@pytest.mark.parametrize("metric", METRICS)
def test_missing_values_are_missing_answers_for_labels_of_every_type(
    metric: str,
) -> None:
    model, people = both("some silent")
    expected = nl.metric(metric)(model, people)
    silent = [side.isin(["", "NaN"]) for side in (model, people)]
    missing = [
        side.astype(object).where(~mask)
        for side, mask in zip((model, people), silent, strict=True)
    ]
    assert nl.metric(metric, unanswered=[])(*missing).value == pytest.approx(
        expected.value, abs=1e-12
    )
    named = [
        side.where(~mask, "no response")
        for side, mask in zip((model, people), silent, strict=True)
    ]
    found = nl.metric(metric, unanswered=["no response"])(*named)
    assert found.value == pytest.approx(expected.value, abs=1e-12)
    # and not told, a label like any other: always wrong
    assert nl.metric(metric)(*named).value != pytest.approx(expected.value, abs=1e-6)


def test_each_pair_is_compared_where_both_answered() -> None:
    ids, truth = np.array(list("abcd")), np.array(list("wxyz"))
    people = trials(
        (
            np.array(["w", "x", "?", "NaN", "w", "?", "y", "z"]),
            {
                "stimulus_id": np.tile(ids, 2),
                "truth": np.tile(truth, 2),
                "subject": np.repeat(["p", "q"], 4),
            },
        )
    )
    model = trials(
        (np.array(["w", "?", "y", ""]), {"stimulus_id": ids, "truth": truth})
    )
    found = nl.metric("kato_accuracy_distance")(model, people)
    # with p on a, b, c: 2/3 of both; with q on the same: 2/3 and 2/3
    assert found.samples.sel(subject="p").item() == pytest.approx(1.0)
    assert found.samples.sel(subject="q").item() == pytest.approx(1.0)
    pair = nl.ceiling("kato_accuracy_distance")(people)
    # p and q on a, b, c: 2/3 each
    assert pair.samples.item() == pytest.approx(1.0)
    kappa = nl.metric("kato_error_consistency")(model, people).samples.squeeze(
        "condition"
    )
    # with p: agree on a only, 1/3, by chance 5/9; with q: all three
    assert kappa.sel(subject="p").item() == pytest.approx((1 / 3 - 5 / 9) / (4 / 9))
    assert kappa.sel(subject="q").item() == pytest.approx(1.0)
    notes = " ".join(found.notes)
    assert "1 of 8 person × stimulus cells have no answer" in notes
    assert "the model did not answer 1 of 4 stimuli" in notes


def test_missing_numbers_are_missing_answers() -> None:
    ids = np.arange(6)
    right = np.array([1.0, 0.0, np.nan, 1.0, 1.0, 0.0])
    model = trials((right, {"stimulus_id": ids}))
    people = trials(
        (
            np.array([1.0, 1.0, 0.0, np.nan, 1.0, 0.0]),
            {"stimulus_id": ids, "subject": np.full(6, "p")},
        )
    )
    # both answered 0, 1, 4, 5: two and three of four
    found = nl.metric("kato_accuracy_distance")(model, people)
    assert found.value == pytest.approx(1 - 0.25 / 0.75)


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_to_compare_is_an_error(metric: str) -> None:
    model, people = both("some silent")
    with pytest.raises(
        nl.errors.MetricError, match="the model answered no stimulus that people saw"
    ):
        nl.metric(metric)(model.copy(data=np.full(model.size, "NaN")), people)
    with pytest.raises(nl.errors.MetricError, match="no subject answered any trial"):
        nl.metric(metric)(model, people.copy(data=np.full(people.size, "")))
    one = people.isel(presentation=people["subject"].values == "s0")
    with pytest.raises(nl.errors.CeilingError, match="one subject"):
        nl.ceiling(metric)(one)
    if metric == "kato_accuracy_distance":
        with pytest.raises(nl.errors.MetricError, match="no coordinate 'colour'"):
            nl.metric(metric, variables=["colour", "size"])(model, people)
