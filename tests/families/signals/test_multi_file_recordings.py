"""Recordings of several files: headers of two subjects may be equal, and parts of a split file share tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mne
import numpy as np
import pytest

from neuroledger.errors import DataError, RequestError
from neuroledger.families.decoding.audit import audit
from neuroledger.families.signals.pinning.scan_downloads import recordings_in, sidecars
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.brainvision_files import brainvision

RATE = 100
WINDOW = Window(
    start=0.0, duration=1.0, labels={"Stimulus/S  1": "left", "Stimulus/S  2": "right"}
)


def _person(folder: Path, seed: int, name: str = "rec") -> None:
    rng = np.random.default_rng(seed)
    markers = [
        (200 * number, f"S  {1 + int(code)}")
        for number, code in enumerate(rng.random(12) < 0.5, 1)
    ]
    brainvision(
        folder, name, ["C3", "Cz", "C4"], rng.normal(0, 10, (3, 3000)), RATE, markers
    )


def _windows(root: Path, names: list[str]) -> object:
    files = {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    recordings = tuple(
        Recording(file=name, subject=str(number)) for number, name in enumerate(names)
    )
    return mne_epochs(files, recordings=recordings, window=WINDOW).assembly


def test_equal_headers_of_two_subjects_are_two_recordings(tmp_path: Path) -> None:
    for person in ("anna", "bert"):
        _person(tmp_path / person, seed=len(person) + ord(person[0]))
    one, other = (tmp_path / person / "rec.vhdr" for person in ("anna", "bert"))
    assert one.read_bytes() == other.read_bytes()
    windows = _windows(tmp_path, ["anna/rec.vhdr", "bert/rec.vhdr"])
    assert len(set(windows["recording_sha256"].values.tolist())) == 2
    assert "audit.duplicate" not in {finding.code for finding in audit(windows)}


def test_a_copy_is_detected_under_another_header_name(tmp_path: Path) -> None:
    _person(tmp_path / "anna", seed=1, name="first")
    _person(tmp_path / "bert", seed=1, name="second")
    assert (tmp_path / "anna/first.vhdr").read_bytes() != (
        tmp_path / "bert/second.vhdr"
    ).read_bytes()
    windows = _windows(tmp_path, ["anna/first.vhdr", "bert/second.vhdr"])
    found = [
        finding.what for finding in audit(windows) if finding.code == "audit.duplicate"
    ]
    assert any(
        "anna/first.vhdr, bert/second.vhdr of subjects 0, 1 have the same bytes" in said
        for said in found
    )


def _split(root: Path) -> dict[str, Path]:
    """A BIDS folder with one recording of 8 magnetometers in several parts; simulated noise of 100 fT."""
    folder = root / "sub-01" / "ses-1" / "meg"
    folder.mkdir(parents=True)
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": "split", "BIDSVersion": "1.8.0"})
    )
    values = np.random.default_rng(0).normal(0, 1e-13, (8, 4000))
    info = mne.create_info([f"MEG{number:04d}" for number in range(8)], 1000, "mag")
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    stem = folder / "sub-01_ses-1_task-cue_run-1"
    raw.save(
        Path(f"{stem}_meg.fif"),
        split_size="1.06MB",
        split_naming="bids",
        buffer_size_sec=0.2,
        verbose="ERROR",
    )
    Path(f"{stem}_meg.json").write_text(
        json.dumps({"TaskName": "cue", "PowerLineFrequency": 50})
    )
    # The table of channels is about every run of the session, by BIDS's principle of inheritance.
    rows = "".join(f"{name}\tMEGMAG\tT\n" for name in raw.ch_names)
    (folder / "sub-01_ses-1_task-cue_channels.tsv").write_text(
        f"name\ttype\tunits\n{rows}"
    )
    Path(f"{stem}_events.tsv").write_text(
        "onset\tduration\ttrial_type\n0.5\t0\tleft\n1.5\t0\tright\n2.5\t0\tleft\n"
    )
    (folder / "sub-01_ses-1_task-other_events.tsv").write_text(
        "onset\tduration\ttrial_type\n1\t0\tleft\n"
    )
    return {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_split_recording_is_one_recording_whose_parts_share_tables(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mne_bids")
    files = _split(tmp_path / "bids")
    parts = [name for name in files if name.endswith(".fif")]
    assert len(parts) > 1
    recordings = recordings_in(tmp_path / "bids", list(files), task="cue")
    assert [item.file for item in recordings] == parts[:1]
    assert sorted(recordings[0].files) == parts
    taken = set(sidecars(list(files), recordings))
    assert {name.rsplit("/", 1)[-1] for name in taken} == {
        "dataset_description.json",
        "sub-01_ses-1_task-cue_channels.tsv",
        "sub-01_ses-1_task-cue_run-1_events.tsv",
        "sub-01_ses-1_task-cue_run-1_meg.json",
    }
    pinned = tmp_path / "pinned"
    for name in (*parts, *taken):
        (pinned / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files[name], pinned / name)
    held = {name: pinned / name for name in (*parts, *taken)}
    read = bids_epochs(
        held,
        task="cue",
        datatype="meg",
        window=Window(
            start=0.0, duration=1.0, labels={"left": "left", "right": "right"}
        ),
        preprocessing=Preprocessing(pick=("meg",), units="fT"),
    ).assembly
    whole = np.random.default_rng(0).normal(0, 1e-13, (8, 4000)) * 1e15
    expected = np.stack([whole[:, start : start + 1000] for start in (500, 1500, 2500)])
    np.testing.assert_allclose(read.values, expected, rtol=1e-5)
    assert read["label"].values.tolist() == ["left", "right", "left"]


def test_another_type_of_data_is_reported_with_the_field_to_set(tmp_path: Path) -> None:
    pytest.importorskip("mne_bids")
    files = _split(tmp_path / "bids")
    with pytest.raises(
        DataError, match=r"there are 'cue' \(meg\): state `datatype: meg` in the reader"
    ):
        bids_epochs(files, task="cue", window=WINDOW)


def test_magnetometers_in_microvolts_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("mne_bids")
    window = Window(start=0.0, duration=1.0, labels={"left": "left", "right": "right"})
    with pytest.raises(
        DataError,
        match=r"mag channels have no amplitude in uV: state `units` \(fT or T\)",
    ):
        bids_epochs(
            _split(tmp_path / "bids"),
            task="cue",
            datatype="meg",
            window=window,
            preprocessing=Preprocessing(pick=("meg",)),
        )


def _persyst(folder: Path, seed: int) -> np.ndarray:
    """A recording of Persyst: a header in words, and samples of 16 bits in steps of 0.1 µV beside it."""
    folder.mkdir()
    counts = np.random.default_rng(seed).integers(-300, 300, (3, 3000)).astype("<i2")
    (folder / "rec.dat").write_bytes(counts.T.tobytes())
    said = [
        "[FileInfo]",
        "File=rec.dat",
        "FileType=Interleaved",
        f"SamplingRate={RATE}",
        "Calibration=0.1",
    ]
    said += [
        "HeaderLength=0",
        "WaveformCount=3",
        "DataType=0",
        "[ChannelMap]",
        "C3-REF=1",
        "Cz-REF=2",
        "C4-REF=3",
    ]
    said += ["[Sheets]", "[Comments]"]
    said += [
        f"{2 * number}.0,0.0,0,100,{'left' if number % 2 else 'right'}"
        for number in range(1, 13)
    ]
    said += [
        "[Patient]",
        "First=A",
        "Last=B",
        "Sex=F",
        "Hand=R",
        "BirthDate=01/31/1980",
    ]
    said += ["TestDate=01/31/2026", "TestTime=12:00:00"]
    (folder / "rec.lay").write_text("\n".join(said) + "\n")
    return counts * 0.1


def test_persyst_recordings_are_distinguished_by_their_samples(tmp_path: Path) -> None:
    whole = [
        _persyst(tmp_path / person, seed)
        for seed, person in enumerate(("anna", "bert"))
    ]
    assert (tmp_path / "anna/rec.lay").read_bytes() == (
        tmp_path / "bert/rec.lay"
    ).read_bytes()
    files = {
        path.relative_to(tmp_path).as_posix(): path
        for path in sorted(tmp_path.rglob("rec.*"))
    }
    recordings = recordings_in(tmp_path, list(files), named={"{subject}/rec.lay": {}})
    assert [(item.subject, sorted(item.files)) for item in recordings] == [
        ("anna", ["anna/rec.dat", "anna/rec.lay"]),
        ("bert", ["bert/rec.dat", "bert/rec.lay"]),
    ]
    windows = mne_epochs(
        files,
        recordings=tuple(
            Recording(file=item.file, subject=item.subject) for item in recordings
        ),
        window=Window(
            start=0.0, duration=1.0, labels={"left": "left", "right": "right"}
        ),
    ).assembly
    assert len(set(windows["recording_sha256"].values.tolist())) == 2
    expected = [
        one[:, start : start + RATE] for one in whole for start in range(200, 2600, 200)
    ]
    np.testing.assert_allclose(windows.values, expected, atol=1e-4)
    (tmp_path / "bert/rec.dat").unlink()
    with pytest.raises(
        RequestError, match=r"rec\.lay cannot be opened without rec\.dat"
    ):
        recordings_in(
            tmp_path,
            [name for name in files if name != "bert/rec.dat"],
            named={"{subject}/rec.lay": {}},
        )
