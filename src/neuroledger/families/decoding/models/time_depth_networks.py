"""Networks with outputs over time: spectrogram, rotation-invariant perceptrons for wristbands, time-depth convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from neuroledger.errors import ModelError
from neuroledger.spec.trusted import factory

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["pose_network", "typing_network"]

FLOOR = 1e-6
"""Added to the power before the logarithm."""


@factory
def typing_network(
    channels: int,
    samples: int,
    outputs: int,
    *,
    bands: int = 2,
    window: int = 64,
    hop: int = 16,
    features: int = 384,
    turns: tuple[int, ...] = (-1, 0, 1),
    depths: tuple[int, ...] = (24, 24, 24, 24),
    kernel: int = 32,
    time_masks: int = 3,
    time_mask: int = 25,
    frequency_masks: int = 2,
    frequency_mask: int = 4,
) -> nn.Module:
    """Symbols over time from two wristbands of EMG, (window, channel, sample) to (window, time, output) [sivakumar2024].

    The log power in `window` samples every `hop` is normalised for each channel. A perceptron for each of the `bands` of
    electrodes is applied to the electrodes rotated by each of the `turns`, and averaged over them. Blocks of time-depth
    separable convolutions follow [hannun2019]; each removes the first `kernel` - 1 steps in time. During training, random
    segments of time and of frequency are masked in each channel. With 32 channels and 99 outputs, the network has 5,217,184
    parameters and 76,131 in the last layer; windows of 5 s at 2 kHz have 498 steps of 8 ms.

    Raises
    ------
    ModelError
        The channels cannot be divided into bands of equal size, or the window is too short for one step.
    """
    from torch import nn

    masks = _masks((time_masks, time_mask), (frequency_masks, frequency_mask))
    shape = _Shape(bands, window, hop, features, turns, depths, kernel)
    encoder = _encoder(channels, samples, shape, masks)
    return nn.Sequential(encoder, nn.Linear(bands * features, outputs))


@factory
def pose_network(
    channels: int,
    samples: int,
    outputs: int,
    *,
    joints: int = 20,
    bands: int = 1,
    window: int = 64,
    hop: int = 16,
    features: int = 384,
    turns: tuple[int, ...] = (-1, 0, 1),
    depths: tuple[int, ...] = (24, 24, 24, 24),
    kernel: int = 28,
    context: int = 0,
    rolls: tuple[int, ...] = (-1, 0, 1),
) -> nn.Module:
    """Joint angles over time from a wristband of EMG, (window, channel, sample) to (window, output).

    The encoder of `typing_network` without masks is followed by a linear layer for the `joints` of each step. The outputs
    are joint angles at equally spaced times after the first `context` samples, interpolated linearly between steps; the
    time of a step is that of its last sample, and the first step is used for all times before it. The defaults need a
    context of 1,790 samples, like the network of emg2pose [salter2024]; this is not one of the networks published for poses.
    During training, the electrodes of each batch are rotated by one of the `rolls`, drawn at random, as published.

    Raises
    ------
    ModelError
        The number of outputs is not a multiple of `joints`, or as for `typing_network`.
    """
    from torch import nn

    if outputs % joints:
        raise ModelError(
            f"{outputs} outputs are not a multiple of {joints} joints: set `joints`"
        )
    rolled = _layer_classes()["Rolled"](bands, rolls) if any(rolls) else nn.Identity()
    shape = _Shape(bands, window, hop, features, turns, depths, kernel)
    encoder = _encoder(channels, samples, shape, rolled)
    shortened = sum(kernel - 1 for _ in depths)
    last = nn.Linear(bands * features, joints)
    if not 0 <= context < samples:
        raise ModelError(
            f"a `context` of {context} samples must be shorter than the window of {samples}"
        )
    times = outputs // joints
    at = [context + time * (samples - context) / times for time in range(times)]
    # The time of a step is the end of its spectrum.
    first = shortened * hop + window - 1
    steps = (samples - window) // hop + 1 - shortened
    place = [min(max((sample - first) / hop, 0.0), steps - 1.0) for sample in at]
    return _layer_classes()["Spread"](encoder, last, place)


class _Shape(NamedTuple):
    """The shape of an encoder: bands of electrodes, samples of spectra, features, rotations, and its convolutions."""

    bands: int
    window: int
    hop: int
    features: int
    turns: tuple[int, ...]
    depths: tuple[int, ...]
    kernel: int


def _encoder(channels: int, samples: int, shape: _Shape, masks: nn.Module) -> nn.Module:
    """(window, channel, sample) to (window, time, band × feature)."""
    from torch import nn

    bands, window, hop, features, turns, depths, kernel = shape
    if channels % bands:
        raise ModelError(
            f"{channels} channels cannot be divided into {bands} bands of equal size: set `bands`"
        )
    width = bands * features
    if any(width % depth for depth in depths):
        raise ModelError(f"`depths` {depths} must divide {bands} × {features} features")
    shortest = window + hop * sum(kernel - 1 for _ in depths)
    if samples < shortest:
        raise ModelError(
            f"this network needs windows of at least {shortest} samples, these have {samples}: lengthen the window, raise "
            "the sampling rate, or use a smaller `kernel` or `hop`"
        )
    layers = _layer_classes()
    electrodes = channels // bands
    return nn.Sequential(
        layers["LogSpectrogram"](window, hop),
        masks,
        nn.BatchNorm2d(channels),
        layers["Turned"](bands, electrodes, window // 2 + 1, features, turns),
        *(
            layer
            for depth in depths
            for layer in (
                layers["Convolution"](depth, width, kernel),
                layers["Perceptron"](width),
            )
        ),
    )


def _masks(time: tuple[int, int], frequency: tuple[int, int]) -> nn.Module:
    from torch import nn

    if time[0] or frequency[0]:
        return _layer_classes()["Masks"](time, frequency)
    return nn.Identity()


@cache
def _layer_classes() -> dict[str, Any]:
    """The classes of the layers, defined on first use, since they need torch."""
    import torch
    from torch import nn
    from torch.nn import functional

    class LogSpectrogram(nn.Module):  # type: ignore[misc]
        """(window, channel, sample) to (window, channel, frequency, time): log10 of the power under a Hann window."""

        def __init__(self, window: int, hop: int) -> None:
            super().__init__()
            self.window, self.hop = window, hop
            taper = torch.hann_window(window)
            self.register_buffer("taper", taper / taper.norm(), persistent=False)

        def forward(self, values: Tensor) -> Tensor:
            spectra = torch.stft(
                values.flatten(0, 1),
                self.window,
                self.hop,
                window=self.taper,
                center=False,
                return_complex=True,
            )
            power = spectra.real**2 + spectra.imag**2
            return torch.log10(power + FLOOR).unflatten(0, values.shape[:2])

    class Masks(nn.Module):  # type: ignore[misc]
        """In training, sets random segments of time and of frequency to zero, independently for each channel."""

        def __init__(self, time: tuple[int, int], frequency: tuple[int, int]) -> None:
            super().__init__()
            self.along = {3: time, 2: frequency}

        def forward(self, spectra: Tensor) -> Tensor:
            if not self.training:
                return spectra
            for axis, (most, width) in self.along.items():
                for _ in range(int(torch.randint(most + 1, ()))):
                    spectra = spectra.masked_fill(
                        self._stretch(spectra, axis, width), 0.0
                    )
            return spectra

        @staticmethod
        def _stretch(spectra: Tensor, axis: int, width: int) -> Tensor:
            size = spectra.shape[axis]
            length = torch.rand((*spectra.shape[:2], 1), device=spectra.device) * min(
                width, size
            )
            first = torch.rand_like(length) * (size - length)
            place = torch.arange(size, device=spectra.device)
            inside = (place >= first.floor()) & (place < first.floor() + length.floor())
            return inside.unsqueeze(2 if axis == 3 else 3)

    class Rolled(nn.Module):  # type: ignore[misc]
        """In training, rotates the electrodes of each band by an offset drawn for the batch."""

        def __init__(self, bands: int, rolls: Sequence[int]) -> None:
            super().__init__()
            self.bands, self.rolls = bands, tuple(rolls)

        def forward(self, spectra: Tensor) -> Tensor:
            if not self.training:
                return spectra
            roll = self.rolls[int(torch.randint(len(self.rolls), ()))]
            return (
                spectra.unflatten(1, (self.bands, -1)).roll(roll, dims=2).flatten(1, 2)
            )

    class Turned(nn.Module):  # type: ignore[misc]
        """(window, channel, frequency, time) to (window, time, band × feature): a perceptron per band, mean over turns."""

        def __init__(
            self,
            bands: int,
            electrodes: int,
            frequencies: int,
            features: int,
            turns: Sequence[int],
        ) -> None:
            super().__init__()
            self.bands, self.electrodes, self.turns = bands, electrodes, tuple(turns)
            self.perceptrons = nn.ModuleList(
                [
                    nn.Sequential(
                        nn.Linear(electrodes * frequencies, features), nn.ReLU()
                    )
                    for _ in range(bands)
                ]
            )

        def forward(self, spectra: Tensor) -> Tensor:
            of_band = spectra.unflatten(1, (self.bands, self.electrodes)).permute(
                1, 0, 4, 2, 3
            )
            features_of_bands = []
            for band, perceptron in zip(of_band, self.perceptrons, strict=True):
                turned = [
                    perceptron(band.roll(turn, dims=2).flatten(2))
                    for turn in self.turns
                ]
                features_of_bands.append(torch.stack(turned).mean(dim=0))
            return torch.cat(features_of_bands, dim=2)

    class Convolution(nn.Module):  # type: ignore[misc]
        """Convolves (window, time, feature) over time, with features as depth × rest; `kernel` - 1 steps are lost."""

        def __init__(self, depth: int, width: int, kernel: int) -> None:
            super().__init__()
            self.depth = depth
            self.convolution = nn.Conv2d(depth, depth, (1, kernel))
            self.norm = nn.LayerNorm(width)

        def forward(self, values: Tensor) -> Tensor:
            folded = values.transpose(1, 2).unflatten(1, (self.depth, -1))
            convolved = (
                functional.relu(self.convolution(folded)).flatten(1, 2).transpose(1, 2)
            )
            return self.norm(convolved + values[:, -convolved.shape[1] :])

    class Perceptron(nn.Module):  # type: ignore[misc]
        """(window, time, feature): two linear layers with a residual connection."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
            )
            self.norm = nn.LayerNorm(width)

        def forward(self, values: Tensor) -> Tensor:
            return self.norm(self.layers(values) + values)

    class Spread(nn.Module):  # type: ignore[misc]
        """(window, channel, sample) to (window, joint × time), interpolated linearly between the encoder's steps."""

        def __init__(
            self, encoder: nn.Module, last: nn.Module, place: Sequence[float]
        ) -> None:
            super().__init__()
            self.encoder, self.last = encoder, last
            between = torch.tensor(place)
            self.register_buffer("before", between.floor().long(), persistent=False)
            self.register_buffer("share", between - between.floor(), persistent=False)

        def forward(self, values: Tensor) -> Tensor:
            angles = self.last(self.encoder(values)).transpose(1, 2)
            after = (self.before + 1).clamp(max=angles.shape[2] - 1)
            spread = (
                angles[:, :, self.before] * (1 - self.share)
                + angles[:, :, after] * self.share
            )
            return spread.flatten(1)

    layers = (LogSpectrogram, Masks, Rolled, Turned, Convolution, Perceptron, Spread)
    return {layer.__name__: layer for layer in layers}
