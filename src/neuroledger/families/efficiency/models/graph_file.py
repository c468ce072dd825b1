"""Networks stored in files of an exchange format: ``builder: nir`` and ``builder: onnx``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat, PositiveInt

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["nir", "onnx"]

Positive = PositiveInt


@builder("nir", version=1, takes=TAKES, gives=answering("classification", "regression"))
def nir(
    *,
    id: str,
    time_step: PositiveFloat | None = None,
    reset: Literal["value", "subtract"] | None = None,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Learner:
    """A NIR graph, whose file ``weights`` name. A time bin is a step of ``time_step`` seconds; outputs are summed.

    A spike sets a membrane to its reset value, or subtracts the threshold (``reset``). What is not declared and not stated
    by the file is assumed: 0.1 ms, and a reset to a value.
    """
    require("nir", "nir")
    from neuroledger.families.efficiency.graphs.nir_graph import from_nir

    def make(path: Path) -> tuple[nn.Module, tuple[int, ...]]:
        module = from_nir(path, time_step=time_step, reset=reset)
        return module, module.shape

    return _learner(id, weights, device, make)


@builder(
    "onnx", version=1, takes=TAKES, gives=answering("classification", "regression")
)
def onnx(
    *,
    id: str,
    shape: tuple[Positive, ...],
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Learner:
    """An ONNX graph with one input (sample, ``shape``), whose file ``weights`` name."""
    require("onnx", "onnx")
    from neuroledger.families.efficiency.graphs.onnx_graph import from_onnx

    return _learner(
        id, weights, device, lambda path: (from_onnx(path, alone=True), shape)
    )


def _learner(
    id: str,
    weights: Mapping[str, Path] | None,
    device: str,
    make: Callable[[Path], tuple[nn.Module, tuple[int, ...]]],
) -> Learner:
    if not weights or len(weights) != 1:
        raise ModelError(
            f"model {id!r}: `weights` must name one file, the graph, not {len(weights or {})}"
        )
    (path,) = weights.values()

    def ready(_: Examples) -> nn.Module:
        from neuroledger.families.efficiency.networks.layers import Presented

        return Presented(*make(path)).to(device)

    return Learner(id=id, tasks=("classification", "regression"), ready=ready)
