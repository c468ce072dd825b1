"""A recording is opened by what its file's ending says: by MNE, or by the formats that MNE does not read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from neuroledger.data.hdf5 import array, opened
from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.beyond_ends import note_markers, note_unscaled, omitted, remarks
from neuroledger.families.signals.recordings.sample_tables import TABLES, SampleTable, read_sample_table
from neuroledger.families.signals.recordings.signal_preprocessing import quiet_mne
from neuroledger.families.signals.recordings.wfdb import read_night
from neuroledger.families.signals.recordings.xdf_streams import Streams, read_xdf

__all__ = ["EPOCHS", "XDF", "open_epochs", "open_recording", "require_believed"]

XDF: Final = frozenset({".xdf", ".xdfz"})
EPOCHS: Final = re.compile(r"([-_]epo\.fif(\.gz)?|\.set)$")
"""Endings of files that may hold epochs."""
DISBELIEVED: Final = re.compile(
    r"Number of records from the header|Header information is incorrect for record length"
)
"""Remarks of MNE after which it goes on with a length or rate of its own."""
SAY: Final = "holds epochs, not a continuous recording: say `epoched: true` in the reader"


def open_recording(path: Path, *, table: SampleTable | None = None, streams: Streams | None = None) -> Any:
    """MNE's `Raw` of one file, its samples still on the disk where the format allows it.

    Raises
    ------
    DataError
        The file is damaged or of another format, or what it needs to be understood is not said.
    UnavailableError
        MNE, or the package for this format, is not installed.
    """
    with quiet_mne(), remarks() as said:
        raw = _opened(path, table, streams)
    require_believed(path, said)
    note_markers(raw, omitted(said))
    note_unscaled(raw, said)
    return raw


def require_believed(path: Path, said: Sequence[str]) -> None:
    """Return if MNE took a recording for what its header states, by its remarks.

    Raises
    ------
    DataError
        It guessed a rate or length that the header states otherwise.
    """
    wrong = [one for one in said if DISBELIEVED.match(one)]
    if wrong and "Number of records" in wrong[0] and _is_unfinished(path):
        wrong = wrong[1:]
    if wrong:
        what = " ".join(wrong[0].split()).rstrip(".")
        raise DataError(
            f"{path.name}: its header is not true of the file, and MNE would guess ({what}): fetch it again, or ask who "
            "published it"
        )


def _is_unfinished(path: Path) -> bool:
    """Whether an EDF or BDF file states -1 records, as the format says of one that was not closed."""
    with path.open("rb") as file:
        return file.read(256)[236:244].strip() == b"-1"


def _opened(path: Path, table: SampleTable | None, streams: Streams | None) -> Any:
    import mne

    suffix = path.suffix.lower()
    if suffix in XDF:
        return read_xdf(path, streams)
    if suffix in TABLES:
        return read_sample_table(path, table)
    if re.search(r"[-_]epo\.fif(\.gz)?$", path.name):
        raise DataError(f"{path.name} {SAY}")
    with parsing(path, "a recording by MNE"):
        if suffix == ".hea":
            return read_night(path)
        if suffix == ".vhdr":
            _names_its_own(path)
        try:
            raw = mne.io.read_raw(path, preload=False)
        except TypeError as error:
            if suffix == ".set" and "number of trials" in str(error):
                raise DataError(f"{path.name} {SAY}") from error
            raise
    _lies_here(path, raw)
    if suffix == ".set":
        _is_as_long_as_it_says(path, raw)
    return raw


def _lies_here(path: Path, raw: Any) -> None:
    """Return if the samples of a recording are in its folder and within reach: no pin covers those of others."""
    folder = os.path.normpath(path.parent.absolute())
    for name in filter(None, raw.filenames):
        place = Path(os.path.normpath(Path(name).absolute()))
        if not place.is_relative_to(folder):
            raise DataError(
                f"{path.name}: its samples are in {str(name)!r}, out of its folder: put both into one, and pin them anew"
            )
        if place.is_dir():
            continue
        try:
            place.open("rb").close()
        except OSError as error:
            words = "which is not here or is no file of the data set: pin it"
            raise DataError(f"{path.name}: its samples are in {place.name!r}, {words}") from error


def _is_as_long_as_it_says(path: Path, raw: Any) -> None:
    """Return if a file of EEGLAB holds as many samples as it states; MNE takes those that are there."""
    stated = _stated_samples(path)
    if stated is not None and stated != raw.n_times:
        raise DataError(
            f"{path.name} states {stated:,} samples and holds {raw.n_times:,}: it was cut short, fetch it again"
        )


def _stated_samples(path: Path) -> int | None:
    """`pnts` of a file of EEGLAB, whose fields are variables or those of one; None where it states none."""
    from scipy.io import whosmat

    with path.open("rb") as file:
        new = b"MATLAB 7.3" in file.read(128)
    if new:
        with opened(path) as held:
            found = held.get("pnts", held.get("EEG/pnts"))
            return None if found is None else int(array(found, path).ravel()[0])
    with parsing(path, "a file of EEGLAB"):
        flat = {name for name, *_ in whosmat(path)}
        if "pnts" in flat:
            return int(matlab(path, "pnts", structs="dicts")["pnts"])
        told = matlab(path, "EEG", structs="dicts")["EEG"] if "EEG" in flat else {}
        return int(told["pnts"]) if "pnts" in told else None


def _names_its_own(header: Path) -> None:
    """Return if the header of BrainVision names files of its own folder: no pin covers others."""
    text = header.read_bytes().decode("latin-1")
    for key, said in re.findall(
        r"^\s*(DataFile|MarkerFile)\s*[=:]\s*(.*?)\s*$", text, re.MULTILINE | re.IGNORECASE
    ):
        if len(PurePosixPath(said.replace("\\", "/")).parts) > 1:
            raise DataError(
                f"{header.name}: {key} is {said!r}, which leads out of its folder: write the name of a file beside it, and "
                "pin the header anew"
            )


def open_epochs(path: Path) -> Any:
    """MNE's `Epochs` of one file, `.set` of EEGLAB or `-epo.fif` of MNE.

    Raises
    ------
    DataError
        The file is damaged, of another format, or holds a continuous recording.
    UnavailableError
        MNE is not installed.
    """
    with quiet_mne() as mne:
        if not EPOCHS.search(path.name):
            raise DataError(f"{path.name}: epochs are read from `.set` and `-epo.fif`")
        with parsing(path, "epochs by MNE"):
            if path.suffix == ".set":
                try:
                    return _named(mne.read_epochs_eeglab(path), path)
                except ValueError as error:
                    if "trials less than 2" in str(error):
                        raise DataError(
                            f"{path.name} holds a continuous recording: leave out `epoched`"
                        ) from error
                    raise
            return mne.read_epochs(path, preload=True)


def _named(epochs: Any, path: Path) -> Any:
    """Epochs of EEGLAB, each named by the event at its zero; MNE names them by all events that they hold."""
    from scipy.io import whosmat

    # Newer versions of EEGLAB write the fields, older ones a structure of them.
    flat = "epoch" in {name for name, *_ in whosmat(path)}
    told = matlab(path, "epoch", structs="dicts") if flat else matlab(path, "EEG", structs="dicts")["EEG"]
    names, half = [], 500.0 / float(epochs.info["sfreq"])
    for number, fields in enumerate(np.atleast_1d(told["epoch"]).tolist(), 1):
        kinds, times = (np.atleast_1d(fields[key]).tolist() for key in ("eventtype", "eventlatency"))
        at_zero = [str(kind) for kind, time in zip(kinds, times, strict=True) if abs(float(time)) <= half]
        if len(at_zero) != 1:
            raise DataError(
                f"{path.name}: epoch {number} has {len(at_zero)} events at its zero, not one; it holds "
                f"{', '.join(map(str, kinds)) or 'none'}"
            )
        names += at_zero
    codes = {name: code for code, name in enumerate(sorted(set(names)), 1)}
    epochs.event_id = codes
    epochs.events[:, 2] = [codes[name] for name in names]
    # Latencies count from the beginning of the file, in which epochs follow each other.
    epochs.events[:, 0] = np.arange(len(names)) * len(epochs.times)
    return epochs
