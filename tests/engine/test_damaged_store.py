"""Damaged store entries of any kind are computed again, with the same record."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from neuroledger.data.gate.validate import validate
from neuroledger.display import NoDisplay
from neuroledger.engine.plan import plan
from neuroledger.engine.record import read_record, record_path
from neuroledger.engine.run import run
from neuroledger.engine.session import Request
from neuroledger.families.alignment.similarity import gram
from neuroledger.store.store import store_folder
from tests.engine.lab import Lab

RIDGE, CKA = "lab.V4-ridge", "lab.V4-cka"


def scored(lab: Lab) -> dict[str, str]:
    """The payload of each record, computed now."""
    jobs = plan(
        lab.open(), benchmarks=[RIDGE, CKA], models=["pixels8"], request=Request()
    ).jobs
    run(lab.open(), jobs, Request(), NoDisplay(), force=True)
    records = [
        read_record(record_path(lab.root, benchmark, "pixels8"))
        for benchmark in (RIDGE, CKA)
    ]
    assert [record.status for record in records] == ["scored"] * 2, [
        record.error for record in records
    ]
    return {record.benchmark: record.payload() for record in records}


@pytest.fixture
def kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Path]]:
    """The files of the store by the kind of their entry, after two benchmarks were scored."""
    monkeypatch.setattr(gram, "WORTH_KEEPING", 0)
    lab.spec("models", "pixels8", builder={"name": "pixels", "size": 8})
    lab.dataset()
    lab.benchmark(CKA, metric="cka", ceiling=None, controls={})
    validate(lab.open(), "lab")
    scored(lab)
    folder = store_folder(lab.root)
    result: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and len(parts) > 2:
            result.setdefault(parts[0], []).append(path)
    return result


def flipped(path: Path) -> None:
    """One bit, and the time of the file as it was."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lost(path: Path) -> None:
    path.unlink()


def turned(path: Path) -> None:
    """The same bytes in another order."""
    path.write_bytes(path.read_bytes()[::-1])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flipped, cut, lost, turned, folder])
def test_a_damaged_entry_of_any_kind_leaves_the_record_as_it_was(
    lab: Lab, kept: dict[str, list[Path]], damage: Callable[[Path], None]
) -> None:
    true = scored(lab)
    assert {"activations", "grams", "samples"} <= set(kept)
    for paths in kept.values():
        for path in paths:
            if path.is_file() and path.stat().st_size:
                damage(path)
    assert scored(lab) == true


@pytest.mark.slow
def test_an_entry_in_the_place_of_another_leaves_the_record_as_it_was(
    lab: Lab, kept: dict[str, list[Path]]
) -> None:
    true = scored(lab)
    for paths in kept.values():
        places = sorted({path.parent for path in paths})
        if len(places) > 1:
            shutil.rmtree(places[0])
            shutil.copytree(places[1], places[0])
    assert scored(lab) == true


@pytest.mark.slow
@pytest.mark.parametrize("told", ["0" * 64, "", "not a hash"])
def test_wrong_cached_hashes_change_no_verdict(
    lab: Lab, kept: dict[str, list[Path]], told: str
) -> None:
    true = scored(lab)
    databases = [*lab.root.rglob("hashes.sqlite")]
    for path in databases:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE files SET sha256 = ?", (told,))
        connection.close()
    assert scored(lab) == true
    for path in databases:
        path.write_bytes(b"no database" * 500)
    assert scored(lab) == true
