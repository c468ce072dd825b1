"""Held-out correlation of a readout's predictions with the measured responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Array, Floats, Indices, floats
from neuroledger.data.memory import Shelf, release
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.best_unit import BestUnit
from neuroledger.families.alignment.regression.linear import Linear
from neuroledger.families.alignment.regression.mask import Mask
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.regression.problem import (
    Prediction,
    Problem,
    Readout,
    Targets,
    column_correlation,
)
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv
from neuroledger.families.alignment.similarity.gram import has_usual_units
from neuroledger.families.alignment.similarity.scale import moderate, moderating_power
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
    """Numbers of the columns that can be predicted, their largest and smallest value, and notes about the others."""

    columns: Indices
    highest: float
    lowest: float
    notes: tuple[str, ...]


class HeldOutPart(NamedTuple):
    """Predictions and responses (row, target) of one split, time bin and block of targets, or their ranks (``ranked``).

    ``place`` is the number of the split and bin, ``rows`` are numbers of rows of the target, ``columns`` numbers of the
    targets, and ``r`` their correlations.
    """

    place: int
    rows: Indices
    predicted: Floats
    measured: Floats
    r: Floats
    columns: Indices
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
    Y = np.asarray(Y)
    usable = _usable(Y)
    facts.notes.extend(note for note in usable.notes if note not in facts.notes)
    if not usable.columns.size:
        raise MetricError(f"no neuroid can be predicted: {'; '.join(usable.notes)}")
    shortest = min(len(split.test) // bins for split in splits)
    if shortest < FEWEST_TESTED:
        raise MetricError(
            f"a split tests on {shortest} presentations, where every correlation is 1 or -1 or undefined; "
            f"at least {FEWEST_TESTED} are needed: use fewer folds, a larger test part or more stimuli"
        )
    # Correlations ignore the targets' units.
    power = moderating_power(usable.highest, usable.lowest)
    columns = None if len(usable.columns) == Y.shape[1] else usable.columns
    recorded = as_recorded(X)
    by_gram = isinstance(estimator, Pls | Ridge | RidgeCv)
    if recorded is None or not by_gram or not has_usual_units(recorded, workspace):
        X = np.asarray(X)
        # The predictions of these ignore the features' units, too.
        if isinstance(estimator, Pls | BestUnit) and X.size:
            X = moderate(X)
    original_splits = splits
    X, rows, splits = _copy_shared_rows(X, len(Y), splits)
    problem = Problem(X, Targets(Y, columns, rows, power), splits, workspace)
    tested = sum(len(split.test) for split in splits)
    shelf = Shelf(2 * tested * len(usable.columns))
    result = np.full((len(splits), bins, Y.shape[1]), np.nan)
    penalties = np.full_like(result, np.nan)
    first = 1 + max((part.place for part in facts.test_parts), default=-1)
    for predicted in estimator.predictions(problem):
        facts.notes.extend(note for note in predicted.notes if note not in facts.notes)
        at = predicted.split
        targets = predicted.of or problem
        own = usable.columns[targets.at]
        if predicted.alpha is not None:
            penalties[at][:, own] = predicted.alpha
        # Predictions of a single unit are its own values and are not rounded; other readouts sum over the targets.
        rounded = not isinstance(estimator, BestUnit)
        agreements = _agreements(targets, predicted, bins, correlation, rounded)
        for t, (a, b, r) in enumerate(agreements):
            result[at, t, own] = r
            size = len(a)
            part = HeldOutPart(
                first + at * bins + t,
                original_splits[at].test[t * size : (t + 1) * size],
                shelf.keep(a),
                shelf.keep(b),
                r,
                own,
                correlation == "spearman",
            )
            facts.test_parts.append(part)
    facts.penalties.append(penalties)
    return result


def _agreements(
    problem: Problem,
    predicted: Prediction,
    bins: int,
    correlation: Correlation,
    rounded: bool,
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Predicted and measured responses of each bin (row × target), or their ranks, and their correlations (target,)."""
    workspace = problem.workspace
    xp = workspace.xp
    split = problem.splits[predicted.split]
    measured = workspace.put(problem.Y[split.test])
    constant = workspace.put(np.ptp(problem.Y[split.train], axis=0)) == 0
    rounding = workspace.put(
        rounded * (predicted.rounding * problem.spread + ULPS * problem.level)
    )
    size = len(split.test) // bins
    for t in range(bins):
        a = predicted.values[t * size : (t + 1) * size]
        b = measured[t * size : (t + 1) * size]
        flat = constant | (xp.amax(a, 0) - xp.amin(a, 0) <= rounding)
        if correlation == "spearman":
            a, b = (workspace.put(_ranks(workspace.take(each))) for each in (a, b))
        r = xp.where(flat, xp.nan, column_correlation(a, b, xp))
        yield workspace.take(a), workspace.take(b), workspace.take(r)


def _copy_shared_rows(
    X: Array, count: int, splits: Sequence[Split]
) -> tuple[Array, Indices | None, Sequence[Split]]:
    """Copy every row that a split both trains and tests on, and test on the copy instead.

    The second result are the rows with their copies, of ``count`` rows; None without any.
    """
    shared = [np.intersect1d(split.train, split.test) for split in splits]
    shared_rows = np.unique(np.concatenate(shared))
    if not shared_rows.size:
        return X, None, splits
    copies = [
        Split(
            split.train,
            np.where(
                np.isin(split.test, rows),
                count + np.searchsorted(shared_rows, split.test),
                split.test,
            ),
        )
        for split, rows in zip(splits, shared, strict=True)
    ]
    rows = np.concatenate([np.arange(count), shared_rows])
    return np.concatenate([X, X[shared_rows]]), rows, copies


def _usable(Y: Array) -> _Usable:
    missing = np.zeros(Y.shape[1], dtype=bool)
    constant = np.zeros(Y.shape[1], dtype=bool)
    highest, lowest = -np.inf, np.inf
    for at in Targets(Y).blocks():
        part = floats(Y[:, at]) if Y.dtype.kind != "f" else Y[:, at]
        missing[at] = ~np.isfinite(part).all(axis=0)
        with np.errstate(invalid="ignore"):
            constant[at] = ~missing[at] & (np.ptp(part, axis=0) == 0)
        used = part[:, ~missing[at] & ~constant[at]]
        highest = max(highest, float(used.max(initial=-np.inf)))
        lowest = min(lowest, float(used.min(initial=np.inf)))
        release(Y)
    notes = [
        f"{int(mask.sum())} of {Y.shape[1]} neuroids left out: {reason}"
        for mask, reason in (
            (missing, "responses are missing"),
            (constant, "responses are constant"),
        )
        if mask.any()
    ]
    columns = np.flatnonzero(~missing & ~constant)
    return _Usable(columns, highest, lowest, tuple(notes))


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return floats(rankdata(values, axis=0))
