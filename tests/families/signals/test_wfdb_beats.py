"""Heartbeats of PhysioNet's format: simulated records with known content, and the real record 100."""

from __future__ import annotations

import json

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.readers.wfdb_beats import wfdb_beats
from neuroledger.families.signals.recordings.wfdb import (
    read_annotations,
    read_header,
    read_lead,
)
from tests.families.signals.recorded_files import annotations, packed212, record

RATE, LENGTH = 360, 360 * 25
# A beat each 300 samples: a peak of its own height, and a slow wave under all.
AT = list(range(200, LENGTH - 100, 300))


def signal(height: int = 400) -> list[int]:
    values = [1024 + round(20 * np.sin(k / 500)) for k in range(LENGTH)]
    for number, at in enumerate(AT):
        for k in range(-6, 7):
            values[at + k] += (height + 10 * number) * (7 - abs(k)) // 7
    return values


@pytest.fixture
def folder(tmp_path):
    marks = [
        (18, "+"),
        *((at, "V" if k % 5 == 3 else "N") for k, at in enumerate(AT)),
        (LENGTH - 20, "~"),
    ]
    record(tmp_path, "100", {"MLII": signal(), "V5": [1000] * LENGTH}, marks)
    record(tmp_path, "101", {"V5": [1000] * LENGTH, "MLII": signal(500)}, marks)
    record(tmp_path, "102", {"V5": signal(300), "V2": [1000] * LENGTH}, marks)
    return tmp_path


def files_of(folder):
    return {path.name: path for path in sorted(folder.iterdir())}


PARTS = {"train": ("100",), "test": ("101",), "aside": ("102",)}


def test_packed_samples_and_annotations_are_decoded(tmp_path):
    rng = np.random.default_rng(0)
    leads = {
        name: rng.integers(-2047, 2048, 101).tolist() for name in ("MLII", "V1", "V2")
    }
    marks = [(0, "+"), (5, "N"), (1029, "A"), (70_000, "V"), (70_003, "/")]
    record(tmp_path, "7", leads, marks, gain=100, zero=12)
    header = read_header(tmp_path / "7.hea")
    assert (header.rate, header.samples, [lead.name for lead in header.leads]) == (
        360.0,
        101,
        list(leads),
    )
    for number, values in enumerate(leads.values()):
        found = read_lead(tmp_path / "7.dat", header, number)
        np.testing.assert_allclose(found, (np.array(values) - 12) / 100)
    read = read_annotations(tmp_path / "7.atr")
    assert list(zip(read.samples.tolist(), read.symbols.tolist(), strict=True)) == marks


def test_a_stated_time_resolution_is_not_an_annotation(folder):
    (folder / "100.atr").write_bytes(annotations([(5, "N"), (90, "V")], "360"))
    read = read_annotations(folder / "100.atr")
    assert (read.samples.tolist(), read.symbols.tolist(), read.rate) == (
        [5, 90],
        ["N", "V"],
        360.0,
    )
    (folder / "100.atr").write_bytes(annotations([(5, "N"), (90, "V")], "125.5"))
    with pytest.raises(
        DataError,
        match=r"100.atr counts samples at 125.5 Hz, but its record has 360 Hz",
    ):
        wfdb_beats(files_of(folder), parts=PARTS)


def test_sixteen_bit_samples_and_a_separate_baseline_are_read(tmp_path):
    values = np.array([[3, -5], [32767, 1], [-32768, 0]], dtype="<i2")
    values.tofile(tmp_path / "r.dat")
    (tmp_path / "r.hea").write_text(
        "r 2 250/1000(0) 3 12:00:00\nr.dat 16 10(3)/mV 16 0 3 2 0 II\nr.dat 16\n"
    )
    header = read_header(tmp_path / "r.hea")
    np.testing.assert_allclose(
        read_lead(tmp_path / "r.dat", header, 0), [0.0, 3276.4, np.nan]
    )
    np.testing.assert_allclose(
        read_lead(tmp_path / "r.dat", header, 1), [-0.025, 0.005, 0.0]
    )


def test_beats_start_at_their_peak_and_last_1_2_median_intervals(folder):
    found = wfdb_beats(files_of(folder), parts=PARTS).assembly
    beats = len(AT) - 1
    assert found.shape == (3 * beats, 1, 187)
    assert (
        found["split"].values.tolist()
        == ["train"] * beats + ["test"] * beats + ["aside"] * beats
    )
    assert set(found["label"].values.tolist()) == {"N", "V"}
    assert found["label"].values[:5].tolist() == ["N", "N", "N", "V", "N"]
    assert found["stimulus_id"].values[0] == f"100_{AT[0]:06d}"
    # 300 samples at 360 Hz are 104 at 125 Hz; 1.2 times that is 125 values, and zeros behind.
    assert (found.values[:, 0] > 0).sum(axis=1).max() <= 125
    assert not found.values[:, 0, 126:].any()
    assert (found.values[:, 0, :125] > 0).mean() > 0.97
    # Each begins at its peak, and the next peak lies 104 values behind it.
    peaks = found.values[:, 0, :2].max(axis=1)
    assert (peaks > found.values[:, 0, 12:90].max(axis=1)).all()
    assert (np.abs(found.values[:, 0, 60:125].argmax(axis=1) + 60 - 104) <= 2).all()
    assert found.values.min() == 0 and found.values.max() <= 1


def test_beats_are_scaled_by_the_range_of_ten_seconds_or_of_the_beat(folder):
    stretch = wfdb_beats(files_of(folder), parts=PARTS).assembly.values[:, 0]
    own = wfdb_beats(files_of(folder), parts=PARTS, normalise="beat").assembly.values[
        :, 0
    ]
    np.testing.assert_allclose(own.max(axis=1), 1)
    # Peaks grow with time: in a stretch of 10 s only the highest reaches 1.
    assert (stretch.max(axis=1) < 1).sum() > 30
    shorter = wfdb_beats(
        files_of(folder), parts=PARTS, values=40, periods=0.3
    ).assembly.values[:, 0]
    np.testing.assert_allclose(shorter[:, :31], stretch[:, :31], atol=1e-6)


def test_one_record_is_split_in_time_and_no_subject_is_in_both_parts(folder):
    one = {
        name: path for name, path in files_of(folder).items() if name.startswith("100")
    }
    found = wfdb_beats(
        one, until=0.4, classes={"normal": "N", "abnormal": "V"}
    ).assembly
    train = found["split"].values == "train"
    assert train.sum() == sum(at < 0.4 * LENGTH for at in AT)
    assert set(found["label"].values.tolist()) == {"normal", "abnormal"}
    with pytest.raises(
        DataError,
        match="100 and 101 are of one person, but are in both the training and the test",
    ):
        wfdb_beats(files_of(folder), parts=PARTS, people=(("100", "101"),))
    kept = wfdb_beats(files_of(folder), parts=PARTS, people=(("101", "102"),)).assembly
    assert sorted(set(kept["subject"].values.tolist())) == ["100", "101"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either `parts`.* or `until`"),
        ({"parts": PARTS, "until": 0.5}, "give either `parts`.* or `until`"),
        ({"parts": {"train": ("100",), "test": ("100",)}}, "in two parts"),
        (
            {"parts": {"train": ("100",), "test": ("300",)}},
            "record 300 has no header 300.hea",
        ),
        ({"until": 0.5, "classes": {"x": "NV", "y": "AN"}}, "in two classes"),
        (
            {"until": 0.5, "classes": {"x": "N+"}},
            r"\+ is not the mnemonic of a heartbeat",
        ),
        ({"until": 0.5, "leads": ("MLII",)}, "has the leads V5, V2, none of MLII"),
    ],
)
def test_invalid_options_are_refused(folder, options, words):
    with pytest.raises(DataError, match=words):
        wfdb_beats(files_of(folder), **options)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "100.dat",
            packed212([[1, 2, 3]]),
            "contains 6 bytes, but its header states 27,000",
        ),
        (
            "100.dat",
            bytes(27_000),
            "lead MLII does not match the checksum in its header",
        ),
        (
            "100.atr",
            annotations([(5, "N"), (LENGTH, "N")]),
            "annotation at sample 9000; its record has 9000 samples",
        ),
        (
            "100.atr",
            annotations([(5, "N"), (90, "V")])[:-2],
            "ends before its end mark",
        ),
        ("100.atr", b"\x05\x3c\x00\x00", "has the unknown annotation code 15"),
        ("100.atr", b"\x00\xec\x01\x00", "ends within an annotation"),
        ("100.atr", annotations([(5, "N")]), "contains 1 heartbeats"),
        (
            "100.hea",
            b"100 2 360\n",
            "states 2 leads of 0 samples at 360.0 Hz, but describes 0 leads",
        ),
        (
            "100.hea",
            b"100/3 2 360 9000\n",
            "states 3 segments of 9000 samples, but lists 0 of 0",
        ),
        (
            "100.hea",
            b"100 2 360 9000\n100.dat 212 200 11 1024 995 1 0 MLII\n",
            "describes 1 leads",
        ),
        (
            "100.hea",
            b"100 1 360 9000\n100.dat 213x2 200 11 1024 995 1 0 MLII\n",
            "format '213x2' are not supported",
        ),
        (
            "100.hea",
            b"100 1 360 9000\n100.dat 999 200 11 1024 995 1 0 MLII\n",
            "signals of format '999' are not supported",
        ),
        ("100.hea", b"\xff\xfe", "not a WFDB header"),
    ],
)
def test_damaged_files_are_named(folder, name, content, words):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        wfdb_beats(files_of(folder), parts=PARTS)


def test_a_missing_companion_file_is_named(folder):
    for lost in ("100.dat", "100.atr"):
        with pytest.raises(
            DataError, match=f"100.hea needs {lost}, which is not among the files"
        ):
            wfdb_beats(
                {n: p for n, p in files_of(folder).items() if n != lost}, parts=PARTS
            )


def test_a_lead_with_missing_samples_is_refused(tmp_path):
    values = [1024] * 4000
    values[100] = -2048
    record(tmp_path, "1", {"MLII": values}, [(200, "N"), (500, "N"), (800, "N")])
    with pytest.raises(DataError, match="1 samples of lead MLII have no value"):
        wfdb_beats(files_of(tmp_path), until=0.5)


def test_the_real_record_agrees_with_its_published_description(mirror):
    folder = mirror / "mitdb_100"
    expected = json.loads((folder / "expected.json").read_text())
    header = read_header(folder / "100.hea")
    assert [header.samples, len(header.leads)] == expected["signal_shape"]
    assert header.rate == expected["fs"]
    for number, first in enumerate(
        (995, 1011)
    ):  # of the header's own initial values; its checksums hold as well
        assert read_lead(folder / "100.dat", header, number)[0] == (first - 1024) / 200
    read = read_annotations(folder / "100.atr")
    counts = dict(zip(*np.unique(read.symbols, return_counts=True), strict=True))
    assert counts == expected["atr_symbols"]
    detected = read_annotations(
        folder / "100.qrs"
    )  # a note, then the beats that wfdb 4.3.1 reads as well
    assert (detected.symbols[0], (detected.symbols == "N").sum()) == ('"', 2273)
    # Every annotated beat has a detected one within 0.1 s.
    beats = read.samples[read.symbols != "+"]
    assert (np.abs(beats[:, None] - detected.samples[None, 1:]).min(axis=1) <= 36).all()
    files = {name: folder / name for name in ("100.hea", "100.dat", "100.atr")}
    found = wfdb_beats(files, until=0.5).assembly
    count = sum(expected["atr_symbols"].values()) - 1
    assert found.sizes == {"presentation": count - 1, "neuroid": 1, "time_bin": 187}
    # Its beats are found where the signal peaks: the first value is near the top of its ten seconds.
    assert np.median(found.values[:, 0, 0]) > 0.8
