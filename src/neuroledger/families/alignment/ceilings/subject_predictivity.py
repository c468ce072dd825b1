"""Subject predictivity: prediction of each subject's responses from those of the other subjects."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field
from scipy.optimize import OptimizeWarning, curve_fit

from neuroledger.data.arrays import Floats
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.regression.held_out import (
    Correlation,
    Estimator,
    Facts,
    correlations,
)
from neuroledger.families.alignment.regression.influence import correlation_influence, refit_of
from neuroledger.families.alignment.regression.missing_trials import with_means_for_missing_trials
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.spec.registry import ceiling
from neuroledger.stats.resampling import Cells
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["extrapolated_predictivity", "subject_predictivity"]

FEWEST = 2
STEP = 0.02  # change of a mean correlation in central differences, about its error: curves near a line have steep slopes


@ceiling("subject_predictivity", version=4)
def subject_predictivity(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Ridge(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
) -> xr.DataArray:
    """Correlation of predicted and measured responses, with the other subjects in place of a model.

    For each subject, the neuroids of all other subjects are the features of ``estimator``, and the score is computed as
    for a model. A model that predicts as well as the pooled other brains reaches this ceiling, which increases with the
    number of subjects.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repeated presentations are separate rows, or were
        averaged before. The mean of the neuroid's other responses to the stimulus stands for a missing one.

    Returns
    -------
    xr.DataArray
        ``(split, neuroid)`` with ``subject``. An interval for new subjects counts them as the predicted ones only: other
        predictors would change the ceiling further.

    Raises
    ------
    CeilingError
        Fewer than two subjects have a neuroid with a response to every stimulus; subjects without such a neuroid are left
        out.
    """
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        raise CeilingError("subject predictivity needs the coordinate 'subject' on the neuroids")
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(f"subject predictivity needs (presentation, neuroid), not {tuple(assembly.dims)}")
    assembly, counted = with_means_for_missing_trials(assembly, splits)
    values = assembly.transpose("presentation", "neuroid").values
    labels = assembly["subject"].values.astype(str)
    complete = np.isfinite(values).all(axis=0)
    subjects, notes = _complete_subjects(labels, complete)
    notes = [*counted, *notes]
    if len(subjects) < FEWEST:
        raise CeilingError(
            "one subject cannot be predicted from others: subject predictivity needs at least two"
            + "".join(f" ({note})" for note in notes)
        )
    result = np.full((len(splits), values.shape[1]), np.nan)
    facts = Facts([], {}, [])
    for subject in subjects:
        others = (labels != subject) & complete
        try:
            scores = correlations(
                values[:, others],
                values[:, labels == subject],
                splits,
                workspace,
                estimator,
                correlation,
                1,
                facts,
            )
        except MetricError as error:
            raise CeilingError(f"subject {str(subject)!r}: {error}") from error
        result[:, labels == subject] = scores[:, 0]
    features = int(np.mean([((labels != subject) & complete).sum() for subject in subjects]))

    def cells() -> Cells:
        parts = []
        for at, split in enumerate(splits):  # held-out parts are ordered by subject, then by split
            full = np.zeros((len(split.test), values.shape[1]))
            for number, subject in enumerate(subjects):
                test_parts = facts.test_parts[number * len(splits) : (number + 1) * len(splits)]
                full[:, labels == subject] = correlation_influence(test_parts)[at]
            parts.append((split.test, full))
        ids = assembly["stimulus_id"].values if "stimulus_id" in assembly.coords else np.arange(len(values))
        return Cells(ids, parts, refit=refit_of(splits, features))

    coords = {name: coord for name, coord in assembly.coords.items() if coord.dims == ("neuroid",)}
    coords["split"] = xr.DataArray(np.arange(len(splits)), dims="split")
    attrs = {"notes": notes + facts.notes, "cells": cells}
    return xr.DataArray(result, dims=("split", "neuroid"), coords=coords, attrs=attrs)


def _complete_subjects(labels: np.ndarray, complete: np.ndarray) -> tuple[list[str], list[str]]:
    """Subjects that have a neuroid without missing responses, and a note about the others."""
    subjects = np.unique(labels[complete]).tolist()
    incomplete = sorted(set(labels.tolist()) - set(subjects))
    if not incomplete:
        return subjects, []
    return subjects, [
        f"{len(incomplete)} subjects without a complete neuroid were left out, first {incomplete[0]!r}"
    ]


@ceiling("extrapolated_predictivity", version=4)
def extrapolated_predictivity(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Ridge(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
    bootstraps: Annotated[int, Field(ge=1)] = 100,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> xr.DataArray:
    """Subject predictivity of each neuroid, extrapolated to infinitely many subjects: ``(neuroid,)``.

    Subject predictivity is computed in every set of 2, 3, … subjects, and ``v (1 − exp(−x / τ))`` is fitted to the means
    over sets of x subjects. The ceiling is the median of v over bootstraps of the sets and splits.

    Parameters
    ----------
    assembly
        As for :func:`subject_predictivity`.
    bootstraps, seed
        Number of bootstraps of sets and splits, and their seed, which is reset for each neuroid as in Brain-Score.

    Returns
    -------
    xr.DataArray
        ``(neuroid,)``; ``attrs["cells"]`` returns the influence of stimuli through the mean predictivities to which the
        curve is fitted.

    Raises
    ------
    CeilingError
        There are fewer than three subjects, or the curve cannot be fitted to any neuroid.

    Notes
    -----
    Schrimpf et al. (2021), as Brain-Score language computes it.
    """
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        raise CeilingError("extrapolation over subjects needs the coordinate 'subject' on the neuroids")
    labels = assembly["subject"].values.astype(str)
    rows = [dim for dim in assembly.dims if dim != "neuroid"]
    assembly, counted = with_means_for_missing_trials(assembly, splits)
    subjects, notes = _complete_subjects(labels, (~assembly.isnull()).all(rows).values)
    notes = [*counted, *notes]
    if len(subjects) < FEWEST + 1:
        details = "".join(f" ({note})" for note in notes)
        raise CeilingError(
            f"{len(subjects)} subjects: a curve over their number needs at least three{details}"
        )
    sizes = range(FEWEST, len(subjects) + 1)
    samples: dict[int, list[list[float]]] = {size: [[] for _ in labels] for size in sizes}
    count = assembly.sizes["presentation"]
    influence = np.zeros((len(sizes), count, len(labels)))
    refit = 1.0
    for number, size in enumerate(sizes):
        for chosen in combinations(subjects, size):
            columns = np.flatnonzero(np.isin(labels, chosen))
            part = subject_predictivity(
                assembly.isel(neuroid=columns),
                splits=splits,
                workspace=workspace,
                estimator=estimator,
                correlation=correlation,
            )
            for column, values in zip(columns, part.transpose("neuroid", "split").values, strict=True):
                samples[size][column] += values[np.isfinite(values)].tolist()
            cells = part.attrs["cells"]()
            refit = cells.refit  # of all subjects at last
            for rows, moves in cells.parts:
                influence[number][np.ix_(rows, columns)] += np.nan_to_num(moves)
    asymptotes = np.asarray(
        [
            _asymptote([samples[size][column] for size in sizes], sizes, bootstraps, seed)
            for column in range(len(labels))
        ]
    )
    if not np.isfinite(asymptotes).any():
        raise CeilingError("no neuroid's predictivity could be extrapolated over the number of subjects")
    coords = {name: coord for name, coord in assembly.coords.items() if coord.dims == ("neuroid",)}
    undefined = int(np.isnan(asymptotes[np.isin(labels, subjects)]).sum())
    notes += [f"{undefined} of {len(labels)} neuroids could not be extrapolated"] if undefined else []

    def cells_of_heights() -> Cells:
        known = np.flatnonzero(np.isfinite(asymptotes))
        moves = np.zeros((count, len(labels)))
        for column in known:
            values = [samples[size][column] for size in sizes]
            slopes = _slopes([float(np.mean(each)) for each in values], sizes)
            weights = slopes / [len(each) for each in values]
            moves[:, column] = np.tensordot(weights, influence[:, :, column], 1)
        ids = assembly["stimulus_id"].values if "stimulus_id" in assembly.coords else np.arange(count)
        return Cells(ids, [(np.arange(count), moves)], refit=refit)

    attrs = {"notes": notes, "cells": cells_of_heights}
    return xr.DataArray(asymptotes, dims=("neuroid",), coords=coords, attrs=attrs)


def _asymptote(samples: Sequence[Sequence[float]], sizes: Sequence[int], bootstraps: int, seed: int) -> float:
    """Median over bootstraps of the height of the fitted curve; NaN if a size has no value or no fit converges."""
    if not all(samples):
        return float("nan")
    rng = np.random.RandomState(seed)
    heights = []
    for _ in range(bootstraps):
        means = [float(np.mean(rng.choice(values, size=len(values), replace=True))) for values in samples]
        height = _height(means, sizes)
        if np.isfinite(height):
            heights.append(height)
    return float(np.median(heights)) if heights else float("nan")


def _height(means: Sequence[float], sizes: Sequence[int]) -> float:
    """Height of the curve fitted to mean predictivities by number of subjects; NaN if the fit does not converge."""
    try:
        # The covariance of the parameters is not used, and an extreme pace of an intermediate step may overflow.
        with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore", OptimizeWarning)
            (height, _), _ = curve_fit(_rise, list(sizes), means, bounds=([0, -np.inf], [1, np.inf]))
    except (RuntimeError, ValueError):
        return float("nan")
    return float(height)


def _slopes(means: Sequence[float], sizes: Sequence[int]) -> Floats:
    """Derivative of the height by the mean at each number of subjects, by central differences; 0 where it is undefined."""
    slopes = np.zeros(len(means))
    for at in range(len(means)):
        shift = np.where(np.arange(len(means)) == at, STEP, 0.0)
        ends = [_height((np.asarray(means) + sign * shift).tolist(), sizes) for sign in (1, -1)]
        slopes[at] = np.nan_to_num((ends[0] - ends[1]) / (2 * STEP))
    return slopes


def _rise(x: np.ndarray, height: float, pace: float) -> np.ndarray:
    return height * (1 - np.exp(-np.asarray(x) / pace))
