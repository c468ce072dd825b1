"""Assemblies as people hand them over become plain numbers with plain coordinates, or one error says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data.normalise_input import as_text, in_numpy, received
from neuroledger.errors import AssemblyError, RequestError
from tests.text_storage import STORAGES


def given(
    values: Any, dims: tuple[str, ...] = ("presentation", "neuroid")
) -> xr.DataArray:
    return xr.DataArray(np.asarray(values), dims=dims)


def test_levels_of_an_index_become_coordinates_of_their_dimension() -> None:
    index = pd.MultiIndex.from_tuples(
        [("a", 0), ("b", 1)], names=["stimulus_id", "repetition"]
    )
    held = xr.DataArray(
        np.ones((2, 3)), dims=("presentation", "neuroid"), coords={"neuroid": [4, 5, 6]}
    )
    held = held.assign_coords(
        xr.Coordinates.from_pandas_multiindex(index, "presentation")
    )
    got = received(held, name="x")
    assert set(got.coords) == {"stimulus_id", "repetition", "neuroid"}
    assert got["repetition"].dims == ("presentation",) and got[
        "stimulus_id"
    ].values.tolist() == ["a", "b"]
    assert not hasattr(got.indexes.get("presentation"), "levels")


def test_numbers_are_not_copied_and_a_single_bin_is_dropped_unless_bins_are_wanted() -> (
    None
):
    for dtype in (np.float32, np.int16, np.uint8):
        values = np.zeros((2, 3, 1), dtype=dtype)
        binned = xr.DataArray(
            values,
            dims=("presentation", "neuroid", "time_bin"),
            coords={"time_bin_start": ("time_bin", [5])},
        )
        flat = received(binned, name="x")
        assert (
            flat.dims == ("presentation", "neuroid")
            and "time_bin_start" not in flat.coords
        )
        assert np.shares_memory(flat.values, values) and flat.dtype == dtype
        kept = received(binned, name="x", bins=True)
        assert kept.dims == binned.dims and kept.identical(binned)
    two = given(np.zeros((2, 3, 2)), ("presentation", "neuroid", "time_bin"))
    assert received(two, name="x") is two and received(
        given([[1.0]]), name="x"
    ).values.tolist() == [[1.0]]


@pytest.mark.parametrize(
    "values",
    [
        [[True, False]],
        np.array([[1, 0]], dtype=object),
        np.array([[1.0, False]], dtype=object),
    ],
)
def test_truths_and_numbers_as_objects_become_double_precision(values: Any) -> None:
    got = received(given(values), name="x")
    assert got.dtype == np.float64 and got.values.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([["a"]], "<U1"),
        ([[1j]], "complex128"),
        (np.array([["a"]], dtype=object), "object"),
        (np.array([[{}]], dtype=object), "object"),
        ([[b"1"]], r"\|S1"),
        (np.array([["2020"]], dtype="datetime64[ns]"), "datetime64"),
    ],
)
def test_values_that_are_not_numbers_are_refused_with_their_type(
    values: Any, type_: str
) -> None:
    with pytest.raises(
        AssemblyError,
        match=rf"^mine has values of type {type_}.*; responses must be real numbers$",
    ):
        received(given(values), name="mine")


def test_other_types_and_empty_assemblies_are_refused() -> None:
    with pytest.raises(
        RequestError,
        match=r"^mine is a builtins\.dict, not an array: give a NumPy array, a pandas table, a tensor, or xr",
    ):
        received({}, name="mine")
    with pytest.raises(AssemblyError, match=r"^mine is empty: it has no presentation"):
        received(pd.DataFrame(), name="mine")
    with pytest.raises(
        AssemblyError, match=r"^mine is empty: it has no neuroid; check the selection$"
    ):
        received(given(np.zeros((2, 0))), name="mine")


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([7, 8], ["7", "8"]),
        ([7.0, -8.0], ["7", "-8"]),
        ([7.5, 8.0], ["7.5", "8.0"]),
        ([np.inf, 1.0], ["inf", "1.0"]),
        ([np.nan, 1.0], ["nan", "1.0"]),
        ([b"7", "é".encode()], ["7", "é"]),
        (["a", "b"], ["a", "b"]),
        ([True], ["True"]),
        (
            np.array([7.0, 7.5, b"x", "y", 3, None], dtype=object),
            ["7", "7.5", "x", "y", "3", "None"],
        ),
        ([], []),
    ],
)
def test_ids_of_any_type_are_the_text_that_they_look_like(
    ids: Any, texts: list[str]
) -> None:
    got = as_text(ids)
    assert got.dtype.kind == "U" and got.tolist() == texts
    if texts:
        shaped = np.asarray(ids).reshape(1, -1, 1)
        assert as_text(shaped).shape == shaped.shape


@pytest.mark.parametrize("storage", STORAGES)
def test_columns_of_a_table_become_numpy_arrays_however_pandas_keeps_them(
    storage: str,
) -> None:
    with pd.option_context("mode.string_storage", storage):
        table = pd.DataFrame(
            {"stimulus_id": ["a", "b"], "kind": pd.Categorical(["x", "y"]), "n": [1, 2]}
        )
        held = xr.DataArray(
            table["stimulus_id"],
            dims="presentation",
            coords={name: ("presentation", table[name]) for name in table},
        )
        got = in_numpy(held)
    assert got.values.tolist() == ["a", "b"] and got.dims == held.dims
    assert {name: coord.values.tolist() for name, coord in got.coords.items()} == {
        "stimulus_id": ["a", "b"],
        "kind": ["x", "y"],
        "n": [1, 2],
    }
    assert all(isinstance(part.dtype, np.dtype) for part in (got, *got.coords.values()))
    assert in_numpy(got) is got
