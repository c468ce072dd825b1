"""Helpers for recordings of heard or read language: files, electrode positions, and windows at words or sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import xarray as xr

from neuroledger.errors import DataError, RequestError, some_of
from neuroledger.families.signals.recordings.open_recordings import require_gapless
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    Row,
    require_compatible,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    from mne.channels import DigMontage
    from mne.io import BaseRaw

__all__ = ["cut", "embeddings_in", "open_raw", "place", "plain", "the_file", "within"]

# What MNE raises on files that are not of the format that their name states.
UNREADABLE = (
    OSError,
    ValueError,
    RuntimeError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
)
# Montages that MNE renamed; the positions are the same.
RENAMED = {"standard_1005": "colin27_1005", "standard_1020": "colin27_1020"}


def plain(name: str) -> str:
    """A name for comparisons, without blanks, quotes and underscores in its folders, since pinning changes these."""
    *folders, last = name.split("/")
    return "/".join([*(re.sub(r"[ _']", "", folder) for folder in folders), last])


def the_file(files: Iterable[str], wanted: str) -> str:
    """The only name that is `wanted`, or ends in it below a folder; blanks and underscores in folders do not matter.

    Raises
    ------
    DataError
        No name or several names match.
    """
    known = list(files)
    matches = [name for name in known if plain(name) == plain(wanted)]
    matches = matches or [
        name for name in known if plain(name).endswith(f"/{plain(wanted)}")
    ]
    if not matches:
        examples = some_of(sorted(known), 8)
        raise DataError(
            f"{wanted} is not among the files: {examples or 'there are none'}"
        )
    if len(matches) > 1:
        raise DataError(
            f"several files are named {wanted}: {', '.join(sorted(matches)[:3])}; keep one"
        )
    return matches[0]


def embeddings_in(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The tables of embeddings that a reader's parameters name.

    Raises
    ------
    RequestError
        A table is missing.
    """
    tables = list(map(str, (parameters.get("embeddings") or {}).values()))
    missing = [name for name in tables if name not in names]
    if missing:
        raise RequestError(
            f"the folder lacks {', '.join(missing)}, the embeddings of what was heard or read: create it first by "
            "`neuroledger "
            f"embed MODEL --dataset ID --from FOLDER --out FOLDER/{missing[0]}` (access_steps of the spec, docs/signals.md)"
        )
    return tables


def open_raw(path: Path, file: str) -> BaseRaw:
    """MNE's `Raw` of a recording; its samples are not read yet.

    Raises
    ------
    DataError
        MNE cannot read it, or it has gaps.
    UnavailableError
        MNE is not installed.
    """
    with quiet_mne() as mne:
        try:
            raw = mne.io.read_raw(path, preload=False)
        except UNREADABLE as error:
            raise DataError(f"{file} cannot be read by MNE ({error})") from error
    require_gapless(
        path,
        raw,
        file,
        "cut the recording there, and leave it out or ask its publisher",
    )
    return raw


def place(raw: BaseRaw, montage: str, file: str) -> None:
    """Set the channels that a montage contains to EEG, with their positions, and others to EOG or misc by their names.

    Raises
    ------
    DataError
        MNE does not know the montage, or the recording has none of its channels.
    """
    with quiet_mne() as mne:
        placed = {name.lower(): name for name in _positions(mne, montage).ch_names}
        electrodes = {
            name: placed[name.lower()]
            for name in raw.ch_names
            if name.lower() in placed
        }
        if not electrodes:
            raise DataError(
                f"{file} has no channel of the montage {montage}; it has {', '.join(raw.ch_names[:40])}"
            )
        others = {}
        for number, name in enumerate(raw.ch_names):
            is_stimulus = mne.channel_type(raw.info, number) == "stim"
            if name not in electrodes and not is_stimulus:
                others[name] = _kind_without_position(name)
        raw.set_channel_types(others)
        raw.set_channel_types(dict.fromkeys(electrodes, "eeg"))
        raw.rename_channels(
            {name: new for name, new in electrodes.items() if name != new}
        )
        raw.set_montage(montage)


def _positions(mne: ModuleType, montage: str) -> DigMontage:
    try:
        builtin = mne.channels.get_builtin_montages()
        return mne.channels.make_standard_montage(
            montage if montage in builtin else RENAMED.get(montage, montage)
        )
    except ValueError as error:
        raise DataError(f"montage {montage!r} is unknown to MNE ({error})") from error


def _kind_without_position(name: str) -> str:
    if "eo" in name.lower() or "eye" in name.lower():
        return "eog"
    return "misc"


def within(window: Window, file: str) -> Window:
    """The window without its stride.

    Raises
    ------
    DataError
        Windows overlap, or have fields that do not apply to events of a table.
    """
    bare = window.model_copy(update={"stride": None})
    require_compatible(Events(stimulus="stimulus"), bare)
    if window.stride is not None and window.stride < window.duration:
        raise DataError(
            f"{file}: windows of {window.duration:g} s every {window.stride:g} s overlap; raise `window.stride`"
        )
    return bare


def cut(
    raw: BaseRaw,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    shown: Sequence[Row],
    path: Path,
) -> xr.DataArray | None:
    """Windows of one recording, (presentation, channel, sample), one for each row of `shown`.

    Rows have `onset` (s from the start of the recording, as text), `stimulus`, and further fields, which become
    coordinates. `path` is the file of the samples.

    Raises
    ------
    DataError
        A row is incomplete, two rows have the same onset, or no window is within the recording.
    """
    if not shown:
        raise DataError(
            f"{recording.file}: no heard or read item is left to cut windows at"
        )
    facts = {name: name for name in shown[0] if name not in ("onset", "stimulus")}
    events = Events.model_validate({"stimulus": "stimulus", "coordinates": facts})
    return windows_of(
        raw, recording, window, steps, sha256=sha256_of(path), events=events, rows=shown
    )
