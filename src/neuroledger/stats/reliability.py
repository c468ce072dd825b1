"""Reliability of all repetitions, extrapolated from the correlation of two parts of them."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["of_all"]


def of_all(r: Floats, first: Floats, second: Floats) -> Floats:
    """Return the reliability of the mean over all repetitions, from the correlation of the means over two parts of them.

    With a signal of variance 1 and noise of variance x in a single repetition, parts of n₁ and n₂ repetitions correlate by
    ``r = 1 / √((1 + x/n₁)(1 + x/n₂))``, and all repetitions have the reliability ``1 / (1 + x/(n₁ + n₂))``. For the
    same n₁ and n₂ in all stimuli, this is Horst's formula for unequal parts [horst1951], and for equal parts
    ``2r / (1 + r)`` [spearman1910, brown1910]. If stimuli differ in their repetitions, 1/n is averaged over stimuli.

    Parameters
    ----------
    r
        Correlations ``(split, …)``, the shape of the result; negative values use the same formula, and -1 gives NaN.
    first, second
        Repetitions of each stimulus in the two parts ``(split, stimulus)``; stimuli missing in one part are ignored.
    """
    shape = (len(r),) + (1,) * (r.ndim - 1)
    present = (first > 0) & (second > 0)
    count = np.maximum(present.sum(axis=1), 1)
    first_noise, second_noise, whole_noise = (
        (np.where(present, 1 / np.maximum(n, 1), 0).sum(axis=1) / count).reshape(shape)
        for n in (first, second, first + second)
    )
    equal = (first_noise == second_noise) & (2 * whole_noise == first_noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = 2 * r / (1 + r)
        total = first_noise + second_noise
        root = np.sqrt(
            np.maximum(total**2 + 4 * first_noise * second_noise * (1 / r**2 - 1), 0.0)
        )
        noise = (np.where(r < 0, -root, root) - total) / (
            2 * first_noise * second_noise
        )
        reliability = np.where(
            equal, plain, np.where(r == 0, 0.0, 1 / (1 + noise * whole_noise))
        )
    return np.where(r == -1, np.nan, reliability)
