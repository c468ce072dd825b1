"""What a metric or ceiling returns: labelled values, how they vary, limits, counts, facts and notes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.data.facts import Fact

__all__ = ["Keep", "NotKnown", "Samples", "Variation"]

# For each factor that loses items: which of its items, in the order of ``Variation.items``, stay.
Keep = Mapping[str, Booleans]


@dataclass(frozen=True)
class Variation:
    """Items that a score is computed from, and the samples without some of them.

    Attributes
    ----------
    items
        Id of each item of each factor, (item,): ``stimulus``, ``neuroid``, ``subject``, … Equal ids are one item.
    without
        Returns the samples without the items that are not kept, with the dimensions of the samples. For a
        cross-validated score, the items are left out of the tested parts, the fits stay, and each split moves by
        :func:`neuroledger.stats.variation.held_out_deviation`.
    each
        A closed form of ``without`` for all groups of one factor, given the group of each item: (group, samples), or
        None where ``without`` is fast enough.
    inflation
        Factor of the variance by which a cross-validated score varies more than its tested items, because its folds share
        training data (Nadeau and Bengio 2003): by name of the factor, see :func:`neuroledger.stats.variation.inflation`.
    nested
        Larger items that contain others, such as subjects: by their factor, the factor of the items that they contain, and
        the larger item of each of these. They vary only where a benchmark generalises over them, in place of their items.
    fixed
        Dimensions of the samples whose entries are no independent items: those of people who are compared with each other
        depend on each other. Their items are left out.
    """

    items: Mapping[str, Strings | Sequence[str]]
    without: Callable[[Keep], xr.DataArray]
    each: Callable[[str, Indices], Floats] | None = None
    inflation: Mapping[str, float] = field(default_factory=dict)
    nested: Mapping[str, tuple[str, Strings]] = field(default_factory=dict)
    fixed: Collection[str] = ()


@dataclass(frozen=True)
class NotKnown:
    """The variation of a score is not known, so it has no interval."""

    reason: str


@dataclass(frozen=True)
class Samples:
    """The result of a metric or ceiling.

    Attributes
    ----------
    values
        Labelled values, e.g. (split, neuroid), which the spec aggregates to one number.
    variation
        What the values are computed from. None for the general route: the metric is computed again without each group of
        stimuli, and of neuroids or subjects, of its assemblies.
    limits
        Smallest and largest possible value; None for those of the scale.
    outcome
        For scores that count outcomes: change of the score by one more outcome.
    counts, facts, notes
        Counts by name, typed facts by name, and sentences for readers.
    predictions
        Predictions that the values were computed from, stored on request.
    """

    values: xr.DataArray
    variation: Variation | NotKnown | None = None
    limits: tuple[float, float] | None = None
    outcome: float = 0.0
    counts: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    notes: Sequence[str] = ()
    predictions: xr.DataArray | None = None

    @classmethod
    def of(cls, result: Samples | xr.DataArray | float) -> Samples:
        """Return samples as they are, or those of plain labelled values."""
        if isinstance(result, Samples):
            return result
        return cls(
            result
            if isinstance(result, xr.DataArray)
            else xr.DataArray(np.float64(result))
        )
