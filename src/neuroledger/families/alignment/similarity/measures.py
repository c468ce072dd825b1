"""Measures of two representations as metrics: rows are matched, chance is subtracted, items are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array, Floats, Indices, Strings, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import (
    complete_neuroids,
    patterns,
    square,
)
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.workspace import Workspace

__all__ = [
    "FEWEST_STIMULI",
    "Chance",
    "Measure",
    "Permutations",
    "Sides",
    "centred",
    "measured",
    "sides",
    "without_chance",
]

# From source and target (stimulus × unit), in the same order of stimuli, to a number.
Measure = Callable[[Floats, Floats], float]
Permutations = Annotated[int, Field(ge=1, le=1000)]

FEWEST_STIMULI = 4


class Sides(NamedTuple):
    """Both representations in the same order of stimuli, float64, and the names of what the target consists of.

    ``source`` is (stimulus × unit), ``target`` (stimulus × neuroid).
    """

    source: Floats
    target: Floats
    stimuli: Strings
    neuroids: Strings
    notes: list[str]


@dataclass(frozen=True)
class Chance:
    """The value that a similarity has for unrelated stimuli, and how it is removed.

    A similarity ``s`` that is 1 for equal representations becomes ``(s − c) / (1 − c)``, where ``c`` is its chance
    level, as in the adjusted Rand index [hubert1985]: 0 for unrelated representations, and 1 for equal ones.
    """

    level: float = 0.0
    subtracted: bool = False

    def applied(self, value: float) -> float:
        """Return the value without chance, if it is subtracted."""
        if self.subtracted:
            return (value - self.level) / (1 - self.level)
        return value

    def notes(self, value: float, source: str) -> list[str]:
        """Say the level that was subtracted, its source, and the value before."""
        if not self.subtracted:
            return []
        return [f"chance {self.level:.3f} subtracted from {value:.3f}: {source}"]


def measured(
    both: Sides,
    measure: Measure,
    *,
    rng: np.random.Generator,
    adjusted: bool,
    permutations: int,
) -> Samples:
    """Return one number, which varies over stimuli of both sides and neuroids of the target.

    Parameters
    ----------
    both
        See :func:`sides`.
    measure
        The measure; NaN where it is undefined.
    adjusted, permutations
        Whether the mean of the measure over random permutations of the stimuli is subtracted, and their number.

    Raises
    ------
    MetricError
        The measure is undefined, or has no room above chance.
    """
    value = measure(both.source, both.target)
    if not np.isfinite(value):
        raise MetricError(
            "a side does not vary over the stimuli; the measure is undefined"
        )
    chance = Chance()
    if adjusted:
        chance = without_chance(
            [
                measure(both.source[rng.permutation(len(both.source))], both.target)
                for _ in range(permutations)
            ]
        )
    samples = xr.DataArray(chance.applied(value))

    def without(keep: Keep) -> xr.DataArray:
        rows = keep.get("stimulus", np.ones(len(both.stimuli), dtype=bool))
        columns = keep.get("neuroid", np.ones(len(both.neuroids), dtype=bool))
        if rows.sum() < FEWEST_STIMULI:
            return xr.DataArray(np.nan)
        left = measure(both.source[rows], both.target[np.ix_(rows, columns)])
        return xr.DataArray(chance.applied(left))

    items: Mapping[str, Strings] = {"stimulus": both.stimuli, "neuroid": both.neuroids}
    said = chance.notes(value, f"its mean over {permutations} permutations of stimuli")
    return Samples(samples, Variation(items, without), notes=[*both.notes, *said])


def without_chance(values: list[float]) -> Chance:
    """Return the chance level, which is the mean of values of permuted stimuli.

    Raises
    ------
    MetricError
        Permuted stimuli have the highest value already.
    """
    level = float(np.mean(values))
    if not level < 1 - 1e-9:
        raise MetricError(
            "permuted stimuli agree as well as equal ones: there are too few stimuli for so many dimensions; use more "
            "stimuli, or fewer dimensions"
        )
    return Chance(level, subtracted=True)


def sides(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rotated: bool,
    fewest: int = FEWEST_STIMULI,
) -> Sides:
    """Return both representations, complete and in moderate units.

    Parameters
    ----------
    source, target
        ``(presentation, neuroid)``, one row per stimulus in the same order.
    rotated
        Whether the measure ignores means and rotations of the source: more units than stimuli are then replaced by as
        many centred dimensions with the same inner products.
    fewest
        The smallest number of stimuli.

    Raises
    ------
    MetricError
        The rows do not match, there are too few of them, or features are missing.
    """
    notes: list[str] = []
    features = patterns(source, "source", notes)
    rows = len(features)
    _ = patterns(target, "target", notes, drop_missing=True)
    neuroids, responses = complete_neuroids(target)
    if rows != len(responses):
        raise MetricError(
            f"source has {rows} stimuli and target {len(responses)}; both sides need the same"
        )
    if rows < fewest:
        raise MetricError(f"the measure needs at least {fewest} stimuli, not {rows}")
    if rotated and features.shape[1] > rows:
        reduced = square(features, workspace, workspace.key(features))
        values = floats(workspace.take(cast(Array, reduced.X)))
    else:
        values = floats(features)
    if not np.isfinite(values).all():
        raise MetricError(
            "the source has missing or infinite values, and every activation is needed; drop those neuroids or stimuli"
        )
    return Sides(
        moderate(values), responses, stimulus_names(target, rows), neuroids, notes
    )


def centred(values: Floats, rows: Indices | slice = slice(None)) -> Floats:
    """Return values (stimulus × unit) of some rows without their column means."""
    chosen = values[rows]
    return np.asarray(chosen - chosen.mean(axis=0))
