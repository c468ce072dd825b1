"""Whether a network and its exported graph answer alike, and where they part first."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuroledger.data.facts import Fact
from neuroledger.display import card
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    import nir
    import onnx
    from torch import Tensor, nn

__all__ = ["Parting", "Sameness", "network_named", "same"]

TOLERANCE = 1e-5
"""Largest difference between two values that are taken for equal, relative to values above 1.

It is ``rtol`` of ``torch.allclose``.
"""


@dataclass(frozen=True)
class Parting:
    """The first place at which two networks differ: their layers, the time step from 0, and the largest difference."""

    layer: str
    graph_layer: str
    step: int
    difference: float

    def __str__(self) -> str:
        return f"{self.layer} and {self.graph_layer} of the graph, step {self.step}: differ by {self.difference:.3g}"


@dataclass(frozen=True)
class Sameness:
    """Whether a network and a graph answer alike.

    Attributes
    ----------
    same
        Whether all answers are equal within the tolerance.
    difference
        The largest difference between answers; infinite if their shapes differ.
    parted
        The first layer and time step that differ; None if none does, or if layers cannot be compared.
    layers
        Number of pairs of layers that were compared; 0 if the networks have different layers.
    facts
        What the graph's answers depend on: time step and reset, with how each is known.
    """

    same: bool
    difference: float
    parted: Parting | None
    layers: int
    facts: dict[str, Fact]

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        lines = [
            "the answers are equal"
            if self.same
            else f"the answers differ by up to {self.difference:.3g}"
        ]
        if self.parted is not None:
            lines.append(f"first difference: {self.parted}")
        elif not self.layers:
            lines.append("layers were not compared: the two have different ones")
        lines += [
            f"{name.replace('_', ' ')}: {fact}" for name, fact in self.facts.items()
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The answer, as notebooks show it."""
        answer, *rest = str(self).splitlines()
        rows = [line.partition(": ") for line in rest]
        return card(answer, [(name, value) for name, _, value in rows])


def same(
    network: nn.Module | str | Path | nir.NIRGraph | onnx.ModelProto,
    graph: str | Path | nir.NIRGraph | onnx.ModelProto,
    inputs: Tensor,
    *,
    time_step: float | None = None,
    reset: str | None = None,
    tolerance: float = TOLERANCE,
) -> Sameness:
    """Compare the answers of a network and of its exported NIR or ONNX graph, and find the first layer that differs.

    Both run in evaluation mode from rest, on the same inputs. Layers with weights and spiking layers are compared in the
    order in which they run, step by step.

    Parameters
    ----------
    network
        A torch module, or another graph. A network that takes one time step per call is stepped along axis 1.
    graph
        A file ``*.nir`` or ``*.onnx``, a ``nir.NIRGraph`` or an ``onnx.ModelProto``.
    inputs
        ``(sample, time, …)`` for a graph of neurons, ``(sample, …)`` for any other.
    time_step, reset
        Of the neurons of a NIR graph, if it does not state them: see :func:`neuroledger.cost`.
    tolerance
        Largest difference that is taken for equality; relative for values above 1.

    Raises
    ------
    RequestError
        ``network`` is neither a module nor a graph, or an argument is invalid.
    ModelError
        A graph cannot be read, or a forward pass fails.

    Examples
    --------
    >>> import nir, torch
    >>> import neuroledger as nl
    >>> layer = torch.nn.Linear(3, 2)
    >>> weights = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    >>> graph = nir.NIRGraph.from_list(nir.Affine(*weights))
    >>> nl.same(torch.nn.Sequential(layer), graph, torch.rand(4, 3)).same
    True
    """
    from neuroledger.families.efficiency.graphs.files import module_from

    ours = _recorded(module_from(network), inputs)
    exported = module_from(graph, time_step=time_step, reset=reset)
    theirs = _recorded(exported, inputs)
    difference = _difference(ours.answer, theirs.answer)
    parted = (
        _first_parting(ours, theirs, tolerance) if ours.kinds == theirs.kinds else None
    )
    if ours.kinds == theirs.kinds:
        layers = len(ours.kinds)
    else:
        layers = 0
    return Sameness(
        difference <= tolerance,
        difference,
        parted,
        layers,
        dict(getattr(exported, "facts", {})),
    )


@dataclass(frozen=True)
class _Run:
    """The answer of a network, and the outputs of each of its compared layers at each step."""

    answer: Tensor
    outputs: dict[str, list[Tensor]]
    kinds: tuple[str, ...]


def _recorded(module: nn.Module, inputs: Tensor) -> _Run:
    """Run a network from rest and record the outputs of its layers."""
    from neuroledger.families.efficiency.counting.network import (
        Network,
        evaluation,
        run_forward,
        steps_through_time,
    )
    from neuroledger.families.efficiency.counting.spiking import spikes

    network = Network.of(module)
    axis = steps_through_time(network, inputs)
    outputs: dict[str, list[Tensor]] = {}
    kinds: dict[str, str] = {}
    with evaluation(network), _recording(network, outputs, kinds):
        answer = spikes(run_forward(network, inputs.clone(), axis))
    return _Run(answer, outputs, tuple(kinds.values()))


@contextmanager
def _recording(
    network: nn.Module, outputs: dict[str, list[Tensor]], kinds: dict[str, str]
) -> Iterator[None]:
    from neuroledger.families.efficiency.counting.spiking import spikes
    from neuroledger.families.efficiency.counting.static import CONNECTIONS

    spiking = {layer.module for layer in network.spiking.values()}
    with ExitStack() as hooks:
        for name, part in network.parts:
            kind = (
                "neurons"
                if part in spiking
                else "weights"
                if isinstance(part, CONNECTIONS)
                else ""
            )
            if not kind:
                continue

            def record(
                _: nn.Module,
                __: tuple[object, ...],
                output: object,
                name: str = name,
                kind: str = kind,
            ) -> None:
                kinds.setdefault(name, kind)
                outputs.setdefault(name, []).append(spikes(output).detach().clone())

            hooks.callback(part.register_forward_hook(record).remove)
        yield


def _first_parting(ours: _Run, theirs: _Run, tolerance: float) -> Parting | None:
    """Return the earliest step at which a pair of layers differs, and the first such layer of that step."""
    found: list[tuple[int, int, Parting]] = []
    pairs = zip(ours.outputs.items(), theirs.outputs.items(), strict=True)
    for place, ((name, first), (other, second)) in enumerate(pairs):
        for step, (one, two) in enumerate(zip(first, second, strict=False)):
            difference = _difference(one, two)
            if difference > tolerance:
                found.append(
                    (
                        step,
                        place,
                        Parting(name or "the network", other, step, difference),
                    )
                )
                break
    if found:
        return min(found, key=lambda item: item[:2])[2]
    return None


def _difference(one: Tensor, two: Tensor) -> float:
    """Return the largest difference between values, relative for values above 1; infinite if shapes differ."""
    if one.numel() != two.numel() or len(one) != len(two):
        return math.inf
    first = one.double().flatten(1)
    second = two.double().flatten(1)
    scale = first.abs().clamp(min=1)
    if first.numel():
        return float(((first - second).abs() / scale).max())
    return 0.0


def network_named(name: str) -> nn.Module:
    """Return the network of a command line: a graph file, or ``package.module:NAME`` of a module or a function.

    Raises
    ------
    RequestError
        There is no such Python module or name.
    """
    if Path(name).suffix in (".nir", ".onnx"):
        return Path(name)
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RequestError(
            f"{name!r} is neither a graph file (.nir, .onnx) nor a network of a Python module, package.module:NAME: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    is_module = hasattr(found, "forward") and not isinstance(found, type)
    return found if is_module else found()
