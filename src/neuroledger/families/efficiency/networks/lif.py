"""Leaky integrate-and-fire neurons in plain torch, and networks of them unrolled over time."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

__all__ = ["Lif", "OverTime"]


class _Spike(torch.autograd.Function):  # type: ignore[misc]
    """1 above the threshold, 0 below; its gradient is that of an arctangent, 1 / (1 + (π x)²) [eshraghian2023]."""

    @staticmethod
    def forward(context: Any, above: Tensor) -> Tensor:
        """Spikes for how far the membrane is above its threshold."""
        context.save_for_backward(above)
        return above.gt(0).to(above.dtype)

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> Tensor:
        """The surrogate gradient."""
        (above,) = context.saved_tensors
        return upstream / (1 + (math.pi * above).square())


class Lif(nn.Module):  # type: ignore[misc]
    """Leaky integrate-and-fire neurons: ``m ← β·m + x``, a spike where ``m > θ``, and then a reset at the next step.

    The reset subtracts θ, or sets the membrane to zero before the leak. One call is one time step; the membrane
    potential stays until :meth:`reset_state`.
    """

    spiking_state: ClassVar[tuple[str, ...]] = ("membrane",)
    operations_per_update: ClassVar[int] = 4  # leak, input, comparison, reset

    def __init__(
        self, beta: float = 0.9, threshold: float = 1.0, reset: Literal["subtract", "zero"] = "subtract"
    ) -> None:
        super().__init__()
        self.register_buffer("beta", torch.tensor(beta))
        self.register_buffer("threshold", torch.tensor(threshold))
        self.reset = reset
        self.membrane: Tensor | None = None

    def reset_state(self) -> None:
        """Forget all steps so far."""
        self.membrane = None

    def forward(self, current: Tensor) -> Tensor:
        """Spikes, of the shape of the input current."""
        before = self.membrane
        if before is None or before.shape != current.shape:
            before = torch.zeros_like(current)
        fired = before.gt(self.threshold).to(current.dtype)
        if self.reset == "zero":
            after = self.beta * before * (1 - fired) + current
        else:
            after = self.beta * before + current - fired * self.threshold
        self.membrane = after
        return _Spike.apply(after - self.threshold)


class OverTime(nn.Module):  # type: ignore[misc]
    """A network of spiking layers stepped over (batch, neuroid, time_bin); the answer is each output's spike count."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Spike counts (batch, class); every presentation starts from rest."""
        for part in self.network.modules():
            if isinstance(part, Lif):
                part.reset_state()
        counts = [self.network(step) for step in inputs.unbind(2)]
        return torch.stack(counts).sum(0)
