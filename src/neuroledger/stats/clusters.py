"""Tests at many points of time or space: clusters against permutations, and the false discovery rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuroledger.data.arrays import Booleans, Floats, Indices, floats
from neuroledger.errors import MetricError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "Cluster",
    "Clusters",
    "cluster_test",
    "discoveries",
    "grid",
    "neighbourhood",
    "sign_flips",
]

# One-sided 5 % of the standard normal distribution, at which points join a cluster.
THRESHOLD = 1.6448536269514722
# With fewer permutations, no cluster can have a p value below .05.
FEWEST_PERMUTATIONS = 19


class Cluster(NamedTuple):
    """Neighbouring points above the threshold: their positions, the sum of their statistic, and the corrected p value."""

    points: Indices
    mass: float
    p: float


class Clusters(NamedTuple):
    """Clusters by decreasing mass, and for each point the p value of its cluster, or 1 outside of all, (point,)."""

    found: tuple[Cluster, ...]
    p: Floats


def cluster_test(
    observed: Floats,
    null: Floats,
    adjacency: csr_array,
    *,
    threshold: float = THRESHOLD,
) -> Clusters:
    """Test which neighbouring points are larger than in permutations, corrected for all points [maris2007].

    Each point is standardised by the mean and standard deviation of its permutations, so that points with much noise
    do not decide alone. The mass of a cluster is the sum over its points; its p value is the share of permutations,
    the observed data among them, whose largest cluster has this mass at least. It holds for the cluster as a whole,
    not for its edges.

    Parameters
    ----------
    observed
        Statistic of each point, (point,); NaN: the point is in no cluster.
    null
        The same for each permutation, (permutation × point).
    adjacency
        Which points are neighbours, (point × point), see :func:`grid` and :func:`neighbourhood`.
    threshold
        Standard deviations above the mean of permutations at which a point joins a cluster.

    Raises
    ------
    MetricError
        There are fewer than 19 permutations, or the shapes do not match.
    """
    if len(null) < FEWEST_PERMUTATIONS:
        raise MetricError(
            f"{len(null)} permutations cannot give a p value below .05; use at least {FEWEST_PERMUTATIONS}"
        )
    if null.shape[1:] != observed.shape or adjacency.shape[0] != len(observed):
        raise MetricError(
            f"the statistic has {len(observed)} points, permutations {null.shape[1:]} and the adjacency "
            f"{adjacency.shape[0]}"
        )
    everything = np.concatenate([observed[None], null])
    # The observed data are one of the permutations under the null hypothesis.
    spread = everything.std(axis=0)
    usable = np.isfinite(spread) & (spread > 0)
    standard = np.zeros_like(everything)
    level = everything[:, usable].mean(axis=0)
    standard[:, usable] = (everything[:, usable] - level) / spread[usable]
    masses = np.array([_largest(each, adjacency, threshold) for each in standard])
    found = []
    for points in _connected(standard[0] > threshold, adjacency):
        mass = float(standard[0, points].sum())
        slack = 1e-9 * max(1.0, mass)
        found.append(Cluster(points, mass, float((masses >= mass - slack).mean())))
    p = np.ones(len(observed))
    for cluster in found:
        p[cluster.points] = cluster.p
    return Clusters(tuple(sorted(found, key=lambda each: -each.mass)), p)


def _largest(statistic: Floats, adjacency: csr_array, threshold: float) -> float:
    masses = [
        float(statistic[points].sum())
        for points in _connected(statistic > threshold, adjacency)
    ]
    return max(masses, default=0.0)


def _connected(above: Booleans, adjacency: csr_array) -> list[Indices]:
    """Return the positions of each connected set of marked points."""
    from scipy.sparse.csgraph import connected_components

    marked = np.flatnonzero(above)
    if not marked.size:
        return []
    among = adjacency[marked][:, marked]
    count, label = connected_components(among, directed=False)
    return [marked[label == each] for each in range(count)]


def grid(*shape: int) -> csr_array:
    """Return which points of a grid are neighbours along an axis, (point × point), in the order of ``ravel``.

    One axis is time; two are the time of a model and the time of a brain; three are a volume.
    """
    from scipy.sparse import csr_array

    numbers = np.arange(math.prod(shape)).reshape(shape)
    pairs = [
        (
            np.take(numbers, range(size - 1), axis).ravel(),
            np.take(numbers, range(1, size), axis).ravel(),
        )
        for axis, size in enumerate(shape)
    ]
    first = np.concatenate([a for a, _ in pairs])
    second = np.concatenate([b for _, b in pairs])
    ones = np.ones(2 * len(first), dtype=bool)
    place = (np.concatenate([first, second]), np.concatenate([second, first]))
    return csr_array((ones, place), shape=(numbers.size, numbers.size))


def neighbourhood(coordinates: Floats, radius: float) -> csr_array:
    """Return which points (point × axis) are at most ``radius`` apart, (point × point)."""
    from scipy.sparse import csr_array
    from scipy.spatial import cKDTree

    pairs = cKDTree(coordinates).query_pairs(radius, output_type="ndarray")
    both = np.concatenate([pairs, pairs[:, ::-1]])
    ones = np.ones(len(both), dtype=bool)
    count = len(coordinates)
    return csr_array((ones, (both[:, 0], both[:, 1])), shape=(count, count))


def sign_flips(
    values: Floats, permutations: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return Student's t of the mean over items, and of random signs of the items [nichols2002].

    Under the null hypothesis, an item (such as a subject) is symmetric about 0.

    Parameters
    ----------
    values
        (item × point).

    Returns
    -------
    observed, null
        (point,) and (permutation × point), for :func:`cluster_test`.

    Raises
    ------
    MetricError
        There are fewer than 6 items, of which 2⁵ signs give no p value below .05.
    """
    if len(values) < 6:
        raise MetricError(
            f"the signs of {len(values)} items give no p value below .05: use at least 6"
        )
    signs = rng.choice([-1.0, 1.0], size=(permutations, len(values)))
    return _student(values, np.ones((1, len(values))))[0], _student(values, signs)


def _student(values: Floats, signs: Floats) -> Floats:
    """Return Student's t for each set of signs, (set × point)."""
    count = len(values)
    mean = signs @ values / count
    variance = ((values**2).sum(axis=0) - count * mean**2) / (count - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(mean / np.sqrt(variance / count))


def discoveries(p: Floats | Sequence[float], rate: float = 0.05) -> Booleans:
    """Return which hypotheses are rejected so that at most ``rate`` of these are false on average [benjamini1995].

    Of ``m`` p values in ascending order, the first ``k`` are rejected, where ``k`` is the largest with ``p_k ≤ rate ·
    k / m``. It holds for independent and for positively dependent tests. NaN is no hypothesis.

    Raises
    ------
    MetricError
        A p value is not between 0 and 1.
    """
    values = floats(p)
    tested = np.flatnonzero(np.isfinite(values))
    known = values[tested]
    if known.size and not ((known >= 0) & (known <= 1)).all():
        raise MetricError("p values must be between 0 and 1")
    order = np.argsort(known, kind="stable")
    ranks = np.arange(1, len(known) + 1)
    below = known[order] <= rate * ranks / max(len(known), 1)
    rejected = np.zeros(values.shape, dtype=bool)
    if below.any():
        last = int(np.flatnonzero(below)[-1])
        rejected[tested[order[: last + 1]]] = True
    return rejected
