"""Labels as integers: the codes give the column back, whatever its type."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.data.factorize import (
    coordinate,
    encode,
    first_rows,
    locate,
    repeated,
    words,
)


@given(st.lists(st.text(max_size=9), min_size=1, max_size=40))
def test_text_is_encoded_as_numpy_sorts_it(words):
    for column in (np.array(words), np.array(words, dtype=object)):
        labels, codes = np.unique(column, return_inverse=True)
        got = encode(column)
        assert got.labels.tolist() == labels.tolist()
        np.testing.assert_array_equal(got.codes, codes)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40))
def test_numbers_are_encoded_in_order(numbers):
    got = encode(np.array(numbers))
    assert got.labels[got.codes].tolist() == numbers
    assert (np.diff(got.labels) > 0).all()


def test_types_meet_as_text():
    np.testing.assert_array_equal(
        locate([3, 1, 7], np.array(["1", "2", "3"])), [2, 0, -1]
    )
    assert encode(np.array(["b", 1, "a"], dtype=object)).codes.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "column",
    [
        [7.0, 10.0],
        [b"7", b"10"],
        np.array([7.0, 10], dtype=object),
        np.array([b"7", "10"], dtype=object),
    ],
)
def test_numbers_and_bytes_are_the_text_that_they_look_like(column):
    np.testing.assert_array_equal(locate(column, np.array(["10", "7"])), [1, 0])
    np.testing.assert_array_equal(locate(["10", 7], column), [1, 0])


def test_bytes_are_text():
    got = encode(np.array(["b", "é", "b"]).astype(object).tolist())
    same = encode(np.char.encode(["b", "é", "b"], "utf-8"))
    assert same.labels.tolist() == got.labels.tolist() == ["b", "é"]
    np.testing.assert_array_equal(same.codes, got.codes)


@pytest.mark.parametrize(
    "column", [np.array([], dtype=str), np.array([], dtype=object)]
)
def test_nothing_is_encoded_as_nothing(column):
    assert encode(column).codes.size == 0


def test_repeated_rows_of_several_columns():
    a, b = np.array([0, 0, 1, 0]), np.array([1, 2, 1, 1])
    np.testing.assert_array_equal(repeated(a, b), [3])


def test_a_coordinate_is_the_first_that_is_there_one_value_for_each_presentation():
    assembly = xr.DataArray(
        np.zeros((3, 2)),
        dims=("presentation", "neuroid"),
        coords={
            "b": ("presentation", np.array([b"x", b"y", b"z"])),
            "c": ("presentation", [1, 2, 3]),
            "one": 7,
        },
    )
    assert coordinate(assembly, "a", "b", "c").tolist() == ["x", "y", "z"]
    assert coordinate(assembly, "c", "b").tolist() == [1, 2, 3]
    assert coordinate(assembly, "one").tolist() == [7, 7, 7]
    assert coordinate(assembly, "a") is None and coordinate(assembly) is None
    assert coordinate(
        xr.DataArray([1.0, 2.0], dims="x", coords={"x": [4, 5]}), "x"
    ).tolist() == [4, 5]


def test_words_of_a_column_are_rows_of_integers_and_each_code_has_its_first_row():
    assert words(np.array(["ab", "c"])).tolist() == [
        [ord("a") | ord("b") << 32],
        [ord("c")],
    ]
    assert words(np.array(["abc", "d"])).tolist() == [[97, 98, 99], [100, 0, 0]]
    assert words(np.array([1, 2])) is None
    assert first_rows(np.array([1, 0, 1, 2, 0]), 3).tolist() == [1, 0, 3]
    assert (
        repeated(np.array([0, 0, 1])).tolist() == [1]
        and repeated(np.array([0, 1]), np.array([1, 0])).size == 0
    )
    assert repeated(np.array([0, 2, 0]), np.array([2, 0, 2])).tolist() == [2]
    assert (
        locate([], ["a"]).tolist() == []
        and locate(["b", "a"], ["a", "b"]).dtype == np.intp
    )


def test_rows_are_told_apart_among_very_many_combinations():
    many = np.full(4, 2_000_000)
    assert repeated(many, many, np.array([0, 1, 0, 2_000_000])).tolist() == [2]
