"""Networks from graphs of the Neuromorphic Intermediate Representation (NIR) [pedersen2024]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from neuroledger.data.arrays import floats
from neuroledger.data.facts import Fact
from neuroledger.data.hdf5 import opened
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.torch_module import require

if TYPE_CHECKING:
    import nir

__all__ = ["TIME_STEP", "NirNetwork", "Reset", "from_nir"]

TIME_STEP: Final = 1e-4
"""Assumed time step in seconds: that of the examples published with NIR, and of snntorch's import."""

Reset = Literal["value", "subtract"]
"""What a spike does to a membrane potential: it is set to ``v_reset``, or the threshold is subtracted."""


def from_nir(
    source: str | Path | nir.NIRGraph,
    *,
    time_step: float | None = None,
    reset: Reset | None = None,
) -> NirNetwork:
    """Return the network of a NIR graph or file; equations are solved with Euler steps of ``time_step`` seconds.

    A NIR graph states equations, and neither the time step nor how the framework that wrote it resets a membrane. Without
    arguments, a time step in the graph's metadata (``dt`` or ``time_step``) is used; if there is none, steps of 0.1 ms and
    a reset to ``v_reset`` are assumed, and ``facts`` of the network say so.

    Raises
    ------
    ModelError
        The file is not NIR, the kind of a node is not supported, or an edge names an unknown node.
    RequestError
        The time step is not positive.
    """
    nir = require("nir", "nir")
    if time_step is not None and not time_step > 0:
        raise RequestError(
            f"`time_step` must be a positive number of seconds, not {time_step!r}"
        )
    if reset not in (None, "value", "subtract"):
        raise RequestError(f"`reset` must be 'value' or 'subtract', not {reset!r}")
    if isinstance(source, (str, Path)):
        path = Path(source)
        try:
            source = nir.dict2NIRNode(
                confined(lambda: _fields(path), limits_for([path]), path.name)
            )
        except Exception as error:  # untrusted file; nir raises errors of any type
            raise ModelError(
                f"{path} cannot be read as a NIR graph: {type(error).__name__}: {error}"
            ) from error
    if type(source).__name__ != "NIRGraph":
        source = nir.NIRGraph.from_list(source)
    return NirNetwork(source, _time_step(source, time_step), _reset(reset))


def _time_step(graph: nir.NIRGraph, wanted: float | None) -> Fact:
    """Return the time step in seconds: declared by the caller, stated in the graph's metadata, or assumed."""
    if wanted is not None:
        return Fact(float(wanted), "declared")
    metadata = getattr(graph, "metadata", None) or {}
    for name in ("dt", "time_step"):
        value = metadata.get(name)
        if isinstance(value, (int, float, np.number)) and value > 0:
            return Fact(float(value), "stated")
    return Fact(TIME_STEP, "assumed")


def _reset(wanted: Reset | None) -> Fact:
    if wanted is None:
        return Fact("value", "assumed")
    return Fact(wanted, "declared")


def _fields(path: Path) -> dict[str, object]:
    """Return the content of the file by node and field, after a test that nir can make a graph of it.

    Declared shapes are not checked here but edge by edge (:class:`Graph`), whose message names the nodes.
    """
    import nir

    with opened(path) as file:
        content = nir.serialization.hdf2dict(file["node"]) | {"type_check": False}
    nir.dict2NIRNode(
        _plain_text(content)
    )  # a test, with a copy: nir empties its argument
    fields: dict[str, object] = _plain_text(content)
    return fields


def _plain_text(value: object) -> Any:
    """Return text without h5py's type metadata."""
    if isinstance(value, dict):
        return {name: _plain_text(item) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return value.astype(np.dtype("O"))
    return value


class Neuron(nn.Module):  # type: ignore[misc]
    """Neurons of one NIR node, one time step per call; a parameter that is equal for all neurons is stored once.

    ``dv = dt/tau (v_leak - v + r I)``, without ``tau`` ``dv = dt r I``; with ``tau_syn``, the current is itself a leaky
    sum, ``dI = dt/tau_syn (w_in S - I)``. Where ``v > v_threshold`` there is a spike, and v is set to ``v_reset``. Nodes
    without a threshold return v.
    """

    def __init__(
        self, node: nir.NIRNode, time_step: float, reset: str = "value"
    ) -> None:
        super().__init__()
        kind = type(node).__name__
        self.subtracts = reset == "subtract"
        self.fires = kind in ("IF", "LIF", "CubaLIF")
        for name in ("r", "v_threshold", "v_reset", "v_leak", "w_in"):
            value = getattr(node, name, None)
            self.register_buffer(name, None if value is None else compact(value))
        for name, tau in (
            ("rate", getattr(node, "tau", getattr(node, "tau_mem", None))),
            ("synaptic_rate", getattr(node, "tau_syn", None)),
        ):
            self.register_buffer(
                name,
                None if tau is None else compact(time_step / floats(tau)),
            )
        self.time_step = time_step
        self.v: Tensor | None = None
        self.current: Tensor | None = None

    def reset(self) -> None:
        """Reset the state to that before the first step."""
        self.v = self.current = None

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes, or the membrane potential, with the shape of the input."""
        start = 0.0 if self.v_leak is None else self.v_leak
        if self.v is None:
            v = torch.zeros_like(x) + start
        else:
            v = self.v
        if self.synaptic_rate is not None:
            if self.current is None:
                before = torch.zeros_like(x)
            else:
                before = self.current
            self.current = x = before + self.synaptic_rate * (self.w_in * x - before)
        if self.rate is None:
            v = v + self.time_step * (self.r * x)
        else:
            v = v + self.rate * (self.v_leak - v + self.r * x)
        if not self.fires:
            self.v = v
            return v
        fired = v > self.v_threshold
        after = v - self.v_threshold if self.subtracts else self.v_reset
        self.v = torch.where(fired, after, v)
        return fired.to(x.dtype)


class Leaky(Neuron):
    """Leaky integrate-and-fire neurons (LIF)."""

    spiking_state: ClassVar = ("v",)
    operations_per_update: ClassVar = 4  # leak, input, comparison, reset


class Integrating(Neuron):
    """Integrate-and-fire neurons without leak (IF)."""

    spiking_state: ClassVar = ("v",)
    operations_per_update: ClassVar = 3  # input, comparison, reset


class Synaptic(Neuron):
    """Leaky integrate-and-fire neurons driven by a leaky current (CubaLIF)."""

    spiking_state: ClassVar = ("v", "current")
    operations_per_update: ClassVar = (
        8  # as NeuroBench counts snntorch's Synaptic with a reset to a value
    )


class Delay(nn.Module):  # type: ignore[misc]
    """Values of earlier steps: ``y(t) = x(t - delay)``, 0 before the first."""

    def __init__(self, node: nir.NIRNode, time_step: float) -> None:
        super().__init__()
        steps = torch.as_tensor(
            np.rint(np.asarray(node.delay) / time_step).astype(np.int64)
        )
        self.register_buffer("steps", steps)
        self.longest = int(steps.max())
        self.past: list[Tensor] = []

    def reset(self) -> None:
        """Reset the state to that before the first step."""
        self.past = []

    def forward(self, x: Tensor) -> Tensor:
        """Return the delayed values, with the shape of the input."""
        self.past = [x, *self.past][: self.longest + 1]
        past = [
            *self.past,
            *[torch.zeros_like(x)] * (self.longest + 1 - len(self.past)),
        ]
        return torch.stack(past).gather(0, self.steps.expand_as(x)[None])[0]


class Pool(nn.Module):  # type: ignore[misc]
    """Means (``divisor`` None) or sums (1) over windows of an image."""

    def __init__(self, node: nir.NIRNode, divisor: int | None) -> None:
        super().__init__()
        self.window = [
            _ints(getattr(node, name)) for name in ("kernel_size", "stride", "padding")
        ]
        self.divisor = divisor

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled image."""
        return nn.functional.avg_pool2d(x, *self.window, divisor_override=self.divisor)


class Reshaped(nn.Module):  # type: ignore[misc]
    """Reshapes each sample."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return the same values in the other shape."""
        return x.reshape(len(x), *self.shape)


class Scale(nn.Module):  # type: ignore[misc]
    """Multiplies the input with a factor elementwise."""

    def __init__(self, node: nir.NIRNode) -> None:
        super().__init__()
        self.register_buffer("scale", compact(node.scale))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled input."""
        return x * self.scale


class Threshold(nn.Module):  # type: ignore[misc]
    """1 where the input is above the threshold, else 0."""

    def __init__(self, node: nir.NIRNode) -> None:
        super().__init__()
        self.register_buffer("threshold", compact(node.threshold))

    def forward(self, x: Tensor) -> Tensor:
        """Return ones and zeros."""
        return (x > self.threshold).to(x.dtype)


NEURONS: Mapping[str, type[Neuron]] = {
    "I": Neuron,
    "LI": Neuron,
    "CubaLI": Neuron,
    "IF": Integrating,
    "LIF": Leaky,
    "CubaLIF": Synaptic,
}


class Graph(nn.Module):  # type: ignore[misc]
    """One step of a NIR graph. An edge that closes a cycle passes the value of the previous step; none at the first step."""

    def __init__(
        self, graph: nir.NIRGraph, time_step: float, reset: str = "value"
    ) -> None:
        super().__init__()
        for edge in graph.edges:
            for name in edge:
                if name not in graph.nodes:
                    raise ModelError(
                        f"the NIR graph has an edge {edge} with {name!r}, which is not a node"
                    )
            output_shape, input_shape = (
                _declared_shape(graph.nodes[name], side)
                for name, side in zip(edge, ("output", "input"), strict=True)
            )
            is_end = (
                type(graph.nodes[edge[1]]).__name__ == "Output"
            )  # does nothing: only the number of values matters
            agrees = (
                prod(output_shape) == prod(input_shape)
                if is_end
                else output_shape == input_shape
            )
            if output_shape and input_shape and not agrees:
                raise ModelError(
                    f"the NIR graph passes values of shape {output_shape} from {edge[0]!r} to {edge[1]!r}, which takes "
                    f"{input_shape}"
                )
        self.order, back = _topological_order(list(graph.nodes), graph.edges)
        self.into = {
            name: [a for a, b in graph.edges if b == name and (a, b) not in back]
            for name in self.order
        }
        self.fed_back = {name: [a for a, b in back if b == name] for name in self.order}
        ends = {
            kind: [n for n in self.order if type(graph.nodes[n]).__name__ == kind]
            for kind in ("Input", "Output")
        }
        for kind, names in ends.items():
            if len(names) != 1:
                raise ModelError(
                    f"the NIR graph has {len(names)} nodes {kind}; one is supported"
                )
        (self.input,), (self.output,) = ends.values()
        reached = {self.input}
        while more := {b for a, b in graph.edges if a in reached} - reached:
            reached |= more
        if self.output not in reached:
            raise ModelError("the NIR graph has no path from its input to its output")
        self.shape = tuple(_ints(graph.nodes[self.input].input_type["input"]))
        self.children_of: dict[str, nn.Module] = {}
        for name in self.order:
            node = graph.nodes[name]
            if name not in (self.input, self.output):
                module = (
                    Graph(node, time_step, reset)
                    if type(node).__name__ == "NIRGraph"
                    else module_of(name, node, time_step, reset)
                )
                self.children_of[name] = module
                attribute = name.replace(".", "_")
                self.add_module(
                    f"node_{attribute}" if hasattr(self, attribute) else attribute,
                    module,
                )
        self.before: dict[str, Tensor] = {}

    def reset(self) -> None:
        """Reset the state to that before the first step."""
        self.before = {}
        for child in self.children_of.values():
            if isinstance(child, (Graph, Neuron, Delay)):
                child.reset()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of one step, for ``(sample, …)``."""
        return self.step(x)

    def step(self, x: Tensor) -> Tensor:
        """Return the output of one step, from the state after the previous one.

        Raises
        ------
        ModelError
            There is no path from the input to the output.
        """
        values: dict[str, Tensor] = {self.input: x}
        for name in self.order:
            if name == self.input:
                continue
            inputs = [values[a] for a in self.into[name] if a in values]
            inputs += [self.before[a] for a in self.fed_back[name] if a in self.before]
            if inputs:  # a node without inputs yet has no output
                total = sum(inputs[1:], inputs[0])
                values[name] = (
                    total if name == self.output else self.children_of[name](total)
                )
        if self.output not in values:
            raise ModelError("the NIR graph has no path from its input to its output")
        self.before = {
            a: values[a]
            for sources in self.fed_back.values()
            for a in sources
            if a in values
        }
        return values[self.output]


class NirNetwork(Graph):
    """A NIR graph that maps ``(sample, time, …)`` to the same, from rest; ``(sample, …)`` without neurons and delays."""

    def __init__(self, graph: nir.NIRGraph, time_step: Fact, reset: Fact) -> None:
        super().__init__(graph, float(time_step.value), str(reset.value))
        neurons = [part for part in self.modules() if isinstance(part, Neuron)]
        self.temporal = bool(neurons) or any(
            isinstance(part, Delay) for part in self.modules()
        )
        self.facts: dict[str, Fact] = {"time_step": time_step} if self.temporal else {}
        if any(neuron.fires for neuron in neurons):
            self.facts["reset"] = reset

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at every time step.

        Raises
        ------
        ModelError
            The input does not have the shape of the graph's input node.
        """
        axes = 2 if self.temporal else 1
        if tuple(x.shape[axes:]) != self.shape:
            form = ("sample", "time") if self.temporal else ("sample",)
            raise ModelError(
                f"the NIR graph takes inputs ({', '.join((*form, *map(str, self.shape)))}), not {tuple(x.shape)}"
            )
        if not self.temporal:
            return self.step(x)
        self.reset()
        return torch.stack([self.step(now) for now in x.unbind(1)], 1)


def module_of(
    name: str, node: nir.NIRNode, time_step: float, reset: str = "value"
) -> nn.Module:
    """Return the module of one node.

    Raises
    ------
    ModelError
        The kind of the node is not supported, a value is NaN, or a time constant is shorter than the time step.
    """
    kind = type(node).__name__
    for field, value in vars(node).items():
        if (
            isinstance(value, np.ndarray)
            and value.dtype.kind == "f"
            and np.isnan(value).any()
        ):
            raise ModelError(f"NIR node {name!r} ({kind}): {field} contains NaN")
        if (
            field.startswith("tau")
            and value is not None
            and not (np.asarray(value) >= time_step).all()
        ):
            raise ModelError(
                f"NIR node {name!r} ({kind}): {field} is {np.min(value):g} s, shorter than the time step of "
                f"{time_step:g} s, with which its equation has no stable solution: pass a shorter step, "
                "time_step=…"
            )
    if kind in NEURONS:
        return NEURONS[kind](node, time_step, reset)
    if kind in ("Affine", "Linear") and node.weight.ndim == 2:
        linear: nn.Module = nn.Linear(
            node.weight.shape[1], node.weight.shape[0], bias=kind == "Affine"
        )
        return _with_weights(linear, node)
    if kind in ("Conv1d", "Conv2d"):
        sizes = {key: _ints(getattr(node, key)) for key in ("stride", "dilation")}
        padding = node.padding if isinstance(node.padding, str) else _ints(node.padding)
        out, into, *window = node.weight.shape
        make = nn.Conv1d if kind == "Conv1d" else nn.Conv2d
        return _with_weights(
            make(
                into * node.groups,
                out,
                tuple(window),
                groups=node.groups,
                padding=padding,
                **sizes,
            ),
            node,
        )
    if kind in ("AvgPool2d", "SumPool2d"):
        return Pool(node, 1 if kind == "SumPool2d" else None)
    if kind == "Flatten":
        shape = node.output_type["output"]
        if shape is None:
            raise ModelError(
                f"NIR node {name!r} (Flatten) does not state the shape of its input"
            )
        return Reshaped(_ints(shape))
    if kind == "Delay":
        return Delay(node, time_step)
    if kind in ("Scale", "Threshold"):
        if kind == "Scale":
            return Scale(node)
        return Threshold(node)
    raise ModelError(f"NIR node {name!r} is of kind {kind}, which is not supported")


def compact(value: object) -> Tensor:
    """Return a parameter of neurons as 32-bit numbers: a single one if all are equal."""
    values = floats(value)
    same = values.size > 0 and bool((values == values.flat[0]).all())
    return torch.tensor(values.flat[0] if same else values, dtype=torch.float32)


def _with_weights(module: nn.Module, node: nir.NIRNode) -> nn.Module:
    with torch.no_grad():
        module.requires_grad_(False).weight.copy_(
            torch.as_tensor(np.asarray(node.weight, dtype=np.float32))
        )
        if module.bias is not None:
            module.bias.copy_(torch.as_tensor(np.asarray(node.bias, dtype=np.float32)))
    return module


def _declared_shape(node: nir.NIRNode, side: str) -> tuple[int, ...]:
    """Return the declared shape of a node's input or output; empty if it is not declared."""
    shape = (getattr(node, f"{side}_type", None) or {}).get(side)
    if shape is None or None in np.atleast_1d(shape):
        return ()
    return _ints(shape)


def _ints(value: object) -> tuple[int, ...]:
    return tuple(map(int, np.atleast_1d(np.asarray(value))))


def _topological_order(
    nodes: Sequence[str], edges: Iterable[tuple[str, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the nodes in topological order, and the edges that close a cycle."""
    following: dict[str, list[str]] = {name: [] for name in nodes}
    for a, b in edges:
        following[a].append(b)
    finished: dict[str, None] = {}
    visited: set[str] = set()
    for start in sorted(nodes, key=lambda name: any(name == b for _, b in edges)):
        path = [] if start in visited else [(start, iter(following[start]))]
        visited.add(start)
        while path:
            name, rest = path[-1]
            unvisited = next((b for b in rest if b not in visited), None)
            if unvisited is None:
                finished[name] = None
                path.pop()
            else:
                visited.add(unvisited)
                path.append((unvisited, iter(following[unvisited])))
    order = list(reversed(finished))
    position = {name: number for number, name in enumerate(order)}
    return order, [(a, b) for a, b in edges if position[a] >= position[b]]
