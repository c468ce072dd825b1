"""Long lists of recordings are stored in a separate file and read as if they were in the spec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place, tree

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
