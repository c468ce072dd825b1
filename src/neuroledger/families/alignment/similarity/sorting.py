"""The order of many numbers that are spread over their range, such as the dissimilarities of all pairs of stimuli."""

from __future__ import annotations

from typing import Final

import numpy as np

from neuroledger.data.arrays import Floats, Indices

__all__ = ["order_of"]

STEPS: Final = float(2**32 - 1)
"""Equal steps of the range, whose number has two digits of 16 bits, by which NumPy sorts in linear time."""


def order_of(values: Floats) -> Indices:
    """Return the indices that sort numbers, as ``np.argsort`` does, in a third of its time for 10⁵ dissimilarities.

    The numbers are sorted by the step of their range to which they belong, then exactly, which takes little since few
    share a step. Where most do, as under extreme outliers, this takes up to twice the time of ``np.argsort``.
    """
    if not len(values):
        return np.argsort(values)
    least = values.min()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = STEPS / (values.max() - least)
    if not 0 < scale < np.inf:  # equal, not finite, or too far apart
        return np.argsort(values)
    step = ((values - least) * scale).astype(np.uint32)
    order = np.argsort(step.astype(np.uint16), kind="stable")
    order = order[np.argsort((step >> 16).astype(np.uint16)[order], kind="stable")]
    nearly = values[order]
    if (nearly[1:] < nearly[:-1]).any():
        order = order[np.argsort(nearly, kind="stable")]
    return order
