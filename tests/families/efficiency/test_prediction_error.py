"""Errors of numbers and average precision, compared with scikit-learn, closed forms and NeuroBench's edge cases."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, mean_squared_error, r2_score

from neuroledger.errors import MetricError
from neuroledger.families.efficiency.metrics.average_precision import (
    average_precision,
    box_overlap,
    detection_average_precision,
)
from neuroledger.families.efficiency.metrics.prediction_error import prediction_error


def numbers(values, **coords):
    values = np.asarray(values, dtype=float)
    dims = ("presentation", "output")[: values.ndim]
    return xr.DataArray(
        values,
        dims=dims,
        coords={name: ("presentation", v) for name, v in coords.items()},
    )


def error(source, target, measure):
    return prediction_error(source, target, measure=measure).values.item()


def test_errors_equal_scikit_learns():
    rng = np.random.default_rng(0)
    p, t = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    assert error(numbers(p), numbers(t), measure="mse") == pytest.approx(
        mean_squared_error(t, p)
    )
    assert error(numbers(p), numbers(t), measure="rmse") == pytest.approx(
        mean_squared_error(t, p) ** 0.5
    )
    assert error(numbers(p), numbers(t), measure="r2") == pytest.approx(r2_score(t, p))


def test_smape_is_200_times_the_difference_over_the_sum():
    assert error(numbers([1.0]), numbers([3.0]), measure="smape") == 100.0


def test_zeros_and_infinities_do_not_affect_other_predictions():
    perfect = numbers([0.0, 1.0, 2.0, 0.0])
    assert error(perfect, perfect, measure="smape") == 0.0
    predicted = numbers([np.inf, 1.0, np.nan, 4.0])
    score = prediction_error(predicted, numbers([5.0, 1.0, 2.0, 4.0]), measure="smape")
    assert score.values.item() == 100.0
    assert "2 predictions are not finite" in score.notes[0]
    with pytest.raises(MetricError, match="not finite"):
        prediction_error(predicted, perfect, measure="mse")


@given(st.integers(1, 30), st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_smape_is_between_0_and_200(rows, outputs):
    rng = np.random.default_rng(rows)
    p, t = rng.normal(size=(rows, outputs)), rng.normal(size=(rows, outputs))
    assert 0 <= error(numbers(p), numbers(t), measure="smape") <= 200


def test_series_are_scored_separately_up_to_the_horizon():
    truth = numbers(
        [1.0, 1.0, 1.0, 1.0], series=["a", "a", "b", "b"], horizon=[0.5, 1.0, 0.5, 2.0]
    )
    predicted = numbers([1.0, 2.0, 3.0, 9.0])
    whole = prediction_error(predicted, truth, measure="mse", series="series")
    assert whole.values.values.tolist() == [0.5, 34.0]
    near = prediction_error(
        predicted, truth, measure="mse", series="series", horizon="horizon", within=1.0
    )
    assert near.values.values.tolist() == [0.5, 4.0]


def test_shapes_must_be_the_same():
    with pytest.raises(MetricError, match="same"):
        prediction_error(numbers([1.0, 2.0]), numbers([1.0]))
    with pytest.raises(MetricError, match="does not vary"):
        prediction_error(numbers([1.0, 2.0]), numbers([1.0, 1.0]), measure="r2")


def test_average_precision_equals_scikit_learns_including_ties():
    rng = np.random.default_rng(1)
    scores, truth = rng.random((200, 4)).round(1), rng.integers(0, 3, 200)
    source = xr.DataArray(
        scores, dims=("presentation", "choice"), coords={"choice": list("0123")}
    )
    score = average_precision(
        source, xr.DataArray(truth.astype(str), dims="presentation")
    )
    expected = [average_precision_score(truth == i, scores[:, i]) for i in range(3)]
    assert score.values.values == pytest.approx(expected)
    assert "never the truth" in score.notes[0]


def boxes(rows, **coords):
    coords = {name: ("presentation", list(values)) for name, values in coords.items()}
    return xr.DataArray(
        np.array(rows, dtype=float).reshape(-1, 4),
        dims=("presentation", "corner"),
        coords=coords,
    )


def test_boxes_overlap_by_intersection_over_union():
    box = np.array([0.0, 0.0, 2.0, 2.0])
    others = np.array([[0, 0, 2, 2], [1, 0, 3, 2], [2, 2, 3, 3]], dtype=float)
    assert box_overlap(box, others) == pytest.approx([1, 1 / 3, 0])


def test_a_true_box_is_matched_once_in_order_of_scores():
    truth = boxes([[0, 0, 2, 2], [4, 4, 6, 6]], scene=["s", "s"], label=["car", "car"])
    perfect = boxes(
        truth.values, scene=["s", "s"], label=["car", "car"], score=[0.9, 0.8]
    )
    assert detection_average_precision(perfect, truth).values.values == pytest.approx(1)
    twice = boxes(
        [[0, 0, 2, 2]] * 2, scene=["s", "s"], label=["car", "car"], score=[0.9, 0.8]
    )
    # half of the boxes found: precision 1 at the 51 recalls up to one half
    assert detection_average_precision(
        twice, truth, overlaps=[0.5]
    ).values.values == pytest.approx(51 / 101)
    elsewhere = boxes(
        truth.values, scene=["t", "t"], label=["car", "car"], score=[0.9, 0.8]
    )
    assert detection_average_precision(elsewhere, truth).values.values == pytest.approx(
        0
    )
    nothing = boxes([], scene=[], label=[], score=[])
    assert detection_average_precision(nothing, truth).values.values == pytest.approx(0)
