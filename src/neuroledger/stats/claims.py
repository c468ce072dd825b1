"""Claims: whether one model is above another on every path of a multiverse, valid at every look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from neuroledger.stats.aggregate import holm
from neuroledger.stats.differences import SIGNIFICANT, difference
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty

__all__ = [
    "METHOD",
    "Gain",
    "Status",
    "contradicting",
    "gain",
    "level_of",
    "status_of",
]

Status = Literal["supported", "not_distinguishable", "contradicted"]

# Version of the method by which a status follows from records.
METHOD: Final = 1


@dataclass(frozen=True)
class Gain:
    """By how much the first model is above the second on one path, and the tests of this.

    Attributes
    ----------
    value
        Difference of the scores, positive if the first model is better; None if one of them is undefined.
    p_above, p_below
        One-sided p values: of a gain of at most the margin, which a supported claim rejects on every path, and of a gain
        of at least the margin. Both are 1 without an interval.
    uncertainty
        How the gain varies; None if that is not known.
    reason
        Why there is no test.
    """

    value: float | None = None
    p_above: float = 1.0
    p_below: float = 1.0
    uncertainty: Uncertainty | None = None
    reason: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the gain."""
        if self.value is None or self.uncertainty is None:
            return None
        return self.uncertainty.interval(self.value)


def gain(above: Score, below: Score, at_least: float) -> Gain:
    """Return by how much ``above`` is above ``below``, paired over shared items, and the tests against ``at_least``.

    The margin has the unit of the scores. Lower values are better in scores whose direction is lower.
    """
    found = difference("", above, below)
    if above.uncertainty is None or below.uncertainty is None or found.low is None:
        return Gain(found.value, reason=found.reason)
    sign = 1.0 if above.direction == "higher" else -1.0
    value = sign * (above.value - below.value)
    apart = (above.uncertainty - below.uncertainty) * sign
    excess = value - at_least
    tail = apart.p(excess) / 2
    is_above = excess > 0
    return Gain(
        value,
        p_above=tail if is_above else 1 - tail,
        p_below=1 - tail if is_above else tail,
        uncertainty=apart,
    )


def level_of(look: int) -> float:
    r"""Return the level of the tests of a look, which is numbered from 1.

    The levels of all looks sum to 5 %, :math:`\sum_k .05 \cdot 6/(\pi^2 k^2) = .05`. By the union bound, the chance that
    a wrong claim is ever supported is at most 5 %, however the data of the looks depend on each other.
    """
    return SIGNIFICANT * 6 / (math.pi * look) ** 2


def contradicting(gains: Sequence[Gain], level: float) -> list[bool]:
    """Return for each path whether its gain is below the margin, simultaneously over all paths [holm1979]."""
    corrected = holm([path.p_below for path in gains]).tolist()
    return [p <= level for p in corrected]


def status_of(gains: Sequence[Gain], level: float) -> Status:
    """Return what the paths say about a claim that holds only if it holds on every path.

    The claim is supported if every path rejects a gain of at most the margin. No correction is needed: if the claim is
    wrong, it is wrong on one path, whose test alone errs with the probability of the level (intersection-union test
    [berger1982]). It is contradicted if any path rejects a gain of at least the margin after Holm's correction.
    """
    if gains and all(path.p_above <= level for path in gains):
        return "supported"
    if any(contradicting(gains, level)):
        return "contradicted"
    return "not_distinguishable"
