"""What a paradigm returns: what the model gave beside what the brain gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import xarray as xr

from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split

__all__ = ["Measurement"]


@dataclass(frozen=True)
class Measurement:
    """A model's answer and the data it is compared with, labelled, not scored.

    Attributes
    ----------
    source
        What the model gave: ``(presentation, neuroid[, time_bin])``, choices, probabilities or predictions.
    target
        What it is compared with; repetitions averaged where the metric needs that.
    repeated
        The target before averaging: what a ceiling is estimated from. None: the target itself.
    splits
        Fixed train/test divisions of the target's rows, where the paradigm defines them; the metric's own otherwise.
    costs
        Scores that come out of the same pass (footprint, operations, …), by metric id.
    notes
        What a reader of the score must know.
    trace
        What the paradigm counted on the way, for closer looks; the engine does not read it.
    """

    source: xr.DataArray
    target: xr.DataArray
    repeated: xr.DataArray | None = None
    splits: Sequence[Split] | None = None
    costs: Mapping[str, Score] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trace: object | None = None
