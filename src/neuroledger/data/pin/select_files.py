"""Which files of a folder a data set consists of, and whether they are what their publisher says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from neuroledger.data.file_names import matching
from neuroledger.data.pin.downloads import Downloads
from neuroledger.data.pin.install_files import place_of
from neuroledger.errors import RequestError
from neuroledger.spec.base import is_pattern
from neuroledger.spec.kinds import DatasetSpec

__all__ = ["files_below", "named", "only_files"]

BLOCK = 1 << 20
SHOWN = 5


def files_below(
    folder: Path, *, aside: frozenset[str] = frozenset(), opened: frozenset[str] | None = None
) -> list[str]:
    """Every file below the folder, as relative names in order, without hidden ones and the folders ``aside``.

    Links to content that is missing are refused; where ``opened`` is given, only those with one of these suffixes.

    Raises
    ------
    RequestError
        There is no such folder, or a file is a link to content that was never downloaded.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder: name the one that holds the downloads")
    names, empty = [], []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts) or relative.parts[0] in aside:
            continue
        if path.is_symlink() and not path.exists():
            empty.append(relative.as_posix())
        elif path.is_file():
            names.append(relative.as_posix())
    lost = [name for name in empty if opened is None or PurePosixPath(name).suffix in opened]
    if lost:
        raise RequestError(
            f"{len(lost)} {'files' if opened is None else 'recordings'} in {folder} are links without content, "
            f"first {lost[0]}: download them first (`datalad get`, `git annex get`)"
        )
    return names


def named(
    spec: DatasetSpec,
    names: Sequence[str],
    downloads: Downloads,
    reads: Callable[[Sequence[str]], list[str]] | None = None,
) -> list[str]:
    """The files that the spec names, in order: below `downloads`, else below `files`, else whatever is there.

    Where the spec has no `downloads` and the reader `reads` certain files, it is those.

    Raises
    ------
    RequestError
        One of them is not in the folder, the folder is empty, or something was said that only recordings need.
    """
    only_files(spec, downloads)
    if not names:
        raise RequestError(f"{downloads.folder} holds no files: name the folder that holds the downloads")
    if spec.downloads:
        chosen = {name for wanted in spec.downloads for name in _matching(wanted, names, downloads.folder)}
        return sorted(chosen)
    if reads is not None:
        return reads(names)
    if spec.files:
        by_place = {place_of(name): name for name in names}
        lost = [place for place in spec.files if place not in by_place]
        if lost:
            raise RequestError(_lacks(downloads.folder, lost, names))
        return [by_place[place] for place in spec.files]
    return list(names)


def only_files(spec: DatasetSpec, downloads: Downloads) -> None:
    """Return if nothing was said that a reader does not ask for.

    Raises
    ------
    RequestError
        It was.
    """
    given = downloads.about_recordings
    if given and spec.reader is not None:
        raise RequestError(
            f"{given[0]} is about recordings; {spec.id} is read by {spec.reader.name}, whose fields stand in the spec"
        )


def _matching(wanted: str, names: Sequence[str], folder: Path) -> list[str]:
    if not is_pattern(wanted):
        if wanted not in names:
            raise RequestError(_lacks(folder, [wanted], names))
        return [wanted]
    found = matching(wanted, names)
    if not found:
        raise RequestError(f"{folder} holds no file like {wanted}, which the spec names below `downloads`")
    return found


def _lacks(folder: Path, lost: Sequence[str], names: Sequence[str]) -> str:
    """What is missing, and where it lies instead, if it does."""
    shown = f"{', '.join(lost[:SHOWN])}{', …' if lost[SHOWN:] else ''}"
    deeper = [name for name in names if name.endswith(f"/{lost[0]}")]
    if deeper:
        return f"{folder} lacks {shown}, but holds {deeper[0]}: name the folder {folder / deeper[0].removesuffix(lost[0])}"
    packed = [name for name in names if PurePosixPath(name).suffix in {".zip", ".tar", ".gz", ".tgz", ".bz2"}]
    hint = f"; unpack {packed[0]} first" if packed and lost[0] not in packed else ""
    return f"{folder} lacks {len(lost)} files that the spec names: {shown}{hint}"
