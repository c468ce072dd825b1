"""The files of a tar archive, one after the other, read and never written anywhere."""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from neuroledger.errors import DataError

__all__ = ["Content", "tar_members"]

Content = Callable[[], bytes]

MAX_MEMBER_BYTES: Final = 256 << 20
MAX_MEMBERS: Final = 2_000_000
GZIP: Final = b"\x1f\x8b"


def tar_members(archive: Path) -> Iterator[tuple[str, Content]]:
    """Names of the files in a ``.tar`` or ``.tar.gz``, each with a function that reads it before the next one is named.

    Names are in Unicode's composed form, without ``./``. What macOS adds (``._name``, ``.DS_Store``) is left out.

    Raises
    ------
    DataError
        The archive is cut off, is no tar, or has a member that is a link or a device, points outside the archive,
        occurs twice, or is absurdly large.
    """
    seen: set[str] = set()
    try:
        with _opened(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined] # tarfile would keep every one
                name = _name(info, archive)
                if info.isdir() or _ignored(name):
                    continue
                if name in seen:
                    raise DataError(f"{archive.name}: {name!r} is in it twice")
                seen.add(name)
                if len(seen) > MAX_MEMBERS:
                    raise DataError(f"{archive.name} has more than {MAX_MEMBERS:,} files")
                yield name, lambda info=info: _content(tar, info, archive)  # type: ignore[misc]
            while stream.read(1 << 20):  # to the end, where gzip compares what was read with its checksum
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{archive.name} is no whole tar archive ({error}): fetch it again") from error
    if not seen:
        raise DataError(f"{archive.name} holds no files")


def _opened(archive: Path) -> IO[bytes]:
    with archive.open("rb") as opened:
        packed = opened.read(2) == GZIP
    opener: Any = gzip.open if packed else open
    return opener(archive, "rb")  # type: ignore[no-any-return]


def _name(info: tarfile.TarInfo, archive: Path) -> str:
    name = unicodedata.normalize("NFC", info.name.removeprefix("./"))
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise DataError(f"{archive.name}: member {info.name!r} points outside the archive")
    if not (info.isfile() or info.isdir()):
        raise DataError(f"{archive.name}: member {info.name!r} is a link or a device, not a file")
    if info.size > MAX_MEMBER_BYTES:
        raise DataError(f"{archive.name}: member {info.name!r} is larger than {MAX_MEMBER_BYTES >> 20} MiB")
    return name


def _ignored(name: str) -> bool:
    last = PurePosixPath(name).name
    return last.startswith("._") or last == ".DS_Store"


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo, archive: Path) -> bytes:
    opened = tar.extractfile(info)
    content = opened.read() if opened is not None else b""
    if len(content) != info.size:
        raise DataError(f"{archive.name} is cut off within {info.name!r}: fetch it again")
    return content
