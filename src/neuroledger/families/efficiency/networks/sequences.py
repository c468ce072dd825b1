"""Networks that read sequences: the last step of a recurrent layer, an echo state, and what needs no learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Constant", "EchoState", "LastStep", "LastValue", "Linear", "TimeMean"]


class TimeMean(nn.Module):  # type: ignore[misc]
    """The mean over time: (batch, neuroid, time_bin) → (batch, neuroid)."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Mean rates."""
        return inputs.mean(2)


class LastStep(nn.Module):  # type: ignore[misc]
    """A recurrent layer over (batch, neuroid, time_bin), read out at its last step."""

    def __init__(self, inputs: int, units: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(inputs, units, batch_first=True)
        self.readout = nn.Linear(units, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores (batch, class)."""
        states, _ = self.recurrent(inputs.transpose(1, 2))
        return self.readout(states[:, -1])


class EchoState(nn.Module):  # type: ignore[misc]
    """A fixed recurrent network whose linear readout gives the next value of a series [jaeger2001].

    ``h ← (1-a)·h + a·tanh(W_in [1, x] + W h)``, next value ``W_out [1, x, h]``; the state stays between calls.
    """

    def __init__(self, w_in: Tensor, w: Tensor, leak: float) -> None:
        super().__init__()
        units, inputs = w_in.shape
        self.w_in = nn.Linear(inputs, units, bias=False, dtype=w.dtype)
        self.w = nn.Linear(units, units, bias=False, dtype=w.dtype)
        self.w_out = nn.Linear(inputs + units, inputs - 1, bias=False, dtype=w.dtype)
        self.activation = nn.Tanh()
        self.leak = leak
        self.state = torch.zeros((1, units), dtype=w.dtype)
        for layer, values in ((self.w_in, w_in), (self.w, w)):
            layer.weight = nn.Parameter(values, requires_grad=False)

    def features(self, value: Tensor) -> Tensor:
        """``[1, x, h]`` after seeing one value (1, neuroid)."""
        given = torch.cat([torch.ones_like(value[:, :1]), value], 1)
        new = self.activation(self.w_in(given) + self.w(self.state))
        self.state = (1 - self.leak) * self.state + self.leak * new
        return torch.cat([given, self.state], 1)

    def forward(self, value: Tensor) -> Tensor:
        """The next value (1, neuroid)."""
        return self.w_out(self.features(value))


class Linear(nn.Module):  # type: ignore[misc]
    """The next value as a weighted sum of the last ones; the last ones stay between calls."""

    def __init__(self, weights: Tensor, recent: Tensor) -> None:
        super().__init__()
        self.sum = nn.Linear(weights.shape[1], 1, bias=False, dtype=weights.dtype)
        self.sum.weight = nn.Parameter(weights, requires_grad=False)
        self.recent = recent

    def forward(self, value: Tensor) -> Tensor:
        """The next value (1, 1)."""
        self.recent = torch.cat([self.recent[:, 1:], value], 1)
        return self.sum(torch.cat([torch.ones_like(value), self.recent], 1))


class Constant(nn.Module):  # type: ignore[misc]
    """The same answer to everything: a floor."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.register_buffer("answer", answer)

    def forward(self, inputs: Tensor) -> Tensor:
        """The answer, once for each presentation."""
        return self.answer.expand(len(inputs), *self.answer.shape[1:])


class LastValue(nn.Module):  # type: ignore[misc]
    """The last value seen, for ever: a floor for forecasts."""

    def forward(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value
