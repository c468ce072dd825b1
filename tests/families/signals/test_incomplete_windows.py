"""Windows that reach beyond their recording are left out and counted in notes and reports, and refused if they are many."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import pytest
import yaml

from neuroledger.cli import main
from neuroledger.data.dataset import Dataset
from neuroledger.data.load import load_dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.mne_objects import windows
from neuroledger.families.signals.recordings.open_recordings import open_recording
from neuroledger.families.signals.recordings.signal_preprocessing import Recording
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.xdf_streams import Streams
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.test_prepared_content import place, write
from tests.families.signals.xdf_files import Marker, Samples, xdf

__all__ = ["place"]

RATE = 100
CHANNELS = ["C3", "Cz", "C4"]
LABELS = {"Stimulus/S  1": "left", "Stimulus/S  2": "right"}
WINDOW = Window(start=0.0, duration=1.5, labels=LABELS)


def recording(
    folder: Path, name: str, *, seconds: float, events: int = 20
) -> Recording:
    """Simulated noise with an event in each second from the first on, whatever the length of the recording."""
    rng = np.random.default_rng(len(name))
    markers = [((1 + n) * RATE, f"S  {1 + n % 2}") for n in range(events)]
    brainvision(
        folder,
        name,
        CHANNELS,
        rng.normal(0, 10, (3, round(seconds * RATE))),
        RATE,
        markers,
    )
    return Recording(file=f"{name}.vhdr", subject=name)


def read(folder: Path, *recordings: Recording, **fields: object) -> Dataset:
    files = {one.file: folder / one.file for one in recordings}
    return mne_epochs(files, recordings=recordings, **({"window": WINDOW} | fields))  # type: ignore[arg-type]


def test_windows_beyond_an_end_are_counted_by_recording(tmp_path: Path) -> None:
    whole = recording(tmp_path, "whole", seconds=25)
    short = recording(tmp_path, "short", seconds=21.4)
    windows = read(tmp_path, whole, short)
    assert windows.assembly is not None
    assert windows.assembly.sizes["presentation"] == 39
    assert windows.notes == (
        "1 windows reach beyond the ends of 1 recordings and are left out: short.vhdr (1 of 20)",
    )
    assert read(tmp_path, whole).notes == ()


def test_a_truncated_recording_is_refused_with_the_counts(tmp_path: Path) -> None:
    cut = recording(tmp_path, "cut", seconds=25)
    path = tmp_path / "cut.eeg"
    path.write_bytes(path.read_bytes()[: 6 * RATE * 12])
    # MNE drops the eight markers beyond its end; of the twelve that are left, one has no whole window.
    with pytest.raises(
        DataError,
        match=r"cut\.vhdr: 10 of 20 windows reach beyond the recording \(0 before .* 10 after",
    ):
        read(tmp_path, cut)
    permitted = read(tmp_path, cut, window=WINDOW.model_copy(update={"beyond": 0.5}))
    assert permitted.assembly is not None
    assert permitted.assembly.sizes["presentation"] == 10
    assert permitted.notes == (
        "10 windows reach beyond the ends of 1 recordings and are left out: cut.vhdr (2 of 12, and 8 markers without a "
        "sample)",
    )


def test_one_incomplete_window_at_each_end_is_always_tolerated(tmp_path: Path) -> None:
    few = recording(tmp_path, "few", seconds=5.7, events=5)
    both = WINDOW.model_copy(update={"start": -1.2, "duration": 2.0})
    windows = read(tmp_path, few, window=both)
    assert windows.assembly is not None
    assert windows.assembly["onset"].values.tolist() == [2.0, 3.0, 4.0]
    assert windows.notes[0].endswith("few.vhdr (2 of 5)")


def test_windows_outside_the_declared_part_do_not_count_as_beyond_the_recording(
    tmp_path: Path,
) -> None:
    one = recording(tmp_path, "one", seconds=21.4)
    assert (
        read(
            tmp_path, one, window=WINDOW.model_copy(update={"within": (0.0, 10.0)})
        ).notes
        == ()
    )


def test_a_recording_without_a_complete_window_is_refused(tmp_path: Path) -> None:
    whole, none = (
        recording(tmp_path, "whole", seconds=25),
        recording(tmp_path, "none", seconds=2.2, events=1),
    )
    some = WINDOW.model_copy(update={"some": True})
    with pytest.raises(
        DataError, match=r"none\.vhdr: no window of 1\.5 s is within the recording"
    ):
        read(tmp_path, whole, none, window=some)
    assert (
        read(
            tmp_path, whole, none, window=some.model_copy(update={"beyond": 1.0})
        ).assembly
        is not None
    )


def test_windows_with_a_stride_never_reach_beyond_the_recording(tmp_path: Path) -> None:
    one = recording(tmp_path, "one", seconds=10.2)
    over = Window(start=-0.5, duration=1.0, stride=1.0)
    assert read(tmp_path, one, window=over).notes == ()


def test_markers_after_the_last_sample_of_a_stream_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    samples = Samples(
        rng.normal(0, 10, (1000, 3)),
        RATE,
        50.0 + np.arange(1000) / RATE,
        labels=CHANNELS,
        units=["uV"] * 3,
    )
    path = xdf(
        tmp_path / "one.xdf",
        samples,
        Marker([(51.0 + n, "go") for n in range(20)] + [(99.0, "other")]),
    )
    with pytest.raises(DataError, match=r"one\.xdf: 12 of 20 windows .* 12 after"):
        mne_epochs(
            {"one.xdf": path},
            recordings=(Recording(file="one.xdf", subject="1"),),
            window=Window(start=0.0, duration=1.5, labels={"go": "go"}),
            streams=Streams(samples="amp", markers=("cues",)),
        )


def test_a_bids_recording_that_is_shorter_than_its_table_of_events_is_refused(
    tmp_path: Path,
) -> None:
    mne_bids = pytest.importorskip("mne_bids")
    recording(tmp_path, "whole", seconds=25)
    raw = open_recording(tmp_path / "whole.vhdr")
    place = mne_bids.BIDSPath(
        subject="01", task="go", root=tmp_path / "bids", datatype="eeg"
    )
    mne_bids.write_raw_bids(raw, place, verbose="ERROR")
    for path in (tmp_path / "bids").rglob("*.eeg"):
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) * 12 // 25])
    files = {
        p.relative_to(tmp_path / "bids").as_posix(): p
        for p in (tmp_path / "bids").rglob("*")
        if p.is_file()
    }
    with pytest.raises(DataError, match=r"10 of 2\d windows reach beyond"):
        bids_epochs(files, task="go", window=WINDOW)


def test_left_out_windows_of_mne_objects_are_counted_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording(tmp_path, "short", seconds=21.4)
    raw = open_recording(tmp_path / "short.vhdr")
    with caplog.at_level(logging.WARNING, logger="neuroledger"):
        found = windows({"anna": raw}, window=WINDOW)
    assert found.sizes["presentation"] == 19
    assert "1 windows reach beyond the ends of 1 recordings" in caplog.text


def test_validation_report_and_prepared_windows_report_left_out_windows(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "data" / "Short"
    short = recording(folder, "short", seconds=21.4)
    pins = {
        path.name: {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.iterdir())
    }
    write(
        place,
        "datasets",
        id="Short",
        license="CC0-1.0",
        modality="eeg",
        files={
            name: {**pin, "url": "https://example.org/x"} for name, pin in pins.items()
        },
        reader={
            "name": "mne_epochs",
            "recordings": [{"file": short.file, "subject": "S1"}],
            "window": yaml.safe_load(
                WINDOW.model_dump_json(include={"start", "duration", "labels"})
            ),
        },
        expectations={"assembly": [{"check": "values_finite"}]},
    )
    assert main(["validate", "Short"]) == 0
    output = capsys.readouterr()
    assert (
        "data set Short: 1 windows reach beyond the ends of 1 recordings"
        in output.out + output.err
    )
    assert (
        "data.left-out" in (place / "results" / "validation" / "Short.json").read_text()
    )
    assert list((place / ".cache" / "neuroledger" / "windows").glob("??/*/index.json"))
    prepared = load_dataset(open_catalog(place), "Short")
    assert prepared.notes[0].startswith(
        "1 windows reach beyond the ends of 1 recordings"
    )
