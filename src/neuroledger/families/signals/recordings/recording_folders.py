"""Recordings of several files: the paths of those that are folders (CTF), and the hash of each recording."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.companions import sample_files
from neuroledger.store.hashes import sha256_of

__all__ = ["digest_of", "is_there", "largest_digest", "parts_of", "place_of"]


def is_there(files: Mapping[str, object], name: str) -> bool:
    """Whether a recording is among the files, as a file or as a folder."""
    return name in files or any(file.startswith(f"{name}/") for file in files)


def place_of(files: Mapping[str, Path], name: str) -> Path:
    """Path of a recording's file or folder.

    Raises
    ------
    DataError
        The parts of a recording that is a folder are not in one folder with its name.
    """
    if name in files:
        return files[name]
    inside = {
        file.removeprefix(f"{name}/"): path
        for file, path in files.items()
        if file.startswith(f"{name}/")
    }
    roots = {path.parents[part.count("/")] for part, path in inside.items()}
    if len(roots) != 1 or (root := next(iter(roots))).name != name.rsplit("/", 1)[-1]:
        raise DataError(
            f"{name}: its {len(inside)} files are not in one folder with this name"
        )
    return root


def parts_of(recording: Path, pinned: Set[Path]) -> list[Path]:
    """The pinned files of a recording: the file itself, or the files in its folder."""
    if recording in pinned:
        return [recording]
    return sorted(path for path in pinned if recording in path.parents)


def digest_of(recording: Path, pinned: Set[Path]) -> str:
    """SHA-256 of a recording: of its file, of the files with its samples if its own is a header, or over its folder.

    Headers cannot identify recordings: those of two subjects may be identical, and those of two copies may differ.
    """
    if recording in pinned:
        samples = [path for path in sample_files(recording) if path in pinned] or [
            recording
        ]
        if len(samples) == 1:
            return sha256_of(samples[0])
        return hashlib.sha256("".join(map(sha256_of, samples)).encode()).hexdigest()
    digest = hashlib.sha256()
    for path in parts_of(recording, pinned):
        digest.update(f"{path.relative_to(recording).as_posix()}\0".encode())
        digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()


def largest_digest(
    files: Mapping[str, Path], recording: str, others: Sequence[str]
) -> str:
    """SHA-256 of the largest file of a recording, which contains its samples: its own, or one of the `others`."""
    paths = [files[name] for name in (recording, *others)]
    return sha256_of(max(paths, key=lambda path: (path.stat().st_size, path.name)))
