"""Recordings of several laboratories, whose headers may be in archives."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import field_validator

from neuroledger.data.file_names import expression
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import (
    UNREADABLE,
    open_raw,
    plain,
)
from neuroledger.families.signals.language.word_triggers import Marker
from neuroledger.families.signals.recordings.signal_preprocessing import quiet_mne
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = ["Laboratory", "Session", "markers_of", "names_of", "opened", "sessions_in"]

MARKER = re.compile(r"(?:Stimulus/)?S\s*(\d+)", re.IGNORECASE)
ENDINGS = (".vhdr", ".eeg", ".bdf")
PARTS = (".vhdr", ".vmrk", ".eeg", ".dat")


class Laboratory(Frozen):
    """The folder of a laboratory's recordings, and the pattern of their names.

    `folder` is the end of the folder's path. `recording` is the pattern of each recording's `.bdf` or `.vhdr`, or of its
    samples (`.eeg`) if headers are in archives: `{subject}` matches digits, `{task}` letters, and `*` any part that the
    header's name lacks; case is ignored. `archives` are ZIP files in the folder with the headers and markers of BrainVision
    recordings, or with complete recordings. `leave_out` are numbers of subjects.
    """

    folder: str
    recording: str
    archives: tuple[str, ...] = ()
    leave_out: tuple[int, ...] = ()

    @field_validator("recording")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        if pattern.count("{subject}") != 1 or not pattern.endswith(ENDINGS):
            raise ValueError(
                f"{pattern!r}: the pattern must contain {{subject}} once, and end in .vhdr, .eeg or .bdf"
            )
        return pattern

    @property
    def expression(self) -> re.Pattern[str]:
        """The pattern of names as a regular expression."""
        return expression(
            self.recording,
            values=(("subject", r"\d+"), ("task", "[A-Za-z]+")),
            many=".*?",
            flags=re.IGNORECASE,
        )

    def stem(self, match: re.Match[str]) -> str:
        """Name of the header of a recording, without its suffix."""
        text = PurePosixPath(self.recording).stem.replace("*", "")
        for name, value in match.groupdict().items():
            text = text.replace(f"{{{name}}}", value)
        return text


class Session(NamedTuple):
    """One recording: its name, its header's stem, subject, task, file, and the archives that may contain further parts."""

    name: str
    stem: str
    subject: str
    task: str
    file: str
    archives: tuple[str, ...]


def sessions_in(
    names: Iterable[str],
    laboratories: Mapping[str, Laboratory],
    files: Mapping[str, Path] | None = None,
) -> list[Session]:
    """The recordings of all laboratories, in order; with `files`, also those in archives.

    Raises
    ------
    DataError
        A laboratory has no recordings, an archive is missing, or two recordings are of the same subject and task.
    """
    known = list(names)
    sessions: list[Session] = []
    for laboratory, rule in laboratories.items():
        inside = [
            name
            for name in known
            if f"/{plain(name)}".rpartition("/")[0].endswith(
                f"/{plain(rule.folder + '/')[:-1]}"
            )
        ]
        archives = []
        for archive_name in rule.archives:
            matches = [
                name
                for name in inside
                if PurePosixPath(name).name.lower()
                == _pinned_name(archive_name).lower()
            ]
            matches = matches or [
                name
                for name in inside
                if PurePosixPath(name).name.lower() == archive_name.lower()
            ]
            if not matches:
                raise DataError(
                    f"{laboratory} lacks {rule.folder}/{archive_name}, which contains headers and markers: add it"
                )
            archives.append(matches[0])
        candidates = [(name, PurePosixPath(name).name) for name in inside]
        if files is not None:
            candidates += [
                (archive, name)
                for archive in archives
                for name in _members(files[archive], archive)
            ]
        own: dict[tuple[int, str], Session] = {}
        for file, name in candidates:
            match = rule.expression.fullmatch(PurePosixPath(name).name)
            if match is None or int(match["subject"]) in rule.leave_out:
                continue
            task = match.groupdict().get("task") or "1"
            key = (int(match["subject"]), task.lower())
            if key in own:
                raise DataError(
                    f"{laboratory}: {own[key].file} and {file} are both of subject {key[0]}: keep one"
                )
            subject = f"{laboratory}_{key[0]}"
            own[key] = Session(
                PurePosixPath(name).name,
                rule.stem(match),
                subject,
                key[1],
                file,
                tuple(archives),
            )
        if not own and (files is not None or not archives):
            raise DataError(
                f"{laboratory} has no recordings {rule.folder}/{rule.recording}: add them, or correct the pattern"
            )
        sessions += [own[key] for key in sorted(own)]
    return sessions


def _pinned_name(name: str) -> str:
    """The name that pinning gives to a file."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name)


def _members(path: Path, name: str) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [
                member
                for member in archive.namelist()
                if not member.startswith("__MACOSX")
            ]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{name} is not a ZIP archive ({error}): it is damaged or incomplete"
        ) from error


@contextmanager
def opened(session: Session, files: Mapping[str, Path]) -> Iterator[BaseRaw]:
    """Context with MNE's `Raw` of a recording; parts in archives are unpacked to a temporary folder.

    Raises
    ------
    DataError
        A part is missing, or MNE cannot read it.
    """
    if session.name.lower().endswith(".bdf"):
        yield open_raw(files[session.file], session.file)
        return
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        target = Path(folder)
        header = target / f"{session.stem}.vhdr"
        _provide(session, files, [header.name], header)
        samples, markers = (
            _name_in_header(header, key) for key in ("DataFile", "MarkerFile")
        )
        if session.name.lower().endswith(".eeg"):
            own = [session.name]
        else:
            own = []
        _provide(
            session,
            files,
            [*own, samples, f"{session.stem}.eeg", f"{session.stem}.dat"],
            target / samples,
        )
        _provide(session, files, [f"{session.stem}.vmrk", markers], target / markers)
        yield open_raw(header, session.file)


def _name_in_header(header: Path, key: str) -> str:
    """Name of the file of samples or markers in a header."""
    text = header.read_bytes().decode("latin-1")
    match = re.search(rf"^{key}=(.+?)\s*$", text, re.MULTILINE)
    name = (
        match[1].replace("$b", header.stem).replace("\\", "/").rpartition("/")[2]
        if match
        else ""
    )
    if not name:
        raise DataError(
            f"{header.name} has no line {key}=: it is not a header of BrainVision"
        )
    return name


def _provide(
    session: Session, files: Mapping[str, Path], names: Sequence[str], target: Path
) -> None:
    """Link or unpack the first of these parts of a recording, from its folder or an archive, as `target`."""
    folder = PurePosixPath(session.file).parent
    siblings = {
        PurePosixPath(file).name.lower(): path
        for file, path in files.items()
        if PurePosixPath(file).parent == folder
    }
    for name in names:
        if name.lower() in siblings:
            target.symlink_to(siblings[name.lower()].resolve())
            return
        for archive in session.archives:
            for member in _members(files[archive], archive):
                if PurePosixPath(member).name.lower() == name.lower():
                    with (
                        zipfile.ZipFile(files[archive]) as unzipped,
                        unzipped.open(member) as source,
                        target.open("wb") as copy,
                    ):
                        shutil.copyfileobj(source, copy)
                    return
    archives = ", ".join(PurePosixPath(archive).name for archive in session.archives)
    raise DataError(
        f"{session.file} lacks {names[0]}: it is neither in the same folder nor in "
        f"{archives or 'an archive'}; add it, or list the subject under `leave_out`"
    )


def markers_of(raw: BaseRaw, name: str) -> list[Marker]:
    """The triggers of a recording: its stimulus markers, or the low byte of BioSemi's status channel.

    Raises
    ------
    DataError
        There are no triggers.
    """
    rate = float(raw.info["sfreq"])
    if "Status" in raw.ch_names:
        with quiet_mne() as mne:
            try:
                events = mne.find_events(
                    raw,
                    stim_channel="Status",
                    shortest_event=1,
                    mask=0xFF,
                    mask_type="and",
                )
            except UNREADABLE as error:
                raise DataError(
                    f"{name}: its triggers cannot be read ({error})"
                ) from error
        markers = [
            Marker(float(at - raw.first_samp) / rate, int(code))
            for at, _, code in np.asarray(events)
        ]
    else:
        annotations = zip(
            raw.annotations.onset, raw.annotations.description, strict=True
        )
        matches = [
            (float(onset), MARKER.fullmatch(str(text).strip()))
            for onset, text in annotations
        ]
        markers = [
            Marker(onset, int(match[1]))
            for onset, match in matches
            if match is not None
        ]
    if not markers:
        raise DataError(
            f"{name} has no triggers, so the sentences that were read are unknown"
        )
    return markers


def names_of(sessions: Sequence[Session], names: Sequence[str]) -> list[str]:
    """The files of these recordings: samples, other parts with the same stem, and archives."""
    chosen: set[str] = set()
    for session in sessions:
        stems = {PurePosixPath(session.name).stem.lower(), session.stem.lower()}
        folder = PurePosixPath(session.file).parent
        chosen |= {session.file, *session.archives}
        chosen |= {
            name
            for name in names
            if PurePosixPath(name).parent == folder
            and PurePosixPath(name).stem.lower() in stems
            and PurePosixPath(name).suffix.lower() in PARTS
        }
    return sorted(chosen)
