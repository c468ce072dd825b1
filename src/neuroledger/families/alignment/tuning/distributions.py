"""Similarity of two distributions over the same bins, and its bootstrap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, Places, floats
from neuroledger.errors import MetricError

__all__ = [
    "Resampled",
    "bins_of",
    "drawn_rows",
    "histogram",
    "ids_of",
    "ks_similarity",
    "property_values",
    "resampled",
]

CHUNK = 4_000_000  # number of values drawn at a time


def ks_similarity(p: npt.ArrayLike, q: npt.ArrayLike) -> Floats:
    """``1 − D / D_max``, where ``D`` is the Kolmogorov-Smirnov distance of ``p (…, bin)`` to ``q (…, bin)``.

    ``D_max`` is the largest distance of any distribution over these bins to ``q``, which has all its mass in the first or
    in the last bin. NaN if there is a single bin.
    """
    p, q = (
        np.atleast_1d(floats(p)),
        floats(q),
    )
    below = np.cumsum(q, axis=-1)
    distance = np.abs(np.cumsum(p, axis=-1) - below).max(axis=-1)
    last = np.zeros_like(q)
    last[..., -1] = 1.0
    farthest = np.maximum(
        np.abs(1.0 - below).max(axis=-1), np.abs(last - below).max(axis=-1)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1.0 - distance / farthest)


def property_values(assembly: xr.DataArray | npt.ArrayLike, name: str | None) -> Floats:
    """Values ``(neuroid,)`` of one property of an assembly ``(neuroid, property)`` or ``(neuroid,)``.

    Raises
    ------
    MetricError
        The assembly has several properties and ``name`` is not among them, or it has other dimensions.
    """
    if isinstance(assembly, xr.DataArray) and assembly.ndim == 2:
        along = next(
            (str(dim) for dim in assembly.dims if dim != "neuroid"), "property"
        )
        names = (
            assembly[along].values.astype(str).tolist()
            if along in assembly.coords
            else []
        )
        if name is None and assembly.sizes[along] == 1:
            return floats(assembly.isel({along: 0}).values)
        if name not in names:
            raise MetricError(
                f"there is no property {name!r}; known: {', '.join(names) or 'none'}"
            )
        return floats(assembly.isel({along: names.index(name)}).values)
    values = floats(getattr(assembly, "values", assembly))
    if values.ndim != 1:
        raise MetricError(
            f"property values have {values.ndim} dimensions; give (neuroid,) or (neuroid, property)"
        )
    return values


def ids_of(assembly: xr.DataArray) -> Array:
    """Ids of the neuroids; their positions if the ids are missing or not unique."""
    if (
        "neuroid_id" in assembly.coords
        and len(np.unique(assembly["neuroid_id"].values)) == assembly.sizes["neuroid"]
    ):
        return np.asarray(assembly["neuroid_id"].values)
    return np.arange(
        assembly.sizes["neuroid"] if "neuroid" in assembly.dims else assembly.size
    )


def bins_of(target: object, name: str | None, bins: tuple[float, ...]) -> Floats:
    """Bin edges: ``bins``, or the target's attribute ``<name>_bins``.

    Raises
    ------
    MetricError
        The edges are missing or do not increase.
    """
    edges = floats(
        bins if bins else getattr(target, "attrs", {}).get(f"{name}_bins", ())
    )
    if edges.size < 2 or not (np.diff(edges) > 0).all():
        raise MetricError(
            f"bins of {name!r} are missing or do not increase; give `bins` or the attribute {name}_bins"
        )
    return edges


def histogram(values: Floats, edges: Floats) -> Indices:
    """Bin of each value; values outside the edges belong to the first or last bin, missing values to -1."""
    clipped = np.clip(values, edges[0], edges[-1])
    places = np.minimum(
        np.searchsorted(edges, clipped, side="right") - 1, len(edges) - 2
    )
    return np.where(np.isnan(values), -1, places)


class Resampled(NamedTuple):
    """Samples of a source, each as large as the target.

    ``drawn`` are the bins of the source's neuroids in each sample, (draw × target neuroid), and ``target`` those of the
    target, (neuroid,); -1 for missing values. ``bins`` is their number.
    """

    drawn: Places
    target: Indices
    bins: int

    def similarity(self) -> Floats:
        """Return the similarity of each sample to the target, (draw,); NaN for a sample or a target without values."""
        known = self.target[self.target >= 0]
        with np.errstate(invalid="ignore"):
            q = np.bincount(known, minlength=self.bins) / np.float64(len(known))
        step = max(1, CHUNK // max(self.drawn.shape[1], 1))
        parts = [
            self._similarity(self.drawn[at : at + step], q)
            for at in range(0, len(self.drawn), step)
        ]
        return np.concatenate(parts)

    def _similarity(self, drawn: Places, q: Floats) -> Floats:
        count = len(drawn)
        width = self.bins + 1
        places = drawn + (np.arange(count) * width)[:, None] + 1
        all_counts = np.bincount(places.ravel(), minlength=count * width).reshape(
            count, width
        )
        counts = all_counts[:, 1:].astype(np.float64)
        total = counts.sum(axis=1, keepdims=True)
        p = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
        return ks_similarity(p, q)

    def without(self, kept: Booleans) -> Resampled:
        """Return the same samples without some of the target's neuroids and their counterparts in every sample."""
        return Resampled(self.drawn[:, kept], self.target[kept], self.bins)


def drawn_rows(
    source: Floats,
    target: Floats,
    *,
    draws: int,
    rng: np.random.Generator | np.random.RandomState,
) -> Places:
    """Draw rows of the source with replacement, as many as the target has in each sample: (draw × target neuroid).

    Raises
    ------
    MetricError
        A side has no values.
    """
    if np.isnan(target).all() or np.isnan(source).all():
        raise MetricError("the distribution of one side is empty")
    size = target.size
    parts = []
    step = max(1, CHUNK // max(size, 1))
    for start in range(0, draws, step):
        shape = (min(step, draws - start), size)
        if isinstance(rng, np.random.RandomState):
            rows = rng.randint(0, source.size, shape)
        else:
            rows = rng.integers(0, source.size, shape)
        parts.append(rows.astype(np.int32))
    return np.concatenate(parts)


def resampled(
    source: Floats,
    target: Floats,
    edges: Floats,
    *,
    draws: int,
    rng: np.random.Generator | np.random.RandomState,
) -> Resampled:
    """Draw samples of the source with replacement, each as large as the target.

    Raises
    ------
    MetricError
        A side has no values.
    """
    rows = drawn_rows(source, target, draws=draws, rng=rng)
    return Resampled(
        histogram(source, edges).astype(np.int32)[rows],
        histogram(target, edges),
        len(edges) - 1,
    )
