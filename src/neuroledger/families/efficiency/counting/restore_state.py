"""What a network writes into its own parameters and buffers while it answers is taken back afterwards."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.batches import Network

__all__ = ["may_write", "unaltered"]

# Tensors up to so many values are copied and compared together, which for small networks is most of the work.
SMALL = 2**14


class _Held(NamedTuple):
    """A tensor in its place in a module."""

    place: MutableMapping[str, Any]
    name: str
    tensor: Tensor


@contextmanager
def unaltered(network: Network) -> Iterator[None]:
    """Parameters and buffers are afterwards the same tensors with the same values; it takes a copy of them meanwhile.

    Of a network of torch's own modules alone none is taken, for in evaluation mode these write into nothing they hold.
    Sparse tensors and those without values stay as they are: no operation of a forward pass writes into them.
    """
    if not any(part._forward_pre_hooks or _foreign(part) for _, part in network.parts):
        yield
        return
    groups: dict[object, list[_Held]] = {}
    with network.turn, torch.no_grad():
        for _, part in network.parts:
            for place in (part._parameters, part._buffers):
                for name, tensor in place.items():
                    if (
                        tensor is not None
                        and not is_lazy(tensor)
                        and tensor.layout is torch.strided
                        and not tensor.is_meta
                    ):
                        small = tensor.numel() <= SMALL
                        key = (tensor.dtype, tensor.device) if small else id(tensor)
                        groups.setdefault(key, []).append(_Held(place, name, tensor))
        copies = [(held, _values(held).clone()) for held in groups.values()]
    try:
        yield
    finally:
        with network.turn, torch.no_grad():
            for held, values in copies:
                _put_back(held, values)


def may_write(network: Network) -> bool:
    """Whether a network may write into its inputs: torch's own modules do where they are told to work in place."""
    return any(
        part._forward_pre_hooks or part._forward_hooks or _foreign(part) or getattr(part, "inplace", False)
        for _, part in network.parts
    )


def _foreign(module: nn.Module) -> bool:
    return not _from_torch(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _from_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")


def _values(held: Sequence[_Held]) -> Tensor:
    """All values of some tensors in a row."""
    return torch.cat([h.tensor.reshape(-1) for h in held]) if len(held) > 1 else held[0].tensor.reshape(-1)


def _put_back(held: Sequence[_Held], values: Tensor) -> None:
    for place, name, tensor in held:
        if isinstance(place, dict) and place.get(name) is not tensor:  # TorchScript keeps its own
            place[name] = tensor
    if not torch.equal(_values(held), values):
        for (_, _, tensor), before in zip(held, values.split([h.tensor.numel() for h in held]), strict=True):
            tensor.copy_(before.reshape(tensor.shape))
