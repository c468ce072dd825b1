"""Specs of published recordings in MNE's formats read simulated files in the published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.registry import get
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.plus_files import plus

RNG = np.random.default_rng(11)
RATE, SECONDS = 500, 30
MOVEMENTS = [
    f"{direction}_{speed}_{reach}"
    for direction in ("up", "down", "left", "right")
    for speed in ("slow", "fast")
    for reach in ("near", "far")
]


def noise(channels: int, seconds: int = SECONDS) -> np.ndarray:
    """Simulated EEG in µV."""
    return RNG.normal(0, 10, (channels, RATE * seconds))


def told(repository: Path, id: str) -> dict[str, Any]:
    spec = yaml.safe_load(
        (repository / "specs" / "datasets" / f"{id}.yaml").read_text()
    )
    assert "unread" not in spec
    reader: dict[str, Any] = spec["reader"]
    assert reader.pop("name") == "mne_epochs"
    return reader


def read(files: dict[str, Path], reader: dict[str, Any]) -> xr.DataArray:
    component = get("reader", "mne_epochs")
    here = [one for one in reader["recordings"] if one["file"] in files]
    found: xr.DataArray = component.function(
        files, **component.bind(reader | {"recordings": here})
    ).assembly
    return found


def test_the_target_tone_depends_on_the_attended_stream(
    repository: Path, tmp_path: Path
) -> None:
    names = ["Fz", "Cz", "Pz", "vEOG", "hEOG"]
    onsets = [(RATE * (2 + 2 * n), ("S  2", "S  8", "S 32")[n % 3]) for n in range(12)]
    files = {}
    for run, task in ((1, "low"), (2, "mid"), (3, "high")):
        stem = f"sub-A_task-{task}_run-{run}_eeg"
        brainvision(tmp_path, stem, names, noise(5), RATE, onsets)
        files |= {
            f"sourcedata/sub-A/eeg/{stem}.{end}": tmp_path / f"{stem}.{end}"
            for end in ("vhdr", "vmrk", "eeg")
        }
    windows = read(files, told(repository, "Kojima2024ReplicationA"))
    assert windows["channel_id"].values.tolist() == ["Fz", "Cz", "Pz"]
    for task, target in (("low", 0), ("mid", 1), ("high", 2)):
        labels = windows["label"].values[windows["task"].values == task]
        assert labels.tolist() == [
            "Target" if n % 3 == target else "NonTarget" for n in range(12)
        ]


def test_sixteen_movements_are_read_from_the_annotations_of_an_exported_recording(
    repository: Path, tmp_path: Path
) -> None:
    names = [*(f"E{number}" for number in range(60)), "EOG1", "EOG2", "EOG3", "EOG4"]
    spans = [
        (1.0 + 4.0 * number, 0.0, movement) for number, movement in enumerate(MOVEMENTS)
    ]
    plus(tmp_path / "one.bdf", names, noise(64, 70), RATE, spans)
    name = "sub-1/ses-0/eeg/sub-1_ses-0_task-imagery_run-0_eeg.bdf"
    windows = read(
        {name: tmp_path / "one.bdf"}, told(repository, "Srisrisawang2024Simultaneous")
    )
    assert windows.sizes["channel"] == 60
    assert windows["label"].values.tolist() == MOVEMENTS


def test_an_unknown_fact_in_a_description_is_named(
    repository: Path, tmp_path: Path
) -> None:
    brainvision(tmp_path, "one", ["Fz"], noise(1), RATE, [(RATE * 2, "S  2")])
    reader = told(repository, "Kojima2024ReplicationA")
    reader["recordings"] = [{"file": "one.vhdr", "subject": "A"}]
    files = {f"one.{end}": tmp_path / f"one.{end}" for end in ("vhdr", "vmrk", "eeg")}
    with pytest.raises(
        DataError,
        match=r"one\.vhdr: `describe` names task; known facts are run, session, subject",
    ):
        read(files, reader)


@pytest.mark.parametrize("said", ["{task}", "{event} {event}", "event"])
def test_a_description_must_contain_the_event_exactly_once(said: str) -> None:
    with pytest.raises(ValueError, match=r"`describe` must contain \{event\} once"):
        Window(start=0.0, duration=1.0, labels={"a": "b"}, describe=said)


def test_documented_counts_of_fetchable_and_readable_data_sets_are_correct(
    repository: Path,
) -> None:
    texts = [
        path.read_text()
        for path in sorted((repository / "specs" / "datasets").glob("*.yaml"))
    ]
    specs = [
        spec
        for text in texts
        if "neuralbench2026" in (spec := yaml.safe_load(text)).get("cite", [])
    ]
    closed = [spec["id"] for spec in specs if spec.get("unavailable")]
    trees = [spec for spec in specs if "files" in spec.get("lists", {})]
    unread = [spec for spec in trees if spec.get("unread")]
    assert len(closed) <= 25, closed
    said = " ".join((repository / "docs" / "signals.md").read_text().split())
    assert (
        f"{len(trees)} of the {len(trees) + len(closed)} data sets of NeuralBench"
        in said
    )
    assert (
        f"{len(trees) - len(unread)} can be read after `fetch`, {len(unread)} not"
        in said
    )
