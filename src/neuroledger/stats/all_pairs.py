"""Tests of the differences of all pairs of scores, a block of rows of the upper triangle at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.stats.uncertainty import ROUNDING, Part, Uncertainty

__all__ = ["PairTests", "tests_of_all_pairs"]


ROWS: Final = 64
"""Number of scores that are compared with all others at once."""
CANCELLED: Final = 1e-3
"""Part of the variances of two scores below which the difference of their sums has lost three digits or more."""
ROUND_UP: Final = 1.001
"""Of a quantile far in the tail, which is not exact."""


class PairTests(NamedTuple):
    """Standard error and two-sided p value of the difference of each pair, both (score, score)."""

    error: Floats
    p: Floats


class _Block(NamedTuple):
    """Scores ``first`` to ``last``, each with all scores from ``first`` on: a part of the upper triangle of all pairs."""

    first: int
    last: int

    def of(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the values of both sides, (row, 1) and (1, column)."""
        return values[self.first : self.last, None], values[None, self.first :]


@dataclass(frozen=True)
class _Place:
    """The deviations of all scores by group of one population and factor, or pair of factors.

    Attributes
    ----------
    values
        Deviations, (score, group); 0 of the groups that a score does not have.
    freedom
        Degrees of freedom, (score,); infinite of a score that does not vary here.
    """

    population: str
    is_single: bool
    values: Floats
    freedom: Floats

    def variance(self, block: _Block) -> Floats:
        """Return the variance of the difference of each pair: |a − b|² = |a|² + |b|² − 2 a·b.

        Where that cancels, because the deviations of two scores are nearly the same, they are subtracted instead.
        """
        rows = self.values[block.first : block.last]
        columns = self.values[block.first :]
        squares = np.einsum("sg,sg->s", columns, columns)
        both = squares[: len(rows), None] + squares
        variance: Floats = both - 2 * (rows @ columns.T)
        np.fill_diagonal(variance, 0.0)  # a score and itself
        for at, near in enumerate(variance < CANCELLED * both):
            near[at] = False
            if near.any():
                apart = columns[near] - rows[at]
                variance[at, near] = np.einsum("sg,sg->s", apart, apart)
        return variance

    def freedom_of(self, block: _Block) -> Floats:
        """Return the degrees of freedom of the difference of each pair."""
        lower: Floats = np.minimum(*block.of(self.freedom))
        return lower


def tests_of_all_pairs(
    values: Sequence[float],
    uncertainties: Sequence[Uncertainty],
    *,
    beyond: float = 0.0,
    below: float = 0.0,
    rows: int | None = None,
) -> PairTests:
    """Return what ``(first - second).error`` and ``.p`` give for every pair of scores.

    Parameters
    ----------
    values, uncertainties
        Of each score, (score,).
    beyond
        Number of standard errors that a difference must exceed to be tested; the p value of others is 1.
    below
        A p value below which nobody tells p values apart: they are 0.
    rows
        Number of scores, from the first on, that are compared with all scores (default: all); the pairs of the others
        have error 0.
    """
    from scipy.special import stdtr

    count = len(values)
    rows = count if rows is None else rows
    places = _places(uncertainties)
    outcome = np.array([each.outcome for each in uncertainties])
    score = np.array(values, dtype=np.float64)
    error = np.zeros((count, count))
    p = np.ones((count, count))
    for first in range(0, rows, ROWS):
        block = _Block(first, min(first + ROWS, rows))
        floor = np.maximum(*block.of(outcome))
        varies, freedom = _differences(places, block, floor)
        errors = np.maximum(varies, floor)
        gap = np.abs(np.subtract(*block.of(score)))
        is_far = gap / _reach(freedom, below) > errors
        tested = (errors > 0) & (gap >= beyond * errors) & ~is_far
        found = np.where(is_far, 0.0, 1.0)
        found[tested] = 2 * stdtr(freedom[tested], -gap[tested] / errors[tested])
        found[(errors == 0) & (gap > 0)] = 0.0
        for whole, part in ((error, errors), (p, found)):
            whole[first : block.last, first:] = part
            whole[first:, first : block.last] = part.T
    return PairTests(error, p)


def _reach(freedom: Floats, p: float) -> float:
    """Return a number of standard errors beyond which every difference has a smaller p value: that of the fewest degrees."""
    from scipy.special import stdtrit

    if p == 0:
        return math.inf
    return -ROUND_UP * float(stdtrit(freedom.min(), p / 2))


def _differences(
    places: Sequence[_Place], block: _Block, outcome: Floats
) -> tuple[Floats, Floats]:
    """Return the standard deviation of the difference of each pair, and Satterthwaite's degrees of freedom."""
    variance, single, share = (np.zeros_like(outcome) for _ in range(3))
    for population in dict.fromkeys(place.population for place in places):
        own = [place for place in places if place.population == population]
        largest = np.zeros_like(outcome)
        summed = np.zeros_like(outcome)
        for place in own:
            part = place.variance(block)
            if not place.is_single:
                summed -= part
                continue
            summed += part
            largest = np.maximum(largest, part)
            single += part
            share += part**2 / np.maximum(place.freedom_of(block), 1.0)
        variance += np.maximum(largest, summed)
    varies = np.sqrt(variance)
    is_measured = (share > 0) & (varies > ROUNDING * outcome)
    freedom = np.full_like(outcome, np.inf)
    freedom[is_measured] = single[is_measured] ** 2 / share[is_measured]
    return varies, freedom


def _places(uncertainties: Sequence[Uncertainty]) -> list[_Place]:
    """Return the deviations of all scores, place by place."""
    by_place = [{part.place: part for part in each.parts} for each in uncertainties]
    names = dict.fromkeys(name for parts in by_place for name in parts)
    return [_place(name, [parts.get(name) for parts in by_place]) for name in names]


def _place(name: tuple[str, tuple[str, ...]], parts: Sequence[Part | None]) -> _Place:
    """Return the deviations of all scores at one place; a score without this part does not vary there."""
    # Most scores have the same groups.
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, part in enumerate(parts):
        if part is not None:
            rows.setdefault(part.keys, []).append(row)
    keys = dict.fromkeys(key for each in rows for key in each)
    column = {key: at for at, key in enumerate(keys)}
    values = np.zeros((len(parts), len(column)))
    for groups, own in rows.items():
        places = np.ix_(own, [column[key] for key in groups])
        values[places] = [part.values for row in own if (part := parts[row])]
    freedom = np.array([part.freedom if part else math.inf for part in parts])
    population, over = name
    return _Place(population, len(over) == 1, values, freedom)
