"""What a paradigm returns, what the model gave beside what the brain gave, and whether the model knew the data before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import xarray as xr

from neuroledger.spec.kinds import Pretraining
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split

__all__ = ["Measurement", "overlap_notes", "recording_overlap"]


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


def overlap_notes(pretraining: Sequence[str | Pretraining], dataset: str) -> tuple[str, ...]:
    """Notes on data sets that the model was pretrained on and is scored on; `X.motor` is a part of `X`.

    Examples
    --------
    >>> overlap_notes(["Stieger2021"], "Stieger2021.motor")
    ('pretraining overlap: the model was pretrained on Stieger2021',)
    """
    ids = {entry if isinstance(entry, str) else entry.dataset for entry in pretraining}
    named = sorted(id for id in ids if _same_or_part(id, dataset) or _same_or_part(dataset, id))
    return (f"pretraining overlap: the model was pretrained on {', '.join(named)}",) if named else ()


def recording_overlap(
    pretraining: Sequence[str | Pretraining], recordings: Callable[[], Mapping[str, str]]
) -> tuple[str, ...]:
    """Notes on recordings with the content of those that the model was pretrained on, whatever they are called.

    ``recordings`` gives the SHA-256 of each recording by name; it is called only where the pretraining states hashes.
    """
    known = {digest for entry in pretraining if isinstance(entry, Pretraining) for digest in entry.recordings}
    if not known:
        return ()
    present = recordings()
    shared = sorted(name for name, digest in present.items() if digest in known)
    if not shared:
        return ()
    shown = ", ".join(shared[:3]) + (", …" if len(shared) > 3 else "")
    return (f"pretraining overlap: {len(shared)} of {len(present)} recordings by content ({shown})",)


def _same_or_part(whole: str, part: str) -> bool:
    return part == whole or part.startswith(f"{whole}.")
