"""The environment of a computation: commit, packages, processor and threads, which may differ between equal records."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from neuroledger.errors import RequestError
from neuroledger.spec import registry
from neuroledger.stats.stored import Stored
from neuroledger.store.git import git
from neuroledger.store.shared import model_of_processor

__all__ = ["PACKAGES", "Environment", "environment", "versions"]

PACKAGES = (
    "neuroledger",
    "numpy",
    "scipy",
    "pandas",
    "xarray",
    "netCDF4",
    "scikit-learn",
    "torch",
    "pillow",
    "pydantic",
    "great-expectations",
    "dvc",
    "mne",
    "pyriemann",
)
# Paths that a run writes itself: the records, and the DVC lock that lists them.
WRITTEN = (":!results", ":!dvc.lock")
# Paths where untracked files can change scores.
SOURCES = ("specs", "src", "data", "params.yaml", "dvc.yaml")


class Environment(Stored):
    """Where and by what a score was computed; no part of the payload."""

    model_config = ConfigDict(strict=True)
    # Earlier records do not state it.
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"processor"})

    commit: Annotated[str, Field(max_length=100)] | None = None
    """Commit of the repository; null without git."""
    dirty: bool | None = None
    """Whether specs, pins or sources differed from the commit; null without git."""
    packages: dict[str, str] = Field({})
    """Versions of packages."""
    platform: str = ""
    """System and architecture."""
    processor: str = ""
    """The BLAS kernel and the model of the processor."""
    python: str = ""
    """Version of Python."""
    threads: str = ""
    """Number of BLAS threads."""


def environment(root: Path) -> Environment:
    """Return commit, ``dirty``, package versions, platform, processor and number of BLAS threads.

    ``dirty`` is true if a tracked file is changed or a spec, pin or source file is untracked, except for records, which a
    run writes itself. It is None without git.
    """
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(
        root, "status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN
    )
    fresh = _git(root, "ls-files", "--others", "--exclude-standard", "--", *SOURCES)
    return Environment(
        commit=commit,
        dirty=None if changed is None else bool(changed or fresh),
        packages=versions(),
        platform=f"{platform.system()}-{platform.machine()}",
        processor=_processor(),
        python=platform.python_version(),
        threads=os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count()),
    )


@lru_cache
def _processor() -> str:
    """Return the architecture for which BLAS computes, and the model, by which libraries of networks choose instructions."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    kinds = sorted(
        {pool["architecture"] for pool in threadpool_info() if "architecture" in pool}
    )
    return " ".join([*kinds, model_of_processor()]).strip()


@lru_cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages on which scores may depend."""
    versions = {}
    for name in dict.fromkeys(
        (*PACKAGES, *(family.distribution for family in registry.families()))
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _git(root: Path, *words: str) -> str | None:
    """Return what git says of the working tree, or None if it cannot."""
    try:
        return (
            git(root, *words, filters=True, seconds=20)
            .decode("utf-8", "replace")
            .strip()
        )
    except RequestError:
        return None
