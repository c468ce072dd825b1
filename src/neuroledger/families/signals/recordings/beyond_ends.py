"""Windows that reach beyond the ends of their recording: left out, counted for each recording, refused where many do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.errors import DataError

__all__ = [
    "KEY",
    "beyond_notes",
    "lost_markers",
    "note_left_out",
    "note_markers",
    "note_unscaled",
    "omitted",
    "remarks",
    "require_few",
    "sum_left_out",
    "unscaled",
]

KEY: Final = "left_out"
OMITTED: Final = re.compile(r"Omitted (\d+) annotation|(\d+) events have an onset that is NaN")
UNSCALED: Final = re.compile(r"(Physical range is not|Scaling factor will not be) defined")
SHOWN: Final = 8


@contextmanager
def remarks() -> Iterator[list[str]]:
    """Within it, MNE opens a recording; the list then holds what it remarked.

    That markers without a sample were dropped, or a header was not believed, MNE says in a warning only: the recording
    that it returns does not show it.
    """
    import mne

    found: list[str] = []
    with warnings.catch_warnings(record=True) as seen, mne.use_log_level("WARNING"):
        warnings.simplefilter("always")
        yield found
    found += [str(one.message) for one in seen]


def omitted(said: Sequence[str]) -> list[str]:
    """An empty text for each marker that MNE dropped, by its remarks."""
    matches = [match for one in said if (match := OMITTED.match(one))]
    return [""] * max((int(match[1] or match[2]) for match in matches), default=0)


def note_markers(raw: Any, texts: Sequence[str]) -> None:
    """Note at MNE's `Raw` what the markers beyond its ends say; an empty text is one of which that is not known."""
    raw.info["temp"] = {**_temp(raw), KEY: [*_noted(raw), *texts]}


def lost_markers(raw: Any, means: Callable[[str], bool]) -> int:
    """How many markers beyond the ends of a recording mean something, or may, as `note_markers` noted them."""
    return sum(not text or means(text) for text in _noted(raw))


def _noted(raw: Any) -> list[str]:
    return list(_temp(raw).get(KEY, ()))


def _temp(raw: Any) -> dict[str, Any]:
    noted = raw.info.get("temp")
    return noted if isinstance(noted, dict) else {}


def note_unscaled(raw: Any, said: Sequence[str]) -> None:
    """Note at MNE's `Raw` which channels have no range in the header, by its remarks: MNE takes their values as they are."""
    names = [name for one in said if UNSCALED.match(one) for name in one.split("\n", 1)[-1].split(", ")]
    raw.info["temp"] = {**_temp(raw), "unscaled": names}


def unscaled(raw: Any) -> frozenset[str]:
    """The channels that `note_unscaled` noted."""
    return frozenset(_temp(raw).get("unscaled", ()))


def require_few(
    first: npt.NDArray[np.int_], length: int, samples: int, markers: int, most: float, file: str
) -> int:
    """How many windows reach beyond the recording, if they are few enough.

    Parameters
    ----------
    first, length
        First sample of each window, and samples of a window.
    samples
        Of the recording.
    markers
        Events beyond the recording, of which no window was laid at all.
    most
        Largest share of windows and such events together; one at either end is never too many.

    Raises
    ------
    DataError
        They are more.
    """
    early, late = int((first < 0).sum()), int((first + length > samples).sum())
    lost, of = early + late + markers, len(first) + markers
    if lost > most * of and (early > 1 or late + markers > 1):
        raise DataError(
            f"{file}: {lost} of {of} windows reach beyond the recording ({early} before its beginning, {late + markers} "
            f"after its end), more than the share of {most:g} that `window: {{beyond: …}}` permits: is the recording "
            "whole, and are its events and its sampling rate its own?"
        )
    return early + late


def note_left_out(windows: xr.DataArray, file: str, lost: int, of: int, markers: int) -> xr.DataArray:
    """The windows of a recording, which now say how many of how many were left out; of none, unchanged."""
    if lost or markers:
        windows.encoding = {**windows.encoding, KEY: {file: [lost, of, markers]}}
    return windows


def sum_left_out(total: dict[str, list[int]], part: xr.DataArray | None) -> None:
    """Add what the windows of one recording say to what all do."""
    for file, counts in ({} if part is None else part.encoding.get(KEY, {})).items():
        total[file] = [a + b for a, b in zip(total.get(file, [0, 0, 0]), counts, strict=True)]


def beyond_notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the windows that were left out because they reach beyond their recording, by recording, if there are any."""
    counts: Mapping[str, list[int]] = windows.encoding.get(KEY, {})
    if not counts:
        return ()
    said = [
        f"{file} ({lost} of {of}{f', and {markers} markers without a sample' if markers else ''})"
        for file, (lost, of, markers) in sorted(counts.items())
    ]
    rest = f", and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    total = sum(lost + markers for lost, _, markers in counts.values())
    return (
        f"{total} windows reach beyond the ends of {len(said)} recordings and are left out: {', '.join(said[:SHOWN])}{rest}",
    )
