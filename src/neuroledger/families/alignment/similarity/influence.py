"""Influence of single stimuli on the similarity of two representations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.rdm import (
    ALIKE,
    Comparison,
    condensed,
    mean_ranks,
)

__all__ = [
    "beyond_each",
    "corrected_influence",
    "halves_influence",
    "pair_influence",
    "without_each_stimulus",
]


# Minimum number of neuroids left: the correlation of patterns of two neuroids has only two values.
FEWEST_LEFT = 3
# Half the step of numerical derivatives, in Fisher's z.
STEP = 1e-4


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
