"""What the modules of the audit share: the form of a problem, coordinates as text, and short lists of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Strings

__all__ = ["MAINS", "Problems", "first_names", "text_of"]

Problems: TypeAlias = Iterator[tuple[str, str, str]]
"""The code, the description and the fix of each problem."""
MAINS: Final = (50.0, 60.0)
"""Frequencies of the mains, in Hz."""
SHOWN: Final = 6


def text_of(assembly: xr.DataArray, name: str) -> Strings:
    """The values of a coordinate as text."""
    return np.asarray(assembly[name].values).astype(str)


def first_names(names: Sequence[str]) -> str:
    """The first names, separated by commas, and the number of the others."""
    shown = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        return f"{shown} and {len(names) - SHOWN} more"
    return shown
