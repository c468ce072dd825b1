"""What is common to recordings of people who hear or read language: files, electrodes, and windows at words or sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_stimuli import Events, Row, alone
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.store.hashes import sha256_of

__all__ = ["cut", "embeddings_in", "open_raw", "place", "plain", "the_file", "within"]

# What MNE raises on files that do not hold what their name promises.
UNREADABLE = (OSError, ValueError, RuntimeError, TypeError, AttributeError, KeyError, IndexError)
# Montages that MNE renamed; the places are the same.
RENAMED = {"standard_1005": "colin27_1005", "standard_1020": "colin27_1020"}


def plain(name: str) -> str:
    """A name as it is compared: folders without blanks, quotes and underscores, which a pin writes in another way."""
    *folders, last = name.split("/")
    return "/".join([*(re.sub(r"[ _']", "", folder) for folder in folders), last])


def the_file(files: Iterable[str], wanted: str) -> str:
    """The one of these names that is `wanted`, or ends in it below a folder; how folders write blanks does not matter.

    Raises
    ------
    DataError
        There is none, or several are.
    """
    known = list(files)
    found = [name for name in known if plain(name) == plain(wanted)]
    found = found or [name for name in known if plain(name).endswith(f"/{plain(wanted)}")]
    if not found:
        shown = ", ".join(sorted(known)[:8]) + (", …" if len(known) > 8 else "")
        raise DataError(f"{wanted} is not among the files: {shown or 'there are none'}")
    if len(found) > 1:
        raise DataError(f"several files are called {wanted}: {', '.join(sorted(found)[:3])}; keep one")
    return found[0]


def embeddings_in(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The tables of embeddings that a reader's parameters name, all of which must be there.

    Raises
    ------
    RequestError
        One is not.
    """
    wanted = [str(name) for name in (parameters.get("embeddings") or {}).values()]
    lost = [name for name in wanted if name not in names]
    if lost:
        raise RequestError(
            f"the folder lacks {', '.join(lost)}, the embeddings of what was heard or read: make it first, `neuroledger "
            f"embed MODEL --dataset ID --from FOLDER --out FOLDER/{lost[0]}` (access_steps of the spec, docs/signals.md)"
        )
    return wanted


def open_raw(path: Path, file: str) -> Any:
    """MNE's `Raw` of a recording, samples not yet read.

    Raises
    ------
    DataError
        MNE cannot read it.
    UnavailableError
        MNE is not installed.
    """
    with quiet_mne() as mne:
        try:
            return mne.io.read_raw(path, preload=False)
        except UNREADABLE as error:
            raise DataError(f"{file} cannot be read by MNE ({error})") from error


def place(raw: Any, montage: str, file: str) -> None:
    """Type the channels that a named montage has as EEG, with their places; others as eye or other channels, by their names.

    Raises
    ------
    DataError
        MNE knows no such montage, or the recording has none of its channels.
    """
    with quiet_mne() as mne:
        try:
            there = mne.channels.get_builtin_montages()
            known = mne.channels.make_standard_montage(
                montage if montage in there else RENAMED.get(montage, montage)
            )
        except ValueError as error:
            raise DataError(f"montage {montage!r} is none that MNE knows ({error})") from error
        placed = {name.lower(): name for name in known.ch_names}
        others = {
            name: "eog" if "eo" in name.lower() or "eye" in name.lower() else "misc"
            for name in raw.ch_names
            if name.lower() not in placed
        }
        found = {name: placed[name.lower()] for name in raw.ch_names if name not in others}
        if not found:
            raise DataError(
                f"{file} has no channel of the montage {montage}; it has {', '.join(raw.ch_names[:40])}"
            )
        stimuli = {name for name in others if mne.channel_type(raw.info, raw.ch_names.index(name)) == "stim"}
        raw.set_channel_types({name: kind for name, kind in others.items() if name not in stimuli})
        raw.set_channel_types(dict.fromkeys(found, "eeg"))
        raw.rename_channels({name: known for name, known in found.items() if name != known})
        raw.set_montage(montage)


def within(window: Window, file: str) -> Window:
    """The window without its stride, which lays several of them at one event.

    Raises
    ------
    DataError
        It has fields that are not about events in a table.
    """
    bare = window.model_copy(update={"stride": None})
    alone(Events(stimulus="stimulus"), bare)
    if window.stride is not None and window.stride < window.duration:
        raise DataError(
            f"{file}: windows of {window.duration:g} s every {window.stride:g} s overlap; raise `window.stride`"
        )
    return bare


def cut(
    raw: Any,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    shown: Sequence[Row],
    path: Path,
) -> xr.DataArray | None:
    """Windows of one recording, (presentation, channel, sample), one for each row of `shown`; `path` holds its samples.

    Rows have `onset` (s from the start of the recording, as text), `stimulus`, and further facts, which become coordinates.

    Raises
    ------
    DataError
        A row is not complete, two begin at one moment, or no window lies within the recording.
    """
    if not shown:
        raise DataError(f"{recording.file}: nothing of what was heard or read is left to cut windows at")
    facts = {name: name for name in shown[0] if name not in ("onset", "stimulus")}
    events = Events.model_validate({"stimulus": "stimulus", "coordinates": facts})
    return windows_of(raw, recording, window, steps, sha256=sha256_of(path), events=events, rows=shown)
