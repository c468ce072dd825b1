"""Assemblies larger than a limit are memory maps of the store with the same content, averaged in blocks to the same bits."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.data import assembly as assemblies
from neuroledger.data.memory import mapped
from neuroledger.errors import AssemblyError
from neuroledger.families.alignment import large_assembly
from neuroledger.families.alignment.large_assembly import read_large
from neuroledger.store.store import current_store


def recordings(
    dtype: str = "float32", rows: int = 40, neuroids: int = 7
) -> xr.DataArray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, neuroids, 2))
    if dtype.startswith("float"):
        values[rng.random(values.shape) < 0.2] = np.nan
    return xr.DataArray(
        (values * 100).astype(dtype) if dtype[0] == "i" else values.astype(dtype),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [f"s{i // 4}" for i in range(rows)]),
            "repetition": ("presentation", np.arange(rows) % 4),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
            "region": ("neuroid", ["V4"] * 3 + ["IT"] * (neuroids - 3)),
            "time_bin_start": ("time_bin", [0.0, 50.0]),
            "time_bin_end": ("time_bin", [50.0, 100.0]),
        },
        name="data",
        attrs={"units": "Hz"},
    )


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_assembly, "WHOLE", 64)
    monkeypatch.setattr(large_assembly, "BLOCK", 300)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("chunks", [None, (1, 7, 2), (16, 3, 1), (40, 7, 2)])
def test_a_large_assembly_is_a_memory_map_with_the_content_of_the_file(
    tmp_path: Path, dtype: str, chunks: tuple[int, ...] | None
) -> None:
    given, path = recordings(dtype), tmp_path / "x.nc"
    encoding = {} if chunks is None else {"chunksizes": chunks, "zlib": True}
    given.to_dataset().to_netcdf(path, engine="netcdf4", encoding={"data": encoding})
    first, again = read_large(path), read_large(path)
    for found in (first, again):
        assert mapped(found.values) is not None and not found.values.flags.writeable
        xr.testing.assert_identical(found, assemblies.read(path))
        assert found.dtype == given.dtype
    assert len(current_store().entries()) == 1


@pytest.mark.usefixtures("everything_is_large")
def test_without_room_in_the_store_it_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemblies.write(recordings(), tmp_path / "x.nc")
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", "100 B")
    found = read_large(tmp_path / "x.nc")
    assert mapped(found.values) is None
    xr.testing.assert_identical(found, assemblies.read(tmp_path / "x.nc"))


def whole_means(assembly: xr.DataArray) -> np.ndarray:
    """The mean of each stimulus over all of its rows at once, with the sums of `numpy.add.reduceat`."""
    values = np.asarray(assembly.values)
    order = np.argsort(assembly["stimulus_id"].values, kind="stable")
    ids = assembly["stimulus_id"].values[order]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    sums = np.add.reduceat(np.nan_to_num(values[order]), starts, axis=0)
    counts = np.add.reduceat((~np.isnan(values[order])).astype(int), starts, axis=0)
    with np.errstate(invalid="ignore"):
        return (sums / counts).astype(values.dtype)


@given(
    st.integers(1, 40),
    st.sampled_from([1, 60, 200, 1 << 24]),
    st.sampled_from(["float32", "float64"]),
)
def test_means_over_repetitions_do_not_depend_on_the_size_of_blocks(
    rows: int, block: int, dtype: str
) -> None:
    assembly = recordings(dtype, rows)
    shuffled = np.random.default_rng(rows).permutation(rows)
    assembly = assembly.isel(presentation=shuffled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemblies, "BLOCK", block)
        found = assemblies.average_repetitions(assembly)
    np.testing.assert_array_equal(found.values, whole_means(assembly))


@pytest.mark.usefixtures("everything_is_large")
def test_a_region_of_a_memory_map_is_averaged_without_a_copy_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemblies.write(recordings(), tmp_path / "x.nc")
    large = assemblies.select(read_large(tmp_path / "x.nc"), {"region": "IT"})
    assert mapped(large.values) is not None
    small = assemblies.select(assemblies.read(tmp_path / "x.nc"), {"region": "IT"})
    monkeypatch.setattr(assemblies, "BLOCK", 200)
    xr.testing.assert_identical(
        assemblies.average_repetitions(large), assemblies.average_repetitions(small)
    )


def test_a_file_whose_values_were_never_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("presentation", 100_000)
        file.createDimension("neuroid", 1000)
        chunks = (1000, 1000)
        file.createVariable(
            "data", "f8", ("presentation", "neuroid"), chunksizes=chunks
        )
    with pytest.raises(
        AssemblyError, match=r"x\.nc declares 0\.7 GiB of values in 0\.0"
    ):
        read_large(path)
    assert not current_store().entries()
