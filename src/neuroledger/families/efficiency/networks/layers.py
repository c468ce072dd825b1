"""Small networks of the shipped models, and their training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from neuroledger.data.arrays import Indices
from neuroledger.errors import ModelError
from neuroledger.models.devices import available, reproducible

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

__all__ = [
    "Constant",
    "EchoState",
    "LastStep",
    "LastValue",
    "Lif",
    "Linear",
    "OutputSelection",
    "OverTime",
    "Presented",
    "Templates",
    "TimeMean",
    "fit",
    "seeded",
]


class TimeMean(nn.Module):  # type: ignore[misc]
    """The mean over time: (batch, neuroid, time_bin) → (batch, neuroid)."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return mean rates."""
        return inputs.mean(2)


class LastStep(nn.Module):  # type: ignore[misc]
    """A recurrent layer over (batch, neuroid, time_bin) with a readout of its last step."""

    def __init__(self, inputs: int, units: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(inputs, units, batch_first=True)
        self.readout = nn.Linear(units, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores (batch, class)."""
        states, _ = self.recurrent(inputs.transpose(1, 2))
        return self.readout(states[:, -1])


class EchoState(nn.Module):  # type: ignore[misc]
    """A fixed recurrent network whose linear readout gives the next value of a series [jaeger2001].

    ``h ← (1-a)·h + a·tanh(W_in [1, x] + W h)``, next value ``W_out [1, x, h]``; the state persists between calls.
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
        """Return ``[1, x, h]`` after one value (1, neuroid)."""
        with_constant = torch.cat([torch.ones_like(value[:, :1]), value], 1)
        new = self.activation(self.w_in(with_constant) + self.w(self.state))
        self.state = (1 - self.leak) * self.state + self.leak * new
        return torch.cat([with_constant, self.state], 1)

    def forward(self, value: Tensor) -> Tensor:
        """Return the next value (1, neuroid)."""
        return self.w_out(self.features(value))


class Linear(nn.Module):  # type: ignore[misc]
    """The next value as a weighted sum of the last values, which persist between calls."""

    def __init__(self, weights: Tensor, recent: Tensor) -> None:
        super().__init__()
        self.sum = nn.Linear(weights.shape[1], 1, bias=False, dtype=weights.dtype)
        self.sum.weight = nn.Parameter(weights, requires_grad=False)
        self.recent = recent

    def forward(self, value: Tensor) -> Tensor:
        """Return the next value (1, 1)."""
        self.recent = torch.cat([self.recent[:, 1:], value], 1)
        return self.sum(torch.cat([torch.ones_like(value), self.recent], 1))


class Constant(nn.Module):  # type: ignore[misc]
    """The same answer to every input: a baseline."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.register_buffer("answer", answer)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the answer, once for each presentation."""
        return self.answer.expand(len(inputs), *self.answer.shape[1:])


class OutputSelection(nn.Module):  # type: ignore[misc]
    """A selection of a network's outputs, in a given order."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__()
        self.indices = list(indices)

    def forward(self, answers: Tensor) -> Tensor:
        """Return the selected outputs ``(batch, output)``."""
        return answers[:, self.indices]


class LastValue(nn.Module):  # type: ignore[misc]
    """The last observed value: a baseline for forecasts."""

    def forward(self, value: Tensor) -> Tensor:
        """Return the value itself."""
        return value


BORDER = 2


class Templates(nn.Module):  # type: ignore[misc]
    """A detector from (batch, pixel, time_bin) to (batch, box, 4 + class): corners, and the contrast as class score.

    Scenes are ``side`` pixels wide and ``rows`` high (default: ``side``), and averaged over their ``channels``.
    """

    def __init__(
        self,
        side: int,
        sizes: Sequence[tuple[int, int]],
        threshold: float,
        most: int,
        *,
        rows: int | None = None,
        channels: int = 1,
    ) -> None:
        super().__init__()
        self.shape = (channels, side if rows is None else rows, side)
        self.sizes = list(sizes)
        self.threshold = threshold
        self.most = most
        self.reach = max(max(size) for size in sizes) + 2 * BORDER
        self.templates = nn.Conv2d(1, len(sizes), self.reach, bias=False)
        self.rectify = nn.Threshold(threshold, 0.0)
        with torch.no_grad():
            for weight, (width, height) in zip(
                self.templates.weight[:, 0], sizes, strict=True
            ):
                weight.zero_()
                x = (self.reach - width) // 2
                y = (self.reach - height) // 2
                around = weight[
                    y - BORDER : y + height + BORDER, x - BORDER : x + width + BORDER
                ]
                around.fill_(-1.0 / (around.numel() - width * height))
                weight[y : y + height, x : x + width] = 1.0 / (width * height)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``most`` boxes in descending order of contrast; missing ones have scores of 0."""
        scene = inputs.mean(2).unflatten(1, self.shape).mean(1, keepdim=True)
        edge = self.reach // 2
        padded = nn.functional.pad(scene, (edge,) * 4, mode="reflect")
        responses = self.rectify(self.templates(padded))
        wide = 2 * (min(min(size) for size in self.sizes) // 2) + 1
        highest = nn.functional.max_pool2d(
            responses.amax(1, keepdim=True), wide, 1, wide // 2
        )
        peaks = responses * (responses == highest)
        count = min(self.most, peaks[0].numel())
        scores, places = peaks.flatten(1).topk(count)
        rows, columns = peaks.shape[-2:]
        kind = places // (rows * columns)
        place = places % (rows * columns)
        sizes = torch.tensor(self.sizes, device=inputs.device)[kind]
        first = torch.stack([place % columns, place // columns], 2) - edge
        corner = first + torch.div(self.reach - sizes, 2, rounding_mode="floor")
        answer = scores.new_zeros((*scores.shape, 4 + len(self.sizes)))
        answer[..., :2] = corner
        answer[..., 2:4] = corner + sizes
        return answer.scatter(2, kind.unsqueeze(2) + 4, scores.unsqueeze(2))


class _Spike(torch.autograd.Function):  # type: ignore[misc]
    """1 above the threshold, 0 below, with the gradient of an arctangent, 1 / (1 + (π x)²) [eshraghian2023]."""

    @staticmethod
    def forward(context: FunctionCtx, above: Tensor) -> Tensor:
        """Return spikes for the distance of the membrane above its threshold."""
        context.save_for_backward(above)
        return above.gt(0).to(above.dtype)

    @staticmethod
    def backward(context: FunctionCtx, upstream: Tensor) -> Tensor:
        """Return the surrogate gradient."""
        (above,) = context.saved_tensors
        return upstream / (1 + (math.pi * above).square())


class Lif(nn.Module):  # type: ignore[misc]
    """Leaky integrate-and-fire neurons: ``m ← β·m + x``, a spike where ``m > θ``, and a reset at the next step.

    The reset subtracts θ, or sets the membrane to zero before the leak. One call is one time step; the membrane
    potential persists until :meth:`reset_state`.
    """

    spiking_state: ClassVar[tuple[str, ...]] = ("membrane",)
    operations_per_update: ClassVar[int] = 4  # leak, input, comparison, reset

    def __init__(
        self,
        beta: float = 0.9,
        threshold: float = 1.0,
        reset: Literal["subtract", "zero"] = "subtract",
    ) -> None:
        super().__init__()
        self.register_buffer("beta", torch.tensor(beta))
        self.register_buffer("threshold", torch.tensor(threshold))
        self.reset = reset
        self.membrane: Tensor | None = None

    def reset_state(self) -> None:
        """Reset the state to that before the first step."""
        self.membrane = None

    def forward(self, current: Tensor) -> Tensor:
        """Return spikes, with the shape of the input current."""
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
    """A network of spiking layers stepped over (batch, neuroid, time_bin), with spike counts as outputs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return spike counts (batch, class); every presentation starts from rest."""
        for part in self.network.modules():
            if isinstance(part, Lif):
                part.reset_state()
        counts = [self.network(step) for step in inputs.unbind(2)]
        return torch.stack(counts).sum(0)


class Presented(nn.Module):  # type: ignore[misc]
    """Adapts a network with samples of a given ``shape`` to inputs (batch, neuroid, time_bin).

    A ``temporal`` network receives every bin as a step, and its outputs are summed over bins. Any other network receives the
    mean over time, or all values if only their number matches.
    """

    def __init__(self, network: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.network = network
        self.shape = tuple(shape)
        self.temporal = bool(getattr(network, "temporal", False))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores (batch, class).

        Raises
        ------
        ModelError
            Presentations have another number of values.
        """
        count, neuroids, bins = inputs.shape
        size = math.prod(self.shape)
        if neuroids != size and (self.temporal or neuroids * bins != size):
            raise ModelError(
                f"the network takes samples {self.shape}, not {neuroids} neuroids in {bins} time bins"
            )
        if self.temporal:
            return self.network(
                inputs.transpose(1, 2).reshape(count, bins, *self.shape)
            ).sum(1)
        return self.network(
            (inputs.mean(2) if neuroids == size else inputs).reshape(count, *self.shape)
        )


def fit(
    module: nn.Module,
    inputs: Any,
    loss: Callable[[Tensor, Indices], Tensor],
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    id: str,
) -> None:
    """Train ``module`` in place with Adam [kingma2015] on ``inputs`` (presentation, neuroid, time_bin).

    ``loss`` receives the outputs of a batch and the row numbers of its presentations. Inputs are read batch by batch, so
    they may be a view of a file.

    Raises
    ------
    ModelError
        The loss is no longer finite.
    """
    device = next(module.parameters()).device
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    rng = np.random.default_rng(seed)
    count = len(inputs)
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(count), -(-count // batch)):
            optimiser.zero_grad()
            inputs_of_batch = torch.from_numpy(
                np.asarray(inputs[rows], dtype=np.float32)
            ).to(device)
            batch_loss = loss(module(inputs_of_batch), rows)
            batch_loss.backward()
            optimiser.step()
        if not bool(torch.isfinite(batch_loss)):
            raise ModelError(
                f"model {id!r}: training diverged: lower the `rate`, or check the data"
            )


@contextmanager
def seeded(seed: int, threads: int, device: str = "cpu") -> Iterator[torch.device]:
    """Seed torch's generators and set the number of threads and deterministic algorithms of ``device``; all are restored.

    Yields the device of this name, or the fastest one for ``auto``.

    Raises
    ------
    UnavailableError
        The machine or the installed torch does not support the device.
    """
    place = available(device)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with reproducible(place, seed):
            yield place
    finally:
        torch.set_num_threads(before)
