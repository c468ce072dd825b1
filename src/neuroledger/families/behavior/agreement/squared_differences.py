"""How a mean squared difference of accuracies varies with new stimuli and new people."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from neuroledger.families.behavior.agreement.error_agreement import Answers
from neuroledger.stats.spread import Influence, Items, centred, moved

__all__ = ["of_squared_differences"]

Floats = npt.NDArray[np.float64]


def of_squared_differences(model: Answers, people: Answers) -> Influence:
    r"""How stimuli and people move the mean over conditions and people of :math:`d^2`, ``d`` being ``a − b``.

    To first order a stimulus moves it by what it moves each ``d``; pairs of stimuli add the squares of that, which alone are
    left where the model is as right as people are. People vary by :math:`d` between them, taken as normal: a handful
    of squares does not show how squares vary. The score is skewed, see :meth:`~neuroledger.stats.spread.Spread.interval`.

    Parameters
    ----------
    model, people
        Correctness on the same cells; every person has trials in every condition.
    """
    names, codes = np.unique(people.stimuli.astype(str), return_inverse=True)
    stimuli = codes.ravel()[people.stimulus]
    conditions, persons = len(people.conditions), len(people.observers)
    d = np.zeros((conditions, persons))
    moves = np.zeros((len(names), conditions, persons))
    for c in range(conditions):
        cells = np.flatnonzero(people.condition == c)
        seen = people.seen[:, cells].T
        apart = (model.correct[0, cells][:, None] - people.correct[:, cells].T) * seen
        d[c] = apart.sum(axis=0) / seen.sum(axis=0)
        np.add.at(moves[:, c], stimuli[cells], (apart - d[c] * seen) / seen.sum(axis=0))
    linear = 2 * d * moves / d.size
    flat = moves.reshape(len(names), -1)
    gram = flat.T @ flat
    # Of pairs (i, j) with i < j, each of which moves the score by 2 gᵢ·gⱼ over the number of squares.
    beyond = max(0.0, float((gram**2).sum() - ((flat**2).sum(axis=1) ** 2).sum()) * 2 / d.size**2)

    def of_pairs(multipliers: Floats, _: Floats) -> Floats:
        drawn = ((multipliers @ flat) ** 2).sum(axis=1)
        drawn -= drawn.mean()
        power = float((drawn**2).mean())
        return np.asarray(drawn * np.sqrt(beyond / power)) if power > 0 else drawn

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
    """Variance that people cause of the mean square of differences (condition, person) that are normal between people."""
    free = d.shape[1] - 1
    mean = d.mean(axis=1)
    covariance = np.atleast_2d(np.cov(d, ddof=1))
    whole, trace = float((covariance**2).sum()), float(np.trace(covariance))
    # Their squared covariances, without what chance adds to those of few people.
    squares = free / (free + 2) * whole
    if free > 1:
        unbiased = free**2 / ((free - 1) * (free + 2)) * (whole - trace**2 / free)
        squares = max(unbiased, whole / (free + 1))
    along = max(0.0, float(mean @ covariance @ mean) - squares / (free + 1))
    return float((4 * along + 2 * squares) / ((free + 1) * len(d) ** 2))
