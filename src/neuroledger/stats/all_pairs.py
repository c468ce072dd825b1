"""Tests of the differences of all pairs of scores, a row of the matrix at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.stats.uncertainty import ROUNDING, Part, Uncertainty

__all__ = ["PairTests", "tests_of_all_pairs"]


class PairTests(NamedTuple):
    """Standard error and two-sided p value of the difference of each pair, both (score, score)."""

    error: Floats
    p: Floats


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

    def variance(self, row: int) -> Floats:
        """Return the variance of the difference of one score to each."""
        apart = self.values - self.values[row]
        variance: Floats = np.einsum("sg,sg->s", apart, apart)
        return variance

    def freedom_of(self, row: int) -> Floats:
        """Return the degrees of freedom of the difference of one score to each."""
        lower: Floats = np.minimum(self.freedom, self.freedom[row])
        return lower


def tests_of_all_pairs(
    values: Sequence[float], uncertainties: Sequence[Uncertainty]
) -> PairTests:
    """Return what ``(first - second).error`` and ``.p`` give for every pair of scores.

    Parameters
    ----------
    values, uncertainties
        Of each score, (score,).
    """
    from scipy.special import stdtr

    count = len(values)
    places = _places(uncertainties)
    outcome = np.array([each.outcome for each in uncertainties])
    score = np.array(values, dtype=np.float64)
    error = np.zeros((count, count))
    p = np.ones((count, count))
    for row in range(count):
        floor = np.maximum(outcome, outcome[row])
        varies, freedom = _differences(places, row, floor)
        error[row] = np.maximum(varies, floor)
        gap = np.abs(score - score[row])
        known = error[row] > 0
        ratio = -gap[known] / error[row][known]
        p[row][known] = 2 * stdtr(freedom[known], ratio)
        p[row][~known] = (gap[~known] == 0).astype(np.float64)
    return PairTests(error, p)


def _differences(
    places: Sequence[_Place], row: int, outcome: Floats
) -> tuple[Floats, Floats]:
    """Return the standard deviation of the difference of one score to each, and Satterthwaite's degrees of freedom."""
    variance, single, share = (np.zeros_like(outcome) for _ in range(3))
    for population in dict.fromkeys(place.population for place in places):
        own = [place for place in places if place.population == population]
        largest = np.zeros_like(outcome)
        summed = np.zeros_like(outcome)
        for place in own:
            part = place.variance(row)
            if not place.is_single:
                summed -= part
                continue
            summed += part
            largest = np.maximum(largest, part)
            single += part
            share += part**2 / np.maximum(place.freedom_of(row), 1.0)
        variance += np.maximum(largest, summed)
    varies = np.sqrt(variance)
    is_measured = (share > 0) & (varies > ROUNDING * outcome)
    freedom = np.full_like(outcome, np.inf)
    freedom[is_measured] = single[is_measured] ** 2 / share[is_measured]
    return varies, freedom


def _places(uncertainties: Sequence[Uncertainty]) -> list[_Place]:
    """Return the deviations of all scores, place by place."""
    names = dict.fromkeys(part.place for each in uncertainties for part in each.parts)
    return [_place(name, [each.part(name) for each in uncertainties]) for name in names]


def _place(name: tuple[str, tuple[str, ...]], parts: Sequence[Part | None]) -> _Place:
    """Return the deviations of all scores at one place; a score without this part does not vary there."""
    # Most scores have the same groups.
    groups = dict.fromkeys(part.keys for part in parts if part)
    keys = dict.fromkeys(key for each in groups for key in each)
    column = {key: at for at, key in enumerate(keys)}
    columns = {each: [column[key] for key in each] for each in groups}
    values = np.zeros((len(parts), len(column)))
    freedom = np.full(len(parts), np.inf)
    for row, part in enumerate(parts):
        if part is not None:
            values[row, columns[part.keys]] += part.values
            freedom[row] = part.freedom
    population, over = name
    return _Place(population, len(over) == 1, values, freedom)
