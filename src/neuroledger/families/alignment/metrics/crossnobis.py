"""Crossnobis: cross-validated dissimilarities, whose mean is zero if patterns differ only by noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.arrays import Floats
from neuroledger.data.assembly import rows_of
from neuroledger.data.factorize import encode
from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm import rdm
from neuroledger.families.alignment.similarity.influence import AFRESH, FEWEST_LEFT, of_unequal, pair_slopes
from neuroledger.families.alignment.similarity.rdm import Comparison, Distance, agreement, condensed, prepared
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import names_of
from neuroledger.stats.spread import Influence, centred, left_out, moved
from neuroledger.stats.workspace import Workspace

__all__ = ["cross_validated_distances", "crossnobis"]

Noise = Literal["none", "univariate", "multivariate"]


@metric("crossnobis", version=4, trials=True)
def crossnobis(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    fold: str = "repetition",
    noise: Noise = "univariate",
    distance: Distance = "squared_euclidean",
    comparison: Comparison = "cosine",
) -> xr.DataArray:
    """Agreement of the source's dissimilarities with the target's cross-validated ones [walther2016].

    The target's squared distances multiply pattern differences of different folds (values of ``fold``), so that noise
    does not inflate them. ``noise`` scales neuroids by their residual standard deviation (``univariate``), or whitens
    them by their shrunk residual covariance (``multivariate``). The source's dissimilarities are computed by ``distance``.

    Parameters
    ----------
    source
        ``(presentation, neuroid)``; the first row of each stimulus is used.
    target
        ``(presentation, neuroid)``, not averaged, every stimulus in every fold.

    Returns
    -------
    xr.DataArray
        One number, with the influence of stimuli and neuroids as in
        :func:`~neuroledger.families.alignment.metrics.rdm.rdm`. With ``multivariate``, that of a neuroid is the influence of
        its whitened response.

    Raises
    ------
    MetricError
        There is only one fold, a stimulus is missing from a fold, or responses are missing.
    """
    if fold not in target.coords:
        raise MetricError(f"crossnobis needs the coordinate {fold!r} on the target's presentations")
    values = np.asarray(target.transpose("presentation", "neuroid").values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise MetricError(
            "crossnobis needs complete responses; drop neuroids or presentations with missing ones"
        )
    # Neither offsets nor units matter to the agreement; in squares, both would cost digits.
    values = moderate(values)
    values = moderate(values - values.mean(axis=0))
    stimuli, folds = encode(target["stimulus_id"].values), encode(target[fold].values)
    patterns = _patterns(values, stimuli.codes, folds.codes)
    if noise != "none":
        patterns = patterns @ _whitening(values, stimuli.codes, noise)
    distances = cross_validated_distances(patterns)
    ids = stimuli.labels.astype(str)
    coords = {"stimulus_id": ("stimulus", ids), "stimulus_id_b": ("stimulus_b", ids)}
    target_rdm = xr.DataArray(distances, dims=("stimulus", "stimulus_b"), coords=coords)
    first = np.unique(encode(source["stimulus_id"].values).codes, return_index=True)[1]
    source = source.isel(presentation=first)
    out = rdm(source, target_rdm, workspace=workspace, distance=distance, comparison=comparison)
    of_stimuli, names = out.attrs["influence"], names_of(target, "neuroid")
    out.attrs["influence"] = lambda: _with_neuroids(
        of_stimuli(), _dissimilarities(source, ids, distance), ids, patterns, names, comparison
    )
    return out


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


def _dissimilarities(source: xr.DataArray, ids: NDArray[np.str_], distance: Distance) -> Floats:
    """Dissimilarities of the source's patterns (stimulus × stimulus), in the order of ``ids``."""
    from scipy.spatial.distance import pdist, squareform

    rows = rows_of(source, ids)
    values = moderate(np.asarray(source.transpose("presentation", "neuroid").values, dtype=np.float64)[rows])
    name = "sqeuclidean" if distance == "squared_euclidean" else distance
    return np.asarray(squareform(pdist(values, name), checks=False))


def _with_neuroids(
    stimuli: Influence,
    a: Floats,
    ids: NDArray[np.str_],
    patterns: Floats,
    names: NDArray[np.str_],
    comparison: Comparison,
) -> Influence:
    """Add the influence of neuroids, of which every dissimilarity of the target is a sum.

    Parameters
    ----------
    stimuli
        The influence of stimuli.
    a
        Dissimilarities of the source (stimulus × stimulus); NaN for stimuli without a pattern.
    patterns
        As in :func:`cross_validated_distances`.
    """
    from scipy.spatial.distance import squareform

    usable = np.isin(ids, stimuli.factors["stimulus"].ids)
    a, patterns = a[np.ix_(usable, usable)], patterns[:, usable]
    folds, count, neuroids = patterns.shape
    if neuroids < 2:
        return stimuli
    scale, total = 1 / (folds * (folds - 1) * neuroids), patterns.sum(axis=0)
    power = scale * (total * total - (patterns * patterns).sum(axis=0))
    b = cross_validated_distances(patterns)
    Q = squareform(pair_slopes(condensed(a), condensed(b), comparison), checks=False)
    product = scale * (total * (Q @ total) - (patterns * (Q @ patterns)).sum(axis=0))
    cells = (power * Q.sum(axis=1)[:, None] + Q @ power - 2 * product) / 2
    ready, rest = prepared(condensed(a), comparison), np.triu_indices(count, 1)

    def without(groups: NDArray[np.intp]) -> Floats | None:
        """Similarity without each group of neuroids, whose numbers are in the order of ``names``."""
        sizes = np.bincount(groups)
        if neuroids - int(sizes.max()) < FEWEST_LEFT or len(rest[0]) * len(sizes) > AFRESH:
            return None
        left = (cross_validated_distances(patterns[:, :, groups != group]) for group in range(len(sizes)))
        return np.array([agreement(ready, prepared(part[rest], comparison), comparison) for part in left])

    each, place = without(np.arange(neuroids)), np.argsort(np.argsort(names))
    items = moved(names, cells.sum(axis=0)) if each is None else left_out(names, each)
    items = replace(items, without=lambda groups: without(groups[place]))
    rows, columns = np.argsort(ids[usable]), np.argsort(names)
    return of_unequal(
        {**stimuli.factors, "neuroid": items},
        {**stimuli.crossed, ("stimulus", "neuroid"): centred(2 * cells[np.ix_(rows, columns)])},
    )


def _patterns(values: Floats, stimulus: NDArray[np.intp], fold: NDArray[np.intp]) -> Floats:
    """Mean response to each stimulus in each fold (fold × stimulus × neuroid)."""
    folds, stimuli = int(fold.max()) + 1, int(stimulus.max()) + 1
    if folds < 2:
        raise MetricError("crossnobis multiplies differences of different folds; the target has one")
    cell = fold * stimuli + stimulus
    count = np.bincount(cell, minlength=folds * stimuli)
    if not count.all():
        raise MetricError(
            f"{int((count == 0).sum())} of {len(count)} pairs of stimulus and fold were not presented; "
            "crossnobis needs every stimulus in every fold"
        )
    order = np.argsort(cell, kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    means = np.add.reduceat(values[order], starts, axis=0) / count[:, None]
    return np.asarray(means.reshape(folds, stimuli, -1))


def _whitening(values: Floats, stimulus: NDArray[np.intp], noise: Noise) -> Floats:
    """The matrix that gives residuals unit variance (``univariate``) or unit covariance (``multivariate``)."""
    count = np.bincount(stimulus)
    order = np.argsort(stimulus, kind="stable")
    mean = (
        np.add.reduceat(values[order], np.concatenate([[0], np.cumsum(count)[:-1]]), axis=0) / count[:, None]
    )
    residual = values - mean[stimulus]
    freedom = len(values) - len(count)
    variance = (residual * residual).sum(axis=0) / max(freedom, 1)
    if freedom < 1 or not variance.all():
        raise MetricError("a neuroid has no noise to scale by; use `noise: none`, or drop constant neuroids")
    if noise == "univariate":
        return np.diag(1 / np.sqrt(variance))
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(residual, assume_centered=True)
    power, axes = np.linalg.eigh(covariance * len(values) / freedom)
    return np.asarray(axes / np.sqrt(power) @ axes.T)
