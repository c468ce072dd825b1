"""How many samples in a row two windows must share before chance cannot be the reason, and a number for each such run."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.families.signals.signals import blocks

__all__ = ["run_length", "runs"]

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.float64]

LOOKED_AT: Final = 1 << 20
"""Steps from a sample to the next that are looked at."""
BY_CHANCE: Final = 1e-6
"""Chance that any two runs of all windows agree."""
FINE: Final = 1e6
"""Parts of a channel's standard deviation below which steps are the same."""


def run_length(assembly: xr.DataArray) -> int | None:
    r"""Samples in a row that tell one piece of signal from all others; None where the windows are too short for that.

    One sample of three or more channels of fractions does. Fewer channels, and whole numbers, repeat by chance: with the
    share :math:`q` of steps (from a sample to the next) that are equal, and :math:`n` samples in all, a run of
    :math:`\ln(n^2/10^{-6}) / \ln(1/q)` samples does not, if steps were independent. Twice as many are asked for.
    """
    windows, channels, samples = (assembly.sizes[dim] for dim in ("presentation", "channel", "sample"))
    if samples < 3:
        return None
    if channels >= 3 and assembly.dtype.kind == "f":
        return 1
    steps = _steps(assembly)
    _, often = np.unique(steps, return_counts=True)
    pairs = len(steps) * (len(steps) - 1)
    equal = max(float((often * (often - 1.0)).sum()) / max(pairs, 1), 1.0 / max(pairs, 1))
    if equal >= 1:
        return None
    length = 2 * math.ceil(math.log((windows * samples) ** 2 / BY_CHANCE) / -math.log(equal))
    return length if length + 3 <= samples else None


def runs(codes: Codes, length: int, seed: int) -> Codes:
    """A number for each run of `length` codes, (window, run): equal for equal runs, unique for those that do not vary.

    Signals that stay where an amplifier ends, and padding, are no sign of a common origin.
    """
    if length == 1:
        return codes
    rng = np.random.default_rng(length)
    weights = rng.standard_normal(length).tolist()
    count = codes.shape[1] - length + 1
    found = np.zeros((len(codes), count))
    low, high = np.full(found.shape, np.inf), np.full(found.shape, -np.inf)
    for place, weight in enumerate(weights):
        part = codes[:, place : place + count]
        found += weight * part
        np.minimum(low, part, out=low)
        np.maximum(high, part, out=high)
    still = low == high
    found[still] = np.random.default_rng([length, seed]).standard_normal(int(still.sum()))
    return found


def _steps(assembly: xr.DataArray) -> Codes:
    """One number for each step from a sample to the next, of some of the windows."""
    weights = np.random.default_rng(1).standard_normal(assembly.sizes["channel"]).tolist()
    found: list[Codes] = []
    for _, values in blocks(assembly):
        steps = np.diff(values.astype(np.float64), axis=2)
        size = steps.std(axis=(0, 2))
        coded = np.zeros((len(values), steps.shape[2]))
        for channel, weight in enumerate(weights):
            if size[channel] > 0:
                coded += weight * np.round(steps[:, channel] / size[channel] * FINE)
        found.append(coded.ravel()[: LOOKED_AT - sum(map(len, found))])
        if sum(map(len, found)) >= LOOKED_AT:
            break
    return np.concatenate(found)
