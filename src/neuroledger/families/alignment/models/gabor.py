"""A bank of Gabor filters: oriented contrast energy at several scales, the standard model of V1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.data.screen import shown
from neuroledger.data.stimuli import StimulusSet
from neuroledger.families.alignment.models.pixels import grey_pixels
from neuroledger.families.fields import AtLeastOne
from neuroledger.models.activations import Store, Trial
from neuroledger.models.model import READOUTS, LayeredModel, of_layers
from neuroledger.spec.registry import builder

VERSION = 1

Frequencies = Annotated[
    tuple[Annotated[float, Field(gt=0, le=0.5)], ...],
    Field(min_length=1, max_length=16),
]


def gabor_transfer(size: int, frequency: float, angle: float) -> Floats:
    """Transfer function (size, size) of a Gabor pair in quadrature, one octave wide at half height.

    A circular Gaussian around ``frequency`` (cycles per pixel) in direction ``angle`` (radians), with zero response to
    uniform images. It is one-sided: the filtered image has the even filter as real and the odd one as imaginary part.
    """
    y, x = np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size), indexing="ij")
    along = x * np.cos(angle) + y * np.sin(angle)
    across = -x * np.sin(angle) + y * np.cos(angle)
    spread = frequency / 3 / np.sqrt(2 * np.log(2))
    distance = (along - frequency) ** 2 + across**2
    gain: Floats = np.exp(-distance / (2 * spread**2))
    gain[0, 0] = 0.0
    return gain


def gabor_energy(image: Floats, filters: Floats, grid: int) -> Floats:
    """Contrast energy (filter, grid, grid) of an image (size, size): magnitude of the filtered image, mean per grid cell."""
    spectrum = np.fft.fft2(image - image.mean())
    amplitude = np.abs(np.fft.ifft2(spectrum[None] * filters))
    step = image.shape[0] // grid
    cells = amplitude.reshape(len(filters), grid, step, grid, step)
    return np.asarray(cells.mean(axis=(2, 4)))


@builder(
    "gabor",
    version=VERSION,
    takes={"images"},
    gives=partial(of_layers, decisions=READOUTS),
)
def gabor(
    *,
    id: str,
    size: Annotated[int, Field(ge=8, le=512)] = 32,
    grid: AtLeastOne = 4,
    orientations: Annotated[int, Field(ge=1, le=64)] = 8,
    frequencies: Frequencies = (0.0625, 0.125, 0.25),
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    visual_degrees: float | None = None,
    store: Store | None = None,
) -> LayeredModel:
    """Model with one layer, ``energy``: contrast energies (frequency · orientation, grid, grid) of the grey image.

    ``size`` is the side of the grey copy in pixels, ``frequencies`` are in cycles per pixel of that copy; ``grid``
    must divide ``size``.
    """
    if size % grid:
        raise ValueError(f"model {id!r}: grid {grid} does not divide size {size}")
    angles = np.pi * np.arange(orientations) / orientations
    filters = np.stack(
        [
            gabor_transfer(size, frequency, angle)
            for frequency in frequencies
            for angle in angles
        ]
    )

    def extract(
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Floats]:
        images = (grey_pixels(image, size) for image in shown(stimuli, stimulus_ids))
        return {
            "energy": np.stack([gabor_energy(image, filters, grid) for image in images])
        }

    bank = {
        "size": size,
        "grid": grid,
        "orientations": orientations,
        "frequencies": list(frequencies),
    }
    return LayeredModel(
        id=id,
        takes=frozenset({"images"}),
        decisions=READOUTS,
        extract=extract,
        layers=("energy",),
        regions=dict(regions or {}),
        visual_degrees=visual_degrees,
        identity={"builder": "gabor", "version": VERSION, **bank},
        store=store,
    )
