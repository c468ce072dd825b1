"""Whether a model has seen the data it is scored on: by the data set's id, and by what the recordings contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["overlap_notes"]

_HASH = "sha256:"


def overlap_notes(pretraining: Sequence[str], dataset: str, recordings: Mapping[str, str]) -> tuple[str, ...]:
    """What a reader of the score must be told; empty where nothing is known to overlap.

    Parameters
    ----------
    pretraining
        What the model was trained on before: ids of data sets, and `sha256:` digests of single recordings.
    dataset
        Id of the data set it is scored on; a part after a dot (`X.motor`) is a part of `X`.
    recordings
        SHA-256 by name of the recordings it is scored on.
    """
    notes = []
    whole = dataset.split(".")[0]
    named = sorted(
        entry for entry in pretraining if not entry.startswith(_HASH) and entry in (dataset, whole)
    )
    named += sorted(entry for entry in pretraining if entry.startswith(f"{dataset}."))
    if named:
        notes.append(f"pretraining overlap: the model was pretrained on {', '.join(named)}")
    known = {entry.removeprefix(_HASH) for entry in pretraining if entry.startswith(_HASH)}
    shared = sorted(name for name, digest in recordings.items() if digest in known)
    if shared:
        shown = ", ".join(shared[:3]) + (", …" if len(shared) > 3 else "")
        notes.append(
            f"pretraining overlap: {len(shared)} of {len(recordings)} recordings by content ({shown})"
        )
    return tuple(notes)
