"""Influence of stimuli and people on a mean squared difference of accuracies."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.families.behavior.agreement.error_agreement import Answers
from neuroledger.stats.spread import Influence, Items, centred, moved

__all__ = ["of_squared_differences"]


def of_squared_differences(model: Answers, people: Answers) -> Influence:
    r"""Return the influence of stimuli and people on the mean over conditions and people of :math:`d^2`, ``d = a − b``.

    The first-order influence of a stimulus is through its influence on each ``d``; pairs of stimuli add the second order,
    which alone remains if the model and people have equal accuracies. Between people, :math:`d` is taken as normal, because
    few squares do not show their own variance. The score is skewed, see
    :meth:`~neuroledger.stats.spread.Spread.interval`.

    Parameters
    ----------
    model, people
        Correctness on the same cells; every person must have trials in every condition.
    """
    names, codes = np.unique(people.stimuli.astype(str), return_inverse=True)
    stimuli = codes.ravel()[people.stimulus]
    conditions, persons = len(people.conditions), len(people.observers)
    d = np.zeros((conditions, persons))
    moves = np.zeros((len(names), conditions, persons))
    for c in range(conditions):
        cells = np.flatnonzero(people.condition == c)
        seen = people.seen[:, cells].T
        difference = (model.correct[0, cells][:, None] - people.correct[:, cells].T) * seen
        d[c] = difference.sum(axis=0) / seen.sum(axis=0)
        np.add.at(moves[:, c], stimuli[cells], (difference - d[c] * seen) / seen.sum(axis=0))
    linear = 2 * d * moves / d.size
    flat = moves.reshape(len(names), -1)
    gram = flat.T @ flat
    # Sum over pairs i < j, each of which changes the score by 2 gᵢ·gⱼ divided by the number of squares.
    pair_variance = max(0.0, float((gram**2).sum() - ((flat**2).sum(axis=1) ** 2).sum()) * 2 / d.size**2)

    def of_pairs(multipliers: Floats, _: Floats) -> Floats:
        products = ((multipliers @ flat) ** 2).sum(axis=1)
        products -= products.mean()
        power = float((products**2).mean())
        return np.asarray(products * np.sqrt(pair_variance / power)) if power > 0 else products

    of_people = moved(people.observers, ((d**2).mean(axis=0) - (d**2).mean()) / persons)
    if of_people.variance > 0:
        scale = np.sqrt(_of_normal_people(d) / of_people.variance)
        of_people = Items(of_people.ids, scale * of_people.deviation)
    order = np.argsort(people.observers.astype(str))
    return Influence(
        {"stimulus": moved(names, linear.sum(axis=(1, 2))), "subject": of_people},
        {
            ("stimulus", "stimulus"): of_pairs,
            ("stimulus", "subject"): centred(linear.sum(axis=1)[:, order]),
        },
        squares=True,
    )


def _of_normal_people(d: Floats) -> float:
    """Return the variance due to people of the mean square of normal differences (condition, person)."""
    free = d.shape[1] - 1
    mean = d.mean(axis=1)
    covariance = np.atleast_2d(np.cov(d, ddof=1))
    whole, trace = float((covariance**2).sum()), float(np.trace(covariance))
    # Squared covariances, corrected for the bias of small samples.
    squares = free / (free + 2) * whole
    if free > 1:
        unbiased = free**2 / ((free - 1) * (free + 2)) * (whole - trace**2 / free)
        squares = max(unbiased, whole / (free + 1))
    along = max(0.0, float(mean @ covariance @ mean) - squares / (free + 1))
    return float((4 * along + 2 * squares) / ((free + 1) * len(d) ** 2))
