"""Gaps, joints and rates: windows come from the samples of their time, and none crosses what was not recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.clocks import LeftOut
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import clocks_of
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.mne_objects import windows
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.clock_files import seconds_of, stamped

LABELS = {"go": "g", "stop": "s"}
TWO_TENTHS = Window(start=0.0, duration=0.2, labels=LABELS)
EVENTS = [
    (2.0, "stop"),
    (5.0, "go"),
    (8.0, "stop"),
    (23.0, "stop"),
    (26.0, "go"),
    (29.0, "stop"),
    (33.0, "stop"),
]
PAUSED = [float(second) if second < 12 else second + 5.0 for second in range(30)]


def read(path: Path, window: Window, **fields: Any) -> Dataset:
    one = Recording(file=path.name, subject="a")
    files = {other.name: other for other in path.parent.iterdir()}
    return mne_epochs(files, recordings=(one,), window=window, **fields)


def assembly(data: Dataset) -> xr.DataArray:
    assert data.assembly is not None
    return data.assembly


def seconds(data: Dataset, channel: str = "Pz") -> list[float]:
    """The second of the recording from which each window was cut, by the values of a channel."""
    signals = assembly(data)
    row = signals["channel_id"].values.tolist().index(channel)
    found: list[float] = np.round(
        signals.values[:, row, 0].astype(float) / 10, 2
    ).tolist()
    return found


def two_channels(
    count: int = 30, rate: int = 100
) -> dict[str, tuple[int, np.ndarray[Any, Any]]]:
    wave = 50 * np.sin(np.arange(count * rate) / 7)
    return {"Cz": (rate, wave), "Pz": (rate, seconds_of(count, rate))}


@pytest.mark.parametrize("name", ["gap.edf", "gap.bdf"])
def test_windows_after_a_gap_are_cut_by_the_clock(tmp_path: Path, name: str) -> None:
    stamped(tmp_path / name, two_channels(), PAUSED, EVENTS)
    data = read(tmp_path / name, TWO_TENTHS)
    assert seconds(data) == [2, 5, 8, 18, 21, 24, 28]
    assert assembly(data)["onset"].values.tolist() == [onset for onset, _ in EVENTS]
    (samples, events) = data.clocks[0].clocks
    assert [(gap.begin, gap.seconds) for gap in samples.gaps] == [(12.0, 5.0)]
    assert (samples.stop, str(samples.rate), events.count) == (
        35.0,
        "100.0 (stated)",
        7,
    )


def test_a_window_across_or_in_a_gap_is_left_out_and_counted(tmp_path: Path) -> None:
    stamped(
        tmp_path / "gap.edf",
        two_channels(),
        PAUSED,
        [*EVENTS, (11.5, "go"), (14.0, "go")],
    )
    data = read(tmp_path / "gap.edf", Window(start=0.0, duration=1.0, labels=LABELS))
    assert assembly(data).sizes["presentation"] == 7
    assert data.clocks[0].left_out == (
        LeftOut(reason="across a gap", label="g", windows=2),
    )
    assert data.notes == (
        "2 windows cross a gap or a joint of their recording and are left out: gap.edf (g 2)",
    )


def test_windows_over_the_whole_recording_leave_the_gap_out(tmp_path: Path) -> None:
    stamped(tmp_path / "gap.edf", two_channels(), PAUSED, EVENTS)
    data = read(tmp_path / "gap.edf", Window(start=0.0, duration=2.0, stride=2.0))
    assert seconds(data) == [0, 2, 4, 6, 8, 10, *range(13, 29, 2)]


def test_a_discontinuous_file_without_gaps_is_read_as_a_continuous_one(
    tmp_path: Path,
) -> None:
    even = [float(second) for second in range(30)]
    events = [(at, text) for at, text in EVENTS if at < 30]
    for kind in "CD":
        stamped(tmp_path / f"{kind}.edf", two_channels(), even, events, kind=kind)
    read_c, read_d = (read(tmp_path / f"{kind}.edf", TWO_TENTHS) for kind in "CD")
    np.testing.assert_array_equal(assembly(read_c).values, assembly(read_d).values)
    assert read_d.clocks[0].gaps == ()


def test_a_clock_that_was_set_back_is_refused_with_its_place(tmp_path: Path) -> None:
    stamped(
        tmp_path / "back.edf",
        two_channels(),
        [*map(float, range(12)), *map(float, range(3, 21))],
        EVENTS[:3],
    )
    with pytest.raises(
        DataError,
        match=r"record 13 begins at 3 s, before the previous one ends at 12 s",
    ):
        read(tmp_path / "back.edf", TWO_TENTHS)


@given(
    st.lists(st.tuples(st.integers(4, 8), st.integers(1, 40)), min_size=2, max_size=5)
)
@settings(max_examples=8, deadline=None)
def test_every_window_comes_from_its_time_whatever_the_gaps(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]]
) -> None:
    stamps: list[float] = []
    for records, pause in parts:
        begin = stamps[-1] + 1 + pause if stamps else 0.0
        stamps += [begin + number for number in range(records)]
    path = tmp_path_factory.mktemp("gaps") / "gaps.edf"
    events = [(stamp + 0.1, "go") for stamp in stamps]
    stamped(path, two_channels(len(stamps)), stamps, events)
    data = read(path, Window(start=0.0, duration=0.5, labels={"go": "g"}))
    assert seconds(data) == [round(number + 0.1, 2) for number in range(len(stamps))]
    assert len(data.clocks[0].gaps) == len(parts) - 1


def joined(
    rng: np.random.Generator, lengths: tuple[float, ...] = (10.0, 10.0)
) -> tuple[mne.io.RawArray, list[Any]]:
    """Parts of EEG at 100 Hz joined by MNE, the second 500 µV higher, with an event `go` at 2, 5, 9.5, 12 and 16 s."""
    info = mne.create_info(["Cz", "Pz"], 100.0, "eeg")
    raws = [
        mne.io.RawArray(
            rng.normal(500e-6 * number, 1e-5, (2, round(100 * length))),
            info,
            verbose="ERROR",
        )
        for number, length in enumerate(lengths)
    ]
    parts = [raw.get_data() for raw in raws]
    raw = mne.concatenate_raws(raws, verbose="ERROR")
    for onset in (2.0, 5.0, 9.5, 12.0, 16.0):
        raw.annotations.append(onset, 0.0, "go")
    return raw, parts


SECOND = Window(start=0.0, duration=1.0, labels={"go": "g"})


def test_no_window_crosses_a_joint_of_mne_and_each_part_is_filtered_by_itself(
    tmp_path: Path,
) -> None:
    raw, parts = joined(np.random.default_rng(0))
    raw.save(tmp_path / "joined_raw.fif", verbose="ERROR")
    steps = Preprocessing(high_pass=2.0)
    data = read(tmp_path / "joined_raw.fif", SECOND, preprocessing=steps)
    assert assembly(data)["onset"].values.tolist() == [2.0, 5.0, 12.0, 16.0]
    assert data.clocks[0].left_out == (
        LeftOut(reason="across a gap", label="g", windows=1),
    )
    filtered = [
        mne.filter.filter_data(part, 100.0, 2.0, None, verbose="ERROR")
        for part in parts
    ]
    cut = [
        filtered[0][:, 200:300],
        filtered[0][:, 500:600],
        filtered[1][:, 200:300],
        filtered[1][:, 600:700],
    ]
    np.testing.assert_allclose(assembly(data).values, 1e6 * np.stack(cut), atol=1e-3)


def test_objects_of_mne_with_a_joint_are_cut_like_files() -> None:
    raw, _ = joined(np.random.default_rng(1))
    assert windows({"a": raw}, window=SECOND)["onset"].values.tolist() == [
        2.0,
        5.0,
        12.0,
        16.0,
    ]


def test_no_window_crosses_a_boundary_of_eeglab(tmp_path: Path) -> None:
    raw, _ = joined(np.random.default_rng(2))
    raw.set_annotations(
        mne.Annotations(
            [2, 5, 9.5, 9.995, 12, 16],
            [0, 0, 0, 3, 0, 0],
            ["go"] * 3 + ["boundary", "go", "go"],
        )
    )
    mne.export.export_raw(tmp_path / "cut.set", raw, fmt="eeglab", verbose="ERROR")
    data = read(tmp_path / "cut.set", SECOND)
    assert assembly(data)["onset"].values.tolist() == [2.0, 5.0, 12.0, 16.0]
    assert float(np.ptp(assembly(data).values, axis=2).max()) < 250


def test_no_window_crosses_what_a_recorder_skipped(tmp_path: Path) -> None:
    raw, _ = joined(np.random.default_rng(3), (20.0,))
    raw.annotations.append(9.8, 1.0, "BAD_ACQ_SKIP")
    raw.save(tmp_path / "skip_raw.fif", verbose="ERROR")
    data = read(tmp_path / "skip_raw.fif", SECOND)
    assert assembly(data)["onset"].values.tolist() == [2.0, 5.0, 12.0, 16.0]
    assert [(gap.begin, gap.seconds) for gap in data.clocks[0].gaps] == [(9.8, 1.0)]


def test_no_window_crosses_a_pause_of_brainvision(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    markers = [(200, "S  1"), (1500, "S  1"), (1600, "S  1")]
    brainvision(
        tmp_path, "pause", ["C3", "C4"], rng.normal(0, 10, (2, 2000)), 100, markers
    )
    header = tmp_path / "pause.vmrk"
    text = header.read_text() + "Mk9=New Segment,,1551,1,0,20200101120000000000\n"
    header.write_text(text)
    data = read(
        tmp_path / "pause.vhdr",
        Window(start=0.0, duration=1.0, labels={"Stimulus/S  1": "l"}),
    )
    assert len(assembly(data)) == 2
    assert data.clocks[0].left_out == (
        LeftOut(reason="across a gap", label="l", windows=1),
    )


def night(path: Path) -> None:
    """C3 and C4 at 200 Hz, CzSlow at 5 Hz with +50 and −50 µV only, 9 events."""
    rng = np.random.default_rng(5)
    slow = np.repeat([50.0, -50.0], 5)
    channels = {
        "C3": (200, rng.normal(0, 20, 4000)),
        "CzSlow": (5, np.tile(slow, 10)),
        "C4": (200, rng.normal(0, 20, 4000)),
    }
    spans = [(2.0 * number + 1.5, "go") for number in range(9)]
    stamped(path, channels, [float(second) for second in range(20)], spans, kind="C")


GO = Window(start=0.0, duration=1.0, labels={"go": "g"})


def test_channels_of_several_rates_are_refused_with_the_rates(tmp_path: Path) -> None:
    night(tmp_path / "night.edf")
    with pytest.raises(
        DataError, match=r"CzSlow has 5 Hz, C3, C4 have 200 Hz.*resample: RATE"
    ):
        read(tmp_path / "night.edf", GO)


def test_channels_that_are_not_picked_do_not_matter(tmp_path: Path) -> None:
    night(tmp_path / "night.edf")
    data = read(
        tmp_path / "night.edf", GO, preprocessing=Preprocessing(drop=("CzSlow",))
    )
    assert assembly(data).attrs["sampling_rate"] == 200.0
    assert data.notes == ()


def test_a_slow_channel_alone_keeps_the_values_that_were_recorded(
    tmp_path: Path,
) -> None:
    night(tmp_path / "night.edf")
    data = read(
        tmp_path / "night.edf",
        GO,
        preprocessing=Preprocessing(channels=("Cz",), strip=("Slow",)),
    )
    signals = assembly(data)
    assert signals.attrs["sampling_rate"] == 5.0
    assert signals["channel_id"].values.tolist() == ["Cz"]
    assert set(np.round(signals.values, 3).ravel().tolist()) == {-50.0, 50.0}
    assert data.clocks[0].clocks[0].rate == Fact(5.0, "stated")


def test_channels_of_several_rates_are_resampled_as_declared_with_a_note(
    tmp_path: Path,
) -> None:
    night(tmp_path / "night.edf")
    data = read(tmp_path / "night.edf", GO, preprocessing=Preprocessing(resample=50.0))
    assert assembly(data).attrs["sampling_rate"] == 50.0
    (note,) = data.notes
    assert note == (
        "channels of several rates (CzSlow has 5 Hz, C3, C4 have 200 Hz) are resampled to 50 Hz: CzSlow is interpolated, "
        "by Fourier's method"
    )


def test_windows_with_missing_samples_are_left_out_while_they_are_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(0, 1e-5, (2, 3000))
    values[1, 410:420] = np.nan
    raw = mne.io.RawArray(
        values, mne.create_info(["Cz", "Pz"], 100.0, "eeg"), verbose="ERROR"
    )
    raw.set_annotations(mne.Annotations(np.arange(30.0), 0.0, "go"))
    cut = windows({"a": raw}, window=GO)
    assert cut["onset"].values.tolist() == [
        float(second) for second in range(30) if second != 4
    ]
    assert clocks_of(cut)[0].left_out == (
        LeftOut(reason="with missing samples", label="g", windows=1),
    )
    strict = GO.model_copy(update={"beyond": 0.0})
    with pytest.raises(
        DataError,
        match="1 of 30 windows have missing or infinite values, in channels Pz",
    ):
        windows({"a": raw}, window=strict)


def in_bids(
    root: Path, stamps: list[float], spans: list[tuple[float, str]]
) -> dict[str, Path]:
    """A BIDS folder of one EDF+ recording with its events in a table."""
    place = root / "sub-01" / "eeg"
    place.mkdir(parents=True)
    (root / "dataset_description.json").write_text(
        '{"Name": "x", "BIDSVersion": "1.8.0"}'
    )
    stamped(place / "sub-01_task-x_eeg.edf", two_channels(len(stamps)), stamps, spans)
    (place / "sub-01_task-x_channels.tsv").write_text(
        "name\ttype\tunits\nCz\tEEG\tuV\nPz\tEEG\tuV\n"
    )
    (place / "sub-01_task-x_eeg.json").write_text(
        '{"TaskName": "x", "PowerLineFrequency": 50}'
    )
    lines = [f"{onset}\t0\t{text}\n" for onset, text in spans]
    (place / "sub-01_task-x_events.tsv").write_text(
        "onset\tduration\ttrial_type\n" + "".join(lines)
    )
    return {
        path.relative_to(root).as_posix(): path
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_bids_recording_with_gaps_is_refused_with_the_first_gap(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mne_bids")
    files = in_bids(tmp_path, PAUSED, EVENTS)
    with pytest.raises(
        DataError, match=r"sub-01_task-x_eeg\.edf has 1 gaps, the first of 5 s at 12 s"
    ):
        bids_epochs(files, task="x", window=TWO_TENTHS)


def test_a_bids_recording_without_gaps_is_read(tmp_path: Path) -> None:
    pytest.importorskip("mne_bids")
    files = in_bids(tmp_path, [float(second) for second in range(30)], EVENTS[:-1])
    data = bids_epochs(files, task="x", window=TWO_TENTHS)
    assert seconds(data) == [onset for onset, _ in EVENTS[:-1]]
    assert data.clocks[0].gaps == ()
