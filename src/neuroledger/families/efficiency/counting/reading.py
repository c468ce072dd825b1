"""What a cost metric reads from a trace: one number, or why there is none, and its parts by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.spec import registry

__all__ = ["Reading", "cost_metric", "failed", "needs_of"]

F = TypeVar("F", bound=Callable[..., Any])

NOTHING: Mapping[str, float] = MappingProxyType({})

_NEEDS: dict[str, frozenset[Need]] = {}


class Reading(NamedTuple):
    """A number read from a trace.

    Attributes
    ----------
    value
        The number; NaN where ``status`` is ``failed``.
    parts
        The same by layer, or single repeats, with the name of what they are.
    n
        What it stands on: samples, repeats, the share of connection weights that was counted.
    notes
        What a reader must know: device, evidence class, what was left out by definition.
    """

    value: float
    status: Literal["scored", "partial", "failed"] = "scored"
    reason: str = ""
    parts: Mapping[str, float] = NOTHING
    parts_are: str = "layer"
    n: Mapping[str, float] = NOTHING
    notes: tuple[str, ...] = ()


def failed(reason: str) -> Reading:
    """A reading without a number."""
    return Reading(float("nan"), "failed", reason)


def cost_metric(name: str, *, version: int, needs: tuple[Need, ...]) -> Callable[[F], F]:
    """Register a cost metric, ``(trace, *, …) -> Reading``, with what must be counted for it."""

    def decorate(function: F) -> F:
        _NEEDS[name] = frozenset(needs)
        return registry.metric(name, version=version, input="trace")(function)

    return decorate


def needs_of(name: str) -> frozenset[Need]:
    """What must be counted for a registered cost metric."""
    return _NEEDS[name]
