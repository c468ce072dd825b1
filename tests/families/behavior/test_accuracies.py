"""Accuracy and metrics based on it: golden values, closed forms, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import pearsonr
from sklearn.metrics import confusion_matrix

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import CeilingError, MetricError
from tests.golden.behaviour_cases import GOLDEN, golden_answers, presentations

CASE = GOLDEN["agreement"]


def test_golden_accuracy():
    source, _ = golden_answers()
    expected = CASE["accuracy"]
    truth = presentations(
        source["truth"].values[::-1], stimulus_id=source["stimulus_id"].values[::-1]
    )
    score = bind.metric("accuracy", compat="brainscore")(source, truth)
    assert math.isclose(score.value, expected["score"], abs_tol=1e-12)
    assert math.isclose(score.error, expected["error"], abs_tol=1e-12)
    assert math.isclose(
        bind.metric("accuracy")(source, truth).error,
        expected["error"] / np.sqrt(80),
        rel_tol=1e-12,
    )


def test_each_stimulus_counts_once_for_trials_of_people():
    source, target = golden_answers()
    assert bind.metric("accuracy")(source, target).samples.size == 80


def test_the_stimuli_of_an_accuracy_vary_and_the_people_who_saw_them_do_not():
    ids, right = np.arange(50), np.random.default_rng(0).random(50) < 0.7
    source = presentations(np.where(right, "a", "b"), stimulus_id=ids)
    people = presentations(
        ["a"] * 50, stimulus_id=ids, truth=["a"] * 50, subject=np.repeat(["p", "q"], 25)
    )
    score = bind.metric("accuracy")(source, people)
    assert score.uncertainty.factors == ("stimulus",)
    assert score.uncertainty.error == pytest.approx(np.std(right, ddof=1) / np.sqrt(50))
    assert 0 < score.low < score.value < score.high < 1


def test_an_accuracy_over_time_varies_with_stimuli():
    rng = np.random.default_rng(0)
    answers = np.where(rng.random((30, 3)) < 0.7, "a", "b")
    over_time = xr.DataArray(answers, dims=("presentation", "time_bin"))
    score = bind.metric(
        "accuracy",
        aggregate=[
            {"over": "time_bin", "with": "mean"},
            {"over": "presentation", "with": "mean"},
        ],
    )(over_time, presentations(["a"] * 30))
    means = (answers == "a").mean(axis=1)
    assert score.uncertainty.factors == ("stimulus",)
    assert score.uncertainty.error == pytest.approx(np.std(means, ddof=1) / np.sqrt(30))


def test_an_accuracy_without_exceptions_is_not_certain():
    """One of the outcomes could have been another; Agresti and Coull add two of each."""
    score = bind.metric("accuracy")(
        presentations(["a"] * 20), presentations(["a"] * 20)
    )
    assert score.value == 1 and score.uncertainty.error == pytest.approx(1 / 20)
    assert 0.4 < score.low < 0.95 and score.high == 1


def test_right_answers_are_the_values_unless_people_gave_them():
    source, target = golden_answers()
    one = target.isel(presentation=target["subject"].values == "s1")
    answers = one.drop_vars("subject")
    shared = (
        one.values
        == source.set_index(presentation="stimulus_id")
        .sel(presentation=one["stimulus_id"].values)
        .values
    )
    assert bind.metric("accuracy")(source, answers).value == pytest.approx(
        shared.mean()
    )
    assert bind.metric("accuracy")(source, one).value == pytest.approx(
        CASE["accuracy"]["score"]
    )


def test_accuracy_without_ids_needs_equal_lengths():
    with pytest.raises(MetricError, match="no stimulus_id"):
        bind.metric("accuracy")(
            presentations(["a", "b"]), presentations(["a", "b", "c"])
        )


def test_golden_accuracy_distance():
    source, target = golden_answers()
    expected = CASE["accuracy_distance"]
    score = bind.metric("accuracy_distance", compat="brainscore")(source, target)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)
    assert math.isclose(score.error, expected["error"], abs_tol=1e-12)
    ceiling = bind.ceiling("accuracy_distance", compat="brainscore")(target)
    assert math.isclose(ceiling.value, expected["ceiling"], abs_tol=1e-12)
    assert math.isclose(ceiling.error, expected["ceiling_error"], abs_tol=1e-12)
    expected = CASE["accuracy_distance_by_condition"]
    score = bind.metric("accuracy_distance", variables=["condition"])(source, target)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)


def test_distance_uses_chance_as_the_lowest_accuracy():
    truth, ids = ["a"] * 10, np.arange(10)
    model = presentations(["a"] * 6 + ["b"] * 4, stimulus_id=ids)
    person = presentations(
        ["a"] * 8 + ["b"] * 2, stimulus_id=ids, truth=truth, subject=["p"] * 10
    )
    assert bind.metric("accuracy_distance")(model, person).value == pytest.approx(
        1 - 0.2 / 0.8
    )
    assert bind.metric("accuracy_distance", chance=0.5)(
        model, person
    ).value == pytest.approx(1 - 0.2 / 0.3)


def test_one_person_has_no_distance_to_others():
    _, target = golden_answers()
    one = target.isel(presentation=target["subject"].values == "s1")
    with pytest.raises(CeilingError, match="one subject"):
        bind.ceiling("accuracy_distance")(one)


def jackknifed(left):
    """Deviations of a score from its values without each item."""
    count = len(left)
    return np.sqrt((count - 1) / count) * (left.mean() - left)


def baker():
    case = GOLDEN["accuracy_delta"]
    subject, kind, animal, correct = zip(
        *[(s, t, a, int(c)) for s, t, a, line in case["cells"] for c in line],
        strict=True,
    )
    people = presentations(correct, subject=subject, image_type=kind, animal=animal)
    kind, animal, answer = zip(
        *[(t, a, v) for t, a, line in case["model"] for v in line], strict=True
    )
    return presentations(answer, image_type=kind, animal=animal), people, case


def test_golden_accuracy_delta():
    source, target, expected = baker()
    score = bind.metric("baker_accuracy_delta", compat="brainscore")(source, target)
    assert math.isclose(score.value, expected["score"], abs_tol=1e-12)
    assert math.isclose(score.error, expected["error"], abs_tol=1e-12)
    np.testing.assert_allclose(score.samples.values[:10], expected["first"], atol=1e-12)


def test_halves_of_all_subjects_include_the_last_one():
    source, target, _ = baker()
    lost = (target["subject"].values == 8) & (target["image_type"].values == "f")
    changed = target.copy(data=np.where(lost, 0, target.values))
    here = [
        bind.metric("baker_accuracy_delta")(source, side).samples.values
        for side in (target, changed)
    ]
    peer = [
        bind.metric("baker_accuracy_delta", compat="brainscore")(source, side).value
        for side in (target, changed)
    ]
    assert (here[0] != here[1]).any()
    assert peer[0] == peer[1]  # its draws never hold the last subject


def test_losses_of_accuracy_vary_with_new_stimuli_if_they_are_named():
    source, target, _ = baker()
    named = [
        side.assign_coords(
            stimulus_id=("presentation", np.arange(side.sizes["presentation"]) % 40)
        )
        for side in (source, target)
    ]
    unnamed = [
        side.drop_vars("stimulus_id", errors="ignore") for side in (source, target)
    ]
    both = bind.metric("baker_accuracy_delta")(*named)
    people = bind.metric("baker_accuracy_delta")(*unnamed)
    assert both.value == people.value
    assert both.interval_covers.endswith("covers new stimuli and new subjects")
    assert people.interval_covers.endswith("covers new subjects")
    assert both.uncertainty.error > people.uncertainty.error
    assert people.uncertainty.error == pytest.approx(
        both.replace(generalise=("subject",)).uncertainty.error
    )
    ceiling = bind.ceiling("baker_accuracy_delta")(named[1])
    assert ceiling.interval_covers.endswith("covers new stimuli and new subjects")


def test_a_missing_condition_is_refused():
    source, target, _ = baker()
    with pytest.raises(MetricError, match="no presentation has image_type = 'o'"):
        bind.metric("baker_accuracy_delta", image_types=["w", "o"])(source, target)


@pytest.mark.parametrize(("a", "b", "scale", "expected"), GOLDEN["value_delta"])
def test_golden_value_delta(a, b, scale, expected):
    assert bind.metric("value_delta", scale=scale)(a, b).value == pytest.approx(
        expected, abs=1e-15
    )


def test_value_delta_needs_numbers():
    with pytest.raises(MetricError, match="one finite number"):
        bind.metric("value_delta")(float("nan"), 1.0)


def confused():
    case = GOLDEN["confusion_similarity"]
    source = presentations(list(case["model_answer"]), truth=list(case["model_truth"]))
    truth = list(case["human_truth"])
    target = presentations(
        list(case["human_answer"]), truth=truth, subject=np.arange(len(truth)) % 6
    )
    return source, target, case["score"]


def test_golden_confusions():
    source, target, expected = confused()
    assert bind.metric("confusion_similarity")(source, target).value == pytest.approx(
        expected, abs=1e-12
    )


def test_confusions_equal_those_of_scikit_learn():
    source, target, _ = confused()
    sides = [
        confusion_matrix(side["truth"].values, side.values, labels=list("abcd"))
        for side in (source, target)
    ]
    beside = ~np.eye(4, dtype=bool)
    expected = pearsonr(sides[0][beside], sides[1][beside])[0]
    assert bind.metric("confusion_similarity")(source, target).value == pytest.approx(
        expected, abs=1e-12
    )


def test_different_objects_cannot_be_confused():
    source, target, _ = confused()
    fewer = target.isel(presentation=target["truth"].values != "d")
    with pytest.raises(MetricError, match="same objects"):
        bind.metric("confusion_similarity")(source, fewer)


def test_confusions_of_one_person_have_no_ceiling():
    _, target, _ = confused()
    with pytest.raises(CeilingError, match="one subject"):
        bind.ceiling("confusion_similarity")(
            target.isel(presentation=target["subject"].values == 0)
        )


def conditions(rng, subjects=5, each=60):
    cells = np.tile(np.arange(6), each * subjects // 6 * 1)[: each * subjects]
    ids = np.arange(cells.size)
    right = rng.random(cells.size) < 0.3 + 0.1 * cells
    target = presentations(
        np.where(right, "yes", "no"),
        stimulus_id=ids,
        truth=np.full(cells.size, "yes"),
        subject=np.repeat(np.arange(subjects), each),
        condition=cells,
    )
    source = presentations(
        np.where(rng.random(cells.size) < 0.3 + 0.1 * cells, "yes", "no"),
        stimulus_id=ids,
    )
    return source, target


def test_condition_accuracy_is_a_mean_of_correlations():
    source, target = conditions(np.random.default_rng(8))
    score = bind.metric("condition_accuracy")(source, target)
    expected = []
    for person in range(5):
        mine = target["subject"].values == person
        cells = target["condition"].values[mine]
        a = [np.mean(source.values[mine][cells == c] == "yes") for c in range(6)]
        b = [np.mean(target.values[mine][cells == c] == "yes") for c in range(6)]
        expected.append(pearsonr(a, b)[0])
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-12)


def test_condition_ceiling_leaves_each_person_out():
    _, target = conditions(np.random.default_rng(9))
    table = np.array(
        [
            [
                np.mean(
                    target.values[
                        (target["subject"].values == s)
                        & (target["condition"].values == c)
                    ]
                    == "yes"
                )
                for c in range(6)
            ]
            for s in range(5)
        ]
    )
    expected = [
        pearsonr(table[s], np.delete(table, s, axis=0).mean(axis=0))[0]
        for s in range(5)
    ]
    np.testing.assert_allclose(
        bind.ceiling("condition_accuracy")(target).samples.values, expected, atol=1e-12
    )


def test_one_condition_has_no_profile():
    source, target = conditions(np.random.default_rng(8))
    with pytest.raises(MetricError, match="1 condition;"):
        bind.metric("condition_accuracy")(
            source,
            target.assign_coords(condition=("presentation", np.zeros(target.size))),
        )


def test_tasks_consistency_pools_people():
    source, target = conditions(np.random.default_rng(10))
    score = bind.metric("tasks_consistency", variables=["condition"])(source, target)
    cells = target["condition"].values
    expected = pearsonr(
        *[
            [np.mean(side.values[cells == c] == "yes") for c in range(6)]
            for side in (source, target)
        ]
    )[0]
    assert score.value == pytest.approx(expected, abs=1e-12)
    assert score.low < score.value < score.high
    assert bind.ceiling("tasks_consistency", variables=["condition"])(target).value > 0


@pytest.mark.parametrize("of_model", [True, False])
def test_halves_of_people_stay_when_a_person_is_left_out(of_model):
    source, target, _ = baker()
    people = target.drop_vars("stimulus_id", errors="ignore")
    names = np.unique(people["subject"].values)
    kind = people["image_type"].values

    def drop(person):
        of_person = people["subject"].values == person
        return (
            people.values[of_person & (kind == "w")].mean()
            - people.values[of_person & (kind == "f")].mean()
        )

    drops, rng = np.array([drop(name) for name in names]), np.random.default_rng(0)
    halves = [rng.permutation(len(names))[: len(names) // 2] for _ in range(100)]
    bound = (
        bind.metric("baker_accuracy_delta")
        if of_model
        else bind.ceiling("baker_accuracy_delta")
    )
    score = bound(source, people) if of_model else bound(people)
    own = [
        np.mean([(source.values == a)[(source["animal"].values == a) & (source["image_type"].values == t)].mean()
                 for a in np.unique(source["animal"].values)])
        for t in "wf"
    ]  # fmt: skip

    def by_hand(stay):
        values = []
        for half in halves:
            first = drops[[at for at in half if at in stay]].mean()
            rest = drops[
                [at for at in range(len(names)) if at in stay and at not in half]
            ].mean()
            compared, reference = (
                (own[0] - own[1], first) if of_model else (first, rest)
            )
            similarity = max(1 - abs(reference - compared) / abs(reference), 0)
            values.append(similarity if of_model else 2 * similarity / (1 + similarity))
        return values

    everyone = set(range(len(names)))
    np.testing.assert_allclose(score.samples.values, by_hand(everyone), atol=1e-12)
    left = np.array([np.mean(by_hand(everyone - {at})) for at in range(len(names))])
    part = score.uncertainty.part(("", ("subject",)))
    order = np.argsort(names.astype(str))
    np.testing.assert_allclose(part.values, jackknifed(left)[order], atol=1e-12)
