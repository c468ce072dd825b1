"""An object written for Brain-Score's interface answers unchanged, and its known defects stay out of the numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import neuroledger as nl
from neuroledger.core.model import Model, Task
from neuroledger.core.stimuli import StimulusSet
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.pixels import grey_pixels
from tests.models.drawn_stimuli import drawn


class Submission:
    """Written as submissions are: it keeps its mode, answers in sorted order of paths, and labels with MultiIndex."""

    identifier = "submission"

    def __init__(self) -> None:
        self.do_behavior = False
        self.asked: list[str] = []
        self.caching: list[str | None] = []

    def visual_degrees(self) -> int:
        return 8

    def start_task(self, task: str, *arguments: Any) -> None:
        self.do_behavior = True
        self.task, self.arguments = task, arguments

    def start_recording(self, recording_target: str, time_bins: list[tuple[int, int]]) -> None:
        self.target, self.time_bins = recording_target, time_bins

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
        self.caching.append(os.environ.get("RESULTCACHING_DISABLE"))
        self.asked.append(stimuli.identifier)
        if self.do_behavior:
            return self.behaviour(stimuli)
        order = stimuli.sort_values("stimulus_id", ascending=False)
        features = np.stack([self.see(stimuli, name) for name in order["stimulus_id"]])
        index = pd.MultiIndex.from_arrays(
            [order["stimulus_id"], order["filename"]], names=["stimulus_id", "filename"]
        )
        neuroid = pd.MultiIndex.from_arrays(
            [[f"{self.target}.{n}" for n in range(16)], np.arange(16)], names=["neuroid_id", "neuroid_num"]
        )
        times = pd.MultiIndex.from_tuples(self.time_bins, names=["time_bin_start", "time_bin_end"])
        values = np.repeat(features[:, :, None], len(self.time_bins), axis=2)
        coords = xr.Coordinates.from_pandas_multiindex(index, "presentation")
        coords = coords.merge(xr.Coordinates.from_pandas_multiindex(neuroid, "neuroid").to_dataset()).coords
        coords = coords.merge(xr.Coordinates.from_pandas_multiindex(times, "time_bin").to_dataset()).coords
        return xr.DataArray(values, dims=("presentation", "neuroid", "time_bin"), coords=coords)

    def behaviour(self, stimuli: Any) -> xr.DataArray:
        ids = list(stimuli["stimulus_id"])
        if self.task == "label":
            values = np.array([[self.arguments[0][int(name[1:]) % 2] for name in reversed(ids)]])
            return xr.DataArray(
                values, dims=("choice", "presentation"), coords={"stimulus_id": ("presentation", ids[::-1])}
            )
        if self.task == "odd_one_out":
            names = ["|".join(ids[n : n + 3]) for n in range(0, len(ids), 3)]
            coords = {"stimulus_id": ("presentation", names)}
            return xr.DataArray([ids[1::3]], dims=("choice", "presentation"), coords=coords)
        labels = list(dict.fromkeys(self.arguments[0]["image_label"]))
        values = np.full((len(ids), len(labels)), 1 / len(labels))
        return xr.DataArray(
            values,
            dims=("presentation", "choice"),
            coords={"stimulus_id": ("presentation", ids), "choice": labels},
        )

    def see(self, stimuli: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        path = stimuli.get_stimulus(name)
        assert path == stimuli.stimulus_paths[name]
        with Image.open(path) as image:
            return grey_pixels(image, 4).ravel()


def expected(stimuli: StimulusSet) -> np.ndarray[Any, np.dtype[np.float64]]:
    images = [Image.open(__import__("io").BytesIO(data)) for data in stimuli.read()]
    return np.stack([grey_pixels(image, 4).ravel() for image in images])


def test_responses_are_in_the_order_of_the_stimuli_with_plain_coordinates() -> None:
    subject, stimuli = Submission(), drawn(5)
    model = nl.models.brainscore(subject)
    assert isinstance(model, Model)
    assert (model.id, model.visual_degrees) == ("submission", 8.0)
    response = model.record(stimuli, "IT")
    assert response.dims == ("presentation", "neuroid")
    assert list(response["stimulus_id"].values) == stimuli.ids
    assert not response.indexes
    assert np.array_equal(response.values, expected(stimuli))


def test_time_bins_come_in_the_order_asked_for() -> None:
    response = nl.models.brainscore(Submission()).record(
        drawn(2), "V4", time_bins=[(90.0, 110.0), (70.0, 90.0)]
    )
    assert response.dims == ("presentation", "neuroid", "time_bin")
    assert list(response["time_bin_start"].values) == [90, 70]


def test_recording_after_a_task_records() -> None:
    subject, stimuli = Submission(), drawn(4)
    model = nl.models.brainscore(subject)
    labels = model.perform(Task("label", choices=("cat", "dog")), stimuli)
    assert list(labels.values) == ["cat", "dog", "cat", "dog"]
    assert list(labels["stimulus_id"].values) == stimuli.ids
    assert np.array_equal(model.record(stimuli, "IT").values, expected(stimuli))
    subject.start_task("label", ["cat", "dog"])
    assert np.array_equal(model.record(stimuli, "IT").values, expected(stimuli))
    assert subject.do_behavior, "the object itself is left as it was"


def test_probabilities_and_odd_ones_out() -> None:
    model, stimuli = nl.models.brainscore(Submission()), drawn(4)
    fitting = drawn(4, id="fit", columns={"object_name": ["x", "y", "z", "x"]})
    given = model.perform(Task("probabilities", label_column="object_name"), stimuli, fitting)
    assert given.dims == ("presentation", "choice")
    assert list(given["choice"].values) == ["x", "y", "z"]
    triplets = (("s001", "s000", "s003"), ("s000", "s002", "s003"))
    odd = model.perform(Task("odd_one_out", triplets=triplets), stimuli)
    assert list(odd.values) == ["s000", "s002"]
    assert list(odd["stimulus_id"].values) == ["s001|s000|s003", "s000|s002|s003"]
    with pytest.raises(RequestError, match="need fitting stimuli"):
        model.perform(Task("probabilities"), stimuli)


def test_nothing_that_the_peer_keeps_by_name_can_be_mistaken() -> None:
    subject = Submission()
    model = nl.models.brainscore(subject)
    before = os.environ.get("RESULTCACHING_DISABLE")
    model.record(drawn(2, seed=1), "V4")
    model.record(drawn(2, seed=2), "V4")
    assert set(subject.caching) == {"1"}
    assert len(set(subject.asked)) == 2
    assert os.environ.get("RESULTCACHING_DISABLE") == before


def test_answers_that_cannot_be_used_are_refused() -> None:
    class Behaves(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            self.task, self.arguments = "label", (["a", "b"],)
            return self.behaviour(stimuli)

    class Forgets(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            return super().look_at(stimuli, number_of_trials).isel(presentation=slice(1, None))

    class Breaks(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            return super().look_at(stimuli, number_of_trials) * np.nan

    for kind, words in (
        (Behaves, "when asked for the responses of IT"),
        (Forgets, "gave nothing for 1 stimuli, first 's002'"),
        (Breaks, "gave NaN"),
    ):
        with pytest.raises(ModelError, match=words):
            nl.models.brainscore(kind()).record(drawn(3), "IT")


def test_what_is_no_such_object_is_refused() -> None:
    with pytest.raises(ModelError, match="has no look_at, start_recording, start_task, visual_degrees"):
        nl.models.brainscore(object())  # type: ignore[arg-type]


def test_repeated_answers_become_repetitions() -> None:
    class Twice(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            once = super().look_at(stimuli)
            return xr.concat([once] * number_of_trials, "presentation")

    stimuli = drawn(3)
    response = nl.models.brainscore(Twice()).record(stimuli, "IT", trials=2)
    assert list(response["stimulus_id"].values) == stimuli.ids * 2
    assert list(response["repetition"].values) == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(response.values[3:], expected(stimuli))
