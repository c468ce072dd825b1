"""Questions reach a model with all their parts, answers of the wrong kind are refused, and names get suggestions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.screen import place
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.models.embedder import Embedded, Shown
from neuroledger.models.model import (
    LayeredModel,
    Model,
    Task,
    embed,
    fit,
    of_layers,
    perform,
    record,
    unknown,
)
from neuroledger.spec.channels import STIMULI
from tests.models.drawn_stimuli import drawn


class Echo:
    """Stores the last question, and returns a prepared answer."""

    id = "echo"
    takes = STIMULI

    def __init__(self, answer: Any, *gives: str) -> None:
        self.prepared = answer
        self.gives = frozenset(gives)
        self.question: Any = None

    def answer(self, question: Any) -> Any:
        self.question = question
        return self.prepared


ASSEMBLY = xr.DataArray(np.zeros((1, 1)), dims=("presentation", "neuroid"))


def test_a_request_for_responses_is_passed_on_completely() -> None:
    model, stimuli = Echo(ASSEMBLY, "responses"), drawn(1)
    assert isinstance(model, Model)
    assert record(model, stimuli, "IT") is ASSEMBLY
    asked = model.question
    assert (asked.stimuli, asked.region, asked.time_bins, asked.trials) == (
        stimuli,
        "IT",
        None,
        1,
    )
    record(model, stimuli, "V4", [(0.0, 10.0)], 3)
    asked = model.question
    assert (asked.stimuli, asked.region, asked.time_bins, asked.trials) == (
        stimuli,
        "V4",
        [(0.0, 10.0)],
        3,
    )


def test_a_request_for_decisions_is_passed_on_completely() -> None:
    model, stimuli, fitting = (
        Echo(ASSEMBLY, "decisions:label"),
        drawn(1),
        drawn(2, id="fitting"),
    )
    task = Task("label", choices=("cat", "dog"))
    assert perform(model, task, stimuli) is ASSEMBLY
    asked = model.question
    assert (asked.task, asked.stimuli, asked.fitting_stimuli, asked.trials) == (
        task,
        stimuli,
        None,
        1,
    )
    perform(model, task, stimuli, fitting, 4)
    assert (model.question.fitting_stimuli, model.question.trials) == (fitting, 4)


def test_a_request_to_fit_carries_the_examples_and_the_earlier_result() -> None:
    model = Echo("network", "answers:forecast")
    assert fit(model, "answers:forecast", "examples") == "network"
    assert (model.question.training, model.question.before) == ("examples", None)
    fit(model, "answers:forecast", "examples", "earlier")
    assert model.question.before == "earlier"


def test_embeddings_are_requested_with_states_and_a_callback() -> None:
    rows = Embedded(np.zeros((1, 2), np.float32))
    model, stimuli, done = Echo(rows, "embeddings"), [Shown("a", text="word")], []
    assert embed(model, stimuli, (1, 2), done.append) is rows
    assert (model.question.stimuli, model.question.states) == (stimuli, (1, 2))
    model.question.tell(1)
    assert done == [1]


def test_answers_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ModelError, match="'echo' returned int, not an assembly"):
        record(Echo(3, "responses"), drawn(1), "IT")
    with pytest.raises(ModelError, match="'echo' returned list as embeddings"):
        embed(Echo([1.0], "embeddings"), [Shown("a")])


def test_a_channel_that_the_model_does_not_give_is_refused_with_those_that_it_gives() -> (
    None
):
    with pytest.raises(
        ModelError,
        match=r"does not give responses:IT; it gives decisions:label, responses:V4$",
    ):
        record(Echo(ASSEMBLY, "responses:V4", "decisions:label"), drawn(1), "IT")
    with pytest.raises(ModelError, match="does not give embeddings; it gives nothing"):
        embed(Echo(None), [Shown("a")])


def size_of_files(seen: list[StimulusSet]) -> Any:
    """Activations (stimulus, 1): the size of each file in bytes, plus the number of the trial."""

    def extract(
        stimuli: StimulusSet, ids: Any, layers: Any, trial: Any
    ) -> dict[str, Any]:
        seen.append(stimuli)
        values = np.array(
            [[float(len(stimuli.bytes(id)) + trial.number)] for id in ids]
        )
        return dict.fromkeys(layers, values)

    return extract


def test_stimuli_are_placed_in_the_field_of_view_before_the_model_sees_them() -> None:
    seen: list[StimulusSet] = []
    stimuli = drawn(2, degrees=4.0)
    model = LayeredModel(
        id="m",
        takes=STIMULI,
        extract=size_of_files(seen),
        layers=("units",),
        visual_degrees=8.0,
    )
    record(model, stimuli, "IT")
    placed = place(stimuli, 8.0)
    assert (
        {shown.content_sha256 for shown in seen}
        == {placed.content_sha256}
        != {stimuli.content_sha256}
    )
    seen.clear()
    fitting = drawn(
        4, seed=1, degrees=4.0, columns={"image_label": ["a", "b", "a", "b"]}
    )
    perform(model, Task("probabilities"), stimuli, fitting)
    assert {shown.content_sha256 for shown in seen} == {
        placed.content_sha256,
        place(fitting, 8.0).content_sha256,
    }


def test_a_stochastic_model_answers_once_unless_several_trials_are_requested() -> None:
    model = LayeredModel(
        id="m",
        takes=STIMULI,
        extract=size_of_files([]),
        layers=("units",),
        stochastic=True,
    )
    stimuli = drawn(2)
    assert "repetition" not in record(model, stimuli, "IT").coords
    assert "repetition" not in model.record(stimuli, "IT").coords
    several = record(model, stimuli, "IT", trials=3)
    assert several["repetition"].values.tolist() == [0, 0, 1, 1, 2, 2]
    assert several["stimulus_id"].values.tolist() == ["s000", "s001"] * 3
    first = several.values[:2, 0]
    assert several.values[:, 0].tolist() == [*first, *(first + 1), *(first + 2)]


@pytest.mark.parametrize(
    ("values", "channels"),
    [
        ({}, {"responses"}),
        ({"layers": ("one",)}, {"responses"}),
        ({"layers": ("one", "two")}, set()),
        (
            {"regions": {"IT": "one"}, "commit": {"on": {"V4": "b"}}},
            {"responses:IT", "responses:V4"},
        ),
        ({"layers": ("one",), "times": ((0, 1),)}, {"responses", "dynamics"}),
        ({"layers": ("one", "two"), "times": ((0, 1),)}, set()),
    ],
)
def test_channels_follow_from_regions_layers_and_times(
    values: dict[str, Any], channels: set[str]
) -> None:
    assert of_layers(values, decisions=()) == channels
    assert of_layers(values, decisions=("label",)) == channels | {"decisions:label"}


def test_an_unknown_name_is_described_with_similar_names_or_the_first_eight() -> None:
    assert unknown("layer", "conv", ["conv1", "conv2", "fc"]) in {
        "layer 'conv' (did you mean conv1, conv2?)",
        "layer 'conv' (did you mean conv2, conv1?)",
    }
    assert unknown("region", "IT", []) == "region 'IT' (there are: none)"
    assert (
        unknown("file", "x", list("abcdefgh"))
        == "file 'x' (there are: a, b, c, d, e, f, g, h)"
    )
    assert (
        unknown("file", "x", list("abcdefghi"))
        == "file 'x' (there are: a, b, c, d, e, f, g, h …)"
    )
