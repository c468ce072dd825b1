"""Influence of single stimuli and neuroids on the similarity of two representations, by derivatives, not resampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.rdm import (
    ALIKE,
    Comparison,
    Distance,
    agreement,
    condensed,
    mean_ranks,
    prepared,
)
from neuroledger.stats.spread import Crossed, Influence, Items, centred, left_out, moved

__all__ = [
    "beyond_each",
    "corrected_influence",
    "halves_influence",
    "influence_of",
    "of_unequal",
    "pair_influence",
    "pair_slopes",
    "rdm_neuroids",
    "without_each_neuroid",
    "without_each_stimulus",
]


# Number of neighbours, as a share of all pairs, over which the density of dissimilarities is averaged.
NEIGHBOURS = 1 / 20
OFFSETS = 32
# Neuroids are left out one by one if at most this many dissimilarities must be computed (about a quarter of a second).
AFRESH = 2_000_000
# Minimum number of neuroids left: the correlation of patterns of two neuroids has only two values.
FEWEST_LEFT = 3
# Half the step of numerical derivatives, in Fisher's z.
STEP = 1e-4


def influence_of(
    ids: NDArray[np.str_],
    left: Floats,
    pairs: Floats,
    neuroids: NDArray[np.str_] | None = None,
    cells: Floats | None = None,
    without: Floats | None = None,
) -> Influence:
    """Combine the influence of stimuli, from the values with each left out, with that of neuroids.

    Parameters
    ----------
    left
        The value without each stimulus, (stimulus,).
    pairs
        Influence of each pair of stimuli, (stimulus, stimulus), symmetric. The interaction of a pair is contained in the
        values of both of its stimuli, so it is counted twice and subtracted once [efron1981].
    cells
        Derivative of the value by the weights of each stimulus in each neuroid's part of it, (stimulus, neuroid): its sum
        over stimuli is the derivative by the weight of the neuroid. Each pair of stimuli contributes to both.
    without
        The value without each neuroid, (neuroid,), if known. With only a few dozen neuroids, each contributes much to
        every dissimilarity, and derivatives underestimate the variance by up to a third.
    """
    factors = {"stimulus": left_out(ids, left)}
    rows = np.argsort(ids.astype(str))
    crossed: dict[tuple[str, str], Floats | Callable[[Floats, Floats], Floats]] = {
        ("stimulus", "stimulus"): beyond_each(ids, pairs)
    }
    if cells is not None and neuroids is not None and len(neuroids) > 1:
        columns = np.argsort(neuroids.astype(str))
        factors["neuroid"] = (
            moved(neuroids, cells.sum(axis=0)) if without is None else left_out(neuroids, without)
        )
        crossed["stimulus", "neuroid"] = centred(2 * cells[np.ix_(rows, columns)])
    return of_unequal(factors, crossed)


def of_unequal(factors: Mapping[str, Items], crossed: Crossed) -> Influence:
    """Influence of items of which a few may dominate a score: with fewer degrees of freedom, and a skewed interval.

    ``factors`` and ``crossed`` are those of :class:`~neuroledger.stats.spread.Influence`; the skewed interval follows
    :meth:`~neuroledger.stats.spread.Spread.interval` [johnson1978].
    """
    sure = {name: items.sure for name, items in factors.items()}
    return Influence(
        factors, crossed, sure=sure, third={name: items.third for name, items in factors.items()}
    )


def beyond_each(ids: NDArray[np.str_], pairs: Floats) -> Floats:
    """Interaction of each pair of stimuli: (stimulus, stimulus), upper triangle, in the order of sorted ids."""
    rows = np.argsort(ids.astype(str))
    own = pairs[np.ix_(rows, rows)].copy()
    np.fill_diagonal(own, 0.0)
    sums = own.sum(axis=0) / (len(own) - 2)
    return np.asarray(np.triu(own - sums - sums[:, None], 1))


def pair_influence(a: Floats, b: Floats, comparison: Comparison) -> Floats:
    """Influence of each pair of stimuli on the similarity of two dissimilarity matrices, (stimulus, stimulus)."""
    from scipy.spatial.distance import squareform

    x, y = condensed(a), condensed(b)
    if comparison == "kendall_tau_a":
        concordance = _concordance(x, y)
        return cast(
            Floats, squareform(2 * (concordance - concordance.mean()) / len(concordance), checks=False)
        )
    if comparison in ("spearman", "rho_a"):
        x, y = mean_ranks(x, ALIKE), mean_ranks(y, ALIKE)
    if comparison != "cosine":
        x, y = x - x.mean(), y - y.mean()
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    return cast(Floats, squareform(x * y - (x @ y) / 2 * (x * x + y * y), checks=False))


def without_each_stimulus(a: Floats, b: Floats, comparison: Comparison) -> Floats:
    """Similarity of two dissimilarity matrices with each stimulus left out in turn, (stimulus,), computed from row sums.

    Ranks are computed once, among all pairs.
    """
    n = len(a)
    if comparison == "kendall_tau_a":
        return _tau_without_each(a, b)
    if comparison in ("spearman", "rho_a"):
        a, b = _ranked(a), _ranked(b)

    def rest(matrix: Floats) -> Floats:
        rows = matrix.sum(axis=1)
        return np.asarray(rows.sum() / 2 - rows)

    aa, bb, ab = rest(a * a), rest(b * b), rest(a * b)
    if comparison != "cosine":
        pairs = (n - 1) * (n - 2) / 2
        sa, sb = rest(a), rest(b)
        aa, bb, ab = aa - sa * sa / pairs, bb - sb * sb / pairs, ab - sa * sb / pairs
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(ab / np.sqrt(aa * bb))


def without_each_neuroid(
    a: Floats, Y: Floats, distance: Distance, comparison: Comparison, groups: NDArray[np.intp] | None = None
) -> Floats | None:
    """Similarity of ``a`` with the dissimilarities of ``Y`` with each neuroid, or group of them, left out in turn, (group,).

    ``a`` is a matrix (stimulus × stimulus), ``Y`` (stimulus × neuroid), ``groups`` the number of each neuroid's group.
    Returns ``None`` if this would take too long, too few neuroids remain, or a stimulus has no pattern in the remaining
    neuroids.
    """
    from scipy.spatial.distance import pdist

    sizes = np.bincount(np.arange(Y.shape[1]) if groups is None else groups)
    count, remaining = len(a) * (len(a) - 1) // 2, Y.shape[1] - int(sizes.max())
    if remaining < FEWEST_LEFT or count * len(sizes) > AFRESH:
        return None
    ready, values = prepared(condensed(a), comparison), np.empty(len(sizes))
    name = "sqeuclidean" if distance == "squared_euclidean" else distance
    for group in range(len(sizes)):
        left = np.delete(Y, group, axis=1) if groups is None else Y[:, groups != group]
        distances = pdist(left, name)
        if not np.isfinite(distances).all():
            return None
        values[group] = agreement(ready, prepared(distances, comparison), comparison)
    return values if np.isfinite(values).all() else None


def halves_influence(a: Floats, b: Floats, correlation: Literal["pearson", "spearman", "kendall"]) -> Floats:
    """Influence of each row on the correlation of the columns of two tables, weighted 1/n, (row, column).

    For rank correlations, the effect of a row on the ranks of other rows is included.
    """
    from scipy.stats import rankdata

    n = len(a)
    if correlation == "kendall":
        agree, untied = np.zeros(a.shape), np.zeros((2, a.shape[1]))
        for row in range(n):
            above, beyond = np.sign(a - a[row]), np.sign(b - b[row])
            agree[row] = (above * beyond).sum(axis=0)
            untied += np.abs(above).sum(axis=0), np.abs(beyond).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(2 * (agree - agree.mean(axis=0)) / np.sqrt(untied[0] * untied[1]))
    if correlation == "spearman":
        a, b = rankdata(a, axis=0), rankdata(b, axis=0)
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    size = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        product = a * b / size
        if correlation == "spearman":
            influence = product + (_above(a, b) + _above(b, a)) / size
            return np.asarray(influence - influence.mean(axis=0))
        squares = a * a / (a * a).sum(axis=0) + b * b / (b * b).sum(axis=0)
        return np.asarray(product - product.sum(axis=0) / 2 * squares)


def corrected_influence(influence: Floats, r: Floats, corrected: Callable[[Floats], Floats]) -> Floats:
    """Influence on corrected correlations, (row, column), from the influence on the correlations ``r`` of one split.

    ``r`` is (1, column). The slope of the correction is a central difference in Fisher's z.
    """
    inside = np.arctanh(np.clip(r, -1 + STEP, 1 - STEP))
    low, high = np.tanh(inside - STEP), np.tanh(inside + STEP)
    return np.asarray(influence * (corrected(high) - corrected(low)) / (high - low))


def _above(ranks: Floats, other: Floats) -> Floats:
    """For each row, the sum of ``other`` over the rows of higher rank plus half of its own value, column by column."""
    order = np.argsort(ranks, axis=0)
    ordered = np.take_along_axis(other, order, axis=0)
    result = np.empty_like(other)
    sums = ordered.sum(axis=0) - np.cumsum(ordered, axis=0) + ordered / 2
    np.put_along_axis(result, order, sums, axis=0)
    return result


def _ranked(matrix: Floats) -> Floats:
    from scipy.spatial.distance import squareform

    return cast(Floats, squareform(mean_ranks(condensed(matrix), ALIKE), checks=False))


def _tau_without_each(a: Floats, b: Floats) -> Floats:
    """Kendall's tau-a with each stimulus left out, to first order, from the concordance of each pair."""
    n = len(a)
    first, second = np.triu_indices(n, 1)
    concordance = _concordance(a[first, second], b[first, second])
    tau, pairs = float(concordance.mean()), len(concordance)
    excess = np.zeros(n)
    np.add.at(excess, first, concordance - tau)
    np.add.at(excess, second, concordance - tau)
    return tau - 2 * excess / (pairs - (n - 1))


def _concordance(a: Floats, b: Floats) -> Floats:
    """For each entry, the share of other entries that both vectors order equally minus the share ordered differently."""
    count = len(a)
    by_a = np.lexsort((b, a))
    ranks = np.empty(count, np.int64)
    ranks[np.lexsort((a, b))] = np.arange(count)
    smaller = np.empty(count)
    smaller[by_a] = _smaller_before(ranks[by_a])
    positions = np.empty(count)
    positions[by_a] = np.arange(count)
    concordant = 2 * smaller + (count - 1) - positions - ranks
    return np.asarray((2 * concordant - (count - 1)) / (count - 1))


def _smaller_before(ranks: NDArray[np.int64]) -> Floats:
    """Number of earlier entries that are smaller, for a permutation: bit by bit, within groups of equal leading bits."""
    count = len(ranks)
    order, counts = np.arange(count), np.zeros(count)
    for bit in range(max(1, (count - 1).bit_length()) - 1, -1, -1):
        keys = ranks[order]
        ones = (keys >> bit) & 1
        zeros = np.cumsum(1 - ones) - (1 - ones)
        group = keys >> (bit + 1)
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        sizes = np.diff(np.append(starts, count))
        counts[order] += ones * (zeros - np.repeat(zeros[starts], sizes))
        order = order[np.argsort(keys >> bit, kind="stable")]
    return counts


def pair_slopes(a: Floats, b: Floats, comparison: Comparison) -> Floats:
    """Derivative of the similarity of two condensed matrices by each entry of the second, (pair,).

    The rank of an entry changes with the density of values around it, estimated from the nearest twentieth of all
    entries, and the entry exchanges ranks with its neighbours: the derivative depends on the difference between its
    value in ``a`` and the values of these neighbours.
    """
    if comparison in ("pearson", "cosine"):
        if comparison == "pearson":
            a, b = a - a.mean(), b - b.mean()
        size_a, size_b = math.sqrt(a @ a), math.sqrt(b @ b)
        return np.asarray((a / size_a - (a @ b) / (size_a * size_b) * b / size_b) / size_b)
    count = len(b)
    order = np.argsort(b, kind="stable")
    reach = max(2, int(NEIGHBOURS * count / 2))
    low, high = np.maximum(np.arange(count) - reach, 0), np.minimum(np.arange(count) + reach, count - 1)
    ordered = b[order]
    width = ordered[high] - ordered[low]
    density = np.divide(high - low, width, out=np.zeros(count), where=width > ALIKE * np.abs(ordered).max())
    ranks = mean_ranks(a, ALIKE)[order] - (count + 1) / 2
    slopes = np.empty(count)
    if comparison == "kendall_tau_a":
        offsets = np.unique(np.linspace(-reach, reach, OFFSETS).round().astype(int))
        others = np.clip(np.arange(count)[:, None] + offsets[offsets != 0], 0, count - 1)
        sign = np.sign(ranks[:, None] - ranks[others]).mean(axis=1)
        slopes[order] = 4 * density * sign / (count * (count - 1))
        return slopes
    sums = np.concatenate([[0.0], np.cumsum(ranks)])
    around = (sums[high + 1] - sums[low]) / (high + 1 - low)
    if comparison == "rho_a":
        size = (count**3 - count) / 12
    else:
        own = mean_ranks(b, ALIKE) - (count + 1) / 2
        size = math.sqrt(float(ranks @ ranks) * float(own @ own))
    slopes[order] = density * (ranks - around) / size
    return slopes


def rdm_neuroids(a: Floats, Y: Floats, distance: Distance, comparison: Comparison) -> Floats:
    """Derivative of the similarity of ``a`` with the dissimilarities of ``Y`` by neuroids' weights, (stimulus, neuroid).

    ``a`` is a matrix (stimulus × stimulus), ``Y`` (stimulus × neuroid); the sum over stimuli is the derivative by the
    weight of a neuroid.

    Raises
    ------
    MetricError
        The distance is not supported.
    """
    from scipy.spatial.distance import squareform

    if distance in ("correlation", "cosine"):
        U = Y - Y.mean(axis=1, keepdims=True) if distance == "correlation" else Y
        U = U / np.linalg.norm(U, axis=1, keepdims=True)
        R = U @ U.T
        Q = squareform(pair_slopes(condensed(a), condensed(1 - R), comparison), checks=False)
        QR, square = Q * R, U * U
        return np.asarray((0.5 * (QR.sum(axis=1)[:, None] * square + QR @ square) - U * (Q @ U)) / 2)
    if distance in ("euclidean", "squared_euclidean"):
        Y = Y - Y.mean(axis=0)
        power = (Y * Y).sum(axis=1)
        D = np.maximum(power[:, None] + power - 2 * (Y @ Y.T), 0.0)
        if distance == "euclidean":
            D = np.sqrt(D)
        Q = squareform(pair_slopes(condensed(a), condensed(D), comparison), checks=False)
        if distance == "euclidean":
            Q = np.divide(Q, 2 * D, out=np.zeros_like(D), where=D > 0)
        square = Y * Y
        return np.asarray((square * Q.sum(axis=1)[:, None] - 2 * Y * (Q @ Y) + Q @ square) / 2)
    raise MetricError(f"the influence of neuroids on {distance} dissimilarities is not known")
