"""Compressed HDF5 files are unpacked to a plausible size, and variables are told by name."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from neuroledger.data import hdf5
from neuroledger.errors import DataError, UnavailableError


def packed(folder: Path, values: np.ndarray) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        file["values"] = values
    (folder / "x.h5.gz").write_bytes(gzip.compress((folder / "x.h5").read_bytes()))
    return folder / "x.h5.gz"


def test_a_file_of_endless_objects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(3):
            file.create_group(f"a/{number}")
    monkeypatch.setattr(hdf5, "MAX_OBJECTS", 4)
    hdf5.refuse_outside_storage(tmp_path / "x.h5")
    monkeypatch.setattr(hdf5, "MAX_OBJECTS", 3)
    with pytest.raises(
        DataError, match=r"x\.h5 has more than 3 objects: it is not a recording"
    ):
        hdf5.refuse_outside_storage(tmp_path / "x.h5")


def test_a_missing_variable_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.mat", "w") as file:
        file["b"], file["a"] = [1], [2]
        file.create_group("#refs#")
        file.create_group("group")
        assert hdf5.array(
            hdf5.variable(file, "a", tmp_path / "x.mat"), tmp_path / "x.mat"
        ).tolist() == [2]
        for name in ("c", "group"):
            with pytest.raises(
                DataError, match=rf"x\.mat has no variable '{name}'; it has a, b, group"
            ):
                hdf5.variable(file, name, tmp_path / "x.mat")
        with pytest.raises(
            DataError, match=r"'a' is not a MATLAB 7\.3 cell array, but int64 \(1,\)"
        ):
            hdf5.cells(file, "a", tmp_path / "x.mat")


def test_a_cell_that_refers_to_nothing_is_refused_and_an_empty_one_is_empty(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        file["full"], file["sized"] = [[1.0, 2.0]], [0, 0]
        file["sized"].attrs["MATLAB_empty"] = 1
        assert hdf5.cell(file, file["full"].ref, path).tolist() == [1.0, 2.0]
        assert hdf5.cell(file, file["sized"].ref, path).size == 0
        with pytest.raises(DataError, match=r"x\.mat: a cell refers to nothing"):
            hdf5.cell(file, h5py.Reference(), path)


def test_a_compressed_file_is_read_and_one_that_grows_a_thousandfold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = np.zeros(500_000)
    with hdf5.opened(packed(tmp_path, zeros)) as file:
        assert file["values"].shape == zeros.shape, (
            "small enough, however well it was packed"
        )
    monkeypatch.setattr(hdf5, "MIN_UNPACKED", 1 << 20)
    with (
        pytest.raises(
            DataError,
            match=r"x\.h5\.gz unpacks to more than 1,048,576 bytes: it is not a recording",
        ),
        hdf5.opened(tmp_path / "x.h5.gz"),
    ):
        pass
    noise = np.random.default_rng(0).integers(0, 4, 500_000)  # shrinks to a tenth
    with hdf5.opened(packed(tmp_path, noise)) as file:
        np.testing.assert_array_equal(file["values"][:], noise)


def test_a_cell_array_is_returned_by_rows_and_columns_of_matlab(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        for name in "abcdef":
            file[name] = [[ord(name)]]
        references = [[file[name].ref for name in row] for row in ("abc", "def")]
        file.create_dataset("cells", data=references, dtype=h5py.ref_dtype)
        file.create_dataset("list", data=references[0], dtype=h5py.ref_dtype)
        found = hdf5.cells(file, "cells", path)
        assert [
            [hdf5.text(hdf5.cell(file, one, path)) for one in row] for row in found
        ] == [
            ["a", "d"],
            ["b", "e"],
            ["c", "f"],
        ]
        with pytest.raises(
            DataError,
            match=r"'list' is not a MATLAB 7\.3 cell array, but object \(3,\)",
        ):
            hdf5.cells(file, "list", path)


def test_text_is_stored_as_character_codes() -> None:
    assert hdf5.text(np.array([72, 252, 8364], dtype=np.uint16)) == "Hü€"
    assert hdf5.text(np.empty(0)) == ""


def test_an_empty_file_has_no_variable(tmp_path: Path) -> None:
    with (
        h5py.File(tmp_path / "x.mat", "w") as file,
        pytest.raises(DataError, match=r"^x\.mat has no variable 'a'; it has nothing$"),
    ):
        hdf5.variable(file, "a", tmp_path / "x.mat")


def test_a_missing_library_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with (
        pytest.raises(
            UnavailableError,
            match=r"package h5py is not installed: run `pip install 'neuroledger\[recordings\]'`$",
        ),
        hdf5.opened(tmp_path / "x.h5"),
    ):
        pass
