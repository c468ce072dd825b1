"""Errors of predicted numbers: squared, relative, or relative to the variance of the truth."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.errors import MetricError
from neuroledger.families.efficiency import examples
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["prediction_error"]


WORST = 200.0


@metric(
    "prediction_error", version=1, input="predictions", example=examples.of_forecasts
)
def prediction_error(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Literal["mse", "rmse", "smape", "r2"] = "mse",
    series: str | None = None,
    horizon: str | None = None,
    within: PositiveFloat | None = None,
) -> Samples:
    r"""Error of predicted numbers, one value per series (or one in total).

    ``mse``: :math:`\overline{(p-t)^2}`; ``rmse``: its root, taken for each series; ``smape``:
    :math:`200\,\overline{|p-t|/(|p|+|t|)}`, from 0 to 200; ``r2``: :math:`1 - \sum(p-t)^2/\sum(t-\bar t)^2`, the mean
    over outputs. For sMAPE, 0/0 is 0, and a prediction that is not finite scores 200 and leaves the others unaffected;
    in NeuroBench, either invalidates the whole batch. The other measures refuse predictions that are not finite.

    Parameters
    ----------
    source, target
        Predictions and truth, ``(presentation,)`` or ``(presentation, output)``, in the same order.
    series
        A coordinate of the presentations: each of its values is scored separately.
    horizon, within
        A coordinate with the horizon of each prediction, and the largest horizon that counts.

    Returns
    -------
    Samples
        Values ``(series,)``; a single series if ``series`` is None.

    Raises
    ------
    MetricError
        Shapes differ, there is nothing to compare, predictions are not finite, or a truth does not vary (r2).
    """
    predicted = _columns(source)
    true = _columns(target)
    if predicted.shape != true.shape:
        raise MetricError(
            f"predictions {predicted.shape} for a truth {true.shape}: the shapes must be the same"
        )
    if isinstance(source, xr.DataArray) and isinstance(target, xr.DataArray):
        require_same_rows(source, target)
    selected = np.ones(len(true), dtype=bool)
    if horizon is not None and within is not None:
        selected = _along(target, horizon).astype(np.float64) <= within + 1e-9
    if series is not None:
        names = _along(target, series)
    else:
        names = np.full(len(true), "all")
    if not selected.any():
        raise MetricError(
            "there are no predictions to compare"
            + (f" within {within} {horizon}" if horizon else "")
        )
    notes = []
    diverged = int((~np.isfinite(predicted[selected])).sum())
    if diverged and measure != "smape":
        raise MetricError(f"{diverged} predictions are not finite: the model diverged")
    if diverged:
        notes.append(f"{diverged} predictions are not finite; each counts as {WORST:g}")
    labels = np.unique(names[selected])
    values = [
        _measured(
            measure,
            predicted[selected & (names == name)],
            true[selected & (names == name)],
        )
        for name in labels
    ]
    samples = xr.DataArray(
        np.array(values), dims=("series",), coords={"series": labels.astype(str)}
    )
    # Steps of a series depend on one another; only series are a sample of others.
    return Samples(
        samples,
        Variation({}, lambda _: samples),
        counts={"predictions": int(selected.sum())},
        notes=notes,
    )


def _measured(measure: str, predicted: Floats, true: Floats) -> float:
    if measure == "smape":
        return float(relative_error(predicted, true).mean())
    if measure == "r2":
        return coefficient_of_determination(predicted, true)
    error = float(np.mean((predicted - true) ** 2))
    if measure == "rmse":
        return float(np.sqrt(error))
    return error


def relative_error(predicted: Floats, true: Floats) -> Floats:
    """Return ``200 |p-t| / (|p|+|t|)`` of each value: 0 where both are 0, 200 where the prediction is not finite."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        errors = WORST * np.abs(predicted - true) / (np.abs(predicted) + np.abs(true))
    errors = np.where((predicted == 0) & (true == 0), 0.0, errors)
    return np.where(np.isfinite(predicted), errors, WORST)


def coefficient_of_determination(predicted: Floats, true: Floats) -> float:
    """Return the mean over outputs of ``1 - SSE / SST``, for ``(presentation, output)``.

    Raises
    ------
    MetricError
        An output's truth does not vary.
    """
    spread = ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    if (spread == 0).any():
        raise MetricError("r2 is undefined: the truth does not vary")
    return float(np.mean(1 - ((predicted - true) ** 2).sum(axis=0) / spread))


def _columns(array: xr.DataArray) -> Floats:
    values = floats(getattr(array, "values", array))
    if values.ndim == 0 or values.size == 0:
        raise MetricError("there are no predictions to compare")
    return values.reshape(len(values), -1)


def _along(array: xr.DataArray, name: str) -> Array:
    if (
        not isinstance(array, xr.DataArray)
        or name not in array.coords
        or array[name].ndim != 1
    ):
        raise MetricError(f"the truth has no coordinate {name!r} on its presentations")
    return np.asarray(array[name].values)
