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
from neuroledger.stats.resampling import influence_of
from neuroledger.stats.score import Score, mean_of, normalise
from neuroledger.stats.spread import CROSS, Influence, moved

Floats = npt.NDArray[np.float64]
RNG = np.random.default_rng(3)


def owned(values: Floats, owners: list[str]) -> Influence:
    """The influence of neuroids on their mean, with the subject of each."""
    ids = [f"n{i}" for i in range(len(values))]
    factors = {"neuroid": moved(ids, (values - values.mean()) / len(values))}
    return Influence(factors, nested={"subject": ("neuroid", dict(zip(ids, owners, strict=True)))})


def responses(stimuli: int, people: int, each: int, run: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """A model and simulated responses of people, whose neuroids share a subspace and a level of noise."""
    rng = np.random.default_rng([5, run])
    latent, parts, people_of = rng.standard_normal((stimuli, 8)), [], []
    for person in range(people):
        own = rng.standard_normal((8, 4)) @ rng.standard_normal((4, each)) / 2
        noise = 2 * np.exp(0.4 * rng.standard_normal())
        parts.append(latent @ own + noise * rng.standard_normal((stimuli, each)))
        people_of += [f"{run}p{person}"] * each
    seen = latent @ np.random.default_rng(7).standard_normal((8, 20)) + rng.standard_normal((stimuli, 20))
    rows = ("presentation", [f"{run}s{i}" for i in range(stimuli)])
    ids = [f"{name}n{i}" for i, name in enumerate(people_of)]
    target = {"stimulus_id": rows, "neuroid_id": ("neuroid", ids), "subject": ("neuroid", people_of)}
    source = {"stimulus_id": rows, "neuroid_id": ("neuroid", [f"f{i}" for i in range(20)])}
    dims = ("presentation", "neuroid")
    return xr.DataArray(seen, dims=dims, coords=source), xr.DataArray(
        np.concatenate(parts, axis=1), dims=dims, coords=target
    )


def test_a_mean_over_new_subjects_has_the_error_of_the_mean_of_subjects() -> None:
    values, owners = (
        RNG.standard_normal(40) + np.repeat(RNG.standard_normal(5), 8),
        np.repeat(list("abcde"), 8),
    )
    spread = owned(values, owners.tolist()).spread("data", ("subject",))
    means = values.reshape(5, 8).mean(axis=1)
    assert spread.error == pytest.approx(stats.sem(means))
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(means))
    assert spread.interval(float(values.mean())) == pytest.approx((low, high))


def test_subjects_with_unequal_numbers_of_neuroids_have_the_error_of_a_ratio() -> None:
    sizes = np.array([3, 9, 5, 14, 7])
    owners = np.repeat(list("abcde"), sizes)
    values = RNG.standard_normal(sizes.sum()) + np.repeat(RNG.standard_normal(5), sizes)
    sums = np.array([values[owners == name].sum() for name in "abcde"])
    residuals = sums - values.mean() * sizes  # Cochran (1977), variance of a ratio of two means
    expected = np.sqrt(5 / 4 * (residuals**2).sum()) / sizes.sum()
    assert owned(values, owners.tolist()).spread("data", ("subject",)).error == pytest.approx(expected)


def test_by_default_neuroids_are_new_and_subjects_the_same() -> None:
    values, owners = RNG.standard_normal(40), np.repeat(list("abcde"), 8).tolist()
    spread = owned(values, owners).spread("data")
    assert spread.factors == ("neuroid",) and spread.error == pytest.approx(stats.sem(values))


def test_the_interaction_with_subjects_is_the_sum_over_their_neuroids() -> None:
    cells, owners = RNG.standard_normal((6, 4)), ["a", "b", "a", "b"]
    ids = [f"n{i}" for i in range(4)]
    factors = {
        "stimulus": moved([f"s{i}" for i in range(6)], cells.sum(axis=1)),
        "neuroid": moved(ids, cells.sum(axis=0)),
    }
    nested = {"subject": ("neuroid", dict(zip(ids, owners, strict=True)))}
    whole = Influence(factors, {("stimulus", "neuroid"): cells}, nested=nested)
    sums = np.stack([cells[:, [0, 2]].sum(axis=1), cells[:, [1, 3]].sum(axis=1)], axis=1)
    centred = sums - sums.mean(axis=0) - sums.mean(axis=1, keepdims=True) + sums.mean()
    draws = whole.spread("data", ("stimulus", "subject")).draws["stimulus" + CROSS + "subject"]
    assert (draws**2).mean() == pytest.approx((centred**2).sum())
    drawn = Influence(
        factors, {("neuroid", "stimulus"): lambda a, b: (a @ cells.T * b).sum(axis=1)}, nested=nested
    )
    assert "subject" + CROSS + "stimulus" in drawn.spread("data", ("stimulus", "subject")).draws


def test_medians_are_recomputed_with_the_weights_of_subjects() -> None:
    """The median over neuroids of normal subjects: its error over new subjects is that of the simulation."""

    def of(rng: np.random.Generator) -> tuple[float, float, bool]:
        values = rng.standard_normal(120) * 0.3 + np.repeat(rng.standard_normal(12), 10)
        owners = {str(i): str(i // 10) for i in range(120)}
        samples = xr.DataArray(values, dims="neuroid")
        influence = influence_of(samples, [("neuroid", "median")])
        assert influence is not None
        spread = Influence(influence.factors, nested={"subject": ("neuroid", owners)}).spread(
            str(values[0]), ("subject",)
        )
        low, high = spread.interval(float(np.median(values)))
        return float(np.median(values)), spread.variance, low <= 0 <= high

    found = [of(np.random.default_rng([1, run])) for run in range(200)]
    needed = np.var([value for value, _, _ in found], ddof=1)
    assert np.mean([claimed for _, claimed, _ in found]) == pytest.approx(needed, rel=0.35)
    assert np.mean([covered for _, _, covered in found]) >= 0.9


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        (("neuroid", "subject"), "cannot generalise over neuroid; it varies over subject"),
        (
            ("session",),
            r"cannot generalise over session; it varies over neuroid, subject \(in place of neuroid\)",
        ),
    ],
)
def test_a_claim_that_names_neuroids_twice_or_something_else_is_refused(
    over: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(MetricError, match=reason):
        owned(np.arange(4.0), ["a", "a", "b", "b"]).spread("data", over)


def test_one_subject_says_nothing_about_others() -> None:
    with pytest.raises(MetricError, match="cannot generalise over subject: all neuroids are of one subject"):
        owned(np.arange(4.0), ["a"] * 4).spread("data", ("subject",))


def test_neuroids_of_an_unknown_subject_are_named() -> None:
    influence = owned(np.arange(4.0), ["a", "a", "b", "b"])
    unknown = Influence(influence.factors, nested={"subject": ("neuroid", {"n0": "a", "n1": "b"})})
    with pytest.raises(MetricError, match="the subject of neuroid 'n2' is not known"):
        unknown.spread("data", ("subject",))


def test_an_influence_without_neuroids_has_no_subjects() -> None:
    influence = owned(np.arange(4.0), ["a", "a", "b", "b"])
    both = Influence({"stimulus": influence.factors["neuroid"], **influence.factors}, nested=influence.nested)
    only = both.only(["stimulus"])
    assert only is not None and not only.nested and both.only(["neuroid"]) is not None


@pytest.mark.parametrize("metric", ["ridge", "pls", "rdm", "cka"])
def test_metrics_of_responses_can_claim_new_subjects(metric: str) -> None:
    score = nl.metric(metric)(*responses(40, 4, 6))
    assert (
        score.interval_covers == "the 95 % interval covers new stimuli and new neuroids of the same subjects"
    )
    claim = score.replace(generalise=("stimulus", "subject"))
    assert claim.interval_covers == "the 95 % interval covers new stimuli and new subjects"
    assert claim.value == score.value and claim.n["subject"] == 4
    assert claim.spread is not None and claim.spread.items["subject"] == 4
    for each, words in ((score, "new neuroids of the same subjects"), (claim, "new subjects")):
        assert difference("x", each, each).covers == f"new stimuli and {words}"


def test_responses_of_one_subject_have_plain_neuroids() -> None:
    score = nl.metric("cka")(*responses(40, 1, 12))
    assert score.interval_covers == "the 95 % interval covers new stimuli and new neuroids"
    assert "subject" not in score.n


def test_dissimilarities_are_recomputed_without_each_subject() -> None:
    model, target = responses(30, 4, 5)
    metric = nl.metric("rdm")
    claim = metric(model, target).replace(generalise=("subject",))
    rest = [
        metric(model, target.isel(neuroid=np.flatnonzero(target["subject"].values != name))).value
        for name in np.unique(target["subject"].values)
    ]
    assert claim.spread is not None
    # Tukey's jackknife over subjects.
    assert claim.spread.error == pytest.approx(np.sqrt(3 / 4 * ((rest - np.mean(rest)) ** 2).sum()))


def test_the_order_of_neuroids_does_not_matter() -> None:
    model, target = responses(30, 4, 5)
    shuffled = target.isel(neuroid=np.random.default_rng(0).permutation(20))
    for metric in (nl.metric("rdm"), nl.metric("ridge"), nl.metric("cka")):
        errors = [
            metric(model, each).replace(generalise=("stimulus", "subject")).spread.error
            for each in (target, shuffled)
        ]
        assert errors[0] == pytest.approx(errors[1])


@pytest.mark.parametrize("metric", ["ridge", "rdm", "cka"])
def test_neuroids_that_are_numbered_anew_in_each_subject_are_different_neuroids(metric: str) -> None:
    model, target = responses(40, 4, 6)
    numbered = target.assign_coords(neuroid_id=("neuroid", [str(i % 6) for i in range(24)]))
    expected, score = (nl.metric(metric)(model, each) for each in (target, numbered))
    assert score.spread.items["neuroid"] == 24
    assert score.spread.error == pytest.approx(expected.spread.error, rel=0.1)
    claims = [each.replace(generalise=("stimulus", "subject")).spread.error for each in (score, expected)]
    assert claims[0] == pytest.approx(claims[1], rel=0.1)


def test_intervals_over_new_subjects_contain_the_truth() -> None:
    metric, scores = nl.metric("cka"), []
    for run in range(80):
        scores.append(metric(*responses(60, 8, 6, run)).replace(population=str(run)))
    truth = np.mean([score.value for score in scores])
    same = np.mean([score.low <= truth <= score.high for score in scores])
    claims = [score.replace(generalise=("stimulus", "subject")) for score in scores]
    new = np.mean([score.low <= truth <= score.high for score in claims])
    assert new >= 0.86 and new > same  # neuroids of the same subjects say little about new ones


def ceiling_of(target: xr.DataArray) -> Score:
    repeated = xr.concat([target, target + 0.1 * RNG.standard_normal(target.shape)], "presentation")
    numbers = np.repeat([0, 1], target.sizes["presentation"])
    return nl.ceiling("internal_consistency")(repeated.assign_coords(repetition=("presentation", numbers)))


@pytest.mark.parametrize("over", [("stimulus",), ("stimulus", "subject"), None])
def test_the_ceiling_of_a_narrower_claim_varies_over_the_same_items(over: tuple[str, ...] | None) -> None:
    model, target = responses(40, 4, 6)
    raw = nl.metric("ridge")(model, target)
    raw = raw if over is None else raw.replace(generalise=over)
    score = normalise(raw, ceiling_of(target))
    assert score.spread is not None and raw.spread is not None
    assert set(score.spread.factors) == set(raw.spread.factors) == set(over or ("stimulus", "neuroid"))


def test_the_claim_of_a_normalised_score_cannot_change() -> None:
    model, target = responses(40, 4, 6)
    score = normalise(nl.metric("ridge")(model, target), ceiling_of(target))
    with pytest.raises(
        MetricError, match=r"ridge cannot generalise over something else.*before it is normalised"
    ):
        score.replace(generalise=("stimulus", "subject"))
    assert score.replace(generalise=score.generalise, notes=("same",)).low == score.low


def parts(values: Floats, own: Floats | None = None, claim: tuple[str, ...] = ()) -> dict[str, Score]:
    """Scores of subjects with the influence of the same stimuli, (subject, stimulus)."""
    scores = {}
    for i, value in enumerate(values):
        influence = None
        if own is not None:
            ids = [f"s{at}" for at in range(own.shape[1])]
            influence = Influence({"stimulus": moved(ids, own[i])})
        scores[f"p{i}"] = Score(value, influence=influence, population="data", generalise=claim)
    return scores


def test_a_mean_over_subjects_can_be_a_claim_about_new_subjects() -> None:
    values = RNG.standard_normal(6)
    score = mean_of(parts(values), "subject", ("subject",))
    low, high = stats.t.interval(0.95, 5, values.mean(), stats.sem(values))
    assert (score.low, score.high) == pytest.approx((low, high))
    assert score.interval_covers == "the 95 % interval covers new subjects"


def test_shared_stimuli_vary_too_and_their_interaction_is_counted_once() -> None:
    own = RNG.standard_normal((6, 50)) / 50
    values = RNG.standard_normal(6)
    score = mean_of(parts(values, own, ("stimulus",)), "subject", ("stimulus", "subject"))
    assert score.spread is not None
    draws = {name: (each**2).mean() for name, each in score.spread.draws.items()}
    assert draws["subject"] == pytest.approx(stats.sem(values) ** 2)
    together = moved([f"s{i}" for i in range(50)], own.mean(axis=0)).variance
    assert draws["stimulus"] == pytest.approx(together, rel=0.2)
    apart = (
        (50 / 49) * ((own - own.mean(axis=1, keepdims=True) - own.mean(axis=0) + own.mean()) ** 2).sum() / 36
    )
    assert draws["stimulus" + CROSS + "subject"] == pytest.approx(apart, rel=0.3)
    total = draws["stimulus"] + draws["subject"] - draws["stimulus" + CROSS + "subject"]
    assert score.spread.variance == pytest.approx(max(total, draws["subject"]), rel=1e-6)


def test_one_part_says_nothing_about_others() -> None:
    score = mean_of(parts(np.ones(1)), "subject", ("subject",))
    with pytest.raises(MetricError, match="cannot generalise over subject: there is only one"):
        _ = score.low


def test_two_models_are_paired_over_the_same_subjects() -> None:
    rng = np.random.default_rng(4)
    first = rng.standard_normal(8)
    second = first + 0.1 + 0.01 * rng.standard_normal(8)
    a, b = (mean_of(parts(values), "subject", ("subject",)) for values in (first, second))
    found, expected = difference("x", a, b), stats.ttest_rel(first, second)
    assert found.p == pytest.approx(expected.pvalue, rel=0.5) and found.p < 0.001
