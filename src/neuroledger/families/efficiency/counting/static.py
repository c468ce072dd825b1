"""Counts that need no forward pass: parameters, bytes, and zeros among the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.counts import Weights
from neuroledger.families.efficiency.counting.origins import is_matrix
from neuroledger.families.efficiency.counting.rows import as_values
from neuroledger.families.efficiency.counting.spiking import states_of

__all__ = [
    "CONNECTIONS",
    "count_weights",
    "packed_weights",
]

# Tables and gains: parameters, possibly with two or more dimensions, that connect no neurons.
NOT_CONNECTIONS = (
    nn.Embedding,
    nn.EmbeddingBag,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,
)
CONNECTIONS = (
    nn.Linear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.Bilinear,
)


class _Kind(NamedTuple):
    """Properties of a class of modules: packed weights, connections, or never connections."""

    packs: bool
    connects: bool
    never: bool


@lru_cache(maxsize=1024)
def _kind(kind: type) -> _Kind:
    return _Kind(
        ".quantized" in kind.__module__ and ".reference" not in kind.__module__,
        issubclass(kind, CONNECTIONS),
        issubclass(kind, NOT_CONNECTIONS) or "Embedding" in kind.__name__,
    )


def _kind_of(module: nn.Module) -> _Kind:
    return _kind(type(module))  # type: ignore[arg-type]


def packed_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the quantised weights of a layer by name, including recurrent layers; empty for layers without any."""
    if _kind_of(module).packs and callable(getattr(module, "weight", None)):
        return {"weight": module.weight()}
    get = getattr(module, "get_weight", None)
    return dict(get()) if callable(get) else {}


def packed_biases(module: nn.Module) -> list[Tensor]:
    """Return the biases of a quantised layer, which are floating-point."""
    bias = getattr(module, "bias", None)
    get = getattr(module, "get_bias", None)
    if callable(get):
        return list(get().values())
    found = bias() if callable(bias) else bias
    return [] if found is None else [found]


def compiled_constants(module: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors in the code of a TorchScript module, such as the weights of a frozen one."""
    for graph in compiled_graphs(module):
        for node in graph.findAllNodes("prim::Constant"):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                yield node.t("value")


def compiled_graphs(module: nn.Module) -> Iterator[Any]:
    """Yield the graphs of the methods of a TorchScript module, without those of its parts."""
    if isinstance(module, torch.jit.ScriptModule):
        for name in module._c._method_names():
            yield module._c._get_method(name).graph


def coverable_weights(
    parts: Iterable[tuple[str, nn.Module]],
) -> dict[int, tuple[str, Tensor]]:
    """Return dotted name and stored tensor of all weights that may connect neurons, by identity.

    These are matrices of torch's layers, other parameters with more than one value along at least two dimensions except
    those of tables and norms, and packed weights.
    """
    weights: dict[int, tuple[str, Tensor]] = {}
    for prefix, child in parts:
        kind = _kind_of(child)
        scripted = isinstance(child, torch.jit.ScriptModule)
        original = str(getattr(child, "original_name", "")) if scripted else ""
        if kind.never or "Embedding" in original or "Norm" in original:
            continue
        stored: dict[str, Any] = {**child._parameters}
        stored |= packed_weights(child) if kind.packs else {}
        for number, tensor in enumerate(compiled_constants(child)):
            stored[f"constant {number}"] = tensor
        for name, tensor in stored.items():
            if tensor is None:
                continue
            layered = is_lazy(tensor) or (kind.connects and tensor.dim() > 1)
            if layered or is_matrix(tensor):
                name = f"{prefix or type(child).__name__}.{name}"
                weights.setdefault(id(tensor), (name, tensor))
    return weights


def _connections_of(prefix: str, child: nn.Module) -> Iterator[Tensor]:
    """Yield a module's own connection weights, with masks and norms applied."""
    kind = _kind_of(child)
    if kind.never or "parametrizations" in prefix.split("."):
        return
    if kind.packs:
        yield from packed_weights(child).values()
        return
    made: Any = getattr(child, "parametrizations", None)
    names: list[str] = list(made) if isinstance(made, nn.ModuleDict) else []
    for name, parameter in child._parameters.items():
        stem = name.removesuffix("_orig").removesuffix("_v").removesuffix("_g")
        computed = stem != name and isinstance(getattr(child, stem, None), Tensor)
        if parameter is not None and not (computed and name.endswith("_g")):
            names.append(stem if computed else name)
    for name in names:
        tensor = getattr(child, name)
        if tensor.dim() >= 2 if kind.connects else tensor.dim() == 2:
            yield tensor


def count_weights(
    module: nn.Module,
    parts: Iterable[tuple[str, nn.Module]] | None = None,
) -> Weights:
    """Count parameters, bytes and zeros of the module, whose parts by name may be known; see :class:`Weights`."""
    numbers = size = constant = state = mask = zeros = connections = 0
    # Tensors are kept alive, so that no temporary weight gets the id of another.
    counted: dict[int, Tensor] = {}
    connected: dict[int, Tensor] = {}
    for prefix, child in module.named_modules() if parts is None else parts:
        packs = _kind_of(child).packs
        if not (child._parameters or child._buffers or child._modules or packs):
            continue
        stored = [p for p in child._parameters.values() if p is not None]
        if packs:
            stored += [*packed_weights(child).values(), *packed_biases(child)]
        for tensor in stored:
            if id(tensor) not in counted:
                counted[id(tensor)] = tensor
                numbers += tensor.numel()
                size += _bytes(tensor)
        states = states_of(child) if child._buffers else ()
        for name, buffer in child._buffers.items():
            if buffer is None or id(buffer) in counted:
                continue
            counted[id(buffer)] = buffer
            if name in states:
                state += _bytes(buffer)
            elif f"{name.removesuffix('_mask')}_orig" in child._parameters:
                mask += _bytes(buffer)
            else:
                constant += _bytes(buffer)
        for tensor in _connections_of(prefix, child):
            if id(tensor) not in connected:
                connected[id(tensor)] = tensor
                zeros += tensor.numel() - int(torch.count_nonzero(as_values(tensor)))
                connections += tensor.numel()
    return Weights(
        parameters=numbers,
        parameter_bytes=size,
        buffer_bytes=constant,
        state_bytes=state,
        mask_bytes=mask,
        zeros=zeros,
        connections=connections,
    )


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's values, and of its indices if it is sparse."""
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        parts = [tensor.values(), tensor.indices()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    else:
        parts = [tensor]
    return int(sum(part.numel() * part.element_size() for part in parts))
