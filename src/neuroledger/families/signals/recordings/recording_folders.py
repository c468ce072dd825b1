"""Recordings of several files: where those that are folders (CTF) lie among pinned files, and the hash of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Final

from neuroledger.errors import DataError
from neuroledger.store.hashes import sha256_of

__all__ = ["digest_of", "is_there", "largest_digest", "parts_of", "place_of"]

# Where the samples of a recording are whose own file is a header: two people's headers may be the same bytes, and copies
# of one recording may have headers that differ.
SAMPLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {".vhdr": (".eeg", ".dat"), ".set": (".fdt",), ".lay": (".dat",), ".hea": (".mat", ".dat")}
)


def is_there(files: Mapping[str, Path], name: str) -> bool:
    """Whether a recording is among the files, as one of them or as a folder of some."""
    return name in files or any(one.startswith(f"{name}/") for one in files)


def place_of(files: Mapping[str, Path], name: str) -> Path:
    """Where a recording is on the disk, the file or the folder.

    Raises
    ------
    DataError
        The parts of a recording that is a folder are not in one folder of its name.
    """
    if name in files:
        return files[name]
    inside = {one.removeprefix(f"{name}/"): path for one, path in files.items() if one.startswith(f"{name}/")}
    roots = {path.parents[part.count("/")] for part, path in inside.items()}
    if len(roots) != 1 or (root := next(iter(roots))).name != name.rsplit("/", 1)[-1]:
        raise DataError(f"{name}: its {len(inside)} files are not in one folder of this name")
    return root


def parts_of(recording: Path, held: Set[Path]) -> list[Path]:
    """The pinned files of a recording: itself, or, where it is a folder, those in it."""
    return [recording] if recording in held else sorted(path for path in held if recording in path.parents)


def digest_of(recording: Path, held: Set[Path]) -> str:
    """SHA-256 of a recording's samples: of its file, of the one that its header is about, or over those of its folder."""
    if recording in held:
        beside = (recording.with_suffix(ending) for ending in SAMPLES.get(recording.suffix.lower(), ()))
        return sha256_of(next((path for path in beside if path in held), recording))
    said = hashlib.sha256()
    for path in parts_of(recording, held):
        said.update(f"{path.relative_to(recording).as_posix()}\0".encode())
        said.update(bytes.fromhex(sha256_of(path)))
    return said.hexdigest()


def largest_digest(files: Mapping[str, Path], recording: str, others: Sequence[str]) -> str:
    """SHA-256 of the largest file of a recording, which holds its samples: its own, or one of the `others`."""
    paths = [files[name] for name in (recording, *others)]
    return sha256_of(max(paths, key=lambda path: (path.stat().st_size, path.name)))
