"""Centred kernel alignment: similarity of two representations up to rotation and scale."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple, cast

import numpy as np
import xarray as xr
from pydantic import NonNegativeFloat

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import (
    gram,
    inner,
    patterns,
    relative_gram,
    responses_left,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import COARSE, MOST_GROUPS, stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["cka", "cka_subsets"]


Regularisation = NonNegativeFloat

# The unbiased estimator divides by n (n - 3).
FEWEST_STIMULI = 4
MOST_BYTES: Final = 1 << 28
"""Bytes up to which the Gram matrices without each group of neuroids, or of both factors, are kept."""
KEPT_PARTS: Final = 2 * MOST_GROUPS + COARSE**2


@metric("cka", version=6)
def cka(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> Samples:
    """Linear centred kernel alignment of ``(presentation, neuroid)`` assemblies.

    ``HSIC(K, L) / √(HSIC(K, K)·HSIC(L, L))`` of the Gram matrices over stimuli, with the unbiased estimator of HSIC
    [song2012, nguyen2021], or the classic one [kornblith2019], whose value is larger for fewer stimuli. The unbiased
    value is 0 if either side has no unbiased signal. It does not depend on the units of either side, unless a constant
    ``regularisation`` is added to the denominator of the unbiased value, as the peer does (in squared units).

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        Fewer than 4 stimuli, several rows for one stimulus, or a side that does not vary.
    """
    K, L, notes = _grams(source, target, workspace, relative=not regularisation)
    value = _alignment(K, L, unbiased, regularisation)
    if np.isnan(value):
        raise MetricError(
            "an assembly does not vary over the stimuli; its alignment is undefined"
        )
    samples = xr.DataArray(value)
    return Samples(
        samples,
        _variation(K, target, unbiased, regularisation, workspace, like=samples),
        notes=notes,
    )


@metric("cka_subsets", version=6)
def cka_subsets(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> Samples:
    """Linear centred kernel alignment over the test presentations of each split, computed as :func:`cka`: ``(split,)``."""
    K, L, notes = _grams(source, target, workspace, relative=not regularisation)
    if min(len(split.test) for split in splits) < FEWEST_STIMULI:
        raise MetricError(
            f"CKA needs at least {FEWEST_STIMULI} stimuli in every test part; use larger parts"
        )
    parts = [np.ix_(split.test, split.test) for split in splits]
    values = [_alignment(K[part], L[part], unbiased, regularisation) for part in parts]
    samples = xr.DataArray(
        values, dims="split", coords={"split": np.arange(len(splits))}
    )
    tested = np.unique(np.concatenate([split.test for split in splits]))
    among = target.isel(presentation=tested)
    # Nothing is trained: the mean over subsets varies as the alignment over all of their stimuli.
    variation = _variation(
        _among(K, tested), among, unbiased, regularisation, workspace, like=samples
    )
    return Samples(samples, variation, notes=notes)


def _grams(
    source: xr.DataArray, target: xr.DataArray, workspace: Workspace, *, relative: bool
) -> tuple[Floats, Floats, list[str]]:
    """Gram matrices of both sides; ``relative`` divides each by its trace, which removes units and avoids overflow."""
    notes: list[str] = []
    grams = []
    for name, assembly in (("source", source), ("target", target)):
        X = patterns(assembly, name, notes, drop_missing=name == "target")
        K = (
            relative_gram(X, workspace)
            if relative
            else gram(X, workspace).on_host(workspace)
        ).K
        if relative:
            trace = float(np.trace(K))
        else:
            trace = 0.0
        grams.append(K / trace if trace else K)
    if len(grams[0]) != len(grams[1]):
        raise MetricError(
            f"source has {len(grams[0])} stimuli and target {len(grams[1])}; both sides need the same"
        )
    if len(grams[0]) < FEWEST_STIMULI:
        raise MetricError(
            f"CKA needs at least {FEWEST_STIMULI} stimuli, not {len(grams[0])}"
        )
    return grams[0], grams[1], notes


class _Centred(NamedTuple):
    """A Gram matrix of stimuli, the sums of its rows (unbiased: without the diagonal), and its HSIC with itself."""

    products: Floats
    sums: Floats
    own: float


def _centred(K: Floats, unbiased: bool) -> _Centred:
    k = K.sum(axis=1)
    if unbiased:
        k = k - K.diagonal()
    return _Centred(K, k, (_unbiased if unbiased else _biased)(K, K, k, k))


def _alignment(
    K: Floats, L: Floats, unbiased: bool, regularisation: float = 0.0
) -> float:
    """Alignment of two Gram matrices; NaN if one of them does not vary."""
    sides = _centred(K, unbiased), _centred(L, unbiased)
    return _aligned(*sides, unbiased, regularisation)


def _aligned(
    first: _Centred, second: _Centred, unbiased: bool, regularisation: float
) -> float:
    """The same, of matrices whose own HSIC is known."""
    K, k, kk = first
    L, m, ll = second
    kl = (_unbiased if unbiased else _biased)(K, L, k, m)
    if not np.trace(K) or not np.trace(L):
        return float("nan")
    if unbiased:
        if kk * ll > 0:
            return kl / (math.sqrt(kk * ll) + regularisation)
        return 0.0
    return kl / math.sqrt(kk * ll)


def _among(K: Floats, stimuli: Indices) -> Floats:
    """Part of a Gram matrix, in the order of memory of a whole one."""
    return K.take(stimuli, axis=0).take(stimuli, axis=1)


def _biased(K: Floats, L: Floats, k: Floats, m: Floats) -> float:
    """``tr(HKH·HLH)`` with the centring matrix H; shifts of either matrix cancel, so only sums of rows are needed."""
    n = len(K)
    rows = 2 * (k @ m) / n
    whole = k.sum() * m.sum() / n**2
    return float(inner(K, L) - rows + whole)


def _unbiased(K: Floats, L: Floats, k: Floats, m: Floats) -> float:
    """Unbiased HSIC of two Gram matrices, whose rows have these sums without the diagonals, which are ignored."""
    n = len(K)
    products = float(inner(K, L) - K.diagonal() @ L.diagonal())
    rows = 2 * (k @ m) / (n - 2)
    whole = k.sum() * m.sum() / ((n - 1) * (n - 2))
    shifted = products + whole - rows
    return float(shifted / (n * (n - 3)))


def _variation(
    K: Floats,
    target: xr.DataArray,
    unbiased: bool,
    regularisation: float,
    workspace: Workspace,
    *,
    like: xr.DataArray,
) -> Variation:
    """Return how the alignment changes without stimuli of both sides and without neuroids of the target."""
    ids = stimulus_names(target, len(K))
    # A constant in the denominator has the target's units.
    left = responses_left(target, scaled=not regularisation)

    everything = np.ones(len(K), dtype=bool)
    few = COARSE * K.nbytes < MOST_BYTES

    @cache
    def whole() -> Floats:
        return left.gram(everything, np.ones(len(left.names), dtype=bool))

    # The Gram matrix of some stimuli is a part of that of all: it is computed once for each group of neuroids.
    @lru_cache(maxsize=COARSE if few else 1)
    def of_neuroids(kept: bytes) -> Floats:
        columns = np.frombuffer(kept, dtype=bool)
        others = left.gram(everything, ~columns)
        # A difference of matrices is exact enough if most of the sum stays.
        if 2 * np.trace(others) <= np.trace(whole()):
            remaining: Floats = whole() - others
            return remaining
        return left.gram(everything, columns)

    every = everything.tobytes()

    def part_of(matrix: Floats, stimuli: bytes) -> _Centred:
        if stimuli != every:
            kept = np.flatnonzero(np.frombuffer(stimuli, dtype=bool))
            matrix = _among(matrix, kept)
        return _centred(matrix, unbiased)

    # Neuroids are left out with all stimuli, or with the same few groups of them.
    @lru_cache(maxsize=COARSE if few else 1)
    def of_source(stimuli: bytes) -> _Centred:
        return part_of(K, stimuli)

    # What is left of the target is the same for all layers of a model.
    key = workspace.key(left.values) if KEPT_PARTS * K.nbytes < MOST_BYTES else ""

    def of_target(stimuli: bytes, columns: bytes) -> _Centred:
        place = hashlib.sha256(columns + stimuli).hexdigest()
        return cast(
            _Centred,
            workspace.once(
                f"cka without {unbiased} {not regularisation}",
                key and f"{key} {place}",
                lambda: part_of(of_neuroids(columns), stimuli),
                lambda part: part.products.nbytes,
            ),
        )

    def alignment(keep: Keep) -> float:
        columns = keep.get("neuroid", np.ones(len(left.names), dtype=bool)).tobytes()
        stimuli = keep.get("stimulus", everything).tobytes()
        return _aligned(
            of_source(stimuli), of_target(stimuli, columns), unbiased, regularisation
        )

    def without(keep: Keep) -> xr.DataArray:
        return like.copy(data=np.full(like.shape, alignment(keep)))

    def each(factor: str, codes: Indices) -> Floats:
        groups = range(int(codes.max()) + 1)
        values = [alignment({factor: codes != group}) for group in groups]
        return np.array([np.full(like.shape, value) for value in values])

    return Variation({"stimulus": ids, "neuroid": left.names}, without, each)
