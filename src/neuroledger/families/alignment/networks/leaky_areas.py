"""Recurrent areas of vision with leaky states, whose responses to a static image change from step to step."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Leaky", "LeakyAreas"]


class Leaky(nn.Module):  # type: ignore[misc]
    """A state that moves towards its rectified drive: ``(1 − rate) · before + rate · max(0, drive)``."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, before: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
        """State after one step, in the shape of both arguments."""
        return (1 - self.rate) * before + self.rate * torch.relu(drive)


class LeakyAreas(nn.Module):  # type: ignore[misc]
    """A feedforward stage without dynamics (``retina``), and two recurrent leaky areas: ``v4`` (maps) and ``it`` (units).

    Input is (stimulus, 1, 16, 16), output the logits of every step, (stimulus, step, class). ``v4`` and ``it`` run
    once in each step, so both can be recorded over time: (stimulus, step, 24, 4, 4) and (stimulus, step, 48). Both
    start at zero; the time from which images can be distinguished depends on the image.
    """

    def __init__(
        self,
        steps: int = 18,
        rate: float = 0.25,
        maps: int = 24,
        units: int = 48,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.retina = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.into_v4 = nn.Conv2d(16, maps, 3, padding=1, stride=2)
        self.within_v4 = nn.Conv2d(maps, maps, 3, padding=1)
        self.v4 = Leaky(rate)
        self.into_it = nn.Linear(maps * 16, units)
        self.within_it = nn.Linear(units, units)
        self.it = Leaky(rate)
        self.logits = nn.Linear(units, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (stimulus, step, class) of images (stimulus, 1, 16, 16)."""
        drive = self.into_v4(self.retina(images))
        maps = torch.zeros_like(drive)
        units = images.new_zeros(len(images), self.within_it.in_features)
        answers = []
        for _ in range(self.steps):
            maps = self.v4(maps, drive + self.within_v4(maps))
            units = self.it(
                units, self.into_it(maps.flatten(1)) + self.within_it(units)
            )
            answers.append(self.logits(units))
        return torch.stack(answers, dim=1)
