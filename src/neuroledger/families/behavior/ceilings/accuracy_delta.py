"""Similarity of the losses of accuracy of two halves of the people."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.errors import CeilingError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.agreement.accuracy_drop import (
    drop_similarity,
    drops_of_people,
    half_of,
    means_of_halves,
    trials_of,
)
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["accuracy_delta"]


@ceiling(
    "accuracy_delta",
    version=2,
    input="behaviour",
    example=examples.trials_of_changed_images,
)
def accuracy_delta(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    image_types: tuple[str, str] = ("w", "f"),
    by: str = "image_type",
    draws: AtLeastOne = 100,
    subjects: Literal["all", "brainscore"] = "all",
) -> Samples:
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
    peer = None
    if subjects == "brainscore":
        peer = np.random.RandomState(0)
    halves = [half_of(people.names, peer=peer, rng=rng) for _ in range(draws)]

    def of_whole(drops: Floats) -> xr.DataArray:
        first, second = means_of_halves(drops, halves).T
        similarity = drop_similarity(first, second, signed=peer is not None)
        return xr.DataArray(2 * similarity / (1 + similarity), dims=("draw",))

    if (means_of_halves(people.values, halves)[:, 1] == 0).any():
        raise CeilingError(
            "half of the people lose no accuracy at all, so there is no loss to compare"
        )
    trials = trials_of(people)

    def without(keep: Keep) -> xr.DataArray:
        return of_whole(people.of(trials.rows(keep)[0]))

    return Samples(of_whole(people.values), Variation(trials.items, without))
