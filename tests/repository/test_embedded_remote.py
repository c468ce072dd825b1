"""Tests that pointers, pins and objects of the embedded remote agree, and that `dvc pull` fetches the objects."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from neuroledger.engine.diff_since import BESIDE_DATA
from neuroledger.spec.catalog import open_catalog

LARGEST = 50_000_000


def _pointers(repository: Path) -> dict[str, dict]:
    return {
        str(path.relative_to(repository / "data").with_suffix("")): yaml.safe_load(
            path.read_text()
        )["outs"][0]
        for path in sorted((repository / "data").rglob("*.dvc"))
    }


def _object(repository: Path, md5: str) -> Path:
    return repository / ".dvcstore" / "files" / "md5" / md5[:2] / md5[2:]


def _pins(repository: Path) -> dict[str, object]:
    catalog = open_catalog(repository)
    pins = {}
    for kind, id, _ in catalog.files():
        if kind not in ("datasets", "models"):
            continue
        spec = catalog.entry(kind, id).spec
        folder = id if kind == "datasets" else f"models/{id}"
        files = spec.files if kind == "datasets" else spec.weights
        pins |= {f"{folder}/{name}": pin for name, pin in files.items() if pin.dvc}
    return pins


def test_data_folders_hold_data_only(repository):
    listed = subprocess.run(
        ["git", "ls-files", "-z", "data"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    names = {
        Path(path).name
        for path in listed.stdout.split("\0")
        if path and not path.endswith(".dvc")
    }
    assert names <= BESIDE_DATA


def test_every_object_is_what_its_name_says(repository):
    objects = [
        path
        for path in (repository / ".dvcstore" / "files").rglob("*")
        if path.is_file()
    ]
    assert objects
    for path in objects:
        assert (
            hashlib.md5(path.read_bytes()).hexdigest() == path.parent.name + path.name
        )
    assert sum(path.stat().st_size for path in objects) < LARGEST


def test_pins_pointers_and_objects_agree(repository):
    pointers, pins = _pointers(repository), _pins(repository)
    assert set(pins) == set(pointers)
    for name, pin in pins.items():
        content = _object(repository, pointers[name]["md5"]).read_bytes()
        assert (pin.size, pin.sha256) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        ), name


def test_configuration_needs_no_network(repository):
    text = (repository / ".dvc" / "config").read_text()
    assert "url = ../.dvcstore" in text
    assert "verify = true" in text
    assert "analytics = false" in text
    assert "check_update = false" in text
    urls = [
        line
        for line in text.splitlines()
        if "://" in line and not line.lstrip().startswith("#")
    ]
    assert urls == []


def test_fresh_clone_pulls_without_network_or_account(repository, tmp_path):
    dvc = shutil.which(
        "dvc", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    git = shutil.which("git")
    assert dvc and git, "git and dvc must be there: `make test` installs dvc"
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in (
        ".dvc/config",
        ".dvc/.gitignore",
        ".dvcignore",
        ".gitattributes",
        ".gitignore",
    ):
        (clone / name).parent.mkdir(exist_ok=True)
        shutil.copy(repository / name, clone / name)
    shutil.copytree(repository / ".dvcstore", clone / ".dvcstore")
    for pointer in (repository / "data").rglob("*.dvc"):
        target = clone / pointer.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pointer, target)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "DVC_SITE_CACHE_DIR": str(tmp_path / "site"),
    }
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        environment[variable] = "http://127.0.0.1:9"
    subprocess.run([git, "init", "-q"], cwd=clone, check=True, env=environment)
    pulled = subprocess.run(
        [dvc, "pull"],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert pulled.returncode == 0, pulled.stderr
    for name, out in _pointers(repository).items():
        assert (
            hashlib.md5((clone / "data" / name).read_bytes()).hexdigest() == out["md5"]
        )
