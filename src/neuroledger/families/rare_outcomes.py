"""Variance of proportions close to 0 or 1, for which the sample variance is too small."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Floats

__all__ = ["ADDED", "added_to_each", "shared", "unseen"]

# Number of hits and of misses that are added to a proportion before its variance is computed.
ADDED = 2


def unseen(hit: Floats, items: npt.NDArray[np.intp], count: int, added: float = ADDED) -> Floats:
    r"""Return the deviation of a proportion that each item adds to the one in the sample, (item,).

    If all outcomes are equal, the sample variance is zero and the proportion seems certain. The variance is then
    :math:`\tilde p (1 - \tilde p) / (n + 4)` with :math:`\tilde p = (k + 2) / (n + 4)`, that is, with two more hits and two
    more misses (Agresti and Coull, 1998). With both outcomes in the sample, its variance has no bias, and nothing is added:
    an interval in log odds reflects that the variance depends on the proportion.

    Parameters
    ----------
    hit
        The outcomes, (row,), 1 or 0.
    items
        Index of the item of each outcome, (row,), below ``count``. All items get the same addition per outcome, so that it
        cancels in the difference of two proportions that are equally certain.
    added
        Number of hits and of misses to add, see :func:`added_to_each`.
    """
    n, right = len(hit), float(hit.sum())
    if n == 0 or 0 < right < n:
        return np.zeros(count)
    rows = np.bincount(items, minlength=count).astype(np.float64)
    share = (right + added) / (n + 2 * added)
    error = np.sqrt(share * (1 - share) / (n + 2 * added))
    return np.asarray(error * rows / np.sqrt((rows**2).sum()))


def added_to_each(right: Floats, sizes: Floats, weights: Floats) -> float:
    r"""Return the number of hits and of misses to add to each of several proportions, of which a weighted sum is reported.

    Two are added to one proportion because an interval reaches :math:`z = 1.96` errors, and :math:`z^2 / 2 \approx 2`. In a
    sum of independent proportions, each reaches only
    :math:`z \sqrt{\sum_k w_k^2 v_k} / \sum_k w_k \sqrt{v_k}` of its own errors :math:`\sqrt{v_k}` (the stratified Wilson
    interval of Yan and Su, 2010). The recalls of ten classes of equal size are therefore given a fifth of a miss each.

    Parameters
    ----------
    right, sizes, weights
        Hits, outcomes and weight of each proportion, (proportion,).
    """
    shares = (right + ADDED) / (sizes + 2 * ADDED)
    variances = weights**2 * shares * (1 - shares) / (sizes + 2 * ADDED)
    return shared(variances)


def shared(variances: Floats) -> float:
    """Return the number of hits and of misses to add to a part of a sum whose independent parts have these variances."""
    whole = float(np.sqrt(variances).sum() ** 2)
    return float(ADDED * variances.sum() / whole) if whole > 0 else float(ADDED)
