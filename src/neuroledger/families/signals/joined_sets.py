"""Signals of several data sets as one, so that a decoder can be trained on some and tested on others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.errors import RequestError
from neuroledger.families.signals.signals import DIMS

__all__ = ["joined"]

NAMED_WITHIN: Final = ("subject", "session", "recording", "trial")
"""Coordinates whose values are names within a data set: the same name in two sets is not the same thing."""
EQUAL: Final = ("sampling_rate", "units")


def joined(sets: Mapping[str, xr.DataArray]) -> xr.DataArray:
    """Windows of all sets, (presentation, channel, sample), with the coordinate `dataset`.

    Channels are those that all sets have, by name in any spelling of capitals, in the order of the first set. Coordinates of
    presentations are those that all sets have, as numbers or as text in all; subjects, sessions, recordings and trials are
    named `SET/NAME`.

    Parameters
    ----------
    sets
        Signals by the name of their data set. They must be prepared alike: the same rate, units and times of samples.

    Raises
    ------
    RequestError
        There are fewer than two sets, they are prepared differently, no channel is in all of them, or one has another type.
    """
    if len(sets) < 2:
        raise RequestError("joined signals need at least two data sets")
    ordered = {name: data.transpose(*DIMS) for name, data in sets.items()}
    first = next(iter(ordered))
    for name in ordered:
        _require_alike(first, ordered[first], name, ordered[name])
    rows = {name: _channel_rows(name, data) for name, data in ordered.items()}
    shared = [
        name for name in rows[first] if all(name in found for found in rows.values())
    ]
    if not shared:
        raise RequestError(f"no channel is in all of {', '.join(ordered)}")
    kept = _common_columns(ordered.values())
    places = {name: [rows[name][channel] for channel in shared] for name in ordered}
    chosen = {name: data.isel(channel=places[name]) for name, data in ordered.items()}
    for name, data in chosen.items():
        _require_same_types(first, chosen[first], name, data)
    parts = [_part(name, data, kept) for name, data in chosen.items()]
    values = np.concatenate([part.values for part in parts])
    columns = {
        name: ("presentation", np.concatenate([part[name].values for part in parts]))
        for name in sorted(kept | {"dataset"})
    }
    others = {
        name: coordinate
        for name, coordinate in parts[0].coords.items()
        if "presentation" not in coordinate.dims
    }
    attributes = {name: ordered[first].attrs[name] for name in EQUAL}
    return xr.DataArray(
        values, dims=DIMS, coords={**others, **columns}, attrs=attributes
    )


def _part(name: str, data: xr.DataArray, kept: set[str]) -> xr.DataArray:
    """The signals of one set with the coordinates that all have, and names that tell its people from those of others."""
    columns = {"dataset": ("presentation", np.full(data.sizes["presentation"], name))}
    for column in sorted(kept.intersection(NAMED_WITHIN)):
        names = np.asarray(data[column].values).astype(str)
        columns[column] = ("presentation", np.char.add(f"{name}/", names))
    return data.drop_vars(_columns(data) - kept).assign_coords(columns)


def _columns(data: xr.DataArray) -> set[str]:
    return {
        str(name)
        for name, values in data.coords.items()
        if values.dims == ("presentation",)
    }


def _common_columns(sets: Iterable[xr.DataArray]) -> set[str]:
    """Coordinates of presentations that all sets have, and that are names within a set, or numbers or texts in all."""
    ordered = list(sets)
    common = set.intersection(*(_columns(data) for data in ordered))
    return {
        name
        for name in common
        if name in NAMED_WITHIN
        or len({data[name].dtype.kind in "OU" for data in ordered}) == 1
    }


def _channel_rows(name: str, data: xr.DataArray) -> dict[str, int]:
    names = data["channel_id"].values.astype(str)
    rows = {channel.lower(): row for row, channel in enumerate(names.tolist())}
    if len(rows) < len(names):
        raise RequestError(
            f"two channels of {name} differ only in capitals: drop one, or rename it"
        )
    return rows


def _require_same_types(
    first: str, one: xr.DataArray, second: str, other: xr.DataArray
) -> None:
    names, ours, theirs = (
        values.astype(str).tolist()
        for values in (
            one["channel_id"].values,
            one["channel_type"].values,
            other["channel_type"].values,
        )
    )
    for channel, here, there in zip(names, ours, theirs, strict=True):
        if here != there:
            raise RequestError(
                f"channel {channel} is of type {here} in {first}, and {there} in {second}: correct the type of one"
            )


def _require_alike(
    first: str, one: xr.DataArray, second: str, other: xr.DataArray
) -> None:
    for name in EQUAL:
        ours = one.attrs[name]
        theirs = other.attrs[name]
        if ours != theirs:
            raise RequestError(
                f"{name} of {first} is {ours}, of {second} {theirs}: prepare both alike"
            )
    here, there = (data["time_bin_start"].values for data in (one, other))
    if not np.array_equal(here, there):
        raise RequestError(
            f"windows of {first} and {second} are at other times: cut both alike"
        )
