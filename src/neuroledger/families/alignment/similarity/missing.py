"""Dissimilarities of patterns with missing responses: over the neuroids that have responses to both stimuli."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.rdm import Distance, condensed

__all__ = ["dissimilarities_of_present"]

# Patterns whose variance is below this share of their power are constant.
CONSTANT = 1e-13


def dissimilarities_of_present(patterns: Floats, distance: Distance) -> Floats:
    """Dissimilarity of every pair of stimuli (condensed), as :func:`dissimilarities`, over the neuroids present in both.

    Parameters
    ----------
    patterns
        Responses (stimulus, neuroid), NaN where missing.

    Returns
    -------
    numpy.ndarray
        Upper triangle, row by row; NaN for two stimuli that share no pattern: fewer than two neuroids for ``correlation``,
        no neuroid otherwise, or constant responses.
    """
    present = np.isfinite(patterns)
    if present.all():
        return _of_complete(patterns, distance)
    shown = present.astype(np.float64)
    values = np.where(present, patterns, 0.0)
    relative = distance in ("correlation", "cosine")
    if distance != "cosine":  # a level that does not matter would cost digits
        axis = 1 if relative else 0
        level = values.sum(axis=axis, keepdims=True) / np.maximum(
            shown.sum(axis=axis, keepdims=True), 1
        )
        values = np.where(present, values - level, 0.0)
    shared = shown @ shown.T
    product = values @ values.T
    power = (values * values) @ shown.T
    with np.errstate(invalid="ignore", divide="ignore"):
        if distance == "correlation":
            total = values @ shown.T
            variance = power - total * total / shared
            whole = np.nansum(patterns * patterns, axis=1, keepdims=True)
            variance = np.where(variance > CONSTANT * whole, variance, np.nan)
            product = product - total * total.T / shared
            return condensed(np.asarray(1 - product / np.sqrt(variance * variance.T)))
        if distance == "cosine":
            return condensed(np.asarray(1 - product / np.sqrt(power * power.T)))
        mean = np.maximum(power + power.T - 2 * product, 0.0) / shared
        return condensed(
            mean
            if distance == "squared_euclidean"
            else np.sqrt(mean * patterns.shape[1])
        )


def _of_complete(patterns: Floats, distance: Distance) -> Floats:
    """The same for responses of which none is missing, in one product of the patterns."""
    level = patterns.mean(axis=1 if distance == "correlation" else 0, keepdims=True)
    values = patterns if distance == "cosine" else patterns - level
    product = values @ values.T
    power = (values * values).sum(axis=1)
    if distance in ("correlation", "cosine"):
        varies = power > CONSTANT * (patterns * patterns).sum(axis=1)
        size = np.sqrt(np.where(varies, power, np.nan))
        return condensed(1 - product / size / size[:, None])
    mean = np.maximum(power + power[:, None] - 2 * product, 0.0) / patterns.shape[1]
    return condensed(
        mean if distance == "squared_euclidean" else np.sqrt(mean * patterns.shape[1])
    )
