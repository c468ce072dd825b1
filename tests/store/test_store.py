"""Entries of the store are complete and verified, and each is computed by one process only."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.store import hashes
from neuroledger.store import store as module
from neuroledger.store.files import owner
from neuroledger.store.store import Entry, Store, Written

MADE_OF = {"of": "this", "seed": 1}


def write(folder: Path) -> Written:
    (folder / "values.bin").write_bytes(b"0123456789")
    (folder / "more.txt").write_text("labels")
    return Written({"shape": [2, 5], "missing": float("nan")})


def refuse(folder: Path) -> Written:
    raise AssertionError("the entry exists and must not be recomputed")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def entry(store: Store) -> Iterator[Entry]:
    yield store.keep("things", MADE_OF, write)


def test_an_entry_is_found_by_its_inputs(store: Store, entry: Entry) -> None:
    again = store.keep("things", dict(reversed(MADE_OF.items())), refuse)
    assert again == store.get("things", MADE_OF)._replace(about=again.about)
    assert again.sha256 == {
        "values.bin": hashlib.sha256(b"0123456789").hexdigest(),
        "more.txt": hashlib.sha256(b"labels").hexdigest(),
    }
    assert (again.place / "values.bin").read_bytes() == b"0123456789"
    assert (
        again.about["shape"] == [2, 5]
        and again.about["missing"] != again.about["missing"]
    )
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


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (rolled, "values.bin was changed"),
        (cut, "values.bin was changed"),
        (lost, "a file is missing"),
        (relabelled, "its index was changed"),
        (emptied, "Expecting value"),
        (listed, ""),
    ],
)
def test_a_damaged_entry_is_recomputed_with_one_warning(
    damage, reason: str, store: Store, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    damage(entry.place)
    with caplog.at_level(logging.WARNING, "neuroledger"):
        again = store.keep("things", MADE_OF, write)
    assert (again.place / "values.bin").read_bytes() == b"0123456789" and again.about[
        "shape"
    ] == [2, 5]
    (line,) = caplog.messages
    assert (
        line.startswith(f"{entry.place} is damaged ({reason}") and "recomputed" in line
    )
    assert store.keep("things", MADE_OF, refuse).sha256 == again.sha256


def test_an_entry_in_the_folder_of_another_is_rejected(
    store: Store, entry: Entry
) -> None:
    def other(folder: Path) -> Written:
        (folder / "values.bin").write_bytes(b"of something else")
        return Written()

    other_entry = store.keep("things", {"of": "that"}, other)
    shutil.rmtree(entry.place)
    shutil.copytree(other_entry.place, entry.place)
    assert store.get("things", MADE_OF) is None


def test_a_file_is_hashed_once_per_process_until_it_changes(
    store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    hashed = hashes.hashed
    monkeypatch.setattr(
        hashes, "hashed", lambda path: read.append(path) or hashed(path)
    )
    for _ in range(3):
        assert store.get("things", MADE_OF) is not None
    assert read == []
    (entry.place / "values.bin").touch()
    for _ in range(3):
        assert store.get("things", MADE_OF) is not None
    assert [path.name for path in read] == ["values.bin"]


def test_a_failed_writer_leaves_no_files(store: Store) -> None:
    def fail(folder: Path) -> Written:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.keep("things", MADE_OF, fail)
    assert store.get("things", MADE_OF) is None
    assert not list(store.folder.rglob("half"))


def test_an_entry_that_another_process_puts_while_it_is_replaced_is_no_failure(
    store: Store, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(entry.place, tmp_path / "copy")
    remove, times = Store._remove, iter(range(3))

    def racing(own: Store, place: Path) -> bool:
        removed = remove(own, place)
        if next(times, None) is not None:
            shutil.copytree(copy, place)
        return removed

    monkeypatch.setattr(Store, "_remove", racing)
    again = store.put("things", MADE_OF, write)
    assert next(times, None) is None and again.sha256 == entry.sha256
    assert store.get("things", MADE_OF) is not None


def test_only_one_of_several_threads_computes_an_entry(store: Store) -> None:
    barrier, computed = Barrier(4, timeout=60), []

    def slow(folder: Path) -> Written:
        computed.append(folder)
        return write(folder)

    def ask(_: int) -> Entry:
        barrier.wait()
        return store.keep("things", MADE_OF, slow)

    with ThreadPoolExecutor(4) as pool:
        entries = list(pool.map(ask, range(4)))
    assert len(computed) == 1 and len({entry.place for entry in entries}) == 1


def test_only_one_of_several_processes_computes_and_a_killed_one_releases_its_lock(
    tmp_path: Path,
) -> None:
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


def test_a_store_tracked_by_git_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / ".cache" / "neuroledger")
    store.keep("things", MADE_OF, write)
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=n",
        "-c",
        "user.email=n@example.org",
    ]
    subprocess.run([*git, "init", "-q"], check=True)
    assert store.get("things", MADE_OF) is not None
    subprocess.run([*git, "add", "-f", ".cache"], check=True)
    module._tracked_by_git.cache_clear()
    with pytest.raises(DataError, match=r"tracked by git.*git rm"):
        store.get("things", MADE_OF)


def test_every_file_of_an_entry_is_synced_before_the_entry_is_renamed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(
        os, "fsync", lambda number: calls.append("sync") or fsync(number)
    )
    monkeypatch.setattr(
        Path, "rename", lambda self, to: calls.append("rename") or rename(self, to)
    )
    store.keep("things", MADE_OF, write)
    assert calls == ["sync"] * 3 + ["rename"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only some systems fork")
def test_an_own_entry_is_not_that_of_a_fork(store: Store) -> None:
    mine = store.put("things", MADE_OF, write, own=True)
    child = os.fork()
    if not child:
        os._exit(0 if store.get("things", MADE_OF, own=True) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("things", MADE_OF, own=True) == mine


def test_an_own_entry_is_found_by_this_process_only(store: Store) -> None:
    mine = store.put("things", MADE_OF, write, own=True)
    assert (
        store.get("things", MADE_OF) is None
        and store.get("things", MADE_OF, own=True) == mine
    )
    assert mine.place.is_relative_to(store.folder / "processes" / owner())
    assert [entry.place for entry in store.entries()] == [mine.place]


def test_an_existing_entry_is_returned_without_its_lock(
    store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "lock", lambda *_: pytest.fail("the lock was requested"))
    assert store.keep("things", MADE_OF, refuse).key == entry.key


def test_entries_of_different_kinds_have_different_locks(
    store: Store, entry: Entry
) -> None:
    store.keep("others", MADE_OF, write)
    assert len(list((store.folder / "locks").iterdir())) == 2


def test_a_committed_folder_is_an_entry_for_every_process(store: Store) -> None:
    folder = store.scratch()
    folder.mkdir()
    store.commit("things", MADE_OF, folder, write(folder))
    assert store.get("things", MADE_OF) is not None and not folder.exists()


def test_an_entry_is_not_removed_while_an_array_of_its_file_exists(
    store: Store, entry: Entry
) -> None:
    shutil.rmtree(
        store.folder / "processes"
    )  # as in a process that has written nothing yet
    full = Store(store.folder, limit=1)
    array = np.zeros(2)
    full.use_file(entry.place / "values.bin", array)
    full.use_file(store.folder.parent / "elsewhere.bin", array)
    opened = store.folder / "processes" / owner() / "open"
    assert [path.name for path in opened.iterdir()] == [entry.key]
    full.make_room(1)
    assert store.get("things", MADE_OF) is not None
    del array
    assert not any(opened.iterdir())
    full.make_room(1)
    assert store.get("things", MADE_OF) is None


def test_the_folder_of_a_process_is_removed_at_its_end_but_not_by_its_children(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    module._forget(folder, os.getpid() + 1)
    assert folder.exists()
    module._forget(folder, os.getpid())
    assert not folder.exists()


def test_the_size_of_a_store_is_counted_once_a_minute(
    store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    sizes = module._Sizes(store.folder)
    first = sizes.total()
    assert first == store.entries()[0].size
    store.keep("things", {"of": "that"}, write)
    now += 59.0
    assert sizes.total() == first
    sizes.add(7)
    sizes.add(-3)
    assert sizes.total() == first + 4
    now += 1.0
    assert sizes.total() == sum(entry.size for entry in store.entries()) > first + 4


def test_put_replaces_an_entry(store: Store, entry: Entry) -> None:
    def other(folder: Path) -> Written:
        (folder / "values.bin").write_bytes(b"later")
        return Written(sha256={"values.bin": hashlib.sha256(b"later").hexdigest()})

    again = store.put("things", MADE_OF, other)
    assert again.place == entry.place and again.key == entry.key
    assert sorted(path.name for path in again.place.iterdir()) == [
        "index.json",
        "values.bin",
    ]
    assert store.get("things", MADE_OF) == again


def test_entries_are_listed_in_order_of_use_with_their_sizes(store: Store) -> None:
    keys = {
        used: store.keep("things", {"number": used}, write).place
        for used in (30, 10, 20)
    }
    for used, place in keys.items():
        os.utime(place / "index.json", (used, used))
    listed = store.entries()
    assert [(entry.place, entry.used) for entry in listed] == [
        (keys[used], float(used)) for used in (10, 20, 30)
    ]
    assert (
        listed[0].size
        == sum(path.stat().st_size for path in listed[0].place.iterdir())
        > 16
    )


def test_make_room_respects_the_limit_and_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 1000)
    monkeypatch.setattr(
        module.shutil, "disk_usage", lambda _: SimpleNamespace(free=3500)
    )
    monkeypatch.setattr(module, "RECOUNT_SECONDS", 0.0)
    assert Store(tmp_path / "a", limit=2000).make_room(1) == 2000
    assert Store(tmp_path / "a", limit=9000).make_room(2500) == 2500
    store = Store(tmp_path / "b", limit=9000)
    places = [
        store.keep("things", {"number": number}, write).place for number in range(3)
    ]
    for used, place in enumerate(places):
        os.utime(place / "index.json", (used, used))
    size = store.entries()[0].size
    assert store.make_room(2500) == 2500 and len(store.entries()) == 3
    assert store.make_room(2500) == 2500 and len(store.entries()) == 3
    assert (
        store.make_room(2500 + size) == 2500 + size
        and [entry.place for entry in store.entries()] == places[1:]
    )
    tight = Store(tmp_path / "b", limit=2 * size + 10)
    assert tight.make_room(10) == tight.limit and len(tight.entries()) == 2
    assert (
        tight.make_room(11) == tight.limit
        and [entry.place for entry in tight.entries()] == places[2:]
    )


def test_the_store_is_in_the_repository_unless_a_variable_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(module.FOLDER, raising=False)
    assert module.open_store(tmp_path).folder == tmp_path / ".cache" / "neuroledger"
    with module.store_at(tmp_path / "other"):
        assert (
            module.current_store().folder
            == tmp_path / "other" / ".cache" / "neuroledger"
        )
    monkeypatch.setenv(module.FOLDER, str(tmp_path / "named"))
    assert module.open_store(tmp_path).folder == tmp_path / "named"


def test_a_disk_error_names_the_folder_and_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> Written:
        raise OSError(28, "No space left on device")

    with pytest.raises(
        DataError,
        match=rf"store cannot be written \(No space left on device\).*{module.FOLDER}",
    ):
        store.put("things", MADE_OF, full)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1024.0 KiB"),
        (1024**2, "1.0 MiB"),
        (1024**3, "1.0 GiB"),
        (1024**4, "1.0 TiB"),
        (3 * 1024**5, "3072.0 TiB"),
    ],
)
def test_sizes_are_in_units_of_1024(count: int, text: str) -> None:
    assert module.size_in_words(count) == text


def test_a_file_is_hashed_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class Recorded(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            sizes.append(-1 if size is None else size)
            return super().read(size)

    (tmp_path / "a").write_bytes(b"0123456789")
    monkeypatch.setattr(hashes, "BLOCK", 4)
    monkeypatch.setattr(Path, "open", lambda path, mode: Recorded(b"0123456789"))
    assert hashes.hashed(tmp_path / "a") == hashlib.sha256(b"0123456789").hexdigest()
    assert sizes == [4] * 4, "three blocks and the end"


def test_a_single_hash_is_shared_between_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memory = tmp_path / "a.bin", tmp_path / "memory"
    path.write_bytes(b"abc")
    hashes.remember(path, "0" * 64, memory)
    monkeypatch.setattr(hashes, "_KNOWN", {})
    assert hashes.recalled(path, memory) == "0" * 64


def test_hashes_are_shared_between_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memory = tmp_path / "a.bin", tmp_path / "memory"
    path.write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert (
        hashes.recalled(path, memory) is None
        and hashes.recalled(path, tmp_path / "a.bin") is None
    )
    with hashes.remembering(memory):
        hashes.remember(path, digest, memory)
        assert hashes.recalled(path, memory) == digest, (
            "within the batch, before it is written"
        )
    monkeypatch.setattr(hashes, "_KNOWN", {})
    monkeypatch.setattr(hashes, "hashed", lambda _: pytest.fail("the file was read"))
    assert hashes.recalled(path, memory) == digest == hashes.sha256_of(path)
    with hashes.remembering(memory):
        assert hashes.recalled(path, memory) == digest
        path.write_bytes(b"abcd")
        assert hashes.recalled(path, memory) is None, "the file changed"
    with hashes.remembering(None):
        hashes.remember(path, "here alone")
    assert (
        hashes.sha256_of(path) == "here alone" and hashes.recalled(path, memory) is None
    )


def test_an_entry_that_another_thread_creates_while_it_is_looked_up_is_not_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = module._verified

    def too_early(*arguments: Any) -> Entry:
        monkeypatch.setattr(module, "_verified", verified)
        try:
            return verified(*arguments)
        finally:
            store.put(
                "things", MADE_OF, write
            )  # by another thread, after the index was not found

    monkeypatch.setattr(module, "_verified", too_early)
    found = store.get("things", MADE_OF)
    assert found is not None and found.place.is_dir()
