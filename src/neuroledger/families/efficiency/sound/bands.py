"""Energies of a sound in bands that are even on the mel scale, frame by frame."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from neuroledger.errors import RequestError

__all__ = ["band_energies", "band_filters", "frames_of"]

Floats = npt.NDArray[np.float64]

SMALLEST = 1e-6  # added to energies, so that silence has a logarithm


@lru_cache(maxsize=16)
def band_filters(rate: float, points: int, bands: int, low: float, high: float) -> Floats:
    """Triangles (band, points // 2 + 1) over the frequencies of a transform of ``points`` samples.

    Corners are even on the scale ``m = 2595 log10(1 + f / 700)`` between ``low`` and ``high`` Hz; each triangle rises
    from the corner before to its own, where it is 1, and falls to the next [oshaughnessy1987].

    Raises
    ------
    RequestError
        ``high`` is above half the rate or below ``low``, or a band lies between two frequencies of the transform.
    """
    if not 0 <= low < high <= rate / 2:
        raise RequestError(
            f"bands from {low:g} to {high:g} Hz: they lie between 0 and {rate / 2:g} Hz, half of the samples per second"
        )
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    corners = 700 * (10 ** (np.linspace(ends[0], ends[1], bands + 2) / 2595) - 1)
    frequencies = np.linspace(0, rate / 2, points // 2 + 1)
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    empty = np.flatnonzero(filters.sum(axis=1) == 0)
    if len(empty):
        raise RequestError(
            f"band {empty[0]} of {bands} lies between two frequencies of a transform of {points} samples: "
            "take fewer bands or a longer window"
        )
    filters.flags.writeable = False
    return filters


def frames_of(samples: int, hop: int) -> int:
    """Frames of a sound: one centred on every ``hop``-th sample, the first included."""
    return 1 + samples // hop


def band_energies(
    sound: npt.NDArray[np.floating],
    rate: float,
    *,
    points: int,
    hop: int,
    bands: int,
    low: float,
    high: float,
) -> Floats:
    """Natural logarithms of energies (…, band, frame) of sounds (…, time), plus 1e-6.

    A frame is ``points`` samples around every ``hop``-th one, under a Hann window; beyond its ends a sound is mirrored.
    The energy of a frequency is the squared magnitude of the frame's discrete Fourier transform.
    """
    filters = band_filters(float(rate), points, bands, float(low), float(high))
    heard = np.flatnonzero(filters.any(axis=0))
    filters = filters[:, : heard[-1] + 1].T.copy()
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(points) / points)
    flat = sound.reshape(-1, sound.shape[-1])
    found = np.empty((len(flat), bands, frames_of(sound.shape[-1], hop)))
    for row, one in enumerate(flat):  # one by one, since frames overlap and take many times a sound's memory
        padded = np.pad(np.asarray(one, dtype=np.float64), (points // 2, (points + 1) // 2), mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, points)[::hop]
        spectrum = np.fft.rfft(frames * window)[:, : len(filters)]
        power = spectrum.real**2 + spectrum.imag**2
        found[row] = (power @ filters).T[:, : found.shape[2]]
    energies: Floats = np.log(found.reshape(*sound.shape[:-1], *found.shape[1:]) + SMALLEST)
    return energies
