"""Objects that look at images by Brain-Score's interface receive their own constants and the number of trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import ModelError
from neuroledger.models.model import Task, perform, record
from tests.models.drawn_stimuli import drawn


class Looker:
    """Returns a prepared answer, and stores what it was asked."""

    identifier = "looker"

    class RecordingTarget:
        """Its own constants of regions."""

        IT = "INFEROTEMPORAL"

    def __init__(self, answer: xr.DataArray) -> None:
        self.prepared = answer
        self.calls: dict[str, Any] = {}

    def visual_degrees(self) -> float:
        return 8.0

    def start_task(self, task: Any, *arguments: Any) -> None:
        self.calls["task"] = (task, *arguments)

    def start_recording(self, recording_target: Any, time_bins: Any) -> None:
        self.calls["recording"] = (recording_target, time_bins)

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
        self.calls["trials"] = number_of_trials
        return self.prepared


def test_a_recording_names_the_objects_own_region_and_the_trials() -> None:
    # Until 2021 the id of a stimulus was called image_id.
    coords = {"image_id": ("presentation", ["s001", "s000"])}
    looker = Looker(
        xr.DataArray([[1.0], [0.0]], dims=("presentation", "neuroid"), coords=coords)
    )
    model = nl.models.brainscore(looker)
    assert record(model, drawn(2, degrees=8.0), "IT").values.tolist() == [[0.0], [1.0]]
    assert looker.calls == {"recording": ("INFEROTEMPORAL", [(70, 170)]), "trials": 1}
    model.record(drawn(2), "IT")
    assert looker.calls["trials"] == 1
    record(model, drawn(2, degrees=8.0), "IT", trials=5)
    assert looker.calls["trials"] == 5


@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_index_selects_the_odd_stimulus_of_the_triplet(index: int) -> None:
    triplet = ("s002", "s000", "s001")
    looker = Looker(xr.DataArray([index], dims="presentation"))
    task = Task("odd_one_out", triplets=(triplet,))
    assert perform(
        nl.models.brainscore(looker), task, drawn(3, degrees=8.0)
    ).values.tolist() == [triplet[index]]


def test_responses_instead_of_decisions_are_refused_with_their_dimensions() -> None:
    looker = Looker(xr.DataArray(np.zeros((2, 1)), dims=("presentation", "neuroid")))
    model = nl.models.brainscore(looker)
    with pytest.raises(
        ModelError,
        match=r"returned the dimensions \('presentation', 'neuroid'\) for label",
    ):
        perform(
            model, Task("label", choices=("a", "b")), drawn(2, degrees=8.0), trials=3
        )
    assert looker.calls == {"task": ("label", ["a", "b"]), "trials": 3}
    looker.prepared = xr.DataArray(
        [[np.nan], [0.0]],
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ["s000", "s001"])},
    )
    with pytest.raises(ModelError, match="NaN or infinite responses for IT"):
        record(model, drawn(2, degrees=8.0), "IT")
