"""Pixels, Gabor filters and noise: control models with known responses."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from neuroledger.data.stimuli import StimulusSet
from neuroledger.families.alignment.models.gabor import gabor
from neuroledger.families.alignment.models.noise import noise
from neuroledger.families.alignment.models.pixels import pixels
from tests.models.drawn_stimuli import drawn, of_images


def grating(size: int, cycles: float, angle: float, phase: float = 0.0) -> Image.Image:
    y, x = np.mgrid[:size, :size] / size
    values = 127.5 + 127 * np.cos(
        2 * np.pi * cycles * (x * np.cos(angle) + y * np.sin(angle)) + phase
    )
    return Image.fromarray(np.rint(values).astype(np.uint8))


def test_pixels_are_box_means_of_luminance() -> None:
    colours = np.zeros((8, 8, 3), dtype=np.uint8)
    colours[:4, :4] = (255, 0, 0)
    colours[4:, 4:] = (10, 20, 30)
    response = pixels(id="p", size=2).record(
        of_images({"a": Image.fromarray(colours)}), "V1"
    )
    assert np.allclose(response.values[0], [76 / 255, 0, 0, 18 / 255])


def test_pixels_of_the_v4_images_are_the_reference(mirror: Path) -> None:
    folder = mirror / "cowley2023_v4_210325"
    names = sorted(
        name
        for name in zipfile.ZipFile(folder / "images_210325.zip").namelist()
        if name.endswith(".jpg")
    )
    table = pd.DataFrame(
        {"stimulus_id": [Path(name).stem for name in names], "filename": names}
    )
    stimuli = StimulusSet("cowley", table, folder / "images_210325.zip")
    expected = np.load(folder / "model_outputs" / "pixels16_features.npy")
    assert np.array_equal(pixels(id="p").record(stimuli, "V4").values, expected)


def test_a_gabor_prefers_its_orientation_and_frequency() -> None:
    angles = np.pi * np.arange(8) / 8
    stimuli = of_images(
        {f"a{n}": grating(64, 8, angle) for n, angle in enumerate(angles)}
    )
    response = gabor(id="g", grid=1).record(stimuli, "V1")
    best = response.values.argmax(axis=1)
    assert list(best) == [2 * 8 + n for n in range(8)], (
        "8 cycles over 32 pixels are 0.25, the third frequency"
    )


def test_a_gabor_ignores_phase_and_uniform_light() -> None:
    stimuli = of_images(
        {
            "sine": grating(64, 8, 0.0),
            "cosine": grating(64, 8, 0.0, np.pi / 2),
            "dark": Image.new("L", (64, 64), 20),
            "bright": Image.new("L", (64, 64), 220),
        }
    )
    values = gabor(id="g", grid=1).record(stimuli, "V1").values
    assert np.allclose(values[0], values[1], rtol=0.02, atol=1e-3)
    assert np.abs(values[2:]).max() < 1e-12


def test_a_gabor_responds_to_position() -> None:
    canvas = np.full((64, 64), 128, dtype=np.uint8)
    canvas[:16, 48:] = np.asarray(grating(16, 2, 0.0))
    response = gabor(id="g", grid=4).record(
        of_images({"a": Image.fromarray(canvas)}), "V1"
    )
    place = int(response.values[0].argmax())
    assert (
        response["channel_x"].values[place],
        response["channel_y"].values[place],
    ) == (0, 3)


def test_the_grid_divides_the_size() -> None:
    with pytest.raises(ValueError, match="grid 5 does not divide size 32"):
        gabor(id="g", grid=5)


def test_noise_depends_only_on_the_stimulus_id() -> None:
    model = noise(id="n", features=500)
    first, other = drawn(4), drawn(4, seed=1)
    values = model.record(first, "IT").values
    assert np.array_equal(values, model.record(other, "IT").values)
    assert np.array_equal(
        values[2:], model.record(first.select(["s002", "s003"]), "IT").values
    )
    assert not np.array_equal(
        values, noise(id="n", features=500, seed=1).record(first, "IT").values
    )
    assert np.abs(np.corrcoef(values) - np.eye(4)).max() < 0.2
    expected = np.random.default_rng(
        [0, int.from_bytes(hashlib.sha256(b"s001").digest())]
    ).standard_normal(500)
    assert np.array_equal(values[1], expected)
