"""Channels that carry the answer itself: a trigger, a target or a position typed as a signal, found by how it is written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.lazy_rows import release
from neuroledger.families.signals.signals import DIMS

__all__ = ["telling_channels"]

Array = npt.NDArray[Any]

FEWEST: Final = 20
"""Windows below which a channel may agree with the labels by chance."""
LOOKED_AT: Final = 2000


def telling_channels(assembly: xr.DataArray, truth: Array) -> list[str]:
    """Names of the channels whose largest or smallest value in a window is a code of what the window shows.

    Of classes: one value for each class, another for each. Of numbers: a straight line, to nine digits. Up to 2,000 windows
    are looked at, evenly chosen; fewer than 20 tell nothing.

    Parameters
    ----------
    truth
        (window,) classes as texts, or numbers.
    """
    count = assembly.sizes["presentation"]
    if truth.ndim != 1 or count < FEWEST or truth.dtype.kind not in "USiuf":
        return []
    rows = (
        np.unique(np.linspace(0, count - 1, LOOKED_AT).astype(int)) if count > LOOKED_AT else np.arange(count)
    )
    values = assembly.transpose(*DIMS).values
    ends = np.empty((2, len(rows), values.shape[1]))
    for place, row in enumerate(rows):
        ends[0, place], ends[1, place] = values[row].min(axis=1), values[row].max(axis=1)
        release(values)
    shown = truth[rows]
    codes = _is_code if shown.dtype.kind in "US" else _is_line
    names = assembly["channel_id"].values.astype(str)
    return [str(names[k]) for k in range(len(names)) if any(codes(end[:, k], shown) for end in ends)]


def _is_code(values: Array, labels: Array) -> bool:
    """Each class has one value, and no two classes the same."""
    classes = np.unique(labels)
    levels = np.unique(values)
    pairs = len(set(zip(values.tolist(), labels.tolist(), strict=True)))
    return len(classes) > 1 and len(levels) == len(classes) == pairs


def _is_line(values: Array, numbers: Array) -> bool:
    """The numbers lie on a straight line over the values."""
    if np.ptp(values) == 0 or np.ptp(numbers) == 0 or len(np.unique(numbers)) < 3:
        return False
    return abs(float(np.corrcoef(values.astype(float), numbers.astype(float))[0, 1])) > 1 - 1e-9
