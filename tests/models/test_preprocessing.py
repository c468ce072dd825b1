"""Preprocessing does what its fields say."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from neuroledger.errors import ModelError
from neuroledger.models.preprocessing import Preprocessing


def image(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def test_channels_come_first_and_are_normalised() -> None:
    given = image(4, 3)
    made = Preprocessing(resize=None, mean=(0.5, 0.25, 0.0), std=(1.0, 2.0, 4.0))([given], model="m")
    raw = np.asarray(given).transpose(2, 0, 1) / 255
    assert made.shape == (1, 3, 3, 4)
    assert made.dtype == np.float32
    assert np.allclose(
        made[0], (raw - np.array([0.5, 0.25, 0])[:, None, None]) / np.array([1, 2, 4])[:, None, None]
    )


def test_the_shorter_side_is_resized_and_the_centre_cropped() -> None:
    given = image(60, 30)
    made = Preprocessing(resize=20, fit="shorter", crop=10, mean=(0.0,), std=(1.0,))([given], model="m")
    expected = np.asarray(given.resize((40, 20), Image.Resampling.BILINEAR))[5:15, 15:25]
    assert np.allclose(made[0].transpose(1, 2, 0), expected / 255)


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "bicubic", "lanczos"])
def test_images_are_stretched_to_a_square_by_the_named_filter(name: str) -> None:
    given = image(30, 20)
    made = Preprocessing.model_validate({"resize": 8, "interpolation": name, "mean": (0,), "std": (1,)})(
        [given], model="m"
    )
    expected = np.asarray(given.resize((8, 8), Image.Resampling[name.upper()]))
    assert np.allclose(made[0].transpose(1, 2, 0), expected / 255)


def test_grey_is_one_channel() -> None:
    made = Preprocessing(resize=4, colour="grey", mean=(0.0,), std=(1.0,))([image(4, 4)], model="m")
    assert made.shape == (1, 1, 4, 4)
    assert np.allclose(made[0, 0], np.asarray(image(4, 4).convert("L")) / 255)


def test_numbers_that_do_not_fit_the_channels_are_refused() -> None:
    with pytest.raises(ModelError, match="mean and std need 1 or 1 numbers for grey images"):
        Preprocessing(colour="grey")([image(4, 4)], model="m")


@pytest.mark.parametrize("wrong", [{"resise": 4}, {"resize": 0}, {"std": [0.0]}, {"interpolation": "cubic"}])
def test_wrong_fields_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Preprocessing.model_validate(wrong)
