"""Assemblies in a zip of Zarr are those of netCDF; codecs that execute code and damaged archives are refused."""

from __future__ import annotations

import json
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data import assembly as assemblies
from neuroledger.data.gate.validate import validate
from neuroledger.data.memory import mapped
from neuroledger.errors import AssemblyError, UnavailableError
from neuroledger.families.alignment import large_assembly
from neuroledger.families.alignment.large_assembly import read_large
from tests.engine.lab import Lab
from tests.families.alignment.test_large_assembly import recordings

storage = pytest.importorskip("zarr.storage")


def write_zarr(
    given: xr.DataArray, path: Path, *, layout: int = 3, **encoding: object
) -> Path:
    """Write an assembly as xarray's users do, into a zip."""
    with warnings.catch_warnings(action="ignore"), storage.ZipStore(path, mode="w") as store:  # fmt: skip
        given.to_dataset(name="data").to_zarr(
            store, zarr_format=layout, encoding={"data": encoding}
        )
    return path


@pytest.mark.parametrize("layout", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_the_content_is_that_of_netcdf(tmp_path: Path, layout: int, dtype: str) -> None:
    given = recordings(dtype)
    path = write_zarr(given, tmp_path / "x.zarr.zip", layout=layout, chunks=(16, 3, 2))
    assemblies.write(given, tmp_path / "x.nc")
    xr.testing.assert_identical(read_large(path), read_large(tmp_path / "x.nc"))


@pytest.mark.parametrize(
    ("encoding", "rows"),
    [({"chunks": (8, 7, 2)}, 8), ({"chunks": (4, 7, 2), "shards": (20, 7, 2)}, 20)],
)
def test_a_large_one_is_a_memory_map_of_whole_chunks_or_shards(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoding: dict[str, object],
    rows: int,
) -> None:
    monkeypatch.setattr(large_assembly, "WHOLE", 1200)
    monkeypatch.setattr(large_assembly, "BLOCK", 100)
    given = recordings("float32")
    path = write_zarr(given, tmp_path / "x.zip", **encoding)
    with large_assembly._opened(path) as opened:
        assert next(large_assembly._blocks(opened)) == slice(0, rows)
    found = read_large(path)
    assert mapped(found.values) is not None
    np.testing.assert_array_equal(found.values, given.values)


def test_an_absent_chunk_has_the_declared_fill_value(tmp_path: Path) -> None:
    given = recordings("float32")
    given[:16] = np.nan
    path = write_zarr(given, tmp_path / "x.zip", chunks=(16, 7, 2))
    assert "data/c/0/0/0" not in zipfile.ZipFile(path).namelist()
    np.testing.assert_array_equal(read_large(path).values, given.values)


def changed(path: Path, member: str, change: Callable[[bytes], bytes]) -> None:
    """Write an archive anew with one member changed."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content[member] = change(content[member])
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in content.items():
            archive.writestr(name, value)


def with_pickle(content: bytes) -> bytes:
    metadata = json.loads(content)
    metadata["filters"] = [{"id": "pickle", "protocol": 5}]
    return json.dumps(metadata).encode()


def with_pickle_in_shards(content: bytes) -> bytes:
    metadata = json.loads(content)
    metadata["codecs"] = [
        {
            "name": "sharding_indexed",
            "configuration": {"codecs": [{"name": "numcodecs.pickle"}]},
        }
    ]
    return json.dumps(metadata).encode()


@pytest.mark.parametrize(
    ("layout", "member", "change", "codec"),
    [
        (2, "data/.zarray", with_pickle, "'pickle'"),
        (3, "data/zarr.json", with_pickle_in_shards, r"'numcodecs\.pickle'"),
    ],
)
def test_a_codec_that_executes_code_is_refused_before_it_is_used(
    tmp_path: Path,
    layout: int,
    member: str,
    change: Callable[[bytes], bytes],
    codec: str,
) -> None:
    path = write_zarr(recordings(), tmp_path / "x.zip", layout=layout)
    changed(path, member, change)
    with pytest.raises(AssemblyError, match=rf"x\.zip: {member} names the codec {codec}"):  # fmt: skip
        read_large(path)


@pytest.mark.parametrize("member", ["data/c/0/0/0", "data/zarr.json", "zarr.json"])
def test_a_damaged_archive_is_one_error(tmp_path: Path, member: str) -> None:
    path = write_zarr(recordings(), tmp_path / "x.zip")
    changed(path, member, lambda content: content[: len(content) // 2])
    with pytest.raises(AssemblyError, match=r"x\.zip cannot be read as Zarr"):
        read_large(path)


def test_without_zarr_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zarr(recordings(), tmp_path / "x.zip")
    monkeypatch.setitem(sys.modules, "zarr.storage", None)
    with pytest.raises(UnavailableError, match=r"pip install 'neuroledger\[zarr\]'"):
        read_large(path)


def test_a_data_set_in_zarr_has_the_score_of_the_same_in_netcdf(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(valid.root)
    expected = nl.score("pixels4", "lab.V4-ridge").value
    given = assemblies.read(valid.data / "responses.nc")
    (valid.data / "responses.nc").unlink()
    name = "responses.zarr.zip"
    write_zarr(given, valid.data / name, chunks=(50, given.sizes["neuroid"]))
    valid.dataset(reader={"name": "netcdf", "assembly": name})
    validate(valid.open(), "lab")
    assert nl.score("pixels4", "lab.V4-ridge").value == expected
