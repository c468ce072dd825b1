"""Each field of Preprocessing has the declared effect."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from neuroledger.data.screen import place, shown, shown_as
from neuroledger.errors import DataError, ModelError
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_layers import Inputs
from tests.models.drawn_stimuli import drawn


def image(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )
    return Image.fromarray(values)


def test_channels_come_first_and_are_normalised() -> None:
    given = image(4, 3)
    made = Preprocessing(resize=None, mean=(0.5, 0.25, 0.0), std=(1.0, 2.0, 4.0))(
        [given], model="m"
    )
    raw = np.asarray(given).transpose(2, 0, 1) / 255
    assert made.shape == (1, 3, 3, 4)
    assert made.dtype == np.float32
    assert np.allclose(
        made[0],
        (raw - np.array([0.5, 0.25, 0])[:, None, None])
        / np.array([1, 2, 4])[:, None, None],
    )


def test_the_shorter_side_is_resized_and_the_centre_cropped() -> None:
    given = image(60, 30)
    made = Preprocessing(resize=20, fit="shorter", crop=10, mean=(0.0,), std=(1.0,))(
        [given], model="m"
    )
    expected = np.asarray(given.resize((40, 20), Image.Resampling.BILINEAR))[
        5:15, 15:25
    ]
    assert np.allclose(made[0].transpose(1, 2, 0), expected / 255)


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "bicubic", "lanczos"])
def test_images_are_stretched_to_a_square_by_the_named_filter(name: str) -> None:
    given = image(30, 20)
    made = Preprocessing.model_validate(
        {"resize": 8, "interpolation": name, "mean": (0,), "std": (1,)}
    )([given], model="m")
    expected = np.asarray(given.resize((8, 8), Image.Resampling[name.upper()]))
    assert np.allclose(made[0].transpose(1, 2, 0), expected / 255)


def test_defaults_are_those_of_imagenet_networks() -> None:
    plain = Preprocessing()
    assert plain.model_dump() == {
        "resize": 224, "fit": "stretch", "interpolation": "bilinear", "crop": None, "colour": "rgb",
        "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225),
    }  # fmt: skip


def test_the_longer_side_is_rounded_down_and_an_odd_margin_to_the_nearest_pixel() -> (
    None
):
    for size, expected in (((31, 20), (15, 10)), ((20, 31), (10, 15))):
        found = Preprocessing(resize=10, fit="shorter")._sized(image(*size))
        assert found.size == expected
    cropped = Preprocessing(resize=None, crop=4)._sized(image(7, 9))
    assert np.array_equal(np.asarray(cropped), np.asarray(image(7, 9))[2:6, 2:6])


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, " …")])
def test_images_of_several_sizes_are_reported_by_the_first_four(
    count: int, more: str
) -> None:
    images = [image(4 + number, 3) for number in range(count)]
    sizes = ", ".join(f"{width} x 3" for width in range(4, 8))
    with pytest.raises(
        ModelError,
        match=rf"images of {count} sizes \({sizes}{more} pixels\); add `resize`",
    ):
        Preprocessing(resize=None)(images, model="m")


def test_grey_is_one_channel() -> None:
    made = Preprocessing(resize=4, colour="grey", mean=(0.0,), std=(1.0,))(
        [image(4, 4)], model="m"
    )
    assert made.shape == (1, 1, 4, 4)
    assert np.allclose(made[0, 0], np.asarray(image(4, 4).convert("L")) / 255)


def test_numbers_that_do_not_fit_the_channels_are_refused() -> None:
    with pytest.raises(
        ModelError, match="mean and std need 1 or 1 numbers for grey images"
    ):
        Preprocessing(colour="grey")([image(4, 4)], model="m")


@pytest.mark.parametrize(
    "wrong",
    [
        {"resise": 4},
        {"resize": 0},
        {"resize": 4097},
        {"crop": 0},
        {"std": [0.0]},
        {"interpolation": "cubic"},
    ],
)
def test_wrong_fields_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Preprocessing.model_validate(wrong)


def test_a_batch_prepared_in_threads_equals_one_prepared_sequentially() -> None:
    pytest.importorskip("torch")
    stimuli = drawn(50, size=(40, 30), degrees=4.0)
    steps = Preprocessing(resize=12)
    for shown_set in (stimuli, place(stimuli, 8.0), place(stimuli, 2.0)):
        expected = steps(shown(shown_set, shown_set.ids), model="m")
        inputs = Inputs(steps, "m")
        assert np.array_equal(inputs(shown_set, shown_set.ids).numpy(), expected)
        inputs.ahead(shown_set, shown_set.ids[20:45])
        inputs.ahead(shown_set, shown_set.ids[:20])
        assert np.array_equal(
            inputs(shown_set, shown_set.ids[20:45]).numpy(), expected[20:45]
        )
        assert np.array_equal(
            inputs(shown_set, shown_set.ids[:20]).numpy(), expected[:20]
        )


def test_a_batch_prepared_for_other_stimuli_with_the_same_ids_is_not_used() -> None:
    pytest.importorskip("torch")
    one, other = (drawn(6, size=(8, 8), seed=seed) for seed in (0, 1))
    inputs = Inputs(Preprocessing(resize=4), "m")
    inputs.ahead(one, one.ids)
    expected = Preprocessing(resize=4)(shown(other, other.ids), model="m")
    assert np.array_equal(inputs(other, other.ids).numpy(), expected)


def test_the_first_image_that_cannot_be_shown_is_named() -> None:
    pytest.importorskip("torch")
    stimuli = drawn(40, size=(8, 8))
    contents = dict(stimuli.contents or {})
    for name in ("s007.png", "s031.png"):
        contents[name] = contents[name][:60]
    broken = replace(stimuli, contents=contents)
    inputs = Inputs(Preprocessing(resize=4), "m")
    inputs.ahead(broken, broken.ids)
    for _ in range(2):
        with pytest.raises(DataError, match="'s007' is truncated"):
            inputs(broken, broken.ids)


def test_a_user_function_runs_in_the_calling_thread() -> None:
    pytest.importorskip("torch")
    seen = set()

    def steps(image: Image.Image) -> np.ndarray:
        seen.add(threading.get_ident())
        return np.asarray(image, dtype=np.float32)

    stimuli = drawn(9, size=(4, 4))
    inputs = Inputs(steps, "m")
    inputs.ahead(stimuli, stimuli.ids)
    assert inputs(stimuli, stimuli.ids).shape == (9, 4, 4, 3)
    assert seen == {threading.get_ident()}


def test_the_number_of_images_decoded_ahead_is_limited() -> None:
    made = 0

    def make(image: Image.Image) -> int:
        nonlocal made
        made += 1
        return image.size[0]

    taken = shown_as(drawn(60, size=(4, 4)), drawn(60, size=(4, 4)).ids, make, ahead=5)
    assert next(taken) == 4
    del taken
    assert made <= 6
