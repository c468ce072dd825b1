"""Influence of the rows that a readout was fitted to, and of targets that share a fit, on its held-out predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["REPRODUCED", "Slopes", "Training", "TrainingInfluence", "separate_influence"]

# A row whose fitted value is its own response to this share has a residual that is rounding error.
REPRODUCED = 1e-10


class Slopes(NamedTuple):
    """Derivative of a number by the predictions of one split.

    ``split`` is the split's position, ``gradient`` (test row × target) the derivative, ``signs`` (test row,) a random sign
    of each stimulus, by which interactions of test rows with train rows are estimated, and ``columns`` (target,) one of
    each target, for interactions of tested targets with those that share their fit.
    """

    split: int
    gradient: Floats
    signs: Floats
    columns: Floats


class TrainingInfluence(NamedTuple):
    """Change of the number per unit of weight of what the readout was fitted to.

    Attributes
    ----------
    rows
        By the weight of each train row, (train row,).
    signed
        The same with the gradient of each test row multiplied by its sign, (train row,): the expected square is the sum of
        the squared interactions of the train row with all test rows.
    cells, signed_cells
        The part of single responses, (train row × target), which ``rows`` and ``targets`` both contain, and the same with
        the gradient of each test row multiplied by its sign; not through directions that targets share.
    targets, signed_targets
        By the weight of each target, (target,): 0 unless the fit of a target depends on the others; and the same with the
        gradient of each tested target multiplied by its sign.
    marked
        The part of single responses in ``targets``, (train row × target), with the gradient of each test row multiplied by
        its sign; 0 unless the fit of a target depends on the others.
    leverage
        Mean share of a train row's own response in its fitted value.
    """

    rows: Floats
    signed: Floats
    cells: Floats
    signed_cells: Floats
    targets: Floats
    signed_targets: Floats
    marked: Floats
    leverage: float


class Training(Protocol):
    """What a readout was fitted to, for several splits of a problem."""

    def influence(self, slopes: Sequence[Slopes]) -> Iterator[TrainingInfluence]:
        """Yield the influence on each number, in order."""
        ...


def separate_influence(gain: Floats, residual: Floats, free: Floats, slope: Slopes) -> TrainingInfluence:
    """Return the influence for a linear readout whose targets are fitted separately.

    ``gain`` (train row × test row) is the dependence of predictions on responses, ``residual`` (train row × target) the
    residual of the fit, and ``free`` (train row,) the share of a row's own variation that its residual keeps. Residuals are
    divided by the root of this share, so that their squares are unbiased for the variance of independent noise
    [mackinnon1985].
    """
    scaled = residual / np.sqrt(np.maximum(free, REPRODUCED))[:, None]
    cells = (gain @ slope.gradient) * scaled
    signed = ((gain * slope.signs) @ slope.gradient) * scaled
    leverage = 1 - float(free.mean())
    none = np.zeros(cells.shape[1])
    return TrainingInfluence(
        cells.sum(axis=1), signed.sum(axis=1), cells, signed, none, none, np.zeros(cells.shape), leverage
    )
