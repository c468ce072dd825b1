"""Centred kernel alignment: similarity of two representations up to rotation and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import (
    complete_neuroids,
    gram,
    patterns,
    relative_gram,
)
from neuroledger.families.alignment.similarity.influence import influence_of, of_unequal
from neuroledger.spec.registry import metric
from neuroledger.stats.splits import Split
from neuroledger.stats.spread import Influence, Items, left_out
from neuroledger.stats.workspace import Workspace

__all__ = ["cka", "cka_subsets"]


Regularisation = Annotated[float, Field(ge=0)]

# The unbiased estimator divides by n (n - 3).
FEWEST_STIMULI = 4
# With at most this many neuroids, single ones are not left out.
FEWEST_NEUROIDS = 3
# With fewer stimuli, leave-one-out values are too few to estimate the spread.
FEWEST = 8


@metric("cka", version=6)
def cka(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> xr.DataArray:
    """Linear centred kernel alignment of ``(presentation, neuroid)`` assemblies.

    ``HSIC(K, L) / √(HSIC(K, K)·HSIC(L, L))`` of the Gram matrices over stimuli, with the unbiased estimator of HSIC
    [song2012, nguyen2021], or the classic one [kornblith2019], whose value is larger for fewer stimuli. The unbiased
    value is 0 if either side has no unbiased signal. It does not depend on the units of either side, unless a constant
    ``regularisation`` is added to the denominator of the unbiased value, as the peer does (in squared units).

    Returns
    -------
    xr.DataArray
        One number; ``attrs["influence"]`` returns the influence of stimuli and neuroids on it.

    Raises
    ------
    MetricError
        Fewer than 4 stimuli, several rows for one stimulus, or a side that does not vary.
    """
    K, L, notes = _grams(source, target, workspace, relative=not regularisation)
    value = _alignment(K, L, unbiased, regularisation)
    if np.isnan(value):
        raise MetricError("an assembly does not vary over the stimuli; its alignment is undefined")
    attrs = {"notes": notes, "influence": lambda: _influence(K, L, target, unbiased)}
    return xr.DataArray(value, attrs=attrs)


@metric("cka_subsets", version=6)
def cka_subsets(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> xr.DataArray:
    """Linear centred kernel alignment over the test presentations of each split, computed as :func:`cka`: ``(split,)``.

    ``attrs["influence"]`` is computed for the alignment over all tested stimuli, an approximation to the mean over splits.
    """
    K, L, notes = _grams(source, target, workspace, relative=not regularisation)
    if min(len(split.test) for split in splits) < FEWEST_STIMULI:
        raise MetricError(f"CKA needs at least {FEWEST_STIMULI} stimuli in every test part; use larger parts")
    parts = [np.ix_(split.test, split.test) for split in splits]
    values = [_alignment(K[part], L[part], unbiased, regularisation) for part in parts]
    tested = np.unique(np.concatenate([split.test for split in splits]))

    def influence() -> Influence | None:
        pairs = np.ix_(tested, tested)
        return _influence(K[pairs], L[pairs], target.isel(presentation=tested), unbiased)

    attrs = {"notes": notes, "influence": influence}
    return xr.DataArray(values, dims="split", coords={"split": np.arange(len(splits))}, attrs=attrs)


def _grams(
    source: xr.DataArray, target: xr.DataArray, workspace: Workspace, *, relative: bool
) -> tuple[Floats, Floats, list[str]]:
    """Gram matrices of both sides; ``relative`` divides each by its trace, which removes units and avoids overflow."""
    notes: list[str] = []
    grams = []
    for name, assembly in (("source", source), ("target", target)):
        X = patterns(assembly, name, notes, drop_missing=name == "target")
        K = (relative_gram(X, workspace) if relative else gram(X, workspace).on_host(workspace)).K
        trace = float(np.trace(K)) if relative else 0.0
        grams.append(K / trace if trace else K)
    if len(grams[0]) != len(grams[1]):
        raise MetricError(
            f"source has {len(grams[0])} stimuli and target {len(grams[1])}; both sides need the same"
        )
    if len(grams[0]) < FEWEST_STIMULI:
        raise MetricError(f"CKA needs at least {FEWEST_STIMULI} stimuli, not {len(grams[0])}")
    return grams[0], grams[1], notes


def _alignment(K: Floats, L: Floats, unbiased: bool, regularisation: float = 0.0) -> float:
    """Alignment of two Gram matrices; NaN if one of them does not vary."""
    hsic = _unbiased if unbiased else _biased
    kl, kk, ll = float(hsic(K, L)), float(hsic(K, K)), float(hsic(L, L))
    if not np.trace(K) or not np.trace(L):
        return float("nan")
    if unbiased:
        return kl / (math.sqrt(kk * ll) + regularisation) if kk * ll > 0 else 0.0
    return kl / math.sqrt(kk * ll)


def _biased(K: Floats, L: Floats) -> float:
    """``tr(HKH·HLH)`` with the centring matrix H; shifts of either matrix cancel, so only sums are needed."""
    n = len(K)
    k, m = K.sum(axis=1), L.sum(axis=1)
    return float(np.vdot(K, L) - 2 * (k @ m) / n + k.sum() * m.sum() / n**2)


def _unbiased(K: Floats, L: Floats) -> float:
    """Unbiased HSIC of two Gram matrices; their diagonals are ignored."""
    n = len(K)
    a, b = K.diagonal(), L.diagonal()
    k, m = K.sum(axis=1) - a, L.sum(axis=1) - b
    products = float(np.vdot(K, L) - a @ b)
    shifted = products + k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 * (k @ m) / (n - 2)
    return float(shifted / (n * (n - 3)))


def _influence(K: Floats, L: Floats, target: xr.DataArray, unbiased: bool) -> Influence | None:
    """Influence on the alignment of stimuli and of neuroids, by derivatives and by leaving each out."""
    n = len(K)
    if n < FEWEST:
        return None
    ids = np.asarray(target["stimulus_id"].values if "stimulus_id" in target.coords else np.arange(n)).astype(
        str
    )
    left = _without_each(K, L, unbiased)
    hsic = _unbiased if unbiased else _biased
    kl, kk, ll = float(hsic(K, L)), float(hsic(K, K)), float(hsic(L, L))
    if not kk * ll > 0:
        return influence_of(ids, left, np.zeros_like(K))
    k, m = _centred(K), _centred(L)
    if unbiased:
        np.fill_diagonal(k, 0.0)
        np.fill_diagonal(m, 0.0)
    k, m = k / np.linalg.norm(k), m / np.linalg.norm(m)
    pairs = 2 * (k * m - np.vdot(k, m) / 2 * (k * k + m * m))
    functional = _unbiased_functional if unbiased else _centred
    by_target = functional(K) / math.sqrt(kk * ll) - kl / math.sqrt(kk * ll) / ll * functional(L)
    names, Y = complete_neuroids(target)
    Y = Y - Y.mean(axis=0)
    Y = Y * math.sqrt(float(np.trace(L)) / float((Y * Y).sum()))
    influence = influence_of(ids, left, pairs, names, Y * (by_target @ Y))
    without = _without_each_neuroid(K, L, Y, unbiased)
    if without is None:
        return influence
    # Of a few strong neuroids, derivatives overestimate the variance of a score and underestimate that of a difference of
    # scores; leaving each out does the reverse.
    derived, alone = influence.factors["neuroid"], left_out(names, without)
    mean = Items(derived.ids, (derived.deviation + alone.deviation) / 2)
    return of_unequal({**influence.factors, "neuroid": mean}, influence.crossed)


def _centred(K: Floats) -> Floats:
    return np.asarray(K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean())


def _unbiased_functional(K: Floats) -> Floats:
    """The matrix M for which :func:`_unbiased` of K and any L equals the sum of M∘L."""
    n = len(K)
    k = K.sum(axis=1) - K.diagonal()
    M = K + k.sum() / ((n - 1) * (n - 2)) - (k[:, None] + k) / (n - 2)
    np.fill_diagonal(M, 0.0)
    return np.asarray(M / (n * (n - 3)))


def _without_each(K: Floats, L: Floats, unbiased: bool) -> Floats:
    """Alignment with each stimulus left out in turn, (stimulus,), computed from row sums."""
    hsic = _left_unbiased if unbiased else _left_biased
    kl, kk, ll = hsic(K, L), hsic(K, K), hsic(L, L)
    with np.errstate(invalid="ignore"):
        return np.where(kk * ll > 0, kl / np.sqrt(np.abs(kk * ll) + 1e-300), 0.0)


def _without_each_neuroid(K: Floats, L: Floats, Y: Floats, unbiased: bool) -> Floats | None:
    """Alignment with each neuroid of ``L = Y Yᵀ`` left out in turn, (neuroid,).

    None for at most three neuroids, or if the others have no signal without one of them.

    HSIC is linear in each matrix, and that of the matrix of one neuroid with itself is computed from sums.
    """
    hsic, functional = (_unbiased, _unbiased_functional) if unbiased else (_biased, _centred)
    n, squares, sums = len(K), (Y * Y).sum(axis=0), Y.sum(axis=0)
    if unbiased:
        rows, products = Y * sums - Y * Y, squares**2 - (Y**4).sum(axis=0)
        whole = (sums**2 - squares) ** 2 / ((n - 1) * (n - 2))
        own = (products + whole - 2 * (rows**2).sum(axis=0) / (n - 2)) / (n * (n - 3))
    else:
        own = (squares - sums**2 / n) ** 2
    kl = float(hsic(K, L)) - (Y * (functional(K) @ Y)).sum(axis=0)
    ll = float(hsic(L, L)) - 2 * (Y * (functional(L) @ Y)).sum(axis=0) + own
    if len(own) <= FEWEST_NEUROIDS or not (ll > 0).all():
        return None
    return np.asarray(kl / np.sqrt(float(hsic(K, K)) * ll))


def _sums(K: Floats, L: Floats, diagonal: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """For each left-out stimulus: ΣK, ΣL, ΣK∘L and the product of row sums, over the others."""
    a, b = K.diagonal(), L.diagonal()
    product = np.einsum("ij,ij->i", K, L)
    k, m = K.sum(axis=1), L.sum(axis=1)
    own = a * b
    if not diagonal:
        k, m, product, own, a, b = (
            k - a,
            m - b,
            product - own,
            np.zeros_like(own),
            np.zeros_like(a),
            np.zeros_like(b),
        )
    # The left-out stimulus is removed from the row sums of all others.
    cross_k, cross_l = K @ m, L @ k
    if not diagonal:
        cross_k, cross_l = cross_k - K.diagonal() * m, cross_l - L.diagonal() * k
    rows = k @ m - cross_k - cross_l + product - (k * m - a * m - b * k + own)
    return k.sum() - 2 * k + a, m.sum() - 2 * m + b, product.sum() - 2 * product + own, rows


def _left_biased(K: Floats, L: Floats) -> Floats:
    n = len(K) - 1
    k, m, products, rows = _sums(K, L, diagonal=True)
    return products - 2 * rows / n + k * m / n**2


def _left_unbiased(K: Floats, L: Floats) -> Floats:
    n = len(K) - 1
    k, m, products, rows = _sums(K, L, diagonal=False)
    return (products + k * m / ((n - 1) * (n - 2)) - 2 * rows / (n - 2)) / (n * (n - 3))
