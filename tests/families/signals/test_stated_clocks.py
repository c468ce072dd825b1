"""Every reader states the clocks of its recordings: what is timed, from when to when, how it is known and aligned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from neuroledger.data import assembly as assemblies
from neuroledger.data.clocks import Clock, LeftOut, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.families.signals.emg.sessions import WindowGrid
from neuroledger.families.signals.readers.hand_pose_sessions import hand_pose_sessions
from neuroledger.families.signals.readers.nifti_blocks import nifti_blocks
from neuroledger.families.signals.readers.prepared_signals import prepared_signals
from neuroledger.families.signals.readers.scheduled_arrays import scheduled_arrays
from neuroledger.families.signals.readers.typing_sessions import typing_sessions
from neuroledger.families.signals.readers.wfdb_beats import wfdb_beats
from neuroledger.families.signals.recordings.signal_preprocessing import Preprocessing
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.registry import get
from tests.families.decoding.decoding_cases import windows
from tests.families.signals import (
    test_fmri_windows,
    test_heard_words,
    test_nifti_blocks,
    test_read_sentences,
    test_read_words,
    test_video_arrays,
)
from tests.families.signals.emg_files import (
    keystrokes,
    pose,
    pose_row,
    typing,
    write_pose,
    write_series,
    write_table,
)
from tests.families.signals.recorded_files import annotations, record
from tests.families.signals.test_fmri_windows import one
from tests.families.signals.test_heard_words import folder as alice
from tests.families.signals.test_read_sentences import folder as zuco
from tests.families.signals.test_read_words import folder as words
from tests.families.signals.test_video_arrays import block
from tests.families.signals.typing_files import Session, brainvision
from tests.families.signals.zuco_files import eeg

__all__ = ["alice", "block", "one", "words", "zuco"]


def said(clock: Clock) -> tuple[object, ...]:
    """What a clock states: kind, origin of its unit, span, rate with origin, count, and alignment."""
    rate = None if clock.rate is None else str(clock.rate)
    return (
        clock.of,
        clock.unit.origin,
        clock.start,
        clock.stop,
        rate,
        clock.count,
        clock.aligned,
    )


def below(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
    }


def read(name: str, files: Mapping[str, Path], fields: Mapping[str, Any]) -> Dataset:
    component = get("reader", name)
    data: Dataset = component.function(files, **component.bind(dict(fields)))
    return data


def of(data: Dataset, recording: str) -> RecordingClocks:
    (found,) = (item for item in data.clocks if item.recording == recording)
    return found


def test_prepared_windows_state_their_rate_and_the_onsets_of_each_recording(
    tmp_path: Path,
) -> None:
    assemblies.write(
        windows(subjects=3, trials=20, sessions=2), tmp_path / "signals.nc"
    )
    data = prepared_signals({"signals.nc": tmp_path / "signals.nc"})
    assert [item.recording for item in data.clocks] == [
        "S00",
        "S01",
        "S10",
        "S11",
        "S20",
        "S21",
    ]
    samples, events = of(data, "S11").clocks
    assert said(samples) == (
        "samples",
        "stated",
        None,
        None,
        "16.0 (stated)",
        20 * 16,
        "the same clock",
    )
    assert said(events) == (
        "events",
        "stated",
        0.0,
        38.0,
        None,
        20,
        "windows that were cut before",
    )
    assert (of(data, "S11").subject, of(data, "S11").windows) == ("S1", 20)


def test_heartbeats_state_the_rate_of_the_record_and_how_annotations_count(
    tmp_path: Path,
) -> None:
    values = [1024 + 3 * (number % 50) for number in range(3600)]
    marks = [(300 * number + 100, "N") for number in range(12)]
    for name in ("100", "101"):
        record(tmp_path, name, {"MLII": values}, marks)
    (tmp_path / "101.atr").write_bytes(annotations(marks, "360"))
    header = (tmp_path / "101.hea").read_text()
    assert " 360 " in header
    data = wfdb_beats(below(tmp_path), parts={"train": ("100",), "test": ("101",)})
    samples, beats = of(data, "100").clocks
    assert said(samples) == (
        "samples",
        "stated",
        0.0,
        10.0,
        "360.0 (stated)",
        3600,
        "the same clock",
    )
    start, stop = round(100 / 360, 6), round(3400 / 360, 6)
    assert said(beats) == (
        "events",
        "assumed",
        start,
        stop,
        None,
        12,
        "by the numbers of samples",
    )
    assert of(data, "101").clocks[1].unit.origin == "stated"
    assert of(data, "100").windows == 11


def test_a_record_without_a_rate_has_the_assumed_one_of_the_format(
    tmp_path: Path,
) -> None:
    np.arange(1000, dtype="<i2").tofile(tmp_path / "r.dat")
    (tmp_path / "r.hea").write_text("r 1\nr.dat 16 200/mV\n")
    data = read(
        "mne_epochs",
        below(tmp_path),
        {
            "recordings": [{"file": "r.hea", "subject": "a"}],
            "window": {"start": 0.0, "duration": 1.0, "stride": 1.0},
            "preprocessing": {"units": "arbitrary"},
        },
    )
    assert str(data.clocks[0].clocks[0].rate) == "250.0 (assumed)"


def test_a_run_of_fmri_states_its_declared_repetition_time_and_the_windows_beyond_it(
    one: tuple[Path, dict[str, Any]],
) -> None:
    root, fields = one
    longer = {**fields, "window": {"start": 2.0, "duration": 8.0}, "beyond": "left_out"}
    data = test_fmri_windows.read(root, longer)
    (clocks,) = data.clocks
    assert data.assembly is not None
    assert clocks.recording == data.assembly["recording"].values[0]
    samples, stimuli = clocks.clocks
    assert said(samples) == (
        "samples",
        "declared",
        0.0,
        40.0,
        "0.5 (declared)",
        20,
        "the same clock",
    )
    assert said(stimuli) == (
        "stimuli",
        "stated",
        4.0,
        32.0,
        None,
        3,
        "from the first volume",
    )
    assert clocks.windows == 2
    assert clocks.left_out == (LeftOut(reason="beyond the ends", label="", windows=1),)


def test_a_block_design_states_the_runs_and_their_blocks(tmp_path: Path) -> None:
    files = test_nifti_blocks._files(tmp_path, *test_nifti_blocks._series())
    data = nifti_blocks(
        files, bold="bold.nii.gz", mask="mask.nii", labels="labels.txt", seconds=2.5
    )
    assert [item.recording for item in data.clocks] == ["run-00", "run-01"]
    samples, blocks = of(data, "run-01").clocks
    assert said(samples) == (
        "samples",
        "declared",
        0.0,
        15.0,
        "0.4 (declared)",
        6,
        "the same clock",
    )
    assert said(blocks) == (
        "stimuli",
        "declared",
        2.5,
        7.5,
        None,
        2,
        "by the numbers of volumes",
    )


def test_sessions_of_typing_state_their_gaps_and_keys(tmp_path: Path) -> None:
    write_table(tmp_path, [{"user": "7", "session": "s1"}])
    series = typing(14.0, 1)
    series["time"][14_000:] += 0.1
    attributes = {"user": "7", "keystrokes": keystrokes([(5.0, "a"), (9.5, "b")])}
    write_series(tmp_path / "s1.hdf5", "emg2qwerty", series, attributes)
    data = typing_sessions(
        below(tmp_path),
        window=WindowGrid(start=-0.9, duration=5.0, stride=4.0),
        core=4.0,
    )
    samples, keys = of(data, "s1").clocks
    assert (samples.of, str(samples.rate), samples.count) == (
        "samples",
        "2000.0 (declared)",
        28_000,
    )
    (gap,) = samples.gaps
    assert (gap.begin, gap.seconds) == (
        pytest.approx(7.0, abs=1e-5),
        pytest.approx(0.1, abs=1e-5),
    )
    assert said(keys)[:3] == ("events", "stated", pytest.approx(5.0, abs=1e-3))
    assert keys.count == 2


def test_recordings_of_hands_count_the_windows_without_angles(tmp_path: Path) -> None:
    row = pose_row("a", "u1", "train", "none")
    write_table(tmp_path, [row])
    write_pose(tmp_path, row, pose(5.25, 0, ((1.5, 1.6),)))
    data = hand_pose_sessions(
        below(tmp_path), window=WindowGrid(duration=1.0, stride=1.0)
    )
    (clocks,) = data.clocks
    assert (clocks.windows, clocks.subject) == (4, "u1")
    assert clocks.left_out == (
        LeftOut(reason="with missing samples", label="", windows=1),
    )
    assert data.notes == (
        "1 windows have missing samples and are left out: a (window 1)",
    )


def test_a_heard_story_states_that_its_words_are_numbers_of_samples(
    alice: Path,
) -> None:
    data = read("heard_words", test_heard_words.files(alice), test_heard_words.TOLD)
    first, third = data.clocks
    assert (first.subject, third.subject) == ("S01", "S03")
    samples, events = third.clocks
    assert (samples.rate, events.count) == (first.clocks[0].rate, 10)
    assert (events.aligned, events.unit.origin) == (
        "sample numbers in the table of trials",
        "stated",
    )


def test_words_that_were_read_have_the_clock_of_their_triggers(words: Path) -> None:
    data = read("read_words", test_read_words.files(words), test_read_words.TOLD)
    assert data.assembly is not None
    assert {item.recording for item in data.clocks} == set(
        data.assembly["recording"].values.tolist()
    )
    assert {item.clocks[1].aligned for item in data.clocks} == {"the same clock"}
    assert (
        sum(item.windows for item in data.clocks) == data.assembly.sizes["presentation"]
    )


def test_sentences_state_that_the_eye_tracker_was_aligned(zuco: Path) -> None:
    data = read(
        "read_sentences", test_read_sentences.files(zuco), test_read_sentences.TOLD
    )
    assert len(data.clocks) == 4
    aligned = {item.clocks[1].aligned for item in data.clocks}
    assert aligned == {
        "matched with the sentences of the eye tracker by a straight line"
    }


def test_no_window_of_a_sentence_crosses_a_joint(zuco: Path) -> None:
    fields = {
        **test_read_sentences.TOLD,
        "leave_out": [f"{test_read_sentences.TASK}/ZDN"],
    }
    before = read("read_sentences", test_read_sentences.files(zuco), fields)
    values = test_read_sentences.noise(20.0)
    first = test_read_sentences.FIRST
    eeg(
        zuco / "osfstorage",
        test_read_sentences.TASK,
        "ZAB",
        1,
        values,
        first,
        run="SNR",
        joints=(0.3, 7.0),
    )
    after = read("read_sentences", test_read_sentences.files(zuco), fields)
    assert before.assembly is not None
    assert after.assembly is not None
    onsets = before.assembly["onset"].values.tolist()
    assert 6.0 in onsets
    onsets.remove(6.0)
    assert after.assembly["onset"].values.tolist() == onsets
    (cut,) = (item for item in after.clocks if item.left_out)
    assert cut.left_out == (LeftOut(reason="across a gap", label="", windows=1),)


def test_clips_have_the_declared_rate_and_schedule(block: Path) -> None:
    data = scheduled_arrays(
        below(block),
        recordings=("EEG/sub{subject}.npy",),
        sampling_rate=200.0,
        positions="e.locs",
        schedule=test_video_arrays.SCHEDULE,
        window=Window(start=0.0, duration=2.0),
        events=test_video_arrays.EVENTS,
        preprocessing=Preprocessing(units="arbitrary"),
    )
    samples, events = data.clocks[0].clocks
    assert said(samples) == (
        "samples",
        "declared",
        0.0,
        520.0,
        "200.0 (declared)",
        104_000,
        "the same clock",
    )
    assert said(events) == (
        "events",
        "declared",
        3.0,
        518.0,
        None,
        200,
        "the declared schedule",
    )


def test_typing_states_how_the_log_was_aligned(
    repository: Path, tmp_path: Path
) -> None:
    spec = yaml.safe_load(
        (repository / "specs/datasets/Levy2026NoninvasiveEeg.yaml").read_text("utf-8")
    )
    session = Session(4, lost=3)
    brainvision(tmp_path / "a.vhdr", session)
    session.log(tmp_path / "log.mat")
    recording = {
        "file": "a.vhdr",
        "subject": "4",
        "session": "1",
        "run": "1",
        "log": "log.mat",
    }
    fields = {key: value for key, value in spec["reader"].items() if key != "name"}
    fields |= {"recordings": [recording], "practice": 0}
    data = read("logged_typing", below(tmp_path), fields)
    (clocks,) = data.clocks
    events = clocks.clocks[1]
    total = len(session.events)
    assert events.aligned.startswith(
        f"{total - 3} of {total} events of the log, by a straight line to their triggers, at most 0.00"
    )
    assert (clocks.recording, clocks.windows) == ("a.vhdr", events.count)
