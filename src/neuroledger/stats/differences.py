"""Differences of scores on the same items: paired intervals, tests, detectable differences, and ranks.

Tested pairs are made plain and read again with the same bits (:func:`packed`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Floats
from neuroledger.stats.aggregate import holm
from neuroledger.stats.all_pairs import tests_of_all_pairs
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import (
    LEVEL,
    ROUNDING,
    Method,
    NaturalScale,
    Part,
    Sum,
    Uncertainty,
    covers,
    quantile,
)

__all__ = [
    "SIGNIFICANT",
    "Difference",
    "Joint",
    "JointMean",
    "Pairs",
    "better_in",
    "clearly_better",
    "corrected",
    "difference",
    "joint_mean",
    "overall",
    "packed",
    "pairs_among",
    "rank_sets",
    "unpacked",
]

Truths = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

SIGNIFICANT: Final = 0.05
POWER: Final = 0.8
ROUND_DOWN: Final = 1 - 1e-9
"""Rounding makes one more pair tested, never one less."""


@dataclass(frozen=True)
class Difference:
    """Score of A minus score of B on one benchmark, paired over shared items.

    Attributes
    ----------
    p, p_corrected
        Two-sided p value of Student's test of the difference; and the same after Holm's correction within its family.
    effect
        The difference divided by the standard deviation of one item of the factor with the largest variance: Cohen's d.
    detectable
        The smallest difference that a test at 5 % detects in 80 % of experiments of this size.
    pairs
        Number of items of this factor; of the score with fewer, if the scores are not of the same items.
    covers
        The random factors that the interval and the test generalise over, in words.
    reason
        Why values are missing.
    """

    benchmark: str
    a: float | None = None
    b: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_corrected: float | None = None
    effect: float | None = None
    detectable: float | None = None
    pairs: int = 0
    direction: str = "higher"
    covers: str = ""
    reason: str = ""

    @property
    def better(self) -> str:
        """``a`` or ``b`` if the corrected p value is below 0.05, otherwise empty."""
        if (
            self.p_corrected is None
            or self.value is None
            or self.p_corrected >= SIGNIFICANT
        ):
            return ""
        if (self.value > 0) == (self.direction == "higher"):
            return "a"
        return "b"


def difference(benchmark: str, a: Score, b: Score) -> Difference:
    """Return the difference of two scores, paired over shared items; ``reason`` says why they cannot be paired."""
    base = Difference(
        benchmark, a.value, b.value, a.value - b.value, direction=a.direction
    )
    if a.direction != b.direction or a.scale != b.scale:
        return replace(
            base,
            reason=f"the scores have scales {a.scale} and {b.scale}: not comparable",
        )
    if a.uncertainty is None or b.uncertainty is None:
        return replace(base, reason="no interval: how the scores vary is not known")
    if set(a.uncertainty.factors) != set(b.uncertainty.factors):
        return replace(
            base, reason="the scores generalise over different things: not paired"
        )
    return replace(_tested(base, a.uncertainty - b.uncertainty), covers=a.varies_over)


def _tested(base: Difference, uncertainty: Uncertainty) -> Difference:
    value = base.value or 0.0
    degrees = uncertainty.freedom
    error = uncertainty.error
    low, high = uncertainty.interval(value)
    single = [part for part in uncertainty.parts if len(part.over) == 1]
    widest = max(single, key=lambda part: part.variance)
    pairs = uncertainty.items.get(widest.over[0], len(widest.keys))
    reach = quantile(1 - SIGNIFICANT / 2, degrees) + quantile(POWER, degrees)
    return replace(
        base,
        low=low,
        high=high,
        p=uncertainty.p(value),
        pairs=pairs,
        effect=value / (error * math.sqrt(pairs)) if error > 0 else None,
        detectable=reach * error,
        covers=covers(uncertainty.factors),
    )


def corrected(
    differences: Sequence[Difference], families: Sequence[str] | None = None
) -> tuple[Difference, ...]:
    """Return the differences with p values corrected by Holm within each family (default: one family)."""
    if families is not None:
        names = list(families)
    else:
        names = [""] * len(differences)
    results = list(differences)
    for family in dict.fromkeys(names):
        tested = [
            i
            for i, item in enumerate(differences)
            if item.p is not None and names[i] == family
        ]
        adjusted = holm([differences[i].p or 0.0 for i in tested])
        for i, p in zip(tested, adjusted.tolist(), strict=True):
            results[i] = replace(differences[i], p_corrected=p)
    return tuple(results)


class Joint(NamedTuple):
    """A number with its uncertainty; None if that of one of its parts is not known."""

    value: float
    uncertainty: Uncertainty | None


class JointMean:
    """A weighted sum of scores, to which they are added one by one.

    Items of the same population are shared, others are independent.
    """

    def __init__(self) -> None:
        self._value = 0.0
        self._count = 0
        self._alone: Uncertainty | None = None
        self._varies: Sum | None = Sum()

    def add(self, weight: float, score: Score) -> None:
        """Add a score."""
        self._value += weight * score.value
        self._count += 1
        varies = score.uncertainty
        if varies is None or self._varies is None:
            self._varies = None
            return
        # The mean of one score has the interval of that score.
        self._alone = varies if weight == self._count == 1 else None
        self._varies.add(varies * weight)

    def joint(self) -> Joint:
        """Return the sum of the scores so far; its uncertainty is not known if that of one of them is not."""
        if self._varies is None or not self._count:
            return Joint(self._value, None)
        return Joint(self._value, self._alone or self._varies.total())


def joint_mean(parts: Sequence[tuple[float, Score]]) -> Joint:
    """Return the weighted sum of scores; see :class:`JointMean`."""
    mean = JointMean()
    for weight, score in parts:
        mean.add(weight, score)
    return mean.joint()


def overall(base: Difference, a: Joint, b: Joint) -> Difference:
    """Return ``base`` with the interval and test of the difference of two joint means."""
    if a.uncertainty is None or b.uncertainty is None:
        return replace(
            base, reason="no interval: how some of the scores vary is not known"
        )
    return _tested(base, a.uncertainty - b.uncertainty)


class Pairs(NamedTuple):
    """Numbers, and the tests of the differences of all pairs of them.

    Attributes
    ----------
    names
        Tells what each number follows from, (number,).
    joints
        Each number with its uncertainty, (number,).
    p
        Two-sided p value of the difference of each pair, (number, number); NaN if the difference cannot be tested.
    """

    names: tuple[str, ...]
    joints: tuple[Joint, ...]
    p: Floats


def clearly_better(
    entries: Sequence[Joint], *, higher: bool = True, level: float = 0.95
) -> Truths:
    """Return a matrix ``(entry, entry)`` of whether the first entry is better than the second, simultaneously at ``level``.

    The differences of all pairs are tested at once (Mogstad et al. 2024), each by Student's distribution with its own
    degrees of freedom, with Holm's correction, which holds however the differences depend on each other. An entry
    without uncertainty is neither better nor worse than any other. A difference that the normal distribution does not
    find at ``level`` is not tested: the tails of Student's are heavier, and no correction makes p smaller. Nor is one that
    any correction finds.
    """
    count = len(entries)
    strictest = (1 - level) / max(1, count * (count - 1) // 2)
    pairs = _tested_pairs(entries, level, below=strictest)
    return better_in(pairs, higher=higher, level=level)


def better_in(pairs: Pairs, *, higher: bool = True, level: float = 0.95) -> Truths:
    """Return the matrix of :func:`clearly_better` from pairs that are tested."""
    tests = len(_places_of_tests(pairs.p)[0])
    first, second = np.nonzero(np.triu(pairs.p < 1 - level, 1))
    adjusted = holm(pairs.p[first, second], of=tests)
    values = np.array([joint.value for joint in pairs.joints])
    is_ahead = (values[first] > values[second]) == higher
    winner = np.where(is_ahead, first, second)
    loser = np.where(is_ahead, second, first)
    better = np.zeros(pairs.p.shape, dtype=bool)
    better[winner, loser] = adjusted < 1 - level
    return better


def pairs_among(
    names: Sequence[str], joints: Sequence[Joint], before: Pairs | None = None
) -> Pairs:
    """Return the tests of all pairs; numbers that were tested ``before`` are compared only with those that were not.

    The matrix of :func:`better_in` is that of :func:`clearly_better`: a p value that was remembered differs from one
    that is computed among other numbers at most by rounding, and where that might decide, all pairs are tested.
    """
    if before is not None:
        pairs = _completed(names, joints, before)
        if not _is_close(pairs.p, LEVEL):
            return pairs
    return _tested_pairs(joints, LEVEL)._replace(names=tuple(names))


def _completed(names: Sequence[str], joints: Sequence[Joint], before: Pairs) -> Pairs:
    """Return the tests of all pairs, of which those of two known numbers are not computed."""
    known = {name: at for at, name in enumerate(before.names)}
    new = [at for at, name in enumerate(names) if name not in known]
    old = [at for at, name in enumerate(names) if name in known]
    order = [*new, *old]
    tested = _tested_pairs([joints[at] for at in order], LEVEL, rows=len(new))
    p = np.empty_like(tested.p)
    p[np.ix_(order, order)] = tested.p
    then = [known[names[at]] for at in old]
    p[np.ix_(old, old)] = before.p[np.ix_(then, then)]
    return Pairs(tuple(names), tuple(joints), p)


def _tested_pairs(
    entries: Sequence[Joint],
    level: float,
    *,
    rows: int | None = None,
    below: float = 0.0,
) -> Pairs:
    """Return the tests of the first rows of all pairs; the others are NaN. p values ``below`` are 0."""
    known = [
        at
        for at, entry in enumerate(entries)
        if entry.uncertainty is not None and entry.uncertainty.parts
    ]
    tests = tests_of_all_pairs(
        [entries[at].value for at in known],
        [each for at in known if (each := entries[at].uncertainty) is not None],
        beyond=ROUND_DOWN * quantile((1 + level) / 2, math.inf),
        below=below,
        rows=rows if rows is None else sum(at < rows for at in known),
    )
    p = np.full((len(entries), len(entries)), np.nan)
    p[np.ix_(known, known)] = np.where(tests.error > 0, tests.p, np.nan)
    np.fill_diagonal(p, np.nan)
    return Pairs(("",) * len(entries), tuple(entries), p)


def _places_of_tests(p: Floats) -> tuple[Places, Places]:
    """Return both entries of each pair that was tested, each pair once."""
    first, second = np.nonzero(np.triu(~np.isnan(p), 1))
    return first, second


def _is_close(p: Floats, level: float) -> bool:
    """Whether a corrected p value is so near to the level that rounding might decide."""
    adjusted = holm(p[_places_of_tests(p)])
    return bool(np.isclose(adjusted, 1 - level, rtol=ROUNDING, atol=0).any())


def rank_sets(better: Truths) -> list[tuple[int, int]]:
    """Return the first and last possible rank of each entry, from the matrix of :func:`clearly_better`."""
    count = len(better)
    return [
        (1 + int(better[:, i].sum()), count - int(better[i].sum()))
        for i in range(count)
    ]


class Layout(TypedDict):
    """What numbers of the same items have in common: population, factors and groups of each part, and how they vary."""

    parts: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
    items: dict[str, int]
    scale: NaturalScale
    method: Method


class PlainJoint(TypedDict):
    """A number, with the place of its layout if its uncertainty is known.

    ``deviations`` are those of all parts, as :func:`_text`; an infinite degree of freedom is None.
    """

    name: str
    value: float
    layout: int | None
    deviations: str
    freedom: list[float | None]
    outcome: float


class PlainPairs(TypedDict):
    """Numbers and the tests of their pairs; ``p`` is the triangle above the diagonal, as :func:`_text`."""

    layouts: list[Layout]
    numbers: list[PlainJoint]
    p: str


def packed(pairs: Pairs) -> PlainPairs:
    """Return pairs as plain data."""
    places: dict[object, int] = {}
    layouts: list[Layout] = []
    numbers: list[PlainJoint] = []
    for name, (value, known) in zip(pairs.names, pairs.joints, strict=True):
        plain = PlainJoint(
            name=name, value=value, layout=None, deviations="", freedom=[], outcome=0.0
        )
        numbers.append(plain)
        if known is None:
            continue
        parts = [(part.population, part.over, part.keys) for part in known.parts]
        items = tuple(known.items.items())
        place = (tuple(parts), items, known.scale, known.method)
        if place not in places:
            places[place] = len(layouts)
            layouts.append(
                Layout(
                    parts=parts,
                    items=dict(items),
                    scale=known.scale,
                    method=known.method,
                )
            )
        plain["layout"] = places[place]
        plain["deviations"] = _text(part.values for part in known.parts)
        freedom = [part.freedom for part in known.parts]
        plain["freedom"] = [each if math.isfinite(each) else None for each in freedom]
        plain["outcome"] = known.outcome
    triangle = pairs.p[np.triu_indices(len(numbers), 1)]
    return {"layouts": layouts, "numbers": numbers, "p": _text([triangle])}


def unpacked(plain: PlainPairs) -> Pairs:
    """Return the pairs that :func:`packed` made plain, with the same bits; those of one layout share its names."""
    layouts = [
        [
            (population, tuple(over), tuple(keys))
            for population, over, keys in each["parts"]
        ]
        for each in plain["layouts"]
    ]
    joints = []
    for number in plain["numbers"]:
        known = None
        if (at := number["layout"]) is not None:
            common = plain["layouts"][at]
            parts = tuple(_parts(number, layouts[at]))
            known = Uncertainty(
                parts,
                common["items"],
                common["scale"],
                number["outcome"],
                common["method"],
            )
        joints.append(Joint(number["value"], known))
    count = len(joints)
    p = np.full((count, count), np.nan)
    above = np.triu_indices(count, 1)
    p[above] = p.T[above] = _floats(plain["p"])
    names = tuple(number["name"] for number in plain["numbers"])
    return Pairs(names, tuple(joints), p)


def _parts(
    number: PlainJoint, layout: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]]
) -> Iterator[Part]:
    """Yield the parts of the variance of a number."""
    deviations = _floats(number["deviations"])
    end = 0
    for (population, over, keys), freedom in zip(
        layout, number["freedom"], strict=True
    ):
        start, end = end, end + len(keys)
        degrees = math.inf if freedom is None else freedom
        yield Part(population, over, keys, deviations[start:end], degrees)


def _text(arrays: Iterable[Floats]) -> str:
    """Return numbers as little-endian doubles in base64."""
    raw = b"".join(each.astype("<f8").tobytes() for each in arrays)
    return base64.b64encode(raw).decode("ascii")


def _floats(text: str) -> Floats:
    """Return the numbers that :func:`_text` wrote."""
    return np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)
