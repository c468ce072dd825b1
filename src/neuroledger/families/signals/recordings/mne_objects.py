"""Recordings that are in memory as objects of MNE become the same signals as files do."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from pydantic import ValidationError

from neuroledger.errors import RequestError
from neuroledger.families.signals.recordings.beyond_ends import KEY, beyond_notes, sum_left_out
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
    join,
    metadata_of,
    quiet_mne,
    windows_of,
    windows_of_epochs,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.base import Frozen, worded

__all__ = ["is_mne", "windows"]

log = logging.getLogger("neuroledger")
Declared = TypeVar("Declared", bound=Frozen)
MAGNETIC = frozenset({"mag", "grad"})
# Columns of metadata that say whose an epoch is, and those that its window has already.
WHOSE = ("subject", "session", "run")
GIVEN = frozenset({"onset", "stimulus_id", "label", "recording", "recording_sha256", "epoch"})


def is_mne(thing: Any) -> bool:
    """Whether something is a `Raw` or `Epochs` of MNE; MNE is not imported to find out."""
    return any(
        kind.__module__.split(".")[0] == "mne" and kind.__name__ in ("BaseRaw", "BaseEpochs")
        for kind in type(thing).__mro__
    )


def windows(
    recordings: Any,
    *,
    window: Window | Mapping[str, Any] | None = None,
    preprocessing: Preprocessing | Mapping[str, Any] | None = None,
) -> xr.DataArray:
    """Signals, (presentation, channel, sample), cut from `mne.io.Raw` or taken from `mne.Epochs`, as specs do from files.

    Parameters
    ----------
    recordings
        A `Raw` or `Epochs`; or what is whose: `{subject: recording}`, `{subject: [run, …]}`, or
        `{subject: {session: recording or [run, …]}}`. They are not changed.
    window
        As in the reader `mne_epochs`: `{"start": 0.0, "duration": 1.0, "labels": {event: label}}`. It is needed for `Raw`;
        of `Epochs`, the whole epoch with the name of its event is taken without it.
    preprocessing
        As in that reader. Without it the data channels are taken as they are: in µV, in fT where all are magnetic, and in V
        and T where both kinds are there.
        Amplitudes that no such channels have are refused (`{"units": "arbitrary"}` waives this).

    Returns
    -------
    xr.DataArray
        With `subject`, `session`, `run`, `label`, `onset` (s), and the columns of the metadata of epochs as coordinates;
        the columns `subject`, `session` and `run` say whose each epoch is. Windows that reach beyond the ends of a recording
        are left out, with a warning of the logger `neuroledger` that counts them; many are refused (`beyond` of `window`).

    Raises
    ------
    RequestError
        Something is no recording, a field is wrong, or no window is stated for a `Raw`.
    DataError
        A channel or event does not occur, or recordings do not agree.
    """
    found = list(_each(recordings))
    if not found:
        raise RequestError("recordings: there are none")
    said = None if window is None else _declared(Window, window, "window")
    steps = None if preprocessing is None else _declared(Preprocessing, preprocessing, "preprocessing")
    parts = [_windows(thing, about, said, steps) for about, thing in found]
    left_out: dict[str, list[int]] = {}
    for part in parts:
        sum_left_out(left_out, part)
    whole = join(parts)
    whole.encoding = {KEY: left_out}
    for note in beyond_notes(whole):
        log.warning(note)
    return whole


def _declared(kind: type[Declared], said: Any, name: str) -> Declared:
    if isinstance(said, kind):
        return said
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        raise RequestError(f"{name}: {'; '.join(map(worded, error.errors()))}") from error


def _each(recordings: Any) -> Iterator[tuple[Recording, Any]]:
    """Each recording with whose it is."""
    if is_mne(recordings):
        recordings = {"1": recordings}
    if not isinstance(recordings, Mapping):
        raise RequestError(
            f"recordings is {type(recordings).__name__}: give a Raw or Epochs of MNE, or {{subject: recording}}"
        )
    for subject, held in recordings.items():
        sessions = held if isinstance(held, Mapping) else {"1": held}
        for session, runs in sessions.items():
            for run, one in enumerate(runs if isinstance(runs, Sequence) else [runs], 1):
                if not is_mne(one):
                    raise RequestError(
                        f"recordings: of subject {subject!r} there is {type(one).__name__}, no Raw or Epochs of MNE"
                    )
                file = f"{subject} session {session} run {run}{_file(one)}"
                yield Recording(file=file, subject=str(subject), session=str(session), run=str(run)), one


def _file(thing: Any) -> str:
    """The name of the file that an object was read from, where there is one."""
    names = getattr(thing, "filenames", None) or [getattr(thing, "filename", None)]
    return f" ({Path(names[0]).name})" if names[0] is not None else ""


def _windows(
    thing: Any, about: Recording, window: Window | None, steps: Preprocessing | None
) -> xr.DataArray | None:
    epoched = hasattr(thing, "event_id")
    if window is None and not epoched:
        raise RequestError(
            f"{about.file} is continuous: say which parts are windows, `neuroledger.windows(raw, "
            'window={"start": 0.0, "duration": 1.0, "labels": {EVENT: LABEL}})`'
        )
    with quiet_mne():
        thing = thing.copy().load_data()
        steps = steps or _as_it_is(thing)
        sha256 = hashlib.sha256(np.ascontiguousarray(thing.get_data()).data).hexdigest()
    if window is not None and not epoched:
        return windows_of(thing, about, window, steps, sha256=sha256)
    rate = float(thing.info["sfreq"])
    window = window or Window(
        start=float(thing.times[0]),
        duration=len(thing.times) / rate,
        labels={name: name for name in thing.event_id},
    )
    known = () if thing.metadata is None else map(str, thing.metadata.columns)
    said = metadata_of(thing, [name for name in known if name not in GIVEN], about.file)
    whose = {name: said.pop(name).astype(str) for name in WHOSE if name in said}
    found = windows_of_epochs(thing, about, window, steps, sha256=sha256, columns=said)
    if not whose:
        return found
    rows = found["epoch"].values
    named = {name: values[rows] for name, values in whose.items()}
    homes = zip(*named.values(), strict=True)
    named["recording"] = np.array([f"{about.file} {' '.join(home)}" for home in homes])
    return found.assign_coords({name: ("presentation", values) for name, values in named.items()})


def _as_it_is(thing: Any) -> Preprocessing:
    """The data channels, without a step."""
    kinds = tuple(thing.get_channel_types(picks="data", unique=True))
    magnetic = MAGNETIC & set(kinds)
    if not magnetic:
        return Preprocessing(pick=kinds, units="uV")
    return Preprocessing(pick=kinds, units="fT" if magnetic == set(kinds) else "arbitrary")
