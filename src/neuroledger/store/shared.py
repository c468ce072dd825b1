"""Entries of the store that several machines share: each is one object below a URL, of a folder or an object store.

An object is a ZIP file without compression, named by kind and key as the entry is. Whoever fetches it verifies it as any
entry. Only machines with the same model of processor share entries, because others round differently.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuroledger.errors import RequestError, absent_package, naming_extras

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["Shared", "model_of_processor", "shared", "shared_at", "shared_url"]

VARIABLE: Final = "NEUROLEDGER_ACTIVATIONS_SHARED"

logger = logging.getLogger(__name__)

_AT: ContextVar[str] = ContextVar("shared", default="")


def model_of_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return vendor, family and model, such as ``GenuineIntel 6.106``, or what the system calls its processor."""
    try:
        lines = [
            line.partition(":")
            for line in cpuinfo.read_text(encoding="utf-8").splitlines()
        ]
    except (OSError, ValueError):
        return platform.processor()
    first = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    parts = (
        first.get("vendor_id", ""),
        ".".join(first[n] for n in ("cpu family", "model") if n in first),
    )
    return " ".join(filter(None, parts)) or platform.processor()


def shared_url() -> str:
    """Return the URL of the innermost :func:`shared_at`, else of ``NEUROLEDGER_ACTIVATIONS_SHARED``; empty without one."""
    return _AT.get() or os.environ.get(VARIABLE, "")


@contextmanager
def shared_at(url: str) -> Iterator[None]:
    """Let stores that are opened inside the block share entries at the URL of another process, if it has one."""
    token = _AT.set(url)
    try:
        yield
    finally:
        _AT.reset(token)


def shared() -> Shared | None:
    """Return what :func:`shared_url` names, such as ``s3://lab/activations``; None if it names nothing.

    Raises
    ------
    RequestError
        It is not a URL that fsspec opens, or the package for it is missing.
    UnavailableError
        The package fsspec, or the one that it needs for the URL, is not installed.
    """
    url = shared_url()
    return _opened(url, os.getpid()) if url else None


@lru_cache
def _opened(url: str, process: int) -> Shared:
    with naming_extras():
        from fsspec.core import url_to_fs
    try:
        files, base = url_to_fs(url)
    except ImportError as error:
        missing = error.__cause__
        found = absent_package(missing) if isinstance(missing, ImportError) else None
        raise found or _unusable(url, error) from error
    except ValueError as error:
        raise _unusable(url, error) from error
    machine = re.sub(r"\W+", "-", model_of_processor()) or "unknown"
    return Shared(files, f"{base.rstrip('/')}/{machine}", url)


def _unusable(url: str, error: Exception) -> RequestError:
    return RequestError(f"{VARIABLE}={url!r} cannot be opened: {error}")


class Shared:
    """Entries below a URL. If it cannot be used, that is said once, and this process goes on without it."""

    def __init__(self, files: AbstractFileSystem, base: str, url: str) -> None:
        self._files = files
        self._base = base
        self._url = url
        self._lost = False

    def fetch(
        self, kind: str, key: str, folder: Path, room: Callable[[int], int]
    ) -> bool:
        """Write the files of an entry into the new ``folder``; return whether there are any.

        ``room`` makes room for a number of bytes and returns how many fit; an entry that does not fit is not fetched.
        """
        if self._lost:
            return False
        address = self._address(kind, key)
        packed = folder.with_suffix(".zip")
        try:
            size = int(self._files.info(address)["size"])
            if room(2 * size) < 2 * size:
                return False
            self._files.get_file(address, str(packed))
            _unpack(packed, folder, size)
        except FileNotFoundError:
            return False
        except (ValueError, zipfile.BadZipFile) as error:
            logger.warning("%s is damaged (%s); it is computed again", address, error)
            return False
        except Exception as error:  # of whichever library opens the URL
            self._lose(error)
            return False
        finally:
            packed.unlink(missing_ok=True)
        return True

    def send(self, kind: str, key: str, folder: Path, packed: Path) -> None:
        """Share the files of an entry, which are collected in the new file ``packed``."""
        if self._lost:
            return
        address = self._address(kind, key)
        try:
            _pack(folder, packed)
            self._files.makedirs(address.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(packed), address)
        except Exception as error:  # of whichever library opens the URL
            self._lose(error)
        finally:
            packed.unlink(missing_ok=True)

    def _address(self, kind: str, key: str) -> str:
        return f"{self._base}/{kind}/{key[:2]}/{key}.zip"

    def _lose(self, error: Exception) -> None:
        self._lost = True
        logger.warning(
            "%s=%s cannot be used (%s: %s); this process goes on without it",
            VARIABLE,
            self._url,
            type(error).__name__,
            error,
        )


def _pack(folder: Path, packed: Path) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)


def _unpack(packed: Path, folder: Path, size: int) -> None:
    """Write the files of an object of ``size`` bytes into the new ``folder``.

    Raises
    ------
    ValueError
        They are more than its bytes, or in folders.
    zipfile.BadZipFile
        It is incomplete.
    """
    with zipfile.ZipFile(packed) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise ValueError("it is compressed")
        if any(Path(member.filename).name != member.filename for member in members):
            raise ValueError("it has folders")
        archive.extractall(folder)
