"""Energies of a sound in bands that are even on the mel scale, frame by frame."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array, Singles
from neuroledger.errors import DataError, RequestError

__all__ = ["Hearing", "band_energies", "band_filters", "changes", "heard", "resampled"]


SMALLEST = 1e-6  # added to energies, so that silence has a logarithm


@lru_cache(maxsize=16)
def band_filters(rate: float, points: int, bands: int, low: float, high: float) -> Singles:
    """Triangles (band, points // 2 + 1) over the frequencies of a transform of ``points`` samples.

    Corners are even on the scale ``m = 2595 log10(1 + f / 700)`` between ``low`` and ``high`` Hz; each triangle rises
    from the corner before to its own, where it is 1, and falls to the next [oshaughnessy1987].

    Raises
    ------
    RequestError
        ``high`` is above half the rate or below ``low``, or a band contains no frequency of the transform.
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
            f"band {empty[0]} of {bands} contains no frequency of a transform of {points} samples: "
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
) -> Singles:
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
    energies: Singles = np.log(found.reshape(*sound.shape[:-1], *found.shape[1:]) + SMALLEST)
    return energies


def changes(signal: Array, step: float) -> Singles:
    """Spikes -1, 0, 1 (…, time - 1) for every value of a signal (…, time) after the first.

    A level starts at the first value, rounded. A value more than ``step`` above it gives 1 and raises the level by
    ``step``; one more than ``step`` below it gives -1 and lowers it. A frame moves the level at most once.
    """
    level = np.rint(np.asarray(signal[..., 0], dtype=np.float64))
    spikes = np.zeros((*signal.shape[:-1], signal.shape[-1] - 1), dtype=np.float32)
    for time in range(1, signal.shape[-1]):
        away = signal[..., time] - level
        event = (away > step).astype(np.float64) - (away < -step)
        spikes[..., time - 1] = event
        level += step * event
    return spikes


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Bands(_Options):
    """``bands`` from ``low`` to ``high`` Hz, of ``window`` samples, every ``hop`` ms."""

    bands: Annotated[int, Field(gt=0, le=512)] = 20
    low: Annotated[float, Field(ge=0)] = 20.0
    high: Annotated[float, Field(gt=0)] = 4000.0
    window: Annotated[int, Field(ge=16, le=16384)] = 512
    hop: Annotated[float, Field(gt=0)] = 5.0


class BandEnergies(_Bands):
    """Natural logarithms of band energies; see :func:`neuroledger.families.efficiency.sound.hearing.band_energies`."""

    name: Literal["bands"]


class BandSpikes(_Bands):
    """-1, 0 and 1 where a band energy's logarithm has moved by ``step``; one frame fewer than energies have."""

    name: Literal["spikes"]
    step: Annotated[float, Field(gt=0)] = 1.0


class Waveform(_Options):
    """The sound itself, at ``rate`` samples per second."""

    name: Literal["waveform"]
    rate: Annotated[int, Field(gt=0)]


Hearing = Annotated[BandEnergies | BandSpikes | Waveform, Field(discriminator="name")]


def heard(hearing: BandEnergies | BandSpikes | Waveform, sound: Array, rate: float) -> Singles:
    """What a model is shown of sounds (presentation, 1, time_bin) of ``rate`` samples per second.

    Returns
    -------
    numpy.ndarray
        (presentation, band, frame), or (presentation, 1, time_bin) for a waveform.

    Raises
    ------
    DataError
        The sounds have several channels, or none of their frames has a length of a whole number of samples.
    RequestError
        The bands do not fit the rate.
    """
    if sound.ndim != 3 or sound.shape[1] != 1:
        raise DataError(f"sounds are (presentation, 1, time_bin), one channel each, not {sound.shape}")
    if isinstance(hearing, Waveform):
        return np.asarray(resampled(sound, rate, hearing.rate), dtype=np.float32)
    hop = hearing.hop * rate / 1000
    if round(hop) < 1 or abs(hop - round(hop)) > 1e-6:
        raise RequestError(
            f"a hop of {hearing.hop:g} ms is {hop:g} samples at {rate:g} per second: it must be whole"
        )
    energies = band_energies(
        sound[:, 0],
        rate,
        points=hearing.window,
        hop=round(hop),
        bands=hearing.bands,
        low=hearing.low,
        high=hearing.high,
    )
    if isinstance(hearing, BandSpikes):
        return changes(energies, hearing.step)
    return np.asarray(energies, dtype=np.float32)


def resampled(sound: Array, rate: float, to: float) -> Array:
    """Sounds (…, time) at ``to`` samples per second instead of ``rate``: a polyphase low-pass filter, both whole numbers.

    The result has ``ceil(time · to / rate)`` samples.
    """
    if round(rate) != rate or round(to) != to:
        raise RequestError(f"{rate:g} samples per second cannot become {to:g}: both must be whole numbers")
    if rate == to:
        return sound
    from scipy.signal import resample_poly

    shared = gcd(round(rate), round(to))
    return np.asarray(resample_poly(sound, round(to) // shared, round(rate) // shared, axis=-1))
