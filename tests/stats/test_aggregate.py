"""Aggregation of samples, its error, and Holm's correction, compared with plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.stats.aggregate import aggregate, error_of, holm

NAN = math.nan
TABLE = np.array([[1.0, 5.0, NAN], [2.0, NAN, NAN], [6.0, -3.0, NAN], [7.0, 8.0, NAN]])
SAMPLES = xr.DataArray(TABLE, dims=("split", "neuroid"))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", (1.0 + 5.0) / 2 + 2.0 + (6.0 - 3.0) / 2 + (7.0 + 8.0) / 2),
        ("median", 3.0 + 2.0 + 1.5 + 7.5),
        ("sum", 6.0 + 2.0 + 3.0 + 15.0),
        ("max", 5.0 + 2.0 + 6.0 + 8.0),
        ("min", 1.0 + 2.0 - 3.0 + 7.0),
        ("abs_mean", 3.0 + 2.0 + 1.5 + 7.5),
    ],
)
def test_missing_values_are_skipped_along_one_dimension_after_the_other(
    how: str, expected: float
) -> None:
    assert aggregate(SAMPLES, [("neuroid", how), ("split", "sum")]) == pytest.approx(
        expected
    )
    whole = SAMPLES.isel(neuroid=[0])
    for name, plain in (
        ("mean", 4.0),
        ("median", 4.0),
        ("sum", 16.0),
        ("max", 7.0),
        ("min", 1.0),
    ):
        assert (
            aggregate(
                whole, [("time_bin", "mean"), ("neuroid", "mean"), ("split", name)]
            )
            == plain
        )
    assert math.isnan(
        aggregate(SAMPLES.isel(neuroid=[2]), [("neuroid", how), ("split", "mean")])
    )


def test_a_remaining_dimension_is_reported_with_the_declared_ones() -> None:
    with pytest.raises(
        MetricError,
        match=r"keep dimension neuroid .*\(`aggregate` names 'neuron', which they do not",
    ):
        aggregate(SAMPLES, [("neuron", "mean"), ("split", "mean")])
    with pytest.raises(MetricError, match=r"declare how to aggregate it$"):
        aggregate(SAMPLES, [("split", "mean")])


def test_an_error_is_the_deviation_after_the_preceding_steps() -> None:
    steps = [("neuroid", "mean"), ("split", "mean")]
    means = np.array([3.0, 2.0, 1.5, 7.5])
    assert error_of(SAMPLES, steps, "split", "std") == pytest.approx(means.std())
    assert error_of(SAMPLES, steps, "split", "sem") == pytest.approx(means.std() / 2)
    item = np.array([1.0, 5.0, 2.0, 6.0, -3.0, 7.0, 8.0])
    assert error_of(SAMPLES, steps, "neuroid", "sem") == pytest.approx(
        item.std() / np.sqrt(7)
    )
    assert math.isnan(error_of(SAMPLES, steps, "time_bin", "std"))
    assert math.isnan(error_of(SAMPLES.isel(split=[0]), steps, "split", "std")), (
        "one value has no deviation"
    )


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.04, 0.01], [0.04, 0.02]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02, 0.02, 0.5], [0.06, 0.06, 0.5]),
        ([0.3], [0.3]),
    ],
)
def test_holms_correction_steps_down(p: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(holm(p), expected)
