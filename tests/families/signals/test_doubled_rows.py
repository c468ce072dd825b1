"""Doubled rows of event tables and trials become doubled windows, which the gate counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pynwb
import pytest
import xarray as xr

from neuroledger.data.gate.rows import row_findings
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.readers.nwb_trials import NwbWindow, nwb_trials
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.bids_files import bids_recording, described

EVENTS = [(2.0 + 1.5 * number, "go" if number % 3 else "stop") for number in range(40)]
LABELS = Window(start=0.0, duration=0.5, labels={"go": "left", "stop": "right"})


def whats(assembly: xr.DataArray) -> list[str]:
    return [
        f"{finding.code}: {finding.what}" for finding in row_findings(assembly, "here")
    ]


def of_bids(root: Path, events: list[tuple[float, str]]) -> xr.DataArray:
    described(root, "test")
    values = np.random.default_rng(0).normal(size=(2, 64 * 70))
    bids_recording(root, "01", "go", {"Cz": "EEG", "Pz": "EEG"}, values, 64, events)
    files = {
        path.relative_to(root).as_posix(): path
        for path in root.rglob("*")
        if path.is_file()
    }
    windows = bids_epochs(files, task="go", window=LABELS).assembly
    assert windows is not None
    return windows


@pytest.mark.parametrize("doubled", [[], [4, 9, 30]])
def test_doubled_rows_of_a_bids_event_table(tmp_path: Path, doubled: list[int]) -> None:
    windows = of_bids(tmp_path, sorted(EVENTS + [EVENTS[row] for row in doubled]))
    assert windows.sizes["presentation"] == 40 + len(doubled)
    expected = [
        "data.copies: 3 windows occur twice, first: subject 01, session 1, sub-01/eeg/sub-01_task-go_eeg.vhdr, onset 8"
    ]
    assert whats(windows) == (expected if doubled else [])


def test_one_onset_with_two_labels_is_a_contradiction(tmp_path: Path) -> None:
    windows = of_bids(tmp_path, sorted([*EVENTS, (EVENTS[6][0], "go")]))
    assert [what.partition(":")[0] for what in whats(windows)] == ["data.conflict"]


@pytest.mark.parametrize("doubled", [[], [5, 6]])
def test_doubled_trials_of_an_nwb_file(tmp_path: Path, doubled: list[int]) -> None:
    content = pynwb.NWBFile("simulated", "id", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="monkey")
    rng = np.random.default_rng(1)
    for _ in range(5):
        content.add_unit(spike_times=np.sort(rng.uniform(0, 40, 400)))
    content.add_trial_column("label", "where to")
    for trial in [*range(20), *doubled]:
        content.add_trial(
            start_time=2.0 * trial, stop_time=2.0 * trial + 1.5, label="lr"[trial % 2]
        )
    with pynwb.NWBHDF5IO(str(tmp_path / "a.nwb"), "w") as opened:
        opened.write(content)
    facts = {"label": "label"}
    for given in (facts, {}):
        dataset = nwb_trials(
            {"a.nwb": tmp_path / "a.nwb"}, window=NwbWindow(duration=1.0), facts=given
        )
        assert dataset.assembly is not None
        found = whats(dataset.assembly)
        assert found == (
            ["data.copies: 2 windows occur twice, first: monkey, id, a.nwb, onset 10"]
            if doubled
            else []
        )
