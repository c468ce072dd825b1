"""Gaps and resets of the clocks of XDF streams: windows come from the samples of their time, and none crosses a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.clocks import LeftOut
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.xdf_files import Marker, Samples, xdf

pytest.importorskip("pyxdf")

RATE = 64.0
HALF = Window(start=0.0, duration=0.5, labels={"go": "g"})
Stamps = np.ndarray[Any, np.dtype[np.float64]]


def numbered(stamps: Stamps, **fields: Any) -> Samples:
    """A stream without a unit whose first channel holds the number of each sample."""
    numbers = np.arange(len(stamps), dtype=float)
    values = np.stack([numbers, 40 * np.sin(numbers)], axis=1)
    return Samples(values, RATE, stamps, labels=["Cz", "Pz"], **fields)


def read(path: Path, window: Window = HALF) -> Dataset:
    steps = Preprocessing(units="arbitrary")
    one = (Recording(file=path.name, subject="a"),)
    return mne_epochs(
        {path.name: path}, recordings=one, window=window, preprocessing=steps
    )


def first_samples(data: Dataset) -> list[int]:
    """Number of the sample at which each window begins."""
    assert data.assembly is not None
    found: list[int] = (
        np.round(data.assembly.values[:, 0, 0].astype(float)).astype(int).tolist()
    )
    return found


def even(seconds: float) -> Stamps:
    return 100.0 + np.arange(round(seconds * RATE)) / RATE


def paused(seconds: float, at: int, pause: float) -> Stamps:
    """Even time stamps with a pause before one sample."""
    stamps = even(seconds)
    stamps[at:] += pause
    return stamps


@pytest.mark.parametrize("pause", [0.25, 3.0, 600.0])
def test_windows_after_a_gap_of_a_stream_come_from_their_time(
    tmp_path: Path, pause: float
) -> None:
    stamps = paused(20.0, 300, pause)
    wanted = [10, 200, 310, 900]
    marks = [(float(stamps[number]), "go") for number in wanted]
    data = read(xdf(tmp_path / "gap.xdf", numbered(stamps), Marker(marks)))
    assert first_samples(data) == wanted
    (samples, events) = data.clocks[0].clocks
    (gap,) = samples.gaps
    assert (gap.begin, gap.seconds) == (
        pytest.approx(300 / RATE),
        pytest.approx(pause, abs=1e-3),
    )
    assert (samples.count, str(samples.rate), events.count) == (
        1280,
        "64.0 (stated)",
        4,
    )
    assert events.aligned == "by the measured offsets of the streams' clocks"
    assert data.assembly is not None
    np.testing.assert_allclose(
        data.assembly["onset"].values, [at - 100.0 for at, _ in marks], atol=0.5 / RATE
    )


def test_windows_across_or_in_a_gap_of_a_stream_are_left_out_and_counted(
    tmp_path: Path,
) -> None:
    stamps = paused(20.0, 300, 3.0)
    marks = [(float(stamps[at]), "go") for at in (100, 290, 500)]
    marks.append((float(stamps[299]) + 1.5, "go"))
    data = read(xdf(tmp_path / "gap.xdf", numbered(stamps), Marker(sorted(marks))))
    assert first_samples(data) == [100, 500]
    assert data.clocks[0].left_out == (
        LeftOut(reason="across a gap", label="g", windows=2),
    )
    assert data.notes == (
        "2 windows cross a gap or a joint of their recording and are left out: gap.xdf (g 2)",
    )


def test_a_reset_of_the_clock_of_a_stream_is_a_gap(tmp_path: Path) -> None:
    """The computer of the amplifier was restarted after 15 s, 30 s passed, and its clock began again at 0."""
    before, after = even(15.0), np.arange(round(15 * RATE)) / RATE
    measured = [(100.0 + 5 * number, 0.0) for number in range(4)] + [
        (5.0 * number, 145.0) for number in range(1, 4)
    ]
    amplifier = numbered(np.concatenate([before, after]), measured=measured)
    wanted = [64, 640, 1024, 1600]
    recorder = np.concatenate([before, 145.0 + after])
    data = read(
        xdf(
            tmp_path / "reset.xdf",
            amplifier,
            Marker([(float(recorder[number]), "go") for number in wanted]),
        )
    )
    assert first_samples(data) == wanted
    (gap,) = data.clocks[0].gaps
    assert (gap.begin, gap.seconds) == (15.0, pytest.approx(30.0, abs=0.01))


def test_a_clock_that_was_set_back_is_refused_with_its_place(tmp_path: Path) -> None:
    stamps = paused(20.0, 300, -0.5)
    with pytest.raises(
        DataError, match=r"'amp': the clock was set back by 0\.5 s at 4\.67.* s from"
    ):
        read(xdf(tmp_path / "back.xdf", numbered(stamps), Marker([(101.0, "go")])))


def test_samples_at_another_rate_than_stated_are_refused(tmp_path: Path) -> None:
    stamps = 100.0 + np.arange(1280) / 55.0
    with pytest.raises(
        DataError, match=r"'amp' states 64 Hz, and its 1280 samples come at 55 Hz"
    ):
        read(xdf(tmp_path / "slow.xdf", numbered(stamps), Marker([(101.0, "go")])))


def test_a_clock_that_runs_unevenly_is_refused(tmp_path: Path) -> None:
    numbers = np.arange(1280)
    stamps = even(20.0) + 0.2 * np.sin(2 * np.pi * numbers / 1280)
    with pytest.raises(DataError, match="its clock does not run evenly, and is off by"):
        read(xdf(tmp_path / "uneven.xdf", numbered(stamps), Marker([(101.0, "go")])))


def test_late_packets_are_no_gaps(tmp_path: Path) -> None:
    stamps = even(20.0)
    for begin in (200, 500, 900):
        stamps[begin : begin + 16] = np.linspace(
            stamps[begin] + 0.2, stamps[begin + 16] - 1e-4, 16
        )
    marks = [(100.0 + number / RATE, "go") for number in (10, 400, 1000)]
    data = read(xdf(tmp_path / "late.xdf", numbered(stamps), Marker(marks)))
    assert first_samples(data) == [10, 400, 1000]
    assert data.clocks[0].gaps == ()


@given(
    st.lists(
        st.tuples(st.integers(3, 12), st.floats(0.1, 30.0)), min_size=1, max_size=4
    ),
    st.integers(0, 99),
)
@settings(max_examples=10, deadline=None)
def test_whatever_the_gaps_and_the_jitter_windows_come_from_their_time(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, float]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pauses = np.cumsum([0.0, *(pause for _, pause in parts[:-1])])
    lengths = [round(seconds * RATE) for seconds, _ in parts]
    stamps = even(sum(lengths) / RATE) + np.repeat(pauses, lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    wanted = [
        int(start) + at
        for start, length in zip(starts, lengths, strict=True)
        for at in (40, length - 40)
    ]
    marks = [(float(stamps[number]), "go") for number in wanted]
    jittered = stamps + rng.uniform(-0.004, 0.004, len(stamps))
    path = xdf(
        tmp_path_factory.mktemp("xdf") / "gaps.xdf",
        numbered(jittered, measured=[(100.0, 0.0), (float(stamps[-1]), 0.0)]),
        Marker(marks),
    )
    data = read(path)
    assert len(data.clocks[0].gaps) == len(parts) - 1
    found = np.array(first_samples(data))
    assert np.abs(found - np.array(wanted)).max() <= 1
