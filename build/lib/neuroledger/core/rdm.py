"""Representational dissimilarity matrices as condensed vectors, and how two of them are compared."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from neuroledger.core.gram import Gram, row_correlation

__all__ = ["Comparison", "Distance", "compare", "condensed", "dissimilarity", "mean_ranks", "pair_rows"]

Distance: TypeAlias = Literal["correlation", "euclidean", "squared_euclidean", "cosine"]
Comparison: TypeAlias = Literal["spearman", "pearson", "cosine", "kendall_tau_a", "rho_a"]
Floats: TypeAlias = NDArray[np.float64]


def dissimilarity(found: Gram, distance: Distance) -> Floats:
    """Dissimilarity of every pair of rows (row × row), from a Gram matrix held on the host.

    ``correlation`` is ``1 − r`` between rows over features; ``cosine`` is one minus the cosine of the angle between
    them; ``squared_euclidean`` is the squared distance divided by the number of features, and ``euclidean`` the
    distance itself. Rows without a pattern (constant, or zero) have NaN under ``correlation`` and ``cosine``.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if distance == "correlation":
            return cast(Floats, 1 - row_correlation(found))
        if distance == "cosine":
            raw = found.raw()
            size = np.sqrt(raw.diagonal())
            return cast(Floats, 1 - raw / size[:, None] / size)
    power = found.K.diagonal()
    squared = np.maximum(power[:, None] + power - 2 * found.K, 0.0)
    return cast(Floats, squared / found.count if distance == "squared_euclidean" else np.sqrt(squared))


def condensed(matrix: Floats) -> Floats:
    """Upper triangle without the diagonal, row by row."""
    rows = len(matrix)
    result = np.empty(rows * (rows - 1) // 2)
    start = 0
    for row in range(rows - 1):
        end = start + rows - 1 - row
        result[start:end] = matrix[row, row + 1 :]
        start = end
    return result


def pair_rows(rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The two rows of each entry of a condensed matrix."""
    return np.triu_indices(rows, 1)


def mean_ranks(values: Floats) -> Floats:
    """Ranks from 1, ties sharing their mean rank."""
    count = len(values)
    order = np.argsort(values)
    ordered = values[order]
    new = np.empty(count, bool)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    ranks = np.empty(count)
    if new.all():
        ranks[order] = np.arange(1.0, count + 1)
        return ranks
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, count))
    ranks[order] = np.repeat(starts + (sizes + 1) / 2, sizes)
    return ranks


def compare(a: Floats, b: Floats, comparison: Comparison) -> float:
    """Similarity of two condensed RDMs, NaN when one of them does not vary.

    ``spearman`` and ``pearson`` correlate; ``cosine`` does not subtract the mean; ``kendall_tau_a`` counts
    concordant less discordant pairs over all pairs; ``rho_a`` is Spearman's coefficient expected when ties are
    broken at random (Schütt et al., 2023).
    """
    if comparison == "kendall_tau_a":
        return _tau_a(a, b)
    if comparison in ("spearman", "rho_a"):
        a, b = mean_ranks(a), mean_ranks(b)
    if comparison == "rho_a":
        count = len(a)
        middle = (count + 1) / 2
        return float(12 * ((a - middle) @ (b - middle)) / (count**3 - count))
    if comparison != "cosine":
        a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else float("nan")


def _tau_a(a: Floats, b: Floats) -> float:
    from scipy.stats import kendalltau

    count = len(a)
    total = count * (count - 1) / 2
    untied = np.sqrt((total - _tied(a)) * (total - _tied(b)))
    return (
        float(kendalltau(a, b, method="asymptotic").statistic * untied / total)
        if untied > 0
        else float("nan")
    )


def _tied(values: Floats) -> float:
    sizes = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())
