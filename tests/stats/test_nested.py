"""Tests that a score of neuroids of several subjects can claim new neuroids of these subjects, or new subjects."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.stats.differences import difference
from neuroledger.stats.score import Score, mean_of, normalise
from tests.varying import of_items

Floats = npt.NDArray[np.float64]
RNG = np.random.default_rng(3)


def responses(
    stimuli: int, people: int, each: int, run: int = 0
) -> tuple[xr.DataArray, xr.DataArray]:
    """A model and simulated responses of people, whose neuroids share a subspace and a level of noise."""
    rng = np.random.default_rng([5, run])
    latent, parts, people_of = rng.standard_normal((stimuli, 8)), [], []
    for person in range(people):
        own = rng.standard_normal((8, 4)) @ rng.standard_normal((4, each)) / 2
        noise = 2 * np.exp(0.4 * rng.standard_normal())
        parts.append(latent @ own + noise * rng.standard_normal((stimuli, each)))
        people_of += [f"{run}p{person}"] * each
    seen = latent @ np.random.default_rng(7).standard_normal(
        (8, 20)
    ) + rng.standard_normal((stimuli, 20))
    rows = ("presentation", [f"{run}s{i}" for i in range(stimuli)])
    ids = [f"{name}n{i}" for i, name in enumerate(people_of)]
    target = {
        "stimulus_id": rows,
        "neuroid_id": ("neuroid", ids),
        "subject": ("neuroid", people_of),
    }
    source = {
        "stimulus_id": rows,
        "neuroid_id": ("neuroid", [f"f{i}" for i in range(20)]),
    }
    dims = ("presentation", "neuroid")
    return xr.DataArray(seen, dims=dims, coords=source), xr.DataArray(
        np.concatenate(parts, axis=1), dims=dims, coords=target
    )


@pytest.mark.parametrize("metric", ["ridge", "pls", "rdm", "cka"])
def test_metrics_of_responses_can_claim_new_subjects(metric: str) -> None:
    score = nl.metric(metric)(*responses(40, 4, 6))
    assert (
        score.interval_covers
        == "the 95 % interval covers new stimuli and new neuroids of the same subjects"
    )
    claim = score.replace(generalise=("stimulus", "subject"))
    assert (
        claim.interval_covers == "the 95 % interval covers new stimuli and new subjects"
    )
    assert claim.value == score.value and claim.n["subject"] == 4
    assert claim.uncertainty is not None and claim.uncertainty.items["subject"] == 4
    for each, words in (
        (score, "new neuroids of the same subjects"),
        (claim, "new subjects"),
    ):
        assert difference("x", each, each).covers == f"new stimuli and {words}"


def test_responses_of_one_subject_have_plain_neuroids() -> None:
    score = nl.metric("cka")(*responses(40, 1, 12))
    assert (
        score.interval_covers == "the 95 % interval covers new stimuli and new neuroids"
    )
    assert "subject" not in score.n


def test_dissimilarities_are_recomputed_without_each_subject() -> None:
    model, target = responses(30, 4, 5)
    metric = nl.metric("rdm")
    claim = metric(model, target).replace(generalise=("subject",))
    rest = [
        metric(
            model, target.isel(neuroid=np.flatnonzero(target["subject"].values != name))
        ).value
        for name in np.unique(target["subject"].values)
    ]
    assert claim.uncertainty is not None
    # Tukey's jackknife over subjects.
    assert claim.uncertainty.error == pytest.approx(
        np.sqrt(3 / 4 * ((rest - np.mean(rest)) ** 2).sum())
    )


def test_the_order_of_neuroids_does_not_matter() -> None:
    model, target = responses(30, 4, 5)
    shuffled = target.isel(neuroid=np.random.default_rng(0).permutation(20))
    for metric in (nl.metric("rdm"), nl.metric("ridge"), nl.metric("cka")):
        errors = [
            metric(model, each)
            .replace(generalise=("stimulus", "subject"))
            .uncertainty.error
            for each in (target, shuffled)
        ]
        assert errors[0] == pytest.approx(errors[1])


@pytest.mark.parametrize("metric", ["ridge", "rdm", "cka"])
def test_neuroids_that_are_numbered_anew_in_each_subject_are_different_neuroids(
    metric: str,
) -> None:
    model, target = responses(40, 4, 6)
    numbered = target.assign_coords(
        neuroid_id=("neuroid", [str(i % 6) for i in range(24)])
    )
    expected, score = (nl.metric(metric)(model, each) for each in (target, numbered))
    assert score.uncertainty.items["neuroid"] == 24
    assert score.uncertainty.error == pytest.approx(expected.uncertainty.error, rel=0.1)
    claims = [
        each.replace(generalise=("stimulus", "subject")).uncertainty.error
        for each in (score, expected)
    ]
    assert claims[0] == pytest.approx(claims[1], rel=0.1)


@pytest.mark.slow
def test_intervals_over_new_subjects_contain_the_truth() -> None:
    metric, scores = nl.metric("cka"), []
    for run in range(80):
        scores.append(metric(*responses(60, 8, 6, run)).replace(population=str(run)))
    truth = np.mean([score.value for score in scores])
    same = np.mean([score.low <= truth <= score.high for score in scores])
    claims = [score.replace(generalise=("stimulus", "subject")) for score in scores]
    new = np.mean([score.low <= truth <= score.high for score in claims])
    assert (
        new >= 0.86 and new > same
    )  # neuroids of the same subjects say little about new ones


def ceiling_of(target: xr.DataArray) -> Score:
    repeated = xr.concat(
        [target, target + 0.1 * RNG.standard_normal(target.shape)], "presentation"
    )
    numbers = np.repeat([0, 1], target.sizes["presentation"])
    return nl.ceiling("internal_consistency")(
        repeated.assign_coords(repetition=("presentation", numbers))
    )


@pytest.mark.parametrize("over", [("stimulus",), ("stimulus", "subject"), None])
def test_the_ceiling_of_a_narrower_claim_varies_over_the_same_items(
    over: tuple[str, ...] | None,
) -> None:
    model, target = responses(40, 4, 6)
    raw = nl.metric("ridge")(model, target)
    raw = raw if over is None else raw.replace(generalise=over)
    score = normalise(raw, ceiling_of(target))
    assert score.uncertainty is not None and raw.uncertainty is not None
    assert (
        set(score.uncertainty.factors)
        == set(raw.uncertainty.factors)
        == set(over or ("stimulus", "neuroid"))
    )


def test_the_claim_of_a_normalised_score_can_change() -> None:
    model, target = responses(40, 4, 6)
    raw = nl.metric("ridge")(model, target)
    top = ceiling_of(target)
    score, claim = normalise(raw, top), ("stimulus", "subject")
    narrow = score.replace(generalise=claim)
    assert narrow.low == normalise(raw.replace(generalise=claim), top).low != score.low


def parts(
    values: Floats, own: Floats | None = None, claim: tuple[str, ...] = ()
) -> dict[str, Score]:
    """Scores of subjects who share stimuli, with the value of each, (subject, stimulus)."""
    scores = {}
    for i, value in enumerate(values):
        known = None if own is None else of_items(own[i])
        scores[f"p{i}"] = Score(
            value, varies=known, population="data", generalise=claim
        )
    return scores


def test_a_mean_over_subjects_can_be_a_claim_about_new_subjects() -> None:
    values = RNG.standard_normal(6)
    score = mean_of(parts(values), "subject", ("subject",))
    low, high = stats.t.interval(0.95, 5, values.mean(), stats.sem(values))
    assert (score.low, score.high) == pytest.approx((low, high))
    assert score.interval_covers == "the 95 % interval covers new subjects"


def test_shared_stimuli_vary_too_and_their_interaction_is_counted_once() -> None:
    table = RNG.standard_normal((6, 8)) + RNG.standard_normal((6, 1))
    score = mean_of(
        parts(table.mean(axis=1), table, ("stimulus",)),
        "subject",
        ("stimulus", "subject"),
    )
    assert score.uncertainty is not None and score.uncertainty.items == {
        "stimulus": 8,
        "subject": 6,
    }
    people, stimuli = (stats.sem(table.mean(axis=axis)) ** 2 for axis in (1, 0))
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    both = (rest**2).sum() / (5 * 7) / table.size
    assert score.uncertainty.variance == pytest.approx(
        max(people + stimuli - both, people, stimuli)
    )


def test_one_part_says_nothing_about_others() -> None:
    score = mean_of(parts(np.ones(1)), "subject", ("subject",))
    with pytest.raises(
        MetricError, match="cannot generalise over subject: there is only one"
    ):
        _ = score.low


def test_two_models_are_paired_over_the_same_subjects() -> None:
    rng = np.random.default_rng(4)
    first = rng.standard_normal(8)
    second = first + 0.1 + 0.01 * rng.standard_normal(8)
    a, b = (
        mean_of(parts(values), "subject", ("subject",)) for values in (first, second)
    )
    found, expected = difference("x", a, b), stats.ttest_rel(first, second)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6) and found.p < 0.001
