"""Specs of published mouse sessions read simulated files in the published layout."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.assembly import select
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.nwb_trials import NwbWindow, nwb_trials
from neuroledger.spec.catalog import open_catalog

pynwb = pytest.importorskip("pynwb")

TRIALS = 40
COLUMNS = {
    "Steinmetz2019.Cori": {
        "visual_stimulus_time": lambda t: 2.0 * t + 0.5,
        "response_choice": lambda t: float((-1, 0, 1)[t % 3]),
        "feedback_type": lambda t: float((-1, 1)[t % 2]),
        "visual_stimulus_left_contrast": lambda t: 0.25 * (t % 4),
        "visual_stimulus_right_contrast": lambda t: 0.0,
        "included": lambda t: t % 5 > 0,
    },
    "IBL2025.session": {
        "gabor_stimulus_onset_time": lambda t: 2.0 * t + 0.5,
        "mouse_wheel_choice": lambda t: ("clockwise", "counter_clockwise")[t % 2],
        "gabor_stimulus_side": lambda t: ("left", "right")[t % 2],
        "gabor_stimulus_contrast": lambda t: 25.0,
        "probability_left": lambda t: 0.5,
        "is_mouse_rewarded": lambda t: t % 3 > 0,
    },
}


def written(path: Path, columns: dict[str, Any]) -> Path:
    rng = np.random.default_rng(0)
    content = pynwb.NWBFile("simulated", "one", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="Cori")
    for _ in range(6):
        content.add_unit(spike_times=np.sort(rng.uniform(0.0, 2.0 * TRIALS, 2000)))
    for name in columns:
        content.add_trial_column(name, name)
    for trial in range(TRIALS):
        said = {name: value(trial) for name, value in columns.items()}
        content.add_trial(start_time=2.0 * trial, stop_time=2.0 * trial + 1.8, **said)
    with pynwb.NWBHDF5IO(str(path), "w") as opened:
        opened.write(content)
    return path


def read(name: str, path: Path) -> xr.DataArray:
    """The file by the fields of the shipped spec, whether that is pinned or not."""
    reader = open_catalog().dataset(name).reader
    assert reader is not None
    assert reader.name == "nwb_trials"
    told = dict(reader.parameters)
    window = NwbWindow.model_validate(told.pop("window"))
    windows = nwb_trials({path.name: path}, window=window, **told).assembly
    assert windows is not None
    return windows


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_a_session_in_the_published_layout_is_read(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "session.nwb", COLUMNS[name])
    data = read(name, path)
    assert data.shape == (TRIALS, 6, 10)
    np.testing.assert_allclose(data["onset"].values, 2.0 * np.arange(TRIALS) + 0.5)
    assert set(data["subject"].values.tolist()) == {"Cori"}


def test_trials_without_a_wheel_turn_and_excluded_trials_are_left_out(
    tmp_path: Path,
) -> None:
    catalog = open_catalog()
    path = written(tmp_path / "session.nwb", COLUMNS["Steinmetz2019.Cori"])
    data = read("Steinmetz2019.Cori", path)
    chosen = select(data, catalog.benchmark("Steinmetz2019.Cori-choice").select)
    kept = [trial for trial in range(TRIALS) if trial % 3 != 1 and trial % 5 > 0]
    assert chosen["trial"].values.tolist() == kept
    assert set(chosen["choice"].values.tolist()) == {-1.0, 1.0}


def test_a_session_with_a_renamed_column_is_refused(tmp_path: Path) -> None:
    columns = dict(COLUMNS["IBL2025.session"])
    columns["choice"] = columns.pop("mouse_wheel_choice")
    path = written(tmp_path / "session.nwb", columns)
    with pytest.raises(DataError, match="its trials have no column mouse_wheel_choice"):
        read("IBL2025.session", path)
