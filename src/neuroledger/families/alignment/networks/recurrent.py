"""A small recurrent network of vision, which specs name by its import path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroledger.spec.trusted import factory

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Recurrent"]


@factory
def Recurrent(  # noqa: N802 (specs and their records name it so)
    steps: int = 18,
    rate: float = 0.25,
    maps: int = 24,
    units: int = 48,
    classes: int = 10,
) -> nn.Module:
    """Areas ``v4`` and ``it`` that are computed in each of ``steps``, see `leaky_areas`."""
    from neuroledger.families.alignment.networks.leaky_areas import LeakyAreas

    return LeakyAreas(steps, rate, maps, units, classes)
