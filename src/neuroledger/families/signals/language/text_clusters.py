"""Clusters of similar texts, which must stay together when a partition holds out texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Strings
from neuroledger.errors import DataError

__all__ = ["cluster_texts", "clustered"]


def cluster_texts(texts: Sequence[str], *, threshold: float = 0.7) -> Strings:
    """Name of each text's cluster, (text,), by complete linkage on the cosine distance between TF-IDF vectors.

    The distance between two texts of a cluster is at most `threshold` (0: the same words, 1: no word in common), so
    equal texts always share a cluster. The name is the first text of the cluster in sorted order.

    Raises
    ------
    DataError
        There are no texts, or a text has no word.

    Examples
    --------
    >>> cluster_texts(["the dog ran", "a whole other matter", "the dog ran off"]).tolist()
    ['the dog ran', 'a whole other matter', 'the dog ran']
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.feature_extraction.text import TfidfVectorizer

    names, indices = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
    if len(names) == 0:
        raise DataError("there are no texts to cluster")
    if len(names) == 1:
        return names[indices]
    try:
        vectors = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit_transform(names)
    except ValueError as error:
        raise DataError(f"the texts cannot be clustered: {error}") from error
    empty = np.flatnonzero(np.asarray(vectors.sum(axis=1)).ravel() == 0)
    if len(empty):
        raise DataError(f"text {names[empty[0]]!r} cannot be clustered: it has no word")
    distance = np.clip(1.0 - np.asarray((vectors @ vectors.T).todense()), 0.0, 1.0)
    np.fill_diagonal(distance, 0.0)
    clusters = fcluster(
        linkage(squareform(distance, checks=False), "complete"), threshold, "distance"
    )
    first = {
        cluster: names[np.argmax(clusters == cluster)]
        for cluster in np.unique(clusters)
    }
    return np.array([first[cluster] for cluster in clusters])[indices]


def clustered(windows: xr.DataArray, near: float | None) -> xr.DataArray:
    """The windows with a coordinate `sentence_cluster`: clusters of `sentence` whose texts are at most `near` apart.

    Raises
    ------
    DataError
        A sentence has no word.
    """
    if near is None:
        return windows
    texts, indices = np.unique(
        windows["sentence"].values.astype(str), return_inverse=True
    )
    clusters = cluster_texts(texts.tolist(), threshold=near)[indices]
    added = windows.assign_coords(sentence_cluster=("presentation", clusters))
    added.encoding = {}  # a stored content hash is of the windows without this coordinate
    return added
