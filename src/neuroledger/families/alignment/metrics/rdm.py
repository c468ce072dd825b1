"""Representational similarity: agreement of the dissimilarities of stimuli in two systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import Gram, complete_neuroids, patterns, relative_gram
from neuroledger.families.alignment.similarity.rdm import (
    Comparison,
    Distance,
    agreement,
    condensed,
    dissimilarities,
    patterned,
    prepared,
)
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["rdm", "rdm_subsets"]

Floats = NDArray[np.float64]
Ties = Literal["exact", "rounding"]

# Three stimuli have three pairs, which agree in rank by chance in one of six cases.
FEWEST_STIMULI = 4


def _fits(parameters: Any) -> None:
    chosen = (parameters.distance, parameters.comparison)
    if parameters.ties == "rounding" and chosen != ("correlation", "spearman"):
        raise ValueError(
            f"`ties: rounding` (as in compat brainscore) is for `distance: correlation` and `comparison: spearman`, not "
            f"{chosen[0]} and {chosen[1]}; remove it, or the compat"
        )


class _Side(NamedTuple):
    """One side of the comparison: a Gram matrix (``gram``), or precomputed RDMs (``rdms``: subject × row × row)."""

    gram: Gram | None
    rdms: Floats | None
    key: str
    workspace: Workspace

    def usable(self, distance: Distance) -> NDArray[np.bool_]:
        """Mask of the rows whose dissimilarities to other rows are defined."""
        if self.rdms is None:
            return patterned(cast(Gram, self.gram), distance)
        off = ~np.eye(self.rdms.shape[1], dtype=bool)
        return np.asarray((np.isfinite(self.rdms) & off).any(axis=2).all(axis=0))

    def condensed(self, rows: NDArray[np.intp], distance: Distance) -> list[Floats]:
        """Condensed dissimilarities among ``rows``, one array per subject."""
        if self.rdms is None:
            side_gram = cast(Gram, self.gram)
            part = side_gram if len(rows) == len(side_gram.K) else side_gram.subset(rows)
            return [moderate(dissimilarities(part, distance))]
        values = [condensed(entries[np.ix_(rows, rows)]) for entries in self.rdms]
        if not all(np.isfinite(entries).all() for entries in values):
            raise MetricError(
                "an RDM has missing entries for stimuli that have others; complete it or drop them"
            )
        return [moderate(entries) for entries in values]

    def prepared(self, distance: Distance, comparison: Comparison) -> list[Floats]:
        """All dissimilarities, prepared for comparison; cached, because every layer is compared with the same brain data."""

        def compute() -> list[Floats]:
            rows = np.arange(len(cast(Gram, self.gram).K) if self.rdms is None else self.rdms.shape[1])
            return [prepared(values, comparison) for values in self.condensed(rows, distance)]

        def size(values: list[Floats]) -> int:
            return sum(entries.nbytes for entries in values)

        stored: list[Floats] = self.workspace.once(f"rdm {distance} {comparison}", self.key, compute, size)
        return stored


class _Pair(NamedTuple):
    """Source and target over the same stimuli, and the rows that have a pattern in both."""

    source: _Side
    target: _Side
    usable: NDArray[np.bool_]
    distance: Distance
    subjects: list[str]
    notes: list[str]

    def compared(self, rows: NDArray[np.intp], comparison: Comparison) -> Floats:
        """Agreement over the pairs of ``rows`` for each subject, shape (subject,)."""
        if len(rows) == len(self.usable):
            (a,) = self.source.prepared(self.distance, comparison)
            others = self.target.prepared(self.distance, comparison)
            return np.array([agreement(a, b, comparison) for b in others])
        return self.among(rows, comparison)

    def among(self, rows: NDArray[np.intp], comparison: Comparison) -> Floats:
        """Agreement over the pairs of ``rows`` for each subject, shape (subject,), computed afresh."""
        (entries,) = self.source.condensed(rows, self.distance)
        a = prepared(entries, comparison)
        others = [prepared(b, comparison) for b in self.target.condensed(rows, self.distance)]
        return np.array([agreement(a, b, comparison) for b in others])


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
    pair = _pair(source, target, distance, workspace, ties)
    values = pair.compared(np.flatnonzero(pair.usable), comparison)
    samples = (
        xr.DataArray(values, dims="subject", coords={"subject": pair.subjects})
        if pair.subjects
        else xr.DataArray(values[0])
    )
    # Dissimilarities ranked as the peer computes them are those of whole assemblies: the general route.
    variation = None if ties == "rounding" else _variation(pair, target, comparison, samples)
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
    pair = _pair(source, target, distance, workspace, ties)
    if pair.subjects:
        raise MetricError(
            "subsets of stimuli are compared for assemblies; for RDMs of several subjects use `rdm`"
        )
    parts = [split.test[pair.usable[split.test]] for split in splits]
    if min(map(len, parts)) < FEWEST_STIMULI:
        raise MetricError(
            f"a split compares {min(map(len, parts))} stimuli; at least {FEWEST_STIMULI} are needed: use larger test parts"
        )
    values = [pair.compared(part, comparison)[0] for part in parts]
    samples = xr.DataArray(values, dims="split", coords={"split": np.arange(len(splits))})
    # Nothing is trained: the mean over subsets varies as the agreement over all of their stimuli.
    tested = pair._replace(usable=np.isin(np.arange(len(pair.usable)), np.concatenate(parts)))
    return Samples(samples, _variation(tested, target, comparison, samples), notes=pair.notes)


def _pair(
    source: xr.DataArray, target: xr.DataArray, distance: Distance, workspace: Workspace, ties: Ties
) -> _Pair:
    notes: list[str] = []
    if "stimulus_b" in target.dims:
        source = _aligned(source, target)
    a = _side(source, distance, workspace, "source", notes, ties)
    b = _side(target, distance, workspace, "target", notes, ties)
    if a.rdms is not None and len(a.rdms) != 1:
        raise MetricError("the source contains several RDMs; select one subject")
    source_usable, target_usable = a.usable(distance), b.usable(distance)
    if len(source_usable) != len(target_usable):
        raise MetricError(
            f"source has {len(source_usable)} stimuli and target {len(target_usable)}; both sides need the same"
        )
    usable = source_usable & target_usable
    count = int(usable.sum())
    if count < len(usable):
        notes.append(f"{len(usable) - count} of {len(usable)} stimuli left out: no pattern on one side")
    if count < FEWEST_STIMULI:
        raise MetricError(
            f"only {count} stimuli have a pattern on both sides; at least {FEWEST_STIMULI} are needed, or too few pairs are "
            "compared for any agreement to mean something"
        )
    subjects = [str(s) for s in target["subject"].values] if "subject" in target.dims else []
    return _Pair(a, b, usable, distance, subjects, notes)


def _side(
    assembly: xr.DataArray,
    distance: Distance,
    workspace: Workspace,
    name: str,
    notes: list[str],
    ties: Ties,
) -> _Side:
    if "stimulus_b" in assembly.dims:
        order = ("stimulus", "stimulus_b")
        if "subject" in assembly.dims:
            order = ("subject", *order)  # type: ignore[assignment]
        values = np.asarray(assembly.transpose(*order).values, dtype=np.float64)
        return _Side(None, values if values.ndim == 3 else values[None], "", workspace)
    X = patterns(assembly, name, notes, drop_missing=name == "target")
    if X.shape[1] < (2 if distance == "correlation" else 1):
        raise MetricError(f"{name}: {distance} dissimilarity needs more neuroids than {X.shape[1]}")
    if ties == "rounding":
        return _Side(None, _ranked_as_computed(X, assembly)[None], "", workspace)
    key = workspace.key(X)
    return _Side(relative_gram(X, workspace, key), None, key, workspace)


def _ranked_as_computed(X: NDArray[np.floating], assembly: xr.DataArray) -> Floats:
    """Rank ``1 − numpy.corrcoef`` of all pairs, as a matrix, without treating rounding differences as ties.

    Rows are sorted by ``stimulus_id`` first, because the upper and the lower half of NumPy's matrix round differently.
    """
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    ids = assembly.coords.get("stimulus_id")
    order = np.arange(len(X)) if ids is None else np.argsort(ids.values)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = condensed(np.asarray(1 - np.corrcoef(X[order]), dtype=np.float64))
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
    ids = [str(id) for id in target[key].values]
    missing = [id for id in ids if id not in positions]
    if missing:
        raise MetricError(f"the source lacks {len(missing)} of {len(ids)} stimuli, such as {missing[0]!r}")
    rows = np.array([positions[id] for id in ids])
    if "stimulus_b" in source.dims:
        return source.isel(stimulus=rows, stimulus_b=rows)
    return source.isel(presentation=rows)


def _variation(pair: _Pair, target: xr.DataArray, comparison: Comparison, like: xr.DataArray) -> Variation:
    """Return how the agreement changes without stimuli, and without neuroids if the target contains responses."""
    ids = stimulus_names(target, len(pair.usable))
    names, Y = (
        complete_neuroids(target) if "neuroid" in target.dims else (np.empty(0, dtype=str), np.empty(0))
    )

    def without(keep: Keep) -> xr.DataArray:
        rows = np.flatnonzero(pair.usable & keep.get("stimulus", True))
        if len(rows) < FEWEST_STIMULI:
            return xr.full_like(like, np.nan)
        chosen = pair
        if "neuroid" in keep:
            fewer = Y[:, keep["neuroid"]]
            side = _Side(relative_gram(fewer, pair.source.workspace), None, "", pair.source.workspace)
            chosen = pair._replace(target=side)
            rows = rows[side.usable(pair.distance)[rows]]
        values = chosen.among(rows, comparison)
        return like.copy(
            data=values.reshape(like.shape) if values.size == like.size else np.full(like.shape, values)
        )

    factors = {"stimulus": ids, "neuroid": names} if len(names) else {"stimulus": ids}
    return Variation(factors, without)
