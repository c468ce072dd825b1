"""Scenes of an event camera: stored histograms and events, boxes by the rules of the automotive sets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from neuroledger.errors import DataError, LimitError
from neuroledger.families.efficiency.events.event_frames import BoxRules
from neuroledger.families.efficiency.readers.event_histograms import event_histograms
from tests.families.signals.recorded_files import boxes, dat, tensor

RNG = np.random.default_rng(2)
# Frames of 2 channels, 18 rows, 32 columns, of a camera twice as wide and high.
SHAPE = (2, 18, 32)
FRAMES = {k: RNG.integers(0, 256, SHAPE).astype(np.uint8) for k in (10, 11, 12, 20)}
RULES = BoxRules(diagonal=6, side=2)
# µs, x, y, w, h, class, track: in pixels of the camera, 64 x 36.
ROWS = [
    (400_000, 4, 4, 20, 10, 0, 1),  # in the first 0.5 s
    (560_000, 4, 4, 20, 10, 0, 1),  # frame 11, and again later in it
    (590_000, 8, 4, 20, 10, 0, 1),
    (600_000, 40, 20, 40, 30, 2, 2),  # frame 11, cut off at the edges
    (605_000, 4, 4, 3, 3, 1, 3),  # frame 12: too small
    (1_050_000, 10, 10, 20, 20, 1, 4),  # frame 20
    (1_050_000, 10, 10, 20, 20, 5, 5),  # a traffic sign
    (1_050_000, 0, 0, 60, 20, 2, 6),  # too wide
    (1_050_000, 70, 0, 20, 20, 2, 7),  # outside of the picture
]


@pytest.fixture
def files(tmp_path):
    paths = {}
    for part in ("train", "val", "test"):
        (tmp_path / part).mkdir()
        name = f"{part}/moorea_{part}_01_000_0_60000000"
        tensor(tmp_path / f"{name}.h5", FRAMES, 30, camera=(64, 36))
        (tmp_path / f"{name}_bbox.npy").write_bytes(boxes(ROWS, old=part == "val"))
        paths |= {
            f"{name}{end}": tmp_path / f"{name}{end}" for end in (".h5", "_bbox.npy")
        }
    return paths


def one(files, part="train"):
    return {name: path for name, path in files.items() if name.startswith(part)}


def test_labelled_frames_are_read_with_the_boxes_that_count(files):
    assembly = event_histograms(files, boxes=RULES).assembly
    assert assembly.shape == (9, 2 * 18 * 32, 1) and assembly.dtype == np.uint8
    assert assembly.attrs["full_scale"] == 255
    assert (
        assembly["split"].values.tolist()
        == ["test"] * 3 + ["train"] * 3 + ["validation"] * 3
    )
    assert assembly["session"].values[0] == "moorea_test_01_000"
    assert assembly["stimulus_id"].values[:3].tolist() == [
        f"moorea_test_01_000_0_60000000_{k:05d}" for k in (11, 12, 20)
    ]
    for row, k in enumerate((11, 12, 20)):
        np.testing.assert_array_equal(assembly.values[row, :, 0], FRAMES[k].ravel())
    assert [json.loads(text) for text in assembly["boxes"].values[:3]] == [
        [["pedestrian", 4.0, 2.0, 14.0, 7.0], ["car", 20.0, 10.0, 32.0, 18.0]],
        [],
        [["two wheeler", 5.0, 5.0, 15.0, 15.0]],
    ]


def test_previous_frames_pooling_and_the_selection_of_frames(files):
    assembly = event_histograms(
        one(files), boxes=RULES, bins=3, pool=2, every=2
    ).assembly
    assert assembly.sizes == {"presentation": 2, "neuroid": 2 * 9 * 16, "time_bin": 3}
    expected = np.round(
        FRAMES[11].reshape(2, 9, 2, 16, 2).mean(axis=(2, 4), dtype=np.float32)
    ).ravel()
    np.testing.assert_array_equal(assembly.values[0, :, 1], expected)
    assert assembly["time_bin_end"].values.tolist() == [-100, -50, 0]
    assert json.loads(assembly["boxes"].values[1]) == [
        ["two wheeler", 2.5, 2.5, 7.5, 7.5]
    ]


def test_frames_before_the_start_are_zeros(files):
    assembly = event_histograms(one(files), boxes=RULES, bins=14).assembly
    assert not assembly.values[0, :, :12].any()
    np.testing.assert_array_equal(
        assembly.values[0, :, 12:],
        np.stack([FRAMES[10].ravel(), FRAMES[11].ravel()], 1),
    )


def test_shares_are_stored_as_integers(files, tmp_path):
    shares = {
        11: RNG.random(SHAPE).astype(np.float16),
        20: np.full(SHAPE, 2.0, np.float16),
    }
    name = next(name for name in one(files) if name.endswith(".h5"))
    tensor(files[name], shares, 30, camera=(64, 36))
    assembly = event_histograms(one(files), boxes=RULES).assembly
    np.testing.assert_allclose(
        assembly.values[0, :, 0] / 255, shares[11].ravel(), atol=0.003
    )
    assert (assembly.values[2] == 255).all()


def test_events_are_counted_like_histograms(tmp_path):
    count = 6000
    times = np.sort(RNG.integers(0, 1_500_000, count))
    places = RNG.integers(0, (64, 36, 2), (count, 3))
    some = [(int(t), *map(int, place)) for t, place in zip(times, places, strict=True)]
    (tmp_path / "a_td.dat").write_bytes(dat(some, 64, 36))
    (tmp_path / "a_bbox.npy").write_bytes(boxes(ROWS))
    files = {f"test/{name}": tmp_path / name for name in ("a_td.dat", "a_bbox.npy")}
    assembly = event_histograms(files, stored="dat", boxes=RULES, most=1).assembly
    expected = np.zeros(SHAPE)
    for t, x, y, p in some:
        if t // 50_000 == 11:
            expected[p, y // 2, x // 2] += 1
    np.testing.assert_array_equal(
        assembly.values[0, :, 0], np.round(np.minimum(expected / 4, 1) * 255).ravel()
    )
    stripped = b"".join(
        line
        for line in dat(some, 64, 36).splitlines(keepends=True)
        if not line.startswith((b"% Wid", b"% Hei"))
    )
    (tmp_path / "a_td.dat").write_bytes(stripped)
    declared = event_histograms(
        files, stored="dat", boxes=RULES, most=1, camera=(64, 36)
    ).assembly
    np.testing.assert_array_equal(declared.values, assembly.values)
    (tmp_path / "a_td.dat").write_bytes(dat(some, 64, 36))
    with pytest.raises(
        DataError, match="a camera of 64 x 36 pixels, but `camera` declares"
    ):
        event_histograms(files, stored="dat", boxes=RULES, camera=(640, 360))
    at = next(number for number, event in enumerate(some) if event[0] // 50_000 == 11)
    some[at] = (some[at][0], 64, 0, 1)
    (tmp_path / "a_td.dat").write_bytes(dat(some, 64, 36))
    with pytest.raises(DataError, match="outside of 64 x 36 pixels: column 64, row 0"):
        event_histograms(files, stored="dat", boxes=RULES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (dat([(5, 1, 1, 1)], 64, 36)[:-3], "ends within an event"),
        (dat([], 64, 36), "ends within an event, or has none"),
        (
            b"% Data\n% Version 2\n\x0c\x08" + bytes(8),
            "does not state the width and height of its camera",
        ),
        (b"no header", "is not a DAT file"),
        (b"% Width 64\n% Height 36\n\x0c\x10" + bytes(16), "is not a DAT file: "),
        (
            b"% Version 1\n% Width 64\n% Height 36\n\x0c\x08" + bytes(8),
            "of version 1; only version 2",
        ),
        (
            b"% Width 64\n% Height 99999999\n\x0c\x08" + bytes(8),
            "states a camera of 64 x 99999999 pixels",
        ),
        (
            b"% Width 0\n% Height 36\n\x0c\x08" + bytes(8),
            "states a camera of 0 x 36 pixels",
        ),
        (
            dat(
                [(5, 1, 1, 1), (900_000, 1, 1, 1), (6, 1, 1, 1), (999_000, 1, 1, 1)],
                64,
                36,
            ),
            "order of time",
        ),
    ],
)
def test_damaged_event_files_are_refused_by_name(tmp_path, content, words):
    (tmp_path / "a_td.dat").write_bytes(content)
    (tmp_path / "a_bbox.npy").write_bytes(boxes(ROWS))
    with pytest.raises(DataError, match=words):
        event_histograms(
            {f"test/{n}": tmp_path / n for n in ("a_td.dat", "a_bbox.npy")},
            stored="dat",
        )


def late(path):
    path.write_bytes(boxes([(60_000_000, 1, 1, 30, 30, 0, 1)]))


@pytest.mark.parametrize(
    ("ending", "harm", "words"),
    [
        (
            ".h5",
            lambda path: path.write_bytes(path.read_bytes()[:900]),
            "cannot be read as HDF5",
        ),
        (".h5", lambda path: path.write_bytes(b"no"), "cannot be read as HDF5"),
        (
            ".h5",
            lambda path: tensor(path, FRAMES, 30, delta=10_000),
            "has frames of 10 ms, not 50 ms",
        ),
        (
            ".h5",
            lambda path: tensor(path, {0: np.zeros((1, 9, 16), np.uint8)}, 30),
            r"\[\(1, 9, 16\), \(2, 18, 32\)\]",
        ),
        (
            ".h5",
            lambda path: tensor(path, {0: np.zeros(5, np.uint8)}, 30),
            "`data` has 2 dimensions",
        ),
        (
            "_bbox.npy",
            lambda path: path.write_bytes(path.read_bytes()[:150]),
            "cannot be read as an array of boxes",
        ),
        (
            "_bbox.npy",
            lambda path: np.save(path, np.zeros((3, 4))),
            "missing fields t, x, y, w, h, class_id, track_id",
        ),
        (
            "_bbox.npy",
            lambda path: path.write_bytes(boxes([(1, 1, 1, 1, 1, 9, 1)])),
            "boxes of class 9; classes are 0 to 6",
        ),
        (
            "_bbox.npy",
            lambda path: path.write_bytes(boxes([(1, np.nan, 1, 1, 1, 0, 1)])),
            "with coordinates that are not finite",
        ),
        ("_bbox.npy", late, "has boxes until 60 s, but train/.* ends at 1.5 s"),
    ],
)
def test_damaged_files_are_refused_by_name(files, ending, harm, words):
    harm(
        next(
            path
            for name, path in files.items()
            if name.startswith("train") and name.endswith(ending)
        )
    )
    with pytest.raises(DataError, match=words):
        event_histograms(files, boxes=RULES)


def test_missing_box_files_parts_and_labels_are_refused(files, monkeypatch):
    lost = {
        name: path
        for name, path in files.items()
        if not (name.startswith("test") and name.endswith("npy"))
    }
    with pytest.raises(
        DataError,
        match=r"has no boxes: test/moorea_test_01_000_0_60000000_bbox.npy is not among",
    ):
        event_histograms(lost, boxes=RULES)
    known = event_histograms(
        lost, boxes=RULES, unlabelled=("moorea_test_01_000_0_60000000",)
    ).assembly
    assert set(known["split"].values.tolist()) == {"train", "validation"}
    with pytest.raises(
        DataError, match="the folder 'val', which is not one of the parts train, test"
    ):
        event_histograms(files, boxes=RULES, parts={"train": "train", "test": "test"})
    with pytest.raises(DataError, match=r"none of the files ends in _td\.dat"):
        event_histograms(files, stored="dat")
    with pytest.raises(DataError, match="'bike' is not one of the labels"):
        event_histograms(files, boxes=BoxRules(classes=("bike",)))
    with pytest.raises(DataError, match="no selected frame is labelled"):
        event_histograms(files, boxes=BoxRules(skip=1400))
    monkeypatch.setattr("neuroledger.data.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        LimitError,
        match=r"9 presentations of 1,152 pixels in 1 frames needs about .* raise `every`",
    ):
        event_histograms(files, boxes=RULES)
