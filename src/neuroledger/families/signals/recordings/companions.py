"""The other files of a recording, as its header names them: BrainVision, PhysioNet and EEGLAB."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.wfdb import files_of, read_header

__all__ = ["Named", "named_files", "problems_of", "sample_files"]

SIGNALS: Final = "DataFile"
LINE: Final = re.compile(
    r"^[ \t]*(DataFile|MarkerFile)[ \t]*[=:][ \t]*(.*?)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)


class Named(NamedTuple):
    """A file that a header names: by which line, empty if the header has no such line, and whether it must exist."""

    line: str
    name: str
    required: bool = True


def named_files(header: Path) -> list[Named]:
    """The files that the header of a recording names, in order; empty for formats whose header names none.

    Raises
    ------
    DataError
        The header cannot be read.
    """
    suffix = header.suffix.lower()
    if suffix == ".vhdr":
        return _of_brainvision(header)
    if suffix == ".hea":
        return [Named("", name) for name in files_of(header)]
    if suffix == ".set":
        return _of_eeglab(header)
    return []


def _of_brainvision(header: Path) -> list[Named]:
    """Samples, and markers if the header names a file of them; `$b` is the header's own name."""
    with parsing(header, "a header of BrainVision"):
        text = header.read_bytes().decode("latin-1").replace("\r\n", "\n")
    found: dict[str, Named] = {}
    for key, value in LINE.findall(text):
        line = SIGNALS if key.lower() == SIGNALS.lower() else "MarkerFile"
        if value:
            found.setdefault(line, Named(line, value.replace("$b", header.stem)))
    if SIGNALS not in found:
        raise DataError(
            f"{header.name} has no line {SIGNALS}=: it is not a header of BrainVision"
        )
    return [found[line] for line in (SIGNALS, "MarkerFile") if line in found]


def _of_eeglab(path: Path) -> list[Named]:
    """The file of samples of EEGLAB, `.fdt`; files of one part, and those of version 7.3, name none."""
    own = path.with_suffix(".fdt")
    if own.is_file():
        return [Named("", own.name)]
    if not any(path.parent.glob("*.fdt")):
        return []
    with path.open("rb") as file:
        if b"MATLAB 7.3" in file.read(128):
            return []
    content = matlab(path, structs="dicts")
    fields: Mapping[str, object] = content.get("EEG", content)
    name = fields.get("data")
    if isinstance(name, str) and name.endswith(".fdt"):
        return [Named("datfile", name)]
    return []


def problems_of(header: Path, exists: Callable[[str], bool]) -> list[str]:
    """Messages about the files that a header names but that are outside its folder, or do not exist.

    Parameters
    ----------
    header
        The header's file.
    exists
        Whether a file of this name is in the folder of the header.
    """
    problems = []
    for named in named_files(header):
        where = (
            f"line {named.line}="
            if named.line and header.suffix.lower() == ".vhdr"
            else "the header"
        )
        if len(PurePosixPath(named.name.replace("\\", "/")).parts) > 1:
            problems.append(
                f"{header.name} names {named.name!r}, outside its folder: correct {where} to the name of a file in the same "
                "folder, and pin again"
            )
        elif not exists(named.name):
            problems.append(
                f"{header.name} names {named.name}, which is not here{_instead(header, named, exists, where)}"
            )
    return problems


def _instead(
    header: Path, named: Named, exists: Callable[[str], bool], where: str
) -> str:
    """What to do about a file that is missing: name the one that has the header's own name, or add it."""
    own = f"{header.stem}{PurePosixPath(named.name).suffix}"
    if exists(own):
        return f"; {own} is: correct {where}"
    return f": add it, or correct {where}"


def sample_files(header: Path) -> list[Path]:
    """The files with the samples of a recording whose own file is a header; empty if its samples are in its own file.

    Raises
    ------
    DataError
        The header cannot be read.
    """
    suffix = header.suffix.lower()
    if suffix == ".hea":
        record = read_header(header)
        leads = record.leads if not record.segments else ()
        names = list(dict.fromkeys(lead.file for lead in leads)) or [
            name for name in files_of(header) if not name.endswith((".hea", ".atr"))
        ]
        return [header.with_name(name) for name in names]
    if suffix in (".vhdr", ".set"):
        return [header.with_name(named.name) for named in named_files(header)[:1]]
    own = header.with_suffix(".dat")
    if suffix == ".lay" and own.is_file():
        return [own]
    return []
