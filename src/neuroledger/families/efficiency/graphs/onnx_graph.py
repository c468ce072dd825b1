"""Networks from ONNX files, run operator by operator in torch; operators without a rule here are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, ModelError
from neuroledger.models.torch_module import require

if TYPE_CHECKING:
    import onnx

__all__ = ["OnnxNetwork", "from_onnx"]

Attributes = Mapping[str, Any]
Operator = Callable[..., Tensor | tuple[Tensor, ...]]
OnnxNode = tuple[str, str, str, list[str], list[str], Attributes]
F = nn.functional

# Since this operator version, broadcasting is that of NumPy.
OLDEST: Final = 7


@dataclass(frozen=True)
class Graph:
    """An ONNX graph in plain values.

    ``nodes`` are (domain, kind, name, names of inputs, names of outputs, attributes); ``initialisers`` are arrays by name.
    """

    opset: int
    nodes: Sequence[OnnxNode]
    initialisers: Mapping[str, np.ndarray]
    inputs: Sequence[str]
    outputs: Sequence[str]


# The fields of a `Graph`, in its order.
Fields = tuple[
    int,
    Sequence[OnnxNode],
    Mapping[str, np.ndarray],
    Sequence[str],
    Sequence[str],
]


def from_onnx(
    source: str | Path | onnx.ModelProto, *, alone: bool = False
) -> OnnxNetwork:
    """Return the network of an ONNX model or file, with its float initialisers as parameters.

    A file is parsed in a process with limits. It may store values in further files of its folder, unless ``alone``.

    Raises
    ------
    ModelError
        The file is not a valid ONNX model, stores values outside of its folder, or has unsupported operators.
    """
    require("onnx", "onnx")
    return OnnxNetwork(
        _read_file(Path(source), alone)
        if isinstance(source, (str, Path))
        else Graph(*_graph(source))
    )


def _read_file(path: Path, alone: bool) -> Graph:
    import onnx

    if not path.is_file():
        raise ModelError(f"{path} is not a file")

    def external_files() -> list[str]:
        model = onnx.load(str(path), load_external_data=False)
        tensors = [
            *model.graph.initializer,
            *(item.t for node in model.graph.node for item in node.attribute),
        ]
        return sorted(
            {
                pair.value
                for tensor in tensors
                for pair in tensor.external_data
                if pair.key == "location"
            }
        )

    def read() -> Fields:
        onnx.checker.check_model(str(path))
        return _graph(onnx.load(str(path)))

    try:
        names = confined(external_files, limits_for([path]), path.name)
        if names and alone:
            raise ModelError(
                f"it stores values in {names[0]!r}, which no pin covers: save it as one file"
            )
        outside = [
            name
            for name in names
            if Path(name).name != name or (path.parent / name).is_symlink()
        ]
        if outside:
            raise ModelError(
                f"it stores values in {outside[0]!r}, which is not a file of its folder"
            )
        files = [path, *(path.parent / name for name in names)]
        return Graph(*confined(read, limits_for(files), path.name))
    except (DataError, ModelError) as error:
        raise ModelError(f"{path} is not a valid ONNX model: {error}") from error


def _graph(model: onnx.ModelProto) -> Fields:
    """Return the fields of a `Graph`.

    Raises
    ------
    ModelError
        An initialiser cannot be read.
    """
    from onnx import AttributeProto, helper

    graph = model.graph
    supported = (
        AttributeProto.INT,
        AttributeProto.INTS,
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
        AttributeProto.STRING,
        AttributeProto.STRINGS,
        AttributeProto.TENSOR,
    )
    nodes = []
    for node in graph.node:
        options = {
            attribute.name: _plain_value(helper.get_attribute_value(attribute))
            for attribute in node.attribute
            if attribute.type in supported
        }
        nodes.append(
            (
                node.domain,
                node.op_type,
                node.name,
                list(node.input),
                list(node.output),
                options,
            )
        )
    initialisers = {item.name: _values(item) for item in graph.initializer}
    opset = next(
        (x.version for x in model.opset_import if x.domain in ("", "ai.onnx")), 0
    )
    return (
        opset,
        nodes,
        initialisers,
        [x.name for x in graph.input],
        [x.name for x in graph.output],
    )


def _values(item: onnx.TensorProto) -> np.ndarray:
    from onnx import numpy_helper

    try:
        values: np.ndarray = np.asarray(numpy_helper.to_array(item))
        torch.from_numpy(np.empty(0, values.dtype))
    except Exception as error:  # the bytes do not match the type or size
        raise ModelError(
            f"ONNX initialiser {item.name!r} cannot be read: {type(error).__name__}: {error}"
        ) from error
    return values


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values if values.flags.writeable else values.copy())


class OnnxNetwork(nn.Module):  # type: ignore[misc]
    """An ONNX graph. Every operator is a child module with its weights, named after its node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        from onnx import defs

        self.opset = graph.opset
        unknown: dict[str, str] = {}
        for domain, op_type, name, _, outputs, _ in graph.nodes:
            standard = domain in ("", "ai.onnx")
            if not standard or op_type not in OPERATORS:
                unknown.setdefault(
                    op_type if standard else f"{domain}.{op_type}",
                    name or _first(outputs),
                )
        if unknown:
            names = ", ".join(
                f"{kind} (node {name!r})" for kind, name in sorted(unknown.items())
            )
            raise ModelError(
                f"the ONNX graph has unsupported operators: {names}; supported are {', '.join(sorted(OPERATORS))}"
            )
        newest = defs.onnx_opset_version()
        if not OLDEST <= self.opset <= newest:
            raise ModelError(
                f"ONNX opset {self.opset} is not supported; supported are {OLDEST} to {newest}"
            )
        initialisers: dict[str, Tensor] = {}
        for name, values in graph.initialisers.items():
            value = _tensor(values)
            initialisers[name] = (
                nn.Parameter(value, requires_grad=False)
                if value.is_floating_point()
                else value
            )
        self.inputs = [name for name in graph.inputs if name not in initialisers]
        self.outputs = list(graph.outputs)
        _require_order(graph, {*initialisers, *self.inputs})
        self.steps: list[Node] = []
        last = {
            name: number
            for number, (*_, inputs, _, _) in enumerate(graph.nodes)
            for name in inputs
        }
        for number, (_, kind, name, inputs, outputs, options) in enumerate(graph.nodes):
            last_uses = [
                value
                for value in {*inputs}
                if last[value] == number and value not in self.outputs
            ]
            own = {
                value: initialisers[value] for value in inputs if value in initialisers
            }
            step = Node(kind, inputs, outputs, options, own, last_uses, self.opset)
            self.steps.append(step)
            label = (name or _first(outputs)).strip("/").replace(
                ".", "_"
            ) or f"node{number}"
            self.add_module(
                f"{label}_{number}" if hasattr(self, label) else label, step
            )

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the graph's output, or a tuple of several, for its inputs in order.

        Raises
        ------
        ModelError
            The number of inputs is wrong.
        """
        if len(inputs) != len(self.inputs):
            raise ModelError(
                f"the ONNX graph has {len(self.inputs)} inputs ({', '.join(self.inputs)}), not {len(inputs)}"
            )
        values: dict[str, Tensor] = dict(zip(self.inputs, inputs, strict=True))
        for step in self.steps:
            step.run(values)
        outputs = tuple(values[name] for name in self.outputs)
        if len(outputs) == 1:
            return outputs[0]
        return outputs


def _first(names: Sequence[str]) -> str:
    return next(iter(names), "")


def _require_order(graph: Graph, initial: set[str]) -> None:
    """Require that every value, including outputs, is computed before it is used.

    Raises
    ------
    ModelError
        A node uses, or the graph returns, a value that no earlier node computes.
    """
    available = initial | {""}
    for _, kind, label, inputs, outputs, _ in graph.nodes:
        for name in inputs:
            if name not in available:
                raise ModelError(
                    f"ONNX node {label or _first(outputs)!r} ({kind}) takes {name!r}, which no earlier node computes"
                )
        available |= set(outputs)
    for output in graph.outputs:
        if output not in available:
            raise ModelError(
                f"the ONNX graph returns {output!r}, which no node computes"
            )


class Node(nn.Module):  # type: ignore[misc]
    """One operator of a graph, with the initialisers among its inputs; no later operator uses the inputs ``last_uses``."""

    def __init__(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: Attributes,
        initialisers: Mapping[str, Tensor],
        last_uses: Sequence[str],
        opset: int,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.last_uses = list(last_uses)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.options: dict[str, Any] = {
            name: _tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in options.items()
        }
        self.options["opset"], self.options["outputs"] = opset, len(self.outputs)
        # Constants that are not weights: shapes, axes.
        self.constants: dict[str, Tensor] = {}
        self.names: dict[str, str] = {}
        for number, name in enumerate(self.inputs):
            value = initialisers.get(name)
            if isinstance(value, nn.Parameter) and self.kind not in RECURRENT:
                self.names[name] = "weight" if number == 1 else f"input{number}"
                self.register_parameter(self.names[name], value)
            elif value is not None:
                self.constants[name] = value
        if self.kind in RECURRENT:
            self.layer = recurrent_layer(
                self.kind, self.inputs, self.constants, self.options
            )

    def run(self, values: dict[str, Tensor]) -> None:
        """Read the inputs from ``values`` by name, and store the outputs there."""
        result = self(
            *(self._value(name, values) if name else None for name in self.inputs)
        )
        results = result if isinstance(result, (tuple, list)) else (result,)
        values.update(zip(self.outputs, results, strict=False))
        for name in self.last_uses:
            values.pop(name, None)

    def _value(self, name: str, values: Mapping[str, Tensor]) -> Tensor:
        if name in self.names:
            return self._parameters[self.names[name]]
        if name in self.constants:
            return self.constants[name]
        return values[name]

    def forward(self, *inputs: Tensor | None) -> Tensor | tuple[Tensor, ...]:
        """Return the operator's outputs."""
        if self.kind in RECURRENT:
            return run_recurrent(self.layer, inputs)
        return OPERATORS[self.kind](self.options, *inputs)


RECURRENT: Final = {"LSTM": ((0, 2, 3, 1), nn.LSTM), "GRU": ((1, 0, 2), nn.GRU)}
"""Indices of torch's gates among those of ONNX (LSTM: input, output, forget, cell; GRU: update, reset, hidden)."""


def recurrent_layer(
    kind: str,
    names: Sequence[str],
    constants: Mapping[str, Tensor],
    options: Attributes,
) -> nn.Module:
    """Return torch's layer with the weights of an ONNX layer.

    Raises
    ------
    ModelError
        The weights are computed, or the layer has peepholes, clipping, other activations or another layout.
    """
    tensors = [constants.get(name) for name in (*names, "", "")]
    weights = [None if x is None else x.detach() for x in tensors[1:4]]
    w, r, b = weights
    supported = {
        "hidden_size",
        "direction",
        "linear_before_reset",
        "layout",
        "opset",
        "outputs",
    }
    unsupported = sorted(set(options) - supported) + [
        f"input {n}" for n in (4, 7) if n < len(names) and names[n]
    ]
    direction = options.get("direction", "forward")
    if direction == "reverse" or options.get("layout", 0):
        unsupported.append(
            f"direction {direction} or layout {options.get('layout', 0)}"
        )
    if kind == "GRU" and not options.get("linear_before_reset", 0):
        unsupported.append(
            "linear_before_reset = 0, which torch's GRU does not compute"
        )
    if w is None or r is None or unsupported:
        raise ModelError(
            f"ONNX {kind} is supported with constant weights and plain options only, not with "
            f"{', '.join(unsupported) or 'computed weights'}"
        )
    order, make = RECURRENT[kind]
    size = r.shape[-1]
    layer = (
        make(w.shape[-1], size, bidirectional=len(w) == 2, bias=b is not None)
        .to(w.dtype)
        .requires_grad_(False)
    )

    def sorted_gates(x: Tensor) -> Tensor:
        return torch.cat([x.split(size)[gate] for gate in order])

    with torch.no_grad():
        for way, suffix in enumerate(("", "_reverse")[: len(w)]):
            for name, value in (("weight_ih", w[way]), ("weight_hh", r[way])):
                getattr(layer, f"{name}_l0{suffix}").copy_(sorted_gates(value))
            if b is None:
                continue
            for name, value in zip(
                ("bias_ih", "bias_hh"), b[way].chunk(2), strict=True
            ):
                getattr(layer, f"{name}_l0{suffix}").copy_(sorted_gates(value))
    return layer


def run_recurrent(
    layer: nn.Module, inputs: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Return outputs (time, direction, sample, unit) and last states, in ONNX's layout."""
    start = [x for x in inputs[5:7] if x is not None]
    x = inputs[0]
    state = tuple(start) if len(start) == 2 else start[0] if start else None
    output, last = layer(x, state)
    ways = 2 if layer.bidirectional else 1
    outputs = output.unflatten(-1, (ways, -1)).transpose(1, 2)
    if isinstance(last, tuple):
        return outputs, *last
    return outputs, last


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if type(value).__name__ == "TensorProto":
        return _values(value)
    if isinstance(value, (list, tuple)):
        return list(map(_plain_value, value))
    return value


def _int_list(x: Tensor | Iterable[int]) -> list[int]:
    if isinstance(x, Tensor):
        x = x.reshape(-1).tolist()
    return list(map(int, x))


def _pads(
    o: Attributes, x: Tensor, window: Sequence[int], fill: float = 0.0
) -> tuple[Tensor, list[int]]:
    """Return the input and its symmetric padding; asymmetric padding is applied to the input."""
    rank = len(window)
    pads = _int_list(o.get("pads", [0] * (2 * rank)))
    auto = o.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        steps = o.get("strides", [1] * rank)
        gaps = o.get("dilations", [1] * rank)
        sums = [
            max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
            for n, s, k, d in zip(x.shape[2:], steps, window, gaps, strict=True)
        ]
        first = [(total + (auto == "SAME_LOWER")) // 2 for total in sums]
        pads = [
            *first,
            *(total - before for total, before in zip(sums, first, strict=True)),
        ]
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    order = [
        p for axis in reversed(range(rank)) for p in (pads[axis], pads[rank + axis])
    ]
    return F.pad(x, order, value=fill), [0] * rank


def _conv(o: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    x, padding = _pads(o, x, w.shape[2:])
    run = (F.conv1d, F.conv2d, F.conv3d)[w.dim() - 3]
    ones = [1] * (w.dim() - 2)
    return run(
        x,
        w,
        b,
        o.get("strides", ones),
        padding,
        o.get("dilations", ones),
        o.get("group", 1),
    )


def _conv_transpose(
    o: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None
) -> Tensor:
    rank = w.dim() - 2
    pads = o.get("pads", [0] * 2 * rank)
    ones = [1] * rank
    if (
        pads[:rank] != pads[rank:]
        or o.get("auto_pad", "NOTSET") != "NOTSET"
        or "output_shape" in o
    ):
        raise ModelError(
            "ONNX ConvTranspose is supported only with symmetric, explicit padding"
        )
    run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    extra = o.get("output_padding", [0] * rank)
    gaps = o.get("dilations", ones)
    return run(
        x, w, b, o.get("strides", ones), pads[:rank], extra, o.get("group", 1), gaps
    )


def _gemm(o: Attributes, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    if o.get("transA", 0):
        a = a.t()
    if o.get("transB", 0):
        result = F.linear(a, b)
    else:
        result = a @ b
    alpha = o.get("alpha", 1.0)
    beta = o.get("beta", 1.0)
    if alpha != 1:
        result = alpha * result
    if c is None:
        return result
    return result + (c if beta == 1 else beta * c)


def _pool(o: Attributes, x: Tensor, *, mean: bool) -> Tensor:
    window = o["kernel_shape"]
    rank = len(window)
    inside = bool(o.get("count_include_pad", 0))
    even, padding = _pads(o, x, window, 0.0 if mean else -torch.inf)
    if mean and even is not x and not inside:
        raise ModelError(
            "ONNX AveragePool with asymmetric padding is supported only with count_include_pad = 1"
        )
    steps = o.get("strides", [1] * rank)
    gaps = o.get("dilations", [1] * rank)
    ceil = bool(o.get("ceil_mode", 0))
    if mean:
        if gaps != [1] * rank:
            raise ModelError("ONNX AveragePool with dilations is not supported")
        return (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1](
            even, window, steps, padding, ceil, inside
        )
    return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1](
        even, window, steps, padding, gaps, ceil
    )


def _batch_norm(
    o: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    return F.batch_norm(x, mean, var, scale, bias, eps=o.get("epsilon", 1e-5))


def _layer_norm(
    o: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    axis = o.get("axis", -1) % x.dim()
    axes = tuple(range(axis, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    normal = (
        centred
        * torch.rsqrt(
            centred.square().mean(axes, keepdim=True) + o.get("epsilon", 1e-5)
        )
        * scale
    )
    if bias is None:
        return normal
    return normal + bias


def _reduce(function: Callable[..., Tensor]) -> Operator:
    def run(o: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
        chosen = _int_list(axes if axes is not None else o.get("axes", ()))
        if not chosen and o.get("noop_with_empty_axes", 0):
            return x
        return function(x, tuple(chosen or range(x.dim())), bool(o.get("keepdims", 1)))

    return run


def _reshape(o: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _int_list(shape)
    return x.reshape(
        [
            x.shape[n] if size == 0 and not o.get("allowzero", 0) else size
            for n, size in enumerate(sizes)
        ]
    )


def _squeeze(o: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = axes if axes is not None else o.get("axes")
    if chosen is None:
        return x.squeeze()
    return x.squeeze(_int_list(chosen))


def _unsqueeze(o: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _int_list(axes if axes is not None else o["axes"])
    for axis in sorted(a % (x.dim() + len(chosen)) for a in chosen):
        x = x.unsqueeze(axis)
    return x


def _slice(o: Attributes, x: Tensor, *given: Tensor | None) -> Tensor:
    starts, ends, axes, steps = (
        (*given, None, None)[:4]
        if given
        else (o["starts"], o["ends"], o.get("axes"), None)
    )
    starts = _int_list(starts)
    ends = _int_list(ends)
    if axes is None:
        axes = list(range(len(starts)))
    else:
        axes = _int_list(axes)
    if steps is None:
        steps = [1] * len(starts)
    else:
        steps = _int_list(steps)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0 and end < -x.shape[axis]:
            last = None
        else:
            last = end
        indices = range(*slice(start, last, step).indices(x.shape[axis]))
        if step < 0:  # torch supports only positive steps
            x = x.index_select(axis, torch.tensor(list(indices), device=x.device))
        else:
            x = x[
                (slice(None),) * (axis % x.dim())
                + (slice(indices.start, indices.stop, step),)
            ]
    return x


def _gather(o: Attributes, x: Tensor, index: Tensor) -> Tensor:
    axis = o.get("axis", 0) % x.dim()
    index = torch.where(index < 0, index + x.shape[axis], index)
    return x.index_select(axis, index.reshape(-1)).reshape(
        [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    )


def _split(o: Attributes, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = o.get("axis", 0)
    if sizes is None:
        sizes = o.get("split")
    if sizes is None:
        return tuple(
            x.split(-(-x.shape[axis] // o.get("num_outputs", o["outputs"])), axis)
        )
    return tuple(x.split(_int_list(sizes), axis))


def _pad(
    o: Attributes,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    amounts = _int_list(pads if pads is not None else o["pads"])
    where = range(x.dim()) if axes is None else [a % x.dim() for a in _int_list(axes)]
    pads_by_axis = {
        axis: (amounts[n], amounts[len(where) + n]) for n, axis in enumerate(where)
    }
    order = [
        p for axis in reversed(range(x.dim())) for p in pads_by_axis.get(axis, (0, 0))
    ]
    mode = {"edge": "replicate"}.get(
        o.get("mode", "constant"), o.get("mode", "constant")
    )
    if mode == "constant":
        return F.pad(
            x, order, value=float(o.get("value", 0.0) if value is None else value)
        )
    while len(order) > 2 and order[-2:] == [0, 0]:
        order = order[:-2]
    return F.pad(x, order, mode=mode)


def _clip(
    o: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    low = o.get("min", low)
    high = o.get("max", high)
    if low is None and high is None:
        return x
    return F.hardtanh(
        x,
        -torch.inf if low is None else float(low),
        torch.inf if high is None else float(high),
    )


def _softmax(function: Callable[..., Tensor]) -> Operator:
    def run(o: Attributes, x: Tensor) -> Tensor:
        if o["opset"] >= 13:
            return function(x, o.get("axis", -1))
        return function(x.flatten(o.get("axis", 1)), -1).reshape(x.shape)

    return run


def _div(o: Attributes, a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


def _constant(o: Attributes) -> Tensor:
    kind = next(name for name in o if name.startswith("value"))
    if isinstance(o[kind], Tensor):
        return o[kind]
    return torch.tensor(o[kind])


TYPES: Final = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


def _elementwise(function: Callable[..., Tensor]) -> Operator:
    return lambda o, *given: function(*given)


def _reduced(function: Callable[..., Tensor]) -> Operator:
    return lambda o, *given: reduce(function, given)


OPERATORS: Mapping[str, Operator] = {
    **{
        kind: _elementwise(run)
        for kind, run in {
            "Abs": torch.abs,
            "Add": torch.add,
            "And": torch.logical_and,
            "Ceil": torch.ceil,
            "Cos": torch.cos,
            "Equal": torch.eq,
            "Erf": torch.erf,
            "Exp": torch.exp,
            "Floor": torch.floor,
            "Greater": torch.gt,
            "GreaterOrEqual": torch.ge,
            "HardSwish": F.hardswish,
            "Identity": lambda x: x,
            "Less": torch.lt,
            "LessOrEqual": torch.le,
            "Log": torch.log,
            "MatMul": torch.matmul,
            "Mish": F.mish,
            "Mul": torch.mul,
            "Neg": torch.neg,
            "Not": torch.logical_not,
            "Or": torch.logical_or,
            "PRelu": lambda x, w: F.prelu(x, w.reshape(-1)),
            "Pow": torch.pow,
            "Reciprocal": torch.reciprocal,
            "Relu": torch.relu,
            "Round": torch.round,
            "Sigmoid": torch.sigmoid,
            "Sign": torch.sign,
            "Sin": torch.sin,
            "Softplus": F.softplus,
            "Softsign": F.softsign,
            "Sqrt": torch.sqrt,
            "Sub": torch.sub,
            "Tanh": torch.tanh,
            "Where": torch.where,
        }.items()
    },
    "Max": _reduced(torch.maximum),
    "Min": _reduced(torch.minimum),
    "Sum": _reduced(torch.add),
    "Div": _div,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "MaxPool": lambda o, x: _pool(o, x, mean=False),
    "AveragePool": lambda o, x: _pool(o, x, mean=True),
    "GlobalAveragePool": lambda o, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "GlobalMaxPool": lambda o, x: x.amax(tuple(range(2, x.dim())), keepdim=True),
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMin": _reduce(torch.amin),
    "ArgMax": lambda o, x: x.argmax(o.get("axis", 0), bool(o.get("keepdims", 1))),
    "LeakyRelu": lambda o, x: F.leaky_relu(x, o.get("alpha", 0.01)),
    "Elu": lambda o, x: F.elu(x, o.get("alpha", 1.0)),
    "Selu": lambda o, x: F.selu(x),
    "HardSigmoid": lambda o, x: F.hardtanh(
        o.get("alpha", 0.2) * x + o.get("beta", 0.5), 0.0, 1.0
    ),
    "Gelu": lambda o, x: F.gelu(x, approximate=o.get("approximate", "none")),
    "Clip": _clip,
    "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax),
    "Dropout": lambda o, x, *_: x,
    "Cast": lambda o, x: x.to(TYPES[o["to"]]),
    "Flatten": lambda o, x: x.reshape(int(np.prod(x.shape[: o.get("axis", 1)])), -1),
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Gather": _gather,
    "Split": _split,
    "Pad": _pad,
    "Concat": lambda o, *given: torch.cat(given, o["axis"]),
    "Transpose": lambda o, x: x.permute(o.get("perm", list(reversed(range(x.dim()))))),
    "Expand": lambda o, x, shape: x.expand(
        torch.broadcast_shapes(x.shape, _int_list(shape))
    ),
    "Tile": lambda o, x, times: x.repeat(_int_list(times)),
    "Shape": lambda o, x: torch.tensor(x.shape)[o.get("start", 0) : o.get("end")],
    "Constant": _constant,
    "ConstantOfShape": lambda o, shape: torch.full(
        _int_list(shape),
        o["value"].item() if "value" in o else 0.0,
        dtype=o["value"].dtype if "value" in o else torch.float32,
    ),
    **dict.fromkeys(RECURRENT, lambda o, *given: given),
}
