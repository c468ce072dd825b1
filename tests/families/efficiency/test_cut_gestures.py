"""Pre-segmented gestures are counted like those of whole recordings."""

from __future__ import annotations

import io

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.event_frames import Grid
from neuroledger.families.efficiency.readers.aedat_gestures import aedat_gestures
from neuroledger.families.efficiency.readers.cut_gestures import cut_gestures
from tests.families.signals.recorded_files import aedat, labels, tar_gz

GRID = Grid(width=128, height=128, pool=32, bins=5)


def events(seed: int) -> np.ndarray:
    """(event, 4): column, row, polarity, ms."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, (128, 128, 2), (500, 3))
    return np.column_stack([places, np.sort(rng.integers(0, 900, 500))])


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


MEMBERS = {
    "train": {
        f"ibmGestureTrain/user01_lab/{k}.npy": npy(events(k).astype(float))
        for k in (0, 10)
    },
    "test": {
        "ibmGestureTest/user24_fluorescent_led/3.npy": npy(events(7).astype(np.float32))
    },
}


def packed(folder, **changed):
    files = {}
    for part, members in {**MEMBERS, **changed}.items():
        name = f"ibmGesture{part.title()}.tar.gz"
        tar_gz(folder / name, members)
        files[name] = folder / name
    return files


def test_counts_are_those_of_the_same_events_in_a_recording(tmp_path):
    assembly = cut_gestures(packed(tmp_path), grid=GRID, denoise=200.0).assembly
    assert assembly["label"].values.tolist() == [
        "hand_clapping",
        "other_gestures",
        "right_arm_clockwise",
    ]
    assert assembly["split"].values.tolist() == ["train", "train", "test"]
    assert assembly["subject"].values.tolist() == ["user01", "user01", "user24"]
    assert assembly["lighting"].values[2] == "fluorescent_led"
    assert len(set(assembly["stimulus_id"].values.tolist())) == 3
    for row, seed in enumerate((0, 10, 7)):
        some = [(int(t) * 1000, int(x), int(y), int(p)) for x, y, p, t in events(seed)]
        (tmp_path / "user01_lab.aedat").write_bytes(aedat(some))
        (tmp_path / "user01_lab_labels.csv").write_text(
            labels([(1, 0, some[-1][0] + 1)])
        )
        (tmp_path / "trials_to_train.txt").write_text("user01_lab.aedat")
        (tmp_path / "trials_to_test.txt").write_text("")
        whole = {path.name: path for path in tmp_path.iterdir() if path.suffix != ".gz"}
        np.testing.assert_array_equal(
            assembly.values[row],
            aedat_gestures(whole, grid=GRID, denoise=200.0).assembly.values[0],
        )
    assert (
        cut_gestures(packed(tmp_path), grid=GRID, width=100.0)
        .assembly["time_bin_end"]
        .values[0]
        == 100
    )


GOOD = events(0).astype(float)
PLACE = "ibmGestureTest/user24_lab/3.npy"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({PLACE: npy(GOOD)[:-9]}, "user24_lab/3.npy cannot be read as a NumPy array"),
        ({PLACE: npy(GOOD[:, :3])}, r"is \(500, 3\) float64, not numbers \(event, 4\)"),
        ({PLACE: npy(GOOD[:0])}, r"is \(0, 4\) float64"),
        ({PLACE: npy(GOOD + [100, 0, 0, 0])}, "event outside of 128 x 128 pixels"),
        (
            {"ibmGestureTest/user24_lab/11.npy": npy(GOOD)},
            "is of class 11; classes are 0 to 10",
        ),
        (
            {"ibmGestureTest/user01_led/1.npy": npy(GOOD)},
            "user01 is both in part 'train' and in part 'test'",
        ),
    ],
)
def test_damaged_archives_are_refused_by_name(tmp_path, members, words):
    with pytest.raises(DataError, match=words):
        cut_gestures(packed(tmp_path, test=members), grid=GRID)


def test_missing_and_empty_archives_are_refused_by_name(tmp_path):
    files = packed(tmp_path)
    with pytest.raises(
        DataError,
        match=r"ibmGestureTest.tar.gz, the archive of part 'test', is not among the files",
    ):
        cut_gestures(
            {name: path for name, path in files.items() if "Train" in name}, grid=GRID
        )
    other = packed(tmp_path, train={"a.txt": b"x"}, test={"b.txt": b"y"})
    with pytest.raises(DataError, match=r"contain no array userNN_LIGHT/K\.npy"):
        cut_gestures(other, grid=GRID)
