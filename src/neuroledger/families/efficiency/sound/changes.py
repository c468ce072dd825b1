"""Spikes where a signal has moved by a step: +1 upwards, -1 downwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["changes"]


def changes(signal: npt.NDArray[Any], step: float) -> npt.NDArray[np.float32]:
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
