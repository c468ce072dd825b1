"""Near-infrared spectroscopy in SNIRF, and EGI's simple binary files: windows come from the samples of their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.data.clocks import LeftOut
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.snirf_files import egi, snirf

pytest.importorskip("h5py")

RATE = 8.0
TAP = Window(start=0.0, duration=2.0, labels={"tap": "t", "rest": "r"})
HBO = Preprocessing(pick=("hbo",), units="arbitrary")


def read(
    path: Path, window: Window = TAP, preprocessing: Preprocessing = HBO
) -> Dataset:
    one = (Recording(file=path.name, subject="a"),)
    return mne_epochs(
        {path.name: path}, recordings=one, window=window, preprocessing=preprocessing
    )


def numbered(samples: int, channels: int = 4) -> np.ndarray[Any, Any]:
    """Values (sample, channel) in µM; the first channel holds the number of each sample."""
    values = np.random.default_rng(0).normal(0, 1, (samples, channels))
    values[:, 0] = np.arange(samples)
    return values


def first_samples(data: Dataset, scale: float = 1e6) -> list[int]:
    assert data.assembly is not None
    found: list[int] = (
        np.round(data.assembly.values[:, 0, 0] * scale).astype(int).tolist()
    )
    return found


def test_haemoglobin_is_cut_by_the_times_of_the_file(tmp_path: Path) -> None:
    """Times begin at 100 s, where MNE would count onsets from 0; 5 s are missing after sample 200."""
    times = 100.0 + np.arange(480) / RATE
    times[200:] += 5.0
    stimuli = {
        "tap": [[times[at], 1.0, 1.0] for at in (16, 198, 400)],
        "rest": [[times[at], 1.0, 1.0] for at in (80, 240)],
    }
    data = read(snirf(tmp_path / "a.snirf", numbered(480), times, stimuli))
    assert first_samples(data) == [16, 80, 240, 400]
    assert data.assembly is not None
    assert data.assembly["onset"].values.tolist() == [2.0, 10.0, 35.0, 55.0]
    assert data.assembly["channel_type"].values.tolist() == ["hbo", "hbo"]
    clocks = data.clocks[0]
    assert [(gap.begin, gap.seconds) for gap in clocks.gaps] == [(25.0, 5.0)]
    assert clocks.left_out == (LeftOut(reason="across a gap", label="t", windows=1),)
    assert str(clocks.clocks[0].rate) == "8.0 (stated)"


def test_times_in_milliseconds_and_as_a_step_are_the_same(tmp_path: Path) -> None:
    stimuli = {"tap": [[4.0, 1.0, 1.0]], "rest": [[10.0, 1.0, 1.0]]}
    whole = read(
        snirf(tmp_path / "s.snirf", numbered(160), np.arange(160) / RATE, stimuli)
    )
    later = {
        name: [[1000 * cell for cell in row] for row in rows]
        for name, rows in stimuli.items()
    }
    thousands = read(
        snirf(
            tmp_path / "m.snirf",
            numbered(160),
            np.arange(160) * 125.0,
            later,
            unit="ms",
        )
    )
    step = read(snirf(tmp_path / "t.snirf", numbered(160), [0.0, 0.125], stimuli))
    assert (
        first_samples(whole)
        == first_samples(thousands)
        == first_samples(step)
        == [32, 80]
    )


def test_times_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    stimuli = {"tap": [[4.0, 1.0, 1.0]], "rest": [[10.0, 1.0, 1.0]]}
    even = np.arange(160) / RATE
    with pytest.raises(
        DataError, match=r"states its times in 'min', which is not one of s, ms"
    ):
        read(snirf(tmp_path / "unit.snirf", numbered(160), even, stimuli, unit="min"))
    with pytest.raises(
        DataError,
        match=r"contains 2 blocks of data below `nirs`; one, `data1`, is read",
    ):
        read(snirf(tmp_path / "two.snirf", numbered(160), even, stimuli, blocks=2))
    with pytest.raises(
        DataError, match=r"has 150 times, .* for 160 samples: it is damaged"
    ):
        read(snirf(tmp_path / "short.snirf", numbered(160), even[:150], stimuli))
    back = np.where(np.arange(160) < 80, even, even - 4.0)
    with pytest.raises(DataError, match=r"the clock was set back by 4 s at 9\.875 s"):
        read(snirf(tmp_path / "back.snirf", numbered(160), back, stimuli))
    with pytest.raises(
        DataError,
        match="hbo channels have no amplitude in uV: state `units: arbitrary`",
    ):
        read(
            snirf(tmp_path / "volts.snirf", numbered(160), even, stimuli),
            preprocessing=Preprocessing(pick=("hbo",)),
        )


def test_unsegmented_files_of_egi_are_read_with_their_events(tmp_path: Path) -> None:
    values = numbered(1000, 3)
    path = egi(tmp_path / "a.raw", values, 250, {"DIN1": [100, 500], "DIN2": [300]})
    window = Window(start=0.0, duration=0.5, labels={"DIN1": "l", "DIN2": "r"})
    data = read(path, window, Preprocessing(units="arbitrary"))
    assert first_samples(data) == [100, 300, 500]
    assert data.assembly is not None
    assert data.assembly["label"].values.tolist() == ["l", "r", "l"]
    assert data.assembly.attrs["sampling_rate"] == 250.0
    np.testing.assert_allclose(
        data.assembly.values[0, 1] * 1e6, values[100:225, 1], atol=1e-4
    )
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"a\.raw cannot be read as a recording by MNE"):
        read(path, window)
