"""Files of a tar archive, read one after the other without unpacking."""

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
    """Yield the name of each file in a ``.tar`` or ``.tar.gz`` with a function that reads it.

    The function is valid until the next name is requested. Names are in Unicode's composed form, without ``./``. Files
    that macOS adds (``._name``, ``.DS_Store``) are left out.

    Raises
    ------
    DataError
        The archive is truncated or not a tar, or a member is a link or a device, has a path outside the archive, occurs
        twice, or is larger than the limit.
    """
    names: set[str] = set()
    try:
        with (
            _open_stream(archive) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined] # tarfile keeps all members in memory
                name = _validated_name(info, archive)
                if info.isdir() or _is_macos_file(name):
                    continue
                if name in names:
                    raise DataError(
                        f"{archive.name}: the archive contains {name!r} twice"
                    )
                names.add(name)
                if len(names) > MAX_MEMBERS:
                    raise DataError(
                        f"{archive.name} has more than {MAX_MEMBERS:,} files"
                    )
                yield name, lambda info=info: _read_member(tar, info, archive)  # type: ignore[misc]
            while stream.read(1 << 20):  # gzip verifies its checksum at the end
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{archive.name} is not a complete tar archive ({error}): it is damaged or incomplete"
        ) from error
    if not names:
        raise DataError(f"{archive.name} contains no files")


def _open_stream(archive: Path) -> IO[bytes]:
    with archive.open("rb") as opened:
        packed = opened.read(2) == GZIP
    opener: Any = gzip.open if packed else open
    return opener(archive, "rb")  # type: ignore[no-any-return]


def _validated_name(info: tarfile.TarInfo, archive: Path) -> str:
    name = unicodedata.normalize("NFC", info.name.removeprefix("./"))
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise DataError(
            f"{archive.name}: member {info.name!r} points outside the archive"
        )
    if not (info.isfile() or info.isdir()):
        raise DataError(
            f"{archive.name}: member {info.name!r} is a link or a device, not a file"
        )
    if info.size > MAX_MEMBER_BYTES:
        raise DataError(
            f"{archive.name}: member {info.name!r} is larger than {MAX_MEMBER_BYTES >> 20} MiB"
        )
    return name


def _is_macos_file(name: str) -> bool:
    last = PurePosixPath(name).name
    return last.startswith("._") or last == ".DS_Store"


def _read_member(tar: tarfile.TarFile, info: tarfile.TarInfo, archive: Path) -> bytes:
    opened = tar.extractfile(info)
    content = opened.read() if opened is not None else b""
    if len(content) != info.size:
        raise DataError(
            f"{archive.name} is truncated within {info.name!r}: it is damaged or incomplete"
        )
    return content
