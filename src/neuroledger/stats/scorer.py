"""Metrics as scorers of scikit-learn: estimator, inputs and true values become one number, of which more is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.stats.score import Score

__all__ = ["Scorer"]


@dataclass(frozen=True)
class Scorer:
    """A scorer for ``scoring=`` of scikit-learn: ``cross_val_score(estimator, X, y, scoring=scorer)``.

    Attributes
    ----------
    metric
        Called with predictions and true values.
    takes
        ``predictions`` for labels or numbers with one row per sample, otherwise responses ``(sample, output)``.
    direction
        That of the metric; a value of which less is better is negated, as scikit-learn does.
    """

    metric: Callable[[Any, Any], Score]
    takes: str
    direction: Literal["higher", "lower"]

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the score of the predictions for ``X`` ``(sample, …)`` against ``y`` ``(sample,)`` or ``(sample, output)``.

        Raises
        ------
        MetricError
            The metric cannot be computed from these predictions.
        """
        true = np.asarray(y)
        if self.takes != "predictions":
            predicted = np.asarray(estimator.predict(X))
            score = self.metric(_columns(predicted), _columns(true))
        elif hasattr(estimator, "classes_"):
            score = self.metric(_class_scores(estimator, X), _rows(true.astype(str)))
        else:
            predicted = np.asarray(estimator.predict(X))
            score = self.metric(_rows(predicted), _rows(true))
        return score.value if self.direction == "higher" else -score.value


def _columns(values: Array) -> Array:
    """Return values with one column if they have none."""
    return values[:, None] if values.ndim == 1 else values


def _rows(values: Array) -> xr.DataArray:
    """Return one label, number or row of numbers per sample, as metrics of predictions take them."""
    return xr.DataArray(values, dims=("presentation", "neuroid")[: values.ndim])


def _class_scores(estimator: Any, X: Any) -> xr.DataArray:
    """Return the scores (sample, class) of a classifier; without scores, 1 for the class that it predicts."""
    classes = np.asarray(estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.predict_proba(X))
    elif hasattr(estimator, "decision_function"):
        margin = np.asarray(estimator.decision_function(X))
        scores = np.stack([-margin, margin], axis=1) if margin.ndim == 1 else margin
    else:
        scores = (np.asarray(estimator.predict(X))[:, None] == classes).astype(float)
    choices = {"choice": classes.astype(str)}
    return xr.DataArray(scores, dims=("presentation", "choice"), coords=choices)
