"""Contracts of pretrained weights: tensors of a file that a network does not have, or has in another size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.spec.base import Frozen

__all__ = ["Contract", "tensor_adapter"]


class Contract(Frozen):
    """How the tensors of a file differ from those of the network.

    Attributes
    ----------
    unused
        Prefixes of the names of tensors in the file that this network does not have.
    cut
        Tensors that are cut to the size of the network's, by name, with the axis: an embedding of more time steps than a
        window has.
    """

    unused: tuple[str, ...] = ()
    cut: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)


def tensor_adapter(
    contract: Contract, network: Any, id: str
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that adapts the tensors of a file to the network: `unused` ones are dropped, and others `cut` to size.

    Raises
    ------
    ModelError
        On call: no tensor matches a declared name, or a tensor to be cut is smaller than the network's.
    """
    own = network.state_dict()

    def adapt(state: Mapping[str, Any]) -> dict[str, Any]:
        unmatched = [
            part
            for part in contract.unused
            if not any(name.startswith(part) for name in state)
        ]
        missing = [
            name for name in contract.cut if name not in state or name not in own
        ]
        if unmatched or missing:
            raise ModelError(
                f"model {id!r}: the tensors {_first_few([*unmatched, *missing])} of its contract do not exist"
            )
        # str.startswith(()) is False.
        adapted_state = {
            name: value
            for name, value in state.items()
            if not name.startswith(contract.unused)
        }
        for name, axis in contract.cut.items():
            value = adapted_state[name]
            size = own[name].shape[axis] if axis < own[name].ndim else 0
            if axis >= value.ndim or value.shape[axis] < size:
                raise ModelError(
                    f"model {id!r}: {name!r} is {tuple(value.shape)}, but the network needs {tuple(own[name].shape)}: "
                    "windows are longer than the weights allow"
                )
            adapted_state[name] = value.narrow(axis, 0, size)
        return adapted_state

    return adapt


def _first_few(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(listed[:8])
    if len(listed) > 8:
        return f"{shown} and {len(listed) - 8} more"
    return shown
