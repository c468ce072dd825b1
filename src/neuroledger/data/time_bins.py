"""A model's time bins are brought onto the time bins that a benchmark asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroledger.errors import ModelError

Bin = tuple[float, float]

BLOCK = 1 << 24
"""Numbers that are aligned at once."""


def overlap_weights(source: Sequence[Bin], target: Sequence[Bin]) -> NDArray[np.float64]:
    """Weights (target, source): the part of each source bin, in its own width, that lies within the target bin."""
    first, last = (np.array([bin_[side] for bin_ in source], dtype=float) for side in (0, 1))
    rows = []
    for start, end in target:
        shared = np.minimum(last, end) - np.maximum(first, start)
        rows.append(np.clip(shared, 0, None) / (last - first))
    return np.array(rows).reshape(len(target), len(source))


def align_time(
    values: NDArray[Any], source: Sequence[Bin], target: Sequence[Bin], model: str
) -> NDArray[Any]:
    """Activations (presentation, source bin, …) as (presentation, target bin, …), in milliseconds from onset.

    A target bin is the mean of the source bins weighted by the part of each that lies within it.

    Raises
    ------
    ModelError
        A requested bin is not covered by the model's own bins from its start to its end.
    """
    covered = _merged(source)
    for start, end in target:
        if not any(low <= start and end <= high for low, high in covered):
            span = ", ".join(f"{low:g}–{high:g}" for low, high in covered)
            raise ModelError(f"model {model!r} has no answer for {start:g}–{end:g} ms: it covers {span} ms")
    weights = overlap_weights(source, target)
    weights = weights / weights.sum(axis=1, keepdims=True)
    aligned = np.empty((len(values), len(target), *values.shape[2:]), np.result_type(weights, values))
    # A block of presentations at a time: the activations may lie on disk, and a product copies what it is given.
    step = max(1, BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), step):
        block = np.tensordot(weights, values[start : start + step], axes=(1, 1))
        aligned[start : start + step] = np.moveaxis(block, 0, 1)
    return aligned


def _merged(bins: Sequence[Bin]) -> list[Bin]:
    """The stretches of time that the bins cover without a gap."""
    merged: list[Bin] = []
    for start, end in sorted(bins):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
