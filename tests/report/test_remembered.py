"""A board that is put together from what is remembered equals one that is computed, whatever happened to the files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.engine import record as records_module
from neuroledger.engine.record import read_all, read_record, record_path
from neuroledger.engine.records import summary
from neuroledger.engine.records.summary import (
    Known,
    known_in,
    known_records,
    summary_of,
)
from neuroledger.errors import DataError, StorageError
from neuroledger.report.table import board_of, leaderboard
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.differences import Joint, packed, pairs_among, unpacked
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import LightScores
from neuroledger.stats.uncertainty import Part, Uncertainty
from neuroledger.store import store
from neuroledger.store.derived import Derived, derived_at, key_of, remembered
from neuroledger.store.files import json_files
from neuroledger.store.hashes import recalled
from tests.engine.lab import Lab
from tests.report.ledger import keep, record

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


@pytest.fixture
def catalog(lab: Lab) -> Catalog:
    """A repository with the records of three models."""
    catalog = lab.open()
    for model, value in (("ant", 0.9), ("bee", 0.5), ("cat", 0.48)):
        keep(catalog, record(model, RIDGE, value), record(model, PLS, value))
    return catalog


def one_by_one(root: Path) -> list[Known]:
    """Every record, each parsed by itself."""
    return [
        Known(
            summary_of(read_record(path)),
            str(path),
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in json_files(root / "results" / "records")
    ]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that were parsed as records, where each file counts as settled at once."""
    contents: list[bytes] = []
    record_of = records_module.json_object

    def watched(content: bytes) -> Any:
        contents.append(content)
        return record_of(content)

    monkeypatch.setattr(records_module, "json_object", watched)
    monkeypatch.setattr("neuroledger.store.hashes.SETTLED_NS", -1)
    monkeypatch.setattr("neuroledger.store.derived.SETTLED_NS", -1)
    return contents


def files(catalog: Catalog) -> list[Path]:
    return sorted((catalog.root / "results" / "records").rglob("*.json"))


def board(catalog: Catalog) -> dict[str, Any]:
    return asdict(leaderboard(catalog=catalog))


def fresh(catalog: Catalog) -> dict[str, Any]:
    """The board without anything remembered."""
    every = list(read_all(catalog.root / "results" / "records"))
    return asdict(leaderboard(every, catalog=catalog))


def test_nothing_is_read_twice(catalog: Catalog, parsed: list[bytes]) -> None:
    expected = fresh(catalog)
    assert board(catalog) == expected
    parsed.clear()
    assert board(catalog) == expected
    assert not parsed


def test_only_what_a_change_touches_is_read_again(
    catalog: Catalog, parsed: list[bytes]
) -> None:
    before = board(catalog)
    keep(catalog, record("bee", RIDGE, 0.95))
    parsed.clear()
    after = board(catalog)
    assert after == fresh(catalog) != before
    assert len(set(parsed)) == 6, (
        "the changed column, and the other record of its model"
    )


def test_content_counts_and_not_the_time_of_a_file(
    catalog: Catalog, parsed: list[bytes]
) -> None:
    expected = board(catalog)
    for path in files(catalog):
        os.utime(path)
    parsed.clear()
    assert board(catalog) == expected
    assert not parsed, "the same content was parsed before"


@pytest.mark.usefixtures("parsed")
def test_a_file_that_is_as_long_and_as_old_as_before_is_seen(catalog: Catalog) -> None:
    board(catalog)
    path = record_path(catalog.root, RIDGE, "ant")
    state, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"0.9,", b"0.8,"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert board(catalog) == fresh(catalog)
    assert {
        cell.status for row in leaderboard(catalog=catalog).rows for cell in row.cells
    } >= {"edited"}


@pytest.mark.usefixtures("parsed")
def test_only_files_of_a_folder_that_changed_are_looked_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(catalog, record("bee", RIDGE, 0.0), record("bee", PLS, -0.0))
    looked: list[str] = []

    read = summary._Reader.read

    def watched(reader: Any, folder: Path, *given: Any) -> list[Known]:
        looked.append(folder.name)
        return read(reader, folder, *given)

    monkeypatch.setattr(summary._Reader, "read", watched)
    steps: tuple[tuple[str, ...], ...] = ((RIDGE, PLS), (), (RIDGE,), (), (PLS,))
    for at, changed in enumerate(steps):
        if at:
            keep(catalog, *(record("cat", id, 0.1 * at) for id in changed))
        looked.clear()
        found = [
            (each.path, each.sha256, repr(each.summary))
            for each in known_records(catalog.root)
        ]
        assert set(looked) == set(changed)
        every = one_by_one(catalog.root)
        assert found == [(each.path, each.sha256, repr(each.summary)) for each in every]


@pytest.mark.usefixtures("parsed")
def test_a_copy_in_a_folder_below_is_not_the_record(catalog: Catalog) -> None:
    path = record_path(catalog.root, RIDGE, "ant")
    (path.parent / "old").mkdir()
    path.rename(path.parent / "old" / path.name)
    for _ in range(2):
        (found,) = known_in(catalog.root, [path.parent]).values()
        assert [each.name for each in found] == ["bee.json", "cat.json"]
    assert not known_in(catalog.root, [path.parent / "none"])[path.parent / "none"]


@pytest.mark.usefixtures("parsed")
def test_a_removed_record_is_gone(catalog: Catalog) -> None:
    board(catalog)
    record_path(catalog.root, RIDGE, "ant").unlink()
    assert board(catalog) == fresh(catalog)


def test_a_file_that_is_no_record_is_named_every_time(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, parsed: list[bytes]
) -> None:
    record_path(catalog.root, RIDGE, "ant").write_text("{}")
    for count in (6, 1, 1):
        caplog.clear()
        parsed.clear()
        board(catalog)
        assert "record.unreadable" in caplog.text
        assert len(parsed) == count, "others of its folder are parsed once"


@pytest.mark.parametrize(
    "content", [b"", b"no database", b"SQLite format 3\0" + bytes(200)]
)
def test_a_damaged_memory_is_no_error(catalog: Catalog, content: bytes) -> None:
    expected = board(catalog)
    derived_at(catalog.root).path.write_bytes(content)
    assert board(catalog) == expected


def test_a_memory_that_cannot_be_written_is_no_error(catalog: Catalog) -> None:
    expected = fresh(catalog)
    derived_at(catalog.root).path.mkdir(parents=True)
    assert board(catalog) == expected


def test_a_memory_that_came_with_the_repository_is_refused(catalog: Catalog) -> None:
    board(catalog)
    subprocess.run(["git", "-C", str(catalog.root), "init", "-q"], check=True)
    subprocess.run(["git", "-C", str(catalog.root), "add", "-f", ".cache"], check=True)
    store._tracked_by_git.cache_clear()
    with pytest.raises(StorageError, match="tracked by git"):
        board(catalog)


@pytest.mark.usefixtures("parsed")
def test_a_record_that_changes_while_a_board_is_made_is_named(catalog: Catalog) -> None:
    known_records(catalog.root)
    known = known_records(catalog.root)
    keep(catalog, record("ant", RIDGE, 0.2))
    with pytest.raises(DataError, match="changed meanwhile"):
        board_of(catalog, catalog.suite("lab"), known)


def test_a_file_that_was_just_written_is_read_again(catalog: Catalog) -> None:
    known_records(catalog.root)
    assert not any(recalled(path, catalog.root / ".cache") for path in files(catalog))


def bits(score: Score) -> object:
    """All that a score consists of, each number with its bits."""
    known = score.uncertainty
    fields = [getattr(score, each.name) for each in dataclasses.fields(score)[:-1]]
    parts = [] if known is None else known.parts
    deviations = [part.values.tobytes() for part in parts]
    described = [(each.place, each.keys, each.freedom) for each in parts]
    varies = known and (known.items, known.scale, known.outcome, known.method)
    return repr(fields), deviations, described, repr(varies)


def test_scores_in_little_memory_have_the_same_bits() -> None:
    """Of all shipped records, in an order in which neighbours differ, and in one in which they are alike."""
    root = Path(__file__).parents[2] / "results" / "records"
    stored = [each for each in read_all(root) if each.score is not None]
    for order in (stored, sorted(stored, key=lambda each: each.model)):
        scores = LightScores()
        for whole in order:
            assert whole.score is not None
            light = scores.light(whole.score, *whole.owner)
            assert bits(light.score()) == bits(whole.as_score())


@pytest.mark.usefixtures("parsed")
@pytest.mark.parametrize("read", [known_records, one_by_one])
def test_a_summary_says_what_its_record_says(
    catalog: Catalog, read: Callable[[Path], list[Known]]
) -> None:
    for _ in range(2):
        for known in read(catalog.root):
            named = known.summary.benchmark, known.summary.model
            whole = read_record(record_path(catalog.root, *named))
            assert known.summary == summary_of(whole)
            assert repr(known.score()) == repr(whole.as_score())
            assert bits(known.score()) == bits(whole.as_score())


def test_values_follow_from_the_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = Derived(tmp_path)
    calls: list[str] = []

    def compute(name: str) -> int:
        calls.append(name)
        return len(calls)

    for _ in range(2):
        assert remembered(derived, {"a": key_of("count", "x")}, compute) == {"a": 1}
    monkeypatch.setattr("neuroledger.store.derived.code_sha256", lambda: "other code")
    assert remembered(derived, {"a": key_of("count", "x")}, compute) == {"a": 2}
    assert remembered(derived, {"a": ""}, compute) == {"a": 3}
    assert remembered(derived, {"a": ""}, compute) == {"a": 4}, "without a key"


def test_parts_of_a_key_are_told_apart() -> None:
    assert key_of("kind", "ab", "c") != key_of("kind", "a", "bc")


def test_more_keys_than_the_database_takes_at_once(tmp_path: Path) -> None:
    derived = Derived(tmp_path)
    many = {str(number): number for number in range(2001)}
    derived.remember(many)
    assert derived.recall(many) == many
    with sqlite3.connect(derived.path) as connection:
        rows = connection.execute("SELECT count(*) FROM derived").fetchone()
    assert rows == (2001 + 1,), "and whose code wrote them"


def test_an_uncertainty_keeps_its_bits() -> None:
    values = np.random.default_rng(1).normal(size=7)
    keys = tuple(f"s{at}" for at in range(7))
    parts = (
        Part("data", ("stimulus",), keys, values, 6.0),
        Part("data", ("neuroid",), ("n",), values[:1] / 3, float("inf")),
    )
    known = Uncertainty(parts, {"stimulus": 7}, "logit", 0.1, "held-out")
    joints = [Joint(1 / 3, known), Joint(0.5, None), Joint(-0.2, known * 3.0)]
    pairs = pairs_among("abc", joints)
    again = unpacked(json.loads(json.dumps(packed(pairs))))
    assert repr(again) == repr(pairs)
    assert again.p.tobytes() == pairs.p.tobytes()
    for joint, other in zip(again.joints, joints, strict=True):
        bits = [
            part.values.tobytes() for part in getattr(joint.uncertainty, "parts", ())
        ]
        assert bits == [
            part.values.tobytes() for part in getattr(other.uncertainty, "parts", ())
        ]
