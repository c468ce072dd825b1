"""Trials of a stimulus are displaced as declared, keep their label, and get separate decisions."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from scipy.ndimage import map_coordinates

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.data.screen import place
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, RequestError
from neuroledger.families.behavior.paradigms.task import task
from neuroledger.families.behavior.tasks.microsaccades import in_trials, looks
from neuroledger.models import readout
from neuroledger.models.model import Perform
from neuroledger.spec.channels import STIMULI
from neuroledger.spec.registry import get
from tests.models.drawn_stimuli import drawn, of_images


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=float)


def test_trials_follow_the_spiral_of_brain_score() -> None:
    stimuli = drawn(2, size=(60, 40), degrees=3.0)
    seen = in_trials(stimuli, 10)
    assert len(seen) == 20 and seen.ids[:2] == stimuli.ids
    assert next(seen.read(seen.ids[1:2])) == next(stimuli.read(stimuli.ids[1:]))
    for trial in (1, 4, 9):
        # The largest radius is 0.05 degrees of an image of 60 pixels for 3 degrees: one pixel.
        radius, angle = np.sqrt(trial / 10), 2 * np.pi * np.sqrt(trial) / np.sqrt(10)
        rows, columns = np.mgrid[:40, :60].astype(float)
        at = [rows - radius * np.sin(angle), columns - radius * np.cos(angle)]
        before = pixels(next(stimuli.read(stimuli.ids[1:])))
        wanted = np.stack(
            [
                map_coordinates(before[..., c], at, order=1, mode="nearest")
                for c in range(3)
            ],
            -1,
        )
        found = pixels(next(seen.read([seen.ids[2 * trial + 1]])))
        assert np.abs(found - wanted).max() <= 0.5 + 1e-9
        assert np.abs(found - before).max() > 5


def test_displaced_stimuli_have_a_content_of_their_own_and_a_place_on_the_screen() -> (
    None
):
    stimuli = drawn(3, degrees=4.0)
    sets = [stimuli, in_trials(stimuli, 2), in_trials(stimuli, 3)]
    assert len({one.content_sha256 for one in sets}) == 3
    assert in_trials(stimuli, 3).content_sha256 == sets[2].content_sha256
    small = place(sets[1], 2.0)
    assert Image.open(io.BytesIO(next(small.read(small.ids[4:])))).size == (8, 8)
    assert in_trials(stimuli, 1) is stimuli


@dataclass
class Brightness:
    """A model that sees the mean of the left and of the right half, and keeps what it was asked."""

    asked: list[Perform]
    id: str = "brightness"
    takes: frozenset[str] = frozenset({"images"})
    gives = frozenset({"decisions:probabilities"})

    def answer(self, question: Perform) -> xr.DataArray:
        self.asked.append(question)

        def features(stimuli: StimulusSet) -> np.ndarray:
            seen = np.stack(
                [pixels(content).mean(axis=-1) for content in stimuli.read()]
            )
            half = seen.shape[-1] // 2
            return np.stack(
                [
                    seen[..., :half].mean(axis=(1, 2)),
                    seen[..., half:].mean(axis=(1, 2)),
                ],
                axis=1,
            )

        fitted = question.fitting_stimuli
        assert fitted is not None
        labels = [str(one) for one in fitted.table["image_label"]]
        order = np.random.default_rng(1).permutation(len(question.stimuli))
        ids = [question.stimuli.ids[row] for row in order]
        return readout.probabilities(
            features(fitted), labels, features(question.stimuli)[order], ids
        )


def halves(name: str, count: int) -> StimulusSet:
    """Images that are brighter on the left or on the right."""
    rng = np.random.default_rng(len(name))
    sides = np.arange(count) % 2
    images = {}
    for number, side in enumerate(sides):
        image = np.full((24, 24), 100.0)
        image[:, 12 * side : 12 * side + 12] += 10 + 5 * (number // 2 % 8)
        noisy = np.clip(image + rng.normal(size=image.shape), 0, 255).astype(np.uint8)
        images[f"{name}{number}"] = Image.fromarray(noisy)
    columns = {
        "image_label": np.array(["left", "right"])[sides].tolist(),
        "offset": [5.0 * (1 + n // 2 % 8) for n in range(count)],
    }
    return of_images(images, id=name, columns=columns)


def asked(model: Brightness, **changes: object):
    data = Dataset(
        halves("shown", 16), None, extra_stimuli={"fit": halves("fitted", 12)}, id="lab"
    )
    values = {
        "decide": "probabilities",
        "fitting": "fit",
        "visual_degrees": 3.0,
        "microsaccades": {"tested": 4, "fitted": 2},
    } | changes
    return task(model, data, **get("paradigm", "task").bind(values))


def test_every_trial_is_decided_and_keeps_the_label_of_its_stimulus() -> None:
    model = Brightness([])
    found = asked(model)
    question = model.asked[0]
    assert len(question.stimuli) == 64 and question.fitting_stimuli is not None
    assert len(question.fitting_stimuli) == 24
    assert (
        found.source.sizes["presentation"] == found.target.sizes["presentation"] == 64
    )
    assert found.source["stimulus_id"].values[:16].tolist() == [
        f"shown{n}" for n in range(16)
    ]
    assert np.bincount(found.source["repetition"].values).tolist() == [16] * 4
    even = np.array(
        [int(id.removeprefix("shown")) % 2 for id in found.source["stimulus_id"].values]
    )
    assert (
        found.source["image_label"].values == np.array(["left", "right"])[even]
    ).all()
    assert (found.target["truth"].values == found.source["image_label"].values).all()
    assert nl.metric("accuracy")(found.source, found.target).value == 1.0


def test_thresholds_are_fitted_to_all_trials() -> None:
    found = asked(Brightness([]), conditions={"alone": {"stimuli": None}})
    assert found.source.sizes["presentation"] == 64 and set(
        found.source["condition"].values
    ) == {"alone"}
    with pytest.raises(DataError, match="no files to displace"):
        in_trials(StimulusSet("bare", halves("shown", 2).table, degrees=3.0), 2)


def test_a_model_that_knows_stimuli_by_their_ids_decides_once() -> None:
    stored = Brightness([], takes=STIMULI)
    assert not looks(stored) and looks(Brightness([]))
    found = asked(stored)
    assert (
        found.source.sizes["presentation"] == 16 and len(stored.asked[0].stimuli) == 16
    )
    assert set(found.source["repetition"].values) == {0}


def test_stimuli_that_cannot_be_displaced_are_refused() -> None:
    with pytest.raises(RequestError, match="leave out `trials` and `alternatives`"):
        asked(Brightness([]), trials=2)
    with pytest.raises(RequestError, match="how many degrees"):
        asked(Brightness([]), visual_degrees=None)
    odd = halves("shown", 2)
    odd = replace(
        odd, table=odd.table.assign(stimulus_id=["a", "a @ trial 1"]), degrees=3.0
    )
    with pytest.raises(DataError, match="which separates stimulus and trial"):
        in_trials(odd, 2)
