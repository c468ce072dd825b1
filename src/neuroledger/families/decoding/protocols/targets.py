"""What windows show, as an array beside them: labels, numbers, texts, or what is found by their stimulus."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, RequestError
from neuroledger.families.decoding.protocols.decoder import Objective

__all__ = ["standardised", "truth_of"]

Array = npt.NDArray[Any]


def truth_of(
    assembly: xr.DataArray, data: Dataset, target: str | tuple[str, ...], objective: Objective
) -> Array:
    """What the windows show: (presentation,), or (presentation, output).

    Embeddings, and numbers where `target` names an extra assembly, are found by `stimulus_id`; what they have beyond two
    dimensions is laid out flat.

    Raises
    ------
    DataError
        The data lack the target, or it lacks a stimulus.
    RequestError
        Several targets where one is decoded.
    """
    if objective == "retrieval" or (
        objective == "regression" and isinstance(target, str) and target in data.extras
    ):
        if not isinstance(target, str) or target not in data.extras:
            raise DataError(
                f"data set {data.id!r} has no embeddings {target!r}; it has {', '.join(data.extras) or 'none'}"
            )
        embeddings = data.extras[target]
        row_of = {str(id): row for row, id in enumerate(embeddings["stimulus_id"].values)}
        lost = sorted({str(id) for id in assembly["stimulus_id"].values} - set(row_of))
        if lost:
            raise DataError(f"embeddings {target!r} lack {len(lost)} stimuli, first {lost[0]}")
        rows = [row_of[str(id)] for id in assembly["stimulus_id"].values]
        found = np.asarray(embeddings.values[rows]).reshape(len(rows), -1)
        # Trajectories are many numbers, and stay as short as they are kept.
        return found if objective == "regression" and found.dtype.kind == "f" else found.astype(float)
    names = (target,) if isinstance(target, str) else target
    for name in names:
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise DataError(f"data set {data.id!r}: presentations have no coordinate {name!r} to decode")
    if objective == "multilabel":
        return np.stack([assembly[name].values.astype(int) for name in names], axis=1)
    if objective == "regression" and len(names) > 1:
        return np.stack([assembly[name].values.astype(float) for name in names], axis=1)
    if len(names) != 1:
        raise RequestError(f"{objective} decodes one target, not {len(names)}")
    values = np.asarray(assembly[names[0]].values)
    return values.astype(float) if objective == "regression" else values.astype(str)


def standardised(truth: Array, train: Array) -> Array:
    """Each dimension of (window,) or (window, output), less the mean of the training rows and over their deviation."""
    spread = truth[train].std(axis=0)
    return np.asarray((truth - truth[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0))
