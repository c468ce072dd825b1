"""Assemblies keep conventions that are checked, averaged, matched and hashed by plain rules, and files give them back."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data import memory
from neuroledger.data.assembly import (
    SHAPES,
    average_repetitions,
    check,
    content_sha256,
    read,
    read_blocks,
    rows_of,
    select,
    write,
)
from neuroledger.data.memory import mapped
from neuroledger.errors import AssemblyError, DataError
from neuroledger.store.store import current_store

KEYS = {
    "presentation": "stimulus_id",
    "neuroid": "neuroid_id",
    "stimulus": "stimulus_id",
    "stimulus_b": "stimulus_id_b",
}
SIZES = {"presentation": 3, "neuroid": 2, "time_bin": 2, "stimulus": 3, "stimulus_b": 3}


def of_shape(dims: tuple[str, ...]) -> xr.DataArray:
    """Values with everything that the conventions ask for."""
    sizes = [SIZES.get(dim, 2) for dim in dims]
    coords: dict[str, Any] = {
        KEYS[dim]: (dim, [f"{dim[0]}{i}" for i in range(size)])
        for dim, size in zip(dims, sizes, strict=True)
        if dim in KEYS
    }
    if "time_bin" in dims:
        coords |= {
            "time_bin_start": ("time_bin", [0, 10]),
            "time_bin_end": ("time_bin", [10, 20]),
        }
    return xr.DataArray(
        np.arange(float(np.prod(sizes))).reshape(sizes), dims=dims, coords=coords
    )


def responses(ids: list[Any], values: Any = None, **coords: Any) -> xr.DataArray:
    count = len(ids)
    held = (
        np.arange(2.0 * count).reshape(count, 2)
        if values is None
        else np.asarray(values)
    )
    named = {
        name: ("presentation", np.asarray(each))
        for name, each in {"stimulus_id": ids, **coords}.items()
    }
    named["neuroid_id"] = ("neuroid", np.array([f"n{i}" for i in range(held.shape[1])]))
    return xr.DataArray(held, dims=("presentation", "neuroid"), coords=named)


# Conventions


@pytest.mark.parametrize("dims", SHAPES, ids="-".join)
def test_each_declared_shape_is_an_assembly_in_any_order_of_its_dimensions(
    dims: tuple[str, ...],
) -> None:
    assembly = of_shape(dims)
    assert check(assembly) is assembly
    check(assembly.transpose(*reversed(dims)))
    for dim in dims:
        if dim in KEYS:
            with pytest.raises(
                AssemblyError,
                match=f"^x: dimension '{dim}' has no coordinate '{KEYS[dim]}'",
            ):
                check(assembly.drop_vars(KEYS[dim]), name="x")


def test_every_broken_rule_is_named_at_once() -> None:
    with pytest.raises(AssemblyError) as caught:
        check(xr.DataArray(np.zeros((0, 2)), dims=("presentation", "unit")))
    words = str(caught.value)
    assert words.startswith(
        "assembly: dimensions are (presentation, unit), not (presentation, neuroid) or ("
    )
    assert words.endswith(
        "(subject, condition); dimension 'presentation' is empty; "
        "dimension 'presentation' has no coordinate 'stimulus_id'"
    )
    bins = of_shape(("presentation", "neuroid", "time_bin"))
    for key in ("time_bin_start", "time_bin_end"):
        with pytest.raises(
            AssemblyError, match=rf"no coordinate '{key}' \(ms from stimulus onset\)$"
        ):
            check(bins.drop_vars(key))
    with pytest.raises(AssemblyError, match=r"^assembly: neuroid_id is not unique$"):
        check(responses(["a", "b"]).assign_coords(neuroid_id=("neuroid", ["n", "n"])))
    check(responses(["a", "a"]))  # a stimulus may be shown twice
    two = responses(["a", "b"]).assign_coords(
        both=(("presentation", "neuroid"), np.ones((2, 2)))
    )
    with pytest.raises(
        AssemblyError, match=r"^assembly: coordinate 'both' has several dimensions$"
    ):
        check(two)
    with pytest.raises(
        AssemblyError,
        match=r"^assembly: values have type datetime64\[ns\], which is neither numeric nor text$",
    ):
        check(responses(["a"]).astype("datetime64[ns]"))
    for plain in (int, bool, np.float32, np.str_, np.bytes_, object):
        check(responses(["a"]).astype(plain))


@pytest.mark.parametrize(
    "missing",
    [
        ["a", ""],
        np.array(["a", None], dtype=object),
        [1.0, np.nan],
        np.array(["a", np.nan], dtype=object),
    ],
    ids=repr,
)
def test_identifiers_may_not_be_missing_but_descriptions_may(missing: Any) -> None:
    whole = responses(["a", "b"])
    for key in ("stimulus_id", "repetition", "subject"):
        with pytest.raises(
            AssemblyError, match=f"^assembly: coordinate '{key}' has missing values$"
        ):
            check(whole.assign_coords({key: ("presentation", missing)}))
    with pytest.raises(
        AssemblyError, match="coordinate 'neuroid_id' has missing values"
    ):
        check(whole.assign_coords(neuroid_id=("neuroid", missing)))
    check(whole.assign_coords(age=("presentation", missing)))
    check(
        whole.assign_coords(
            repetition=("presentation", [0, 1]),
            subject=("presentation", np.array(["s", 1], object)),
        )
    )


# Repetitions


def test_repetitions_are_averaged_as_groups_of_a_table_are() -> None:
    rng = np.random.default_rng(0)
    count = 60
    rows = pd.DataFrame(
        {
            "stimulus_id": rng.choice(list("edcab"), count),
            "view": rng.integers(0, 3, count),
        }
    )
    values = rng.standard_normal((count, 3))
    values[rng.random((count, 3)) < 0.3] = np.nan
    assembly = responses(
        list(rows["stimulus_id"]),
        values,
        view=rows["view"],
        repetition=np.arange(count),
    )
    assembly = assembly.assign_coords(region=("neuroid", ["V4", "IT", "IT"]))
    assembly.attrs, assembly.name = {"units": "Hz"}, "mine"
    got = average_repetitions(assembly)
    expected = (
        pd.concat([rows, pd.DataFrame(values)], axis=1)
        .groupby(["stimulus_id", "view"])
        .mean()
    )
    np.testing.assert_allclose(got.values, expected.to_numpy(), rtol=1e-12)
    assert (
        got["stimulus_id"].values.tolist()
        == expected.index.get_level_values(0).tolist()
    )
    assert got["view"].values.tolist() == expected.index.get_level_values(1).tolist()
    assert "repetition" not in got.coords and got["region"].values.tolist() == [
        "V4",
        "IT",
        "IT",
    ]
    assert (
        got.attrs == {"units": "Hz"}
        and got.name == "mine"
        and got.dims == assembly.dims
    )
    last = average_repetitions(assembly.transpose("neuroid", "presentation"))
    assert last.dims == ("presentation", "neuroid") and np.array_equal(
        last.values, got.values, equal_nan=True
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int16", "float64"),
        ("bool", "float64"),
    ],
)
def test_means_are_of_single_precision_where_the_values_are_and_of_double_otherwise(
    given: str, kept: str
) -> None:
    got = average_repetitions(
        responses(["b", "a", "b"], np.array([[1], [1], [0]], dtype=given))
    )
    assert got.dtype == kept and got.values.tolist() == [[1.0], [0.5]]
    assert got["stimulus_id"].values.tolist() == ["a", "b"]


def test_a_mean_of_nothing_is_missing_and_labels_of_several_types_are_sorted_as_text() -> (
    None
):
    ids = np.array(["b", 10, 9, 10], dtype=object)
    got = average_repetitions(
        responses(ids, [[1.0, 2], [np.nan, 3], [4, 5], [np.nan, 7]])
    )  # type: ignore[arg-type]
    assert got["stimulus_id"].values.tolist() == [10, 9, "b"]
    assert np.array_equal(got.values, [[np.nan, 5], [4, 5], [1, 2]], equal_nan=True)


# Rows of stimuli


def test_each_id_gets_its_row_whatever_type_names_it_and_the_kth_time_its_kth() -> None:
    assembly = responses([7, 8, 7, 9])
    assert rows_of(assembly, np.array(["9", 8, b"9", 9.0], dtype=object)).tolist() == [
        3,
        1,
        3,
        3,
    ]
    assert rows_of(assembly, np.array([7.0, 9.0, 7.0])).tolist() == [0, 3, 2], (
        "the k-th with the k-th"
    )
    assert rows_of(assembly, []).tolist() == []
    assert rows_of(assembly, [8, 8, 8]).tolist() == [1, 1, 1], (
        "one row stands for every occurrence"
    )


def test_ids_without_rows_are_counted_and_the_first_three_named() -> None:
    assembly = responses(["a", "b"])
    with pytest.raises(
        AssemblyError,
        match=r"^source has no rows for 1 of 2 stimuli \('z'\); both sides must",
    ):
        rows_of(assembly, ["a", "z", "z"])
    with pytest.raises(
        AssemblyError,
        match=r"^mine has no rows for 3 of 4 stimuli \('z', 'y', 'x'\); both",
    ):
        rows_of(assembly, ["z", "y", "a", "x"], name="mine")
    with pytest.raises(AssemblyError, match=r"4 of 4 stimuli \('z', 'y', 'x', …\);"):
        rows_of(assembly, ["z", "y", "x", "w"])
    words = "source: stimulus 'a' has 2 rows, but {} on the other side; average repetitions first"
    for asked in (["a", "a", "a", "b"], ["a"]):
        with pytest.raises(AssemblyError, match=f"^{words.format(asked.count('a'))}$"):
            rows_of(responses(["a", "b", "a"]), asked)


# Selection


def test_selecting_by_an_unknown_coordinate_lists_the_known_ones() -> None:
    assembly = responses(["a", "b"], size=[1, 2])
    with pytest.raises(
        AssemblyError,
        match=r"^x: cannot select by 'colour'; coordinates are stimulus_id, size, neuroid_id$",
    ):
        select(assembly, {"colour": 1}, name="x")
    with pytest.raises(
        AssemblyError,
        match=r"^assembly: cannot select by 'one', which has 0 dimensions, not 1$",
    ):
        select(assembly.assign_coords(one=3), {"one": 3})
    with pytest.raises(
        AssemblyError,
        match=r"^select size: unknown keys \['least', 'most'\]; use min, max, above, below",
    ):
        select(assembly, {"size": {"most": 2, "least": 1}})
    many = responses([f"i{n}" for n in range(9)])
    with pytest.raises(
        AssemblyError, match=r"the values are i0, i1, i2, i3, i4, i5, i6, i7, …$"
    ):
        select(many, {"stimulus_id": []})
    with pytest.raises(
        AssemblyError, match=r"the values are i0, i1, i2, i3, i4, i5, i6, i7$"
    ):
        select(many.isel(presentation=slice(8)), {"stimulus_id": []})
    with pytest.raises(
        AssemblyError,
        match=r"select stimulus_id: not: no row has 'img' \(did you mean 'image'\?\);",
    ):
        select(responses(["image"]), {"stimulus_id": {"not": ("img",)}})


def test_conditions_hold_together_and_on_any_dimension() -> None:
    assembly = responses(list("abcd"), size=[1, 2, 3, 4])
    got = select(assembly, {"size": {"above": 1, "max": 3}, "neuroid_id": "n1"})
    assert got["stimulus_id"].values.tolist() == ["b", "c"] and got.values.tolist() == [
        [3.0],
        [5.0],
    ]
    assert select(assembly, {}) is assembly
    assert select(assembly, {"size": {"min": 2, "below": 4}})[
        "size"
    ].values.tolist() == [2, 3]
    assert select(assembly, {"size": ("1", 4.0)})["size"].values.tolist() == [1, 4]
    with pytest.raises(AssemblyError, match=r"^assembly: nothing has size = "):
        select(assembly, {"size": {"not": [1, 2, 3, 4]}})


def test_a_selection_of_a_memory_map_is_a_view_or_a_copy_that_is_on_the_disk_if_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(8.0).tofile(tmp_path / "x")
    on_disk = responses(
        list("abcd"), np.memmap(tmp_path / "x", dtype=float, mode="r", shape=(4, 2))
    )
    near = select(on_disk, {"stimulus_id": ["b", "c"]})
    assert near.values.tolist() == [[2.0, 3.0], [4.0, 5.0]] and np.shares_memory(
        near.values, on_disk.values
    )
    far = {"stimulus_id": ["a", "d"]}
    assert select(on_disk, far).values.tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert mapped(select(on_disk, far).values) is None
    monkeypatch.setattr(memory, "LARGE", 8)
    monkeypatch.setattr(memory, "BLOCK", 8)
    wide = responses(
        list("abcd"), np.memmap(tmp_path / "x", dtype="f4", mode="r", shape=(4, 3))
    )
    for whole, part in ((on_disk, far), (wide, {"neuroid_id": ["n0", "n2"]})):
        copied = select(whole, part)
        plain = select(whole.copy(data=np.array(whole.values)), part)
        assert mapped(copied.values) is not None
        assert not np.shares_memory(copied.values, whole.values)
        assert not copied.values.flags.writeable
        xr.testing.assert_identical(copied, plain)
    store = current_store()
    assert store.entries() == []
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", "8 B")
    assert mapped(select(on_disk, far).values) is None  # no room in the store


# Content


def test_the_content_hash_depends_only_on_dimensions_values_and_coordinates() -> None:
    assembly = responses(
        ["a", "b"], np.array([[1, 2], [3, 4]], dtype=np.int16), age=[1.5, 2.5]
    )
    parts = [
        b"presentation|neuroid",
        b"\x01|('presentation', 'neuroid')|<i2|(2, 2)\x01",
        np.array([1, 2, 3, 4], "<i2").tobytes(),
        b"\x01age|('presentation',)|<f8|(2,)\x01",
        np.array([1.5, 2.5], "<f8").tobytes(),
        b"\x01neuroid_id|('neuroid',)|text|(2,)\x01",
        b"n0\x00n1",
        b"\x01stimulus_id|('presentation',)|text|(2,)\x01",
        b"a\x00b",
    ]
    expected = hashlib.sha256(b"".join(parts)).hexdigest()
    same = assembly.copy()
    same.name, same.attrs = "other", {"a": 1}
    same["stimulus_id"] = ("presentation", np.array(["a", "b"], dtype=object))
    assert content_sha256(assembly) == content_sha256(same) == expected
    assert content_sha256(assembly.astype(">i2").astype("<i2")) == expected
    others = [
        assembly.astype(np.int32),
        assembly + 1,
        assembly.isel(presentation=[1, 0]),
        assembly.drop_vars("age"),
        assembly.transpose(),
        assembly.assign_coords(age=("presentation", [1.5, 2.0])),
        assembly.assign_coords(stimulus_id=("presentation", ["ab", ""])),
    ]
    assert len({expected, *map(content_sha256, others)}) == 1 + len(others)


# Files


def test_a_file_gives_the_assembly_back_and_the_same_assembly_the_same_bytes(
    tmp_path: Path,
) -> None:
    assembly = responses(["a", "b", "c"], np.zeros((3, 4000)), age=[1.5, 2.5, 3.5])
    assembly.attrs = {"units": "Hz"}
    write(assembly, tmp_path / "x.nc")
    write(assembly.copy(), tmp_path / "y.nc")
    assert (tmp_path / "x.nc").read_bytes() == (tmp_path / "y.nc").read_bytes()
    got = read(tmp_path / "x.nc")
    assert got.name == "data" and got.attrs == {"units": "Hz"} and got.equals(assembly)
    assert content_sha256(got) == content_sha256(assembly) and assembly.name is None
    with xr.open_dataset(tmp_path / "x.nc") as opened:
        said = opened["data"].encoding
        assert (said["zlib"], said["complevel"], said["shuffle"]) == (True, 4, True)
    write(
        xr.DataArray(
            ["x", "y"],
            dims="presentation",
            coords={"stimulus_id": ("presentation", ["a", "b"])},
        ),
        tmp_path / "text.nc",
    )
    assert read(tmp_path / "text.nc").values.tolist() == ["x", "y"]


def test_a_file_of_several_variables_says_which_is_the_assembly_and_counters_are_no_coordinates(
    tmp_path: Path,
) -> None:
    values = ("presentation", [1.0, 2.0])
    coords = {"stimulus_id": ("presentation", ["a", "b"]), "presentation": [0, 1]}
    xr.Dataset({"other": values, "data": values}, coords).to_netcdf(tmp_path / "two.nc")
    got = read(tmp_path / "two.nc")
    assert got.values.tolist() == [1.0, 2.0] and set(got.coords) == {"stimulus_id"}
    xr.Dataset({"mine": values}, {**coords, "presentation": [0.5, 1.5]}).to_netcdf(
        tmp_path / "one.nc"
    )
    assert set(read(tmp_path / "one.nc").coords) == {"stimulus_id", "presentation"}, (
        "only counters are dropped"
    )
    assert read(tmp_path / "one.nc").name == "data"
    xr.Dataset({"a": values, "b": values}).to_netcdf(tmp_path / "none.nc")
    words = r"none.nc contains 2 variables \(a, b\); call the assembly 'data'"
    with pytest.raises(AssemblyError, match=f"^{words}$"):
        read(tmp_path / "none.nc")
    (tmp_path / "bad.nc").write_bytes(b"no netCDF")
    with pytest.raises(
        AssemblyError,
        match=r"^bad\.nc cannot be read as netCDF \(.*\): it is damaged or incomplete",
    ):
        read(tmp_path / "bad.nc")
    with pytest.raises(AssemblyError, match=r"^gone\.nc cannot be read as netCDF"):
        read(tmp_path / "gone.nc")


def test_large_assemblies_are_read_in_blocks_that_cover_all_of_it(
    tmp_path: Path,
) -> None:
    assembly = responses([str(i) for i in range(10)])  # 16 bytes for each presentation
    write(assembly, tmp_path / "x.nc")

    def lengths(whole: int, dim: str = "presentation") -> list[int]:
        blocks = list(read_blocks(tmp_path / "x.nc", dim, whole))
        if dim in assembly.dims:
            assert xr.concat(blocks, "presentation").equals(assembly)
        return [block.sizes["presentation"] for block in blocks]

    assert lengths(160) == [10] and lengths(1, "time_bin") == [10]
    assert lengths(159) == [2, 2, 2, 2, 2] and lengths(4 * 48) == [10]
    assert lengths(1) == [1] * 10


def test_a_failed_write_is_one_error_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.nc"
    write(responses(["a"]), path)
    before = path.read_bytes()
    with pytest.raises(
        AssemblyError,
        match=r"^x\.nc cannot be written: .*; use plain coordinates of one type",
    ):
        write(responses(["a"]).assign_attrs(what=object()), path)

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("NetCDF: HDF error")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", full)
    with pytest.raises(
        DataError,
        match=r"x\.nc cannot be written \(NetCDF: HDF error\); free space on that disk or correct",
    ):
        write(responses(["a"]), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
