"""What is remembered is never the truth: a damaged memory is made again, and one of other code is emptied."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from neuroledger.store import derived, hashes
from neuroledger.store.derived import Derived


def no_database(path: Path) -> None:
    path.write_bytes(b"damaged" * 1000)


def broken_pages(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))


def with_the_journal_of_another(path: Path) -> None:
    no_database(path)
    path.with_name(f"{path.name}-journal").write_bytes(
        b"\xd9\xd5\x05\xf9 \xa1c\xd7" * 99
    )


DAMAGES = [no_database, broken_pages, with_the_journal_of_another]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_memory_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    memory = Derived(tmp_path)
    memory.remember({"a": [1]})
    damage(memory.path)
    assert memory.recall(["a"]) == {}
    memory.remember({"b": 2})
    assert memory.recall(["a", "b"]) == {"b": 2}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_hashes_are_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = tmp_path / "values.bin"
    file.write_bytes(b"0123456789")
    sha256 = hashes.hashed(file)
    hashes.remember(file, sha256, tmp_path)
    damage(tmp_path / hashes.FILE)
    assert hashes.recalled(file, tmp_path) is None
    hashes.remember(file, sha256, tmp_path)
    assert hashes.recalled(file, tmp_path) == sha256


def test_a_locked_memory_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Derived(tmp_path)
    memory.remember({"a": 1})
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, 0))
    with closing(connect(memory.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert memory.recall(["a"]) == {}
        memory.remember({"b": 2})
    assert memory.recall(["a", "b"]) == {"a": 1}


def test_values_of_other_code_are_removed_by_the_first_of_this_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Derived(tmp_path)
    memory.remember({"a": 1})
    memory.remember({"b": 2})
    assert memory.recall(["a", "b"]) == {"a": 1, "b": 2}
    monkeypatch.setattr(derived, "code_sha256", lambda: "other code")
    assert memory.recall(["a"]) == {"a": 1}
    memory.remember({"c": 3})
    assert memory.recall(["a", "b", "c"]) == {"c": 3}
