"""Recordings, tables of people and long lists that `pin` takes from a folder of downloads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place, tree
from tests.families.decoding.recorded_folders import FORMATS, place_of, write_plus

__all__ = ["place", "tree"]


def test_lists_in_tables_give_the_same_data_set_as_lists_in_the_spec(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / "specs" / "datasets" / "Rest.yaml"
    before = path.read_text()
    downloads = Downloads(folder=tree, label="Group")
    pin(open_catalog(place), "Rest", downloads)
    inline = open_catalog(place).dataset("Rest")
    path.write_text(before)
    monkeypatch.setattr("neuroledger.data.pin.yaml_edit.LONG", 3)
    done = pin(open_catalog(place), "Rest", downloads)
    listed = open_catalog(place).dataset("Rest")
    assert listed.files == inline.files
    assert listed.reader == inline.reader
    assert spec_sha256(listed) == spec_sha256(inline)
    assert "  recordings:" not in done.after
    assert "# seconds\n  window:" in done.after
    rows = (path.parent / "Rest.recordings.jsonl").read_text().splitlines()
    first = {
        "file": "sub-01/eeg/sub-01_task-rest_eeg.vhdr",
        "subject": "01",
        "facts": {"group": "A", "age": 50, "label": "A"},
    }
    assert json.loads(rows[0]) == first
    assert len(rows) == 6
    data = load_dataset(open_catalog(place), "Rest")
    assert data.assembly is not None
    assert len(set(data.assembly["subject"].values.tolist())) == 6
    again = pin(open_catalog(place), "Rest", downloads)
    assert again.before == again.after == done.after


def place_with(root: Path, reader: dict[str, object], benchmark: str) -> Path:
    """A repository with an unpinned data set of this reader, and a benchmark with this paradigm."""
    edf = FORMATS["edf-annotations"]
    place = place_of(root, edf, people=2, benchmarks=[f"one: {benchmark}"])
    path = place / "specs" / "datasets" / "Mine.yaml"
    fields = yaml.safe_load(path.read_text())
    fields["reader"] |= reader
    path.write_text(yaml.safe_dump(fields, sort_keys=False))
    return place


def record(folder: Path, *names: str) -> None:
    rng = np.random.default_rng(1)
    for name in names:
        events = [(128 * second, second % 2) for second in range(1, 7)]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_plus(path, rng.normal(0, 10, (6, 8 * 128)), events)


PEOPLE_DECODED = "{name: decoding, splits: {name: cross_subject}}"


def test_recordings_that_are_only_in_sourcedata_are_pinned(tmp_path: Path) -> None:
    reader = {"named": {"sourcedata/{subject}_{session}.edf": {}}}
    place = place_with(tmp_path / "place", reader, PEOPLE_DECODED)
    downloads = tmp_path / "downloads"
    record(downloads, "sourcedata/a_1.edf", "sourcedata/b_1.edf")
    pin(open_catalog(place), "Mine", Downloads(folder=downloads))
    pinned = open_catalog(place).dataset("Mine").files
    assert set(pinned) == {"sourcedata/a_1.edf", "sourcedata/b_1.edf"}


def test_sourcedata_beside_recordings_is_set_aside(tmp_path: Path) -> None:
    reader = {"named": {"{subject}_{session}.edf": {}}}
    place = place_with(tmp_path / "place", reader, PEOPLE_DECODED)
    downloads = tmp_path / "downloads"
    record(downloads, "a_1.edf", "b_1.edf", "sourcedata/c_1.edf")
    pin(open_catalog(place), "Mine", Downloads(folder=downloads))
    assert set(open_catalog(place).dataset("Mine").files) == {"a_1.edf", "b_1.edf"}


def test_tables_of_people_are_pinned_with_the_facts_that_a_benchmark_decodes(
    tmp_path: Path,
) -> None:
    reader = {
        "named": {"{subject}_{session}.edf": {}},
        "window": {"start": 0.0, "duration": 1.0, "stride": 1.0},
        "people": {"tables": "of_*/participants.tsv", "facts": {"age": "Age"}},
    }
    decoded = "{name: decoding, target: age, objective: regression, splits: {name: cross_subject}}"
    place = place_with(tmp_path / "place", reader, decoded)
    downloads = tmp_path / "downloads"
    record(downloads, "of_x/a_1.edf", "of_x/b_1.edf")
    table = downloads / "of_x" / "participants.tsv"
    table.write_text("participant_id\tAge\nsub-a\t31\nsub-b\t47\n")
    pin(open_catalog(place), "Mine", Downloads(folder=downloads))
    assert "of_x/participants.tsv" in open_catalog(place).dataset("Mine").files
    data = load_dataset(open_catalog(place), "Mine")
    assert data.assembly is not None
    assert set(data.assembly["age"].values.tolist()) == {31.0, 47.0}
