"""The store respects its limit and removes the least recently used entries, but none that a running process uses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import RequestError, StorageError
from neuroledger.models.activation_store import DiskStore
from neuroledger.store import files
from neuroledger.store import store as store_module
from neuroledger.store.store import Store, limit_bytes
from tests.models.drawn_stimuli import drawn
from tests.models.test_present import LAYERS, Counting, model_of

STIMULI = drawn(20, size=(2, 2))


def present_to(store: DiskStore, name: str, network: Counting | None = None) -> Any:
    model = model_of(network or Counting(), store, identity={"builder": name})
    return model.record(STIMULI, "IT")


def size_of(folder: Path) -> int:
    return sum(entry.size for entry in Store(folder).entries())


@pytest.fixture(scope="module")
def one_pass(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the bytes of one pass: 60 layers of 20 stimuli × 4 features in single precision, each with an index."""
    folder = tmp_path_factory.mktemp("one")
    present_to(DiskStore(folder), "first")
    return size_of(folder)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the size of the store at every pass instead of once a minute."""
    monkeypatch.setattr(store_module, "RECOUNT_SECONDS", 0.0)


def age(folder: Path, hours_ago: float) -> None:
    """Set the time of the last use of all entries."""
    for path in folder.glob("activations/??/*/index.json"):
        os.utime(path, (time.time() - 3600 * hours_ago,) * 2)


def test_the_least_recently_used_entries_are_removed_at_the_limit(
    tmp_path: Path, one_pass: int
) -> None:
    store = DiskStore(tmp_path, limit=int(2.5 * one_pass))
    for number, name in enumerate(("first", "second")):
        present_to(store, name)
        age(tmp_path, hours_ago=10 - number) if number == 0 else None
    again = Counting()
    present_to(store, "first", again)
    assert again.shown == 0, "both fit"
    for path in tmp_path.glob("activations/??/*/index.json"):
        hours = 1 if '"first"' in path.read_text() else 5
        os.utime(path, (time.time() - 3600 * hours,) * 2)
    present_to(store, "third")
    assert size_of(tmp_path) <= 2.6 * one_pass
    shows = {name: Counting() for name in ("first", "third", "second")}
    for name, counting in shows.items():
        model_of(counting, DiskStore(tmp_path), identity={"builder": name}).record(
            STIMULI, "IT"
        )
    assert (shows["first"].shown, shows["third"].shown) == (0, 0)
    assert shows["second"].shown == 20


def test_an_entry_that_this_process_has_open_is_not_removed(
    tmp_path: Path, one_pass: int
) -> None:
    store = DiskStore(tmp_path, limit=int(1.2 * one_pass))
    model = model_of(Counting(), store, identity={"builder": "first"})
    activations = model.activations(STIMULI, LAYERS)
    age(tmp_path, hours_ago=5)
    present_to(store, "second")
    assert (
        store.get({"builder": "first", "trials": 1}, STIMULI, LAYERS).keys()
        == activations.keys()
    )
    views = [activations[layer][3:5].reshape(-1) for layer in LAYERS]
    del activations
    present_to(store, "third")
    assert len(store.get({"builder": "first", "trials": 1}, STIMULI, LAYERS)) == len(
        LAYERS
    ), "views count too"
    del views
    age(tmp_path, hours_ago=5)
    present_to(store, "fourth")
    assert not store.get({"builder": "first", "trials": 1}, STIMULI, LAYERS)


def test_an_entry_that_another_process_has_open_is_not_removed(
    tmp_path: Path, one_pass: int
) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.store.test_limit import *\n"
        "store = DiskStore(Path(sys.argv[1]))\n"
        "held = model_of(Counting(), store, identity={'builder': 'theirs'}).activations(STIMULI, LAYERS)\n"
        "print('ready', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        age(tmp_path, hours_ago=5)
        store = DiskStore(tmp_path, limit=int(1.2 * one_pass))
        present_to(store, "ours")
        assert len(Store(tmp_path).entries()) == 2 * len(LAYERS), (
            "the entry of the other process was not removed"
        )
        other.stdin.write("\n")
        other.stdin.flush()
        other.wait()
    present_to(store, "ours again")
    assert not store.get({"builder": "theirs", "trials": 1}, STIMULI, LAYERS)


def test_a_pass_larger_than_the_limit_is_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    counting = Counting()
    with pytest.raises(StorageError) as caught:
        present_to(DiskStore(tmp_path, limit=1000), "large", counting)
    for part in (
        "60 layers",
        "limit",
        "NEUROLEDGER_ACTIVATIONS_LIMIT",
        "--limit",
        "'layer00'",
    ):
        assert part in str(caught.value)
    assert counting.shown == 0


def test_entries_are_removed_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path)
    present_to(store, "first")
    monkeypatch.setattr(store_module, "SPARE_BYTES", 0)
    monkeypatch.setattr(
        store_module.shutil,
        "disk_usage",
        lambda _: type("Usage", (), {"free": 12_000})(),
    )
    present_to(store, "second")
    assert len(Store(tmp_path).entries()) < 2 * len(LAYERS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 50 * 1024**3),
        ("200 GiB", 200 * 1024**3),
        ("500MB", 500 * 1024**2),
        ("1.5t", int(1.5 * 1024**4)),
        ("7", 7),
    ],
)
def test_the_limit_is_read_from_the_environment(
    text: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", text)
    assert limit_bytes() == expected
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", "much")
    with pytest.raises(RequestError, match="200 GiB"):
        limit_bytes()


def test_folders_of_ended_processes_are_removed_and_those_of_other_machines_after_a_day(
    tmp_path: Path,
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        "dead": f"{files.HOST}-{dead.pid}-00000000",
        "same number": f"{files.HOST}-{os.getpid()}-00000000",
        "alive": f"{files.HOST}-{os.getppid()}-00000000",
        "elsewhere": f"elsewhere-{dead.pid}-00000000",
        "long ago": f"long_ago-{dead.pid}-00000000",
    }
    for name in names.values():
        (tmp_path / "processes" / name).mkdir(parents=True)
    os.utime(
        tmp_path / "processes" / names["long ago"], (time.time() - 2 * 24 * 3600,) * 2
    )
    Store(tmp_path).scratch()
    remaining = {path.name for path in (tmp_path / "processes").iterdir()}
    assert remaining == {names["alive"], names["elsewhere"], files.owner()}


def test_a_read_only_store_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = present_to(DiskStore(tmp_path), "first").values.copy()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(store_module.os, "utime", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    counting = Counting()
    assert np.array_equal(
        present_to(DiskStore(tmp_path), "first", counting).values, expected
    )
    assert counting.shown == 0
