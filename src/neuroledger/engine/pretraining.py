"""Whether a model has seen the data it is scored on: by the data set's id, and by what the recordings contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from neuroledger.spec.kinds import Pretraining

__all__ = ["overlap_notes", "recording_overlap"]


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
