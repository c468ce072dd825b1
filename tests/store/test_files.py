"""Files are replaced atomically; temporary files of killed processes are removed, those of running ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroledger.errors import DataError
from neuroledger.store import files
from neuroledger.store.derived import derived_at
from neuroledger.store.files import (
    alive,
    owner,
    replacing,
    sweep,
    write_json,
    write_text,
)
from neuroledger.store.hashes import recalled, remember


@pytest.fixture(scope="module")
def dead() -> int:
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(autouse=True)
def not_swept_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(files, "_swept", set())
    yield


def test_sweep_removes_only_temporary_files_of_ended_processes(
    tmp_path: Path, dead: int
) -> None:
    stale = [f".a.json.{files.HOST}-{dead}-0123abcd-7.tmp", f".a.json.{dead}.tmp"]
    others = [
        f".a.json.{owner()}-1.tmp",
        f".a.json.{files.HOST}-{os.getppid()}-0123abcd-7.tmp",
        f".a.json.elsewhere-{dead}-0123abcd-7.tmp",
        f"a.json.{files.HOST}-{dead}-0123abcd-7.tmp",  # not hidden: a file of the user
        f".a.json.{files.HOST}-{dead}-0123abcd-7.tmp.json",
        ".a.json.tmp",
    ]
    for name in (*stale, *others):
        (tmp_path / name).write_text("x")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(others)
    (tmp_path / stale[0]).write_text("x")
    sweep(tmp_path)
    assert (tmp_path / stale[0]).exists(), "a folder is swept once per process"
    sweep(tmp_path / "no such folder")
    other = tmp_path / "other"
    other.mkdir()
    (other / stale[0]).write_text("x")
    sweep(other)
    assert not any(other.iterdir()), "each folder is swept"


def test_a_process_is_alive_if_it_runs_here_or_wrote_elsewhere_within_a_day(
    tmp_path: Path, dead: int
) -> None:
    here = files.HOST
    assert alive(owner(), tmp_path) and alive(str(os.getppid()), tmp_path)
    assert not alive(f"{here}-{os.getpid()}-00000000", tmp_path), (
        "the process id was reused"
    )
    assert not alive(str(os.getpid()), tmp_path) and not alive(str(dead), tmp_path)
    assert not alive(f"{here}-{10**30}-00000000", tmp_path)
    assert alive("elsewhere-1-00000000", tmp_path)
    os.utime(tmp_path, (time.time() - files.ELSEWHERE_SECONDS - 60,) * 2)
    assert not alive("elsewhere-1-00000000", tmp_path)
    assert not alive("elsewhere-1-00000000", tmp_path / "gone")


def test_a_failed_block_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyError), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == path.parent and path.read_text() == "old"
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]


def test_two_writers_of_one_file_have_different_temporary_files(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one", "the block that ended last"
    with replacing(tmp_path / ("n" * 250)) as temporary:
        assert len(temporary.name) < 255
        temporary.write_text("")


def test_a_file_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(
        files.os, "fsync", lambda number: calls.append("sync") or fsync(number)
    )
    monkeypatch.setattr(
        Path, "replace", lambda self, to: calls.append("rename") or rename(self, to)
    )
    write_text(tmp_path / "a", "x")
    assert calls == ["sync", "rename"]


def test_a_disk_error_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file, not a folder")
    with pytest.raises(
        DataError,
        match=r"a/b cannot be written \(.+\); check free space and permissions there",
    ):
        write_text(tmp_path / "a" / "b", "x")


def test_an_unchanged_text_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert write_text(path, "ü\nö\n") is True
    assert path.read_bytes() == "ü\nö\n".encode()
    os.utime(path, (1, 1))
    assert write_text(path, "ü\nö\n") is False and path.stat().st_mtime == 1
    path.write_bytes(b"\xff")
    assert write_text(path, "ü") is True and path.read_bytes() == "ü".encode()


def test_json_is_sorted_indented_and_finite(tmp_path: Path) -> None:
    assert write_json(tmp_path / "a", {"b": 1, "a": ["ü"]})
    assert (tmp_path / "a").read_text(
        encoding="utf-8"
    ) == '{\n  "a": [\n    "ü"\n  ],\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b", float("inf"))
    assert not (tmp_path / "b").exists()


def test_what_is_derived_is_ignored_by_git_without_a_line_of_the_repository(
    tmp_path: Path,
) -> None:
    """As when somebody commits everything after a first call."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    data = tmp_path / "data.bin"
    data.write_bytes(b"x")
    remember(data, "0" * 64, tmp_path / ".cache")
    derived_at(tmp_path).remember({"key": 1})
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    listed = subprocess.run(
        ["git", "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert listed.stdout.split() == ["data.bin"]
    assert derived_at(tmp_path).recall(["key"]) == {"key": 1}
    assert recalled(data, tmp_path / ".cache") == "0" * 64


def test_a_link_in_the_place_of_the_list_of_ignored_files_is_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "derived").mkdir()
    (tmp_path / "derived" / ".gitignore").symlink_to(tmp_path / "elsewhere")
    files.keep_from_git(tmp_path / "derived")
    assert not (tmp_path / "elsewhere").exists()
