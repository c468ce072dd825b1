"""Stimulus sets of random images in memory, for tests."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from PIL import Image

from neuroledger.data.stimuli import StimulusSet


def png(image: Image.Image) -> bytes:
    """An image as the bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def drawn(
    count: int,
    *,
    size: tuple[int, int] = (16, 16),
    seed: int = 0,
    degrees: float | None = None,
    id: str = "drawn",
    columns: Mapping[str, Sequence[object]] | None = None,
) -> StimulusSet:
    """``count`` colour images of random pixels, (width, height) as ``size``."""
    rng = np.random.default_rng(seed)
    ids = [f"s{number:03d}" for number in range(count)]
    pixels = [rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8) for _ in ids]
    return of_images(
        {name: Image.fromarray(array) for name, array in zip(ids, pixels, strict=True)},
        id,
        degrees,
        columns,
    )


def of_images(
    images: Mapping[str, Image.Image],
    id: str = "drawn",
    degrees: float | None = None,
    columns: Mapping[str, Sequence[object]] | None = None,
) -> StimulusSet:
    """A stimulus set of the images by id, as PNG files."""
    table = pd.DataFrame(
        {
            "stimulus_id": list(images),
            "filename": [f"{name}.png" for name in images],
            **(columns or {}),
        }
    )
    contents = {f"{name}.png": png(image) for name, image in images.items()}
    return StimulusSet(id, table, degrees=degrees, contents=contents)
