"""Stimuli and people of trials, and which trials stay without some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Indices, Strings
from neuroledger.data.factorize import coordinate
from neuroledger.stats.samples import Keep

__all__ = ["Ids", "TrialItems", "ids_of"]

# Stimulus and subject of each trial, (trial,), where they are named.
Ids = tuple[Array | None, Array | None]


def ids_of(trials: xr.DataArray) -> Ids:
    """Return the stimulus and the subject of each trial; None without the coordinate."""
    return coordinate(trials, "stimulus_id"), coordinate(
        trials, "subject", "subject_id"
    )


@dataclass(frozen=True)
class TrialItems:
    """The items of the trials of one or several sides, such as people and a model.

    Attributes
    ----------
    items
        Stimuli, if every side names them, and subjects of the sides that name them; sorted, each once.
    codes
        For each side, the item of each of its trials, by factor.
    sizes
        Number of trials of each side.
    """

    items: dict[str, Strings]
    codes: Sequence[dict[str, Indices]]
    sizes: Sequence[int]

    @classmethod
    def of(cls, sides: Sequence[Ids], sizes: Sequence[int]) -> TrialItems:
        """Encode the items of the trials of each side."""
        items: dict[str, Strings] = {}
        codes: list[dict[str, Indices]] = [{} for _ in sides]
        for at, factor in enumerate(("stimulus", "subject")):
            named = {
                place: np.asarray(side[at]).astype(str)
                for place, side in enumerate(sides)
                if side[at] is not None
            }
            if not named or (factor == "stimulus" and len(named) < len(sides)):
                continue
            items[factor] = np.unique(np.concatenate(list(named.values())))
            for place, ids in named.items():
                codes[place][factor] = np.searchsorted(items[factor], ids)
        return cls(items, codes, sizes)

    def rows(self, keep: Keep) -> list[Booleans]:
        """Return for each side which of its trials stay, (trial,)."""
        found = []
        for size, codes in zip(self.sizes, self.codes, strict=True):
            rows = np.ones(size, dtype=bool)
            for factor in codes.keys() & keep.keys():
                rows &= keep[factor][codes[factor]]
            found.append(rows)
        return found
