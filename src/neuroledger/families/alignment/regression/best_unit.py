"""Best single unit: each neuroid is predicted by the model unit with the highest correlation."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from neuroledger.data.arrays import Array, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.stats.splits import Split

__all__ = ["BestUnit"]

# Limits of the number of features that are compared at a time, and of their correlations with the targets (cache size).
NARROWEST, WIDEST = 256, 2048
TOGETHER = 100_000
# A unit counts as constant if its variance on the train rows is below this share of its variance over all rows.
IDLE = 1e-12


class BestUnit(BaseModel):
    """Unit with the greatest (signed) Pearson correlation on the train presentations; its activation is the prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["best_unit"] = "best_unit"

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split and block of targets."""
        for block in problem.blocks():
            parts = zip(problem.splits, _best(block), strict=True)
            units = (problem.X[np.ix_(split.test, best)] for split, best in parts)
            yield from block.placed(Prediction(problem.workspace.put(X)) for X in units)


class _Part(NamedTuple):
    """Targets of one split.

    ``rows`` are the rows whose products are computed: the left-out rows, whose product is subtracted from that of all
    rows (``down``), or the train rows if these are fewer. ``Yt`` (target × row) are the targets minus their train means:
    units sum to zero over all rows, so their sums over the left-out and the train rows differ only in sign.
    """

    rows: Array
    down: bool
    trained: int
    Yt: Array
    size: Array


def _best(problem: Problem) -> Indices:
    """Best unit of each split and target, from one product of targets and features per block of units."""
    workspace = problem.workspace
    xp = problem.workspace.xp
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
        C = Yt @ X
        power = (X * X).sum(0)
        if not bool(xp.isfinite(power).all()):
            raise MetricError(
                "the source has missing or infinite values; drop those neuroids or stimuli"
            )
        for at, part in enumerate(parts):
            top, unit = _strongest(part, X, C, power, xp)
            top = workspace.take(top)
            unit = workspace.take(unit)
            better = top > r[at]
            r[at, better] = top[better]
            best[at, better] = unit[better] + start
    if not np.isfinite(r).all():
        raise MetricError(
            "every unit of the source is constant on the train presentations of a split"
        )
    return best


def _part(problem: Problem, split: Split, Y: Array) -> _Part:
    workspace = problem.workspace
    out = problem.left_out(split)
    down = len(out) < len(split.train)
    train = Y[workspace.indices(split.train)]
    mean = train.mean(0)
    rows = workspace.indices(out if down else split.train)
    centred = train - mean
    return _Part(
        rows,
        down,
        len(split.train),
        (Y[rows] - mean).T + 0.0,
        (centred * centred).sum(0) ** 0.5,
    )


def _strongest(
    part: _Part, X: Array, C: Array, power: Array, xp: ModuleType
) -> tuple[Array, Array]:
    """Greatest correlation and its unit, for each target, over the units of one block.

    ``C`` are the products of the targets with the units over all rows, ``power`` the units' sums of squares.
    """
    rows = X[part.rows]
    sums = rows.sum(0)
    squares = xp.einsum("ij,ij->j", rows, rows)
    if part.down:
        squares = power - squares
    varied = squares - sums * sums / part.trained
    constant = varied <= IDLE * power
    scale = xp.where(constant, 0.0, 1 / xp.sqrt(xp.where(constant, 1.0, varied)))
    r = part.Yt @ rows
    if part.down:
        r = C - r
    r *= scale
    if bool(constant.any()):
        r = xp.where(constant, -xp.inf, r)
    unit = r.argmax(1)
    top = (
        xp.take_along_dim(r, unit[:, None], 1)[:, 0]
        if xp is not np
        else r[np.arange(len(r)), unit]
    )
    return top / part.size, unit
