"""Labelled spike trains: counts compared with a plain computation, compressed files, and errors for invalid files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.efficiency.networks.trainable_model import (
    select_presentations,
)
from neuroledger.families.efficiency.readers import spike_times as reader
from neuroledger.families.efficiency.readers.spike_times import spike_times
from tests.families.efficiency.matlab73 import write_trains

KEYS = ["null", "eins", "zero"]
PARTS = {"train": "shd_train.h5", "test": "shd_test.h5"}


def trains(
    number: int, seed: int, units: int = 700
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, number)
    times = [np.sort(rng.uniform(0, 1.3, n)).astype(np.float16) for n in sizes]
    return times, [rng.integers(0, units, n).astype(np.uint16) for n in sizes]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    write_trains(
        tmp_path / "shd_train.h5",
        *trains(300, 1),
        np.arange(300) % 3,
        np.arange(300) % 4,
        KEYS,
    )
    write_trains(
        tmp_path / "shd_test.h5",
        *trains(20, 2),
        np.arange(20) % 3,
        np.arange(20) % 5,
        KEYS,
    )
    return {name: tmp_path / name for name in PARTS.values()}


def plainly(
    times: np.ndarray, units: np.ndarray, pool: int, width: float, bins: int
) -> np.ndarray:
    counts = np.zeros((700 // pool, bins), dtype=int)
    for time, unit in zip(times, units, strict=True):
        counts[int(unit) // pool, int(float(time) * 1000 / width)] += 1
    return counts


@pytest.mark.parametrize(("pool", "width"), [(1, 10.0), (10, 100.0)])
def test_every_spike_is_counted_in_its_unit_and_bin(files, pool, width):
    assembly = spike_times(files, parts=PARTS, pool=pool, bin_width=width).assembly
    bins = round(1400 / width)
    assert assembly.shape == (320, 700 // pool, bins) and assembly.dtype == np.uint8
    for seed, number, offset in ((1, 300, 0), (2, 20, 300)):
        times, units = trains(number, seed)
        for row in (0, 7, number - 1):
            expected = plainly(times[row], units[row], pool, width, bins)
            assert np.array_equal(assembly.values[offset + row], expected)
    assert assembly.values.sum() == sum(map(len, trains(300, 1)[0])) + sum(
        map(len, trains(20, 2)[0])
    )
    here = spike_times(
        files, parts=PARTS, pool=pool, bin_width=width, count="presence"
    ).assembly
    assert np.array_equal(here.values, np.minimum(assembly.values, 1))


def test_labels_speakers_and_parts(files):
    assembly = spike_times(files, parts=PARTS, pool=10, bin_width=100.0).assembly
    assert assembly["label"].values[:4].tolist() == ["null", "eins", "zero", "null"]
    assert assembly["speaker"].values[:6].tolist() == ["0", "1", "2", "3", "0", "1"]
    assert assembly["split"].values.tolist() == ["train"] * 300 + ["test"] * 20
    assert assembly["stimulus_id"].values[[0, 299, 300]].tolist() == [
        "train_00000",
        "train_00299",
        "test_00000",
    ]
    assert assembly["neuroid_id"].values[:3].tolist() == [
        "unit_000",
        "unit_010",
        "unit_020",
    ]
    assert assembly["time_bin_end"].values[-1] == 1400


def test_compressed_files_give_the_same_counts(files):
    packed = {}
    for name, path in files.items():
        packed[f"{name}.gz"] = path.with_name(f"{name}.gz")
        packed[f"{name}.gz"].write_bytes(gzip.compress(path.read_bytes()))
    parts = {part: f"{name}.gz" for part, name in PARTS.items()}
    plain, result = (
        spike_times(files, parts=PARTS).assembly,
        spike_times(packed, parts=parts).assembly,
    )
    assert result.identical(plain)
    first = next(iter(packed.values()))
    first.write_bytes(first.read_bytes()[:900])
    with pytest.raises(DataError, match=r"shd_train.h5.gz cannot be read as HDF5"):
        spike_times(packed, parts=parts)


def test_large_counts_are_stored_on_disk(files, tmp_path, monkeypatch):
    plain = spike_times(files, parts=PARTS).assembly
    monkeypatch.setattr(reader, "IN_MEMORY", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assembly = spike_times(files, parts=PARTS).assembly
    assert isinstance(assembly.variable._data, np.memmap) and assembly.identical(plain)
    assert {path.name for path in tmp_path.iterdir()} == set(
        files
    )  # the file of counts has no name
    view = select_presentations(assembly, np.arange(10))
    assert np.array_equal(np.asarray(view), plain.values[:10])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        DataError, match=r"counts do not fit into .*No space left.*TMPDIR"
    ):
        spike_times(files, parts=PARTS)


@pytest.mark.parametrize(
    ("times", "units", "message"),
    [
        (
            [[0.1, 0.2]],
            [[3, 700]],
            "shd_test.h5: presentation 0 has a spike of unit 700; units are 0 to 699",
        ),
        (
            [[0.1, 1.5]],
            [[3, 4]],
            r"presentation 0 has spikes from .* to 1500 ms; `duration` is 1400 ms",
        ),
        ([[0.1, np.nan]], [[3, 4]], "presentation 0 has spikes from nan"),
        ([[-0.1, 0.2]], [[3, 4]], "presentation 0 has spikes from -"),
        ([[0.1]], [[3, 4]], "presentation 0 has 1 times for 2 units"),
    ],
)
def test_impossible_spikes_are_refused(files, times, units, message):
    write_trains(files["shd_test.h5"], times, units, [0], [0], KEYS)
    with pytest.raises(DataError, match=message):
        spike_times(files, parts=PARTS)


def test_other_layouts_are_refused(files):
    path = files["shd_test.h5"]

    def message(pattern: str) -> None:
        with pytest.raises(DataError, match=pattern):
            spike_times(files, parts=PARTS)

    write_trains(path, [[0.1]], [[3]], [3], [0], KEYS)
    message("labels are not within 0 to 2")
    write_trains(path, [[0.1]], [[3]], [0, 1], [0, 1], KEYS)
    message(r"1 rows of times, 1 of units and labels \(2,\)")
    with h5py.File(path, "w") as file:
        file["spikes/times"] = np.ones((3, 4))
        file["spikes/units"] = np.ones((3, 4))
        file["labels"] = np.zeros(3, dtype=int)
        file["extra/keys"] = np.array([b"a"])
    message("/spikes/times does not have rows of variable length")
    with h5py.File(path, "w") as file:
        file["events"] = 1
    message("shd_test.h5 has no variable 'spikes/times'; it has events")
    path.write_bytes(b"<html>not found</html>")
    message("cannot be read as HDF5")


def test_invalid_options_are_refused(files):
    for options, message in (
        ({"bin_width": 9.0}, "1400 ms are not a number of bins of 9 ms"),
        ({"pool": 11}, "700 units do not form groups of 11"),
        ({"parts": {"train": "shd_train.h5"}}, "differ in shd_test.h5"),
    ):
        with pytest.raises(DataError, match=message):
            spike_times(files, **{"parts": PARTS, **options})
