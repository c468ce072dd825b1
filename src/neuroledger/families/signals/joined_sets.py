"""Signals of several data sets as one, so that a decoder can be trained on some and tested on others."""

from __future__ import annotations

from collections.abc import Mapping
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
    chosen = _on_shared_channels(ordered)
    first, one = next(iter(chosen.items()))
    for name, other in chosen.items():
        _require_alike(first, one, name, other)
        _require_same_types(first, one, name, other)
    kept = _common_columns(chosen)
    parts = [_part(name, data, kept) for name, data in chosen.items()]
    whole = xr.concat(
        parts,
        "presentation",
        coords="minimal",
        compat="override",
        combine_attrs="override",
    )
    whole.attrs = {name: one.attrs[name] for name in EQUAL}
    return whole


def _on_shared_channels(sets: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """The sets on the channels that all have, in the order of the first one."""
    rows = {name: _channel_rows(name, data) for name, data in sets.items()}
    shared = list(next(iter(rows.values())))
    for own in rows.values():
        shared = [channel for channel in shared if channel in own]
    if not shared:
        raise RequestError(f"no channel is in all of {', '.join(sets)}")
    chosen: dict[str, xr.DataArray] = {}
    for name, data in sets.items():
        places = [rows[name][channel] for channel in shared]
        chosen[name] = data.isel(channel=places)
    return chosen


def _channel_rows(name: str, data: xr.DataArray) -> dict[str, int]:
    """The row of each channel by its name in small letters."""
    names = data["channel_id"].values.astype(str).tolist()
    rows = {channel.lower(): row for row, channel in enumerate(names)}
    if len(rows) < len(names):
        raise RequestError(
            f"two channels of {name} differ only in capitals: drop one, or rename it"
        )
    return rows


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
    here = one["time_bin_start"].values
    there = other["time_bin_start"].values
    if not np.array_equal(here, there):
        raise RequestError(
            f"windows of {first} and {second} are at other times: cut both alike"
        )


def _require_same_types(
    first: str, one: xr.DataArray, second: str, other: xr.DataArray
) -> None:
    ours = one["channel_type"].values.astype(str)
    theirs = other["channel_type"].values.astype(str)
    apart = np.flatnonzero(ours != theirs)
    if len(apart):
        row = int(apart[0])
        channel = one["channel_id"].values[row]
        raise RequestError(
            f"channel {channel} is of type {ours[row]} in {first}, and {theirs[row]} in {second}: correct the type of one"
        )


def _common_columns(sets: Mapping[str, xr.DataArray]) -> set[str]:
    """Coordinates of presentations that all sets have, and that are names within a set, or numbers or texts in all."""
    common = set.intersection(*map(_columns, sets.values()))
    return {name for name in common if name in NAMED_WITHIN or _is_alike(name, sets)}


def _is_alike(name: str, sets: Mapping[str, xr.DataArray]) -> bool:
    """Whether a coordinate is text in all sets or in none."""
    are_texts = {data[name].dtype.kind in "OU" for data in sets.values()}
    return len(are_texts) == 1


def _columns(data: xr.DataArray) -> set[str]:
    coords = data.coords.items()
    return {str(name) for name, values in coords if values.dims == ("presentation",)}


def _part(name: str, data: xr.DataArray, kept: set[str]) -> xr.DataArray:
    """The signals of one set with the coordinates that all have, and names that tell its people from those of others."""
    columns = {"dataset": ("presentation", np.full(data.sizes["presentation"], name))}
    for column in sorted(kept.intersection(NAMED_WITHIN)):
        names = np.asarray(data[column].values).astype(str)
        columns[column] = ("presentation", np.char.add(f"{name}/", names))
    return data.drop_vars(_columns(data) - kept).assign_coords(columns)
