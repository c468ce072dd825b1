"""Stimuli are listed from the events of a BIDS folder before embeddings exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroledger.errors import DataError
from neuroledger.spec.registry import get

EVENTS: dict[str, Any] = {
    "where": {"trial_type": ["image"]},
    "stimulus": {"column": "{task}/{number}"},
    "numbered": {
        "train/": "stimuli/*training_images/*.jpg",
        "test/": "stimuli/*test_images/*.jpg",
    },
}
TOLD: dict[str, Any] = {"task": ["train", "test"], "events": EVENTS}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    def put(name: str, text: str = "") -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    head = "onset\ttrial_type\tnumber\n"
    put(
        "sub-01/ses-1/eeg/sub-01_ses-1_task-train_run-1_events.tsv",
        head + "1\timage\t2\n2\tblank\tn/a\n3\timage\t3\n",
    )
    put("sub-01/ses-1/eeg/sub-01_ses-1_task-test_events.tsv", head + "1\timage\t1\n")
    put("sub-02/ses-2/eeg/sub-02_ses-2_task-train_events.tsv", head + "1\timage\t1\n")
    put("sub-02/ses-2/eeg/sub-02_ses-2_task-rest_events.tsv", head + "1\timage\t9\n")
    put("sub-02/ses-2/meg/sub-02_ses-2_task-train_events.tsv", head + "1\timage\t9\n")
    for name in ("b/x.jpg", "a/z.jpg", "a/y.jpg"):
        put(f"stimuli/training_images/{name}")
    put("stimuli/test_images/a/w.jpg")
    put("stimuli/test_images/a/w.txt")
    return {
        path.relative_to(tmp_path).as_posix(): path
        for path in tmp_path.rglob("*")
        if path.is_file()
    }


def listed(files: dict[str, Path], **changed: Any) -> list[tuple[str, str]]:
    component = get("stimuli", "bids_epochs")
    table = component.function(files, **component.bind({**TOLD, **changed}))
    return list(zip(table["stimulus_id"], table["filename"], strict=True))


def test_every_stimulus_is_listed_once_with_its_file(files: dict[str, Path]) -> None:
    assert listed(files) == [
        ("test/1", "stimuli/test_images/a/w.jpg"),
        ("train/1", "stimuli/training_images/a/y.jpg"),
        ("train/2", "stimuli/training_images/a/z.jpg"),
        ("train/3", "stimuli/training_images/b/x.jpg"),
    ]
    assert [name for name, _ in listed(files, subjects=["02"])] == ["train/1"]
    assert [name for name, _ in listed(files, sessions=["1"])] == [
        "test/1",
        "train/2",
        "train/3",
    ]
    bare = {**EVENTS, "numbered": {}, "stimulus": "number"}
    assert listed(files, events=bare, datatype="meg") == [("9", "9")]


def test_tables_map_numbers_to_files(files: dict[str, Path], tmp_path: Path) -> None:
    pictures = {
        "table": "sourcedata/attributes_P*.csv",
        "stimulus": "image_nr",
        "filename": "image_path",
    }
    told = {
        "events": {
            "stimulus": "number",
            "where": {"trial_type": ["image"]},
            "pictures": pictures,
        },
        "task": "train",
    }
    with pytest.raises(DataError, match=r"no table sourcedata/attributes_P\*\.csv"):
        listed(files, **told)
    head = "trial,image_nr,image_path\n"
    for person, rows in {
        "1": "1,1.0,all/cat/cat_1.jpg\n2,2.0,all/dog/dog_1.jpg\n3,,\n",
        "2": "1,3,all/cat/cat_2.jpg\n",
    }.items():
        name = f"sourcedata/attributes_P{person}.csv"
        files[name] = tmp_path / f"P{person}.csv"
        files[name].write_text(head + rows)
    assert listed(files, **told) == [
        ("1", "cat_1.jpg"),
        ("2", "dog_1.jpg"),
        ("3", "cat_2.jpg"),
    ]
    files[name].write_text(head + "1,2,all/cat/cat_1.jpg\n")
    with pytest.raises(
        DataError, match=r"stimulus 2 is dog_1\.jpg in one row, cat_1\.jpg in another"
    ):
        listed(files, **told)
    files[name].write_text(head)
    with pytest.raises(DataError, match="do not list the file of 1 stimuli, first 3"):
        listed(files, **told)
    files[name].write_text("trial,image_nr\n")
    with pytest.raises(DataError, match=r"P2\.csv has no column image_path"):
        listed(files, **told)


def test_errors_name_what_is_missing(files: dict[str, Path]) -> None:
    fewer = {name: path for name, path in files.items() if not name.endswith("x.jpg")}
    with pytest.raises(DataError, match=r"train/3 is number 3 of .*, but only 2 exist"):
        listed(fewer)
    with pytest.raises(DataError, match="no ieeg events of task 'train' or 'test'"):
        listed(files, datatype="ieeg")
    with pytest.raises(DataError, match="has no `events`"):
        listed(files, events=None)
