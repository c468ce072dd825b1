"""Machines share entries of their stores at a URL; what is there is verified, and nothing depends on it."""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")
from neuroledger.errors import RequestError, UnavailableError  # noqa: E402
from neuroledger.models.activation_store import DiskStore  # noqa: E402
from neuroledger.store import shared as module  # noqa: E402
from neuroledger.store.shared import Shared, shared, shared_at  # noqa: E402
from neuroledger.store.store import Store, Written  # noqa: E402
from tests.models.drawn_stimuli import drawn  # noqa: E402
from tests.models.test_present import Counting, model_of  # noqa: E402

MADE_OF = {"of": "this", "seed": 1}


def write(folder: Path) -> Written:
    (folder / "values.bin").write_bytes(b"0123456789")
    return Written({"shape": [2, 5]})


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def machine(tmp_path: Path, bucket: Path) -> Callable[[str], Store]:
    """Stores of machines by name, which share a folder."""

    def store_of(name: str) -> Store:
        with shared_at(f"file://{bucket}"):
            return Store(tmp_path / name, shared=shared())

    return store_of


def objects(bucket: Path) -> list[Path]:
    return sorted(path for path in bucket.rglob("*") if path.is_file())


def test_what_one_machine_computed_another_reads(
    machine: Callable[[str], Store], bucket: Path, tmp_path: Path
) -> None:
    here = machine("here").put("things", MADE_OF, write)
    (packed,) = objects(bucket)
    assert packed.name == f"{here.key}.zip"
    there = machine("there").get("things", MADE_OF)
    assert there is not None and there.place.is_relative_to(tmp_path / "there")
    assert (there.place / "values.bin").read_bytes() == b"0123456789"
    assert there[2:] == here[2:]
    packed.unlink()
    assert machine("there").get("things", MADE_OF) == there, "it has its own copy"
    assert machine("third").get("things", MADE_OF) is None
    assert not [path for path in tmp_path.rglob("*.zip") if path.is_file()]


def test_what_belongs_to_one_process_is_not_shared(
    machine: Callable[[str], Store], bucket: Path
) -> None:
    machine("here").put("things", MADE_OF, write, own=True)
    assert not objects(bucket)


def test_another_processor_shares_with_its_equals_only(
    machine: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("here").put("things", MADE_OF, write)
    module._opened.cache_clear()
    monkeypatch.setattr(module, "model_of_processor", lambda: "Another 1.2")
    assert machine("there").get("things", MADE_OF) is None
    module._opened.cache_clear()


def cut(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-30])


def altered(packed: Path) -> None:
    """Other values of the same length, in a file that is whole."""
    repack(packed, {"values.bin": b"9876543210"})


def of_another_key(packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        index = json.loads(archive.read("index.json"))
    index["made_of"]["seed"] = 2
    repack(packed, {"index.json": json.dumps(index).encode()})


def with_folders(packed: Path) -> None:
    repack(packed, {"../values.bin": b"0123456789"})


def compressed(packed: Path) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("values.bin", bytes(10**7))


def repack(packed: Path, other: dict[str, bytes]) -> None:
    with zipfile.ZipFile(packed) as archive:
        files = {name: archive.read(name) for name in archive.namelist()} | other
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "damage", [cut, altered, of_another_key, with_folders, compressed]
)
def test_a_damaged_object_is_not_used_and_is_replaced(
    machine: Callable[[str], Store],
    bucket: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine("here").put("things", MADE_OF, write)
    (packed,) = objects(bucket)
    damage(packed)
    with caplog.at_level(logging.WARNING):
        assert machine("there").get("things", MADE_OF) is None
    assert "damaged" in caplog.text
    assert not list((tmp_path / "there").rglob("values.bin"))
    machine("there").keep("things", MADE_OF, write)
    assert machine("third").get("things", MADE_OF) is not None


def test_an_entry_that_does_not_fit_is_not_fetched(
    machine: Callable[[str], Store], tmp_path: Path, bucket: Path
) -> None:
    machine("here").put("things", MADE_OF, write)
    with shared_at(f"file://{bucket}"):
        small = Store(tmp_path / "small", 100, shared())
    assert small.get("things", MADE_OF) is None


def test_without_its_connection_a_process_goes_on_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreachable:
        asked = 0

        def info(self, address: str) -> dict[str, object]:
            self.asked += 1
            raise ConnectionError(f"no route to {address}")

    files = Unreachable()
    store = Store(tmp_path / "here", shared=Shared(files, "lab/x", "s3://lab"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            store.keep("things", {"number": _}, write)
    assert files.asked == 1
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(
        "NEUROLEDGER_ACTIVATIONS_SHARED=s3://lab cannot be used (ConnectionError: no route"
    )
    assert said.endswith("this process goes on without it")


def test_what_cannot_be_opened_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared() is None
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_SHARED", "nowhere://lab")
    with pytest.raises(RequestError, match=r"SHARED='nowhere://lab' cannot be opened"):
        shared()
    monkeypatch.setattr(fsspec.core, "url_to_fs", _without_s3)
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_SHARED", "s3://lab/x")
    with pytest.raises(UnavailableError, match="s3fs is not installed") as refused:
        shared()
    assert refused.value.command == "pip install 'neuroledger[s3]'"


def _without_s3(url: str) -> None:
    missing = ModuleNotFoundError("No module named 's3fs'", name="s3fs")
    raise ImportError("Install s3fs to access S3") from missing


def test_a_pass_over_the_stimuli_serves_all_machines(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, stimuli = Counting(), drawn(35, size=(2, 2))
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_SHARED", str(bucket))
    first = model_of(counting, DiskStore(tmp_path / "here")).record(stimuli, "IT")
    again = model_of(counting, DiskStore(tmp_path / "there")).record(stimuli, "IT")
    assert counting.shown == 35
    assert again.identical(first)
