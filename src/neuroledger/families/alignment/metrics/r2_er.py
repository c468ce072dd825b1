"""Fraction of explainable variance that a readout explains, corrected for noise without a ceiling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.data.factorize import encode, first_rows
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.held_out import Estimator
from neuroledger.families.alignment.regression.influence import refit_of
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.regression.problem import Problem
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import Cells
from neuroledger.stats.splits import Split
from neuroledger.stats.spread import from_left_out
from neuroledger.stats.workspace import Workspace

__all__ = ["r2_er", "unbiased_fraction"]

FEWEST_TESTED = 5


@metric("r2_er", version=3, trials=True)
def r2_er(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Pls(),  # noqa: B008 - a frozen default
) -> xr.DataArray:
    """Squared correlation of predictions with the noiseless responses, estimated from noisy ones [pospisil2021].

    The numerator is the squared product of the centred predictions (of unit length) with the mean responses, the
    denominator the sum of squares of the mean responses; the expected contribution of noise of the measured variance is
    subtracted from both. The readout is fitted to the mean responses to the train stimuli and predicts those to the test
    stimuli.

    Parameters
    ----------
    source
        ``(presentation, neuroid)``, one row per stimulus.
    target
        ``(presentation, neuroid)`` with ``stimulus_id``; repetitions are not averaged.

    Returns
    -------
    xr.DataArray
        ``(split, neuroid)``; NaN where the responses to the test stimuli have no more variance than noise.

    Raises
    ------
    MetricError
        A stimulus was presented only once, no neuroid is complete, or a split tests on fewer than 5 stimuli.
    """
    values = np.asarray(target.transpose("presentation", "neuroid").values, dtype=np.float64)
    X = source.transpose("presentation", "neuroid").values
    coded = encode(target["stimulus_id"].values)
    count = np.bincount(coded.codes).astype(np.float64)
    if count.min() < 2:
        raise MetricError(
            f"stimulus {str(coded.labels[count.argmin()])!r} was presented once; r2_er needs two or more repetitions of "
            "every stimulus, to know the noise"
        )
    complete: Booleans = np.asarray(np.isfinite(values).all(axis=0))
    if not complete.any():
        raise MetricError("no neuroid has a response in every presentation; drop what is incomplete")
    notes = []
    if not complete.all():
        notes.append(f"{int((~complete).sum())} of {len(complete)} neuroids left out: responses are missing")
    level = np.abs(values[:, complete]).max(axis=0)
    values = values[:, complete] / np.where(level > 0, level, 1.0)
    order = np.argsort(coded.codes, kind="stable")
    starts = np.searchsorted(coded.codes[order], np.arange(len(count)))
    mean = np.add.reduceat(values[order], starts, axis=0) / count[:, None]
    squares = np.add.reduceat((values - mean[coded.codes])[order] ** 2, starts, axis=0)
    noise = squares / ((count - 1) * count)[:, None]
    parts = [Split(*(np.unique(coded.codes[rows]) for rows in split)) for split in splits]
    if (fewest := min(len(part.test) for part in parts)) < FEWEST_TESTED:
        raise MetricError(
            f"a split tests on {fewest} stimuli; r2_er needs {FEWEST_TESTED}: use fewer folds or a larger test part"
        )
    problem = Problem(X[first_rows(coded.codes, len(count))], mean, parts, workspace)
    result = np.full((len(parts), len(complete)), np.nan)
    predictions: list[tuple[Floats, Indices]] = []
    for at, (part, predicted) in enumerate(zip(parts, estimator.predictions(problem), strict=True)):
        notes.extend(note for note in predicted.notes if note not in notes)
        fractions = unbiased_fraction(
            workspace.take(predicted.values), mean[part.test], noise[part.test].mean(axis=0)
        )
        result[at, complete] = fractions
        predictions.append((workspace.take(predicted.values), part.test))
    undefined = int(np.isnan(result[:, complete]).all(axis=0).sum())
    if undefined:
        notes.append(f"{undefined} neuroids have no more variance than noise, or constant predictions")

    def cells() -> Cells:
        moves = []
        for (_, test), influence in zip(
            predictions,
            _influence([_parts_of(x, mean[test], noise[test]) for x, test in predictions]),
            strict=True,
        ):
            full = np.zeros((len(test), len(complete)))
            full[:, complete] = influence
            moves.append((test, full))
        return Cells(np.asarray(coded.labels), moves, refit=refit_of(parts, X.shape[1]))

    coords = {name: c for name, c in target.coords.items() if c.dims == ("neuroid",)}
    return xr.DataArray(
        result,
        dims=("split", "neuroid"),
        coords={**coords, "split": np.arange(len(parts))},
        attrs={"notes": notes, "cells": cells},
    )


def unbiased_fraction(predicted: Floats, measured: Floats, noise: Floats) -> Floats:
    """Corrected squared correlation of each column (stimulus × column); ``noise`` is the variance of noise in the means."""
    x, y = predicted - predicted.mean(axis=0), measured - measured.mean(axis=0)
    size = (x * x).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        product = (x * y).sum(axis=0) ** 2 / size - noise
        total = (y * y).sum(axis=0) - (len(y) - 1) * noise
        return np.where((size > 0) & (total > 0), product / total, np.nan)


def _influence(parts: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
    """Influence of each test stimulus on the fraction of its part, weighted 1/n (stimulus × column).

    The slopes are pooled over all parts, because the variance of a single part without noise may be close to 0.
    """
    product, total = (
        sum(values.mean(axis=0) for values in terms) / len(parts) for terms in zip(*parts, strict=True)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        influences = [(from_left_out(xy) - product / total * from_left_out(yy)) / total for xy, yy in parts]
    return [np.where(total > 0, values, 0.0) for values in influences]


def _parts_of(predicted: Floats, measured: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Numerator and denominator with each stimulus left out in turn, computed from sums (stimulus × column)."""
    n = len(measured)
    x, y = predicted - predicted.mean(axis=0), measured - measured.mean(axis=0)
    rest = (noise.sum(axis=0) - noise) / (n - 1)
    xy, xx, yy = ((a * b).sum(axis=0) - a * b * n / (n - 1) for a, b in ((x, y), (x, x), (y, y)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(xy**2 / xx) - rest, yy - (n - 2) * rest
