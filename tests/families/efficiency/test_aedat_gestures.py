"""Gestures of an event camera: recordings written byte by byte, with counts compared with plain loops."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.aedat import polarity_events
from neuroledger.families.efficiency.events.event_frames import Events, Grid, denoised
from neuroledger.families.efficiency.readers.aedat_gestures import aedat_gestures
from tests.families.signals.recorded_files import aedat, labels, tar_gz

GRID = Grid(width=128, height=128, pool=32, bins=5)
# The clock is past 2³¹ µs, so that packets count an overflow.
START = 2**31 - 400_000


def events(seed: int, count: int = 900) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(seed)
    times = START + np.sort(rng.integers(0, 1_000_000, count))
    places = rng.integers(0, 128, (count, 2))
    return [
        (int(t), int(x), int(y), int(p))
        for t, (x, y), p in zip(times, places, rng.integers(0, 2, count), strict=True)
    ]


ROWS = [
    (1, START + 1000, START + 300_000),
    (8, START + 300_000, START + 600_000),
    (8, START + 610_000, START + 950_000),
]
NAMES = ["user01_lab", "user02_fluorescent_led", "user24_natural"]


def written(folder):
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(NAMES):
        (folder / f"{name}.aedat").write_bytes(
            aedat(events(number), together=37 * (number + 1), spare=number)
        )
        (folder / f"{name}_labels.csv").write_text(labels(ROWS))
    (folder / "trials_to_train.txt").write_text(
        "user01_lab.aedat\r\nuser02_fluorescent_led.aedat\r\n"
    )
    (folder / "trials_to_test.txt").write_text("user24_natural.aedat\n\n")
    (folder / "gesture_mapping.csv").write_text("action,label\nhand_clapping,1\n")
    return {path.name: path for path in sorted(folder.iterdir())}


@pytest.fixture
def files(tmp_path):
    return written(tmp_path / "made")


def counted(some, start, end, bins, pool, width=None):
    """Count by a plain loop: (polarity, row, column, bin)."""
    own = [event for event in some if start <= event[0] < end]
    if width is None:
        start, width = own[0][0], (own[-1][0] - own[0][0]) // bins
    side = 128 // pool
    out = np.zeros((2, side, side, bins), dtype=int)
    for t, x, y, p in own:
        if (t - start) // width < bins:
            out[p, y // pool, x // pool, (t - start) // width] += 1
    return out.reshape(-1, bins)


def test_every_gesture_has_its_events(files):
    assembly = aedat_gestures(files, grid=GRID).assembly
    assert assembly.shape == (9, 32, 5) and assembly.dtype == np.uint16
    for number in range(3):
        for row, (_, start, end) in enumerate(ROWS):
            expected = counted(events(number), start, end, 5, 32)
            np.testing.assert_array_equal(assembly.values[3 * number + row], expected)
    assert assembly["label"].values[:3].tolist() == [
        "hand_clapping",
        "arm_roll",
        "arm_roll",
    ]
    assert assembly["split"].values.tolist() == ["train"] * 6 + ["test"] * 3
    assert (
        assembly["subject"].values.tolist()
        == ["user01"] * 3 + ["user02"] * 3 + ["user24"] * 3
    )
    assert assembly["lighting"].values[3] == "fluorescent_led"
    assert assembly["duration"].values[0] == 299.0
    assert (assembly["polarity"].values[0], assembly["polarity"].values[16]) == (
        "off",
        "on",
    )
    assert (assembly["x"].values[17], assembly["y"].values[17]) == (1, 0)


def test_the_archive_is_read_without_unpacking(files, tmp_path):
    tar_gz(
        tmp_path / "DvsGesture.tar.gz",
        {name: path.read_bytes() for name, path in reversed(files.items())},
    )
    from_archive = aedat_gestures(
        {"DvsGesture.tar.gz": tmp_path / "DvsGesture.tar.gz"}, grid=GRID
    ).assembly
    assert from_archive.identical(aedat_gestures(files, grid=GRID).assembly)


def test_bins_of_one_width_one_channel_and_presence(files):
    assembly = aedat_gestures(files, grid=GRID, width=40.0).assembly
    expected = counted(events(0), ROWS[0][1], ROWS[0][2], 5, 32, width=40_000)
    np.testing.assert_array_equal(assembly.values[0], expected)
    assert assembly["time_bin_start"].values.tolist() == [0, 40, 80, 120, 160]
    merged = aedat_gestures(
        files, grid=GRID.model_copy(update={"polarity": "merged"}), width=40.0
    ).assembly
    np.testing.assert_array_equal(merged.values[0], expected[:16] + expected[16:])
    binary = aedat_gestures(
        files, grid=GRID.model_copy(update={"values": "binary"}), width=40.0
    ).assembly
    np.testing.assert_array_equal(binary.values[0], expected > 0)
    assert binary.dtype == np.uint8


def test_repeated_gestures_can_be_reduced_to_one_per_label(files):
    first = aedat_gestures(files, grid=GRID, repeated="first").assembly
    last = aedat_gestures(files, grid=GRID, repeated="last").assembly
    every = aedat_gestures(files, grid=GRID).assembly
    assert first.sizes["presentation"] == last.sizes["presentation"] == 6
    np.testing.assert_array_equal(first.values[1], every.values[1])
    np.testing.assert_array_equal(last.values[1], every.values[2])


def test_events_without_a_neighbour_are_removed_as_noise():
    rng = np.random.default_rng(1)
    t = np.sort(rng.integers(0, 5000, 400))
    x, y = rng.integers(0, 12, (2, 400))
    noisy = Events(t, x, y, rng.integers(0, 2, 400).astype(bool))
    last = np.full((14, 14), -(10**9))
    selected = []
    for k in range(400):
        a, b = x[k] + 1, y[k] + 1
        around = (last[a - 1, b], last[a + 1, b], last[a, b - 1], last[a, b + 1])
        selected.append(any(t[k] - before < 300 for before in around))
        last[a, b] = t[k]
    kept_events = denoised(noisy, 300, 12)
    np.testing.assert_array_equal(kept_events.t, t[selected])
    np.testing.assert_array_equal(kept_events.x, x[selected])
    np.testing.assert_array_equal(kept_events.y, y[selected])
    assert 50 < len(kept_events.t) < 350


def test_counts_equal_those_of_neurobenchs_library(repository, tmp_path):
    golden = json.loads(
        (repository / "tests" / "golden" / "gesture_counts.json").read_text(
            encoding="utf-8"
        )
    )
    k = np.arange(6000)
    times = np.sort(80_000_000 + k * 7919 % 1_000_003)
    columns = (
        times,
        50 + (k * k * 31 + k * 17) % 23,
        60 + (k * k * 13 + k * 5) % 19,
        k * 5 // 3 % 2,
    )
    some = [tuple(map(int, event)) for event in zip(*columns, strict=True)]
    (tmp_path / "user01_lab.aedat").write_bytes(aedat(some))
    (tmp_path / "user01_lab_labels.csv").write_text(
        labels([(4, some[0][0], some[-1][0] + 1)])
    )
    (tmp_path / "trials_to_train.txt").write_text("user01_lab.aedat\n")
    (tmp_path / "trials_to_test.txt").write_text("")
    files_by_name = {path.name: path for path in tmp_path.iterdir() if path.is_file()}
    counts = aedat_gestures(files_by_name, denoise=2.0).assembly.values[0]
    assert (
        len(denoised(polarity_events(aedat(some), "a", 128, 128), 2000, 128).t)
        == golden["kept"]
        < 6000
    )
    assert (counts.sum(), counts.sum(axis=0).tolist()) == (
        golden["counted"],
        golden["by_bin"],
    )
    assert (
        hashlib.sha256(np.ascontiguousarray(counts).tobytes()).hexdigest()
        == golden["sha256"]
    )


def test_a_gesture_of_only_noise_is_empty(files):
    assembly = aedat_gestures(files, grid=GRID, denoise=0.001).assembly
    assert not assembly.values.any()


def test_denoised_gestures_have_fewer_events(files):
    plain, cleaned = (
        aedat_gestures(files, grid=GRID, width=40.0, denoise=ms).assembly.values
        for ms in (None, 100.0)
    )
    assert 0 < cleaned.sum() < plain.sum()
    assert (cleaned <= plain).all()


def test_events_marked_invalid_by_the_camera_are_left_out():
    all_events = [(t - START, x, y, p) for t, x, y, p in events(0)]
    kept_events = polarity_events(
        aedat(all_events, together=100, valid=False), "a", 128, 128
    )
    assert len(kept_events.t) == 891
    valid = [event for number, event in enumerate(all_events) if number % 100]
    assert kept_events.t.tolist() == [t for t, _, _, _ in valid]
    assert kept_events.x.tolist() == [x for _, x, _, _ in valid]


def test_events_out_of_order_are_sorted():
    ordered = events(0)
    kept_events = polarity_events(
        aedat(ordered[450:] + ordered[:450], together=450), "a", 128, 128
    )
    assert kept_events.t.tolist() == [t for t, _, _, _ in ordered]


GOOD = aedat(events(0))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("user01_lab.aedat", GOOD[:-3], "ends within a packet of 100 events"),
        (
            "user01_lab.aedat",
            GOOD[: GOOD.index(b"#!END") + 14 + 36 + 10],
            "ends within the header of a packet",
        ),
        ("user01_lab.aedat", b"#!AER-DAT1.0\r\n" + GOOD[20:], r"is not an AEDAT file"),
        ("user01_lab.aedat", b"", r"is not an AEDAT file"),
        (
            "user01_lab.aedat",
            GOOD[: GOOD.index(b"#!END") + 14],
            "contains no polarity events",
        ),
        (
            "user01_lab.aedat",
            GOOD[: GOOD.index(b"#!END") + 14] + b"\x01\x00\x01\x00" + b"\xff" * 24,
            "damaged packet",
        ),
        (
            "user01_lab.aedat",
            aedat([*events(0), (START + 10**6, 128, 5, 1)]),
            "1 events outside of 128 x 128 pixels, the first at column 128, row 5",
        ),
        (
            "user01_lab.aedat",
            aedat(events(0)[:100]),
            "arm_roll is labelled from .* but events are from",
        ),
        (
            "user01_lab_labels.csv",
            labels([*ROWS, (2, START, START + 10**8)]).encode(),
            "right_hand_wave is labelled",
        ),
        (
            "user01_lab_labels.csv",
            labels([(12, 1, 2)]).encode(),
            "line 2: invalid class 12 .* classes are 1 to 11",
        ),
        (
            "user01_lab_labels.csv",
            labels([(1, 5, 5)]).encode(),
            "the end must be after the start",
        ),
        (
            "user01_lab_labels.csv",
            b"class,start,end\n1;2;3\n",
            "line 2: '1;2;3' is not class",
        ),
        (
            "trials_to_test.txt",
            b"user01_lab.aedat\n",
            "user01 is both in part 'train' and in part 'test'",
        ),
        (
            "trials_to_test.txt",
            b"someone.aedat\n",
            "'someone.aedat' is not the name of a recording",
        ),
        (
            "trials_to_test.txt",
            b"user28_lab.aedat\n",
            "lists user28_lab.aedat, but user28_lab_labels.csv is not among",
        ),
    ],
)
def test_damaged_files_are_refused_by_name(files, name, content, words):
    files[name].write_bytes(content)
    with pytest.raises(DataError, match=words):
        aedat_gestures(files, grid=GRID)


def test_missing_files_are_refused_by_name(files, tmp_path):
    for lost, words in (
        (
            "trials_to_test.txt",
            "trials_to_test.txt, which lists the recordings of part 'test'",
        ),
        (
            "user02_fluorescent_led.aedat",
            "1 listed recordings are not among the files, first user02_fluo",
        ),
    ):
        with pytest.raises(DataError, match=words):
            aedat_gestures(
                {name: path for name, path in files.items() if name != lost}, grid=GRID
            )
    tar_gz(
        tmp_path / "a.tar.gz", {name: path.read_bytes() for name, path in files.items()}
    )
    whole = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a.tar.gz"):
        aedat_gestures({"a.tar.gz": tmp_path / "a.tar.gz"}, grid=GRID)


def test_recordings_without_a_gesture_are_refused(files):
    for name in NAMES:
        files[f"{name}_labels.csv"].write_text(labels([]))
    with pytest.raises(DataError, match="list no recording with a gesture"):
        aedat_gestures(files, grid=GRID)
