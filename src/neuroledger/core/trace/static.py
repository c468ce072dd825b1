"""What can be counted without running the network: parameters, bytes, and zeros among the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuroledger.core.trace.counts import Weights
from neuroledger.core.trace.spiking import is_spiking, state_names

__all__ = ["connection_weights", "count_weights", "is_quantised", "nonzero", "packed"]

# Tables and gains are parameters with two or more dimensions that connect no neuron to another.
NOT_CONNECTIONS = (
    nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase,
)  # fmt: skip
CONNECTIONS = (
    nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear,
)  # fmt: skip


def is_quantised(module: nn.Module) -> bool:
    """Whether the module keeps its weights packed in the way of torch's quantised layers."""
    return ".quantized" in type(module).__module__ and callable(getattr(module, "weight", None))


def packed(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight (quantised) and bias of a quantised layer."""
    bias = module.bias() if callable(module.bias) else module.bias
    return module.weight(), bias


def nonzero(tensor: Tensor) -> Tensor:
    """Boolean mask of the values that are not zero, of a dense, sparse or quantised tensor."""
    if tensor.is_quantized:
        return tensor.dequantize().ne(0)
    return (tensor if tensor.layout == torch.strided else tensor.to_dense()).ne(0)


def count_nonzero(tensor: Tensor) -> int:
    """Number of values that are not zero."""
    if tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.layout == torch.strided:
        return int(np.count_nonzero(tensor.detach().numpy()))
    return int(nonzero(tensor).sum())


def connection_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Dotted name and tensor of everything that connects neurons with neurons; biases do not.

    Weights are those the forward pass uses: pruned and reparametrised ones are the tensors after the mask or the
    norm. Every tensor comes once, however many modules share it. Of modules that torch does not know, parameters
    with two dimensions are taken to be connections.
    """
    seen: set[int] = set()
    for prefix, child in module.named_modules():
        if isinstance(child, NOT_CONNECTIONS) or "parametrizations" in prefix.split("."):
            continue
        if is_quantised(child):
            yield f"{prefix}.weight".lstrip("."), packed(child)[0]
            continue
        known = isinstance(child, CONNECTIONS)
        for name, tensor in _effective(child):
            if id(tensor) not in seen and (tensor.dim() >= 2 if known else tensor.dim() == 2):
                seen.add(id(tensor))
                yield f"{prefix}.{name}".lstrip("."), tensor


def _effective(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A module's own parameters by name, with masks and norms applied."""
    parametrised = getattr(module, "parametrizations", None)
    for name in parametrised or ():
        yield name, getattr(module, name)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        for suffix in ("_orig", "_g", "_v"):
            stem = name.removesuffix(suffix)
            value: Any = getattr(module, stem, None)
            if stem != name and isinstance(value, torch.Tensor):
                if suffix != "_g":
                    yield stem, value
                break
        else:
            yield name, parameter


def count_weights(module: nn.Module) -> Weights:
    """Parameters, bytes and zeros of the module as it stands; see :class:`Weights`."""
    parameters = list(module.parameters())
    quantised = [packed(child) for child in module.modules() if is_quantised(child)]
    numbers = sum(p.numel() for p in parameters)
    size = sum(_bytes(p) for p in parameters)
    for weight, bias in quantised:
        numbers += weight.numel() + (bias.numel() if bias is not None else 0)
        size += _bytes(weight) + (_bytes(bias) if bias is not None else 0)
    constant = state = mask = 0
    seen: set[int] = set()
    for child in module.modules():
        states = state_names(child) if is_spiking(child) else ()
        for name, buffer in child._buffers.items():
            if buffer is None or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            if name in states:
                state += _bytes(buffer)
            elif name.endswith("_mask") and f"{name.removesuffix('_mask')}_orig" in child._parameters:
                mask += _bytes(buffer)
            else:
                constant += _bytes(buffer)
    zeros = connections = 0
    for _, tensor in connection_weights(module):
        zeros += tensor.numel() - count_nonzero(tensor)
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
    """Bytes that a tensor's values take, and those of its indices where it is sparse."""
    if tensor.layout == torch.strided:
        return int(tensor.numel() * tensor.element_size())
    if tensor.layout == torch.sparse_coo:
        coalesced = tensor.coalesce()
        parts = [coalesced.values(), coalesced.indices()]
    else:
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    return int(sum(part.numel() * part.element_size() for part in parts))
