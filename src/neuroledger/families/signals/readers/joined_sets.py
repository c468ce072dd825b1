"""Signals of several data sets as one, so that decoders are trained on some of them and tested on others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals import signals
from neuroledger.families.signals.joined_sets import joined
from neuroledger.spec.registry import reader

__all__ = ["joined_sets"]


@reader("joined_sets", version=1, joins=True, prepares=True)
def joined_sets(
    members: Mapping[str, Dataset],
    *,
    labels: dict[str, dict[str, str]] | None = None,
    target: str = "label",
) -> Dataset:
    """The windows of all members, on the channels that all have, with the id of the member as the coordinate `dataset`.

    `labels` gives the common word for each word of a member that has its own, by member. `target` names the coordinate that
    contains these words.

    Raises
    ------
    DataError
        A member has no signals, members are prepared differently, or their words have nothing in common.
    """
    parts = {id: _windows_of(id, data) for id, data in members.items()}
    for id, words in (labels or {}).items():
        if id not in parts:
            listed = ", ".join(members) or "none"
            raise DataError(f"`labels` name {id!r}, and the members are {listed}")
        parts[id] = _translated(id, parts[id], words, target)
    _require_common_words(parts, target)
    try:
        whole = joined(parts)
    except RequestError as error:
        raise DataError(str(error)) from error
    return Dataset(stimuli=None, assembly=whole, notes=tuple(_notes(members)))


def _windows_of(id: str, data: Dataset) -> xr.DataArray:
    if data.assembly is None or not signals.is_signals(data.assembly):
        raise DataError(f"member {id!r} has no signals: name data sets of windows")
    return data.assembly


def _translated(
    id: str, windows: xr.DataArray, words: Mapping[str, str], target: str
) -> xr.DataArray:
    """The windows with the common word in place of each word of a member."""
    if target not in windows.coords:
        raise DataError(f"member {id!r} has no coordinate {target!r}")
    own = windows[target].values.astype(str).tolist()
    unknown = ", ".join(sorted(set(words) - set(own)))
    if unknown:
        known = ", ".join(sorted(set(own)))
        raise DataError(
            f"no window of {id!r} has the {target} {unknown}; it has {known}"
        )
    common = np.array([words.get(word, word) for word in own])
    return windows.assign_coords({target: ("presentation", common)})


def _require_common_words(parts: Mapping[str, xr.DataArray], target: str) -> None:
    """Refuse a member whose classes have words of its own only, which would be other classes than those of the rest."""
    words: dict[str, set[str]] = {}
    for id, windows in parts.items():
        if target in windows.coords and windows[target].dtype.kind in "OU":
            words[id] = set(windows[target].values.astype(str).tolist())
    for id, own in words.items():
        others = [known for other, known in words.items() if other != id]
        rest = set[str]().union(*others)
        if rest and own.isdisjoint(rest):
            raise DataError(
                f"no other member has a {target} of {id!r}, {', '.join(sorted(own))}; the others have "
                f"{', '.join(sorted(rest))}: give the common words by `labels` of the reader"
            )


def _notes(members: Mapping[str, Dataset]) -> Iterator[str]:
    """What the readers of the members left out, and what is not joined."""
    for id, data in members.items():
        yield from (f"{id}: {note}" for note in data.notes)
        if data.extras:
            yield f"{id}: {', '.join(sorted(data.extras))} is not joined"
