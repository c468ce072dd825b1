"""Correlations of two halves of the responses without groups of stimuli."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Booleans, Floats, Indices

__all__ = ["halves_without_groups"]


def halves_without_groups(
    first: Floats, second: Floats, codes: Indices, count: int
) -> Floats:
    """Return the correlation of each column without each group of stimuli, (group, column).

    Parameters
    ----------
    first, second
        Means of the halves, (stimulus, column); stimuli with a missing value in either are left out of the column.
    codes, count
        Group of each stimulus, (stimulus,), and number of groups.
    """
    present: Booleans = np.isfinite(first) & np.isfinite(second)
    a, b = (_centred(half, present) for half in (first, second))
    members = (codes == np.arange(count)[:, None]).astype(np.float64)

    def rest(values: Floats) -> Floats:
        return np.asarray(values.sum(axis=0) - members @ values)

    stimuli = rest(present.astype(np.float64))
    sum_a = rest(a)
    sum_b = rest(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        product = rest(a * b) - sum_a * sum_b / stimuli
        own = rest(a * a) - sum_a**2 / stimuli
        other = rest(b * b) - sum_b**2 / stimuli
        power = own * other
        known = (stimuli > 2) & (power > 0)
        return np.where(known, product / np.sqrt(power), np.nan)


def _centred(values: Floats, present: Booleans) -> Floats:
    """Return values without the mean of each column over the stimuli that are present; 0 elsewhere."""
    filled = np.where(present, values, 0.0)
    return np.where(
        present, filled - filled.sum(axis=0) / np.maximum(present.sum(axis=0), 1), 0.0
    )
