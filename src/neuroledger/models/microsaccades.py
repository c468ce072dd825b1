"""A fixating eye is never still: trials differ by small shifts of the image, the same for every model."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RADIUS_DEGREES: Final = 0.05
"""The largest shift, in degrees of visual angle."""


def shifts(trials: int, degrees: float, pixels: int) -> NDArray[np.float64]:
    r"""Shifts (trial, 2) in pixels, right and down, of an image that spans ``degrees`` with ``pixels``.

    Trial *i* of *n* lies on a spiral at radius :math:`R\sqrt{i/n}` and angle :math:`2\pi\sqrt{i/n}`, with *R* of 0.05
    degrees; the first trial is not shifted.

    >>> shifts(2, degrees=8, pixels=160).round(3).tolist()
    [[0.0, 0.0], [-0.188, -0.682]]
    """
    part = np.sqrt(np.arange(trials) / trials)
    radius = RADIUS_DEGREES / degrees * pixels * part
    return np.stack([radius * np.cos(2 * np.pi * part), radius * np.sin(2 * np.pi * part)], axis=1)


def look(images: NDArray[Any], trial: int, trials: int, degrees: float) -> NDArray[Any]:
    """Images (…, height, width) shifted as in one trial: linear interpolation, edges repeated outwards."""
    from scipy.ndimage import shift

    right, down = shifts(trials, degrees, images.shape[-1])[trial]
    if right == down == 0:
        return images
    still = (0.0,) * (images.ndim - 2)
    moved: NDArray[Any] = shift(
        images, (*still, float(down), float(right)), order=1, mode="nearest", prefilter=False
    )
    return moved
