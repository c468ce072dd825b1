"""Labels as integers: the codes give the column back, whatever its type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.data.factorize import encode, locate, repeated


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
    np.testing.assert_array_equal(locate([3, 1, 7], np.array(["1", "2", "3"])), [2, 0, -1])
    assert encode(np.array(["b", 1, "a"], dtype=object)).codes.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "column",
    [[7.0, 10.0], [b"7", b"10"], np.array([7.0, 10], dtype=object), np.array([b"7", "10"], dtype=object)],
)
def test_numbers_and_bytes_are_the_text_that_they_look_like(column):
    np.testing.assert_array_equal(locate(column, np.array(["10", "7"])), [1, 0])
    np.testing.assert_array_equal(locate(["10", 7], column), [1, 0])


def test_bytes_are_text():
    got = encode(np.array(["b", "é", "b"]).astype(object).tolist())
    same = encode(np.char.encode(["b", "é", "b"], "utf-8"))
    assert same.labels.tolist() == got.labels.tolist() == ["b", "é"]
    np.testing.assert_array_equal(same.codes, got.codes)


@pytest.mark.parametrize("column", [np.array([], dtype=str), np.array([], dtype=object)])
def test_nothing_is_encoded_as_nothing(column):
    assert encode(column).codes.size == 0


def test_repeated_rows_of_several_columns():
    a, b = np.array([0, 0, 1, 0]), np.array([1, 2, 1, 1])
    np.testing.assert_array_equal(repeated(a, b), [3])
