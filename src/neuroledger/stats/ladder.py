"""The Ladder: scores of sealed answers, rounded so that many looks tell little about the answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Ladder", "Rung"]


@dataclass(frozen=True)
class Rung:
    """What a look at sealed answers returns: the best score so far in steps, and whether this look raised it."""

    level: int
    new_best: bool


@dataclass(frozen=True)
class Ladder:
    r"""The Ladder of Blum and Hardt [blum2015] for shares of right answers.

    A look returns the best share so far. A new best is released only if it exceeds the former one by more than a step,
    and is rounded to a multiple of the step. The best is 0 before the first look.

    Attributes
    ----------
    items
        Number of answers.
    steps
        Number of steps from 0 to 1.
    looks
        Number of looks that are allowed.
    """

    items: int
    steps: int
    looks: int

    def look(self, level: int, right: int) -> Rung:
        """Return what a look at a proposal with ``right`` right answers returns, after a best of ``level`` steps."""
        exceeds = right * self.steps > (level + 1) * self.items
        if not exceeds:
            return Rung(level, new_best=False)
        return Rung(round(right * self.steps / self.items), new_best=True)

    @property
    def leaked_bits(self) -> float:
        r"""Bits about the answers that all looks together return at most, :math:`\log_2 \binom{k + B}{B}`.

        The best score never falls, so what k looks return is one of the monotone paths over B steps.
        """
        return math.log2(math.comb(self.looks + self.steps, self.steps))

    def overstated_by(self, missed: float = 0.05) -> float:
        r"""Return by how much a released score exceeds the true one at most, with probability ``1 - missed``.

        Whoever proposes predictions knows only what earlier looks returned. All predictions that can ever be proposed are
        therefore at most :math:`N = k \binom{k + B}{B}`, whatever the strategy, and Hoeffding's inequality for all of them
        gives :math:`\sqrt{\ln(N / .05) / 2n}` for n independent items; rounding adds half a step.
        """
        paths = math.comb(self.looks + self.steps, self.steps)
        exponent = math.log(self.looks) + math.log(paths) - math.log(missed)
        return math.sqrt(exponent / (2 * self.items)) + 0.5 / self.steps

    def interval(self, level: int) -> tuple[float, float]:
        """Return Wilson's 95 % interval of a released score, widened by half a step for its rounding [wilson1927].

        It is computed from the released score alone, and is valid for predictions that were not adapted to looks.
        """
        z = 1.959964
        share = level / self.steps
        half_step = 0.5 / self.steps
        weight = 1 + z**2 / self.items
        centre = (share + z**2 / (2 * self.items)) / weight
        spread = share * (1 - share) / self.items + z**2 / (4 * self.items**2)
        reach = z * math.sqrt(spread) / weight + half_step
        return max(0.0, centre - reach), min(1.0, centre + reach)
