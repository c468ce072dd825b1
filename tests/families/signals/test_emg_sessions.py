"""Published EMG layouts: windows, texts and angles match a plain computation, and invalid files are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.signal import decimate as scipy_decimate

from neuroledger.errors import DataError
from neuroledger.families.signals.emg.sessions import WindowGrid
from neuroledger.families.signals.readers.hand_pose_sessions import (
    Trajectory,
    hand_pose_sessions,
)
from neuroledger.families.signals.readers.typing_sessions import typing_sessions
from tests.families.signals.emg_files import (
    RATE,
    clock,
    keystrokes,
    noise,
    pose,
    pose_row,
    typing,
    write_pose,
    write_series,
    write_table,
    write_typing,
)

TYPED = WindowGrid(start=-0.9, duration=5.0, stride=4.0)
POSED = WindowGrid(duration=1.0, stride=1.0)
KEYS = [
    (3.9995, "q"),
    (4.0, "H"),
    (4.2, "i"),
    (4.5, "Key.space"),
    (5.0, "Key.shift"),
    (5.1, "Key.ctrl"),
    (6.0, "’"),
    (7.9995, "Key.backspace"),
    (8.0, "Key.enter"),
    (9.0, "\n"),
    (9.5, "é"),
    (13.9, "z"),
]


def below(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """Three sessions of two users, listed in another order, and one line whose session was not downloaded."""
    rows = [("s3", "0200"), ("s1", "0200"), ("s2", "0100"), ("s4", "0100")]
    write_table(
        tmp_path,
        [
            {"user": u, "session": s, "duration_mins": 1, "quality_check_tags": "[]"}
            for s, u in rows
        ],
    )
    for seed, (session, user) in enumerate(rows[:3]):
        write_typing(
            tmp_path,
            session,
            user,
            KEYS if session == "s1" else [(5.0, "a")],
            seed=seed,
        )
    return tmp_path


def test_typing_windows_contain_both_wrists(typed):
    windows = typing_sessions(below(typed), window=TYPED, core=4.0).assembly
    assert (
        windows.dims == ("presentation", "channel", "sample")
        and windows.dtype == np.float32
    )
    assert windows["recording"].values.tolist() == [
        "s2",
        "s2",
        "s1",
        "s1",
        "s3",
        "s3",
    ]  # by user, then session
    assert windows["subject"].values.tolist() == ["0100"] * 2 + ["0200"] * 4
    # Of 14 s: the window at 0 begins before the recording, that at 12 ends after it.
    assert windows["onset"].values.tolist() == [4.0, 8.0] * 3
    assert windows["channel_id"].values[[0, 15, 16, 31]].tolist() == [
        "emg0_left",
        "emg15_left",
        "emg0_right",
        "emg15_right",
    ]
    assert (
        set(windows["channel_type"].values.tolist()) == {"emg"}
        and windows.attrs["sampling_rate"] == RATE
    )
    series = typing(14.0, seed=1)
    both = np.concatenate([series["emg_left"], series["emg_right"]], axis=1)
    for row, onset in ((2, 4.0), (3, 8.0)):
        first = round((onset - 0.9) * RATE)
        np.testing.assert_array_equal(
            windows.values[row], both[first : first + 10_000].T
        )
    assert windows["time_bin_start"].values[0] == pytest.approx(-900.0)


def test_the_text_of_a_window_is_the_text_typed_in_its_core(typed):
    windows = typing_sessions(below(typed), window=TYPED, core=4.0).assembly
    # Control is no character, é none of the 98; a key at the end of the core belongs to the next window.
    assert windows["text"].values.tolist() == ["a", "", "Hi ⇧'⌫", "⏎⏎", "a", ""]
    shorter = typing_sessions(below(typed), window=TYPED, core=0.5).assembly
    assert shorter["text"].values.tolist()[2:4] == ["Hi", "⏎"]


def test_only_the_selected_first_sessions_must_be_readable(typed):
    (typed / "s3.hdf5").write_bytes(b"not read")
    windows = typing_sessions(below(typed), window=TYPED, core=4.0, first=2).assembly
    assert sorted(set(windows["recording"].values.tolist())) == ["s1", "s2"]
    with pytest.raises(DataError, match=r"s3\.hdf5 cannot be read as HDF5"):
        typing_sessions(below(typed), window=TYPED, core=4.0)


def test_decimated_windows_equal_windows_of_the_filtered_recording(typed):
    windows = typing_sessions(below(typed), window=TYPED, core=4.0, decimate=8).assembly
    assert windows.shape == (6, 32, 1250) and windows.attrs["sampling_rate"] == 250.0
    expected = scipy_decimate(typing(14.0, seed=1)["emg_left"], 8, ftype="fir", axis=0)
    np.testing.assert_allclose(
        windows.values[2, :16], expected[775 : 775 + 1250].T, rtol=1e-5, atol=1e-6
    )
    assert windows["text"].values.tolist() == ["a", "", "Hi ⇧'⌫", "⏎⏎", "a", ""]
    with pytest.raises(
        DataError,
        match=r"`start` is -0\.9 s, which is not a whole number of samples at 15\.625 Hz",
    ):
        typing_sessions(below(typed), window=TYPED, core=4.0, decimate=128)


def test_insufficient_disk_space_is_reported_after_the_first_session(
    typed, monkeypatch
):
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 100
    )
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5_000_000))
    with pytest.raises(
        DataError,
        match=r"need about .* GiB more in .*, but 0\.0 GiB are free: free space",
    ):
        typing_sessions(below(typed), window=TYPED, core=4.0)
    assert not list(typed.rglob("values.bin"))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"user": "0100"}, r"no attribute 'keystrokes'; it has user"),
        (
            {"user": "0100", "keystrokes": "[{]"},
            r"not a JSON list of keys with 'key' and 'start'",
        ),
        (
            {"user": "0100", "keystrokes": '[{"key": "a"}]'},
            r"not a JSON list of keys .*start",
        ),
        ({"user": "0100", "keystrokes": "[]"}, r"no key was typed"),
        (
            {"user": "0300", "keystrokes": keystrokes([(5, "a")])},
            r"states user '0300', but the table states '0100'",
        ),
    ],
)
def test_sessions_without_keys_or_of_another_user_are_refused(
    typed, attributes, message
):
    write_series(typed / "s2.hdf5", "emg2qwerty", typing(14.0, 3), attributes)
    with pytest.raises(DataError, match=rf"s2\.hdf5.*{message}"):
        typing_sessions(below(typed), window=TYPED, core=4.0)


BACK = clock(28_000)
BACK[700] = BACK[698]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"emg_left": None},
            r"timeseries has no field 'emg_left'; it has emg_right, time",
        ),
        ({"time": None}, r"has no field 'time'"),
        (
            {"emg_left": noise(28_000, 8, 1)},
            r"'emg_left' has the shape \(8,\) per sample, not \(16,\)",
        ),
        (
            {"emg_left": np.full((28_000, 16), np.nan, np.float32)},
            r"'emg_left' has values that are not numbers",
        ),
        ({"time": BACK}, r"time decreases after sample 699"),
        (
            {"time": 2 * clock(28_000)},
            r"28000 samples in 27\.999 s are not 2000 per second",
        ),
    ],
)
def test_series_with_another_layout_are_refused(typed, changes, message):
    attributes = {"user": "0100", "keystrokes": keystrokes([(5, "a")])}
    write_series(
        typed / "s2.hdf5", "emg2qwerty", typing(14.0, 3, **changes), attributes
    )
    with pytest.raises(DataError, match=rf"s2\.hdf5.*{message}"):
        typing_sessions(below(typed), window=TYPED, core=4.0)


def test_a_truncated_download_and_a_file_of_the_other_data_set_are_refused(typed):
    whole = (typed / "s2.hdf5").read_bytes()
    (typed / "s2.hdf5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        DataError,
        match=r"s2\.hdf5 cannot be read as HDF5 .*it is damaged or incomplete",
    ):
        typing_sessions(below(typed), window=TYPED, core=4.0)
    write_series(typed / "s2.hdf5", "emg2pose", pose(14.0, 1), {"user": "0100"})
    with pytest.raises(
        DataError,
        match=r"s2\.hdf5 has no compound data set emg2qwerty/timeseries; it has emg2pose",
    ):
        typing_sessions(below(typed), window=TYPED, core=4.0)


def test_tables_that_do_not_list_the_sessions_are_refused(typed):
    files = below(typed)
    table = files["metadata.csv"]
    with pytest.raises(DataError, match=r"there are 0 tables and 3 recordings"):
        typing_sessions(
            {k: v for k, v in files.items() if k != "metadata.csv"},
            window=TYPED,
            core=4.0,
        )
    with pytest.raises(DataError, match=r"there are 1 tables and 0 recordings"):
        typing_sessions({"metadata.csv": table}, window=TYPED, core=4.0)
    table.write_text("user,session\n0200,s1\n0200,s3\n")
    with pytest.raises(
        DataError, match=r"has no line for 1 recordings, first s2\.hdf5"
    ):
        typing_sessions(files, window=TYPED, core=4.0)
    table.write_text("user,session\n0200,s1\n0200,s1\n")
    with pytest.raises(DataError, match=r"line 3: 's1' is listed twice"):
        typing_sessions(files, window=TYPED, core=4.0)
    table.write_text("session,user\n0200,s1\ns3\n")
    with pytest.raises(DataError, match=r"line 3: 1 fields where the header has"):
        typing_sessions(files, window=TYPED, core=4.0)
    table.write_text("user,name\n0200,s1\n")
    with pytest.raises(
        DataError, match=r"metadata\.csv has no column session; it has user, name"
    ):
        typing_sessions(files, window=TYPED, core=4.0)


POSES = [
    pose_row("2022-04-07-a@1-recording-1_left", "u1", "train", "none"),
    pose_row("2022-04-07-b@1-recording-1_left", "u2", "val", "user"),
    pose_row("2022-04-07-c@1-recording-1_left", "u3", "test", "user_stage", "Claws"),
    pose_row("2022-04-07-d@1-recording-1_left", "u1", "test", "stage", "Claws"),
    pose_row("2022-04-07-e@1-recording-1_left", "u1", "train", "none"),
]


@pytest.fixture
def posed(tmp_path: Path) -> Path:
    """Five recordings of three users; one has failures from 1.5 to 1.6 s and at 4.9995 s, one is short."""
    write_table(tmp_path, POSES)
    for seed, row in enumerate(POSES):
        failed = ((1.5, 1.6), (4.9995, 5.0)) if seed == 0 else ()
        write_pose(tmp_path, row, pose(1.5 if seed == 4 else 5.25, seed, failed))
    return tmp_path


def test_pose_windows_contain_no_failed_angles(posed):
    files = {
        name.replace("@", "_"): path for name, path in below(posed).items()
    }  # as they are called when pinned
    windows = hand_pose_sessions(files, window=POSED).assembly
    assert (
        windows.shape == (3 + 5 + 5 + 5 + 1, 16, 2000) and windows.dtype == np.float32
    )
    first = windows.isel(presentation=slice(0, 3))
    assert first["onset"].values.tolist() == [0.0, 2.0, 3.0]
    series = pose(5.25, 0, ((1.5, 1.6), (4.9995, 5.0)))
    for row, onset in enumerate((0, 2, 3)):
        rows = slice(onset * RATE, (onset + 1) * RATE)
        np.testing.assert_array_equal(first.values[row], series["emg"][rows].T)
        for joint in (1, 20):
            expected = series["joint_angles"][rows, joint - 1].astype(float).mean()
            assert first[f"joint_{joint}"].values[row] == pytest.approx(
                expected, rel=1e-6
            )
    last = hand_pose_sessions(files, window=POSED, angle="last").assembly
    assert last["joint_7"].values[2] == series["joint_angles"][4 * RATE - 1, 6]
    assert (
        first["subject"].values.tolist() == ["u1"] * 3
        and first["split"].values.tolist() == ["train"] * 3
    )
    assert set(windows["generalization"].values.tolist()) == {
        "none",
        "user",
        "user_stage",
        "stage",
    }


def test_recordings_are_selected_by_generalization_and_minimum_length(posed):
    windows = hand_pose_sessions(
        below(posed),
        window=POSED,
        generalization={"test": ("user_stage",)},
        shortest=2.0,
    ).assembly
    assert windows.sizes["presentation"] == 3 + 5 + 5
    assert set(
        windows["subject"].values[windows["split"].values == "test"].tolist()
    ) == {"u3"}
    with pytest.raises(
        DataError,
        match=r"no recording of the split 'test' has the generalization users; they have",
    ):
        hand_pose_sessions(
            below(posed), window=POSED, generalization={"test": ("users",)}
        )
    with pytest.raises(
        DataError, match=r"`generalization` names the unknown split 'tests'"
    ):
        hand_pose_sessions(
            below(posed), window=POSED, generalization={"tests": ("user",)}
        )


@pytest.mark.parametrize("decimate", [1, 20])
def test_trajectories_cover_the_ends_of_windows(posed, decimate):
    windows = hand_pose_sessions(
        below(posed),
        window=POSED,
        trajectory=Trajectory(every=40, last=0.6),
        decimate=decimate,
    )
    paths = windows.extras["trajectory"]
    assert paths.shape == (19, 20, 30) and paths.dtype == np.float32
    assert paths.attrs["sampling_rate"] == 50 and paths.attrs["units"] == "rad"
    for fact in ("stimulus_id", "subject", "split", "onset"):
        assert paths[fact].values.tolist() == windows.assembly[fact].values.tolist()
    series = pose(5.25, 0, ((1.5, 1.6), (4.9995, 5.0)))
    for row, onset in enumerate((0, 2, 3)):
        rows = slice(round((onset + 0.4) * RATE), (onset + 1) * RATE, 40)
        np.testing.assert_array_equal(paths.values[row], series["joint_angles"][rows].T)
    np.testing.assert_allclose(paths["time_bin_start"].values[[0, -1]], [400.0, 980.0])
    plain = hand_pose_sessions(below(posed), window=POSED, decimate=decimate)
    np.testing.assert_array_equal(plain.assembly.values, windows.assembly.values)
    assert not plain.extras


def test_large_windows_and_trajectories_have_separate_store_entries(
    posed, tmp_path, monkeypatch
):
    files = below(posed)
    options = {"window": POSED, "trajectory": Trajectory(every=8, last=1.0)}
    small = hand_pose_sessions(files, **options)
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 1000
    )
    first = hand_pose_sessions(files, **options)
    assert len(list(tmp_path.glob(".cache/neuroledger/windows/??/*/values.bin"))) == 2
    monkeypatch.setattr(
        "neuroledger.families.signals.readers.hand_pose_sessions.read_series", None
    )  # nothing is read again
    again = hand_pose_sessions(files, **options)
    for one in (first, again):
        np.testing.assert_array_equal(one.assembly.values, small.assembly.values)
        np.testing.assert_array_equal(
            one.extras["trajectory"].values, small.extras["trajectory"].values
        )


@pytest.mark.parametrize(
    "trajectory", [Trajectory(every=40, last=1.1), Trajectory(every=7, last=0.5)]
)
def test_trajectories_must_have_whole_steps_within_a_window(posed, trajectory):
    with pytest.raises(
        DataError,
        match=r"`trajectory` has .* choose whole steps, and at most the length of a window",
    ):
        hand_pose_sessions(below(posed), window=POSED, trajectory=trajectory)


def test_decimated_poses_have_the_angles_of_all_samples(posed):
    windows = hand_pose_sessions(below(posed), window=POSED, decimate=20).assembly
    plain = hand_pose_sessions(below(posed), window=POSED).assembly
    assert windows.shape == (19, 16, 100)
    np.testing.assert_allclose(windows["joint_3"].values, plain["joint_3"].values)
    expected = scipy_decimate(pose(5.25, 1)["emg"], 20, ftype="fir", axis=0)
    np.testing.assert_allclose(
        windows.values[3 + 1], expected[100:200].T, rtol=1e-5, atol=1e-6
    )


def test_unknown_splits_and_recordings_without_windows_are_refused(posed):
    write_table(posed, [POSES[0] | {"split": "holdout"}, *POSES[1:]])
    with pytest.raises(
        DataError,
        match=r"a@1-recording-1_left\.hdf5 the unknown split 'holdout'; known are train",
    ):
        hand_pose_sessions(below(posed), window=POSED)
    write_table(posed, POSES)
    with pytest.raises(
        DataError, match=r"none of 5 recordings has a window of 6 s without a failure"
    ):
        hand_pose_sessions(below(posed), window=WindowGrid(duration=6.0, stride=1.0))
    write_pose(posed, POSES[0], pose(5.25, 0, joint_angles=None))
    with pytest.raises(
        DataError, match=r"timeseries has no field 'joint_angles'; it has time, emg"
    ):
        hand_pose_sessions(below(posed), window=POSED)
    lines = [
        {key: value for key, value in row.items() if key != "stage"} for row in POSES
    ]
    write_table(posed, lines)
    with pytest.raises(
        DataError, match=r"metadata\.csv has no column stage; it has session, user"
    ):
        hand_pose_sessions(below(posed), window=POSED)
