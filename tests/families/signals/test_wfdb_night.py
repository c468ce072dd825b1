"""A night in PhysioNet's format: stages, spans and signals are read as written, and errors name the problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_spans import AnnotationFile
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.wfdb import read_night
from tests.families.signals.recording_files import night, texts


def files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.iterdir())}


def test_a_physionet_night_has_stages_and_spans(tmp_path: Path) -> None:
    count = 120 * 200
    values = {"F3-M2": np.arange(count) % 1000, "SaO2": np.full(count, 7)}
    night(tmp_path / "tr03-0005.hea", values, 200)
    marks = [
        (6000, 0, "W"),
        (12000, 0, "N2"),
        (13000, 1, "(arousal_rera"),
        (15001, 1, "arousal_rera)"),
        (18000, 0, "R"),
    ]
    texts(tmp_path / "tr03-0005.arousal", marks)
    rule = AnnotationFile(
        recording="{name}.hea",
        file="{name}.arousal",
        format="wfdb",
        ignore=("arousal_*",),
    )
    window = Window(
        start=0, duration=30, stride=30, labels={"W": "W", "N2": "N2", "R": "R"}
    )
    one = (Recording(file="tr03-0005.hea", subject="1"),)
    steps = Preprocessing(channels=("F3-M2",))
    slower = Preprocessing(channels=("F3-M2",), resample=120.0)
    again = mne_epochs(
        files(tmp_path),
        recordings=one,
        window=window,
        preprocessing=slower,
        annotations=rule,
    ).assembly
    assert again is not None
    assert again["onset"].values.tolist() == [30, 60, 90]
    windows = mne_epochs(
        files(tmp_path),
        recordings=one,
        window=window,
        preprocessing=steps,
        annotations=rule,
    ).assembly
    assert windows is not None
    assert windows["label"].values.tolist() == ["W", "N2", "R"]
    assert windows["onset"].values.tolist() == [30, 60, 90]
    np.testing.assert_allclose(windows.values[0, 0, :5], [0, 1, 2, 3, 4], atol=1e-3)
    aroused = Window(
        start=0,
        duration=15,
        stride=15,
        over="recording",
        labels={"arousal_*": "arousal"},
        otherwise="none",
    )
    plain = AnnotationFile.model_validate(
        rule.model_dump() | {"ignore": ["W", "N2", "R"]}
    )
    windows = mne_epochs(
        files(tmp_path),
        recordings=one,
        window=aroused,
        preprocessing=steps,
        annotations=plain,
    ).assembly
    assert windows is not None
    assert (
        windows["label"].values.tolist()
        == ["none"] * 4 + ["arousal"] * 2 + ["none"] * 2
    )
    for broken, message in [
        (marks[:3], "'arousal_rera' begins at 65 s without an end"),
        (marks[3:], r"'arousal_rera' ends at 75.005 s without a beginning"),
    ]:
        texts(tmp_path / "tr03-0005.arousal", broken)
        with pytest.raises(DataError, match=message):
            mne_epochs(
                files(tmp_path),
                recordings=one,
                window=aroused,
                preprocessing=steps,
                annotations=plain,
            )
    (tmp_path / "tr03-0005.mat").write_bytes(b"0" * 100)
    with pytest.raises(
        DataError,
        match=r"tr03-0005\.mat contains 76 bytes, but its header states 96,000",
    ):
        mne_epochs(
            files(tmp_path),
            recordings=one,
            window=aroused,
            preprocessing=steps,
            annotations=plain,
        )


def test_a_damaged_download_of_a_night_is_refused(tmp_path: Path) -> None:
    night(tmp_path / "tr03-0005.hea", {"F3-M2": np.arange(6000.0) % 1000}, 200)
    signals = tmp_path / "tr03-0005.mat"
    content = bytearray(signals.read_bytes())
    content[-1] ^= 1
    signals.write_bytes(content)
    with pytest.raises(
        DataError,
        match="lead F3-M2 does not match the checksum in its header: the file is damaged",
    ):
        read_night(tmp_path / "tr03-0005.hea")
