"""Influence of items on proportions of outcomes, close to 0 and 1, too."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Array, Floats
from neuroledger.families.rare_outcomes import ADDED, shared, unseen
from neuroledger.stats.spread import Influence, Items, moved

__all__ = ["of_proportions"]


def of_proportions(factor: str, names: Array, outcomes: Floats) -> Influence:
    """Return the influence of items on the mean of one or several proportions of their outcomes.

    Parameters
    ----------
    factor
        Name of the items' factor.
    names
        Names of the items, (item,), sorted and unique.
    outcomes
        One outcome of each item in each proportion, 0 or 1, (item, proportion). A proportion without both outcomes has the
        variance of :func:`~neuroledger.families.rare_outcomes.unseen`.
    """
    count, proportions = outcomes.shape
    items = moved(names, (outcomes - outcomes.mean(axis=0)).mean(axis=1) / count)
    rows = np.arange(count)

    def rare(added: float) -> Floats:
        each = [unseen(column, rows, count, added) / proportions for column in outcomes.T]
        return np.stack(each, axis=1)

    variances = np.append((rare(ADDED) ** 2).sum(axis=0), items.variance)
    deviation = items.deviation + rare(shared(variances)).sum(axis=1)
    step = {factor: 1 / outcomes.size}
    return Influence({factor: Items(items.ids, deviation)}, skewed=True, step=step)
