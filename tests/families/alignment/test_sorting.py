"""The order of many numbers: it sorts any of them, as the order of NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from neuroledger.data.arrays import Floats, floats
from neuroledger.families.alignment.similarity.sorting import order_of

ANY = st.floats(width=64, allow_subnormal=True)
CLOSE = st.integers(0, 40).map(lambda steps: 1.0 + steps * 2.0**-52)
TIED = st.sampled_from([0.0, -0.0, 0.5, 1.0])


@given(
    arrays(np.float64, st.integers(0, 60), elements=st.one_of(ANY, CLOSE, TIED))
    | arrays(np.float64, st.integers(0, 60), elements=st.one_of(CLOSE, TIED))
)
def test_any_numbers_are_sorted_and_each_is_there_once(values: Floats) -> None:
    order = order_of(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    np.testing.assert_array_equal(values[order], np.sort(values))


@pytest.mark.parametrize("kind", ["spread", "outliers", "clusters", "ties", "tiny"])
def test_many_numbers_are_sorted_however_they_are_spread(kind: str) -> None:
    rng = np.random.default_rng(0)
    made = {
        "spread": rng.normal(1, 0.2, 100_000),
        "outliers": rng.standard_cauchy(100_000) ** 3,
        "clusters": rng.integers(0, 3, 100_000) * 1e9 + 1e-3 * rng.random(100_000),
        "ties": rng.integers(0, 50, 100_000) / 7,
        "tiny": 5e-324 * rng.integers(0, 50, 100_000),
    }
    values = floats(made[kind])
    np.testing.assert_array_equal(values[order_of(values)], np.sort(values))
