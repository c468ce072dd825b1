"""Handwritten digits (real data) at varying positions on a dark screen, as a stimulus set of PNG files."""

from __future__ import annotations

import hashlib
import io
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

DIGIT: Final = 8
CANVAS: Final = 16
SCALE: Final = 4
PER_OBJECT: Final = 50
TEST_PER_OBJECT: Final = 10
SEED: Final = 20_260_101
NAMES: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)


class Digits(NamedTuple):
    """Scikit-learn's 1,797 digits as luminance from 0 to 1, with a fixed division.

    ``shown`` are the 500 digits (50 of each object) of the stimulus set, ``held_out`` the other 1,297, which are
    used for exemplars and for training networks.
    """

    luminance: Floats
    labels: Integers
    shown: Integers
    held_out: Integers
    places: Integers


def digits() -> Digits:
    """The digits, their division, and the position (row, column) of each shown digit."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    labels = bunch.target.astype(np.intp)
    rng = np.random.default_rng(SEED)
    chosen = [
        rng.permutation(np.flatnonzero(labels == label))[:PER_OBJECT]
        for label in range(10)
    ]
    shown = np.sort(np.concatenate(chosen))
    places = rng.integers(0, CANVAS - DIGIT + 1, size=(len(shown), 2))
    held_out = np.setdiff1d(np.arange(len(labels)), shown)
    return Digits(bunch.images / 16.0, labels, shown, held_out, places)


def on_canvas(luminance: Floats, places: Integers) -> Floats:
    """Digits (digit, 8, 8) at their positions on dark canvases (digit, 16, 16)."""
    canvas = np.zeros((len(luminance), CANVAS, CANVAS))
    for image, digit, (row, column) in zip(canvas, luminance, places, strict=True):
        image[row : row + DIGIT, column : column + DIGIT] = digit
    return canvas


def png(luminance: Floats) -> bytes:
    """One canvas as an 8-bit grey PNG, with 4 × 4 pixels per value; luminance 1 is the grey value 240."""
    from PIL import Image

    values = (
        np.rint(luminance * 240)
        .astype(np.uint8)
        .repeat(SCALE, axis=0)
        .repeat(SCALE, axis=1)
    )
    buffer = io.BytesIO()
    Image.fromarray(values, mode="L").save(buffer, format="PNG", compress_level=9)
    return buffer.getvalue()


def stimulus_set(source: Digits) -> tuple[pd.DataFrame, dict[str, bytes]]:
    """The table of the 500 stimuli, and their files by name."""
    rng = np.random.default_rng(SEED + 1)
    canvases = on_canvas(source.luminance[source.shown], source.places)
    labels = source.labels[source.shown]
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[rng.permutation(np.flatnonzero(labels == label))[:TEST_PER_OBJECT]] = True
    files = {
        f"digit_{number:04d}.png": png(canvas)
        for number, canvas in zip(source.shown, canvases, strict=True)
    }
    table = pd.DataFrame(
        {
            "stimulus_id": [name.removesuffix(".png") for name in files],
            "filename": list(files),
            "object_name": [NAMES[label] for label in labels],
            "label": labels,
            "split": np.where(test, "test", "train"),
            "column_px": source.places[:, 1] * SCALE,
            "row_px": source.places[:, 0] * SCALE,
            "sha256": [
                hashlib.sha256(content).hexdigest() for content in files.values()
            ],
        }
    )
    return table, files
