"""Padded arrays of repetitions become the recorded presentations, in a defined order."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from neuroledger.data.assembly import average_repetitions, check
from neuroledger.errors import DataError
from neuroledger.families.alignment.readers.numpy_repetitions import numpy_repetitions

COUNTS = np.array([3, 1, 2])


def _files(folder: Path, values: np.ndarray) -> dict[str, Path]:
    with zipfile.ZipFile(folder / "images.zip", "w") as opened:
        for name in ("set/image3.jpg", "set/image1.jpg", "set/image2.jpg"):
            opened.writestr(name, name)
    np.save(folder / "responses.npy", values)
    return {
        "images.zip": folder / "images.zip",
        "responses.npy": folder / "responses.npy",
    }


def _read(files):
    return numpy_repetitions(
        files,
        responses="responses.npy",
        archive="images.zip",
        region="V4",
        subject="PE",
        session="one",
    )


def _padded() -> np.ndarray:
    values = np.random.default_rng(0).poisson(4, size=(2, 3, 4)).astype(float)
    values[:, np.arange(4)[None] >= COUNTS[:, None]] = np.nan
    return values


def test_only_recorded_presentations_are_returned(tmp_path):
    values = _padded()
    data = _read(_files(tmp_path, values))
    assembly = check(data.assembly)
    assert (
        assembly["stimulus_id"].values.tolist()
        == ["image1"] * 3 + ["image2"] + ["image3"] * 2
    )
    assert assembly["repetition"].values.tolist() == [0, 1, 2, 0, 0, 1]
    assert not np.isnan(assembly.values).any()
    np.testing.assert_array_equal(assembly.values[4], values[:, 2, 0])
    assert set(assembly["session"].values) == {"one"}
    assert assembly["neuroid_id"].values.tolist() == ["one.000", "one.001"]
    assert data.stimuli.bytes("image2") == b"set/image2.jpg"


def test_mean_over_repetitions_is_that_of_the_array(tmp_path):
    values = _padded()
    mean = average_repetitions(_read(_files(tmp_path, values)).assembly)
    np.testing.assert_allclose(
        mean.values, np.nanmean(values, axis=2).T, rtol=0, atol=1e-15
    )


def test_neuron_silent_in_one_repetition_stays_missing_there(tmp_path):
    values = _padded()
    values[0, 0, 1] = np.nan
    assembly = _read(_files(tmp_path, values)).assembly
    assert np.isnan(assembly.values).sum() == 1
    assert np.isnan(assembly.values[1, 0])


def test_stimulus_without_presentation_is_refused(tmp_path):
    values = _padded()
    values[:, 1] = np.nan
    with pytest.raises(DataError, match=r"image2\.jpg' was never presented"):
        _read(_files(tmp_path, values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((2, 4, 3)), "has 4 stimuli, but images.zip has 3 files"),
        (np.zeros((2, 3)), r"shape \(2, 3\), not floats"),
        (np.zeros((2, 3, 4), dtype=int), "contains int64"),
        (np.array([[["text"]]], dtype="U4"), "contains <U4"),
    ],
)
def test_other_arrays_are_refused(tmp_path, values, words):
    with pytest.raises(DataError, match=words):
        _read(_files(tmp_path, values))


def test_pickled_objects_are_never_loaded(tmp_path):
    files = _files(tmp_path, _padded())
    np.save(
        files["responses.npy"], np.array([{"a": 1}], dtype=object), allow_pickle=True
    )
    with pytest.raises(DataError, match="cannot be read as a NumPy array"):
        _read(files)


def test_truncated_array_is_named(tmp_path):
    files = _files(tmp_path, _padded())
    files["responses.npy"].write_bytes(files["responses.npy"].read_bytes()[:-9])
    with pytest.raises(DataError, match=r"responses\.npy"):
        _read(files)
