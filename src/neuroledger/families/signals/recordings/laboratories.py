"""Recordings of several laboratories: which there are, and each opened, though its header may lie in an archive."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from pydantic import field_validator

from neuroledger.data.file_names import expression
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import UNREADABLE, open_raw, plain
from neuroledger.families.signals.language.word_triggers import Marker
from neuroledger.families.signals.recordings.signal_preprocessing import quiet_mne
from neuroledger.spec.base import Frozen

__all__ = ["Laboratory", "Session", "markers_of", "names_of", "opened", "sessions_in"]

MARKER = re.compile(r"(?:Stimulus/)?S\s*(\d+)", re.IGNORECASE)
ENDINGS = (".vhdr", ".eeg", ".bdf")
PARTS = (".vhdr", ".vmrk", ".eeg", ".dat")


class Laboratory(Frozen):
    """Where the recordings of one laboratory lie, and what they are called.

    `folder` is the end of its path. `recording` is the name of each recording's `.bdf` or `.vhdr`, or, where headers lie in
    archives, of its samples (`.eeg`), with `{subject}` for digits, `{task}` for letters and `*` for what the header is not
    called; the case of letters does not matter. `archives` are ZIP files in the folder with the headers and markers of
    BrainVision recordings, or with whole recordings. `leave_out` are numbers of subjects.
    """

    folder: str
    recording: str
    archives: tuple[str, ...] = ()
    leave_out: tuple[int, ...] = ()

    @field_validator("recording")
    @classmethod
    def _readable(cls, pattern: str) -> str:
        if pattern.count("{subject}") != 1 or not pattern.endswith(ENDINGS):
            raise ValueError(
                f"{pattern!r}: a recording has {{subject}} once in its name, and ends in .vhdr, .eeg or .bdf"
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
        """What the header of a recording is called, without its ending."""
        text = PurePosixPath(self.recording).stem.replace("*", "")
        for name, value in match.groupdict().items():
            text = text.replace(f"{{{name}}}", value)
        return text


class Session(NamedTuple):
    """One recording: what it and its header are called, whose it is, its file, and the archives that may complete it."""

    name: str
    stem: str
    subject: str
    task: str
    file: str
    archives: tuple[str, ...]


def sessions_in(
    names: Iterable[str], laboratories: Mapping[str, Laboratory], files: Mapping[str, Path] | None = None
) -> list[Session]:
    """The recordings of all laboratories, in order; those in archives too where the `files` can be looked into.

    Raises
    ------
    DataError
        A laboratory has no recordings, an archive is missing, or two recordings are of the same subject and task.
    """
    known = list(names)
    found: list[Session] = []
    for laboratory, rule in laboratories.items():
        here = [
            name
            for name in known
            if f"/{plain(name)}".rpartition("/")[0].endswith(f"/{plain(rule.folder + '/')[:-1]}")
        ]
        archives = []
        for wanted in rule.archives:
            held = [name for name in here if PurePosixPath(name).name.lower() == _placed(wanted).lower()]
            held = held or [name for name in here if PurePosixPath(name).name.lower() == wanted.lower()]
            if not held:
                raise DataError(
                    f"{laboratory} lacks {rule.folder}/{wanted}, with headers and markers of recordings"
                )
            archives.append(held[0])
        candidates = [(name, PurePosixPath(name).name) for name in here]
        if files is not None:
            candidates += [(one, name) for one in archives for name in _members(files[one], one)]
        mine: dict[tuple[int, str], Session] = {}
        for file, name in candidates:
            match = rule.expression.fullmatch(PurePosixPath(name).name)
            if match is None or int(match["subject"]) in rule.leave_out:
                continue
            task = match.groupdict().get("task") or "1"
            key = (int(match["subject"]), task.lower())
            if key in mine:
                raise DataError(
                    f"{laboratory}: {mine[key].file} and {file} are both of subject {key[0]}: keep one"
                )
            subject = f"{laboratory}_{key[0]}"
            mine[key] = Session(
                PurePosixPath(name).name, rule.stem(match), subject, key[1], file, tuple(archives)
            )
        if not mine and (files is not None or not archives):
            raise DataError(f"{laboratory} has no recordings {rule.folder}/{rule.recording} among the files")
        found += [mine[key] for key in sorted(mine)]
    return found


def _placed(name: str) -> str:
    """A name as a pin writes it."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name)


def _members(path: Path, name: str) -> list[str]:
    try:
        with zipfile.ZipFile(path) as held:
            return [member for member in held.namelist() if not member.startswith("__MACOSX")]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{name} is no ZIP archive ({error}); get it again") from error


@contextmanager
def opened(session: Session, files: Mapping[str, Path]) -> Iterator[Any]:
    """MNE's `Raw` of a recording; parts that lie in archives are unpacked beside it for as long as it is open.

    Raises
    ------
    DataError
        A part is nowhere, or MNE cannot read it.
    """
    if session.name.lower().endswith(".bdf"):
        yield open_raw(files[session.file], session.file)
        return
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        place = Path(folder)
        header = place / f"{session.stem}.vhdr"
        _put(session, files, [header.name], header)
        samples, markers = (_called(header, key) for key in ("DataFile", "MarkerFile"))
        held = [session.name] if session.name.lower().endswith(".eeg") else []
        _put(session, files, [*held, samples, f"{session.stem}.eeg", f"{session.stem}.dat"], place / samples)
        _put(session, files, [f"{session.stem}.vmrk", markers], place / markers)
        yield open_raw(header, session.file)


def _called(header: Path, key: str) -> str:
    """What a header calls its samples or markers."""
    text = header.read_bytes().decode("latin-1")
    match = re.search(rf"^{key}=(.+?)\s*$", text, re.MULTILINE)
    named = match[1].replace("$b", header.stem).replace("\\", "/").rpartition("/")[2] if match else ""
    if not named:
        raise DataError(f"{header.name} has no line {key}=: it is no header of BrainVision")
    return named


def _put(session: Session, files: Mapping[str, Path], names: Sequence[str], target: Path) -> None:
    """The first of these parts of a recording that lies beside it or in an archive, as `target`."""
    folder = PurePosixPath(session.file).parent
    beside = {
        PurePosixPath(file).name.lower(): path
        for file, path in files.items()
        if PurePosixPath(file).parent == folder
    }
    for name in names:
        if name.lower() in beside:
            target.symlink_to(beside[name.lower()].resolve())
            return
        for archive in session.archives:
            for member in _members(files[archive], archive):
                if PurePosixPath(member).name.lower() == name.lower():
                    with (
                        zipfile.ZipFile(files[archive]) as held,
                        held.open(member) as source,
                        target.open("wb") as copy,
                    ):
                        shutil.copyfileobj(source, copy)
                    return
    among = ", ".join(PurePosixPath(one).name for one in session.archives)
    raise DataError(
        f"{session.file} lacks {names[0]}: it is not beside it{f' and not in {among}' if among else ''}; get it, or put the "
        "subject under `leave_out`"
    )


def markers_of(raw: Any, name: str) -> list[Marker]:
    """The triggers of a recording: its stimulus markers, or the low byte of BioSemi's status channel.

    Raises
    ------
    DataError
        There are none.
    """
    rate = float(raw.info["sfreq"])
    if "Status" in raw.ch_names:
        with quiet_mne() as mne:
            try:
                events = mne.find_events(
                    raw, stim_channel="Status", shortest_event=1, mask=0xFF, mask_type="and"
                )
            except UNREADABLE as error:
                raise DataError(f"{name}: its triggers cannot be read ({error})") from error
        found = [Marker(float(at - raw.first_samp) / rate, int(code)) for at, _, code in np.asarray(events)]
    else:
        told = zip(raw.annotations.onset, raw.annotations.description, strict=True)
        matches = [(float(onset), MARKER.fullmatch(str(said).strip())) for onset, said in told]
        found = [Marker(onset, int(match[1])) for onset, match in matches if match is not None]
    if not found:
        raise DataError(f"{name} has no triggers: what was read is unknown")
    return found


def names_of(sessions: Sequence[Session], names: Sequence[str]) -> list[str]:
    """The files of these recordings: samples, what lies beside them under the same name, and archives."""
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
