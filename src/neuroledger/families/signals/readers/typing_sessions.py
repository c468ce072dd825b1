"""EMG of both wrists during typing, with the keys: emg2qwerty in its published format."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import numpy as np
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.fields import AtLeastOne
from neuroledger.families.signals.clocks.clock_facts import clocks_of, note_clocks
from neuroledger.families.signals.emg.sessions import (
    RATE,
    Grid,
    WindowGrid,
    clocks_of_series,
    read_series,
    rows_by_recording,
    samples_in,
)
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["typing_sessions"]


GROUP: Final = "emg2qwerty"
WRISTS: Final = ("left", "right")
ELECTRODES: Final = 16
FIELDS: Final = {f"emg_{wrist}": ELECTRODES for wrist in WRISTS}
CHANNELS: Final = [
    f"emg{electrode}_{wrist}" for wrist in WRISTS for electrode in range(ELECTRODES)
]
SPECIAL_KEYS: Final = {
    "Key.space": " ",
    "Key.enter": "⏎",
    "Key.backspace": "⌫",
    "Key.shift": "⇧",
}
EQUIVALENT: Final = {
    **{"\n": "⏎", "\r": "⏎", "\b": "⌫", "⏎": "⏎", "⌫": "⌫", "⇧": "⇧", " ": " "},
    **{"’": "'", "“": '"', "”": '"', "—": "-"},
}
PLAIN: Final = frozenset(string.ascii_letters + string.digits + string.punctuation)


@reader("typing_sessions", version=1, prepares=True)
def typing_sessions(
    files: Mapping[str, Path],
    *,
    window: WindowGrid,
    core: PositiveFloat,
    first: AtLeastOne | None = None,
    decimate: Annotated[int, Field(ge=1, le=200)] = 1,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of 32 channels at 2 kHz, with the text typed in each as the coordinate `text`.

    The files are those of emg2qwerty: a table (`metadata.csv`) with `session` and `user`, and one HDF5 file per session,
    group `emg2qwerty`, whose compound `timeseries` has `time` (s), `emg_left` (16) and `emg_right` (16), and whose attribute
    `keystrokes` is a JSON list of `key`, `start` and `end` (s, on the same clock). There are 98 known keys: the printable
    ASCII characters, and space, enter (⏎), backspace (⌫) and shift (⇧), one character each; others are ignored. A window
    without a key has an empty text. One session is in memory at a time.

    Parameters
    ----------
    core
        The text of a window consists of the keys pressed within `core` seconds from its onset, the end excluded.
    first
        Number of sessions to read, in the order of user and session.
    decimate
        Factor of decimation, after a low-pass filter (FIR of 20 × `decimate` + 1 taps, zero phase).

    Returns
    -------
    Dataset
        (presentation, channel, sample), in single precision, as published.

    Raises
    ------
    DataError
        A file is damaged or has another layout, the table lacks a column or a session, no window remains, or the disk has no
        room for them.
    """
    grid = Grid(window, decimate)
    rows = rows_by_recording(files, ("session", "user"))
    order = sorted(
        rows,
        key=lambda name: (rows[name]["user"].strip(), rows[name]["session"].strip()),
    )[:first]
    if not any(len(grid.onsets(samples_in(files[name], GROUP))) for name in order):
        raise DataError(
            f"none of {len(order)} sessions has a window of {window.duration:g} s"
        )
    parts = (_session(name, files[name], rows[name], grid, core) for name in order)
    assembly = stored(context, parts, of=len(order))
    return Dataset(stimuli=None, assembly=assembly, clocks=clocks_of(assembly))


def _session(
    name: str, path: Path, row: Mapping[str, str], grid: Grid, core: float
) -> xr.DataArray | None:
    """The windows of one session, (presentation, channel, sample); None if it is too short for a window."""
    series, attributes = read_series(path, GROUP, FIELDS, row["user"])
    pressed, typed = _keys(attributes, path)
    samples = grid.onsets(len(series["time"]))
    if not len(samples):
        return None
    values = np.empty((len(samples), len(CHANNELS), grid.length), np.float32)
    grid.cut(
        np.concatenate([series[field] for field in FIELDS], axis=1), samples, values
    )
    onsets = samples / grid.rate
    # Times by the number of samples before a key, independent of irregularities of the clock.
    times = np.searchsorted(series["time"], pressed) / RATE
    recorded = (pressed >= series["time"][0]) & (pressed <= series["time"][-1])
    facts = {
        "subject": row["user"].strip(),
        "recording": PurePosixPath(name).stem,
        "session": row["session"].strip(),
        "recording_sha256": sha256_of(path),
    }
    events: dict[str, object] = {
        fact: np.full(len(samples), value) for fact, value in facts.items()
    }
    events |= {
        "stimulus_id": [
            f"{facts['recording']}/{number}" for number in range(len(samples))
        ],
        "onset": onsets,
        "text": np.array(
            _texts(times[recorded], typed[recorded], onsets, core), dtype=str
        ),
    }
    windows = signals(
        values,
        channels=CHANNELS,
        channel_types="emg",
        sampling_rate=grid.rate,
        start=grid.start / grid.rate,
        units="arbitrary",
        events=events,
    )
    clocks = clocks_of_series(
        series["time"], facts["recording"], facts["subject"], len(samples), keys=pressed
    )
    return note_clocks(windows, clocks)


def _keys(attributes: Mapping[str, Any], path: Path) -> tuple[Array, Array]:
    """Times (s) and characters of the pressed keys, in order of time; unknown keys are left out."""
    if "keystrokes" not in attributes:
        raise DataError(
            f"{path.name}: the group {GROUP!r} has no attribute 'keystrokes'; it has {', '.join(sorted(attributes))}"
        )
    try:
        keys = [
            (float(key["start"]), str(key["key"]))
            for key in json.loads(attributes["keystrokes"])
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path.name}: 'keystrokes' is not a JSON list of keys with 'key' and 'start' ({error!r})"
        ) from error
    if not keys:
        raise DataError(
            f"{path.name}: 'keystrokes' is empty: no key was typed in this session"
        )
    keys.sort(key=lambda item: item[0])
    known = [(start, _character(key)) for start, key in keys if _character(key)]
    return np.array([start for start, _ in known], dtype=float), np.array(
        [key for _, key in known], dtype=str
    )


def _character(key: str) -> str:
    """The character of a key; "" if the key is unknown."""
    if key in SPECIAL_KEYS:
        return SPECIAL_KEYS[key]
    if key in PLAIN:
        return key
    return EQUIVALENT.get(key, "")


def _texts(at: Array, typed: Array, onsets: Array, core: float) -> list[str]:
    """The characters typed within `core` seconds from each onset; times within half a microsecond count as equal."""
    begin = np.searchsorted(at, onsets - 5e-7)
    end = np.searchsorted(at, onsets + core - 5e-7)
    return ["".join(typed[a:b].tolist()) for a, b in zip(begin, end, strict=True)]
