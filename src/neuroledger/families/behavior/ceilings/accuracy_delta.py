"""Similarity of the losses of accuracy of two halves of the people."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracy_drop import (
    drop_similarity,
    drops_of_people,
    half_of,
    of_drops,
)
from neuroledger.spec.registry import ceiling

__all__ = ["accuracy_delta"]


@ceiling("accuracy_delta", version=2, input="behaviour")
def accuracy_delta(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    image_types: tuple[str, str] = ("w", "f"),
    by: str = "image_type",
    draws: Annotated[int, Field(ge=1)] = 100,
    subjects: Literal["all", "brainscore"] = "all",
) -> xr.DataArray:
    """Return the similarity ``s`` of the losses of two halves of the people as ``2s / (1 + s)``: ``(draw,)``.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)`` with ``subject`` and ``by``.
    image_types, by, draws, subjects
        As in the metric ``accuracy_delta``. The second half of each draw is the reference.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, a condition is missing, or the reference half loses no accuracy.
    """
    people = drops_of_people(assembly, image_types, by=by, error=CeilingError)
    drops, names = people.values, people.names
    peer = np.random.RandomState(0) if subjects == "brainscore" else None

    def of_whole(first: Floats, second: Floats) -> Floats:
        similarity = drop_similarity(first, second, signed=peer is not None)
        return np.asarray(2 * similarity / (1 + similarity))

    values = np.empty(draws)
    halves = [half_of(names, peer=peer, rng=rng) for _ in range(draws)]
    for i, members in enumerate(halves):
        first, second = float(drops[members].mean()), float(drops[~members].mean())
        if second == 0:
            raise CeilingError("half of the people lose no accuracy at all, so there is no loss to compare")
        values[i] = of_whole(np.array(first), np.array(second))
    influence = partial(of_drops, (people,), halves, of_whole)
    return xr.DataArray(values, dims=("draw",), attrs={"influence": influence})
