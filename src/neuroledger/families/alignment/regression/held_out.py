"""Held-out correlation of a readout's predictions with the measured responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.best_unit import BestUnit
from neuroledger.families.alignment.regression.linear import Linear
from neuroledger.families.alignment.regression.mask import Mask
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.regression.problem import (
    Problem,
    Readout,
    column_correlation,
)
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv
from neuroledger.families.alignment.similarity.gram import has_usual_units
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.models.activations import as_recorded
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = [
    "Correlation",
    "Estimator",
    "Facts",
    "HeldOutPart",
    "MapEstimator",
    "correlations",
]

Estimator = Annotated[
    Pls | Ridge | RidgeCv | Linear | BestUnit, Field(discriminator="name")
]
# Includes estimators that need feature maps, which only models have.
MapEstimator = Annotated[
    Pls | Ridge | RidgeCv | Linear | BestUnit | Mask, Field(discriminator="name")
]
Correlation = Literal["pearson", "spearman"]

# With fewer test presentations, any correlation is 1 or -1.
FEWEST_TESTED = 3
# Predictions of equal rows, as of a stimulus entered twice, may differ by this share of the target's level.
ULPS = 4 * float(np.finfo(np.float64).eps)


class _Usable(NamedTuple):
    """Mask of the target's columns that can be predicted, and notes about the others."""

    columns: Booleans
    notes: tuple[str, ...]


class HeldOutPart(NamedTuple):
    """Predictions and responses (row, target) of one split and time bin; for rank correlations, their ranks.

    ``rows`` are numbers of rows of the target, ``columns`` the usable targets, ``r`` their correlations, and ``ranked``
    whether ``predicted`` and ``measured`` are ranks.
    """

    rows: Indices
    predicted: Floats
    measured: Floats
    r: Floats
    columns: Booleans
    ranked: bool


class Facts(NamedTuple):
    """Additional results: notes for the reader, chosen penalties (split × bin × target), and the held-out predictions."""

    notes: list[str]
    penalties: list[Floats]
    test_parts: list[HeldOutPart]


def correlations(
    X: Array,
    Y: Array,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Readout,
    correlation: Correlation,
    bins: int,
    facts: Facts,
) -> Floats:
    """Correlation of predicted and measured test responses (split × bin × target).

    ``X`` (row × feature) predicts ``Y`` (row × target); the test rows of a split consist of ``bins`` equal parts that are
    correlated separately. Targets that are constant or have missing values are NaN, and counted in the notes of ``facts``.

    Raises
    ------
    MetricError
        Features are missing, no target can be predicted, or a split tests on fewer than 3 presentations.
    """
    if X.ndim != 2 or Y.ndim != 2:
        raise MetricError(
            "regression needs (presentation, neuroid); choose `time: shared` or `separate` for time bins"
        )
    usable = _usable(Y)
    facts.notes.extend(note for note in usable.notes if note not in facts.notes)
    if not usable.columns.any():
        raise MetricError(f"no neuroid can be predicted: {'; '.join(usable.notes)}")
    Y = np.ascontiguousarray(
        Y[:, usable.columns] if not usable.columns.all() else Y, dtype=np.float64
    )
    shortest = min(len(split.test) // bins for split in splits)
    if shortest < FEWEST_TESTED:
        raise MetricError(
            f"a split tests on {shortest} presentations, where every correlation is 1 or -1 or undefined; "
            f"at least {FEWEST_TESTED} are needed: use fewer folds, a larger test part or more stimuli"
        )
    Y = moderate(Y)  # correlations ignore the targets' units
    recorded = as_recorded(X)
    by_gram = isinstance(estimator, Pls | Ridge | RidgeCv)
    if recorded is None or not by_gram or not has_usual_units(recorded, workspace):
        X = np.asarray(X)
        # The predictions of these ignore the features' units, too.
        if isinstance(estimator, Pls | BestUnit) and X.size:
            X = moderate(X)
    original_splits = splits
    X, Y, splits = _copy_shared_rows(X, Y, splits)
    problem = Problem(X, Y, splits, workspace)
    result = np.full((len(splits), bins, len(usable.columns)), np.nan)
    spread = Y.std(axis=0)
    level = np.sqrt((Y * Y).mean(axis=0))
    penalties = np.full_like(result, np.nan)
    xp = workspace.xp
    for at, (split, predicted) in enumerate(
        zip(splits, estimator.predictions(problem), strict=True)
    ):
        facts.notes.extend(note for note in predicted.notes if note not in facts.notes)
        if predicted.alpha is not None:
            penalties[at][:, usable.columns] = predicted.alpha
        measured = workspace.put(Y[split.test])
        constant = workspace.put(np.ptp(Y[split.train], axis=0)) == 0
        # Predictions of a single unit are its own values and are not rounded; other readouts sum over the targets.
        sums = not isinstance(estimator, BestUnit)
        rounding = workspace.put(sums * (predicted.rounding * spread + ULPS * level))
        size = len(split.test) // bins
        for t in range(bins):
            a = predicted.values[t * size : (t + 1) * size]
            b = measured[t * size : (t + 1) * size]
            flat = constant | (xp.amax(a, 0) - xp.amin(a, 0) <= rounding)
            if correlation == "spearman":
                a, b = (
                    workspace.put(_ranks(workspace.take(a))),
                    workspace.put(_ranks(workspace.take(b))),
                )
            r = xp.where(flat, xp.nan, column_correlation(a, b, xp))
            result[at, t, usable.columns] = workspace.take(r)
            rows = original_splits[at].test[t * size : (t + 1) * size]
            facts.test_parts.append(
                HeldOutPart(
                    rows,
                    workspace.take(a),
                    workspace.take(b),
                    result[at, t, usable.columns],
                    usable.columns,
                    correlation == "spearman",
                )
            )
    facts.penalties.append(penalties)
    return result


def _copy_shared_rows(
    X: Array, Y: Floats, splits: Sequence[Split]
) -> tuple[Array, Floats, Sequence[Split]]:
    """Copy every row that a split both trains and tests on, and test on the copy instead."""
    shared = [np.intersect1d(split.train, split.test) for split in splits]
    shared_rows = np.unique(np.concatenate(shared))
    if not shared_rows.size:
        return X, Y, splits
    copies = [
        Split(
            split.train,
            np.where(
                np.isin(split.test, rows),
                len(Y) + np.searchsorted(shared_rows, split.test),
                split.test,
            ),
        )
        for split, rows in zip(splits, shared, strict=True)
    ]
    return (
        np.concatenate([X, X[shared_rows]]),
        np.concatenate([Y, Y[shared_rows]]),
        copies,
    )


def _usable(Y: Array) -> _Usable:
    missing = ~np.isfinite(Y).all(axis=0)
    with np.errstate(invalid="ignore"):
        constant = ~missing & (np.ptp(Y, axis=0) == 0)
    notes = [
        f"{int(mask.sum())} of {Y.shape[1]} neuroids left out: {reason}"
        for mask, reason in (
            (missing, "responses are missing"),
            (constant, "responses are constant"),
        )
        if mask.any()
    ]
    return _Usable(~missing & ~constant, tuple(notes))


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return floats(rankdata(values, axis=0))
