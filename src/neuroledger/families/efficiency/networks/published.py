"""Networks whose weights NeuroBench ships, with the same tensor names, for (batch, neuroid, time_bin)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import snntorch
import torch
from torch import Tensor, nn

__all__ = ["Activity", "Commands", "Imagery"]


class _Spiking(nn.Module, ABC):  # type: ignore[misc]
    """A network of snntorch's neurons, stepped through time from rest, with spike counts as outputs."""

    @abstractmethod
    def step(self, x: Tensor, membranes: list[Tensor | None]) -> Tensor:
        """Return spikes ``(batch, class)`` of one time step ``(batch, neuroid)``; ``membranes`` are updated in place."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return spike counts, ``(batch, class)``."""
        membranes: list[Tensor | None] = [
            module.reset_mem()
            for module in self.modules()
            if isinstance(module, snntorch.Leaky)
        ]
        return torch.stack([self.step(x, membranes) for x in inputs.unbind(2)]).sum(0)


class Imagery(_Spiking):
    """Three fully connected layers of leaky neurons: 62 electrodes, 256 and 128 neurons, two classes."""

    def __init__(self, inputs: int = 62, outputs: int = 2) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, 256)
        self.lif1 = snntorch.Leaky(beta=0.9)
        self.fc2 = nn.Linear(256, 128)
        self.lif2 = snntorch.Leaky(beta=0.9)
        self.fc3 = nn.Linear(128, outputs)
        self.lif3 = snntorch.Leaky(beta=0.9)

    def step(self, x: Tensor, membranes: list[Tensor | None]) -> Tensor:
        """Return spikes of one time step."""
        for number, (linear, neurons) in enumerate(
            ((self.fc1, self.lif1), (self.fc2, self.lif2), (self.fc3, self.lif3))
        ):
            x, membranes[number] = neurons(linear(x), membranes[number])
        return x


class Activity(_Spiking):
    """Two convolutions over the padded sample of each step, and a readout, of leaky neurons."""

    def __init__(self, inputs: int = 6, outputs: int = 7) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, 200, 2, padding=4)
        self.max1 = nn.MaxPool1d(2)
        self.leaky1 = snntorch.Leaky(beta=0.4, threshold=0.002)
        self.conv2 = nn.Conv1d(200, 256, 1)
        self.max2 = nn.MaxPool1d(2)
        self.leaky2 = snntorch.Leaky(beta=0.3, threshold=0.001)
        self.linear, self.leaky3 = (
            nn.Linear(512, outputs),
            snntorch.Leaky(beta=0.5, threshold=0.001),
        )

    def step(self, x: Tensor, membranes: list[Tensor | None]) -> Tensor:
        """Return spikes of one time step."""
        x, membranes[0] = self.leaky1(
            self.max1(self.conv1(x.unsqueeze(2))), membranes[0]
        )
        x, membranes[1] = self.leaky2(self.max2(self.conv2(x)), membranes[1])
        x, membranes[2] = self.leaky3(self.linear(x.flatten(1)), membranes[2])
        return x


class Commands(nn.Module):  # type: ignore[misc]
    """M5 on a waveform at 8,000 samples per second, 35 words."""

    def __init__(self, inputs: int = 1, outputs: int = 35) -> None:
        super().__init__()
        sizes = (32, 32, 64, 64)
        before = inputs
        for number, wide in enumerate(sizes, 1):
            kernel, stride = (80, 16) if number == 1 else (3, 1)
            self.add_module(
                f"conv{number}", nn.Conv1d(before, wide, kernel, stride=stride)
            )
            self.add_module(f"bn{number}", nn.BatchNorm1d(wide))
            self.add_module(f"pool{number}", nn.MaxPool1d(4))
            self.add_module(f"act{number}", nn.ReLU())
            before = wide
        self.fc1 = nn.Linear(before, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores ``(batch, class)``."""
        x = inputs
        for number in range(1, 5):
            part = {
                name: self.get_submodule(f"{name}{number}")
                for name in ("conv", "bn", "act", "pool")
            }
            x = part["pool"](part["act"](part["bn"](part["conv"](x))))
        return torch.log_softmax(self.fc1(x.mean(2)), 1)
