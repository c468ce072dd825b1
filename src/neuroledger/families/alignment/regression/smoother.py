"""Linear smoothers, which map the responses of all rows to fitted values, and what rows contribute to predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats, Indices
from neuroledger.families.alignment.regression.problem import Problem
from neuroledger.families.alignment.regression.training import (
    Slopes,
    TrainingInfluence,
    separate_influence,
)

__all__ = ["Residuals", "SmootherTraining"]


class Residuals(NamedTuple):
    """The matrix ``R`` (row × row) that maps the targets to the residuals of a fit to all rows: ``base − W Wᵀ``.

    ``base`` is a matrix, or None for the identity. ``residual`` (row × target) is the product of ``R`` with the targets.
    """

    base: Floats | None
    W: Floats
    residual: Floats

    def block(self, rows: Indices, columns: Indices) -> Floats:
        """Return entries of ``R``."""
        own = rows[:, None] == columns if self.base is None else self.base[np.ix_(rows, columns)]
        return np.asarray(own - self.W[rows] @ self.W[columns].T)

    def diagonal(self, rows: Indices) -> Floats:
        """Return diagonal entries of ``R``."""
        own = 1.0 if self.base is None else self.base[rows, rows]
        return np.asarray(own - (self.W[rows] ** 2).sum(axis=1))


@dataclass(frozen=True)
class SmootherTraining:
    """The training rows of all splits, from one fit to all rows, which is computed when it is first needed."""

    problem: Problem
    fit: Callable[[], Residuals]

    @cached_property
    def residuals(self) -> Residuals:
        """The fit to all rows."""
        return self.fit()

    def influence(self, slopes: Sequence[Slopes]) -> Iterator[TrainingInfluence]:
        """Yield the influence of the training rows of each split.

        Without rows ``o``, the other rows have ``R[t, t] − R[t, o] R[o, o]⁻¹ R[o, t]`` in place of ``R[t, t]``, and the
        predictions of ``o`` depend on the responses of ``t`` by ``−R[o, o]⁻¹ R[o, t]``.
        """
        R = self.residuals
        for slope in slopes:
            split = self.problem.splits[slope.split]
            out = self.problem.left_out(split)
            across, own = R.block(split.train, out), R.block(out, out)
            try:
                share = np.asarray(np.linalg.solve(own, across.T).T, dtype=np.float64)
            except np.linalg.LinAlgError:  # the remaining rows lack a direction of the left-out rows
                share = np.asarray(np.linalg.lstsq(own, across.T, rcond=None)[0].T, dtype=np.float64)
            residual = R.residual[split.train] - share @ R.residual[out]
            free = R.diagonal(split.train) - (share * across).sum(axis=1)
            # A change of the intercept moves all predictions alike, which no correlation notices.
            gain = -share[:, np.searchsorted(out, split.test)] - 1 / len(split.train)
            yield separate_influence(gain, residual, free, slope)
