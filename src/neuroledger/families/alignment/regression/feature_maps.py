"""Feature maps: the units of a convolutional layer as a complete grid of channels and places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.arrays import Indices
from neuroledger.errors import MetricError

__all__ = ["Grid", "grid"]

AXES = ("channel", "channel_x", "channel_y")


@dataclass(frozen=True)
class Grid:
    """Features that fill ``channels`` maps of ``width`` (channel_x) × ``height`` (channel_y) places.

    ``units`` (channel × width × height, in C order) are the column numbers of the features.
    """

    channels: int
    width: int
    height: int
    units: Indices

    @property
    def places(self) -> int:
        """Number of places in a map."""
        return self.width * self.height

    @property
    def deep(self) -> bool:
        """Whether there are more channels than places; the longer axis is stored last because it is multiplied first."""
        return self.channels > self.places

    @property
    def shape(self) -> tuple[int, int]:
        """Lengths of the shorter and the longer axis."""
        if self.deep:
            return (self.places, self.channels)
        return (self.channels, self.places)

    @cached_property
    def order(self) -> Indices:
        """Column numbers in the order of ``shape``, flattened."""
        units = self.units.reshape(self.channels, self.places)
        return np.ascontiguousarray(units.T if self.deep else units).ravel()


def grid(source: xr.DataArray) -> Grid:
    """Grid that the neuroids of ``source`` fill, by their coordinates channel, channel_x and channel_y.

    Neuroids may be in any order; places are sorted along each coordinate.

    Raises
    ------
    MetricError
        A coordinate is missing (for all or some neuroids), several neuroids are at one place, or a place is empty.
    """
    known = [
        str(name) for name, coord in source.coords.items() if coord.dims == ("neuroid",)
    ]
    absent = [name for name in AXES if name not in known]
    if absent:
        raise MetricError(
            f"a mask needs the places of features: the source's neuroids have no {', '.join(absent)} (they have: "
            f"{', '.join(known) or 'no coordinates'}); record a convolutional layer, whose units carry {', '.join(AXES)}, "
            "or give them these coordinates"
        )
    values = [np.asarray(source[name].values) for name in AXES]
    for name, along in zip(AXES, values, strict=True):
        missing = np.flatnonzero(pd.isna(along))
        if missing.size:
            raise MetricError(
                f"{missing.size} of {len(along)} neuroids of the source have no {name} (the first is number {missing[0]}"
                f"{_label(source, missing[0])}); select one layer with maps of channels and places"
            )
    codings = [np.unique(along, return_inverse=True) for along in values]
    labels, numbers = (
        [labels for labels, _ in codings],
        [number for _, number in codings],
    )
    channels, width, height = shape = tuple(map(len, labels))
    flat = np.ravel_multi_index(tuple(numbers), shape)
    filled = np.bincount(flat, minlength=channels * width * height)
    if filled.max() > 1:
        at = int(np.argmax(filled > 1))
        first, second = np.flatnonzero(flat == at)[:2]
        raise MetricError(
            f"{filled[at]} neuroids of the source are at {_place(at, labels)}: numbers {first}{_label(source, first)} "
            f"and {second}{_label(source, second)}; select one layer (and one channel_temporal, where there are several)"
        )
    if filled.min() == 0:
        raise MetricError(
            f"the source's {len(flat)} neuroids do not fill their grid of {channels} channels × {width} × {height} places: "
            f"{int((filled == 0).sum())} are missing, the first at {_place(int(np.argmin(filled)), labels)}; keep all units "
            "of the layer"
        )
    return Grid(channels, width, height, np.argsort(flat))


def _place(at: int, labels: list[NDArray[np.generic]]) -> str:
    where = np.unravel_index(at, tuple(map(len, labels)))
    return ", ".join(
        f"{name} {label[i]}" for name, label, i in zip(AXES, labels, where, strict=True)
    )


def _label(source: xr.DataArray, at: int) -> str:
    """Text that names the layer of a neuroid; empty if unknown."""
    if "layer" in source.coords:
        return f" of layer {source['layer'].values[at]}"
    return ""
