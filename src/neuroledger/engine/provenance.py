"""Where a score was computed: commit, packages, platform, threads."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from neuroledger.spec import registry

__all__ = ["environment"]

PACKAGES = (
    "neuroledger", "numpy", "scipy", "pandas", "xarray", "netCDF4", "scikit-learn", "torch", "pillow", "pydantic",
    "great-expectations", "dvc", "mne", "pyriemann",
)  # fmt: skip


@lru_cache
def environment(root: Path) -> dict[str, Any]:
    """Commit and whether files differ from it, package versions, platform, BLAS threads."""
    versions = {}
    for name in dict.fromkeys((*PACKAGES, *(family.distribution for family in registry.families()))):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return {
        "commit": commit,
        "dirty": None if changed is None else bool(changed),
        "packages": versions,
        "platform": f"{platform.system()}-{platform.machine()}",
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count()),
    }


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
