"""Counts that need no forward pass: parameters, bytes, and zeros among the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.counts import Weights
from neuroledger.families.efficiency.counting.rows import as_values
from neuroledger.families.efficiency.counting.spiking import states_of

__all__ = [
    "CONNECTIONS",
    "count_weights",
    "packed",
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


def is_quantised(module: nn.Module) -> bool:
    """Return whether the module stores packed weights like torch's quantised layers."""
    return _kind_of(module).packs and callable(getattr(module, "weight", None))


def packed(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Return the quantised weight and the bias of a quantised layer."""
    bias = getattr(module, "bias", None)
    return module.weight(), bias() if callable(bias) else bias


def packed_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the quantised weights of a layer by name, including recurrent layers; empty for layers without any."""
    if is_quantised(module):
        return {"weight": packed(module)[0]}
    return (
        dict(module.get_weight())
        if callable(getattr(module, "get_weight", None))
        else {}
    )


def packed_biases(module: nn.Module) -> list[Tensor]:
    """Return the biases of a quantised layer, which are floating-point."""
    if is_quantised(module):
        return [bias for bias in packed(module)[1:] if bias is not None]
    return (
        list(module.get_bias().values())
        if callable(getattr(module, "get_bias", None))
        else []
    )


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
        scripted = (
            str(getattr(child, "original_name", ""))
            if isinstance(child, torch.jit.ScriptModule)
            else ""
        )
        if kind.never or "Embedding" in scripted or "Norm" in scripted:
            continue
        packs = packed_weights(child).items() if kind.packs else ()
        constants = (
            (f"constant {n}", tensor)
            for n, tensor in enumerate(compiled_constants(child))
        )
        for name, tensor in (*child._parameters.items(), *packs, *constants):
            if tensor is None:
                continue
            layered = is_lazy(tensor) or (kind.connects and tensor.dim() > 1)
            if layered or sum(size > 1 for size in tensor.shape) > 1:
                weights.setdefault(
                    id(tensor), (f"{prefix or type(child).__name__}.{name}", tensor)
                )
    return weights


def _connections_of(prefix: str, child: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of a module's own connection weights."""
    kind = _kind_of(child)
    if kind.packs:
        yield from () if kind.never else packed_weights(child).items()
    elif not kind.never and (
        "parametrizations" not in prefix or "parametrizations" not in prefix.split(".")
    ):
        for name, tensor in _effective_parameters(child):
            if tensor.dim() >= 2 if kind.connects else tensor.dim() == 2:
                yield name, tensor


def _effective_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a module's own parameters by name, with masks and norms applied."""
    for name in (
        module.parametrizations if "parametrizations" in module._modules else ()
    ):
        yield name, getattr(module, name)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        if name == "weight" or name == "bias":
            yield name, parameter
            continue
        suffix = name[-5:] if name.endswith("_orig") else name[-2:]
        stem = name.removesuffix(suffix) if suffix in ("_orig", "_g", "_v") else name
        value: Any = getattr(module, stem, None) if stem != name else None
        if not isinstance(value, torch.Tensor):
            yield name, parameter
        elif suffix != "_g":
            yield stem, value


def count_weights(
    module: nn.Module,
    parts: Iterable[tuple[str, nn.Module]] | None = None,
) -> Weights:
    """Count parameters, bytes and zeros of the module, whose parts by name may be known; see :class:`Weights`."""
    numbers = size = constant = state = mask = zeros = connections = 0
    counted: set[int] = set()
    connections_seen: dict[
        int, Tensor
    ] = {}  # kept alive, so that no temporary weight gets the id of another
    for prefix, child in module.named_modules() if parts is None else parts:
        kind = _kind_of(child)
        if not (child._parameters or child._buffers or child._modules or kind.packs):
            continue
        for parameter in child._parameters.values():
            if parameter is not None and id(parameter) not in counted:
                counted.add(id(parameter))
                numbers += parameter.numel()
                size += _bytes(parameter)
        if kind.packs:
            for tensor in (*packed_weights(child).values(), *packed_biases(child)):
                numbers += tensor.numel()
                size += _bytes(tensor)
        states = states_of(child) if child._buffers else ()
        for name, buffer in child._buffers.items():
            if buffer is None or id(buffer) in counted:
                continue
            counted.add(id(buffer))
            if name in states:
                state += _bytes(buffer)
            elif (
                name.endswith("_mask")
                and f"{name.removesuffix('_mask')}_orig" in child._parameters
            ):
                mask += _bytes(buffer)
            else:
                constant += _bytes(buffer)
        for _, tensor in _connections_of(prefix, child):
            if id(tensor) not in connections_seen:
                connections_seen[id(tensor)] = tensor
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
        coalesced = tensor.coalesce()
        parts = [coalesced.values(), coalesced.indices()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    else:
        return int(tensor.numel() * tensor.element_size())
    return int(sum(part.numel() * part.element_size() for part in parts))
