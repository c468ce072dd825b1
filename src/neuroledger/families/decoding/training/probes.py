"""Probes: a linear read-out of what a layer of a network gives, trained by its gradient or solved as a ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["PENALTIES", "Pool", "module_named", "output_layer", "probe", "ridges"]

Pool = Literal["flatten", "mean", "first"]
PENALTIES = tuple(10.0**power for power in range(6, -3, -1))
"""Penalties of a ridge on standardised features, from the strongest on."""


def output_layer(network: nn.Module) -> nn.Module:
    """The last module of a network that has parameters of its own."""
    own = [
        module
        for module in network.modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    if not own:
        raise ModelError(
            "the network has no parameters, so that nothing can be adapted"
        )
    return own[-1]


def module_named(network: nn.Module, name: str) -> nn.Module:
    """The module with a dotted name within the network, also behind its inputs.

    Raises
    ------
    ModelError
        There is none.
    """
    modules = dict(network.named_modules())
    found = {
        id(module): module
        for path, module in modules.items()
        if path == name or path.endswith(f"network.{name}")
    }
    if len(found) != 1:
        known = [path for path in modules if path and path.count(".") < 3]
        raise ModelError(
            f"the network has no layer {name!r}; it has {', '.join(known[:20])}"
        )
    return next(iter(found.values()))


def probe(
    network: nn.Module, layer: str | None, pool: Pool, outputs: int, example: Tensor
) -> Any:
    """The network with a new linear layer on what `layer` gives; by default, on what its output layer receives.

    The new module has `features(windows)`, (window, feature), and the linear layer `head`.

    Raises
    ------
    ModelError
        There is no such layer, or it does not give one tensor with a row for each window.
    """
    import torch
    from torch import nn

    source = output_layer(network) if layer is None else module_named(network, layer)

    class Probed(nn.Module):  # type: ignore[misc]
        """A network of which a linear layer reads the activations of one layer."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.source = (source,)  # not a second child of this module

        def features(self, windows: Any) -> Any:
            """Pooled activations, (window, feature)."""
            seen: list[Any] = []
            (module,) = self.source
            handle = (
                module.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
                if layer is None
                else module.register_forward_hook(lambda _, __, got: seen.append(got))
            )
            try:
                self.network(windows)
            finally:
                handle.remove()
            return _pooled(seen[-1] if seen else None, pool, len(windows), layer)

        def forward(self, windows: Any) -> Any:
            return self.head(self.features(windows))

    probed = Probed()
    was_training = network.training
    network.eval()
    with torch.no_grad():
        count = probed.features(example).shape[1]
    network.train(was_training)
    probed.head = nn.Linear(count, outputs, device=example.device)
    return probed


def _pooled(given: Any, pool: Pool, windows: int, layer: str | None) -> Any:
    """(window, feature) of activations (window, token, …): all of them, their mean over tokens, or the first token."""
    import torch

    if not isinstance(given, torch.Tensor) or given.ndim < 2 or len(given) != windows:
        what = tuple(getattr(given, "shape", ())) or type(given).__name__
        raise ModelError(
            f"layer {layer or 'before the output'!r} gives {what}, not one tensor with a row for each of {windows} windows: "
            "choose another layer"
        )
    if pool != "flatten" and given.ndim > 2:
        given = given.mean(dim=1) if pool == "mean" else given[:, 0]
    return given.flatten(1)


def ridges(
    features: Floats, targets: Floats, weights: Floats
) -> Iterator[tuple[Floats, Floats]]:
    """Weights (output, feature) and bias (output,) of a weighted ridge regression for each of `PENALTIES`.

    Features are standardised, and the bias is not penalised; one singular value decomposition serves all penalties.

    Parameters
    ----------
    features, targets, weights
        (window, feature), (window, output) and (window,).
    """
    share = weights / weights.sum()
    centre = share @ features
    mean = share @ targets
    spread = np.sqrt(share @ (features - centre) ** 2)
    spread = np.where(spread > 0, spread, 1.0)
    root = np.sqrt(weights)[:, None]
    u, s, vt = np.linalg.svd(root * (features - centre) / spread, full_matrices=False)
    projected = u.T @ (root * (targets - mean))
    for penalty in PENALTIES:
        shrunk = (s / (s**2 + penalty))[:, None] * projected
        coefficients = (vt.T @ shrunk).T / spread
        yield coefficients, mean - coefficients @ centre
