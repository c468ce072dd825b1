"""Random effects: the mean of an effect over data sets, how much it varies between them, and what a new one may give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuroledger.data.arrays import floats
from neuroledger.errors import RequestError
from neuroledger.stats.uncertainty import LEVEL, quantile

__all__ = ["Pooled", "pooled"]


@dataclass(frozen=True)
class Pooled:
    r"""An effect over several data sets.

    Attributes
    ----------
    mean, low, high
        Mean of the effect over data sets of this kind and its 95 % interval [hartung2001].
    between
        Standard deviation of the true effects between data sets, :math:`\tau` [dersimonian1986].
    inconsistency
        Share of the observed variation that is between data sets, :math:`I^2`, from 0 to 1 [higgins2002].
    predicted
        95 % prediction interval of the effect in a new data set [higgins2009]; None for fewer than three data sets.
    datasets
        Number of data sets.
    """

    mean: float
    low: float
    high: float
    between: float
    inconsistency: float
    predicted: tuple[float, float] | None
    datasets: int


def pooled(effects: Sequence[float], errors: Sequence[float]) -> Pooled:
    """Return the random-effects mean of the effects of independent data sets.

    Parameters
    ----------
    effects
        Effect in each data set, (data set,).
    errors
        Standard error of each effect, (data set,), positive.

    Raises
    ------
    RequestError
        There are fewer than two data sets, or an error is not positive.
    """
    y = floats(effects)
    within = np.square(errors)
    count = len(y)
    if count < 2 or len(within) != count:
        raise RequestError(
            "random effects need two data sets or more, each with an error"
        )
    if not np.all(within > 0):
        raise RequestError("random effects need standard errors above 0")
    fixed = 1 / within
    centre = float(fixed @ y / fixed.sum())
    spread = float(fixed @ (y - centre) ** 2)
    surplus = max(0.0, spread - (count - 1))
    scale = float(fixed.sum() - (fixed @ fixed) / fixed.sum())
    variance = surplus / scale

    weights = 1 / (within + variance)
    mean = float(weights @ y / weights.sum())
    residual = float(weights @ (y - mean) ** 2) / (count - 1)
    # Where data sets agree by chance, the interval is not shorter than that of a fixed effect [rover2015].
    error = math.sqrt(max(1.0, residual) / float(weights.sum()))
    half = quantile((1 + LEVEL) / 2, count - 1) * error
    predicted = None
    if count > 2:
        spread_of_new = math.sqrt(variance + 1 / float(weights.sum()))
        reach = quantile((1 + LEVEL) / 2, count - 2) * spread_of_new
        predicted = mean - reach, mean + reach
    return Pooled(
        mean,
        mean - half,
        mean + half,
        math.sqrt(variance),
        surplus / spread if spread > 0 else 0.0,
        predicted,
        count,
    )
