"""An entry of the store is complete, as it was written, and computed once, whatever happens beside it."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from neuroledger.errors import DataError
from neuroledger.store.store import Entry, Store, Written

MADE_OF = {"of": "this", "seed": 1}


def write(folder: Path) -> Written:
    (folder / "values.bin").write_bytes(b"0123456789")
    (folder / "more.txt").write_text("labels")
    return Written({"shape": [2, 5], "missing": float("nan")})


def refuse(folder: Path) -> Written:
    raise AssertionError("it is there and may not be computed again")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def entry(store: Store) -> Iterator[Entry]:
    yield store.keep("things", MADE_OF, write)


def test_an_entry_is_found_by_what_it_was_made_of(store: Store, entry: Entry) -> None:
    again = store.keep("things", dict(reversed(MADE_OF.items())), refuse)
    assert (again.place / "values.bin").read_bytes() == b"0123456789"
    assert again.about["shape"] == [2, 5] and again.about["missing"] != again.about["missing"]
    assert store.get("things", {**MADE_OF, "seed": 2}) is None
    assert store.get("others", MADE_OF) is None
    with pytest.raises(TypeError):
        store.get("things", {"an object": object()})


def rolled(place: Path) -> None:
    (place / "values.bin").write_bytes(b"9012345678")  # the same bytes in another order


def cut(place: Path) -> None:
    (place / "values.bin").write_bytes(b"01234")


def lost(place: Path) -> None:
    (place / "more.txt").unlink()


def relabelled(place: Path) -> None:
    index = json.loads((place / "index.json").read_text())
    index["about"] = index["about"].replace("[2, 5]", "[5, 2]")
    (place / "index.json").write_text(json.dumps(index))


def emptied(place: Path) -> None:
    (place / "index.json").write_text("")


def listed(place: Path) -> None:
    (place / "index.json").write_text("[]")


@pytest.mark.parametrize("damage", [rolled, cut, lost, relabelled, emptied, listed])
def test_a_damaged_entry_is_computed_again_with_one_line(
    damage, store: Store, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    damage(entry.place)
    with caplog.at_level(logging.WARNING, "neuroledger"):
        again = store.keep("things", MADE_OF, write)
    assert (again.place / "values.bin").read_bytes() == b"0123456789" and again.about["shape"] == [2, 5]
    (line,) = caplog.messages
    assert "is damaged" in line and "computed again" in line
    assert store.keep("things", MADE_OF, refuse).sha256 == again.sha256


def test_an_entry_in_the_place_of_another_is_not_taken_for_it(store: Store, entry: Entry) -> None:
    def other(folder: Path) -> Written:
        (folder / "values.bin").write_bytes(b"of something else")
        return Written()

    theirs = store.keep("things", {"of": "that"}, other)
    shutil.rmtree(entry.place)
    shutil.copytree(theirs.place, entry.place)
    assert store.get("things", MADE_OF) is None


def test_a_file_is_hashed_once_in_a_process_until_it_is_touched(
    store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.store import hashes

    read: list[Path] = []
    hashed = hashes.hashed
    monkeypatch.setattr(hashes, "hashed", lambda path: read.append(path) or hashed(path))
    for _ in range(3):
        assert store.get("things", MADE_OF) is not None
    assert read == []
    (entry.place / "values.bin").touch()
    for _ in range(3):
        assert store.get("things", MADE_OF) is not None
    assert [path.name for path in read] == ["values.bin"]


def test_a_writer_that_fails_leaves_nothing(store: Store) -> None:
    def fail(folder: Path) -> Written:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.keep("things", MADE_OF, fail)
    assert store.get("things", MADE_OF) is None
    assert not list(store.folder.rglob("half"))


def test_of_threads_that_ask_at_once_one_computes(store: Store) -> None:
    meet, computed = Barrier(4, timeout=60), []

    def slow(folder: Path) -> Written:
        computed.append(folder)
        return write(folder)

    def ask(_: int) -> Entry:
        meet.wait()
        return store.keep("things", MADE_OF, slow)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert len(computed) == 1 and len({one.place for one in found}) == 1


def test_of_processes_that_ask_at_once_one_computes_and_a_killed_one_frees_its_lock(tmp_path: Path) -> None:
    code = """
        import os, signal, sys, time
        from pathlib import Path
        from neuroledger.store.store import Store, Written
        folder, role = Path(sys.argv[1]), sys.argv[2]
        def write(place):
            with (folder / "log").open("a") as log:
                log.write(role + "\\n")
            (place / "values.bin").write_bytes(b"0123456789")
            if role == "killed":
                print("holds", flush=True)
                time.sleep(60)
            time.sleep(0.3)
            return Written()
        Store(folder / "store").keep("things", {"of": "this"}, write)
    """

    def start(role: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), role]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start("killed") as first:
        assert first.stdout is not None and first.stdout.readline() == "holds\n"
        others = [start("other") for _ in range(3)]
        first.kill()
    for other in others:
        with other:
            pass
        assert other.returncode == 0
    assert (tmp_path / "log").read_text().split() == ["killed", "other"]
    Store(tmp_path / "store").scratch()
    assert not list((tmp_path / "store" / "processes").glob("*/*.tmp"))


def test_a_store_that_came_with_the_repository_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / ".cache" / "neuroledger")
    store.keep("things", MADE_OF, write)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert store.get("things", MADE_OF) is not None
    subprocess.run([*git, "add", "-f", ".cache"], check=True)
    from neuroledger.store import store as module

    module._tracked_by_git.cache_clear()
    with pytest.raises(DataError, match=r"tracked by git.*git rm"):
        store.get("things", MADE_OF)
