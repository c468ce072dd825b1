"""Centred kernel alignment: similarity of two representations up to rotation and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np
import xarray as xr
from pydantic import NonNegativeFloat

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import (
    gram,
    patterns,
    relative_gram,
    responses_left,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import COARSE, stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["cka", "cka_subsets"]


Regularisation = NonNegativeFloat

# The unbiased estimator divides by n (n - 3).
FEWEST_STIMULI = 4
MOST_BYTES: Final = 1 << 28
"""Bytes up to which the Gram matrices without each group of neuroids are kept."""


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
        _variation(K, target, unbiased, regularisation, like=samples),
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
        K[np.ix_(tested, tested)], among, unbiased, regularisation, like=samples
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


def _alignment(
    K: Floats, L: Floats, unbiased: bool, regularisation: float = 0.0
) -> float:
    """Alignment of two Gram matrices; NaN if one of them does not vary."""
    hsic = _unbiased if unbiased else _biased
    kl = float(hsic(K, L))
    kk = float(hsic(K, K))
    ll = float(hsic(L, L))
    if not np.trace(K) or not np.trace(L):
        return float("nan")
    if unbiased:
        if kk * ll > 0:
            return kl / (math.sqrt(kk * ll) + regularisation)
        return 0.0
    return kl / math.sqrt(kk * ll)


def _biased(K: Floats, L: Floats) -> float:
    """``tr(HKH·HLH)`` with the centring matrix H; shifts of either matrix cancel, so only sums are needed."""
    n = len(K)
    k = K.sum(axis=1)
    m = L.sum(axis=1)
    rows = 2 * (k @ m) / n
    whole = k.sum() * m.sum() / n**2
    return float(np.vdot(K, L) - rows + whole)


def _unbiased(K: Floats, L: Floats) -> float:
    """Unbiased HSIC of two Gram matrices; their diagonals are ignored."""
    n = len(K)
    a = K.diagonal()
    b = L.diagonal()
    k = K.sum(axis=1) - a
    m = L.sum(axis=1) - b
    products = float(np.vdot(K, L) - a @ b)
    rows = 2 * (k @ m) / (n - 2)
    whole = k.sum() * m.sum() / ((n - 1) * (n - 2))
    shifted = products + whole - rows
    return float(shifted / (n * (n - 3)))


def _variation(
    K: Floats,
    target: xr.DataArray,
    unbiased: bool,
    regularisation: float,
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

    def without(keep: Keep) -> xr.DataArray:
        columns = keep.get("neuroid", np.ones(len(left.names), dtype=bool))
        L = of_neuroids(columns.tobytes())
        part = np.ix_(*2 * [keep.get("stimulus", everything)])
        value = _alignment(K[part], L[part], unbiased, regularisation)
        return like.copy(data=np.full(like.shape, value))

    return Variation({"stimulus": ids, "neuroid": left.names}, without)
