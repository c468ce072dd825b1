"""Patterns of discrimination: reference values, a plain loop, refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm, pearsonr

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.behavior.tasks.trials import read_trials
from tests.golden.behaviour_cases import object_trials, presentations

NAMES = ["i1", "i1n", "i2", "i2n"]


@pytest.fixture(scope="module")
def oracle(reference):
    folder = reference / "brainscore_oracle"
    arrays, cases = (
        np.load(folder / "behavior.npz"),
        json.loads((folder / "behavior.json").read_text()),
    )
    source = xr.DataArray(
        arrays["B1_probs"],
        dims=("presentation", "choice"),
        coords={
            "stimulus_id": ("presentation", arrays["B1_prob_stimulus_id"]),
            "choice": arrays["B1_prob_choice"],
        },
    )
    target = presentations(
        arrays["B1_choice"],
        stimulus_id=arrays["B1_stimulus_id"],
        sample_obj=arrays["B1_sample_obj"],
        dist_obj=arrays["B1_dist_obj"],
        truth=arrays["B1_sample_obj"],
    )
    return source, target, cases


@pytest.mark.parametrize("name", NAMES)
def test_reference_scores_and_ceilings(oracle, name):
    source, target, cases = oracle
    expected = cases[f"B1/{name}"]
    score = bind.metric(name, compat="brainscore")(source, target)
    ceiling = bind.ceiling(name, compat="brainscore")(target)
    np.testing.assert_allclose(
        score.samples.values, expected["score_splits"], atol=1e-12
    )
    np.testing.assert_allclose(
        ceiling.samples.values, expected["ceiling_splits"], atol=1e-12
    )
    assert math.isclose(score.error, expected["score_error"], abs_tol=1e-12)
    assert math.isclose(ceiling.error, expected["ceiling_error"], abs_tol=1e-12)


@pytest.mark.parametrize("name", ["o1", "o2"])
def test_reference_object_scores(oracle, name):
    source, target, cases = oracle
    assert math.isclose(
        bind.metric(name)(source, target).value,
        cases[f"B1/{name}"]["score"],
        abs_tol=1e-12,
    )


def by_loop(source, target, *, normalise, collapse, half):
    """i1 … i2n written as sentences: one image, one choice at a time."""
    objects, ids = sorted(source["choice"].values), sorted(source["stimulus_id"].values)
    truth = dict(zip(target["stimulus_id"].values, target["truth"].values, strict=True))
    model = source.assign_coords(presentation=source["stimulus_id"].values)

    def pattern(rate):
        false_alarm = {
            (shown, answered): np.nanmean(
                [rate[i, answered] for i in ids if truth[i] == shown]
            )
            for shown in objects
            for answered in objects
            if shown != answered
        }
        cells = {
            (i, c): float(
                np.clip(
                    norm.ppf(1 - rate[i, c]) - norm.ppf(false_alarm[c, truth[i]]), -5, 5
                )
            )
            for i in ids
            for c in objects
            if c != truth[i]
        }
        if normalise:
            means = {
                (t, c): np.nanmean([cells[i, c] for i in ids if truth[i] == t])
                for t in objects
                for c in objects
                if t != c
            }
            cells = {
                (i, c): value - means[truth[i], c] for (i, c), value in cells.items()
            }
        if collapse:
            return [
                np.nanmean([cells[i, c] for c in objects if c != truth[i]]) for i in ids
            ]
        return [cells[i, c] for i in ids for c in objects if c != truth[i]]

    def of_model(i, c):
        p, t = (
            model.sel(presentation=i, choice=c).item(),
            model.sel(presentation=i, choice=truth[i]).item(),
        )
        return p / (p + t)

    part = target.isel(presentation=half)

    def of_people(i, c):
        rows = part.isel(presentation=part["stimulus_id"].values == i)
        offered = (rows["sample_obj"].values == c) | (rows["dist_obj"].values == c)
        return (rows.values == c).sum() / offered.sum()

    rates = [
        {(i, c): of(i, c) for i in ids for c in objects if c != truth[i]}
        for of in (of_model, of_people)
    ]
    return pearsonr(pattern(rates[0]), pattern(rates[1]))[0]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_a_plain_loop(name):
    source, target = object_trials(np.random.default_rng(5))
    half = list(range(target.size))
    np.random.RandomState(0).shuffle(half)
    expected = by_loop(
        source,
        target,
        normalise=name.endswith("n"),
        collapse=name.startswith("i1"),
        half=half[: target.size // 2],
    )
    score = bind.metric(name)(source.isel(presentation=slice(None, None, -1)), target)
    assert math.isclose(score.samples.values[0], expected, abs_tol=1e-12)


def test_choices_and_rows_in_any_order_give_the_same_bits():
    source, target = object_trials(np.random.default_rng(1))
    moved = source.isel(presentation=[3, 1, 0, 2, *range(4, 12)], choice=[2, 0, 3, 1])
    assert (
        bind.metric("i2n")(source, target).value
        == bind.metric("i2n")(moved, target).value
    )


@pytest.mark.parametrize(
    "change", ["objects", "wider", "narrower truth", "not on offer", "swapped"]
)
def test_trials_are_read_from_every_layout_of_their_labels(change):
    """Shortcuts for text of one width, for truths that repeat the sample, for choices on offer change nothing."""
    _, target = object_trials(np.random.default_rng(3))
    plain = target.copy(deep=True)
    if change == "objects":
        changed = plain.astype(object).assign_coords(
            {
                n: ("presentation", c.values.astype(object))
                for n, c in plain.coords.items()
            }
        )
    elif change == "wider":
        changed = plain.astype("U21").assign_coords(
            stimulus_id=plain["stimulus_id"].astype("U18")
        )
    elif change == "narrower truth":
        changed = plain.assign_coords(truth=plain["truth"].astype("U40"))
    elif change == "not on offer":
        plain.values[7] = next(
            name
            for name in np.unique(plain["truth"].values)
            if name not in (plain["sample_obj"].values[7], plain["dist_obj"].values[7])
        )
        changed = plain.astype(object)
    else:  # some images are the distractor of their trial
        swap = np.random.default_rng(0).random(plain.size) < 0.5
        sample, other = plain["sample_obj"].values, plain["dist_obj"].values
        sides = {
            "sample_obj": np.where(swap, other, sample),
            "dist_obj": np.where(swap, sample, other),
        }
        changed = plain.assign_coords(
            {n: ("presentation", c) for n, c in sides.items()}
        )
    one, two = read_trials(plain), read_trials(changed)
    assert one.objects.tolist() == two.objects.tolist()
    for name in ("image", "choice", "truth", "images"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    rows = np.arange(0, plain.size, 2)
    np.testing.assert_array_equal(one.rates(rows), two.rates(rows))
    assert (one.objects[one.choice] == plain.values).all()


def test_halves_are_those_of_the_ceiling_and_seeded():
    _, target = object_trials(np.random.default_rng(2))
    one, two = bind.ceiling("i2n")(target), bind.ceiling("i2n")(target)
    assert one.value == two.value
    assert one.value != bind.ceiling("i2n", compare={"seed": 1})(target).value


def test_interval_holds_the_value():
    source, target = object_trials(np.random.default_rng(4), images=40, trials=4000)
    score = bind.metric("i1")(source, target)
    assert score.low < score.value < score.high


def test_stimuli_without_an_answer_are_refused():
    source, target = object_trials(np.random.default_rng(0))
    with pytest.raises(MetricError, match="no answer for 1 stimuli"):
        bind.metric("i1")(source.isel(presentation=slice(1, None)), target)


def test_doubled_stimuli_are_refused():
    source, target = object_trials(np.random.default_rng(0))
    with pytest.raises(MetricError, match="several rows"):
        bind.metric("i1")(source.isel(presentation=[0, *range(12)]), target)


def test_an_object_without_a_probability_is_refused():
    source, target = object_trials(np.random.default_rng(0))
    with pytest.raises(MetricError, match="not among the model's choices"):
        bind.metric("i2")(source.isel(choice=slice(0, 3)), target)


def test_contradictory_truths_are_refused():
    source, target = object_trials(np.random.default_rng(0))
    target["truth"].values[0] = next(
        o for o in source["choice"].values if o != target["truth"].values[0]
    )
    with pytest.raises(MetricError, match="different truths"):
        bind.metric("i1")(source, target)


def test_no_trials_have_no_ceiling():
    _, target = object_trials(np.random.default_rng(0))
    with pytest.raises(CeilingError, match="needs trials"):
        bind.ceiling("i2n")(target.isel(presentation=slice(0, 0)))


def test_extra_stimuli_of_the_model_are_noted():
    source, target = object_trials(np.random.default_rng(0))
    fewer = target.isel(presentation=target["stimulus_id"].values != "image00")
    assert any(
        "without human trials" in note
        for note in bind.metric("i1")(source, fewer).notes
    )
