"""Two processes that run the same command at the same time leave the same files as one process."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml

from neuroledger.families.alignment.brainscore_files import ROLES
from tests.cli.test_start import NAMES, images, truth
from tests.data.test_pin import bids, place
from tests.engine.lab import make_files
from tests.families.alignment.test_imports import package
from tests.hostile.proposals.corpus import git

__all__ = ["images", "place"]

pytestmark = pytest.mark.slow
TIMES = 3


def begun(root: Path, arguments: Sequence[str], **more: str) -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "NEUROLEDGER_MIRROR"
    }
    environment |= {"NEUROLEDGER_ROOT": str(root), "NO_COLOR": "1", **more}
    command = [sys.executable, "-m", "neuroledger", *arguments]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    return subprocess.Popen(command, cwd=root, env=environment, **pipes)


def held(root: Path) -> dict[str, str]:
    """Return hashes of specs and data, and names of files with times; internal files of tools are ignored."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.relative_to(root).parts[0] in {"specs", "data"}
        else ""
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not {".cache", ".dvc", ".git"} & set(path.relative_to(root).parts)
    }


WAITS = "waiting for another process that is pinning files of this repository\n"


def same(
    make: Callable[[Path], Path],
    arguments: Sequence[str],
    tmp_path: Path,
    *,
    times: int = TIMES,
    **more: str,
) -> None:
    """Check that running the command ``times`` at once leaves the files of one run; late processes print one line."""
    alone, shared = make(tmp_path / "alone" / "one"), make(tmp_path / "shared" / "one")
    one = begun(alone, arguments, **more)
    out, err = one.communicate(timeout=300)
    assert one.returncode == 0, out + err
    several = [begun(shared, arguments, **more) for _ in range(times)]
    said = [process.communicate(timeout=300) for process in several]
    codes = sorted(process.returncode for process in several)
    assert codes[0] == 0 and set(codes) <= {0, 1, 2}, (codes, said)
    assert not any("Traceback" in err for _, err in said), said
    late = [
        err.replace(WAITS, "")
        for process, (_, err) in zip(several, said, strict=True)
        if process.returncode
    ]
    assert all(
        err.startswith("neuroledger: ") and err.count("\n") == 1 for err in late
    ), said
    assert held(shared) == held(alone)
    left = [
        path
        for path in shared.rglob("*")
        if path.suffix in {".part", ".tmp"} or path.name.startswith(".~")
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
        spec = {
            "id": "lab",
            "version": 1,
            "title": "Responses of a laboratory",
            "license": "CC0-1.0",
        }
        spec |= {"files": files, "reader": {"name": "netcdf"}}
        (folder / "specs" / "datasets").mkdir()
        (folder / "specs" / "datasets" / "lab.yaml").write_text(
            yaml.safe_dump(spec, sort_keys=False)
        )
        return folder

    same(make, ["fetch", "lab"], tmp_path, NEUROLEDGER_MIRROR=str(tmp_path / "mirror"))


class Slowly(http.server.BaseHTTPRequestHandler):
    """Serves the objects of a bucket slowly in pieces, so that concurrent requests overlap."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        held = self.objects.get(unquote(urlsplit(self.path).path).lstrip("/"))
        if held is None:
            self.send_error(404, "NoSuchKey")
            return
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(held) - start))
        self.end_headers()
        for at in range(start, len(held), max(1, len(held) // 4)):
            time.sleep(0.05)
            self.wfile.write(held[at : min(len(held), at + max(1, len(held) // 4))])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return the URL of a local bucket and the folder of the Brain-Score files that it serves."""
    files = tmp_path / "served"
    package(files)
    Slowly.objects = {
        f"bucket/{path.name}": path.read_bytes() for path in files.iterdir()
    }
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slowly)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", files
    server.shutdown()
    server.server_close()
    thread.join()


def stated(bucket: tuple[str, Path], *kinds: str) -> Callable[[Path], Path]:
    """Return a repository with a data set whose files are in the bucket and not pinned yet."""
    address, served = bucket
    files = [path for path in sorted(served.iterdir()) if path.suffix in kinds]

    def make(folder: Path) -> Path:
        empty(folder)
        downloads = {
            path.name: {
                "url": f"s3://bucket/{path.name}",
                "endpoint": address,
                "region": "us-east-1",
                "sha1": hashlib.sha1(path.read_bytes()).hexdigest(),
            }
            for path in files
        }
        reader = {"name": "brainio"} | {ROLES[path.suffix]: path.name for path in files}
        spec = {
            "id": "mine",
            "version": 1,
            "title": "Responses of a laboratory",
            "license": "CC0-1.0",
        }
        spec |= {
            "downloads": downloads,
            "reader": reader,
            "unavailable": "not here yet",
        }
        (folder / "specs" / "datasets").mkdir()
        (folder / "specs" / "datasets" / "mine.yaml").write_text(
            yaml.safe_dump(spec, sort_keys=False)
        )
        return folder

    return make


@pytest.mark.parametrize("times", [2, 3])
def test_import_from_a_bucket(
    bucket: tuple[str, Path], tmp_path: Path, times: int
) -> None:
    words = ["import", "brainscore", "mine"]
    same(stated(bucket, ".nc", ".csv", ".zip"), words, tmp_path, times=times)


def test_fetch_of_unpinned_files(bucket: tuple[str, Path], tmp_path: Path) -> None:
    same(stated(bucket, ".csv", ".zip"), ["fetch", "mine"], tmp_path)


def test_import_of_files(bucket: tuple[str, Path], tmp_path: Path) -> None:
    files = [str(path) for path in sorted(bucket[1].iterdir())]
    same(empty, ["import", "brainscore", "mine", *files], tmp_path)


def test_import_of_a_listing(tmp_path: Path) -> None:
    tree = tmp_path / "ds000001"
    bids(tree)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "published"]):
        git(tree, *words)
    more = ["--from", str(tree), "--published", "*.vhdr", "--as", "Rest"]
    same(empty, ["import", "openneuro", "ds000001", *more], tmp_path)


@pytest.mark.parametrize("times", [2, 3])
def test_embed(images: Path, tmp_path: Path, times: int) -> None:
    def make(folder: Path) -> Path:
        empty(folder)
        for name in ("data", "specs/models"):
            (folder / name).mkdir()
        spec = {
            "id": "pixels4",
            "version": 1,
            "title": "Pixels",
            "builder": {"name": "pixels", "size": 4},
        }
        (folder / "specs" / "models" / "pixels4.yaml").write_text(
            yaml.safe_dump(spec, sort_keys=False)
        )
        return folder

    words = [
        "embed",
        "pixels4",
        "--images",
        str(images / "images"),
        "--out",
        "data/mine.nc",
    ]
    same(make, words, tmp_path, times=times)


def test_package(images: Path, tmp_path: Path) -> None:
    np.save(images / "responses.npy", truth(images)[np.argsort(NAMES)])
    terms = ["--license", "CC0-1.0", "--access", "public"]
    same(
        empty, ["package", "stimuli", "mine", str(images / "images"), *terms], tmp_path
    )


def test_start(images: Path, tmp_path: Path) -> None:
    np.save(images / "responses.npy", truth(images)[np.argsort(NAMES)])
    flags = [
        "--license",
        "CC0-1.0",
        "--access",
        "public",
        "--region",
        "V4",
        "--no-questions",
    ]
    flags += ["--dims", "stimulus,neuroid,repetition", "--order", "name"]
    same(empty, ["start", str(images), *flags], tmp_path)
