"""The untrained twin of a network: a copy with newly drawn weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from neuroledger.errors import ModelError
from neuroledger.models.torch_weights import seeded

if TYPE_CHECKING:
    import torch

__all__ = ["in_place", "untrained"]

TWIN: Final = tuple(b"twin")
"""What the seed of a twin is mixed with."""


def untrained(
    module: torch.nn.Module, seed: int
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Return a copy of a module with newly drawn weights, and the names of the parameters that no initialiser draws.

    Every submodule with a method ``reset_parameters`` draws its parameters with it (all layers of PyTorch with weights
    have one), and resets its running statistics. A parameter that this leaves as it was, such as a class token or a
    scale that a network defines itself, keeps its values in a random order: their distribution is that of the trained
    values, their arrangement is lost. Buffers that no ``reset_parameters`` touches (indices, masks, fixed filters) are
    not learnt, and stay.

    Parameters
    ----------
    module
        The module; it is not changed.
    seed
        Seed of all draws: equal seeds give equal copies.

    Raises
    ------
    ModelError
        The module has no parameters, or cannot be copied.
    """
    if not any(True for _ in module.parameters()):
        raise ModelError(f"{type(module).__name__} has no parameters to draw again")
    try:
        twin = copy.deepcopy(module)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{type(module).__name__} cannot be copied ({error})"
        ) from error
    # Not the seed itself: a network that its user drew with the same seed would be its own twin.
    drawn = np.random.SeedSequence((seed, *TWIN)).generate_state(1, np.uint64)[0] >> 1
    return twin, seeded(lambda: _draw(twin), int(drawn))


def _draw(module: torch.nn.Module) -> tuple[str, ...]:
    """Draw all parameters again in place; return the names of those whose values were put in a random order."""
    import torch

    parameters = {
        name: part
        for name, part in module.named_parameters()
        if part.is_floating_point()
    }
    trained = {
        name: parameter.detach().clone() for name, parameter in parameters.items()
    }
    shuffled = []
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.fill_(
                math.nan
            )  # what is not a number afterwards, no initialiser has drawn
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
        for name, parameter in parameters.items():
            if not bool(parameter.isnan().any()):
                continue
            values = trained[name]
            order = torch.randperm(values.numel()).to(values.device)
            parameter.copy_(values.reshape(-1)[order].reshape(values.shape))
            shuffled.append(name)
    return tuple(shuffled)


@contextmanager
def in_place(*modules: torch.nn.Module) -> Iterator[None]:
    """Return the parameters and buffers of modules to the devices on which they were, when the context closes."""
    tensors = [
        tensor
        for module in modules
        for tensor in (*module.parameters(), *module.buffers())
    ]
    devices = [tensor.device for tensor in tensors]
    try:
        yield
    finally:
        for tensor, device in zip(tensors, devices, strict=True):
            if tensor.device != device:
                tensor.data = tensor.data.to(device)
