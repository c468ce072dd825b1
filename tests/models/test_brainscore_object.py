"""Objects with Brain-Score's interface are used unchanged, and their known defects do not affect the numbers."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import neuroledger as nl
from neuroledger.data import stimuli as own
from neuroledger.data.screen import place
from neuroledger.errors import ModelError, RequestError
from neuroledger.families.alignment.models.pixels import grey_pixels
from neuroledger.models.model import Model, Task
from tests.models.drawn_stimuli import drawn


class StimulusSet(pd.DataFrame):
    """The class that Brain-Score's extractor asks for by ``isinstance``; anything else it reads as a list of paths."""

    _metadata = ["identifier", "stimulus_paths"]  # noqa: RUF012

    @property
    def _constructor(self) -> type[StimulusSet]:
        return StimulusSet


def gathered(assembly: xr.DataArray) -> xr.DataArray:
    """All coordinates of a dimension as its one index, as Brain-Score's assemblies have them."""
    of = {
        dim: [
            str(name)
            for name, values in assembly.coords.items()
            if values.dims == (dim,)
        ]
        for dim in assembly.dims
    }
    return assembly.set_index(
        {dim: names for dim, names in of.items() if names}, append=True
    )


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

    def start_recording(
        self, recording_target: str, time_bins: list[tuple[int, int]]
    ) -> None:
        self.target, self.time_bins = recording_target, time_bins

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
        self.caching.append(os.environ.get("RESULTCACHING_DISABLE"))
        self.asked.append(stimuli.identifier)
        assert isinstance(stimuli, StimulusSet), (
            "the peer would take the names of the columns for paths"
        )
        assert isinstance(stimuli.drop_duplicates(), StimulusSet)
        if self.do_behavior:
            return self.behaviour(stimuli)
        order = stimuli.sort_values("stimulus_id", ascending=False)
        features = np.stack([self.see(stimuli, name) for name in order["stimulus_id"]])
        values = np.repeat(features[:, :, None], len(self.time_bins), axis=2)
        coords = {
            "stimulus_id": ("presentation", list(order["stimulus_id"])),
            "filename": ("presentation", list(order["filename"])),
            "neuroid_id": ("neuroid", [f"{self.target}.{n}" for n in range(16)]),
            "neuroid_num": ("neuroid", np.arange(16)),
            "time_bin_start": ("time_bin", [start for start, _ in self.time_bins]),
            "time_bin_end": ("time_bin", [end for _, end in self.time_bins]),
        }
        return gathered(
            xr.DataArray(
                values, dims=("presentation", "neuroid", "time_bin"), coords=coords
            )
        )

    def behaviour(self, stimuli: Any) -> xr.DataArray:
        ids = list(stimuli["stimulus_id"])
        if self.task == "label":
            if self.arguments[0] == "imagenet":
                coords = {"stimulus_id": ("presentation", ids)}
                return xr.DataArray(
                    [["n02102040"] * len(ids)],
                    dims=("choice", "presentation"),
                    coords=coords,
                )
            values = np.array(
                [[self.arguments[0][int(name[1:]) % 2] for name in reversed(ids)]]
            )
            return xr.DataArray(
                values,
                dims=("choice", "presentation"),
                coords={"stimulus_id": ("presentation", ids[::-1])},
            )
        if self.task == "odd_one_out":
            names = ["|".join(ids[n : n + 3]) for n in range(0, len(ids), 3)]
            coords = {"stimulus_id": ("presentation", names)}
            return gathered(
                xr.DataArray(
                    [ids[1::3]], dims=("choice", "presentation"), coords=coords
                )
            )
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


def expected(stimuli: own.StimulusSet) -> np.ndarray[Any, np.dtype[np.float64]]:
    images = [Image.open(io.BytesIO(data)) for data in stimuli.read()]
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
    given = model.perform(
        Task("probabilities", label_column="object_name"), stimuli, fitting
    )
    assert given.dims == ("presentation", "choice")
    assert list(given["choice"].values) == ["x", "y", "z"]
    triplets = (("s001", "s000", "s003"), ("s000", "s002", "s003"))
    odd = model.perform(Task("odd_one_out", triplets=triplets), stimuli)
    assert list(odd.values) == ["s000", "s002"]
    assert list(odd["stimulus_id"].values) == ["s001|s000|s003", "s000|s002|s003"]
    with pytest.raises(RequestError, match="need fitting stimuli"):
        model.perform(Task("probabilities"), stimuli)


def test_caches_with_ambiguous_keys_are_not_used() -> None:
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
            return (
                super()
                .look_at(stimuli, number_of_trials)
                .isel(presentation=slice(1, None))
            )

    class Breaks(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            return super().look_at(stimuli, number_of_trials) * np.nan

    for kind, words in (
        (Behaves, "for responses of IT"),
        (Forgets, "returned nothing for 1 stimuli, first 's002'"),
        (Breaks, "returned NaN"),
    ):
        with pytest.raises(ModelError, match=words):
            nl.models.brainscore(kind()).record(drawn(3), "IT")


def test_objects_without_the_interface_are_refused() -> None:
    with pytest.raises(
        ModelError, match="has no look_at, start_recording, start_task, visual_degrees"
    ):
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


def test_all_imagenet_classes_are_requested_by_one_word() -> None:
    labels = nl.models.brainscore(Submission()).perform(
        Task("label", choices=("imagenet",)), drawn(2)
    )
    assert list(labels.values) == ["n02102040"] * 2


def test_the_odd_one_may_be_given_by_its_index() -> None:
    class Counts(Submission):
        def behaviour(self, stimuli: Any) -> xr.DataArray:
            return xr.DataArray([[0, 2]], dims=("choice", "presentation"))

    triplets = (("s001", "s000", "s003"), ("s000", "s002", "s003"))
    odd = nl.models.brainscore(Counts()).perform(
        Task("odd_one_out", triplets=triplets), drawn(4)
    )
    assert list(odd.values) == ["s001", "s003"]
    with pytest.raises(ModelError, match="2 answers to 1 triplets"):
        nl.models.brainscore(Counts()).perform(
            Task("odd_one_out", triplets=triplets[:1]), drawn(4)
        )


def test_a_delegating_object_is_set_to_passive_mode() -> None:
    class PassesOn:
        def __init__(self, subject: Submission) -> None:
            self.subject = subject

        def __getattr__(self, name: str) -> Any:
            return getattr(self.subject, name)

    class Obedient(Submission):
        def start_task(self, task: str, *arguments: Any) -> None:
            super().start_task(task, *arguments)
            self.do_behavior = task != "passive"

    subject, stimuli = Obedient(), drawn(3)
    subject.start_task("label", ["cat", "dog"])
    assert np.array_equal(
        nl.models.brainscore(PassesOn(subject)).record(stimuli, "IT").values,
        expected(stimuli),
    )


def test_answers_to_another_question_are_refused() -> None:
    class Elsewhere(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            answer = super().look_at(stimuli, number_of_trials).reset_index("neuroid")
            return answer.assign_coords(
                region=("neuroid", ["V4"] * answer.sizes["neuroid"])
            )

    class Lacks(Submission):
        def start_recording(
            self, recording_target: str, time_bins: list[tuple[int, int]]
        ) -> None:
            raise KeyError(recording_target)

    class Late(Submission):
        def start_recording(
            self, recording_target: str, time_bins: list[tuple[int, int]]
        ) -> None:
            super().start_recording(
                recording_target, [(start, end + 1) for start, end in time_bins]
            )

    class Silent(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> Any:
            return None

    for kind, words in (
        (Elsewhere, "returned neuroids of V4 for IT"),
        (Lacks, "has no layer for IT"),
        (Late, "returned no time bin 70-170 ms"),
        (Silent, "returned NoneType, not an assembly"),
    ):
        with pytest.raises(ModelError, match=words):
            nl.models.brainscore(kind()).record(drawn(3), "IT")


def test_decisions_outside_the_choices_are_refused() -> None:
    class Invents(Submission):
        def behaviour(self, stimuli: Any) -> xr.DataArray:
            answer = super().behaviour(stimuli)
            return (
                answer * np.nan
                if answer.dtype.kind == "f"
                else xr.full_like(answer, "cow")
            )

    model, stimuli = nl.models.brainscore(Invents()), drawn(4)
    with pytest.raises(
        ModelError, match="answered 'cow', which is not among the choices"
    ):
        model.perform(Task("label", choices=("cat", "dog")), stimuli)
    with pytest.raises(ModelError, match="answered 'cow', not one of s001, s000, s003"):
        model.perform(
            Task("odd_one_out", triplets=(("s001", "s000", "s003"),)), stimuli
        )
    with pytest.raises(ModelError, match="NaN or infinite probabilities"):
        model.perform(
            Task("probabilities"),
            stimuli,
            drawn(4, id="fit", columns={"image_label": list("xyzx")}),
        )


def test_file_names_match_the_format_of_the_content() -> None:
    class Looks(Submission):
        def see(self, stimuli: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
            with Image.open(stimuli.get_stimulus(name)) as image:
                names.append((stimuli.get_stimulus(name).name, image.format or ""))
            return super().see(stimuli, name)

    names: list[tuple[str, str]] = []
    plain = drawn(2, degrees=8)
    jpegs = replace(
        plain,
        table=plain.table.assign(filename=["a.jpg", "b.jpg"]),
        contents={"a.jpg": jpeg(plain, 0), "b.jpg": jpeg(plain, 1)},
    )
    model = nl.models.brainscore(Looks())
    model.record(jpegs, "IT")
    model.record(place(jpegs, 12.0), "IT")
    assert sorted(names) == [
        ("a.jpg", "JPEG"),
        ("a.png", "PNG"),
        ("b.jpg", "JPEG"),
        ("b.png", "PNG"),
    ]


def jpeg(stimuli: own.StimulusSet, row: int) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(stimuli.bytes(stimuli.ids[row]))) as image:
        image.save(file, format="JPEG")
    return file.getvalue()


def test_responses_carry_the_id_of_the_model() -> None:
    response = nl.models.brainscore(Submission(), id="mine").record(drawn(2), "IT")
    assert response.attrs == {"model": "mine"}
    assert set(response["region"].values) == {"IT"} and set(
        response["layer"].values
    ) == {"IT"}


@pytest.mark.parametrize("before", [None, "1", "modelA"])
def test_the_users_setting_of_the_cache_is_restored(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("RESULTCACHING_DISABLE", raising=False)
    else:
        monkeypatch.setenv("RESULTCACHING_DISABLE", before)
    subject = Submission()
    nl.models.brainscore(subject).record(drawn(2), "IT")
    assert (
        subject.caching == ["1"] and os.environ.get("RESULTCACHING_DISABLE") == before
    )


def test_an_error_of_the_object_itself_is_not_hidden() -> None:
    class Fails(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            raise KeyError("IT", "of another table")

    with pytest.raises(KeyError, match="of another table"):
        nl.models.brainscore(Fails()).record(drawn(2), "IT")


def test_missing_answers_are_counted_and_the_first_is_named() -> None:
    class Half(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            return (
                super()
                .look_at(stimuli, number_of_trials)
                .isel(presentation=slice(2, None))
            )

    class Uneven(Submission):
        def look_at(self, stimuli: Any, number_of_trials: int = 1) -> xr.DataArray:
            return (
                super()
                .look_at(stimuli, number_of_trials)
                .isel(presentation=[0, 1, 2, 2, 2])
            )

    with pytest.raises(
        ModelError, match="returned nothing for 2 stimuli, first 's001'"
    ):
        nl.models.brainscore(Half()).record(drawn(3), "IT")
    with pytest.raises(
        ModelError, match="answered some stimuli 1 times and others 3 times"
    ):
        nl.models.brainscore(Uneven()).record(drawn(3), "IT")


def test_the_name_of_shown_stimuli_depends_on_their_content_and_order() -> None:
    subject = Submission()
    model, stimuli = nl.models.brainscore(subject), drawn(4)
    forth, back = ("s000", "s001", "s002"), ("s002", "s001", "s000")
    for triplet in (forth, back, forth):
        model.perform(Task("odd_one_out", triplets=(triplet,)), stimuli)
    model.perform(Task("label", choices=("cat", "dog")), stimuli)
    first, second, third, once = subject.asked
    assert first == third and len({first, second, once}) == 3
    assert once == f"{stimuli.id}-{stimuli.content_sha256[:16]}-once"
