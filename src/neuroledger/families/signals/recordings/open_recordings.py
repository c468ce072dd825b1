"""Opening of recordings by file suffix: by MNE, or by this package for formats that MNE does not read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from neuroledger.data.arrays import floats
from neuroledger.data.hdf5 import array, opened
from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.clocks.channel_rates import note_rates
from neuroledger.families.signals.clocks.edf_files import edf_timeline, read_edf_header
from neuroledger.families.signals.clocks.timelines import (
    note_rate,
    note_timeline,
    timeline_of,
)
from neuroledger.families.signals.recordings.beyond_ends import (
    mne_warnings,
    note_markers,
    note_unscaled,
    omitted,
)
from neuroledger.families.signals.recordings.companions import problems_of
from neuroledger.families.signals.recordings.sample_tables import (
    TABLES,
    SampleTable,
    read_sample_table,
)
from neuroledger.families.signals.recordings.signal_preprocessing import quiet_mne
from neuroledger.families.signals.recordings.signal_spans import Span, note_spans
from neuroledger.families.signals.recordings.snirf import read_snirf
from neuroledger.families.signals.recordings.wfdb import read_night
from neuroledger.families.signals.recordings.xdf_streams import Streams, read_xdf

if TYPE_CHECKING:
    from mne import BaseEpochs
    from mne.io import BaseRaw

__all__ = [
    "EPOCHS",
    "note_clock",
    "open_epochs",
    "open_recording",
    "require_believed",
    "require_gapless",
    "samples_stated",
    "XDF",
]

XDF: Final = frozenset({".xdf", ".xdfz"})
EPOCHS: Final = re.compile(r"([-_]epo\.fif(\.gz)?|\.set)$")
"""Suffixes of files that may contain epochs."""
DISBELIEVED: Final = re.compile(
    r"Number of records from the header|Header information is incorrect for record length"
)
"""Warnings of MNE after which it uses a length or rate that differs from the header."""
EPOCHED: Final = (
    "contains epochs, not a continuous recording: set `epoched: true` in the reader"
)


def open_recording(
    path: Path, *, table: SampleTable | None = None, streams: Streams | None = None
) -> BaseRaw:
    """MNE's `Raw` of one file; its samples stay on disk if the format allows it.

    Raises
    ------
    DataError
        The file is damaged or of another format, or parameters that its format needs are missing.
    UnavailableError
        MNE, or the package for this format, is not installed.
    """
    with quiet_mne(), mne_warnings() as messages:
        raw = _opened(path, table, streams)
    require_believed(path, messages)
    if not note_clock(path, raw):
        note_markers(raw, omitted(messages))
    note_unscaled(raw, messages)
    return raw


def note_clock(path: Path, raw: BaseRaw) -> bool:
    """Note the rates of the channels of an EDF, BDF or GDF file and its gaps; whether it has gaps.

    MNE interpolates slower channels, and reads records one after another, without the times at which they begin.
    """
    import mne

    suffix = path.suffix.lower()
    if suffix == ".gdf":
        extras = raw._raw_extras[0]
        samples = floats(extras["n_samps"])[np.asarray(extras["sel"], dtype=int)]
        if len(samples) == len(raw.ch_names):
            rates = samples / samples.max() * float(raw.info["sfreq"])
            note_rates(raw, dict(zip(raw.ch_names, rates.tolist(), strict=True)))
        return False
    header = None
    if suffix in (".edf", ".bdf"):
        header = read_edf_header(path)
    if header is None:
        return False
    if len(header.channels) == len(raw.ch_names):
        rates = {
            name: header.rates[number]
            for name, number in zip(raw.ch_names, header.channels, strict=True)
        }
        note_rates(raw, rates)
    timeline = edf_timeline(path, header, float(raw.info["sfreq"]))
    if timeline is None or len(timeline.parts) < 2:
        return False
    with parsing(path, "annotations of EDF+"):
        annotations = mne.read_annotations(path)
    note_timeline(raw, timeline)
    note_spans(
        raw,
        [
            Span(float(onset), float(duration), str(text))
            for onset, duration, text in zip(
                annotations.onset,
                annotations.duration,
                annotations.description,
                strict=True,
            )
        ],
    )
    return True


def require_gapless(path: Path, raw: BaseRaw, name: str, advice: str) -> None:
    """Note the clock of a recording that another package opened, and return if it has no gaps.

    Raises
    ------
    DataError
        It has gaps, which the package does not know, so that its events would be at the wrong samples.
    """
    if path.is_file() and note_clock(path, raw):
        first = timeline_of(raw).gaps[0]
        raise DataError(
            f"{name} has {len(timeline_of(raw).gaps)} gaps, the first of {first.seconds:g} s at {first.begin:g} s: {advice}"
        )


def require_believed(path: Path, messages: Sequence[str]) -> None:
    """Return if MNE's warnings show no disagreement between a recording and its header.

    Raises
    ------
    DataError
        MNE guessed a rate or length that differs from the header.
    """
    warnings = [message for message in messages if DISBELIEVED.match(message)]
    if warnings and "Number of records" in warnings[0] and _is_unfinished(path):
        warnings = warnings[1:]
    if warnings:
        warning = " ".join(warnings[0].split()).rstrip(".")
        raise DataError(
            f"{path.name}: its header does not match the file, and MNE would guess ({warning}): ask the "
            "publisher"
        )


def _is_unfinished(path: Path) -> bool:
    """Whether an EDF or BDF file states -1 records, which marks a file that was not closed."""
    with path.open("rb") as file:
        return file.read(256)[236:244].strip() == b"-1"


def _opened(path: Path, table: SampleTable | None, streams: Streams | None) -> BaseRaw:
    import mne

    suffix = path.suffix.lower()
    if suffix in XDF:
        return read_xdf(path, streams)
    if suffix in TABLES:
        raw = read_sample_table(path, table)
        note_rate(raw, "declared")
        return raw
    if re.search(r"[-_]epo\.fif(\.gz)?$", path.name):
        raise DataError(f"{path.name} {EPOCHED}")
    with parsing(path, "a recording by MNE"):
        if suffix in (".hea", ".vhdr"):
            _require_own_files(path)
        _require_reader_of_hdf5(path)
        if suffix == ".hea":
            return read_night(path)
        if suffix == ".snirf":
            return read_snirf(path)
        if suffix == ".raw":
            return mne.io.read_raw_egi(path, preload=False, events_as_annotations=True)
        try:
            raw = mne.io.read_raw(path, preload=False)
        except TypeError as error:
            if suffix == ".set" and "number of trials" in str(error):
                raise DataError(f"{path.name} {EPOCHED}") from error
            raise
    _require_samples_in_folder(path, raw)
    if suffix == ".set":
        _require_stated_length(path, raw)
    return raw


def _require_samples_in_folder(path: Path, raw: BaseRaw) -> None:
    """Return if the samples of a recording are in its folder and readable; pins do not cover files elsewhere."""
    folder = os.path.normpath(path.parent.absolute())
    for name in filter(None, raw.filenames):
        place = Path(os.path.normpath(Path(name).absolute()))
        if not place.is_relative_to(folder):
            raise DataError(
                f"{path.name}: its samples are in {str(name)!r}, outside its folder: put both in one folder, and pin again"
            )
        if place.is_dir():
            continue
        try:
            place.open("rb").close()
        except OSError as error:
            raise DataError(
                f"{path.name}: its samples are in {place.name!r}, which is missing or not a file of the data set: pin it"
            ) from error


def _require_reader_of_hdf5(path: Path) -> None:
    """Require the package by which MNE reads files of EEGLAB of MATLAB's version 7.3.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    if (
        path.suffix.lower() == ".set"
        and _is_hdf5(path)
        and find_spec("pymatreader") is None
    ):
        raise UnavailableError(
            f"{path.name} is of MATLAB's version 7.3, for which MNE needs the package pymatreader; it is not installed",
            "pip install pymatreader",
        )


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        return b"MATLAB 7.3" in file.read(128)


def _require_stated_length(path: Path, raw: BaseRaw) -> None:
    """Return if a file of EEGLAB contains as many samples as it states, which MNE does not check."""
    stated_samples = samples_stated(path)
    if stated_samples is not None and stated_samples != raw.n_times:
        raise DataError(
            f"{path.name} states {stated_samples:,} samples but contains {raw.n_times:,}: it is truncated"
        )


def samples_stated(path: Path) -> int | None:
    """`pnts` of a file of EEGLAB, a variable or a field of `EEG`; None if the file does not state it."""
    from scipy.io import whosmat

    if _is_hdf5(path):
        with opened(path) as content:
            pnts = content.get("pnts", content.get("EEG/pnts"))
            if pnts is None:
                return None
            return int(array(pnts, path).ravel()[0])
    with parsing(path, "a file of EEGLAB"):
        names = {name for name, *_ in whosmat(path)}
        if "pnts" in names:
            return int(matlab(path, "pnts", structs="dicts")["pnts"])
        if "EEG" in names:
            eeg = matlab(path, "EEG", structs="dicts")["EEG"]
        else:
            eeg = {}
        if "pnts" in eeg:
            return int(eeg["pnts"])
        return None


def _require_own_files(header: Path) -> None:
    """Return if a header names files of its own folder that exist; pins do not cover files elsewhere."""
    problems = problems_of(header, lambda name: header.with_name(name).is_file())
    if problems:
        raise DataError("; ".join(problems))


def open_epochs(path: Path) -> BaseEpochs:
    """MNE's `Epochs` of one file, `.set` of EEGLAB or `-epo.fif` of MNE.

    Raises
    ------
    DataError
        The file is damaged, of another format, or contains a continuous recording.
    UnavailableError
        MNE is not installed.
    """
    with quiet_mne() as mne:
        if not EPOCHS.search(path.name):
            raise DataError(f"{path.name}: epochs are read from `.set` and `-epo.fif`")
        with parsing(path, "epochs by MNE"):
            _require_reader_of_hdf5(path)
            if path.suffix == ".set":
                try:
                    return _with_event_names(mne.read_epochs_eeglab(path), path)
                except ValueError as error:
                    if "trials less than 2" in str(error):
                        raise DataError(
                            f"{path.name} contains a continuous recording: remove `epoched`"
                        ) from error
                    raise
            return mne.read_epochs(path, preload=True)


def _with_event_names(epochs: BaseEpochs, path: Path) -> BaseEpochs:
    """Epochs of EEGLAB named by the event at time zero; MNE names them by all events that they contain."""
    from scipy.io import whosmat

    # Newer versions of EEGLAB write the fields as variables, older ones as a structure.
    flat = "epoch" in {name for name, *_ in whosmat(path)}
    eeg = (
        matlab(path, "epoch", structs="dicts")
        if flat
        else matlab(path, "EEG", structs="dicts")["EEG"]
    )
    names = []
    half = 500.0 / float(epochs.info["sfreq"])
    for number, fields in enumerate(np.atleast_1d(eeg["epoch"]).tolist(), 1):
        types, times = (
            np.atleast_1d(fields[key]).tolist() for key in ("eventtype", "eventlatency")
        )
        at_zero = [
            str(kind)
            for kind, time in zip(types, times, strict=True)
            if abs(float(time)) <= half
        ]
        if len(at_zero) != 1:
            raise DataError(
                f"{path.name}: epoch {number} has {len(at_zero)} events at time zero, not one; its events are "
                f"{', '.join(map(str, types)) or 'none'}"
            )
        names += at_zero
    codes = {name: code for code, name in enumerate(sorted(set(names)), 1)}
    epochs.event_id = codes
    epochs.events[:, 2] = [codes[name] for name in names]
    # Latencies count from the beginning of the file, in which epochs are consecutive.
    epochs.events[:, 0] = np.arange(len(names)) * len(epochs.times)
    return epochs
