"""How well other people, or a half of the trials, predict which conditions are difficult."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracies import table_of_people, tabulate
from neuroledger.families.behavior.agreement.confusions import rows_pearson
from neuroledger.families.behavior.agreement.of_accuracies import (
    known_correlations,
    of_accuracies_of_people,
    stimuli_of,
)
from neuroledger.families.behavior.tasks.discrimination import FEWEST, pearson
from neuroledger.spec.registry import ceiling
from neuroledger.stats.spread import reweighted

__all__ = ["condition_accuracy", "condition_accuracy_halves"]

# Number of halves over which the influence of trials is averaged.
HALVES = 20


@ceiling("condition_accuracy", version=2, input="behaviour")
def condition_accuracy(
    assembly: xr.DataArray,
    *,
    variables: Annotated[tuple[str, ...], Field(min_length=1)] = ("condition",),
) -> xr.DataArray:
    """Return the correlation across conditions of each person's accuracies with the mean of all others: ``(subject,)``.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)``: labels with ``subject``, ``truth`` and ``variables``.
    variables
        As in the metric ``condition_accuracy``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects or three conditions, or accuracies do not vary.

    Notes
    -----
    The lower bound of a noise ceiling (Nili et al., 2014), as used by Coggan and Tong (2024).
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    accuracies = tabulate(table.correct, table)
    n, cells = accuracies.shape
    if n < 2 or cells < FEWEST:
        raise CeilingError(f"{n} subjects and {cells} conditions: at least 2 and {FEWEST} are needed")
    present = ~np.isnan(accuracies)
    filled = np.where(present, accuracies, 0.0)
    count = present.sum(axis=0) - present
    others = np.full(accuracies.shape, np.nan)
    np.divide(filled.sum(axis=0) - filled, count, out=others, where=count > 0)
    known = present & (count > 0)
    values = np.asarray([pearson(a[k], b[k]) for a, b, k in zip(accuracies, others, known, strict=True)])
    if np.isnan(values).all():
        raise CeilingError("accuracies do not vary between conditions for any person")

    def mean(accuracies: Floats, weights: Floats) -> Floats:
        known = ~np.isnan(accuracies)
        parts = [weights[:, :, None] * part for part in (np.where(known, accuracies, 0.0), known)]
        rest = [part.sum(axis=1, keepdims=True) - part for part in parts]
        rest_mean = np.full(accuracies.shape, np.nan)
        np.divide(rest[0], rest[1], out=rest_mean, where=rest[1] > 0)
        shape = (-1, accuracies.shape[2])
        r = known_correlations(accuracies.reshape(shape), rest_mean.reshape(shape)).reshape(weights.shape)
        weight = weights * ~np.isnan(r)
        return np.asarray((np.nan_to_num(r) * weight).sum(axis=1) / weight.sum(axis=1))

    out = xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    out.attrs["influence"] = lambda: of_accuracies_of_people(mean, table, stimuli_of(assembly))
    return out


@ceiling("condition_accuracy_halves", version=1, input="behaviour")
def condition_accuracy_halves(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    variables: Annotated[tuple[str, ...], Field(min_length=1)] = ("condition",),
    draws: Annotated[int, Field(ge=1)] = 100,
) -> xr.DataArray:
    """Return the corrected correlation of accuracies across conditions between random halves of trials: ``(draw,)``.

    The Spearman-Brown correction ``2r / (1 + r)`` is used because the metric compares with all trials. The published
    constant of Brain-Score comes from overlapping halves (drawn with replacement), and is not reproduced.

    Raises
    ------
    CeilingError
        There are fewer than two trials or three conditions, or accuracies do not vary.
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    size = table.correct.size
    if size < 2 or table.cells < FEWEST:
        raise CeilingError(f"{size} trials and {table.cells} conditions: at least 2 and {FEWEST} are needed")
    orders = [rng.permutation(size) for _ in range(draws)]
    cells = np.eye(table.cells)[table.cell]

    def of_order(weights: Floats, order: Indices) -> Floats:
        profiles = []
        for half in (order[: size // 2], order[size // 2 :]):
            with np.errstate(invalid="ignore", divide="ignore"):
                half_weights = weights[:, half]
                profiles.append(
                    (half_weights * table.correct[half]) @ cells[half] / (half_weights @ cells[half])
                )
        known = np.isfinite(profiles).all(axis=(0, 1))
        r = rows_pearson(*(profile[:, known] for profile in profiles))
        return np.where(r > -1, 2 * r / (1 + r), np.nan)

    values = np.concatenate([of_order(np.ones((1, size)), order) for order in orders])
    if np.isnan(values).all():
        raise CeilingError("accuracies do not vary between conditions")
    stimuli = encode(assembly["stimulus_id"].values if "stimulus_id" in assembly.coords else np.arange(size))

    def score(weights: Mapping[str, Floats]) -> Floats:
        trial_weights = weights["stimulus"][:, stimuli.codes] * weights["subject"][:, table.subject]
        return np.asarray(np.mean([of_order(trial_weights, order) for order in orders[:HALVES]], axis=0))

    influence = partial(reweighted, {"stimulus": stimuli.labels, "subject": table.subjects}, score)
    return xr.DataArray(values, dims=("draw",), attrs={"influence": influence})
