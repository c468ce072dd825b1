"""Objects that read texts by Brain-Score's interface: passages, modes, answers and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.model import Task, perform, record

PASSAGES = StimulusSet(
    "texts",
    pd.DataFrame(
        {
            "stimulus_id": ["b1", "a1", "b2", "a2", "a3"],
            "passage": ["b", "a", "b", "a", "a"],
            "text": ["one", "three", "fifteen", "a", "of"],
        }
    ),
)


class Reader:
    """Answers each part of a text with its length, and with the number of parts that it has collected so far."""

    class Task:
        """Its own constants of tasks."""

        reading_times = "READING"

    class RecordingTarget:
        """Its own constants of regions."""

        language_system = "LANGUAGE"

    def __init__(self) -> None:
        self.identifier = "reader"
        self.collected: list[str] = []
        self.calls: dict[str, Any] = {}

    def start_behavioral_task(self, task: Any) -> None:
        self.calls["task"] = task

    def perform_neural_recording(self, target: Any, kind: str) -> None:
        self.calls["recording"] = (target, kind)

    def digest_text(self, parts: list[str]) -> dict[str, xr.DataArray]:
        self.collected += parts
        lengths = np.array([float(len(part)) for part in parts])
        counts = np.full(len(parts), float(len(self.collected)))
        return {
            "behavior": xr.DataArray(lengths, dims="presentation"),
            "neural": xr.DataArray(
                np.stack([lengths, counts]), dims=("neuroid", "presentation")
            ),
        }


def test_every_passage_is_read_separately_and_keeps_its_stimulus_ids() -> None:
    reader = Reader()
    answer = perform(nl.models.brainscore(reader), Task("reading_times"), PASSAGES)
    assert answer.dims == ("presentation",)
    assert dict(zip(answer["stimulus_id"].values.tolist(), answer.values.tolist(), strict=True)) == {
        "b1": 3, "b2": 7, "a1": 5, "a2": 1, "a3": 2,
    }  # fmt: skip
    assert reader.calls["task"] == "READING", "it receives its own constant"
    assert reader.collected == [], "it is left unchanged"


def test_responses_have_neuroids_of_the_region_and_do_not_depend_on_earlier_passages() -> (
    None
):
    reader = Reader()
    answer = record(nl.models.brainscore(reader), PASSAGES, "language_system")
    assert answer.dims == ("presentation", "neuroid")
    assert set(answer["region"].values.tolist()) == {"language_system"}
    assert answer["neuroid_id"].values.tolist() == [
        "reader.language_system.0",
        "reader.language_system.1",
    ]
    counts = dict(
        zip(
            answer["stimulus_id"].values.tolist(),
            answer.values[:, 1].tolist(),
            strict=True,
        )
    )
    assert counts == {"b1": 2, "b2": 2, "a1": 3, "a2": 3, "a3": 3}
    assert reader.calls["recording"] == ("LANGUAGE", "fMRI")


@pytest.mark.parametrize("column", ["passage", "text"])
def test_stimuli_without_passages_or_texts_are_refused(column: str) -> None:
    table = StimulusSet("texts", PASSAGES.table.drop(columns=column))
    with pytest.raises(RequestError, match="present them with the paradigm `reading`"):
        perform(nl.models.brainscore(Reader()), Task("reading_times"), table)


def test_answers_that_do_not_match_the_parts_are_refused() -> None:
    class Short(Reader):
        def digest_text(self, parts: list[str]) -> dict[str, xr.DataArray]:
            return {
                name: answer[..., 1:]
                for name, answer in super().digest_text(parts).items()
            }

    class Silent(Reader):
        def digest_text(self, parts: list[str]) -> dict[str, xr.DataArray]:
            return {}

    class Flat(Reader):
        def digest_text(self, parts: list[str]) -> dict[str, xr.DataArray]:
            return {"neural": super().digest_text(parts)["behavior"]}

    class Broken(Reader):
        def digest_text(self, parts: list[str]) -> dict[str, xr.DataArray]:
            return {"neural": super().digest_text(parts)["neural"] * np.nan}

    for reader in (Short(), Silent()):
        with pytest.raises(
            ModelError,
            match=r"one answer for each of the 2 parts of the passage .* 'b1'",
        ):
            perform(nl.models.brainscore(reader), Task("reading_times"), PASSAGES)
    with pytest.raises(ModelError, match="returned 1 dimensions, not"):
        record(nl.models.brainscore(Flat()), PASSAGES, "language_system")
    with pytest.raises(
        ModelError, match="NaN or infinite responses for language_system"
    ):
        record(nl.models.brainscore(Broken()), PASSAGES, "language_system")
