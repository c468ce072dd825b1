"""What a network writes into its own parameters and buffers while it answers is taken back afterwards."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from neuroledger.core.trace.batches import Network

__all__ = ["unaltered"]


class _Held(NamedTuple):
    """A tensor in its place in a module, and its values as they were."""

    place: MutableMapping[str, Any]
    name: str
    tensor: Tensor
    values: Tensor


@contextmanager
def unaltered(network: Network) -> Iterator[None]:
    """Parameters and buffers are afterwards the same tensors with the same values; it takes a copy of them meanwhile.

    Sparse tensors and those without values stay as they are: no operation of a forward pass writes into them.
    """
    with network.turn:
        held = [
            _Held(place, name, tensor, tensor.detach().clone())
            for _, part in network.parts
            for place in (part._parameters, part._buffers)
            for name, tensor in place.items()
            if tensor is not None
            and not is_lazy(tensor)
            and tensor.layout == torch.strided
            and not tensor.is_meta
        ]
    try:
        yield
    finally:
        with network.turn, torch.no_grad():
            for place, name, tensor, values in held:
                if isinstance(place, dict) and place.get(name) is not tensor:  # TorchScript keeps its own
                    place[name] = tensor
                if not torch.equal(tensor, values):
                    tensor.copy_(values)
