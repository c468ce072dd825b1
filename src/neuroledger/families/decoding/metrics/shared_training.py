"""Variance of a decoding score by its training data: what each fold changes in the decoders that are trained on it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["Taught", "training_variance"]

# Each fold is compared with two decoders that lack others, on the windows of a third.
FEWEST_FOLDS = 4


class Taught(NamedTuple):
    """A variance by training data, and its standard error; both in squared units of the score."""

    variance: float
    error: float


def training_variance(tested: Floats, recalled: Floats, variance: float) -> Taught:
    r"""Return the variance of the mean score by the training data, and twice its covariance with the tested data.

    Parameters
    ----------
    tested
        (fold,): the score of each fold by the decoder that was trained on the others.
    recalled
        (decoder, fold): the scores of the folds that each decoder was trained on; NaN where undefined. Columns can be NaN.
    variance
        The variance of the mean score by the tested data, in squared units of the score.

    Returns
    -------
    Taught
        0 for fewer than ``FEWEST_FOLDS`` folds. It can be negative, because the covariance can be, and because it is
        estimated. The error is that of a sum over folds.

    Notes
    -----
    Decoder :math:`k` lacks fold :math:`k`, and the other decoders have it. On fold :math:`q`, which both have, the
    difference :math:`\delta_{kq} = \overline{g_{lq}}_{l \neq k, q} - g_{kq}` is the effect of fold :math:`k`. Products
    :math:`\delta_{kq} \delta_{kr}` of two folds have the expectation of the squared effect that all folds share. Squares
    would contain what fold :math:`k` changes in single windows as well, which the variance of the tested folds includes.
    The covariance with the score of fold :math:`k` is bounded by both variances.
    """
    count = len(tested)
    if count < FEWEST_FOLDS:
        return Taught(0.0, 0.0)
    off = np.isfinite(recalled) & ~np.eye(count, dtype=bool)
    values = np.where(off, recalled, 0.0)
    others = off.sum(axis=0) - off
    compared = off & (others > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        effects = np.where(compared, (values.sum(axis=0) - values) / others - values, 0.0)
        folds, sums = compared.sum(axis=1), effects.sum(axis=1)
        squared = np.where(folds > 1, (sums**2 - (effects**2).sum(axis=1)) / (folds * (folds - 1)), 0.0)
        mean = np.where(folds > 0, sums / folds, 0.0)
    # The others of two differences of a fold have all but three folds in common.
    rest = (count - 2) ** 2
    own = rest / (rest + count - 3) * squared
    joint = 2 / count * (tested - tested.mean()) * (mean - mean.mean())
    most = 2 * math.sqrt(max(float(own.sum()), 0.0) * variance)
    taught = float(own.sum()) + min(max(float(joint.sum()), -most), most)
    return Taught(taught, math.sqrt(count) * float((own + joint).std(ddof=1)))
