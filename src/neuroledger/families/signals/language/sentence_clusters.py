"""Nearly equal sentences under one name, as a coordinate of the windows in which they are heard or read."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.families.signals.language.text_clusters import cluster_texts

__all__ = ["clustered"]


def clustered(windows: xr.DataArray, near: float | None) -> xr.DataArray:
    """The windows with a coordinate `sentence_cluster`: texts of `sentence` no farther apart than `near` share one.

    Raises
    ------
    DataError
        A sentence has no word.
    """
    if near is None:
        return windows
    texts, which = np.unique(windows["sentence"].values.astype(str), return_inverse=True)
    clusters = cluster_texts(texts.tolist(), threshold=near)[which]
    added = windows.assign_coords(sentence_cluster=("presentation", clusters))
    added.encoding = {}  # a hash of the content that was kept is of the windows without this coordinate
    return added
