"""Representational similarity: agreement of the dissimilarities of stimuli in two systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Reals, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import patterns, relative_gram
from neuroledger.families.alignment.similarity.pair import (
    FEWEST_STIMULI,
    Pair,
    Side,
    variation_of,
)
from neuroledger.families.alignment.similarity.rdm import (
    Comparison,
    Distance,
    condensed,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["paired", "rdm", "rdm_subsets"]

Ties = Literal["exact", "rounding"]


def _fits(parameters: Any) -> None:
    chosen = (parameters.distance, parameters.comparison)
    if parameters.ties == "rounding" and chosen != ("correlation", "spearman"):
        raise ValueError(
            f"`ties: rounding` (as in compat brainscore) is for `distance: correlation` and `comparison: spearman`, not "
            f"{chosen[0]} and {chosen[1]}; remove it, or the compat"
        )


@metric("rdm", version=6, together=_fits)
def rdm(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
    ties: Ties = "exact",
) -> Samples:
    """Agreement of the dissimilarities of all pairs of stimuli [kriegeskorte2008].

    Parameters
    ----------
    source, target
        ``(presentation, neuroid)``, or RDMs ``(stimulus, stimulus_b)``; the target may contain one RDM per
        ``subject``.
    ties
        ``exact``: dissimilarities that differ only by rounding are tied. ``rounding``: NumPy's correlation coefficients
        are ranked without ties for rounding, as the peer does (only ``correlation`` compared by ``spearman``).

    Returns
    -------
    Samples
        One number, or one per ``subject``.

    Raises
    ------
    MetricError
        Fewer than 4 stimuli have a pattern in both, or a stimulus has several rows.
    """
    pair = paired(source, target, distance, workspace, ties)
    values = pair.compared(np.flatnonzero(pair.usable), comparison)
    samples = xr.DataArray(values[0])
    if "subject" in target.dims:
        names = list(map(str, target["subject"].values))
        samples = xr.DataArray(values, dims="subject", coords={"subject": names})
    # Dissimilarities ranked as the peer computes them are those of whole assemblies: the general route.
    variation = (
        None if ties == "rounding" else variation_of(pair, target, comparison, samples)
    )
    return Samples(samples, variation, notes=pair.notes)


@metric("rdm_subsets", version=6, together=_fits)
def rdm_subsets(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
    ties: Ties = "exact",
) -> Samples:
    """Agreement of dissimilarities over the test presentations of each split, computed as :func:`rdm`: ``(split,)``."""
    pair = paired(source, target, distance, workspace, ties)
    if "subject" in target.dims:
        raise MetricError(
            "subsets of stimuli are compared for assemblies; for RDMs of several subjects use `rdm`"
        )
    parts = [split.test[pair.usable[split.test]] for split in splits]
    if min(map(len, parts)) < FEWEST_STIMULI:
        raise MetricError(
            f"a split compares {min(map(len, parts))} stimuli; at least {FEWEST_STIMULI} are needed: use larger test parts"
        )
    values = [pair.compared(part, comparison)[0] for part in parts]
    samples = xr.DataArray(
        values, dims="split", coords={"split": np.arange(len(splits))}
    )
    # Nothing is trained: the mean over subsets varies as the agreement over all of their stimuli.
    tested = replace(
        pair, usable=np.isin(np.arange(len(pair.usable)), np.concatenate(parts))
    )
    return Samples(
        samples, variation_of(tested, target, comparison, samples), notes=pair.notes
    )


def paired(
    source: xr.DataArray,
    target: xr.DataArray,
    distance: Distance,
    workspace: Workspace,
    ties: Ties = "exact",
) -> Pair:
    """Return both sides of a comparison, as described in :func:`rdm`.

    Raises
    ------
    MetricError
        Fewer than 4 stimuli have a pattern in both, or a stimulus has several rows.
    """
    notes: list[str] = []
    if "stimulus_b" in target.dims:
        source = _aligned(source, target)
    a = _side(source, distance, workspace, "source", notes, ties)
    b = _side(target, distance, workspace, "target", notes, ties)
    if a.rdms is not None and len(a.rdms) != 1:
        raise MetricError("the source contains several RDMs; select one subject")
    if len(a.usable) != len(b.usable):
        raise MetricError(
            f"source has {len(a.usable)} stimuli and target {len(b.usable)}; both sides need the same"
        )
    usable = a.usable & b.usable
    count = int(usable.sum())
    if count < len(usable):
        notes.append(
            f"{len(usable) - count} of {len(usable)} stimuli left out: no pattern on one side"
        )
    if count < FEWEST_STIMULI:
        raise MetricError(
            f"only {count} stimuli have a pattern on both sides; at least {FEWEST_STIMULI} are needed, or too few pairs are "
            "compared for any agreement to mean something"
        )
    return Pair(a, b, usable, notes)


def _side(
    assembly: xr.DataArray,
    distance: Distance,
    workspace: Workspace,
    name: str,
    notes: list[str],
    ties: Ties,
) -> Side:
    if "stimulus_b" in assembly.dims:
        order = ("stimulus", "stimulus_b")
        if "subject" in assembly.dims:
            order = ("subject", *order)  # type: ignore[assignment]
        values = floats(assembly.transpose(*order).values)
        if values.ndim != 3:
            values = values[None]
        return Side(None, values, distance, workspace.key(values), workspace)
    X = patterns(assembly, name, notes, drop_missing=name == "target")
    if X.shape[1] < (2 if distance == "correlation" else 1):
        raise MetricError(
            f"{name}: {distance} dissimilarity needs more neuroids than {X.shape[1]}"
        )
    if ties == "rounding":
        return Side(
            None, _ranked_as_computed(X, assembly)[None], distance, "", workspace
        )
    key = workspace.key(X)
    return Side(relative_gram(X, workspace, key), None, distance, key, workspace)


def _ranked_as_computed(X: Reals, assembly: xr.DataArray) -> Floats:
    """Rank ``1 − numpy.corrcoef`` of all pairs, as a matrix, without treating rounding differences as ties.

    Rows are sorted by ``stimulus_id`` first, because the upper and the lower half of NumPy's matrix round differently.
    """
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    ids = assembly.coords.get("stimulus_id")
    if ids is None:
        order = np.arange(len(X))
    else:
        order = np.argsort(ids.values)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = condensed(floats(1 - np.corrcoef(X[order])))
    ranks = np.full(len(values), np.nan)
    known = np.isfinite(values)
    ranks[known] = rankdata(values[known])
    matrix = np.empty((len(X), len(X)))
    matrix[np.ix_(order, order)] = squareform(ranks, checks=False)
    return matrix


def _aligned(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Reorder the source's rows to the order of the target's stimuli."""
    key = "stimulus_id"
    positions = {str(id): row for row, id in enumerate(source[key].values)}
    ids = list(map(str, target[key].values))
    missing = [id for id in ids if id not in positions]
    if missing:
        raise MetricError(
            f"the source lacks {len(missing)} of {len(ids)} stimuli, such as {missing[0]!r}"
        )
    rows = np.array([positions[id] for id in ids])
    if "stimulus_b" in source.dims:
        return source.isel(stimulus=rows, stimulus_b=rows)
    return source.isel(presentation=rows)
