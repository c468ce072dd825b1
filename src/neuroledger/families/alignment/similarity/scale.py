"""Extreme units: values so large or small that their squares overflow or vanish."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Array, floats

__all__ = ["moderate", "moderate_columns", "moderating_power"]

# Values between 2^-100 and 2^100 need no other units: the product of two sums of their squares is in range.
MODERATE = 100
# Number of rows by which the units of a column are judged.
SAMPLE = 64


def moderate(values: Array) -> Array:
    """Rescale extreme values by one power of two, which changes no digit; other values are returned unchanged."""
    return _rescaled(
        values, np.fmax.reduce(values, axis=None), np.fmin.reduce(values, axis=None)
    )


def moderate_columns(values: Array) -> Array:
    """As :func:`moderate`, each column (row × column) by a power of its own, judged by evenly spaced rows."""
    sample = values[:: max(1, len(values) // SAMPLE)]
    return _rescaled(
        values, np.fmax.reduce(sample, axis=0), np.fmin.reduce(sample, axis=0)
    )


def moderating_power(highest: float, lowest: float) -> int:
    """Power of two by which :func:`moderate` multiplies values with this maximum and minimum; 0 for usual ones."""
    exponent = int(_exponents(np.asarray(highest), np.asarray(lowest)))
    return -exponent if abs(exponent) > MODERATE else 0


def _exponents(highest: Array, lowest: Array) -> Array:
    largest = np.maximum(floats(highest), -floats(lowest))
    return np.frexp(np.where(np.isfinite(largest), largest, 0.0))[1]


def _rescaled(values: Array, highest: Array, lowest: Array) -> Array:
    exponent = _exponents(highest, lowest)
    if (np.abs(exponent) <= MODERATE).all():
        return values
    return np.ldexp(floats(values), -exponent)
