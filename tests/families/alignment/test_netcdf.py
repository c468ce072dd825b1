"""The native format: data round-trip, and inconsistent files are refused by name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data import assembly as assemblies
from neuroledger.errors import AssemblyError, DataError
from neuroledger.families.alignment.readers.netcdf import netcdf


def _files(folder: Path, *, lost: bool = False) -> dict[str, Path]:
    ids = ["a", "b", "007"]
    with zipfile.ZipFile(folder / "stimuli.zip", "w") as opened:
        for id in ids[: 2 if lost else 3]:
            opened.writestr(f"{id}.txt", id)
    table = pd.DataFrame(
        {"stimulus_id": ids, "filename": [f"{id}.txt" for id in ids], "size": [1, 2, 3]}
    )
    table.to_csv(folder / "stimuli.csv", index=False)
    table.iloc[:2].to_csv(folder / "fitting.csv", index=False)
    array = xr.DataArray(
        np.arange(6.0).reshape(3, 2),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", ["n1", "n2"]),
        },
    )
    assemblies.write(array, folder / "responses.nc")
    assemblies.write(array.isel(presentation=[0]), folder / "training.nc")
    return {path.name: path for path in folder.iterdir()}


def test_reads_stimuli_assembly_and_extras(tmp_path):
    data = netcdf(
        _files(tmp_path),
        extras={"training": "training.nc"},
        fitting_stimuli={"fit": "fitting.csv"},
    )
    assert data.stimuli.ids == ["a", "b", "007"]
    assert data.stimuli.bytes("007") == b"007"
    assert data.stimuli.table["size"].tolist() == [1, 2, 3]
    assert data.assembly.values.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.assembly["stimulus_id"].values.tolist() == ["a", "b", "007"]
    assert data.extras["training"].sizes["presentation"] == 1
    assert data.extra_stimuli["fit"].ids == ["a", "b"]
    assert data.extra_stimuli["fit"].bytes("b") == b"b"


def test_parts_may_be_absent(tmp_path):
    files = _files(tmp_path)
    assert netcdf(files, assembly=None).assembly is None
    alone = netcdf(files, stimuli=None, archive=None)
    assert alone.stimuli is None
    assert alone.assembly.sizes == {"presentation": 3, "neuroid": 2}
    described = netcdf(files, archive=None).stimuli
    assert described.archive is None
    assert len(described) == 3


def test_archive_without_a_file_of_the_table_is_refused(tmp_path):
    with pytest.raises(
        AssemblyError,
        match=r"stimuli\.zip lacks 1 files of stimuli\.csv, first '007\.txt'",
    ):
        netcdf(_files(tmp_path, lost=True))


def test_table_without_file_names_is_refused(tmp_path):
    files = _files(tmp_path)
    pd.DataFrame({"stimulus_id": ["a"]}).to_csv(files["stimuli.csv"], index=False)
    with pytest.raises(AssemblyError, match="no column 'filename'"):
        netcdf(files)


@pytest.mark.parametrize("name", ["responses.nc", "stimuli.zip", "stimuli.csv"])
def test_damaged_file_is_named(tmp_path, name):
    files = _files(tmp_path)
    files[name].write_bytes(b"\xff\xfe not this kind of file")
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        netcdf(files)
