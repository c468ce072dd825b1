"""Recordings with different channels: shared ones are kept by name, and a note lists the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import DataError
from neuroledger.spec.registry import get
from tests.families.signals.bids_files import bids_recording, described
from tests.families.signals.maker_files import gdf

RATE = 100
NAMES = {
    "anna": ["Fz", "Cz", "Pz", "EXG1"],
    "bela": ["EEG PZ", "EEG Fz", "EEG Cz", "EEG Oz"],
}
EVENTS = [(RATE * second, 768 + second % 2) for second in range(1, 9)]
WINDOW = {"start": 0.0, "duration": 0.5, "labels": {"768": "a", "769": "b"}}


def read(folder: Path, **steps: Any) -> Any:
    rng = np.random.default_rng(0)
    files = {}
    for who, names in NAMES.items():
        files[f"{who}.gdf"] = folder / f"{who}.gdf"
        gdf(
            files[f"{who}.gdf"],
            names,
            rng.normal(0, 10, (len(names), RATE * 10)),
            RATE,
            EVENTS,
        )
    component = get("reader", "mne_epochs")
    told = {
        "recordings": [{"file": name, "subject": name[:4]} for name in files],
        "window": WINDOW,
        "preprocessing": steps,
    }
    return component.function(files, **component.bind(told)), files


def test_channels_that_all_recordings_have_are_kept_by_name(tmp_path: Path) -> None:
    data, files = read(tmp_path, channels="shared", strip=["EEG "])
    assert data.assembly["channel_id"].values.tolist() == ["Fz", "Cz", "Pz"]
    (note,) = data.notes
    assert (
        note
        == "2 channels that not every recording has are left out: EXG1 (in 1 of 2), Oz (in 1 of 2)"
    )
    for name, wanted in (
        ("anna", ["Fz", "Cz", "Pz"]),
        ("bela", ["EEG Fz", "EEG Cz", "EEG PZ"]),
    ):
        raw = mne.io.read_raw_gdf(files[f"{name}.gdf"], verbose="ERROR")
        truth = raw.get_data(picks=wanted)[:, RATE : RATE + RATE // 2] * 1e6
        found = data.assembly.values[data.assembly["subject"].values == name][0]
        np.testing.assert_allclose(found, truth, rtol=1e-6)


def test_different_channels_are_refused_unless_some_are_shared_and_selected(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="have different channels"):
        read(tmp_path, strip=["EEG "], drop=["EXG*"])
    with pytest.raises(
        DataError,
        match=r"no channel is in all of the 2 recordings; the first has Fz, Cz, Pz, EXG1",
    ):
        read(tmp_path, channels="shared")


def test_shared_channels_are_kept_in_bids_folders(tmp_path: Path) -> None:
    pytest.importorskip("mne_bids")
    described(tmp_path, "two")
    for who, names in (("01", ["Fz", "Cz", "Pz"]), ("02", ["Cz", "Oz", "Fz"])):
        x = np.random.default_rng(0).normal(0, 10, (3, RATE * 10))
        bids_recording(
            tmp_path,
            who,
            "go",
            dict.fromkeys(names, "EEG"),
            x,
            RATE,
            [(1.0, "a"), (3.0, "b")],
        )
    files = {
        path.relative_to(tmp_path).as_posix(): path
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    component = get("reader", "bids_epochs")
    told = {
        "task": "go",
        "window": {"start": 0.0, "duration": 0.5, "labels": {"a": "a", "b": "b"}},
    }
    data = component.function(
        files, **component.bind(told | {"preprocessing": {"channels": "shared"}})
    )
    assert data.assembly["channel_id"].values.tolist() == ["Fz", "Cz"]
    assert "Oz (in 1 of 2), Pz (in 1 of 2)" in data.notes[-1]


def test_readers_of_single_recordings_refuse_shared_channels() -> None:
    raw = mne.io.RawArray(
        np.random.default_rng(0).normal(0, 1e-5, (2, 1000)),
        mne.create_info(2, RATE, "eeg"),
        verbose=False,
    )
    with pytest.raises(
        DataError,
        match="this reader does not support `channels: shared`: list the channels",
    ):
        nl.windows(
            {"anna": raw},
            window={"start": 0.0, "duration": 1.0, "stride": 1.0},
            preprocessing={"channels": "shared"},
        )
