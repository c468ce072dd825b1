"""Tuning of the simulated neurons: declared functions of the image (V4) and of the digit (IT)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tools.generate.images import CANVAS, Digits, on_canvas

Floats = NDArray[np.float64]

NEURONS: Final = 30
ORIENTATIONS: Final = 8
SEMISATURATION: Final = 0.05
THRESHOLD: Final = 0.6
TUNING_WIDTH: Final = 0.05
SEED: Final = 20_260_102


def filters() -> Floats:
    """Eight 3 × 3 derivative-of-Gaussian filters, 45° apart, with zero mean and unit norm: (8, 3, 3)."""
    axis = np.arange(-1, 2)
    row, column = np.meshgrid(axis, axis, indexing="ij")
    angles = 2 * np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS
    bank = np.cos(angles)[:, None, None] * column + np.sin(angles)[:, None, None] * row
    bank = bank * np.exp(-(row**2 + column**2) / 2)
    bank = bank - bank.mean(axis=(1, 2), keepdims=True)
    return np.asarray(bank / np.linalg.norm(bank, axis=(1, 2), keepdims=True))


def normalised_energy(luminance: Floats, centres: Floats, width: float) -> Floats:
    """Half-squared filter responses, pooled at ``centres``², divided by their sum over orientations.

    With E the pooled max(0, filter · image)², the result is E / (0.05 + Σ E): (image, 8, centre, centre).
    """
    padded = np.pad(luminance, ((0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2))
    energy = np.maximum(np.einsum("nxyij,kij->nkxy", windows, filters()), 0) ** 2
    axis = np.arange(luminance.shape[-1])
    window = np.exp(-((axis - centres[:, None]) ** 2) / (2 * width**2))
    window /= window.sum(axis=1, keepdims=True)
    pooled = np.einsum("nkxy,ax,by->nkab", energy, window, window)
    return np.asarray(pooled / (SEMISATURATION + pooled.sum(axis=1, keepdims=True)))


def v4(source: Digits) -> Floats:
    """Corner detectors: thresholded geometric mean of two orientations, (stimulus, 30).

    The position is one of 5 × 5 on the canvas, the second orientation 45°, 90° or 135° from the first; the
    threshold is the 60 % quantile of the neuron's response over the stimuli.
    """
    canvas = on_canvas(source.luminance[source.shown], source.places)
    energy = normalised_energy(canvas, np.linspace(2, CANVAS - 3, 5), CANVAS / 10)
    energy = energy.reshape(len(canvas), ORIENTATIONS, -1)
    rng = np.random.default_rng(SEED)
    places = rng.permutation(np.tile(np.arange(energy.shape[2]), 2))[:NEURONS]
    first = rng.integers(ORIENTATIONS, size=NEURONS)
    second = (first + rng.integers(1, 4, size=NEURONS)) % ORIENTATIONS
    conjunction = np.sqrt(energy[:, first, places] * energy[:, second, places])
    return np.asarray(
        np.maximum(conjunction - np.quantile(conjunction, THRESHOLD, axis=0), 0)
    )


def it(source: Digits) -> Floats:
    """Object-tuned, position-invariant neurons: positive mixtures of object units, (stimulus, 30)."""
    mixture = np.random.default_rng(SEED + 1).gamma(0.5, 1.0, size=(10, NEURONS))
    return np.asarray(object_match(source) @ mixture)


def object_match(source: Digits) -> Floats:
    """Responses of ten object units, one for each digit's name: (stimulus, 10).

    Exemplar units, one for each held-out digit, respond with a Gaussian of width 0.05 (in squared distance) around
    their exemplar in the space of z-scored energies of the digit without its canvas; their responses sum to one. An
    object unit is the sum over the exemplars of one object.
    """
    energy = normalised_energy(source.luminance, np.array([1.0, 3.5, 6.0]), 1.2)
    energy = energy.reshape(len(source.labels), -1)
    stored = energy[source.held_out]
    spread = stored.std(axis=0) + 1e-9
    space = (energy - stored.mean(axis=0)) / spread / np.sqrt(energy.shape[1])
    shown, exemplars = space[source.shown], space[source.held_out]
    squared = (
        (shown**2).sum(1)[:, None] + (exemplars**2).sum(1) - 2 * shown @ exemplars.T
    )
    match = np.exp(-(squared - squared.min(axis=1, keepdims=True)) / (2 * TUNING_WIDTH))
    match /= match.sum(axis=1, keepdims=True)
    return np.asarray(
        match @ (source.labels[source.held_out][:, None] == np.arange(10))
    )


def standardised(signal: Floats) -> Floats:
    """The signal of each neuron, standardised to mean 0 and variance 1 over the stimuli, rounded to six decimals."""
    return np.asarray(np.round((signal - signal.mean(axis=0)) / signal.std(axis=0), 6))
