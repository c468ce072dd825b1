"""Builders of models, one file per kind; this package exports the functions that wrap objects in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuroledger.models.api import (
        LayeredModel,
        Model,
        Preprocessing,
        Task,
        brainscore,
        responses,
        torch,
    )

__all__ = [
    "LayeredModel",
    "Model",
    "Preprocessing",
    "Task",
    "brainscore",
    "responses",
    "torch",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'neuroledger.models' has no attribute {name!r}")
    from neuroledger.models import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
