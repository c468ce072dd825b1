"""Spread: variation of a score over random items, jointly with all other scores of the same items."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, expit, log_ndtr, logit, ndtri, stdtr, stdtrit

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError

__all__ = [
    "DRAWS", "MANY", "NOWHERE", "RESAMPLED", "Crossed", "Influence", "Items", "Spread", "centred", "covers", "from_left_out",
    "left_out", "moved", "multipliers", "pack", "reweighted", "sum_of", "unpack",
]  # fmt: skip

Crossed = Mapping[tuple[str, str], Floats | Callable[[Floats, Floats], Floats]]

# Number of joint draws; the deviation of a difference of two scores is then estimated to 3 %.
DRAWS: Final = 512
LEVEL: Final = 0.95
CROSS: Final = " × "
ALONE: Final = "score"
ALL: Final = "\0all"  # in place of the id of one item
NOWHERE: Final = (-math.inf, math.inf)
# The only factor of scores whose metric resamples itself.
RESAMPLED: Final = "resampled"
MANY: Final = 1 << 30
# Determined with simulated experiments (``tests/simulations.py``).
CLAIMED: Final = 0.6
PLURAL: Final[Mapping[str, str]] = {"stimulus": "stimuli", "stimulus_id": "stimuli", "series": "series"}


@dataclass(frozen=True)
class Items:
    """The items of one random factor and their contributions to the deviation of the score.

    The variance is the sum of squared contributions. ``redrawn`` computes the deviations ``(draw,)`` from multipliers
    ``(draw, item)`` if the score is recomputed for each draw, as for medians, whose slope does not describe their
    difference from other medians of the same items. ``deviation`` is NaN if only ``redrawn`` is known. ``without`` returns
    the scores without the items of each group, (group,), from the number of each item's group, if they are not sums.
    """

    ids: npt.NDArray[np.str_]
    deviation: Floats
    redrawn: Callable[[Floats], Floats] | None = None
    without: Callable[[npt.NDArray[np.intp]], Floats | None] | None = None

    @property
    def variance(self) -> float:
        """Variance of the score due to this factor."""
        return float(self.deviation @ self.deviation)

    @property
    def sure(self) -> int:
        """Effective number of items, less than their number if a few strong ones dominate the deviation.

        ``n`` deviations of kurtosis ``k`` estimate their variance with ``2n / (k - 1)`` degrees of freedom. ``CLAIMED`` of
        these are claimed, because samples without the rare strongest items have a smaller variance and a smaller kurtosis.
        """
        squares = self.deviation**2
        variance, count = float(squares.var()), len(squares)
        if variance == 0:
            return count
        return min(count, 1 + int(CLAIMED * 2 * count * float(squares.mean()) ** 2 / variance))

    @property
    def third(self) -> float:
        """Third moment of the score due to this factor."""
        return float((self.deviation**3).sum())

    def grouped(self, owners: Sequence[str]) -> Items:
        """Return the larger items that contain these, such as subjects; ``owners`` names that of each item."""
        names, codes = np.unique(np.asarray(owners).astype(str), return_inverse=True)
        few, many = len(names), len(self.ids)
        if few < 2:
            return Items(names, np.zeros(few))
        rest = None if self.without is None else self.without(codes)
        if rest is not None:
            return left_out(names, rest)
        sums = np.bincount(codes, self.deviation)
        scale = math.sqrt(few / (few - 1) * (many - 1) / many)
        redrawn, excess = self.redrawn, math.sqrt((few + 1) / (few - 1))
        return Items(
            names,
            scale * (sums - sums.mean()),
            None if redrawn is None else lambda multipliers: excess * redrawn(multipliers[:, codes]),
        )

    def draws(self, multipliers: Floats) -> Floats:
        """Return deviations of the score ``(draw,)`` from standard normal multipliers of the items ``(draw, item)``."""
        if self.redrawn is not None:
            return self.redrawn(multipliers)
        return _exact(multipliers @ self.deviation, self.variance)


def moved(ids: Sequence[Any] | npt.NDArray[Any], influence: Floats) -> Items:
    """Return items from their empirical influence on the score (change per item, weighted 1/n), summed over equal ids."""
    names, sums = _joined(ids, influence)
    n = len(names)
    scale = math.sqrt(n / (n - 1)) if n > 1 else 0.0
    return Items(names, scale * (sums - sums.mean()))


def from_left_out(values: Floats) -> Floats:
    """Return the influence for :func:`moved` from values ``(item, …)`` with each item left out in turn."""
    n = len(values)
    return np.asarray(np.nan_to_num((np.nanmean(values, axis=0) - values) * (n - 1) / n))


def left_out(ids: Sequence[Any] | npt.NDArray[Any], values: Floats) -> Items:
    """Return items from scores ``(item,)`` with each item left out in turn (Tukey's jackknife)."""
    return moved(ids, from_left_out(values))


def reweighted(
    items: Mapping[str, Any],
    values: Callable[[Mapping[str, Floats]], Floats],
    block: int = 64,
    excess: Callable[[int], float] = lambda n: (n + 1) / (n - 1),
) -> Influence:
    """Return the influence of items from scores recomputed with exponential weights: the Bayesian bootstrap [rubin1981].

    Parameters
    ----------
    items
        Unique ids of the items of each factor.
    values
        Returns the scores ``(draw,)`` for weights of every factor's items ``(draw, item)``, in the order of the ids; NaN if
        a draw is undefined. Weights of 1 give the score itself.
    block
        Number of draws computed at a time.
    excess
        Variance of a score of ``n`` items over the expected variance of its draws: that of a mean by default.
    """
    ids = {name: np.asarray(each).astype(str) for name, each in items.items()}
    order = {name: np.argsort(each) for name, each in ids.items()}

    def drawn(multipliers: Mapping[str, Floats]) -> Floats:
        parts = []
        count = len(next(iter(multipliers.values())))
        for start in range(0, count, block):
            weights = {name: np.ones((min(block, count - start), len(each))) for name, each in ids.items()}
            for name, each in multipliers.items():
                weights[name][:, order[name]] = -log_ndtr(-each[start : start + block])
            parts.append(values(weights))
        scores = np.concatenate(parts)
        known = np.isfinite(scores)
        centre = scores[known].mean() if known.any() else 0.0
        variance = math.prod(excess(len(ids[name])) for name in multipliers)
        return np.where(known, scores - centre, 0.0) * math.sqrt(variance)

    def crossed(first: str, second: str) -> Callable[[Floats, Floats], Floats]:
        # Multiplied weights include the noise of single measurements in addition to that in both factors.
        return lambda a, b: drawn({first: a, second: b}) - drawn({first: a}) - drawn({second: b})

    names = list(ids)
    return Influence(
        {
            name: Items(np.sort(each), np.full(len(each), np.nan), lambda m, name=name: drawn({name: m}))  # type: ignore[misc]
            for name, each in ids.items()
        },
        {(a, b): crossed(a, b) for i, a in enumerate(names) for b in names[i + 1 :]},
    )


def _joined(ids: Sequence[Any] | npt.NDArray[Any], values: Floats) -> tuple[npt.NDArray[np.str_], Floats]:
    names, codes = np.unique(np.asarray(ids).astype(str), return_inverse=True)
    if len(names) == len(codes):
        ordered = np.empty_like(values)
        ordered[codes.ravel()] = values
        return names, ordered
    sums = np.zeros((len(names), *values.shape[1:]))
    np.add.at(sums, codes.ravel(), values)
    return names, sums


@dataclass(frozen=True)
class Influence:
    """Contributions of the items of each random factor to the deviation of a score.

    Attributes
    ----------
    factors
        Items by the name of the factor: ``stimulus``, ``neuroid``, ``subject``, …
    crossed
        For two crossed factors, the interaction of each pair of items (first, second), in the order of their ids: the
        noise of single measurements, which the variance of each factor includes once. For a factor crossed with itself,
        the interaction of pairs of its items (first < second), which its own variance includes twice. Or a function that
        draws the interaction from the multipliers of both.
    squares, skewed
        Whether the score is a mean of squares, or skewed towards the ends of its range (see :meth:`Spread.interval`).
    sure
        Effective number of normal deviations of a factor, if smaller than its items.
    third
        Third moment of the score due to a factor whose strong items widen the interval on one side.
    common
        Standard deviation by factor that all scores of its items share, so that it is no part of their differences.
    step
        Change of the score by one more outcome, such as a right answer, by the factor whose new items have new outcomes.
    nested
        Larger items by the name of their factor, such as ``subject``: the factor of the items that they contain, and the
        larger item of each id. A claim about new subjects includes their new neuroids, so it names one of both factors.
    """

    factors: Mapping[str, Items]
    crossed: Crossed = field(default_factory=dict)
    squares: bool = False
    skewed: bool = False
    sure: Mapping[str, int] = field(default_factory=dict)
    third: Mapping[str, float] = field(default_factory=dict)
    common: Mapping[str, float] = field(default_factory=dict)
    step: Mapping[str, float] = field(default_factory=dict)
    nested: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    def only(self, names: Sequence[str]) -> Influence | None:
        """Return the influence of the named factors only, or None if the score has none of them."""
        chosen = {name: items for name, items in self.factors.items() if name in names}
        crossed = {pair: cells for pair, cells in self.crossed.items() if set(pair) <= set(chosen)}
        nested = {name: part for name, part in self.nested.items() if part[0] in chosen}
        return replace(self, factors=chosen, crossed=crossed, nested=nested) if chosen else None

    def grouped(self, name: str) -> Influence:
        """Return the influence of the larger items of the nested factor ``name`` in place of the items that they contain.

        Raises
        ------
        MetricError
            The larger item of an item is not known.
        """
        inner, owners = self.nested[name]
        items = self.factors[inner]
        unknown = [id for id in items.ids.tolist() if id not in owners]
        if unknown:
            raise MetricError(f"the {name} of {inner} {unknown[0]!r} is not known")
        names = [owners[id] for id in items.ids.tolist()]
        larger, (_, codes) = items.grouped(names), np.unique(names, return_inverse=True)
        crossed = {
            (name if a == inner else a, name if b == inner else b): _cells_of(
                cells, codes, (a == inner, b == inner)
            )
            for (a, b), cells in self.crossed.items()
            if not a == b == inner
        }
        return replace(
            self,
            factors={
                name if each == inner else each: larger if each == inner else own
                for each, own in self.factors.items()
            },
            crossed=crossed,
            sure={**self.sure, name: larger.sure} if inner in self.sure else self.sure,
            third={**self.third, name: larger.third} if inner in self.third else self.third,
            nested={},
        )

    def spread(self, population: str, over: Sequence[str] | None = None) -> Spread:
        """Return joint draws over the named factors (default: all), whose items belong to ``population``.

        Raises
        ------
        MetricError
            The score lacks a named factor, or has only one item of a nested one.
        """
        chosen = tuple(self.factors) if over is None else tuple(over)
        for name in [name for name in chosen if name in self.nested]:
            larger = self.grouped(name)
            if len(larger.factors[name].ids) < 2:
                raise MetricError(
                    f"the score cannot generalise over {name}: all {self.nested[name][0]}s are of one {name}"
                )
            return larger.spread(population, chosen)
        unknown = [name for name in chosen if name not in self.factors]
        if unknown:
            known = ", ".join(
                [
                    *self.factors,
                    *(f"{name} (in place of {inner})" for name, (inner, _) in self.nested.items()),
                ]
            )
            raise MetricError(
                f"the score cannot generalise over {', '.join(unknown)}; it varies over {known}"
            )
        chosen = tuple(name for name in chosen if len(self.factors[name].ids) > 1)
        signs = {name: multipliers(population, name, self.factors[name].ids) for name in chosen}
        draws = {name: self.factors[name].draws(signs[name]) for name in chosen}
        for name in self.common.keys() & draws.keys():
            shared = self.common[name] * multipliers(population, name, [ALL])[:, 0]
            variance = float((draws[name] ** 2).mean()) + self.common[name] ** 2
            draws[name] = _exact(draws[name] + shared, variance)
        for (first, second), cells in self.crossed.items():
            if first not in signs or second not in signs:
                continue
            if callable(cells):
                products = cells(signs[first], signs[second])
            else:
                products = ((signs[first] @ cells) * signs[second]).sum(axis=1)
                products = _exact(products, float((cells**2).sum()))
            draws[first + CROSS + second] = products
        counts = {name: len(self.factors[name].ids) for name in chosen}
        third = sum(self.third.get(name, 0.0) for name in chosen)
        step = math.hypot(*(self.step.get(name, 0.0) for name in chosen))
        least = 0.0 if any(part.any() for part in draws.values()) else math.sqrt(2) * step
        return Spread(draws, counts, self.squares, self.skewed, self.sure, third, step, least)


def _cells_of(
    cells: Floats | Callable[[Floats, Floats], Floats], codes: npt.NDArray[Any], sides: tuple[bool, bool]
) -> Floats | Callable[[Floats, Floats], Floats]:
    """Return the interaction with larger items on the marked ``sides``; ``codes`` number that of each item."""
    first, second = sides
    if callable(cells):
        return lambda a, b: cells(a[:, codes] if first else a, b[:, codes] if second else b)
    sums = np.eye(int(codes.max()) + 1)[codes]
    return centred((sums.T @ cells) if first else cells @ sums) if first or second else cells


def centred(cells: Floats) -> Floats:
    """Return the table with row means and column means removed."""
    return np.asarray(cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean())


def _exact(draws: Floats, variance: float) -> Floats:
    power = float((draws**2).mean())
    return draws * math.sqrt(variance / power) if power > 0 else draws


@lru_cache(maxsize=1)
def _normals() -> Floats:
    return np.asarray(ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)))


def multipliers(population: str, factor: str, ids: Sequence[str] | npt.NDArray[np.str_]) -> Floats:
    """Return standard normal multipliers ``(draw, item)`` that depend only on population, factor and id of an item.

    All scores of the same item use the same multipliers, whatever the other items are. This pairs differences of scores
    and correlates scores of one data set without any shared state.
    """
    return _multipliers(f"{population}\0{factor}\0", tuple(map(str, ids)))


@lru_cache(maxsize=8)
def _multipliers(place: str, ids: tuple[str, ...]) -> Floats:
    raw = b"".join(hashlib.shake_256((place + id).encode()).digest(2 * DRAWS) for id in ids)
    return np.asarray(_normals()[np.frombuffer(raw, "<u2").reshape(len(ids), DRAWS)].T)


@dataclass(frozen=True)
class Spread:
    """Joint draws of a score's deviation, one series for each random factor and each crossed pair of factors.

    Two factors each include the noise of single measurements, so their variances are added and that of the crossed draws
    is subtracted (two-way clustering, Cameron et al. 2011; the same expectation as the corrected two-factor bootstrap of
    Schütt et al. 2023). The result is bounded by the largest single factor and by the sum. The other fields are those of
    :class:`Influence`; ``third`` is the sum of the third moments of the factors.

    If all outcomes are equal, so are all draws, although new items might have other outcomes. The standard error is at least
    ``least``, therefore: two more outcomes for a score that does not vary, and one for each of two scores of which the
    difference is computed.
    """

    draws: Mapping[str, Floats]
    items: Mapping[str, int]
    squares: bool = False
    skewed: bool = False
    sure: Mapping[str, float] = field(default_factory=dict)
    third: float = 0.0
    step: float = 0.0
    least: float = 0.0

    @classmethod
    def alone(cls, name: str, error: float) -> Spread:
        """Return the spread of a score with a known standard error only, independent of all other scores."""
        return cls({ALONE: _exact(multipliers("", ALONE, [name])[:, 0], error**2)}, {ALONE: MANY})

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the random factors."""
        return tuple(name for name in self.draws if CROSS not in name)

    @property
    def variance(self) -> float:
        """Variance of the score over new items of all factors."""
        parts = {name: float((draws**2).mean()) for name, draws in self.draws.items()}
        return float(combined(parts))

    @property
    def error(self) -> float:
        """Standard error of the score."""
        return max(math.sqrt(self.variance), self.least)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance, by Satterthwaite's formula; fewer where few strong items dominate."""
        parts = {name: float((self.draws[name] ** 2).mean()) for name in self.factors}
        return float(freedom(parts, {**self.items, **self.sure}))

    @property
    def total(self) -> Floats:
        """Draws of the total deviation ``(draw,)``, scaled to :attr:`variance`."""
        whole = sum((self.draws[name] for name in self.factors), np.zeros(DRAWS))
        return _exact(whole, self.variance)

    def __mul__(self, factor: float) -> Spread:
        draws = {name: factor * draws for name, draws in self.draws.items()}
        third, step = factor**3 * self.third, abs(factor) * self.step
        least = abs(factor) * self.least
        return Spread(draws, self.items, sure=self.sure, third=third, step=step, least=least)

    def __add__(self, other: Spread) -> Spread:
        names = dict.fromkeys([*self.draws, *other.draws])
        zero = np.zeros(DRAWS)
        draws = {name: self.draws.get(name, zero) + other.draws.get(name, zero) for name in names}
        counts = {
            name: min(self.items.get(name, n), other.items.get(name, n))
            for name, n in {**self.items, **other.items}.items()
        }
        sure = {
            name: min(self.sure.get(name, n), other.sure.get(name, n))
            for name, n in {**self.sure, **other.sure}.items()
        }
        step, least = math.hypot(self.step, other.step), math.hypot(self.least, other.least)
        return Spread(draws, counts, sure=sure, step=step, least=least)

    def __sub__(self, other: Spread) -> Spread:
        result = self + other * -1.0
        return replace(result, least=result.step)

    def interval(self, value: float, limits: tuple[float, float] = NOWHERE) -> tuple[float, float]:
        """Return the 95 % interval around ``value`` within ``limits``: Student's, or a skewed one (``docs/formulas.md``).

        For a mean of squares, the lower end is Wilson's and the upper end that of scaled chi-squared distributions. A
        score skewed towards its limits has Student's interval of the log odds between them (Fisher's transformation).

        The squared error of a sum of items is correlated with the sum if their deviations are skewed: the covariance is
        the third moment [johnson1978]. To first order, the logarithm of the error changes by half of the skewness with
        each error that the score deviates. Student's interval is extended by the error that is expected at the end of
        the normal interval if the error increases towards it.
        """
        half = quantile((1 + LEVEL) / 2, self.freedom) * self.error
        low, high = min(limits[0], value), max(limits[1], value)
        if self.squares and value > 0 and half > 0:
            offset = half / (2 * math.sqrt(value))
            degrees = 2 * (quantile((1 + LEVEL) / 2, math.inf) * value / half) ** 2
            lower = (math.hypot(math.sqrt(value), offset) - offset) ** 2
            return lower, value * _highest_mean(degrees)
        if self.skewed and low < value < high and math.isfinite(high - low):
            position = (value - low) / (high - low)
            ends = expit(
                logit(position) + np.array([-1, 1]) * half / ((high - low) * position * (1 - position))
            )
            return float(low + (high - low) * ends[0]), float(low + (high - low) * ends[1])
        growth = math.exp(-ndtri((1 + LEVEL) / 2) * self.third / (2 * self.error**3)) if half > 0 else 1.0
        return max(low, value - half * max(growth, 1.0)), min(high, value + half * max(1 / growth, 1.0))

    def p(self, value: float) -> float:
        """Return the two-sided p value of ``value`` being 0, from Student's distribution."""
        if self.error == 0:
            return 1.0 if value == 0 else 0.0
        return float(2 * stdtr(self.freedom, -abs(value) / self.error))


def sum_of(spreads: Sequence[Spread], populations: Sequence[str]) -> Spread:
    """Return the sum of spreads, (score,), of items of the named populations, (score,), with its degrees of freedom.

    The unit is that of the scores. Different populations estimate their variances independently, so that the sum has more
    degrees of freedom than any of them (Satterthwaite's formula). Scores of one population have the same items: their sum
    has the harmonic mean of their degrees of freedom, weighted by each score's share of the variance.
    """
    whole = reduce(Spread.__add__, spreads)
    sure: dict[str, float] = {}
    for factor in whole.factors if len(spreads) > 1 else ():
        variance, share = 0.0, 0.0
        for population in dict.fromkeys(populations):
            pairs = zip(spreads, populations, strict=True)
            own = [spread for spread, of in pairs if of == population and factor in spread.draws]
            if own:
                series = np.array([spread.draws[factor] for spread in own])
                parts = np.maximum(series @ series.sum(axis=0) / DRAWS, 0.0)
                degrees = [max(1.0, {**spread.items, **spread.sure}[factor] - 1) for spread in own]
                variance += float(parts.sum())
                share += float(parts.sum() * (parts / degrees).sum())
        if share > 0:
            sure[factor] = 1 + variance**2 / share
    return replace(whole, sure={**whole.sure, **sure})


def _highest_mean(degrees: float) -> float:
    """Return the largest mean from which 1 is within reach, if its distribution is a scaled chi-squared one.

    Its degrees of freedom are ``degrees`` for the mean 1 and proportional to the cube root of the mean.
    """
    low, high = degrees, 1.5 * max(degrees, 10.0)  # degrees of freedom of the wanted distribution
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        reached = (middle / degrees) ** 3 * chdtri(middle, (1 + LEVEL) / 2) >= middle
        low, high = (low, middle) if reached else (middle, high)
    return (high / degrees) ** 3


def combined(parts: Mapping[str, Any]) -> Any:
    """Return the total variance from those of factors and crossed draws, which are numbers or arrays of one shape."""
    single = []
    for name, part in parts.items():
        if CROSS not in name:  # includes pairs of its own items twice
            twice = parts.get(name + CROSS + name, 0.0)
            single.append(np.maximum(part - twice, part / 2))
    if not single:
        return 0.0
    whole = np.sum(single, axis=0)
    between = [part for name, part in parts.items() if CROSS in name and len(set(name.split(CROSS))) > 1]
    crossed = np.sum(between or [0.0 * whole], axis=0)
    bounded = np.maximum(whole - crossed, np.max(single, axis=0))
    return float(bounded) if np.ndim(bounded) == 0 else bounded


def freedom(parts: Mapping[str, Any], items: Mapping[str, Any]) -> Any:
    """Return the degrees of freedom of a sum of variances; each factor has those of its items minus one."""
    if not parts:
        return math.inf
    variance = np.sum(list(parts.values()), axis=0)
    share = np.sum([part**2 / np.maximum(1, items[name] - 1) for name, part in parts.items()], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = np.where(share > 0, variance**2 / share, np.inf)
    return float(degrees) if np.ndim(degrees) == 0 else degrees


def quantile(level: float, degrees: float) -> float:
    """Return the quantile of Student's distribution, or of the normal one for infinite degrees of freedom."""
    return float(ndtri(level) if math.isinf(degrees) else stdtrit(degrees, level))


def covers(factors: Sequence[str], within: Mapping[str, str] | None = None) -> str:
    """Return what an interval covers, in words: ``new stimuli and new neuroids``.

    ``within`` names the larger items that stay the same: ``new neuroids of the same subjects``.
    """
    ordered = sorted(factors, key=lambda name: (name != "stimulus", name))
    ordered = [name for name in ordered if name not in (RESAMPLED, ALONE)]
    same = {name: f" of the same {PLURAL.get(owner, f'{owner}s')}" for name, owner in (within or {}).items()}
    words = [f"new {PLURAL.get(name, f'{name}s')}{same.get(name, '')}" for name in ordered]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def pack(spread: Spread) -> dict[str, Any]:
    """Return the draws as plain data for a record, in half precision: 1.4 kB for each series.

    With the ids of the items, contributions of items can be computed from the draws, so private data store none.
    """
    deviation = {name: float(np.sqrt((draws**2).mean())) for name, draws in spread.draws.items()}
    packed = {
        name: base64.b64encode((draws / (deviation[name] or 1.0)).astype("<f2").tobytes()).decode("ascii")
        for name, draws in spread.draws.items()
    }
    plain = {"draws": packed, "deviation": deviation, "items": dict(spread.items)}
    further = {"sure": dict(spread.sure), "step": spread.step, "squares": spread.squares}
    return plain | {name: content for name, content in further.items() if content}


def unpack(plain: Mapping[str, Any] | None) -> Spread | None:
    """Return the spread that :func:`pack` wrote, or None if ``plain`` is empty.

    Raises
    ------
    MetricError
        The draws are damaged.
    """
    if not plain:
        return None
    try:
        draws = {
            str(name): _exact(
                np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float64).reshape(DRAWS),
                float(plain["deviation"][name]) ** 2,
            )
            for name, text in plain["draws"].items()
        }
        items, sure = (
            {str(name): int(count) for name, count in counts.items()}
            for counts in (plain["items"], plain.get("sure", {}))
        )
        drawn_factors = {part for name in draws for part in name.split(CROSS)}
        step = float(plain.get("step", 0.0))
        if not all(np.isfinite(values).all() for values in draws.values()) or not math.isfinite(step):
            raise ValueError("a draw is not a finite number")
        if drawn_factors - items.keys() or min([*items.values(), *sure.values()], default=1) < 1:
            raise ValueError("draws of no items")
        return Spread(draws, items, bool(plain.get("squares", False)), sure=sure, step=step)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise MetricError(f"the draws of a record cannot be read ({error}); run it again") from error
