"""`check` reports what pinned recordings will lack, from specs and pins alone, with the line of the field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroledger.engine.check import check
from neuroledger.errors import Finding
from neuroledger.spec.catalog import open_catalog

PEOPLE = tuple(f"{number:02}" for number in range(1, 11))
CODES = ("spec.unlabelled", "spec.recordings", "spec.copied-recording")
Edit = Callable[[dict[str, Any], dict[str, Any]], object]


def pin(number: int) -> dict[str, Any]:
    return {"sha256": f"{number:064x}", "size": 10 + number}


def bids_names(person: str) -> tuple[str, str]:
    stem = f"sub-{person}/eeg/sub-{person}_task-rest"
    return f"{stem}_eeg.edf", f"{stem}_events.tsv"


def dataset() -> dict[str, Any]:
    names = ["dataset_description.json"]
    names += [name for person in PEOPLE for name in bids_names(person)]
    return {
        "id": "Rest",
        "version": 1,
        "title": "Simulated names",
        "license": "CC0-1.0",
        "modality": "eeg",
        "access_steps": ["Written by a test."],
        "files": {name: pin(number) for number, name in enumerate(names)},
        "reader": {
            "name": "bids_epochs",
            "task": "rest",
            "window": {"start": 0.0, "duration": 1.0, "labels": {"1": "a", "2": "b"}},
        },
        "expectations": {"assembly": [{"check": "values_finite"}]},
    }


def benchmark() -> dict[str, Any]:
    return {
        "id": "Rest-people",
        "version": 1,
        "title": "Which",
        "parent": "eeg",
        "dataset": "Rest",
        "paradigm": {
            "name": "decoding",
            "splits": {"name": "cross_subject", "test": 0.2, "seed": 33},
        },
        "metric": "auroc",
        "floor": {"dummy": "dummy"},
    }


def findings(root: Path, repository: Path, edit: Edit) -> tuple[list[Finding], Path]:
    data, task = dataset(), benchmark()
    edit(data, task)
    specs = root / "specs"
    for kind, fields in (("datasets", data), ("benchmarks", task)):
        (specs / kind).mkdir(parents=True)
        text = yaml.safe_dump(fields, sort_keys=False)
        (specs / kind / f"{fields['id']}.yaml").write_text(text)
    for name in ("models/dummy", "metrics/auroc"):
        path = specs / f"{name}.yaml"
        path.parent.mkdir()
        path.write_bytes((repository / "specs" / f"{name}.yaml").read_bytes())
    (root / "dvc.yaml").write_text("stages: {}\n")
    found = check(open_catalog(root))[0]
    return [one for one in found if one.code in CODES], specs


def drop(data: dict[str, Any], *people: str) -> None:
    """The tables of events of these people are not pinned."""
    for person in people:
        del data["files"][bids_names(person)[1]]


def listed(data: dict[str, Any], files: list[str]) -> None:
    """The reader `mne_epochs` with a list of recordings."""
    reader = data["reader"]
    del reader["task"]
    reader["name"] = "mne_epochs"
    reader["recordings"] = [
        {"file": name, "subject": f"p{number}", "facts": {"label": "ab"[number % 2]}}
        for number, name in enumerate(files)
    ]


RECORDED = [bids_names(person)[0] for person in PEOPLE]
PROBLEMS: dict[str, tuple[Edit, str, str, str]] = {
    "no label": (
        lambda data, task: data["reader"].update(
            window={"start": 0.0, "duration": 1.0, "stride": 1.0}
        ),
        "spec.unlabelled",
        "name: decoding",
        "data set 'Rest' declares no 'label' of its windows",
    ),
    "no such target": (
        lambda data, task: task["paradigm"].update(target="age"),
        "spec.unlabelled",
        "target: age",
        "declares no 'age'",
    ),
    "no column of the split": (
        lambda data, task: task["paradigm"].update(
            splits={"name": "declared", "column": "cohort", "test": ["x"]}
        ),
        "spec.unlabelled",
        "column: cohort",
        "declares no 'cohort'",
    ),
    "no column of validation": (
        lambda data, task: task["paradigm"]["splits"].update(
            validation={"fraction": 0.2, "by": "cohort"}
        ),
        "spec.unlabelled",
        "by: cohort",
        "declares no 'cohort'",
    ),
    "recordings without events": (
        lambda data, task: drop(data, "03", "04"),
        "spec.recordings",
        "start: 0.0",
        "2 of 10 recordings have no events.tsv among the pinned files, first sub-03/",
    ),
    "a task of which there is no recording": (
        lambda data, task: data["reader"].update(task="sleep"),
        "spec.recordings",
        "name: bids_epochs",
        "contains no recording of task 'sleep'",
    ),
    "an event that ends with a blank": (
        lambda data, task: data["reader"]["window"]["labels"].update({"3 ": "c"}),
        "spec.recordings",
        "'3 ': c",
        "no event is called '3 '",
    ),
    "a recording that is not pinned": (
        lambda data, task: listed(data, [*RECORDED, "sub-11/eeg/other.edf"]),
        "spec.recordings",
        "- file: sub-11/eeg/other.edf",
        "1 of 11 recordings are not among the pinned files, first sub-11/eeg/other.edf",
    ),
    "a pattern without a file": (
        lambda data, task: (
            listed(data, RECORDED),
            data["reader"].update(named={"{subject}.gdf": {}}),
        ),
        "spec.recordings",
        "'{subject}.gdf': {}",
        "none of 21 pinned files matches '{subject}.gdf'",
    ),
    "copies of one recording": (
        lambda data, task: [
            data["files"].update({bids_names(person)[0]: pin(77)}) for person in PEOPLE
        ],
        "spec.copied-recording",
        "name: cross_subject",
        "2 of 2 tested recordings have the same bytes as one on which it trains",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_found_before_the_files_are_there(
    tmp_path: Path, repository: Path, name: str
) -> None:
    edit, code, line, words = PROBLEMS[name]
    (one,), specs = findings(tmp_path, repository, edit)
    assert (one.code, one.severity) == (code, "error")
    assert words in one.what
    path = tmp_path / one.where
    assert path.is_relative_to(specs)
    assert path.read_text().splitlines()[one.line - 1].strip() == line


def two_files(data: dict[str, Any], first: int, second: int) -> None:
    for number, person in ((first, "01"), (second, "02")):
        data["files"][bids_names(person)[0]] = pin(number)


SOUND: dict[str, Edit] = {
    "as declared": lambda data, task: None,
    "events may be missing": lambda data, task: (
        drop(data, "03"),
        data["reader"]["window"].update(some=True),
    ),
    "facts of the listed recordings": lambda data, task: (
        listed(data, RECORDED),
        data["reader"].update(window={"start": 0.0, "duration": 1.0, "stride": 1.0}),
    ),
    "a column of participants.tsv": lambda data, task: (
        data["reader"].update(facts={"age": "Age"}),
        task["paradigm"].update(target="age", objective="regression"),
        task.update(metric="auroc"),
    ),
    "an unread data set": lambda data, task: (
        drop(data, "03"),
        data.update(unread="The tables were not looked at."),
    ),
    # With this seed, people 01 and 02 are both trained on.
    "copies on one side": lambda data, task: two_files(data, 77, 77),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_set_that_can_be_read_and_divided_has_no_finding(
    tmp_path: Path, repository: Path, name: str
) -> None:
    found, _ = findings(tmp_path, repository, SOUND[name])
    assert found == []
