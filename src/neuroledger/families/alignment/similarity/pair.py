"""Two sides of a comparison of dissimilarities, and their agreement without some stimuli or neuroids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, cast

import numpy as np
import xarray as xr
from scipy.spatial.distance import squareform

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import (
    Gram,
    ResponsesLeft,
    relative_gram,
    responses_left,
)
from neuroledger.families.alignment.similarity.rdm import (
    RANKED,
    Comparison,
    Distance,
    Sorted,
    agreement,
    condensed,
    dissimilarities,
    patterned,
    prepared,
)
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.stats.groups import COARSE, stimulus_names
from neuroledger.stats.samples import Keep, Variation
from neuroledger.stats.workspace import Workspace

__all__ = ["FEWEST_STIMULI", "Left", "Pair", "Side", "left_out", "variation_of"]

# Three stimuli have three pairs, which agree in rank by chance in one of six cases.
FEWEST_STIMULI = 4
# Dissimilarities without groups of items are cached for other models if there are at most this many (2 MB each).
KEPT = 1 << 18


@dataclass(frozen=True)
class Side:
    """One side of the comparison: a Gram matrix (``gram``), or precomputed RDMs (``rdms``: subject × row × row).

    ``key`` is the content hash under which the workspace caches results; empty if it caches none.
    """

    gram: Gram | None
    rdms: Floats | None
    distance: Distance
    key: str
    workspace: Workspace

    @cached_property
    def usable(self) -> Booleans:
        """Mask of the rows whose dissimilarities to other rows are defined."""
        if self.rdms is None:
            return patterned(cast(Gram, self.gram), self.distance)
        off = ~np.eye(self.rdms.shape[1], dtype=bool)
        return np.asarray((np.isfinite(self.rdms) & off).any(axis=2).all(axis=0))

    @cached_property
    def matrices(self) -> Floats:
        """Dissimilarities of all rows, (subject × row × row)."""
        if self.rdms is not None:
            return self.rdms
        return np.asarray(squareform(self._whole, checks=False))[None]

    @cached_property
    def _whole(self) -> Floats:
        """Dissimilarities of all rows, from the Gram matrix, condensed."""
        return dissimilarities(cast(Gram, self.gram), self.distance)

    def condensed(self, rows: Indices) -> list[Floats]:
        """Condensed dissimilarities among ``rows``, one array per subject.

        Raises
        ------
        MetricError
            Dissimilarities among these rows are missing.
        """
        if len(rows) == len(self.usable) and self.rdms is None:
            return [moderate(self._whole)]
        values = [condensed(entries[np.ix_(rows, rows)]) for entries in self.matrices]
        if not all(np.isfinite(entries).all() for entries in values):
            raise MetricError(
                "an RDM has missing entries for stimuli that have others; complete it or drop them"
            )
        return list(map(moderate, values))

    @cached_property
    def in_order(self) -> Sorted:
        """All dissimilarities, sorted once for all parts of the stimuli."""
        return Sorted.of(self._whole, RANKED[0])

    def prepared(self, rows: Indices, comparison: Comparison) -> list[Floats]:
        """Dissimilarities among ``rows``, prepared for comparison, one array per subject."""
        ascending = bool((np.diff(rows) > 0).all())
        defined = self.gram is not None and bool(self.usable[rows].all())
        if comparison in RANKED and ascending and defined:
            return [self.in_order.prepared(_among(rows, len(self.usable)), comparison)]
        return [prepared(values, comparison) for values in self.condensed(rows)]

    def all_prepared(self, comparison: Comparison) -> list[Floats]:
        """All dissimilarities, prepared for comparison; cached, because every layer is compared with the same brain data."""
        return cast(
            list[Floats],
            self.workspace.once(
                f"rdm {self.distance} {comparison}",
                self.key,
                lambda: self.prepared(np.arange(len(self.usable)), comparison),
                _bytes,
            ),
        )


def _among(rows: Indices, count: int) -> Booleans:
    """Mask of the entries of a condensed matrix of ``count`` rows whose two rows are chosen."""
    if len(rows) == count:
        return np.ones(count * (count - 1) // 2, dtype=bool)
    kept = np.zeros(count, dtype=bool)
    kept[rows] = True
    first, second = _pairs(count)
    return kept[first] & kept[second]


@lru_cache(maxsize=1)
def _pairs(count: int) -> tuple[Indices, Indices]:
    """Both rows of each entry of a condensed matrix."""
    first, second = np.triu_indices(count, k=1)
    return first, second


def _bytes(values: list[Floats]) -> int:
    return sum(entries.nbytes for entries in values)


@dataclass(frozen=True)
class Pair:
    """Source and target over the same stimuli, the rows that have a pattern in both, and notes about the others."""

    source: Side
    target: Side
    usable: Booleans
    notes: list[str]

    def compared(self, rows: Indices, comparison: Comparison) -> Floats:
        """Agreement over the pairs of ``rows`` for each subject, (subject,)."""
        whole = len(rows) == len(self.usable)
        (a,) = (
            self.source.all_prepared(comparison)
            if whole
            else self.source.prepared(rows, comparison)
        )
        others = (
            self.target.all_prepared(comparison)
            if whole
            else self.target.prepared(rows, comparison)
        )
        return np.array([agreement(a, b, comparison) for b in others])


class Left(NamedTuple):
    """What is left of a target: its rows, and the prepared dissimilarities among them, one array per subject."""

    rows: Indices
    prepared: list[Floats]


def variation_of(
    pair: Pair, target: xr.DataArray, comparison: Comparison, like: xr.DataArray
) -> Variation:
    """Return how the agreement changes without stimuli, and without neuroids if the target contains responses."""
    factors: dict[str, Strings] = {"stimulus": stimulus_names(target, len(pair.usable))}
    if "neuroid" not in target.dims:
        return left_out(
            pair, factors, _of_target(pair, comparison, None), comparison, like
        )
    responses = responses_left(target, scaled=True)
    of_target = _of_target(pair, comparison, responses)
    factors["neuroid"] = responses.names
    return left_out(pair, factors, of_target, comparison, like)


def _of_target(
    pair: Pair, comparison: Comparison, responses: ResponsesLeft | None
) -> Callable[[Keep], Left]:
    """Return a function that computes what is left of the target; cached for the other layers of a model."""
    side = pair.target
    workspace = pair.target.workspace

    @lru_cache(maxsize=COARSE)
    def fewer(kept: bytes) -> Side:
        some = cast(ResponsesLeft, responses).among(np.frombuffer(kept, dtype=bool))
        return replace(side, gram=relative_gram(some, workspace, ""))

    def compute(keep: Keep) -> Left:
        rows = pair.usable & keep.get("stimulus", True)
        chosen = side
        if "neuroid" in keep:
            chosen = fewer(np.asarray(keep["neuroid"]).tobytes())
            rows = rows & chosen.usable
        at = np.flatnonzero(rows)
        return Left(
            at, chosen.prepared(at, comparison) if len(at) >= FEWEST_STIMULI else []
        )

    def of_target(keep: Keep) -> Left:
        small = len(pair.usable) ** 2 <= 2 * KEPT
        place = hashlib.sha256(pair.usable.tobytes())
        for name in sorted(keep):
            place.update(name.encode() + np.asarray(keep[name]).tobytes())
        if side.key and small:
            key = f"{side.key} {place.hexdigest()}"
        else:
            key = ""
        name = f"rdm {side.distance} {comparison} without"
        return cast(
            Left,
            workspace.once(
                name, key, lambda: compute(keep), lambda left: _bytes(left.prepared)
            ),
        )

    return of_target


def left_out(
    pair: Pair,
    factors: Mapping[str, Strings],
    of_target: Callable[[Keep], Left],
    comparison: Comparison,
    like: xr.DataArray,
) -> Variation:
    """Return how the agreement changes without items of ``factors``, given what is then left of the target.

    Parameters
    ----------
    pair
        Both sides with all their items.
    factors
        Ids of the items of each factor, as in :class:`~neuroledger.stats.samples.Variation`.
    of_target
        Returns what is left of the target without items.
    comparison
        How dissimilarities are compared.
    like
        The samples with all items: one per subject, or all equal without some items.
    """

    @lru_cache(maxsize=1)
    def of_source(rows: bytes) -> Floats:
        (ready,) = pair.source.prepared(np.frombuffer(rows, dtype=np.intp), comparison)
        return ready

    def agreed(keep: Keep) -> Floats:
        left = of_target(keep)
        if len(left.rows) < FEWEST_STIMULI:
            return np.full(like.shape, np.nan)
        a = of_source(left.rows.tobytes())
        values = np.array([agreement(a, b, comparison) for b in left.prepared])
        return np.array(np.broadcast_to(values, like.shape) if like.ndim else values[0])

    def without(keep: Keep) -> xr.DataArray:
        return like.copy(data=agreed(keep))

    def each(factor: str, codes: Indices) -> Floats:
        groups = range(int(codes.max()) + 1)
        return np.array([agreed({factor: codes != group}) for group in groups])

    return Variation(factors, without, each)
