"""Simulated signals: noise, and in the windows of each label a pattern of its own over the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Planted", "signals"]

Floats = NDArray[np.float64]
NOISE = 10.0
"""Standard deviation of the noise of each channel in µV."""
EFFECT = 40.0
"""Length of a planted pattern over the channels in µV."""


class Planted(NamedTuple):
    """A part of a recording with a planted effect.

    Attributes
    ----------
    begin, end
        In seconds from the start of the recording.
    pattern
        Number of the pattern, one for each label.
    strength
        Factor of its amplitude, from 0 to 1.
    """

    begin: float
    end: float
    pattern: int
    strength: float = 1.0


def signals(
    channels: int,
    rate: int,
    seconds: float,
    planted: Sequence[Planted],
    seed: Sequence[int],
) -> Floats:
    """A recording, (channel, sample) in µV: noise mixed as by the head of one person, with the planted patterns.

    A pattern is an oscillation with a fixed phase from the begin of its part, so that it changes the average of windows as
    well as their covariance.

    Parameters
    ----------
    seed
        The person and the recording; patterns are the same for all.
    """
    rng = np.random.default_rng(seed)
    person = np.random.default_rng(seed[:1])
    mixing = np.eye(channels) + 0.1 * person.standard_normal((channels, channels))
    values = mixing @ rng.normal(0.0, NOISE, (channels, round(seconds * rate)))
    for part in planted:
        first, last = round(part.begin * rate), round(part.end * rate)
        length = min(last, values.shape[1]) - first
        wave = np.sin(2 * np.pi * _frequency(part.pattern) * np.arange(length) / rate)
        topography = _topography(part.pattern, channels)
        values[:, first : first + length] += (
            EFFECT * part.strength * np.outer(topography, wave)
        )
    return values


def _frequency(pattern: int) -> float:
    """In Hz, between the filters of all sets and below the mains."""
    return 5.0 + 2.0 * (pattern % 6)


def _topography(pattern: int, channels: int) -> Floats:
    """A unit vector over the channels; the first ones are orthogonal."""
    rng = np.random.default_rng([channels, 2026])
    basis = np.linalg.qr(rng.standard_normal((channels, channels)))[0]
    if pattern < channels:
        return np.asarray(basis[:, pattern])
    free = np.random.default_rng([channels, pattern]).standard_normal(channels)
    return np.asarray(free / np.linalg.norm(free))
