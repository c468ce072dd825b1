"""A bounded cache in memory for arrays that all folds, controls and pipelines share, by the hash of their inputs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np

from neuroledger.data.arrays import Array

__all__ = ["LIMIT", "cached", "clear_cache", "content_hash"]

LIMIT: Final = 1 << 29
"""Largest size of the cache in bytes; the least recently used arrays are dropped first."""
_CACHE: OrderedDict[tuple[str, ...], Array] = OrderedDict()


def content_hash(*arrays: Array) -> str:
    """A SHA-256 over values, shapes and types of the arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def cached(key: tuple[str, ...], make: Callable[[], Array]) -> Array:
    """The read-only array for a key; computed by `make` if it is not in the cache."""
    if key not in _CACHE:
        array = make()
        array.flags.writeable = False
        _CACHE[key] = array
        while (
            sum(entry.nbytes for entry in _CACHE.values()) > LIMIT and len(_CACHE) > 1
        ):
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(key)
    return _CACHE[key]


def clear_cache() -> None:
    """Drop all cached arrays."""
    _CACHE.clear()
