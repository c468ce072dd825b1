"""Whether a model has seen the data it is scored on: by the data set's id, and by what the recordings contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuroledger.spec.kinds import Pretraining

__all__ = ["overlap_notes"]


def overlap_notes(
    pretraining: Sequence[str | Pretraining], dataset: str, recordings: Mapping[str, str]
) -> tuple[str, ...]:
    """What a reader of the score must be told; empty where nothing is known to overlap.

    Parameters
    ----------
    pretraining
        What the model was trained on before: ids of data sets, with the SHA-256 of single recordings where known.
    dataset
        Id of the data set it is scored on; `X.motor` is a part of `X`, and overlaps with it.
    recordings
        SHA-256 by name of the recordings it is scored on; equal content counts whatever the data set is called.

    Examples
    --------
    >>> overlap_notes(["Stieger2021"], "Stieger2021.motor", {})
    ('pretraining overlap: the model was pretrained on Stieger2021',)
    """
    ids = {entry if isinstance(entry, str) else entry.dataset for entry in pretraining}
    known = {digest for entry in pretraining if isinstance(entry, Pretraining) for digest in entry.recordings}
    notes = []
    named = sorted(id for id in ids if _same_or_part(id, dataset) or _same_or_part(dataset, id))
    if named:
        notes.append(f"pretraining overlap: the model was pretrained on {', '.join(named)}")
    shared = sorted(name for name, digest in recordings.items() if digest in known)
    if shared:
        shown = ", ".join(shared[:3]) + (", …" if len(shared) > 3 else "")
        notes.append(
            f"pretraining overlap: {len(shared)} of {len(recordings)} recordings by content ({shown})"
        )
    return tuple(notes)


def _same_or_part(whole: str, part: str) -> bool:
    return part == whole or part.startswith(f"{whole}.")
