"""Change of accuracy between two blocks, integrated over the levels of a variable, compared with that of people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from pydantic import NonNegativeInt, PositiveFloat

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.factorize import coordinate
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.agreement.error_agreement import correctness
from neuroledger.families.behavior.agreement.trial_items import TrialItems
from neuroledger.families.fields import BelowOne
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, NotKnown, Samples, Variation

__all__ = ["accuracy_integral"]


@metric("accuracy_integral", version=3, input="behaviour", example=examples.of_blocks)
def accuracy_integral(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    over: str,
    block: str,
    blocks: tuple[str, str],
    lapse: BelowOne = 0.0,
    lapses: Literal["people", "both"] = "people",
    scale: PositiveFloat = 1.0,
    decimals: NonNegativeInt | None = None,
) -> Samples:
    """Return ``exp(−scale · |a − b|)`` from the model's integral ``a`` and people's ``b``: ``()``.

    The integrand is the accuracy in the second of ``blocks`` minus that in the first, over the levels of ``over``, by the
    trapezoidal rule. People's accuracies ``p`` are first corrected for lapses ``l``: ``(p − l/2) / (1 − l)``.

    Parameters
    ----------
    source, target
        Answers ``(presentation,)`` or ``(presentation, choice)`` of the model, and trials of people. Both have the
        coordinates ``over`` (numbers) and ``block``, and the right answers unless they are 1 and 0 for right and wrong.
    lapse, lapses
        Proportion of trials that people answer regardless of the stimulus; ``both`` also corrects the model's accuracies.
    decimals
        Number of decimals to which both integrals are rounded.

    Raises
    ------
    MetricError
        A coordinate is missing, or a level has no answers in a block.

    Notes
    -----
    Ferguson et al. (2024).
    """
    model = _read(
        source, over, block, blocks, lapse if lapses == "both" else 0.0, "the model"
    )
    people = _read(target, over, block, blocks, lapse, "people")
    ends = [side.integral() for side in (model, people)]
    if decimals is not None:
        ends = [round(end, decimals) for end in ends]
    notes = [f"integrals: {ends[0]:.4g} of the model, {ends[1]:.4g} of people"]
    out = xr.DataArray(np.exp(-scale * abs(ends[0] - ends[1])))
    return Samples(out, _variation(model, people, scale), notes=notes)


@dataclass(frozen=True)
class _Answers:
    """Right and wrong answers, (answer,), by block and level; stimuli and people if they are named."""

    correct: Floats
    cell: Indices
    grid: Floats
    lapse: float
    stimulus: Array | None
    subject: Array | None

    def integral(self, rows: Booleans | slice = slice(None)) -> float:
        """Return the integral of the change of accuracy, of all or some answers; NaN if a level has none in a block."""
        cell = self.cell[rows]
        size = 2 * len(self.grid)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.bincount(cell, self.correct[rows], size) / np.bincount(
                cell, minlength=size
            )
        accuracy = (share - self.lapse / 2) / (1 - self.lapse)
        first, second = accuracy.reshape(2, -1)
        return float(np.trapezoid(second - first, self.grid))


def _variation(model: _Answers, people: _Answers, scale: float) -> Variation | NotKnown:
    """Return how the score changes without stimuli, if both sides name them, and without people, if they are named."""
    sides = (model, people)
    named = [(model.stimulus, None), (people.stimulus, people.subject)]
    trials = TrialItems.of(named, [len(side.correct) for side in sides])
    if not any(len(ids) > 1 for ids in trials.items.values()):
        return NotKnown("neither stimuli nor people are named")

    def without(keep: Keep) -> xr.DataArray:
        ends = [
            side.integral(rows)
            for side, rows in zip(sides, trials.rows(keep), strict=True)
        ]
        return xr.DataArray(np.exp(-scale * abs(ends[0] - ends[1])))

    return Variation(trials.items, without)


def _read(
    answers: xr.DataArray,
    over: str,
    block: str,
    blocks: tuple[str, str],
    lapse: float,
    who: str,
) -> _Answers:
    x = coordinate(answers, over)
    part = coordinate(answers, block)
    if x is None or part is None:
        raise MetricError(
            f"answers of {who} have no coordinate {over if x is None else block!r}"
        )
    try:
        levels = floats(x)
    except ValueError:
        raise MetricError(
            f"{over!r} of {who} holds {x[0]!r}, which cannot be integrated over: levels must be numbers"
        ) from None
    right = floats(correctness(answers))
    grid, level = np.unique(levels, return_inverse=True)
    if len(grid) < 2:
        raise MetricError(
            f"{over!r} of {who} has {len(grid)} level: an integral needs at least 2"
        )
    place = np.full(len(levels), -1)
    for at, name in enumerate(blocks):
        rows = part.astype(str) == name
        empty = np.setdiff1d(np.arange(len(grid)), level[rows])
        if empty.size:
            raise MetricError(
                f"{who} gave no answers at {over} = {grid[empty[0]]:g} in block {name!r}"
            )
        place[rows] = at * len(grid) + level[rows]
    used = place >= 0
    ids = [
        coordinate(answers, *names)
        for names in (("stimulus_id",), ("subject", "subject_id"))
    ]
    stimulus, subject = (
        None if each is None else each[used].astype(str) for each in ids
    )
    return _Answers(right[used], place[used], grid, lapse, stimulus, subject)
