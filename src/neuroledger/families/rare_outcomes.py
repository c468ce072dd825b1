"""Variance of proportions close to 0 or 1, for which the sample variance is too small."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["ADDED", "unseen"]

Floats = npt.NDArray[np.float64]
# Number of hits and of misses that are added to a proportion before its variance is computed.
ADDED = 2


def unseen(hit: Floats, items: npt.NDArray[np.intp], count: int) -> Floats:
    r"""Return the deviation of a proportion that each item adds to the one in the sample, (item,).

    If all outcomes are hits, the sample variance is zero and the proportion seems certain; with one miss it is still too
    small. The variance is therefore at least :math:`\tilde p (1 - \tilde p) / (n + 4)` with
    :math:`\tilde p = (k + 2) / (n + 4)`, that is, with two more hits and two more misses (Agresti and Coull, 1998). If
    items have several outcomes each, so that their variation is known, this applies only when all outcomes are equal.

    Parameters
    ----------
    hit
        The outcomes, (row,), 1 or 0.
    items
        Index of the item of each outcome, (row,), below ``count``. All items get the same addition per outcome, so that it
        cancels in the difference of two proportions that are equally certain.
    """
    n, right = len(hit), float(hit.sum())
    rows = np.bincount(items, minlength=count).astype(np.float64)
    variance = right * (n - right) / (n * n * max(1, n - 1))
    if n == 0 or (rows.max() > 1 and variance > 0):
        return np.zeros(count)
    share = (right + ADDED) / (n + 2 * ADDED)
    unexplained = max(0.0, share * (1 - share) / (n + 2 * ADDED) - variance)
    return np.asarray(np.sqrt(unexplained) * rows / np.sqrt((rows**2).sum()))
