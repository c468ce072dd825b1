"""Weighted medians, against direct computation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuroledger.stats import variation
from neuroledger.stats.variation import weighted_medians

NAN = math.nan


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0, 1.0, 1.0], 2.0),
        (
            [2.0, 1.0, 1.0],
            1 + 1 / 1.5,
        ),  # weights up to the middle of each value: 1, 2.5, 3.5; half of all is 2
        ([1.0, 1.0, 4.0], 2 + 2 * 1.5 / 2.5),  # 0.5, 1.5, 4; half of all is 3
        ([1.0, 0.0, 1.0], 2.0),
        ([9.0, 0.1, 0.1], 1 + 0.1 / 4.55),
        ([0.1, 0.1, 9.0], 4 - 2 * 0.1 / 4.55),
    ],
)
def test_a_weighted_median_is_where_half_of_the_weight_is_reached(
    weights: list[float], expected: float
) -> None:
    values, draws = np.array([4.0, 1.0, 2.0]), np.array([weights])[:, [2, 0, 1]]
    items = np.arange(4)
    found = weighted_medians(values, draws, items[:3])
    assert found == pytest.approx([expected])
    missing, weighted = np.array([NAN, 4.0, 1.0, 2.0]), np.c_[[7.0], draws]
    with_missing = weighted_medians(missing, weighted, items)
    assert with_missing == pytest.approx([expected]), (
        "the weight of a missing value does not count"
    )


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 57, 200])
def test_weighted_medians_of_many_values_agree_with_interpolation_over_all_of_them(
    count: int,
) -> None:
    rng = np.random.default_rng(count)
    values, weights = (
        rng.standard_normal((2, 3, count)),
        rng.exponential(size=(40, count)),
    )
    order = np.argsort(values, axis=-1)
    expected = np.empty((40, 2, 3))
    for at in np.ndindex(40, 2, 3):
        own = weights[at[0]][order[at[1:]]]
        expected[at] = np.interp(
            own.sum() / 2, np.cumsum(own) - own / 2, values[at[1:]][order[at[1:]]]
        )
    items = np.arange(count)
    found = weighted_medians(values, weights, items)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variation, "BLOCK", 100 * count)
        np.testing.assert_array_equal(weighted_medians(values, weights, items), found)
    equal = weighted_medians(values, np.ones((1, 1)), 0 * items)
    np.testing.assert_allclose(equal[0], np.median(values, axis=-1), atol=1e-12)


def test_a_median_of_missing_values_is_missing() -> None:
    values = np.array([[NAN, NAN], [NAN, 3.0]])
    medians = weighted_medians(values, np.ones((5, 2)), np.arange(2))
    assert (
        medians.shape == (5, 2)
        and np.isnan(medians[:, 0]).all()
        and (medians[:, 1] == 3.0).all()
    )
