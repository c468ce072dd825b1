"""Crossnobis: cross-validated dissimilarities, whose mean is zero if patterns differ only by noise."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings, floats
from neuroledger.data.factorize import encode
from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm import paired
from neuroledger.families.alignment.similarity.pair import Left, Pair, left_out
from neuroledger.families.alignment.similarity.rdm import (
    Comparison,
    Distance,
    condensed,
    prepared,
)
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import names_of
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.workspace import Workspace

__all__ = [
    "cross_validated_distances",
    "crossnobis",
    "unbalanced_distances",
    "whitening",
]

Noise = Literal["none", "univariate", "multivariate"]
Covariance = Literal["pooled", "fold"]


@metric("crossnobis", version=4, trials=True)
def crossnobis(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    fold: str = "repetition",
    noise: Noise = "univariate",
    covariance: Covariance = "pooled",
    unbalanced: bool = False,
    distance: Distance = "squared_euclidean",
    comparison: Comparison = "cosine",
) -> Samples:
    """Agreement of the source's dissimilarities with the target's cross-validated ones [walther2016].

    The target's squared distances multiply pattern differences of different folds (values of ``fold``), so that noise
    does not inflate them. ``noise`` scales neuroids by their residual standard deviation (``univariate``), or whitens
    them by their shrunk residual covariance (``multivariate``), ``pooled`` over all trials or that of each ``fold``,
    which needs repetitions within folds. With ``unbalanced``, a stimulus may be missing from folds: the distance of
    two stimuli is then over the folds that have both. The source's dissimilarities are computed by ``distance``.

    Parameters
    ----------
    source
        ``(presentation, neuroid)``; the first row of each stimulus is used.
    target
        ``(presentation, neuroid)``, not averaged; unless ``unbalanced``, every stimulus in every fold.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        There is only one fold, a stimulus is missing from a fold, or responses are missing.
    """
    if fold not in target.coords:
        raise MetricError(
            f"crossnobis needs the coordinate {fold!r} on the target's presentations"
        )
    values = floats(target.transpose("presentation", "neuroid").values)
    if not np.isfinite(values).all():
        raise MetricError(
            "crossnobis needs complete responses; drop neuroids or presentations with missing ones"
        )
    # Neither offsets nor units matter to the agreement; in squares, both would cost digits.
    values = moderate(values)
    values = moderate(values - values.mean(axis=0))
    stimuli = encode(target["stimulus_id"].values)
    folds = encode(target[fold].values)
    design = _Design(noise, covariance, unbalanced)
    trials = _Trials(values, stimuli.codes, folds.codes, design)
    ids = stimuli.labels.astype(str)
    coords = {"stimulus_id": ("stimulus", ids), "stimulus_id_b": ("stimulus_b", ids)}
    target_rdm = xr.DataArray(
        trials.distances(), dims=("stimulus", "stimulus_b"), coords=coords
    )
    first = np.unique(encode(source["stimulus_id"].values).codes, return_index=True)[1]
    pair = paired(source.isel(presentation=first), target_rdm, distance, workspace)
    samples = xr.DataArray(pair.compared(np.flatnonzero(pair.usable), comparison)[0])
    factors = {"stimulus": ids, "neuroid": names_of(target, "neuroid")}
    return Samples(
        samples,
        _variation(pair, trials, factors, comparison, samples),
        notes=pair.notes,
    )


def cross_validated_distances(patterns: Floats) -> Floats:
    """Squared distances per neuroid (stimulus × stimulus) from ``patterns`` (fold × stimulus × neuroid).

    The mean over all ordered pairs of different folds ``m ≠ l`` of ``(x_i − x_j)ᵐ·(x_i − x_j)ˡ``, computed as the
    product of the sums over folds minus the products of each fold with itself.
    """
    count, stimuli, neuroids = patterns.shape
    total = patterns.sum(axis=0)
    flat = patterns.transpose(1, 0, 2).reshape(stimuli, -1)
    between = (total @ total.T - flat @ flat.T) / (count * (count - 1) * neuroids)
    power = between.diagonal()
    return np.asarray(power[:, None] + power - 2 * between)


def unbalanced_distances(patterns: Floats) -> Floats:
    """As :func:`cross_validated_distances`, of patterns that are NaN for a stimulus that a fold lacks.

    The mean is over the ordered pairs of different folds that both have both stimuli; NaN for two stimuli without any.
    """
    present: Booleans = np.asarray(np.isfinite(patterns).all(axis=2))
    known = np.where(present[..., None], patterns, 0.0)
    folds, stimuli, neuroids = patterns.shape
    total = np.zeros((stimuli, stimuli))
    count = np.zeros((stimuli, stimuli))
    for first, second in combinations(range(folds), 2):
        shared = present[first] & present[second]
        between = known[first] @ known[second].T
        power = between.diagonal()
        both = np.outer(shared, shared)
        total += both * (power[:, None] + power - between - between.T)
        count += both
    with np.errstate(invalid="ignore"):
        return np.asarray(total / (count * neuroids))


class _Design(NamedTuple):
    """How noise is scaled, over which trials it is estimated, and whether stimuli may be missing from folds."""

    noise: Noise
    covariance: Covariance
    unbalanced: bool


class _Trials(NamedTuple):
    """Responses (presentation × neuroid), the stimulus and fold of each presentation, and how they are treated."""

    values: Floats
    stimulus: Indices
    fold: Indices
    design: _Design

    def without(self, keep: Keep) -> _Trials:
        """Return the trials of the stimuli and neuroids that stay."""
        columns = keep.get("neuroid", np.ones(self.values.shape[1], dtype=bool))
        stimuli = keep.get("stimulus", np.ones(self.stimulus.max() + 1, dtype=bool))
        rows = stimuli[self.stimulus]
        numbers = np.cumsum(stimuli) - 1
        values = self.values[np.ix_(rows, columns)]
        return _Trials(
            values, numbers[self.stimulus[rows]], self.fold[rows], self.design
        )

    def distances(self) -> Floats:
        """Return cross-validated distances (stimulus × stimulus)."""
        noise, covariance, unbalanced = self.design
        patterns = _patterns(self.values, self.stimulus, self.fold, unbalanced)
        if noise != "none" and covariance == "pooled":
            patterns = patterns @ whitening(self.values, self.stimulus, noise)
        elif noise != "none":
            for fold in range(len(patterns)):
                rows = self.fold == fold
                own = np.unique(self.stimulus[rows], return_inverse=True)[1]
                patterns[fold] = patterns[fold] @ whitening(
                    self.values[rows], own, noise
                )
        if unbalanced:
            return unbalanced_distances(patterns)
        return cross_validated_distances(patterns)


def _variation(
    pair: Pair,
    trials: _Trials,
    factors: Mapping[str, Strings],
    comparison: Comparison,
    like: xr.DataArray,
) -> Variation:
    """Return how the agreement changes without stimuli and neuroids, of which distances and noise are then computed."""

    def of_target(keep: Keep) -> Left:
        stimuli = keep.get("stimulus", np.ones(len(pair.usable), dtype=bool))
        rows = np.flatnonzero(pair.usable & stimuli)
        try:
            distances = trials.without(keep).distances()
        except MetricError:  # undefined without these items
            return Left(rows[:0], [])
        among = np.flatnonzero(pair.usable[stimuli])
        return Left(
            rows,
            [
                prepared(
                    moderate(condensed(distances[np.ix_(among, among)])), comparison
                )
            ],
        )

    return left_out(pair, factors, of_target, comparison, like)


def _patterns(
    values: Floats, stimulus: Indices, fold: Indices, unbalanced: bool
) -> Floats:
    """Mean response to each stimulus in each fold (fold × stimulus × neuroid); NaN if it is missing from the fold."""
    folds = int(fold.max()) + 1
    stimuli = int(stimulus.max()) + 1
    if folds < 2:
        raise MetricError(
            "crossnobis multiplies differences of different folds; the target has one"
        )
    cell = fold * stimuli + stimulus
    count = np.bincount(cell, minlength=folds * stimuli)
    if not count.all() and not unbalanced:
        raise MetricError(
            f"{int((count == 0).sum())} of {len(count)} pairs of stimulus and fold were not presented; "
            "crossnobis needs every stimulus in every fold, or `unbalanced: true`"
        )
    order = np.argsort(cell, kind="stable")
    filled = np.flatnonzero(count)
    starts = np.concatenate([[0], np.cumsum(count[filled])[:-1]])
    means = np.full((folds * stimuli, values.shape[1]), np.nan)
    sums = np.add.reduceat(values[order], starts, axis=0)
    means[filled] = sums / count[filled, None]
    return means.reshape(folds, stimuli, -1)


def whitening(values: Floats, stimulus: Indices, noise: Noise) -> Floats:
    """The matrix that gives residuals unit variance (``univariate``) or unit covariance (``multivariate``)."""
    count = np.bincount(stimulus)
    order = np.argsort(stimulus, kind="stable")
    mean = (
        np.add.reduceat(
            values[order], np.concatenate([[0], np.cumsum(count)[:-1]]), axis=0
        )
        / count[:, None]
    )
    residual = values - mean[stimulus]
    freedom = len(values) - len(count)
    variance = (residual * residual).sum(axis=0) / max(freedom, 1)
    if freedom < 1 or not variance.all():
        raise MetricError(
            "a neuroid has no noise to scale by; use `noise: none`, or drop constant neuroids"
        )
    if noise == "univariate":
        return np.diag(1 / np.sqrt(variance))
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(residual, assume_centered=True)
    power, axes = np.linalg.eigh(covariance * len(values) / freedom)
    return np.asarray(axes / np.sqrt(power) @ axes.T)
