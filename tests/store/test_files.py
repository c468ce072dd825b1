"""A file is replaced whole or not at all, and what a killed process left is removed, never what a running one writes."""

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
from neuroledger.store.files import alive, owner, replacing, sweep, write_json, write_text


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(autouse=True)
def not_swept_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(files, "_swept", set())
    yield


def test_the_temporary_files_of_ended_processes_go_and_all_others_stay(tmp_path: Path, dead: int) -> None:
    gone = [f".a.json.{files.HOST}-{dead}-0123abcd-7.tmp", f".a.json.{dead}.tmp"]
    kept = [
        f".a.json.{owner()}-1.tmp",
        f".a.json.{files.HOST}-{os.getppid()}-0123abcd-7.tmp",
        f".a.json.elsewhere-{dead}-0123abcd-7.tmp",
        f"a.json.{files.HOST}-{dead}-0123abcd-7.tmp",  # no dot in front: somebody's own file
        f".a.json.{files.HOST}-{dead}-0123abcd-7.tmp.json",
        ".a.json.tmp",
    ]
    for name in (*gone, *kept):
        (tmp_path / name).write_text("x")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    (tmp_path / gone[0]).write_text("x")
    sweep(tmp_path)
    assert (tmp_path / gone[0]).exists(), "a folder is looked at once"
    sweep(tmp_path / "no such folder")


def test_a_process_runs_if_the_system_says_so_and_one_elsewhere_for_a_day(tmp_path: Path, dead: int) -> None:
    here = files.HOST
    assert alive(owner(), tmp_path) and alive(str(os.getppid()), tmp_path)
    assert not alive(f"{here}-{os.getpid()}-00000000", tmp_path), "the number was given to another"
    assert not alive(str(os.getpid()), tmp_path) and not alive(str(dead), tmp_path)
    assert not alive(f"{here}-{10**30}-00000000", tmp_path)
    assert alive("elsewhere-1-00000000", tmp_path)
    os.utime(tmp_path, (time.time() - files.ELSEWHERE_SECONDS - 60,) * 2)
    assert not alive("elsewhere-1-00000000", tmp_path)
    assert not alive("elsewhere-1-00000000", tmp_path / "gone")


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
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


def test_two_writers_of_one_file_do_not_share_a_temporary_one(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one", "the last to end"
    with replacing(tmp_path / ("n" * 250)) as temporary:
        assert len(temporary.name) < 255
        temporary.write_text("")


def test_what_is_written_is_on_the_disk_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda number: done.append("sync") or fsync(number))
    monkeypatch.setattr(Path, "replace", lambda self, to: done.append("name") or rename(self, to))
    write_text(tmp_path / "a", "x")
    assert done == ["sync", "name"]


def test_an_error_of_the_disk_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file, and no folder")
    with pytest.raises(
        DataError, match=r"a/b cannot be written \(.+\); check free space and permissions there"
    ):
        write_text(tmp_path / "a" / "b", "x")


def test_a_text_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert write_text(path, "ü\nö\n") is True
    assert path.read_bytes() == "ü\nö\n".encode()
    os.utime(path, (1, 1))
    assert write_text(path, "ü\nö\n") is False and path.stat().st_mtime == 1
    path.write_bytes(b"\xff")
    assert write_text(path, "ü") is True and path.read_bytes() == "ü".encode()


def test_json_is_sorted_indented_and_finite(tmp_path: Path) -> None:
    assert write_json(tmp_path / "a", {"b": 1, "a": ["ü"]})
    assert (tmp_path / "a").read_text(encoding="utf-8") == '{\n  "a": [\n    "ü"\n  ],\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b", float("inf"))
    assert not (tmp_path / "b").exists()
