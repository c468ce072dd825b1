"""Files come from the mirror or from their url: whole, verified, resumable; nothing that was there is lost."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from filelock import FileLock

from neuroledger.data import exchange
from neuroledger.data import fetch as fetching
from neuroledger.data.fetch import fetch_files
from neuroledger.data.integrity import absent, folder_of, verify_file
from neuroledger.errors import DataError, IntegrityError, UnavailableError
from neuroledger.spec.base import SourceFile, Stated
from tests.engine.lab import Lab

CONTENT = bytes(range(256)) * 4000


def pin(url: str = "https://example.org/a.bin", content: bytes = CONTENT) -> SourceFile:
    return SourceFile(
        url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)

    class Clock:
        """Time without waiting between attempts."""

        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(_: float) -> None: ...

    monkeypatch.setattr(fetching, "time", Clock)


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
    monkeypatch.setattr(fetching, "resolve_url", lambda _: url)


def test_a_file_is_found_in_the_mirror_by_its_bytes_under_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror" / "deep"
    mirror.mkdir(parents=True)
    (mirror / "other name.dat").write_bytes(CONTENT)
    (mirror / "same size.dat").write_bytes(bytes(len(CONTENT)))
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "mirror"))
    seen: list[tuple[str, int, int]] = []
    (path,) = fetch_files(
        tmp_path,
        tmp_path / "data",
        {"a.bin": pin()},
        progress=lambda *p: seen.append(p),
    )
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


def test_without_a_source_the_error_lists_what_was_tried_and_what_to_do(
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
    source = SourceFile(
        url="s3://bucket/folder/a@b.nc", size=1, sha256="0" * 64, version_id="v+1"
    )
    assert (
        fetching.resolve_url(source)
        == "https://bucket.s3.amazonaws.com/folder/a%40b.nc?versionId=v%2B1"
    )


def test_a_verification_is_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.data import integrity

    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    verify_file(path, pin(), memory=tmp_path / "memory")
    hashed: list[Path] = []
    real = integrity.sha256_of_file
    monkeypatch.setattr(
        integrity, "sha256_of_file", lambda p: hashed.append(p) or real(p)
    )
    verify_file(path, pin(), memory=tmp_path / "memory")
    assert not hashed
    changed = bytearray(CONTENT)
    changed[5] ^= 1
    path.write_bytes(changed)
    with pytest.raises(IntegrityError, match="does not have the pinned bytes"):
        verify_file(path, pin(), memory=tmp_path / "memory")
    assert hashed


def test_a_truncated_and_a_missing_file_say_so(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with pytest.raises(DataError, match="is missing; bring it"):
        verify_file(path, pin(), fix="bring it")
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(
        IntegrityError, match="1,023,999 bytes where the spec pins 1,024,000"
    ):
        verify_file(path, pin())


def test_many_files_of_one_size_are_hashed_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    contents = [f"{number:03d}".encode() for number in range(200)]
    for content in contents:
        (mirror / f"{content.decode()}.wav").write_bytes(content)
    hashed: list[Path] = []
    plain = fetching.sha256_of_file
    monkeypatch.setattr(
        fetching, "sha256_of_file", lambda path: hashed.append(path) or plain(path)
    )
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    pins = {f"{content.decode()}.wav": pin(content=content) for content in contents}
    assert len(fetch_files(tmp_path, tmp_path / "data", pins)) == 200
    assert len(hashed) == len(set(hashed)) == 200
    for content in contents:
        assert (tmp_path / "data" / f"{content.decode()}.wav").read_bytes() == content


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (
            "Is your cache up to date? <https://error.dvc.org/missing-files>",
            "must run `dvc push`",
        ),
        ("ERROR: /somewhere is not a git repository", "`git init` in this folder"),
        ("ERROR: something else", "something else$"),
    ],
)
def test_the_last_message_of_dvc_is_reported_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, says: str
) -> None:
    def failing(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(
            command, 1, "", f"ERROR: failed to pull data\n{last}\n"
        )

    monkeypatch.setattr(subprocess, "run", failing)
    (tmp_path / "x.nc.dvc").write_text("outs:\n- path: x.nc\n")
    with pytest.raises(
        UnavailableError, match=rf"`dvc pull x.nc.dvc` failed: .*{says}"
    ):
        fetching._pull(tmp_path, tmp_path / "x.nc", force=False)


# A server that lies


class Raw:
    """Answers each connection with the next of some functions, which get the socket and what was requests."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[str] = []
        self._answers = list(answers)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/a.bin"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.requests.append(connection.recv(65536).decode())
            answer = (
                self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            )
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer)

    def close(self) -> None:
        self._server.close()


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(CONTENT)
WHOLE = OK + LENGTH + CONTENT
LIES = {
    "nothing": b"",
    "no status line": b"garbage\r\n\r\n",
    "an absurd status": b"HTTP/1.1 999999 what\r\n\r\n",
    "a word for a status": b"HTTP/1.1 abc OK\r\n\r\n",
    "binary": bytes(range(256)) * 8,
    "a long status line": b"HTTP/1.1 200 " + b"x" * 200_000 + b"\r\n\r\n",
    "a long header": OK + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "many headers": OK + b"X: y\r\n" * 1000 + b"\r\n",
    "a truncated body": OK + LENGTH + CONTENT[:1000],
    "a garbage chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\nabc",
    "a truncated chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nffff\r\nabc",
    "a negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    "a negative length": OK + b"Content-Length: -5\r\n\r\nabc",
    "a word for a length": OK + b"Content-Length: many\r\n\r\nabc",
    "an unknown encoding": OK + b"Content-Encoding: gzip\r\n" + LENGTH + CONTENT[:100],
    "a redirect nowhere": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
    "a redirect to itself": b"HTTP/1.1 302 Found\r\nLocation: /a.bin\r\nContent-Length: 0\r\n\r\n",
    "a redirect to a file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "a redirect to ftp": b"HTTP/1.1 301 Moved\r\nLocation: ftp://127.0.0.1/x\r\nContent-Length: 0\r\n\r\n",
    "an odd redirect": b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n",
    "an odd port": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999999/\r\nContent-Length: 0\r\n\r\n",
    "a name of bytes": b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe/\r\nContent-Length: 0\r\n\r\n",
    "not here": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "no rights": b"HTTP/1.1 403 \r\nContent-Length: 0\r\n\r\n",
    "an endless 503": b"HTTP/1.1 503 Busy\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
    "nothing partial": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 7-8/9\r\nContent-Length: 2\r\n\r\nab",
    "an endless 416": b"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n",
    "too much": OK + b"Content-Length: 99999999\r\n\r\n" + CONTENT + CONTENT,
    "a login page": OK + b"Content-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
}


@pytest.mark.parametrize("lie", LIES)
def test_no_answer_of_a_server_is_a_traceback(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT_S", 2)
    server = Raw(LIES[lie])
    serve(monkeypatch, server.url)
    with pytest.raises(
        (UnavailableError, IntegrityError), match=r"127\.0\.0\.1"
    ) as refused:
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert len(str(refused.value)) < 800
    assert not (tmp_path / "data" / "a.bin").exists()
    server.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https://[",
        "https://a b/c",
        "https://host:port/x",
        "https://-",
        "https://a..b/",
        "https://\udcff/x",
        "https://" + "a" * 5000 + "/x",
        "https://%00/x",
        "https://\n/x",
        "http:///x",
        "file:///etc/passwd",
        "ftp://a/b",
    ],
)
def test_an_odd_address_is_one_error(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT_S", 2)
    serve(monkeypatch, url)
    with pytest.raises(UnavailableError, match=r"a\.bin could not be fetched"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})


def test_a_secure_address_is_never_left_for_an_open_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer:
        status: ClassVar[int] = 302
        headers: ClassVar[dict[str, str]] = {"Location": "http://127.0.0.1/a.bin"}

        def close(self) -> None: ...

    requests: list[str] = []

    def request(_: Any, __: str, url: str, **___: Any) -> Answer:
        requests.append(url)
        return Answer()

    monkeypatch.setattr(fetching.urllib3.PoolManager, "request", request)
    serve(monkeypatch, "https://example.org/a.bin")
    with pytest.raises(UnavailableError, match="which is not an https address"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert requests == ["https://example.org/a.bin"]


def test_a_transfer_survives_interruptions_while_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(connection: socket.socket) -> None:
        begin = int(re.search(r"bytes=(\d+)-", server.requests[-1] + "bytes=0-")[1])  # type: ignore[index]
        head = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}\r\n"
        rest = CONTENT[begin:]
        connection.sendall(
            f"{head}Content-Length: {len(rest)}\r\n\r\n".encode() + rest[:100_000]
        )

    server = Raw(
        OK + LENGTH + CONTENT[:50_000],
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"",
        part,
    )
    serve(monkeypatch, server.url)
    monkeypatch.setattr(fetching, "ATTEMPTS", 20)
    (path,) = fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert path.read_bytes() == CONTENT
    assert len(server.requests) > 10
    server.close()


@pytest.mark.parametrize(
    ("header", "waits"),
    [
        (b"", [2, 4, 8, 16]),
        (b"Retry-After: 7\r\n", [7, 7, 8, 16]),
        (b"Retry-After: 3600\r\n", [60, 60, 60, 60]),
    ],
)
def test_a_busy_server_is_asked_five_times_with_growing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, waits: list[float]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("neuroledger.data.fetch.time.sleep", waited.append)
    server = Raw(b"HTTP/1.1 503 Busy\r\n" + header + b"Content-Length: 0\r\n\r\n")
    serve(monkeypatch, server.url)
    with pytest.raises(UnavailableError, match="HTTP 503"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert waited == waits and len(server.requests) == 5
    monkeypatch.setattr(fetching, "GRACE_S", 1)
    with pytest.raises(UnavailableError, match="HTTP 503"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin(content=b"x")})
    assert len(server.requests) == 6, (
        "it does not wait beyond the time that a transfer may take"
    )
    server.close()


def test_a_part_that_is_too_long_is_begun_again_and_a_whole_one_is_only_verified(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    part = tmp_path / ".cache" / "downloads" / f"{pin().sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert Server.ranges == [None]
    part.write_bytes(CONTENT)
    fetch_files(tmp_path, tmp_path / "other", {"a.bin": pin()})
    assert (
        Server.ranges == [None]
        and (tmp_path / "other" / "a.bin").read_bytes() == CONTENT
    )


@pytest.mark.parametrize("known", ["pinned", "sha1", "address"])
def test_every_interrupted_download_is_resumed_with_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    contents = {f"{name}.bin": name.encode() * 2000 for name in ("a", "b")}

    host: Raw

    def answer(connection: socket.socket) -> None:
        content = contents[host.requests[-1].split()[1].lstrip("/")]
        begin = int(re.search(r"bytes=(\d+)-", host.requests[-1] + "bytes=0-")[1])  # type: ignore[index]
        status = b"206 Partial" if begin else b"200 OK"
        connection.sendall(
            b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, 2000 - begin)
        )
        connection.sendall(content[begin:] if begin else content[:500])

    def fetch(name: str, content: bytes) -> None:
        url, size, sha1 = (
            f"https://example.org/{name}",
            2000,
            hashlib.sha1(content).hexdigest(),
        )
        if known == "pinned":
            fetch_files(tmp_path, tmp_path / "data", {name: pin(url, content)})
        else:
            said = Stated(url=url, size=size, sha1=sha1 if known == "sha1" else None)
            fetching.fetch_stated(tmp_path, tmp_path / "data", {name: said})

    host = Raw(answer)
    base = host.url.removesuffix("a.bin")
    monkeypatch.setattr(
        fetching, "resolve_url", lambda said: base + said.url.rpartition("/")[2]
    )
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    for name, content in contents.items():
        with pytest.raises(UnavailableError):
            fetch(name, content)
    for name, content in contents.items():
        fetch(name, content)
        assert (tmp_path / "data" / name).read_bytes() == content
    assert ["Range: bytes=500-" in request for request in host.requests] == [
        False,
        False,
        True,
        True,
    ]
    host.close()


def test_files_in_the_mirror_and_at_addresses_are_fetched_together(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for name in ("a.bin", "c.bin"):
        (mirror / name).write_bytes(name.encode())
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    serve(monkeypatch, server)
    stated = {
        "a.bin": Stated(),
        "b.bin": Stated(url="https://example.org/b.bin"),
        "c.bin": Stated(),
    }
    fetching.fetch_stated(tmp_path, tmp_path / "down", stated)
    found = {path.name: path.read_bytes() for path in (tmp_path / "down").iterdir()}
    assert found == {"a.bin": b"a.bin", "b.bin": CONTENT, "c.bin": b"c.bin"}


def test_a_missing_unpinned_file_does_not_stop_the_others_and_one_error_names_all(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for name in ("changed.bin", "z.bin"):
        (mirror / name).write_bytes(name.encode())
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    closed = socket.create_server(("127.0.0.1", 0))
    nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    closed.close()
    monkeypatch.setattr(
        fetching, "resolve_url", lambda said: nobody if "gone" in said.url else server
    )
    waits: list[float] = []
    monkeypatch.setattr(fetching.time, "sleep", waits.append)
    other = hashlib.sha1(b"other").hexdigest()
    stated = {
        "by_hand.bin": Stated(),
        "changed.bin": Stated(size=3),
        "forged.bin": Stated(url="https://example.org/forged.bin", sha1=other),
        "gone1.bin": Stated(url="https://example.org/gone1.bin"),
        "gone2.bin": Stated(url="https://example.org/gone2.bin"),
        "here.bin": Stated(url="https://example.org/here.bin"),
        "z.bin": Stated(),
    }
    with pytest.raises(IntegrityError) as raised:
        fetching.fetch_stated(tmp_path, tmp_path / "down", stated)
    first, *lines = str(raised.value).split("\n")
    assert first == "5 of 7 files could not be fetched:"
    assert [line.partition(":")[0] for line in lines] == list(stated)[:5]
    reasons = (
        "states no address",
        "has 11 bytes where",
        "returned other bytes than stated",
        "127.0.0.1",
        "127.0.0.1",
    )
    assert all(reason in line for reason, line in zip(reasons, lines, strict=True))
    assert all(
        "NEUROLEDGER_MIRROR" in line for line in (lines[0], lines[1], *lines[3:])
    )
    found = {path.name: path.read_bytes() for path in (tmp_path / "down").iterdir()}
    assert found == {"here.bin": CONTENT, "z.bin": b"z.bin"}
    assert len(waits) == fetching.ATTEMPTS - 1, (
        "a host that did not answer is asked once for each further file"
    )


def test_files_of_one_name_in_several_folders_are_not_taken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    names = [
        "A/data.mat",
        "b/data.mat",
        "c/data.mat",
        "c/deep/data.mat",
        "data.mat",
        "d/run[1].mat",
    ]
    for name in (*names, "0/b/data.mat", "d/run1.mat"):
        (mirror / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / name).write_text(name)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    stated = {name: Stated() for name in names}
    fetching.fetch_stated(tmp_path, tmp_path / "down", stated)
    assert {name: (tmp_path / "down" / name).read_text() for name in names} == {
        name: name for name in names
    }
    for folder in (mirror, tmp_path / "down"):
        (folder / "c" / "data.mat").unlink()
    with pytest.raises(UnavailableError, match=r"^c/data\.mat cannot be fetched"):
        fetching.fetch_stated(tmp_path, tmp_path / "down", stated)


@pytest.mark.parametrize(("status", "there"), [(1, True), (0, False)])
def test_a_pull_of_dvc_succeeds_if_it_says_so_and_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, there: bool
) -> None:
    (tmp_path / "x.nc.dvc").write_text("outs:\n- path: x.nc\n")
    if there:
        (tmp_path / "x.nc").write_bytes(b"an old one")
    done = subprocess.CompletedProcess(["dvc"], status, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(
        UnavailableError, match=r"`dvc pull x\.nc\.dvc` failed: no message"
    ):
        fetching._pull(tmp_path, tmp_path / "x.nc", force=False)


def test_a_file_without_an_address_is_asked_for_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = SourceFile(size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    with pytest.raises(
        UnavailableError,
        match=r"^a\.bin has no address: follow the data set's access_steps",
    ):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": by_hand})
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    words = r"^a\.bin has no address \(no file with these bytes in the mirror .*mirror\): follow the data set's"
    with pytest.raises(UnavailableError, match=words):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": by_hand})
    (mirror / "named otherwise").write_bytes(CONTENT)
    (path,) = fetch_files(tmp_path, tmp_path / "data", {"a.bin": by_hand})
    assert path.read_bytes() == CONTENT


def test_progress_counts_the_bytes_that_arrived_also_before_an_interruption(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    Server.breaks = 1
    seen: list[tuple[str, int, int]] = []
    fetch_files(
        tmp_path,
        tmp_path / "data",
        {"a.bin": pin()},
        progress=lambda *one: seen.append(one),
    )
    counts = [received for _, received, _ in seen]
    assert {(name, total) for name, _, total in seen} == {("a.bin", len(CONTENT))}
    assert counts == sorted(counts) and counts[0] > 0 and counts[-1] == len(CONTENT)


def test_requests_go_through_the_proxy_of_the_environment_except_where_it_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Raw(WHOLE)
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/a.bin"))
    serve(monkeypatch, "http://data.example.org/a.bin")
    fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert proxy.requests[0].startswith(
        "GET http://data.example.org/a.bin HTTP/1.1\r\n"
    )
    direct = Raw(WHOLE)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    serve(monkeypatch, direct.url)
    (tmp_path / "data" / "a.bin").unlink()
    fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert len(proxy.requests) == len(direct.requests) == 1
    assert "Accept-Encoding: identity" in direct.requests[0], (
        "bytes are pinned as they are stored"
    )
    proxy.close()
    direct.close()


def test_a_redirect_is_followed_to_another_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = (
        b"HTTP/1.1 %d Moved\r\nLocation: /%d\r\nContent-Length: 0\r\n\r\n"
        % (code, code)
        for code in (301, 302, 303, 307, 308)
    )
    server = Raw(*moved, WHOLE)
    serve(monkeypatch, server.url)
    fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    asked = [request.split()[1] for request in server.requests]
    assert asked == ["/a.bin", "/301", "/302", "/303", "/307", "/308"]
    server.close()


def test_a_file_that_another_process_fetches_for_too_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, "http://127.0.0.1:9/a.bin")
    monkeypatch.setattr(fetching, "GRACE_S", 0.2)
    (tmp_path / ".cache" / "locks").mkdir(parents=True)
    short = pin(content=b"x")
    with (
        FileLock(tmp_path / ".cache" / "locks" / f"{short.sha256}.lock"),
        pytest.raises(
            UnavailableError,
            match=r"^a\.bin is being fetched by another process, .* in 0 s: end",
        ),
    ):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": short})
    assert not (tmp_path / "data" / "a.bin").exists()


def test_ranges_that_lie_are_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 3-9/10\r\nContent-Length: 7\r\n\r\nabcdefg"
    server = Raw(OK + LENGTH + CONTENT[:5000], wrong, WHOLE)
    serve(monkeypatch, server.url)
    (path,) = fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert path.read_bytes() == CONTENT
    assert "Range: bytes=5000-" in server.requests[1]
    assert "Range" not in server.requests[2]
    server.close()


def test_a_slow_drip_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(OK + LENGTH)
        for _ in range(1000):
            connection.sendall(b"x")
            time.sleep(0.02)

    monkeypatch.setattr(fetching, "time", time)
    monkeypatch.setattr(fetching, "GRACE_S", 1)
    monkeypatch.setattr(fetching, "SLOWEST", 1 << 30)
    server = Raw(drip)
    serve(monkeypatch, server.url)
    before = time.monotonic()
    with pytest.raises(UnavailableError, match=r"bytes in 1 s"):
        fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
    assert time.monotonic() - before < 10
    server.close()


def test_two_fetches_of_one_file_load_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(connection: socket.socket) -> None:
        connection.sendall(OK + LENGTH + CONTENT[:1000])
        threading.Event().wait(0.3)
        connection.sendall(CONTENT[1000:])

    server = Raw(slow)
    serve(monkeypatch, server.url)
    with ThreadPoolExecutor(6) as pool:
        done = list(
            pool.map(
                lambda _: fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()}),
                range(6),
            )
        )
    assert len(done) == 6
    assert len(server.requests) == 1
    assert (tmp_path / "data" / "a.bin").read_bytes() == CONTENT
    server.close()


def test_a_folder_that_cannot_be_written_is_one_error(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, server)
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(
        DataError, match=r"a\.bin cannot be written .*correct its permissions"
    ):
        fetch_files(tmp_path, tmp_path / "data" / "x", {"a.bin": pin()})


# DVC's files


@pytest.mark.parametrize(
    "config",
    [
        "[cache]\n    dir = /tmp/elsewhere\n",
        "[cache]\n    type = symlink\n",
        "[core]\n    site_cache_dir = /tmp/elsewhere\n",
        "['remote \"r\"']\n    url = s3://a/b\n    credentialpath = /etc/x\n",
        "[db]\n    x = 1\n",
        "no section\n",
    ],
)
@pytest.mark.parametrize("name", ["config", "config.local"])
def test_a_data_sets_own_configuration_only_says_where_its_files_come_from(
    config: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "X"
    (folder / ".dvc").mkdir(parents=True)
    (folder / ".dvc" / name).write_text(config)
    (folder / "a.bin.dvc").write_text("outs:\n- md5: '0'\n  size: 1\n  path: a.bin\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("DVC was run"))
    with pytest.raises(DataError, match=name):
        fetching._pull(tmp_path, folder / "a.bin", force=False)


@pytest.mark.parametrize(
    "pointer",
    [
        "outs:\n- path: ../../src/neuroledger/models/zz.py\n",
        "outs:\n- path: a.bin\n- path: b.bin\n",
        "outs:\n- path: a.bin\nwdir: ..\n",
        "outs:\n- path: a.bin\ndeps:\n- path: https://example.org/x\n",
        "cmd: touch x\nouts:\n- path: a.bin\n",
        "[]",
        "outs: 7",
        ": : :",
    ],
)
def test_a_pointer_may_only_name_one_file_in_its_folder(
    pointer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin.dvc").write_text(pointer)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("DVC was run"))
    with pytest.raises(DataError, match=r"does not point to a\.bin in its folder"):
        fetching._pull(tmp_path, tmp_path / "a.bin", force=False)


def test_a_data_file_that_is_called_like_a_module_is_never_imported(
    tmp_path: Path,
) -> None:
    """DVC is run beside the data, and `python -m` looks for modules there first."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(
        [sys.executable, "-P", "-m", "dvc", "init", "-q"], cwd=tmp_path, check=True
    )
    folder = tmp_path / "data" / "X"
    folder.mkdir(parents=True)
    for module in ("dvc", "yaml", "sitecustomize", "encodings"):
        (folder / f"{module}.py").write_text(
            f"open({str(tmp_path / 'CANARY')!r}, 'w')\n"
        )
    (folder / "a.bin.dvc").write_text(
        f"outs:\n- md5: {'0' * 32}\n  size: 1\n  path: a.bin\n"
    )
    with pytest.raises(UnavailableError, match=r"`dvc pull data/X/a\.bin\.dvc` failed"):
        fetching._pull(tmp_path, folder / "a.bin", force=False)
    assert not (tmp_path / "CANARY").exists()


# Answers, by themselves


class Answer:
    def __init__(self, status: int, **headers: str) -> None:
        self.status, self.reason = status, "Why"
        self.headers = {
            name.replace("_", "-"): value for name, value in headers.items()
        }


def transfer(path: Path, size: int | None = 100) -> Any:
    said = Stated(size=size) if size is None else pin(content=bytes(size))
    return fetching.Transfer("https://a/x", path, said, "x", fetching._silent)


@pytest.mark.parametrize(
    ("answer", "there", "size", "begin"),
    [
        (Answer(200), 0, 100, 0),
        (Answer(200), 40, 100, 0),
        (Answer(206), 40, 100, 40),
        (Answer(206, Content_Range="bytes 40-99/100"), 40, 100, 40),
        (Answer(206, Content_Range="bytes 40-99/*"), 40, 100, 40),
        (Answer(206, Content_Range="bytes 40-99/7"), 40, None, 40),
        (Answer(200, Content_Length="100"), 0, 100, 0),
        (Answer(206, Content_Length="60"), 40, 100, 40),
        (Answer(200, Content_Length="many"), 0, 100, 0),
        (Answer(200, Content_Length="9" * 20), 0, 100, 0),
    ],
)
def test_a_response_begins_at_the_requested_byte_or_at_zero(
    tmp_path: Path, answer: Any, there: int, size: int | None, begin: int
) -> None:
    (tmp_path / "p").write_bytes(b"kept")
    assert (
        fetching.check_response(
            answer, "https://a/x", there, transfer(tmp_path / "p", size)
        )
        == begin
    )
    assert (tmp_path / "p").read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("answer", "kind", "words", "wait"),
    [
        (
            Answer(416),
            fetching.TransientError,
            "the response does not continue at byte 1,040",
            0.0,
        ),
        (
            Answer(206, Content_Range="bytes 0-9/2000"),
            fetching.TransientError,
            "the response does not continue at byte 1,040",
            0.0,
        ),
        (
            Answer(206, Content_Range="bytes 1040-9/1999"),
            fetching.TransientError,
            "the response does not continue at byte 1,040",
            0.0,
        ),
        (Answer(503, Retry_After="17"), fetching.TransientError, "HTTP 503", 17.0),
        (Answer(429, Retry_After="1000000"), fetching.TransientError, "HTTP 429", 0.0),
        *(
            (Answer(status), fetching.TransientError, f"HTTP {status}", 0.0)
            for status in (408, 425, 429, 500, 502, 503, 504)
        ),
        (Answer(401), fetching.ForbiddenError, "HTTP 401 Why", None),
        (Answer(403), fetching.ForbiddenError, "HTTP 403 Why", None),
        (Answer(404), fetching.RefusedError, "HTTP 404 Why", None),
        (Answer(204), fetching.RefusedError, "HTTP 204 Why", None),
        (
            Answer(206, Content_Length="961"),
            IntegrityError,
            "more than the 2,000 bytes that are pinned (2,001)",
            None,
        ),
    ],
)
def test_every_other_answer_is_an_error_of_its_kind(
    tmp_path: Path, answer: Any, kind: type[Exception], words: str, wait: float | None
) -> None:
    partial = tmp_path / "p"
    partial.write_bytes(b"begun")
    with pytest.raises(kind) as caught:
        fetching.check_response(answer, "https://a/x", 1040, transfer(partial, 2000))
    assert (
        type(caught.value) is kind
        and "https://a/x" in str(caught.value)
        and words in str(caught.value)
    )
    assert partial.exists() is ("continue" not in words)
    if wait is not None:
        assert caught.value.wait == wait  # type: ignore[attr-defined]


def test_an_unknown_size_is_taken_from_the_server_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = transfer(tmp_path / "p", None)
    assert run.known == "stated" and transfer(tmp_path / "p").known == "pinned"
    assert (
        fetching.check_response(
            Answer(206, Content_Length="60"), "https://a/x", 40, run
        )
        == 40
        and run.size == 100
    )
    monkeypatch.setattr(fetching, "MOST", 99)
    run = transfer(tmp_path / "p", None)
    with pytest.raises(
        IntegrityError, match="sends more than the 99 bytes that are stated"
    ):
        fetching.check_response(
            Answer(206, Content_Length="60"), "https://a/x", 40, run
        )
    assert transfer(tmp_path / "p", 1 << 15).deadline - transfer(
        tmp_path / "p", 0
    ).deadline == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("a\n  b"), "ValueError: a b"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 300), f"ValueError: {'x' * 200}"),
    ],
)
def test_the_innermost_reason_is_one_line(error: Exception, words: str) -> None:
    assert fetching.reason_of(error) == words
    outer = RuntimeError("outer")
    outer.__context__ = error
    assert fetching.reason_of(outer) == words
    named = RuntimeError("named")
    named.reason = error  # type: ignore[attr-defined]
    assert fetching.reason_of(named) == words


@pytest.mark.parametrize("option", sorted(fetching.CONFIG["remote"]))
def test_each_option_that_says_where_files_come_from_is_allowed(
    tmp_path: Path, option: str
) -> None:
    (tmp_path / "config").write_text(
        f"[core]\n    remote = r\n['remote \"r\"']\n    {option} = x\n"
    )
    fetching.require_harmless_config(tmp_path / "config")
    assert option in {
        "url", "verify", "region", "endpointurl", "profile", "version_aware", "allow_anonymous_login", "account_name",
        "projectname", "access_key_id", "secret_access_key", "session_token", "user", "password", "port", "account_key",
        "sas_token", "jobs", "timeout", "read_timeout", "connect_timeout",
    }  # fmt: skip
    assert len(fetching.CONFIG["remote"]) == 21


def test_missing_files_are_counted_with_size_and_command(lab: Lab) -> None:
    assert absent(lab.open(), "datasets", "lab") is None
    size = (lab.data / "stimuli.zip").stat().st_size
    (lab.data / "stimuli.zip").unlink()
    said = absent(lab.open(), "datasets", "lab")
    assert (
        said is not None
        and said.what == f"1 of 3 files are missing, {size / 1e6:,.1f} MB"
    )
    assert (said.code, said.severity, said.where) == (
        "data.missing",
        "error",
        "data set 'lab'",
    )
    assert said.fix == "run `neuroledger fetch lab`"
    assert absent(lab.open(), "models", "pixels4") is None
    assert folder_of(lab.root, "models", "m") == lab.root / "data" / "models" / "m"
    assert folder_of(lab.root, "datasets", "d") == lab.root / "data" / "d"


def test_a_mirror_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetching.mirror_folder() is None
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path))
    assert fetching.mirror_folder() == tmp_path
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "gone"))
    with pytest.raises(
        DataError,
        match=r"^NEUROLEDGER_MIRROR is '.*gone', which is not a folder; unset it or correct it$",
    ):
        fetching.mirror_folder()


def test_unpinned_files_are_found_in_the_mirror_by_name_or_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, folder = tmp_path / "mirror", tmp_path / "down"
    for name, content in (("a/x.bin", b"wrong"), ("b/x.bin", CONTENT)):
        (mirror / name).parent.mkdir(parents=True)
        (mirror / name).write_bytes(content)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    said = Stated(size=len(CONTENT))
    fetching.fetch_stated(tmp_path, folder, {"deep/x.bin": said})
    assert (folder / "deep" / "x.bin").read_bytes() == CONTENT
    (mirror / "b" / "x.bin").unlink()
    fetching.fetch_stated(tmp_path, folder, {"deep/x.bin": said})
    (folder / "deep" / "x.bin").write_bytes(b"other")
    with pytest.raises(
        UnavailableError,
        match=r"^deep/x\.bin cannot be fetched \(.*x\.bin has 5 bytes where its publisher",
    ):
        fetching.fetch_stated(tmp_path, folder, {"deep/x.bin": said})
    with pytest.raises(
        UnavailableError,
        match=r"^y cannot be fetched \(its publisher states no address\): follow the data set's",
    ):
        fetching.fetch_stated(tmp_path, folder, {"y": said})
    requests: list[Any] = []

    def fetch_url(
        root: Path, one: Any, name: str, progress: Any, tried: list[str], sources: Any
    ) -> Path:
        requests.append((root, one, name))
        (tmp_path / "arrived").write_bytes(CONTENT)
        return tmp_path / "arrived"

    monkeypatch.setattr(fetching, "fetch_url", fetch_url)
    addressed = Stated(size=len(CONTENT), url="https://example.org/x")
    fetching.fetch_stated(tmp_path, folder, {"y": addressed})
    assert (
        requests == [(tmp_path, addressed, "y")]
        and (folder / "y").read_bytes() == CONTENT
    )


def test_an_unpinned_file_must_have_the_stated_beginning_of_its_sha256(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, folder = tmp_path / "mirror", tmp_path / "down"
    for name, content in (("a/net.pth", b"x" * len(CONTENT)), ("b/net.pth", CONTENT)):
        (mirror / name).parent.mkdir(parents=True)
        (mirror / name).write_bytes(content)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    beginning = hashlib.sha256(CONTENT).hexdigest()[:8]
    fetching.fetch_stated(
        tmp_path, folder, {"net.pth": Stated(sha256_begins=beginning)}
    )
    assert (folder / "net.pth").read_bytes() == CONTENT
    other = f"{int(beginning, 16) ^ 1:08x}"
    with pytest.raises(
        UnavailableError, match=f"has SHA-256 .* where its publisher states {other}…"
    ):
        fetching.fetch_stated(
            tmp_path, folder, {"net.pth": Stated(sha256_begins=other)}
        )


def test_every_connection_ends_with_its_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose response has no body is neither closed with it nor returned to its pool."""
    opened: list[socket.socket] = []
    watch = exchange.Exchange._watch

    def noted(self: Any, owner: Any, connection: socket.socket) -> socket.socket:
        opened.append(connection)
        return watch(self, owner, connection)

    monkeypatch.setattr(exchange.Exchange, "_watch", noted)
    for lie in ("an odd port", "an odd redirect", "not here", "too much"):
        server = Raw(LIES[lie])
        serve(monkeypatch, server.url)
        with pytest.raises((UnavailableError, IntegrityError)):
            fetch_files(tmp_path, tmp_path / "data", {"a.bin": pin()})
        server.close()
    assert opened and all(connection.fileno() == -1 for connection in opened)
