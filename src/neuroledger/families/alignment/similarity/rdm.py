"""Representational dissimilarity matrices as condensed vectors, and their comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from neuroledger.data.arrays import Booleans, Floats, Indices, floats
from neuroledger.families.alignment.similarity.gram import Gram, inner
from neuroledger.families.alignment.similarity.sorting import order_of

__all__ = [
    "ALIKE",
    "Comparison",
    "Distance",
    "RANKED",
    "Sorted",
    "agreement",
    "compare",
    "condensed",
    "dissimilarities",
    "mean_ranks",
    "patterned",
    "prepared",
]

Distance: TypeAlias = Literal["correlation", "euclidean", "squared_euclidean", "cosine"]
Comparison: TypeAlias = Literal[
    "spearman", "pearson", "cosine", "kendall_tau_a", "rho_a"
]

# Comparisons that use only ranks.
RANKED: tuple[Comparison, ...] = ("spearman", "rho_a", "kendall_tau_a")

# Dissimilarities below this (relative to the rows' size) are rounding errors and set to 0, so that identical rows tie.
ROUNDING = 1.5e-14
PAIR = 2
# Rows whose dissimilarities are computed at once: a block of 64 rows and some thousand stimuli fits a processor's cache.
ROWS_AT_ONCE = 64
# Dissimilarities that differ by less than this share of the largest are tied.
ALIKE = 64 * np.finfo(np.float64).eps


def dissimilarities(gram: Gram, distance: Distance) -> Floats:
    """Dissimilarity of every pair of rows (condensed: upper triangle, row by row), from a Gram matrix on the host.

    ``correlation`` is ``1 − r`` between rows over features; ``cosine`` is one minus the cosine of the angle between
    them; ``squared_euclidean`` is the squared distance divided by the number of features, and ``euclidean`` the
    distance without this division. Rows without a pattern (see :func:`patterned`) get NaN.
    """
    rows = len(gram.K)
    result = np.empty(rows * (rows - 1) // 2)
    if distance in ("correlation", "cosine"):
        product, level, shift = _uncentred(gram, distance)
        defined = patterned(gram, distance)
        power = gram.K.diagonal() + 2 * product + level - shift * gram.row_sum
        scale = np.where(defined, 1 / np.sqrt(np.where(defined, power, 1.0)), np.nan)
        for some, others in _blocks(rows):
            part = gram.K[some, others] + (
                product[others] + (product[some, None] + level)
            )
            part -= shift[some, None] * gram.row_sum[others]
            part *= scale[others] * -scale[some, None]
            part += 1.0
            part[np.abs(part) < ROUNDING] = 0.0
            _into_triangle(result, part, some.start, rows)
        if distance == "correlation" and gram.count == PAIR:
            np.rint(result, out=result)  # with two neuroids, the correlation is 1 or -1
        return result
    power = gram.K.diagonal()
    for some, others in _blocks(rows):
        total = power[others] + power[some, None]
        part = gram.K[some, others] * -2.0
        part += total
        part[part < ROUNDING * total] = 0.0
        _into_triangle(result, part, some.start, rows)
    if distance == "squared_euclidean":
        result /= gram.count
    else:
        np.sqrt(result, out=result)
    return result


def _blocks(rows: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of some rows, and of the columns from the first of them on."""
    for start in range(0, rows, ROWS_AT_ONCE):
        yield slice(start, min(rows, start + ROWS_AT_ONCE)), slice(start, rows)


def _into_triangle(values: Floats, part: Floats, start: int, rows: int) -> None:
    """Write what a block of rows has above the diagonal to a condensed matrix."""
    for number, entries in enumerate(part):
        row = start + number
        first = row * (2 * rows - row - 1) // 2
        values[first : first + rows - 1 - row] = entries[number + 1 :]


def _uncentred(gram: Gram, distance: Distance) -> tuple[Floats, float, Floats]:
    """Terms that convert an entry of ``K`` to the product of two rows: per-row terms, a constant, and scaled row sums.

    The rows are centred by their means for ``correlation`` and uncentred for ``cosine``.
    """
    if distance == "correlation":
        return gram.mean_product, gram.mean_square, gram.row_sum / gram.count
    product = gram.mean_product + gram.offset * gram.row_sum
    return (
        product,
        gram.mean_square + gram.count * gram.offset**2,
        np.zeros(len(gram.K)),
    )


def patterned(gram: Gram, distance: Distance) -> Booleans:
    """Mask of the rows whose dissimilarity is defined: not constant for ``correlation``, not zero for ``cosine``."""
    if distance not in ("correlation", "cosine"):
        return np.ones(len(gram.K), bool)
    product, level, shift = _uncentred(gram, distance)
    power = gram.K.diagonal() + 2 * product + level - shift * gram.row_sum
    return np.asarray(power > 1e-13 * (gram.K.diagonal() + level))


def condensed(matrix: Floats) -> Floats:
    """Upper triangle without the diagonal, row by row."""
    from scipy.spatial.distance import squareform

    return floats(squareform(matrix, force="tovector", checks=False))


def mean_ranks(values: Floats, alike: float = 0.0) -> Floats:
    """Ranks of finite values, from 1; ties share their mean rank.

    Neighbours in order that differ by no more than ``alike`` times the largest value are ties. With :data:`ALIKE`,
    rounding does not affect the order of equal dissimilarities, such as those of identical stimuli or of counts.
    """
    order = order_of(values)
    ranks = np.empty(len(values))
    ranks[order] = _ranks_in_order(values[order], alike)
    return ranks


def _ranks_in_order(ordered: Floats, alike: float) -> Floats:
    """Ranks of values that are sorted already, as in :func:`mean_ranks`."""
    count = len(ordered)
    tolerance = alike * float(np.abs(ordered[[0, -1]]).max()) if count else 0.0
    is_new = np.ones(count, bool)
    is_new[1:] = ordered[1:] - ordered[:-1] > tolerance
    if is_new.all():
        return np.arange(1.0, count + 1)
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.append(starts, count))
    # A group of `size` ties after `start` smaller values has the ranks start + 1 to start + size.
    return np.repeat(starts + (sizes + 1) / 2, sizes)


def prepared(values: Floats, comparison: Comparison) -> Floats:
    """Transform a condensed RDM as the comparison needs it: (centred) ranks, centred values, or unchanged values."""
    if comparison in RANKED:
        return _from_ranks(mean_ranks(values, ALIKE), comparison)
    if comparison == "pearson":
        centred: Floats = values - values.mean()
        return centred
    return values


def _from_ranks(ranks: Floats, comparison: Comparison) -> Floats:
    if comparison == "kendall_tau_a":
        return ranks
    return ranks - (len(ranks) + 1) / 2


class Sorted(NamedTuple):
    """A condensed RDM with its order: what is left of it without some stimuli is in order too, and need not be sorted."""

    values: Floats
    order: Indices | None

    @classmethod
    def of(cls, values: Floats, comparison: Comparison) -> Sorted:
        """Sort an RDM, if the comparison needs its order."""
        return cls(values, order_of(values) if comparison in RANKED else None)

    def prepared(self, kept: Booleans, comparison: Comparison) -> Floats:
        """Return :func:`prepared` of the entries that are kept, which are finite."""
        if self.order is None:
            return prepared(self.values[kept], comparison)
        everything = bool(kept.all())
        at = self.order if everything else self.order[kept[self.order]]
        ranks = np.empty(len(kept))
        ranks[at] = _ranks_in_order(self.values[at], ALIKE)
        return _from_ranks(ranks if everything else ranks[kept], comparison)


def compare(a: Floats, b: Floats, comparison: Comparison) -> float:
    """Similarity of two condensed RDMs; NaN if one of them does not vary.

    ``spearman`` and ``pearson`` are correlations; ``cosine`` does not subtract the mean; ``kendall_tau_a`` is the number
    of concordant minus discordant pairs, divided by the number of all pairs; ``rho_a`` is the expected Spearman
    coefficient if ties are broken at random (Schütt et al., 2023).
    """
    return agreement(prepared(a, comparison), prepared(b, comparison), comparison)


def agreement(a: Floats, b: Floats, comparison: Comparison) -> float:
    """As :func:`compare`, for RDMs transformed by :func:`prepared`."""
    if comparison == "kendall_tau_a":
        return _tau_a(a, b)
    if comparison == "rho_a":
        return 12 * inner(a, b) / (len(a) ** 3 - len(a))
    size = float(np.sqrt(inner(a, a) * inner(b, b)))
    if size > 0:
        return inner(a, b) / size
    return float("nan")


def _tau_a(a: Floats, b: Floats) -> float:
    from scipy.stats import kendalltau

    count = len(a)
    total = count * (count - 1) / 2
    untied = np.sqrt((total - _tied(a)) * (total - _tied(b)))
    if untied > 0:
        return float(kendalltau(a, b, method="asymptotic").statistic * untied / total)
    return float("nan")


def _tied(values: Floats) -> float:
    sizes = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())
