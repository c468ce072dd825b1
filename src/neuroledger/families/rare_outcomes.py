"""Shares of which nearly all or nearly none hit: what so few outcomes of the other kind say of how the share varies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["ADDED", "unseen"]

Floats = npt.NDArray[np.float64]
# Hits, and misses, that are added to a share before its variance is read off.
ADDED = 2


def unseen(hit: Floats, items: npt.NDArray[np.intp], count: int) -> Floats:
    r"""What each item adds to the deviation of a share beyond what its outcomes show, (item,).

    A share of which all hit has outcomes that do not vary, and so claims to be certain; with one miss it claims too much.
    Its variance is taken to be no less than :math:`\tilde p (1 - \tilde p) / (n + 4)` with two hits and two misses more,
    :math:`\tilde p = (k + 2) / (n + 4)`, as Agresti and Coull (1998) advise. Of items with several outcomes each, whose
    own variation is known, that is asked only where all outcomes are alike.

    Parameters
    ----------
    hit
        The outcomes, (row,), 1 and 0.
    items
        Which of ``count`` items each outcome is of; the items of the share carry what is added alike, so that it falls out
        of the difference of two shares that are equally certain.
    """
    n, right = len(hit), float(hit.sum())
    rows = np.bincount(items, minlength=count).astype(np.float64)
    shown = right * (n - right) / (n * n * max(1, n - 1))
    if n == 0 or (rows.max() > 1 and shown > 0):
        return np.zeros(count)
    share = (right + ADDED) / (n + 2 * ADDED)
    missing = max(0.0, share * (1 - share) / (n + 2 * ADDED) - shown)
    return np.asarray(np.sqrt(missing) * rows / np.sqrt((rows**2).sum()))
