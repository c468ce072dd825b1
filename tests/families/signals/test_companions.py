"""The parts of a recording are those that its header names, and a name that is missing or outside is refused with it."""

from __future__ import annotations

from pathlib import Path

import mne
import numpy as np
import pytest

from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.pinning.scan_downloads import companions_of
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.open_recordings import open_recording
from neuroledger.families.signals.recordings.recording_folders import digest_of
from neuroledger.families.signals.recordings.signal_preprocessing import Recording
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.store.hashes import sha256_of
from tests.families.signals.brainvision_files import brainvision

EVENTS = [(100 * number, f"S  {1 + number % 2}") for number in range(1, 10)]


def renamed(folder: Path, *, header: str = "p1_cleaned", marker: bool = True) -> Path:
    """A recording `raw_p1` whose header has another name, or names no file of markers."""
    brainvision(
        folder,
        "raw_p1",
        ["C3", "C4"],
        np.random.default_rng(0).normal(0, 10, (2, 1200)),
        100,
        EVENTS,
    )
    path = folder / f"{header}.vhdr"
    (folder / "raw_p1.vhdr").rename(path)
    if not marker:
        path.write_text(path.read_text().replace("MarkerFile=raw_p1.vmrk\n", ""))
        (folder / "raw_p1.vmrk").unlink()
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_header_with_another_name_belongs_to_the_files_that_it_names(
    tmp_path: Path,
) -> None:
    path = renamed(tmp_path)
    assert companions_of(tmp_path, path.name, names(tmp_path)) == [
        "raw_p1.eeg",
        "raw_p1.vmrk",
    ]
    files = {name: tmp_path / name for name in names(tmp_path)}
    window = Window(
        start=0.0, duration=0.5, labels={"Stimulus/S  1": "l", "Stimulus/S  2": "r"}
    )
    windows = mne_epochs(
        files, recordings=(Recording(file=path.name, subject="a"),), window=window
    ).assembly
    assert windows is not None
    assert [windows["label"].values.tolist().count(label) for label in "rl"] == [5, 4]
    raw = mne.io.read_raw_brainvision(path, preload=True, verbose="ERROR")
    for row, (at, _) in enumerate(EVENTS):
        np.testing.assert_allclose(
            windows.values[row], raw.get_data()[:, at : at + 50] * 1e6, rtol=1e-6
        )
    assert set(windows["recording_sha256"].values) == {
        sha256_of(tmp_path / "raw_p1.eeg")
    }


def test_a_header_without_a_file_of_markers_is_a_recording_without_events(
    tmp_path: Path,
) -> None:
    path = renamed(tmp_path, marker=False)
    assert companions_of(tmp_path, path.name, names(tmp_path)) == ["raw_p1.eeg"]
    assert len(open_recording(path).annotations) == 0


def test_a_renamed_triple_is_refused_with_the_line_to_correct(tmp_path: Path) -> None:
    path = renamed(tmp_path, header="sub01")
    (tmp_path / "raw_p1.eeg").rename(tmp_path / "sub01.eeg")
    message = r"sub01\.vhdr names raw_p1\.eeg, which is not here; sub01\.eeg is: correct line DataFile="
    with pytest.raises(RequestError, match=message):
        companions_of(tmp_path, path.name, names(tmp_path))
    with pytest.raises(DataError, match=message):
        open_recording(path)


def test_a_file_outside_the_folder_is_refused(tmp_path: Path) -> None:
    path = renamed(tmp_path)
    path.write_text(
        path.read_text().replace("DataFile=raw_p1.eeg", "DataFile=../raw_p1.eeg")
    )
    with pytest.raises(
        RequestError, match=r"names '\.\./raw_p1\.eeg', outside its folder"
    ):
        companions_of(tmp_path, path.name, names(tmp_path))


def test_the_place_of_the_header_in_its_name_is_its_own_stem(tmp_path: Path) -> None:
    brainvision(tmp_path, "a", ["C3"], np.ones((1, 100)), 100)
    header = tmp_path / "a.vhdr"
    header.write_text(
        header.read_text().replace("=a.eeg", "=$b.eeg").replace("=a.vmrk", "=$b.vmrk")
    )
    assert companions_of(tmp_path, "a.vhdr", names(tmp_path)) == ["a.eeg", "a.vmrk"]


def test_a_record_of_physionet_is_identified_by_all_its_samples(tmp_path: Path) -> None:
    for name in ("r.dat", "r.xyz"):
        (tmp_path / name).write_bytes(np.arange(10).astype("<i2").tobytes())
    (tmp_path / "r.hea").write_text(
        "r 2 100 10\nr.dat 16 1/mV 16 0 0 45 0 I\nr.xyz 16 1/mV 16 0 0 45 0 vx\n"
    )
    assert companions_of(tmp_path, "r.hea", names(tmp_path)) == ["r.dat", "r.xyz"]
    before = digest_of(tmp_path / "r.hea", set(tmp_path.iterdir()))
    (tmp_path / "r.xyz").write_bytes(np.arange(10)[::-1].astype("<i2").tobytes())
    assert digest_of(tmp_path / "r.hea", set(tmp_path.iterdir())) != before


def test_samples_of_eeglab_are_in_the_file_that_the_set_names(tmp_path: Path) -> None:
    from scipy.io import savemat

    (tmp_path / "other.fdt").write_bytes(np.zeros((2, 100), dtype="<f4").tobytes())
    savemat(
        tmp_path / "a.set",
        {
            "EEG": {
                "data": "other.fdt",
                "nbchan": 2,
                "pnts": 100,
                "trials": 1,
                "srate": 100,
            }
        },
    )
    assert companions_of(tmp_path, "a.set", names(tmp_path)) == ["other.fdt"]
