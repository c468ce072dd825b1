"""Files come from the mirror or from their url: whole, verified, resumable; nothing that was there is lost."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from neuroledger.data import fetch as fetching
from neuroledger.data.fetch import fetch_files
from neuroledger.data.integrity import verify_file
from neuroledger.errors import DataError, IntegrityError, UnavailableError
from neuroledger.spec.base import SourceFile

CONTENT = bytes(range(256)) * 4000


def pin(url: str = "https://example.org/a.bin", content: bytes = CONTENT) -> SourceFile:
    return SourceFile(url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    monkeypatch.setattr(fetching.time, "sleep", lambda _: None)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, with ranges; breaks off as often as told."""

    breaks: ClassVar[int] = 0
    ranges: ClassVar[list[str | None]] = []
    content: ClassVar[bytes] = CONTENT

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        type(self).ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = self.content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).breaks > 0:
            type(self).breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.breaks, Server.ranges, Server.content = 0, [], CONTENT
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}/a.bin"
        running.shutdown()


def serve(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(fetching, "_https", lambda _: url)


def test_a_file_is_found_in_the_mirror_by_its_bytes_under_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror" / "deep"
    mirror.mkdir(parents=True)
    (mirror / "other name.dat").write_bytes(CONTENT)
    (mirror / "same size.dat").write_bytes(bytes(len(CONTENT)))
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "mirror"))
    seen: list[tuple[str, int, int]] = []
    (path,) = fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()}, progress=lambda *p: seen.append(p))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()}) == []


def test_a_download_goes_on_where_it_broke_off(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    Server.breaks = 1
    (path,) = fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert path.read_bytes() == CONTENT
    assert Server.ranges[0] is None
    assert Server.ranges[1] is not None and Server.ranges[1] != "bytes=0-"


def test_other_bytes_than_pinned_are_not_kept(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    Server.content = bytes(len(CONTENT))
    with pytest.raises(IntegrityError, match="other bytes than pinned"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert not (tmp_path / "data" / "a.bin").exists()
    assert not list((tmp_path / ".cache" / "downloads").iterdir())


def test_a_server_that_gives_too_much_is_stopped(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    Server.content = CONTENT + b"more"
    with pytest.raises(IntegrityError, match="more than"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})


def test_no_source_says_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, "http://127.0.0.1:9/a.bin")
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9.*NEUROLEDGER_MIRROR"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})


def test_an_edited_file_is_not_overwritten_unless_forced(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    path = tmp_path / "data" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(b"my own notes")
    with pytest.raises(IntegrityError, match="--force"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert path.read_bytes() == b"my own notes"
    fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()}, force=True)
    assert path.read_bytes() == CONTENT


def test_an_s3_source_becomes_a_versioned_https_url() -> None:
    source = SourceFile(url="s3://bucket/folder/a@b.nc", size=1, sha256="0" * 64, version_id="v+1")
    assert fetching._https(source) == "https://bucket.s3.amazonaws.com/folder/a%40b.nc?versionId=v%2B1"


def test_a_verification_is_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.data import integrity

    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    verify_file(path, pin(), memory=tmp_path / "memory")
    hashed: list[Path] = []
    real = integrity.sha256_of_file
    monkeypatch.setattr(integrity, "sha256_of_file", lambda p: hashed.append(p) or real(p))
    verify_file(path, pin(), memory=tmp_path / "memory")
    assert not hashed
    changed = bytearray(CONTENT)
    changed[5] ^= 1
    path.write_bytes(changed)
    with pytest.raises(IntegrityError, match="does not hold the pinned bytes"):
        verify_file(path, pin(), memory=tmp_path / "memory")
    assert hashed


def test_a_truncated_and_a_missing_file_say_so(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with pytest.raises(DataError, match="is missing; bring it"):
        verify_file(path, pin(), mend="bring it")
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(IntegrityError, match="1,023,999 bytes where the spec pins 1,024,000"):
        verify_file(path, pin())


def test_many_files_of_one_size_are_hashed_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    contents = [f"{number:03d}".encode() for number in range(200)]
    for content in contents:
        (mirror / f"{content.decode()}.wav").write_bytes(content)
    hashed: list[Path] = []
    plain = fetching.sha256_of_file
    monkeypatch.setattr(fetching, "sha256_of_file", lambda path: hashed.append(path) or plain(path))
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    pins = {f"{content.decode()}.wav": pin(content=content) for content in contents}
    assert len(fetch_files(tmp_path, tmp_path / "data", pins)) == 200
    assert len(hashed) == len(set(hashed)) == 200
    for content in contents:
        assert (tmp_path / "data" / f"{content.decode()}.wav").read_bytes() == content


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("Is your cache up to date? <https://error.dvc.org/missing-files>", "runs `dvc push`"),
        ("ERROR: /somewhere is not a git repository", "`git init` in this folder"),
        ("ERROR: something else", "something else$"),
    ],
)
def test_what_dvc_says_last_is_told_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, says: str
) -> None:
    def failing(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", f"ERROR: failed to pull data\n{last}\n")

    monkeypatch.setattr(subprocess, "run", failing)
    (tmp_path / "x.nc.dvc").write_text("outs: []\n")
    with pytest.raises(UnavailableError, match=rf"`dvc pull x.nc.dvc` failed: .*{says}"):
        fetching._pull(tmp_path, tmp_path / "x.nc", force=False)
