"""Whether a model was pretrained on the data that it is scored on."""

from __future__ import annotations

from collections.abc import Sequence

from neuroledger.spec.kinds import Pretraining

__all__ = ["overlap_notes"]


def overlap_notes(
    pretraining: Sequence[str | Pretraining], dataset: str
) -> tuple[str, ...]:
    """Return notes on scored data sets that the model was pretrained on; `X.motor` is a part of `X`.

    Examples
    --------
    >>> overlap_notes(["Stieger2021"], "Stieger2021.motor")
    ('pretraining overlap: the model was pretrained on Stieger2021',)
    """
    ids = {entry if isinstance(entry, str) else entry.dataset for entry in pretraining}
    overlapping = sorted(
        id for id in ids if _same_or_part(id, dataset) or _same_or_part(dataset, id)
    )
    if overlapping:
        return (
            f"pretraining overlap: the model was pretrained on {', '.join(overlapping)}",
        )
    return ()


def _same_or_part(whole: str, part: str) -> bool:
    return part == whole or part.startswith(f"{whole}.")
