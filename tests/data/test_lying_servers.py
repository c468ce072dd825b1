"""Servers that lie below the body of a response: every exchange ends by its deadline, with one error or the right bytes."""

from __future__ import annotations

import gzip
import hashlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from neuroledger.data import fetch as fetching
from neuroledger.data.fetch import fetch_files
from neuroledger.errors import IntegrityError, NeuroLedgerError, UnavailableError
from neuroledger.spec.base import SourceFile

GOOD = bytes(range(250)) * 80
GRACE = 1.0
SOON = 20.0  # seconds; every lie without an end takes minutes
Lie = Callable[[socket.socket, bytes], object]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of a second where the product waits minutes; names of hosts that no proxy knows."""
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    for name, value in (
        ("GRACE_S", GRACE),
        ("SLOWEST", 1 << 30),
        ("LONGEST_WAIT_S", 0.01),
        ("TIMEOUT_S", 5),
    ):
        monkeypatch.setattr(fetching, name, value)


def response(
    status: str = "200 OK", body: bytes = GOOD, length: object = None, *more: str
) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body) if length is None else length}",
        *more,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def says(content: bytes) -> Lie:
    return lambda connection, _: connection.sendall(content)


def drips(before: bytes, slowly: bytes) -> Lie:
    """Send a beginning at once, and the rest a byte at a time, sooner than any timeout of a socket."""

    def lie(connection: socket.socket, _: bytes) -> None:
        connection.sendall(before)
        for number in range(len(slowly)):
            connection.sendall(slowly[number : number + 1])
            time.sleep(0.1)

    return lie


def repeats(content: bytes, wait: float) -> Lie:
    def lie(connection: socket.socket, _: bytes) -> None:
        while True:
            connection.sendall(content)
            time.sleep(wait)

    return lie


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"y" * 60_000
ENDLESS: dict[str, Lie] = {
    "status line": drips(b"", b"HTTP/1.1 200 " + LONG),
    "header": drips(b"HTTP/1.1 200 OK\r\n", b"X: " + LONG),
    "many headers": drips(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "chunk extension": drips(CHUNKED, b"5;" + LONG),
    "chunk size": drips(CHUNKED, b"0" * 5000),
    "body": drips(response(body=b"", length=len(GOOD)), GOOD),
    "body in chunks": drips(CHUNKED, b"1\r\nx\r\n" * 1000),
    "100 Continue": repeats(b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
    "100 Continue, fast": repeats(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0),
    "100 Continue with headers": repeats(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n", 0.02),
    "nothing": lambda connection, _: time.sleep(100),
    "headers of a redirect": drips(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n", b"X: " + LONG),
    "headers of an error": drips(b"HTTP/1.1 503 Busy\r\n", b"X: " + LONG),
}  # fmt: skip
WRONG: dict[str, Lie] = {
    "cut": says(response(body=GOOD[:500], length=len(GOOD))),
    "longer": says(response(body=GOOD + b"more")),
    "other bytes": says(response(body=bytes(len(GOOD)))),
    "a page": says(response(body=b"<html>login</html>")),
    "compressed": says(response("200 OK", gzip.compress(GOOD), None, "Content-Encoding: gzip")),
    "no answer": lambda connection, request: None,
    "no protocol": says(bytes(range(256)) * 20),
    "empty lines": says(b"\r\n" * 5000),
    "another protocol": says(response().replace(b"HTTP/1.1", b"HTTP/9.9")),
    "a negative length": says(response(body=b"", length=-5)),
    "two lengths": says(response("200 OK", GOOD, None, "Content-Length: 7")),
    "a header of a megabyte": says(response("200 OK", GOOD, None, "X: " + "y" * 1_000_000)),
    "a thousand headers": says(response("200 OK", GOOD, None, *(f"X{n}: y" for n in range(1000)))),
    "no chunk": says(CHUNKED + b"zz\r\nxx"),
    "a huge chunk": says(CHUNKED + b"ffffffffffffffffff\r\nxx"),
    "a negative chunk": says(CHUNKED + b"-5\r\nxx"),
    "redirects": says(response("302 F", b"", None, "Location: /loop")),
    "a redirect to a file": says(response("302 F", b"", None, "Location: file:///etc/passwd")),
    "a reason with an escape": says(b"HTTP/1.1 404 \x1b[2J\r\nContent-Length: 0\r\n\r\n"),
    "a part of something else": says(response("206 P", GOOD[:100], None, "Content-Range: bytes 500-599/20000")),
}  # fmt: skip


@contextmanager
def serving(lie: Lie, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answer every request with a lie, and yield the address of the server."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            secured = (
                connection
                if tls is None
                else tls.wrap_socket(connection, server_side=True)
            )
            request = b""
            while b"\r\n\r\n" not in request and (part := secured.recv(4096)):
                request += part
            lie(secured, request)
            secured.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with server:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.getsockname()[1]}/f"


def pin(url: str, content: bytes = GOOD) -> SourceFile:
    return SourceFile(
        url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


def fetch(
    root: Path,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    fine: str = "",
    **others: SourceFile,
) -> tuple[NeuroLedgerError | None, float]:
    """The error of fetching a file from an address, and how long it took."""
    places = {"https://example.org": url, "https://fine.example": fine}
    monkeypatch.setattr(
        fetching, "resolve_url", lambda pin: places[str(pin.url).rpartition("/")[0]]
    )
    started = time.monotonic()
    error = None
    try:
        fetch_files(root, root / "data", {"f": pin("https://example.org/f"), **others})
    except NeuroLedgerError as raised:
        error = raised
    return error, time.monotonic() - started


@pytest.mark.parametrize("name", ENDLESS)
def test_an_exchange_ends_at_its_deadline(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ENDLESS[name]) as url:
        error, took = fetch(tmp_path, url, monkeypatch)
    assert isinstance(error, UnavailableError) and took < SOON
    assert not (tmp_path / "data" / "f").exists()


def test_trailers_that_drip_do_not_cost_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"%x\r\n" % len(GOOD) + GOOD + b"\r\n0\r\n"
    with serving(drips(CHUNKED + body, b"X: " + LONG)) as url:
        error, took = fetch(tmp_path, url, monkeypatch)
    assert error is None and took < SOON
    assert (tmp_path / "data" / "f").read_bytes() == GOOD


def test_a_handshake_that_drips_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    drip = drips(b"", b"\x16\x03\x03\x40\x00" + bytes(5000))

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:  # the other side ends the exchange
            drip(connection, b"")

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with server:
        error, took = fetch(
            tmp_path, f"https://127.0.0.1:{server.getsockname()[1]}/f", monkeypatch
        )
    assert isinstance(error, UnavailableError) and took < SOON


@pytest.mark.parametrize("name", WRONG)
def test_a_lie_is_one_error_or_the_right_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(WRONG[name]) as url:
        error, took = fetch(tmp_path, url, monkeypatch)
    assert took < SOON
    file = tmp_path / "data" / "f"
    assert (
        isinstance(error, UnavailableError | IntegrityError)
        or file.read_bytes() == GOOD
    )
    assert not file.exists() or file.read_bytes() == GOOD


def test_a_certificate_of_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "GRACE_S", 60.0)
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    words = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    command = [
        "openssl",
        "req",
        "-x509",
        *words,
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(says(response()), context) as url:
        error, _ = fetch(tmp_path, url, monkeypatch)
    assert isinstance(error, UnavailableError) and "certificate" in str(error).lower()


def test_one_missing_object_does_not_stop_the_others_and_all_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right = b"wrong" * 10, b"right" * 10
    with (
        serving(says(response("404 Gone", b""))) as gone,
        serving(says(response(body=right))) as fine,
    ):
        others = {
            "a": pin("https://example.org/a"), "b": pin("https://fine.example/b", right),
            "y": pin("https://fine.example/y", wrong), "z": pin("https://fine.example/z", right),
        }  # fmt: skip
        error, _ = fetch(tmp_path, gone, monkeypatch, fine, **others)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["b", "z"]
    first, *lines = str(error).splitlines()
    assert (
        isinstance(error, IntegrityError)
        and first == "3 of 5 files could not be fetched:"
    )
    assert [line.split(":")[0] for line in lines] == ["a", "f", "y"]


def test_a_host_that_is_silent_is_asked_once_for_each_further_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    with serving(lambda connection, request: asked.append(request)) as url:
        error, _ = fetch(
            tmp_path,
            url,
            monkeypatch,
            g=pin("https://example.org/g"),
            h=pin("https://example.org/h"),
        )
    assert "3 of 3 files could not be fetched" in str(error)
    assert len(asked) == fetching.ATTEMPTS + 2
