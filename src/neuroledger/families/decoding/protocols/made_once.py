"""What is computed once for all folds, controls and pipelines: arrays by the content that determines them, bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np

from neuroledger.data.arrays import Array

__all__ = ["LIMIT", "content", "forget", "once"]

LIMIT: Final = 1 << 29
"""Bytes that are kept in memory; what was not used for longest goes first."""
_MADE: OrderedDict[tuple[str, ...], Array] = OrderedDict()


def content(*arrays: Array) -> str:
    """A hash of values, shapes and types: equal arrays have equal ones, changed arrays another."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def once(key: tuple[str, ...], make: Callable[[], Array]) -> Array:
    """The array for a key, read-only; made where it is not kept."""
    if key not in _MADE:
        made = make()
        made.flags.writeable = False
        _MADE[key] = made
        while sum(one.nbytes for one in _MADE.values()) > LIMIT and len(_MADE) > 1:
            _MADE.popitem(last=False)
    _MADE.move_to_end(key)
    return _MADE[key]


def forget() -> None:
    """Keep nothing of what was made so far."""
    _MADE.clear()
