"""What the spec of a model says beside its parameters: how it chooses its layers, and on which data it was pretrained."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from neuroledger.errors import RequestError
from neuroledger.spec.base import worded
from neuroledger.spec.kinds import ModelSpec, Pretraining

__all__ = ["Rule", "overlap_notes", "rule_of"]


class Rule(BaseModel):
    """For each region, the benchmark on which its layer is chosen, from ``layers`` or from all layers of the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: dict[str, str] = Field(min_length=1)
    layers: tuple[str, ...] = ()


def rule_of(spec: ModelSpec) -> Rule | None:
    """Return the rule that a model spec declares under ``commit``, or None.

    Raises
    ------
    RequestError
        The content of ``commit`` is not a valid rule.
    """
    if spec.commit is None:
        return None
    try:
        return Rule.model_validate(spec.commit)
    except ValidationError as error:
        words = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {worded(item)}"
            for item in error.errors()
        )
        raise RequestError(
            f"model {spec.id!r}: commit must be {{on: {{<region>: <benchmark>}}, layers: [<layer>, …]}}; {words}"
        ) from error


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
