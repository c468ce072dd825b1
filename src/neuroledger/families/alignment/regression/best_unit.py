"""The single best unit: each neuroid is predicted by the one model unit that follows it best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from neuroledger.data.arrays import Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.stats.workspace import Array

__all__ = ["BestUnit"]

# Columns of features are compared together while their correlations with the targets stay in the cache.
NARROWEST, WIDEST = 256, 2048
TOGETHER = 100_000
# Variance on the train rows, as a share of that over all rows, below which a unit counts as constant.
IDLE = 1e-12


class BestUnit(BaseModel):
    """The unit of greatest (signed) Pearson correlation on the train presentations; its activation is the prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["best_unit"] = "best_unit"

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """One prediction for each split, in order."""
        best = _best(problem)
        for split, units in zip(problem.splits, best, strict=True):
            yield Prediction(problem.workspace.put(problem.X[np.ix_(split.test, units)]))


class _Part(NamedTuple):
    """What one split needs of the targets.

    ``rows`` are multiplied anew: the left-out ones, to take them away from the product over all rows (``down``), or
    the train rows where those are fewer. ``Yt`` (target × row) is less the train means: units sum to zero over all
    rows, so that over the left-out ones they sum to the opposite of what they do over the train rows.
    """

    rows: Array
    down: bool
    trained: int
    Yt: Array
    size: Array


def _best(problem: Problem) -> Indices:
    """The best unit of each split and target, from one product of targets and features per block of units."""
    workspace, xp = problem.workspace, problem.workspace.xp
    Y = problem.centred
    targets = Y.shape[1]
    parts = [_part(problem, split, Y) for split in problem.splits]
    Yt = Y.T + 0.0
    step = max(NARROWEST, min(WIDEST, TOGETHER // targets))
    r = np.full((len(parts), targets), -np.inf)
    best = np.zeros((len(parts), targets), np.intp)
    for start in range(0, problem.X.shape[1], step):
        X = workspace.put(problem.X[:, start : start + step])
        X = X - X.mean(0)
        X -= X.mean(0)
        C, power = Yt @ X, (X * X).sum(0)
        if not bool(xp.isfinite(power).all()):
            raise MetricError("the source has missing or infinite values; drop those neuroids or stimuli")
        for at, part in enumerate(parts):
            top, unit = _strongest(part, X, C, power, xp)
            top, unit = workspace.take(top), workspace.take(unit)
            better = top > r[at]
            r[at, better], best[at, better] = top[better], unit[better] + start
    if not np.isfinite(r).all():
        raise MetricError("every unit of the source is constant on the train presentations of a split")
    return best


def _part(problem: Problem, split: Any, Y: Array) -> _Part:
    workspace = problem.workspace
    out = problem.left_out(split)
    down = len(out) < len(split.train)
    train = Y[workspace.indices(split.train)]
    mean = train.mean(0)
    rows = workspace.indices(out if down else split.train)
    centred = train - mean
    return _Part(rows, down, len(split.train), (Y[rows] - mean).T + 0.0, (centred * centred).sum(0) ** 0.5)


def _strongest(part: _Part, X: Array, C: Array, power: Array, xp: Any) -> tuple[Array, Array]:
    """Greatest correlation and its unit, for each target, over the units of one block.

    ``C`` are the units' products with the targets over all rows, ``power`` their squares.
    """
    rows = X[part.rows]
    sums, squares = rows.sum(0), xp.einsum("ij,ij->j", rows, rows)
    if part.down:
        squares = power - squares
    varied = squares - sums * sums / part.trained
    idle = varied <= IDLE * power
    scale = xp.where(idle, 0.0, 1 / xp.sqrt(xp.where(idle, 1.0, varied)))
    r = part.Yt @ rows
    if part.down:
        r = C - r
    r *= scale
    if bool(idle.any()):
        r = xp.where(idle, -xp.inf, r)
    unit = r.argmax(1)
    top = xp.take_along_dim(r, unit[:, None], 1)[:, 0] if xp is not np else r[np.arange(len(r)), unit]
    return top / part.size, unit
