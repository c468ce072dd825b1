"""Tests that every published data set with labels states the number of trials of each, or why it is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

UNKNOWN = "Trials for each label are not known: "


def published(repository: Path) -> dict[str, dict[str, Any]]:
    """The specs of public sets of signals, by id."""
    specs = (
        yaml.load(path.read_text(), yaml.CSafeLoader)
        for path in sorted((repository / "specs" / "datasets").glob("*.yaml"))
    )
    return {
        spec["id"]: spec
        for spec in specs
        if "neuralbench2026" in (spec.get("cite") or [])
    }


def labels_of(spec: dict[str, Any]) -> set[str]:
    """The labels of events in a spec; facts of subjects (age, diagnosis) are stated by their coordinate."""
    reader = spec.get("reader") or {}
    window = reader.get("window") or {}
    told = set((window.get("labels") or {}).values())
    told |= {window["otherwise"]} if window.get("otherwise") else set()
    if (reader.get("people") or {}).get("facts", {}).get("label") or (
        reader.get("facts") or {}
    ).get("label"):
        told.add("a fact of people")
    return told


def counted(spec: dict[str, Any]) -> set[str]:
    """Labels with an expectation for the number of windows."""
    checks = (spec.get("expectations") or {}).get("assembly") or []
    return {
        one["where"]["label"]
        for one in checks
        if one["check"] == "row_count" and "label" in (one.get("where") or {})
    }


def test_trial_counts_of_every_label_are_stated_or_declared_unknown(
    repository: Path,
) -> None:
    specs = published(repository)
    labelled = {id: labels for id, spec in specs.items() if (labels := labels_of(spec))}
    assert len(specs) > 100 and len(labelled) > 60
    silent = {
        id: sorted(labels - counted(specs[id]))
        for id, labels in labelled.items()
        if not labels <= counted(specs[id])
        and not any(
            defect.startswith(UNKNOWN) for defect in specs[id].get("defects") or ()
        )
    }
    assert not silent


def test_a_reason_is_given_only_where_numbers_are_missing(repository: Path) -> None:
    specs = published(repository)
    wrong = [
        id
        for id, spec in specs.items()
        if any(defect.startswith(UNKNOWN) for defect in spec.get("defects") or ())
        and (labels := labels_of(spec))
        and labels <= counted(spec)
    ]
    assert not wrong


def test_stated_numbers_are_those_of_labels_that_exist(repository: Path) -> None:
    """Otherwise, a number for a label without events would fail only when the recordings are read."""
    for id, spec in published(repository).items():
        labels = labels_of(spec)
        if labels and "a fact of people" not in labels:
            assert counted(spec) <= labels, id


def test_codes_of_flicker_are_those_of_the_publisher(repository: Path) -> None:
    """The README of NEMAR's edition states 13=2, 17=4, 21=3, rest=1: the codes are not in the order of the frequencies."""
    labels = published(repository)["Kalunga2016Online"]["reader"]["window"]["labels"]
    assert labels == {"1": "rest", "2": "13", "3": "21", "4": "17"}
