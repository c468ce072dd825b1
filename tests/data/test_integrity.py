"""A file is what is pinned or stated of it, or one error names the first difference and what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from neuroledger.data import integrity
from neuroledger.data.integrity import (
    compare,
    damaged_file,
    verified_files,
    verify_file,
)
from neuroledger.errors import DataError, IntegrityError
from neuroledger.spec.base import SourceFile, Stated
from tests.engine.lab import Lab

CONTENT = b"0123456789" * 200
SUMS = {
    name: hashlib.new(name, CONTENT, usedforsecurity=False).hexdigest()
    for name in ("md5", "sha1", "sha256")
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    return tmp_path / "a.bin"


def pin(**changes: Any) -> SourceFile:
    return SourceFile(
        **{
            "url": "https://example.org/a",
            "size": 2000,
            "sha256": SUMS["sha256"],
            **changes,
        }
    )


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"size": 2000},
        *({name: value} for name, value in SUMS.items()),
        {"size": 2000, **SUMS},
        *({"sha256_begins": SUMS["sha256"][:digits]} for digits in (6, 8, 64)),
    ],
)
def test_a_download_matches_its_statement(path: Path, stated: dict[str, Any]) -> None:
    compare(path, Stated(**stated))


@pytest.mark.parametrize(
    ("stated", "found", "wanted"),
    [
        ({"size": 2001}, "2,000 bytes", "2,001"),
        ({"md5": "0" * 32}, f"MD5 {SUMS['md5']}", "0" * 32),
        ({"sha1": "0" * 40, "md5": SUMS["md5"]}, f"SHA-1 {SUMS['sha1']}", "0" * 40),
        ({"sha256": "0" * 64, "size": 2000}, f"SHA-256 {SUMS['sha256']}", "0" * 64),
        ({"sha256_begins": "012345"}, f"SHA-256 {SUMS['sha256']}", "012345…"),
        (
            {"sha256_begins": SUMS["sha256"][1:9]},
            f"SHA-256 {SUMS['sha256']}",
            f"{SUMS['sha256'][1:9]}…",
        ),
        (
            {"sha256": SUMS["sha256"], "sha256_begins": "0" * 64},
            f"SHA-256 {SUMS['sha256']}",
            "0" * 64,
        ),
    ],
)
def test_the_first_difference_is_reported_with_advice(
    path: Path, stated: dict[str, Any], found: str, wanted: str
) -> None:
    words = f"{path} has {found} where its publisher states {wanted}: "
    with pytest.raises(IntegrityError) as caught:
        compare(path, Stated(**stated))
    assert (
        str(caught.value)
        == f"{words}the download is incomplete or another version; get it again"
    )
    with pytest.raises(IntegrityError) as caught:
        compare(path, Stated(**stated), fix="ask them")
    assert str(caught.value) == f"{words}ask them"


def test_a_pinned_file_is_verified_by_all_that_is_pinned(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_SHA1", set())
    verify_file(path, pin())
    verify_file(path, pin(sha1=SUMS["sha1"]))
    with pytest.raises(
        IntegrityError,
        match=r"has SHA-1 .* where its publisher states 0{40}: bring it$",
    ):
        verify_file(path, pin(sha1="0" * 40), fix="bring it")
    with pytest.raises(IntegrityError) as caught:
        verify_file(path, pin(sha256="0" * 64), fix="bring it")
    assert str(caught.value) == (
        f"{path} does not have the pinned bytes: SHA-256 {SUMS['sha256'][:12]}…, pinned 000000000000…; bring it"
    )
    with pytest.raises(IntegrityError, match=r"has 2,000 bytes where the spec pins 1$"):
        verify_file(path, pin(size=1))
    with pytest.raises(DataError, match=r"a\.bin is missing$"):
        verify_file(path.with_name("b").parent / "gone" / "a.bin", pin())

    def unreadable(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(integrity, "sha256_of_file", unreadable)
    with pytest.raises(
        DataError, match=r"a\.bin cannot be read \(Permission denied\); bring it$"
    ):
        verify_file(path, pin(), fix="bring it")


def test_a_remembered_verification_does_not_read_the_file_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_SHA1", set())
    memory, read, compared = path.parent / "memory", [], []
    plain, other = integrity.sha256_of_file, integrity.compare
    monkeypatch.setattr(
        integrity, "sha256_of_file", lambda p: read.append(p) or plain(p)
    )
    monkeypatch.setattr(
        integrity, "compare", lambda p, s, **k: compared.append(p) or other(p, s, **k)
    )
    for _ in range(3):
        verify_file(path, pin(sha1=SUMS["sha1"]), memory=memory)
    assert (len(read), len(compared)) == (1, 1)
    verify_file(path, pin(sha1=SUMS["sha1"]))
    assert (len(read), len(compared)) == (2, 2), "without a memory it is read"
    with pytest.raises(IntegrityError):
        verify_file(path, pin(sha256="0" * 64), memory=memory)


def test_the_files_of_a_data_set_are_verified_or_the_command_is_named(lab: Lab) -> None:
    found = verified_files(lab.open(), "datasets", "lab")
    assert found == {
        name: lab.data / name for name in ("responses.nc", "stimuli.csv", "stimuli.zip")
    }
    assert damaged_file(lab.open(), "datasets", "lab") is None
    assert (lab.root / ".cache" / "neuroledger" / "hashes.sqlite").is_file()
    (lab.data / "stimuli.zip").write_bytes(b"x")
    with pytest.raises(
        IntegrityError,
        match=r"; move it away if you need it: run `neuroledger fetch lab --force`$",
    ):
        verified_files(lab.open(), "datasets", "lab")
    assert damaged_file(lab.open(), "datasets", "lab") == lab.data / "stimuli.zip"
    (lab.data / "stimuli.zip").unlink()
    with pytest.raises(DataError, match=r"is missing: run `neuroledger fetch lab`$"):
        verified_files(lab.open(), "datasets", "lab")
    assert damaged_file(lab.open(), "datasets", "lab") is None, (
        "what is not here is not damaged"
    )


def test_every_file_is_hashed_again_if_the_memory_is_not_trusted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified_files(lab.open(), "datasets", "lab")
    read: list[str] = []
    plain = integrity.sha256_of_file
    monkeypatch.setattr(
        integrity, "sha256_of_file", lambda path: read.append(path.name) or plain(path)
    )
    verified_files(lab.open(), "datasets", "lab")
    assert read == []
    verified_files(lab.open(), "datasets", "lab", trust_memory=False)
    assert read == ["responses.nc", "stimuli.csv", "stimuli.zip"]
