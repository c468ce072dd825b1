"""Two people, or two shells, give the same command at the same moment: what one alone would leave is what both leave."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cli.test_start import NAMES, images, truth
from tests.data.test_pin import bids, place
from tests.engine.lab import make_files

__all__ = ["images", "place"]

pytestmark = pytest.mark.slow
TIMES = 3


def begun(root: Path, arguments: Sequence[str], **more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NEUROLEDGER_MIRROR"}
    environment |= {"NEUROLEDGER_ROOT": str(root), "NO_COLOR": "1", **more}
    command = [sys.executable, "-m", "neuroledger", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=root, env=environment, **pipes)


def held(root: Path) -> dict[str, str]:
    """Hashes of specs and data, and names of what says when it was made; nothing that a tool keeps for itself."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.relative_to(root).parts[0] in {"specs", "data"}
        else ""
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {".cache", ".dvc", ".git"} & set(path.relative_to(root).parts)
    }


def same(make: Callable[[Path], Path], arguments: Sequence[str], tmp_path: Path, **more: str) -> None:
    """The command ``TIMES`` at once leaves the files of one alone; whoever comes too late is told so in one line."""
    alone, shared = make(tmp_path / "alone" / "one"), make(tmp_path / "shared" / "one")
    one = begun(alone, arguments, **more)
    out, err = one.communicate(timeout=300)
    assert one.returncode == 0, out + err
    several = [begun(shared, arguments, **more) for _ in range(TIMES)]
    said = [process.communicate(timeout=300) for process in several]
    codes = sorted(process.returncode for process in several)
    assert codes[0] == 0 and set(codes) <= {0, 1, 2}, (codes, said)
    assert not any("Traceback" in err for _, err in said), said
    late = [err for process, (_, err) in zip(several, said, strict=True) if process.returncode]
    assert all(err.startswith("neuroledger: ") and err.count("\n") == 1 for err in late), said
    assert held(shared) == held(alone)
    left = [
        path for path in shared.rglob("*") if path.suffix in {".part", ".tmp"} or path.name.startswith(".~")
    ]
    assert not left


def empty(folder: Path) -> Path:
    (folder / "specs").mkdir(parents=True)
    (folder / "dvc.yaml").write_text("stages: {}\n")
    return folder


def test_pin(place: Path, tmp_path: Path) -> None:
    tree = bids(tmp_path / "ds1")

    def make(folder: Path) -> Path:
        return Path(shutil.copytree(place, folder))

    same(make, ["pin", "Rest", "--from", str(tree), "--label", "Group"], tmp_path)


def test_fetch(tmp_path: Path) -> None:
    make_files(tmp_path / "mirror")

    def make(folder: Path) -> Path:
        empty(folder)
        files = {
            path.name: {
                "url": f"https://example.org/{path.name}",
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted((tmp_path / "mirror").iterdir())
        }
        spec = {"id": "lab", "version": 1, "title": "Responses of a laboratory", "license": "CC0-1.0"}
        spec |= {"files": files, "reader": {"name": "netcdf"}}
        (folder / "specs" / "datasets").mkdir()
        (folder / "specs" / "datasets" / "lab.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        return folder

    same(make, ["fetch", "lab"], tmp_path, NEUROLEDGER_MIRROR=str(tmp_path / "mirror"))


def test_package(images: Path, tmp_path: Path) -> None:
    np.save(images / "responses.npy", truth(images)[np.argsort(NAMES)])
    terms = ["--license", "CC0-1.0", "--access", "public"]
    same(empty, ["package", "stimuli", "mine", str(images / "images"), *terms], tmp_path)


def test_start(images: Path, tmp_path: Path) -> None:
    np.save(images / "responses.npy", truth(images)[np.argsort(NAMES)])
    flags = ["--license", "CC0-1.0", "--access", "public", "--region", "V4", "--no-questions"]
    flags += ["--dims", "stimulus,neuroid,repetition", "--order", "name"]
    same(empty, ["start", str(images), *flags], tmp_path)
