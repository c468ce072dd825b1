"""Predictions and the truth are compared row by row: rows of other stimuli, or in another order, are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import MetricError

COUNT = 30
IDS = np.array([f"window{i}" for i in range(COUNT)])
TRUTH = np.arange(COUNT) % 3
OF_NUMBERS = (
    "decoding_pearson_r",
    "decoding_r2",
    "decoding_rmse",
    "mse",
    "co_smoothing",
)
OF_LABELS = ("balanced_accuracy", "decoding_accuracy", "macro_f1")
OF_SCORES = ("auroc", "mean_average_precision")


def rows(values: Any, **coords: Any) -> xr.DataArray:
    values = np.asarray(values)
    known = {
        "stimulus_id": ("presentation", IDS),
        "subject": ("presentation", np.arange(COUNT) % 5),
    }
    return xr.DataArray(
        values, dims=("presentation", "choice")[: values.ndim], coords=known | coords
    )


def sides(name: str) -> tuple[xr.DataArray, xr.DataArray]:
    if name in OF_NUMBERS:
        return rows(0.5 + TRUTH), rows(TRUTH)
    if name in OF_LABELS:
        return rows(TRUTH), rows(TRUTH)
    return rows(np.eye(3)[TRUTH], choice=[0, 1, 2]), rows(TRUTH)


@pytest.mark.parametrize("name", [*OF_NUMBERS, *OF_LABELS, *OF_SCORES])
def test_rows_of_other_stimuli_are_refused(name: str) -> None:
    metric, (source, target) = nl.metric(name), sides(name)
    assert np.isfinite(metric(source, target).value)
    assert np.isfinite(metric(source.drop_vars("stimulus_id"), target).value)
    order = np.roll(np.arange(COUNT), 1)
    with pytest.raises(
        MetricError, match=r"row 1 is a prediction of stimulus 'window29'.*'window0'"
    ):
        metric(source[order], target)
    with pytest.raises(MetricError, match=r"20 predictions|predictions \(20"):
        metric(source[:20], target)


@pytest.mark.parametrize("name", [*OF_LABELS, *OF_SCORES])
@pytest.mark.parametrize("kind", [float, str, "S"])
def test_labels_are_the_same_as_numbers_and_as_text(name: str, kind: Any) -> None:
    metric, (source, target) = nl.metric(name), sides(name)
    assert metric(source, target.astype(kind)).value == pytest.approx(1.0)
    if name in OF_SCORES:
        other = source.assign_coords(choice=source["choice"].values.astype(kind))
    else:
        other = source.astype(kind)
    assert metric(other, target).value == pytest.approx(1.0)


def test_several_labels_of_a_row_are_scored_by_macro_f1_only() -> None:
    source, target = (
        rows(np.eye(3)[TRUTH], choice=[0, 1, 2]),
        rows(np.eye(3)[TRUTH], choice=[0, 1, 2]),
    )
    assert nl.metric("macro_f1")(source, target).value == pytest.approx(1.0)
    for name in ("balanced_accuracy", "decoding_accuracy", "auroc"):
        with pytest.raises(MetricError, match="one true label for each row"):
            nl.metric(name)(source, target)


def test_a_correlation_of_two_predictions_is_refused() -> None:
    source, target = sides("decoding_pearson_r")
    assert np.isfinite(nl.metric("decoding_pearson_r")(source[:3], target[:3]).value)
    with pytest.raises(MetricError, match="always 1 or -1"):
        nl.metric("decoding_pearson_r")(source[:2], target[:2])
