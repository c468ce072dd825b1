"""Error consistency and related measures: golden values, a plain loop, published trials, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import cohen_kappa_score

from neuroledger.data.assembly import select
from neuroledger.engine import bound_metric as bind
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.behavior.models.stored_answers import stored_answers
from neuroledger.families.behavior.paradigms.task import task
from neuroledger.families.behavior.readers.trial_tables import trial_tables
from tests.golden.behaviour_cases import GOLDEN, golden_answers, presentations

CASE = GOLDEN["agreement"]


def test_golden_error_consistency():
    source, target = golden_answers()
    expected = CASE["error_consistency"]
    score = bind.metric("error_consistency", compat="brainscore")(source, target)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)
    assert math.isclose(score.value, expected["score"], abs_tol=1e-12)
    assert math.isclose(score.error, expected["error"], abs_tol=1e-12)
    ceiling = bind.ceiling("error_consistency", compat="brainscore")(target)
    assert math.isclose(ceiling.value, expected["ceiling"], abs_tol=1e-12)
    assert math.isclose(ceiling.error, expected["ceiling_error"], abs_tol=1e-12)


def test_default_error_is_that_of_the_mean_over_people():
    source, target = golden_answers()
    score = bind.metric("error_consistency")(source, target)
    per_person = score.samples.values.mean(axis=0)
    assert math.isclose(score.error, per_person.std() / np.sqrt(4), rel_tol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_kappa_equals_that_of_scikit_learn(answers):
    ours, theirs = np.array(answers).T
    ids = [f"s{i}" for i in range(len(ours))]
    truth = np.full(len(ours), "yes")
    label = lambda right: np.where(right, "yes", "no")  # noqa: E731
    source = presentations(label(ours), stimulus_id=ids, truth=truth)
    target = presentations(
        label(theirs), stimulus_id=ids, truth=truth, subject=np.full(len(ours), "a")
    )
    if (ours.all() and theirs.all()) or not (ours.any() or theirs.any()):
        with pytest.raises(MetricError, match="undefined"):
            bind.metric("error_consistency")(source, target)
        assert (
            bind.metric("error_consistency", undefined="one")(source, target).value
            == 1.0
        )
        return
    assert math.isclose(
        bind.metric("error_consistency")(source, target).value,
        cohen_kappa_score(ours, theirs),
        abs_tol=1e-12,
    )


def test_upstream_literal():
    answers = np.array(
        ["dog", "cat", "chair", "cat", "dog", "dog", "dog", "dog", "chair"]
    )
    other = np.array(
        ["cat", "cat", "chair", "cat", "dog", "cat", "chair", "cat", "cat"]
    )
    truth = np.tile(["dog", "cat", "chair"], 3)
    ids, condition = np.arange(9), np.repeat([1, 2, 3], 3)
    people = presentations(
        np.concatenate([answers, other, truth]),
        stimulus_id=np.tile(ids, 3),
        truth=np.tile(truth, 3),
        condition=np.tile(condition, 3),
        subject=np.repeat(["A", "B", "C"], 9),
    )
    model = presentations(answers, stimulus_id=ids, truth=truth, condition=condition)
    assert bind.metric("error_consistency", compat="brainscore")(
        model, people
    ).value == pytest.approx(0.2, abs=1e-12)
    assert bind.metric("accuracy_distance")(model, people).value == pytest.approx(
        0.74074074
    )
    perfect = presentations(truth, stimulus_id=ids, truth=truth, condition=condition)
    for variables in (["condition"], ["condition", "animacy"]):
        described = people.assign_coords(
            animacy=("presentation", np.tile(["a", "a", "i"], 9))
        )
        score = bind.metric("accuracy_distance", variables=variables)(
            perfect, described
        )
        assert score.value == pytest.approx(0.55555556)


def test_people_who_saw_different_stimuli_are_compared_where_both_answered():
    source, target = golden_answers()
    fewer = target.isel(
        presentation=np.flatnonzero(
            (target["subject"].values != "s1") | (target["stimulus_id"].values < "st20")
        )
    )
    score = bind.metric("error_consistency")(source, fewer)
    row = score.samples.sel(subject="s1").values
    assert np.isfinite(row[0])
    assert np.isnan(row[1])
    assert any("without trials" in note for note in score.notes)


def test_probabilities_answer_by_their_maximum():
    source, target = golden_answers()
    labels = np.array(list("abcd"))
    wide = 0.1 + 0.6 * (source.values[:, None] == labels[None, :])
    coords = {
        name: ("presentation", values.values) for name, values in source.coords.items()
    }
    import xarray as xr

    behaviour = xr.DataArray(
        wide, dims=("presentation", "choice"), coords={**coords, "choice": labels}
    )
    metric = bind.metric("error_consistency")
    assert metric(behaviour, target).value == metric(source, target).value


def planted(rng, stimuli, people=6, share=0.6):
    """People who copy, with probability ``share``, one common decision of accuracy .7: kappa with it is ``share``."""
    common = rng.random(stimuli) < 0.7
    copies = rng.random((people, stimuli)) < share
    right = np.where(copies, common, rng.random((people, stimuli)) < 0.7)
    word = lambda mask: np.where(mask, "yes", "no")  # noqa: E731
    ids = np.arange(stimuli)
    source = presentations(word(common), stimulus_id=ids)
    target = presentations(
        word(right).ravel(),
        stimulus_id=np.tile(ids, people),
        truth=np.full(people * stimuli, "yes"),
        subject=np.repeat(np.arange(people), stimuli),
    )
    return source, target


@pytest.mark.slow
def test_planted_kappa_lies_in_the_interval():
    rng, held, ceilings = np.random.default_rng(0), 0, 0
    for _ in range(6):
        source, target = planted(rng, 200)
        score, ceiling = (
            bind.metric("error_consistency")(source, target),
            bind.ceiling("error_consistency")(target),
        )
        held += score.low < 0.6 < score.high
        ceilings += ceiling.low < 0.36 < ceiling.high
    assert held >= 5
    assert ceilings >= 5


def rare_errors(rng, stimuli=200, people=10):
    """Answers of which 93 in 100 are right; stimuli are as difficult for the model as for people, by half."""
    hard, ability = (
        1.5 * rng.standard_normal(stimuli),
        0.5 * rng.standard_normal((people, 1)),
    )
    own = np.sqrt(0.5) * (hard + 1.5 * rng.standard_normal(stimuli))
    right = rng.random((people, stimuli)) < expit(3.5 + ability + hard)
    word = lambda mask: np.where(mask, "yes", "no")  # noqa: E731
    ids = np.arange(stimuli)
    source = presentations(
        word(rng.random(stimuli) < expit(3.5 + own)), stimulus_id=ids
    )
    target = presentations(
        word(right).ravel(),
        stimulus_id=np.tile(ids, people),
        truth=np.full(people * stimuli, "yes"),
        subject=np.repeat(np.arange(people), stimuli),
    )
    return source, target


def test_kappa_has_no_interval_below_what_these_accuracies_allow():
    source, target = rare_errors(np.random.default_rng(0))
    score = bind.metric("error_consistency")(source, target)
    least, most = score.limits
    assert -0.2 < least < score.low < score.value < score.high < most == 1


def test_the_coordinate_label_of_a_model_is_not_the_truth():
    source, target = golden_answers()
    labelled = source.drop_vars("truth").assign_coords(
        label=("presentation", source.values)
    )
    metric = bind.metric("error_consistency")
    assert metric(labelled, target).value == metric(source, target).value


def test_one_person_has_no_ceiling():
    _, target = golden_answers()
    with pytest.raises(CeilingError, match="one subject"):
        bind.ceiling("error_consistency")(select(target, {"subject": "s1"}))


def test_two_answers_of_one_person_are_refused():
    source, target = golden_answers()
    with pytest.raises(MetricError, match="twice"):
        bind.metric("error_consistency")(
            source, target.isel(presentation=[0, *range(target.size)])
        )


def test_a_stimulus_without_the_models_answer_is_refused():
    source, target = golden_answers()
    with pytest.raises(MetricError, match="no answer for"):
        bind.metric("error_consistency")(
            source.isel(presentation=slice(5, None)), target
        )


def test_answers_without_truth_are_refused():
    source, target = golden_answers()
    with pytest.raises(MetricError, match="cannot be judged"):
        bind.metric("error_consistency")(source, target.drop_vars("truth"))


KEPT = {
    "colour": ["bw"],
    "contrast": ["c50", "c30", "c15", "c10", "c05"],
    "false-colour": ["false"],
}
MODELS = {
    "bagnet33": "bagnet33",
    "resnet50": "resnet50",
    "simclr_resnet50x1": "simclr-resnet50x1",
}


@pytest.mark.parametrize(
    "experiment",
    ["colour", "contrast", "cue-conflict", "edge", "false-colour", "sketch"],
)
def test_real_people_and_networks(mirror, experiment):
    folder = mirror / "model_vs_human"
    expected = json.loads((folder / "expected.json").read_text())["per_experiment"][
        experiment
    ]
    data = trial_tables(
        {path.name: path for path in (folder / experiment).glob("*subject*.csv")}
    )
    if experiment in KEPT:
        data = replace(
            data, assembly=select(data.assembly, {"condition": KEPT[experiment]})
        )
    for key, name in (
        ("error consistency", "error_consistency"),
        ("observed consistency", "observed_consistency"),
    ):
        assert bind.ceiling(name)(data.assembly).value == pytest.approx(
            expected["human_vs_human"][key], abs=1e-12
        )
    for model, file in MODELS.items():
        answers = {
            path.name: path
            for path in (folder / experiment).glob(f"{experiment}_{file}_*.csv")
        }
        measured = task(stored_answers(id=model, weights=answers), data, decide="label")
        for key, name in (
            ("error consistency", "error_consistency"),
            ("observed consistency", "observed_consistency"),
            ("accuracy difference", "accuracy_difference"),
        ):
            value = bind.metric(name)(measured.source, measured.target).value
            assert value == pytest.approx(
                expected["model_vs_humans"][model][key], abs=1e-12
            )
        accuracy = bind.metric("accuracy")(measured.source, measured.target)
        assert accuracy.value == pytest.approx(
            expected["subjects"][model]["acc_ood"], abs=1e-12
        )
