"""Windows that reach beyond the ends of their recording: left out, counted per recording, and refused if they are many."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.errors import DataError

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = [
    "KEY",
    "beyond_notes",
    "lost_markers",
    "note_left_out",
    "note_markers",
    "note_unscaled",
    "omitted",
    "mne_warnings",
    "require_few",
    "sum_left_out",
    "unscaled",
]

KEY: Final = "left_out"
OMITTED: Final = re.compile(
    r"Omitted (\d+) annotation|(\d+) events have an onset that is NaN"
)
UNSCALED: Final = re.compile(
    r"(Physical range is not|Scaling factor will not be) defined"
)
SHOWN: Final = 8


@contextmanager
def mne_warnings() -> Iterator[list[str]]:
    """Context that collects MNE's warnings while it opens a recording; the list is filled on exit.

    Only a warning reveals that MNE dropped markers without a sample or corrected a header; the returned recording does
    not show it.
    """
    import mne

    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught, mne.use_log_level("WARNING"):
        warnings.simplefilter("always")
        yield messages
    messages += [str(warning.message) for warning in caught]


def omitted(messages: Sequence[str]) -> list[str]:
    """An empty text for each marker that MNE dropped, according to its warnings."""
    matches = [match for message in messages if (match := OMITTED.match(message))]
    return [""] * max((int(match[1] or match[2]) for match in matches), default=0)


def note_markers(raw: BaseRaw, texts: Sequence[str]) -> None:
    """Note the descriptions of markers beyond the ends of a recording at MNE's `Raw`; "" is an unknown description."""
    raw.info["temp"] = {**_temp(raw), KEY: [*_noted(raw), *texts]}


def lost_markers(raw: BaseRaw, means: Callable[[str], bool]) -> int:
    """Number of markers beyond the ends of a recording, noted by `note_markers`, that are or may be known to `means`."""
    return sum(not text or means(text) for text in _noted(raw))


def _noted(raw: BaseRaw) -> list[str]:
    return list(_temp(raw).get(KEY, ()))


def _temp(raw: BaseRaw) -> dict[str, Any]:
    noted = raw.info.get("temp")
    if isinstance(noted, dict):
        return noted
    return {}


def note_unscaled(raw: BaseRaw, messages: Sequence[str]) -> None:
    """Note at MNE's `Raw` which channels have no range in the header, by its warnings: MNE does not scale their values."""
    unscaled_lists = [
        message.split("\n", 1)[-1] for message in messages if UNSCALED.match(message)
    ]
    names = [name for listed in unscaled_lists for name in listed.split(", ")]
    raw.info["temp"] = {**_temp(raw), "unscaled": names}


def unscaled(raw: BaseRaw) -> frozenset[str]:
    """The channels that `note_unscaled` noted."""
    return frozenset(_temp(raw).get("unscaled", ()))


def require_few(
    first: npt.NDArray[np.int_],
    length: int,
    samples: int,
    markers: int,
    most: float,
    file: str,
) -> int:
    """Number of windows that reach beyond the recording, if they are few enough.

    Parameters
    ----------
    first, length
        First sample of each window, and number of samples of a window.
    samples
        Number of samples of the recording.
    markers
        Number of events beyond the recording, for which no window exists.
    most
        Largest share of such windows and events together; one at either end is always allowed.

    Raises
    ------
    DataError
        The share is larger.
    """
    early = int((first < 0).sum())
    late = int((first + length > samples).sum())
    lost = early + late + markers
    total = len(first) + markers
    if lost > most * total and (early > 1 or late + markers > 1):
        raise DataError(
            f"{file}: {lost} of {total} windows reach beyond the recording ({early} before its beginning, {late + markers} "
            f"after its end), more than the share of {most:g} that `window: {{beyond: …}}` allows: check that the "
            "recording is complete, and that the events and the sampling rate belong to it"
        )
    return early + late


def note_left_out(
    windows: xr.DataArray, file: str, lost: int, total: int, markers: int
) -> xr.DataArray:
    """The windows of a recording, with the number of windows left out in their encoding if there are any."""
    if lost or markers:
        windows.encoding = {**windows.encoding, KEY: {file: [lost, total, markers]}}
    return windows


def sum_left_out(total: dict[str, list[int]], part: xr.DataArray | None) -> None:
    """Add the counts of one recording's windows to the total."""
    for file, counts in ({} if part is None else part.encoding.get(KEY, {})).items():
        total[file] = [
            a + b for a, b in zip(total.get(file, [0, 0, 0]), counts, strict=True)
        ]


def beyond_notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the windows that were left out because they reach beyond their recording; empty if there are none."""
    counts: Mapping[str, list[int]] = windows.encoding.get(KEY, {})
    if not counts:
        return ()
    parts = [
        f"{file} ({lost} of {windows_of_file}{f', and {markers} markers without a sample' if markers else ''})"
        for file, (lost, windows_of_file, markers) in sorted(counts.items())
    ]
    if len(parts) > SHOWN:
        rest = f", and {len(parts) - SHOWN} more"
    else:
        rest = ""
    total = sum(lost + markers for lost, _, markers in counts.values())
    return (
        f"{total} windows reach beyond the ends of {len(parts)} recordings and are left out: "
        f"{', '.join(parts[:SHOWN])}{rest}",
    )
