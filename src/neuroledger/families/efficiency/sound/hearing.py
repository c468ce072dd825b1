"""Input representations of sounds: band energies evenly spaced on the mel scale, their spikes, or the waveform."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Annotated, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)

from neuroledger.data.arrays import Array, Reals, Singles, floats
from neuroledger.errors import DataError, RequestError

__all__ = [
    "Hearing",
    "band_energies",
    "band_filters",
    "changes",
    "represent",
    "resample_sound",
]


SMALLEST = 1e-6  # added to energies, so that silence has a logarithm


@lru_cache(maxsize=16)
def band_filters(
    rate: float, points: int, bands: int, low: float, high: float
) -> Singles:
    """Return triangular filters (band, points // 2 + 1) over the frequencies of a transform of ``points`` samples.

    Corners are evenly spaced on the scale ``m = 2595 log10(1 + f / 700)`` between ``low`` and ``high`` Hz. Each triangle
    rises from the previous corner to its own, where it is 1, and falls to the next [oshaughnessy1987].

    Raises
    ------
    RequestError
        ``high`` is above half the rate or below ``low``, or a band contains no frequency of the transform.
    """
    if not 0 <= low < high <= rate / 2:
        raise RequestError(
            f"bands from {low:g} to {high:g} Hz are not within 0 and {rate / 2:g} Hz, half of the samples per second"
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
            "use fewer bands or a longer window"
        )
    filters.flags.writeable = False
    return filters


def frames_of(samples: int, hop: int) -> int:
    """Return the number of frames of a sound: one centred on every ``hop``-th sample, including the first."""
    return 1 + samples // hop


def band_energies(
    sound: Reals,
    rate: float,
    *,
    points: int,
    hop: int,
    bands: int,
    low: float,
    high: float,
) -> Singles:
    """Return natural logarithms of energies (…, band, frame) plus 1e-6, of sounds (…, time).

    A frame has ``points`` samples around every ``hop``-th sample, under a Hann window; sounds are mirrored at their ends.
    The energy of a frequency is the squared magnitude of the frame's discrete Fourier transform.
    """
    filters = band_filters(float(rate), points, bands, float(low), float(high))
    covered = np.flatnonzero(filters.any(axis=0))
    filters = filters[:, : covered[-1] + 1].T.copy()
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(points) / points)
    flat = sound.reshape(-1, sound.shape[-1])
    powers = np.empty((len(flat), bands, frames_of(sound.shape[-1], hop)))
    for row, clip in enumerate(
        flat
    ):  # one at a time: overlapping frames need many times the memory of a sound
        padded = np.pad(
            floats(clip),
            (points // 2, (points + 1) // 2),
            mode="reflect",
        )
        frames = np.lib.stride_tricks.sliding_window_view(padded, points)[::hop]
        spectrum = np.fft.rfft(frames * window)[:, : len(filters)]
        power = spectrum.real**2 + spectrum.imag**2
        powers[row] = (power @ filters).T[:, : powers.shape[2]]
    energies: Singles = np.log(
        powers.reshape(*sound.shape[:-1], *powers.shape[1:]) + SMALLEST
    )
    return energies


def changes(signal: Array, step: float) -> Singles:
    """Return spikes -1, 0, 1 (…, time - 1) for every value of a signal (…, time) after the first.

    A level starts at the first value, rounded. A value more than ``step`` above the level gives 1 and raises it by
    ``step``; a value more than ``step`` below gives -1 and lowers it. A frame changes the level at most once.
    """
    level = np.rint(floats(signal[..., 0]))
    spikes = np.zeros((*signal.shape[:-1], signal.shape[-1] - 1), dtype=np.float32)
    for time in range(1, signal.shape[-1]):
        difference = signal[..., time] - level
        event = (difference > step).astype(np.float64) - (difference < -step)
        spikes[..., time - 1] = event
        level += step * event
    return spikes


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Bands(_Options):
    """``bands`` from ``low`` to ``high`` Hz, over ``window`` samples, every ``hop`` ms."""

    bands: Annotated[int, Field(gt=0, le=512)] = 20
    low: NonNegativeFloat = 20.0
    high: PositiveFloat = 4000.0
    window: Annotated[int, Field(ge=16, le=16384)] = 512
    hop: PositiveFloat = 5.0


class BandEnergies(_Bands):
    """Natural logarithms of band energies; see :func:`neuroledger.families.efficiency.sound.hearing.band_energies`."""

    name: Literal["bands"]


class BandSpikes(_Bands):
    """-1, 0 and 1 where the logarithm of a band energy has changed by ``step``; one frame fewer than band energies."""

    name: Literal["spikes"]
    step: PositiveFloat = 1.0


class Waveform(_Options):
    """The sound itself, at ``rate`` samples per second."""

    name: Literal["waveform"]
    rate: PositiveInt


Hearing = Annotated[BandEnergies | BandSpikes | Waveform, Field(discriminator="name")]


def represent(
    hearing: BandEnergies | BandSpikes | Waveform, sound: Array, rate: float
) -> Singles:
    """Return a model's input for sounds (presentation, 1, time_bin) with ``rate`` samples per second.

    Returns
    -------
    numpy.ndarray
        (presentation, band, frame), or (presentation, 1, time_bin) for a waveform.

    Raises
    ------
    DataError
        The sounds have several channels.
    RequestError
        The hop is not a whole number of samples, or the bands do not fit the rate.
    """
    if sound.ndim != 3 or sound.shape[1] != 1:
        raise DataError(
            f"sounds must be (presentation, 1, time_bin), with one channel each, not {sound.shape}"
        )
    if isinstance(hearing, Waveform):
        return np.asarray(resample_sound(sound, rate, hearing.rate), dtype=np.float32)
    hop = hearing.hop * rate / 1000
    if round(hop) < 1 or abs(hop - round(hop)) > 1e-6:
        raise RequestError(
            f"a hop of {hearing.hop:g} ms is {hop:g} samples at {rate:g} per second: it must be a whole number"
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


def resample_sound(sound: Array, rate: float, to: float) -> Array:
    """Return sounds (…, time) with ``to`` samples per second instead of ``rate``, by a polyphase low-pass filter.

    The result has ``ceil(time · to / rate)`` samples. Both rates must be whole numbers.
    """
    if round(rate) != rate or round(to) != to:
        raise RequestError(
            f"{rate:g} samples per second cannot become {to:g}: both must be whole numbers"
        )
    if rate == to:
        return sound
    from scipy.signal import resample_poly

    shared = gcd(round(rate), round(to))
    return np.asarray(
        resample_poly(sound, round(to) // shared, round(rate) // shared, axis=-1)
    )
