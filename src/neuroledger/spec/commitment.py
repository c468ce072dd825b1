"""The rule by which a model chooses its layers before scoring."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from neuroledger.errors import RequestError
from neuroledger.spec.base import worded
from neuroledger.spec.kinds import ModelSpec

__all__ = ["Rule", "rule_of"]


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
