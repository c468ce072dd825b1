"""Shape bias: by hand, of published people and networks, refusals."""

from __future__ import annotations

import csv

import pytest

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import MetricError
from neuroledger.families.behavior.models.stored_answers import stored_answers
from neuroledger.families.behavior.paradigms.task import task
from neuroledger.families.behavior.readers.trial_tables import trial_tables
from neuroledger.families.behavior.tasks.trial_tables import image_key, texture_of
from tests.golden.behaviour_cases import presentations


def case(answers):
    ids = ["a", "b", "c", "d", "e"]
    target = presentations(
        ["x"] * 5,
        stimulus_id=ids,
        truth=list("ccddd"),
        texture=list("dbcca")[:4] + ["d"],
    )
    return presentations(answers, stimulus_id=ids), target


def test_by_hand():
    source, target = case(
        ["c", "b", "d", "x", "d"]
    )  # shape, texture, shape, neither, cues agree
    score = bind.metric("shape_bias")(source, target)
    assert score.value == pytest.approx(2 / 3)
    assert "1 of 4 answers" in score.notes[0]


def test_a_preference_without_exceptions_is_not_certain():
    """Twelve decisions for shape have the interval of an accuracy of 12 out of 12; those for neither cue do not count."""
    ids = [f"s{i}" for i in range(20)]
    target = presentations(
        ["a"] * 20, stimulus_id=ids, truth=["a"] * 20, texture=["b"] * 20
    )
    source = presentations(["a"] * 12 + ["x"] * 8, stimulus_id=ids)
    score = bind.metric("shape_bias")(source, target)
    first = slice(None, 12)
    accuracy = bind.metric("accuracy")(
        source.isel(presentation=first), target.isel(presentation=first)
    )
    assert (
        score.value == 1
        and score.low == pytest.approx(accuracy.low)
        and 0.3 < score.low < 0.9
    )
    other = presentations(["b"] * 12 + ["x"] * 8, stimulus_id=ids)
    assert bind.metric("shape_bias")(other, target).high == pytest.approx(1 - score.low)


def test_the_interval_of_a_preference_is_that_of_the_proportion_of_decisions():
    ids = [f"s{i}" for i in range(50)]
    target = presentations(
        ["a"] * 50, stimulus_id=ids, truth=["a"] * 50, texture=["b"] * 50
    )
    score = bind.metric("shape_bias")(
        presentations(list("aabax") * 10, stimulus_id=ids), target
    )
    assert score.uncertainty.error == pytest.approx((0.75 * 0.25 / 39) ** 0.5, rel=0.01)


def test_refusals():
    source, target = case(["x"] * 5)
    with pytest.raises(MetricError, match="no answer names"):
        bind.metric("shape_bias")(source, target)
    with pytest.raises(MetricError, match="no answer for 2"):
        bind.metric("shape_bias")(source.isel(presentation=slice(2, None)), target)
    with pytest.raises(MetricError, match="conflicts"):
        bind.metric("shape_bias")(source, target.assign_coords(texture=target["truth"]))


@pytest.mark.parametrize("model", ["resnet50", "bagnet33"])
def test_real_networks(mirror, model):
    folder = mirror / "model_vs_human" / "cue-conflict"
    data = trial_tables({path.name: path for path in folder.glob("*subject*.csv")})
    files = {path.name: path for path in folder.glob(f"cue-conflict_{model}_*.csv")}
    measured = task(stored_answers(id=model, weights=files), data, decide="label")
    with next(iter(files.values())).open() as opened:
        rows = [
            {key.lower(): value for key, value in row.items()}
            for row in csv.DictReader(opened)
        ]
    conflict = [
        row
        for row in rows
        if texture_of(image_key(row["imagename"])) != row["category"]
    ]
    shape = sum(row["object_response"] == row["category"] for row in conflict)
    texture = sum(
        row["object_response"] == texture_of(image_key(row["imagename"]))
        for row in conflict
    )
    score = bind.metric("shape_bias")(measured.source, measured.target)
    assert score.value == pytest.approx(shape / (shape + texture), abs=1e-12)
    assert score.value < 0.3  # networks trained on ImageNet go by texture
