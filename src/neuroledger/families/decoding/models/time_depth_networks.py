"""Networks that answer over time: spectrogram, perceptrons that do not mind a turned wristband, time-depth convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from neuroledger.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["pose_network", "typing_network"]

FLOOR = 1e-6
"""What is added to the power before its logarithm."""


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
    """Symbols over time from the muscles of two wrists, (window, channel, sample) to (window, time, output) [sivakumar2024].

    The logarithm of the power in `window` samples every `hop` is normalised for each channel. A perceptron for each of the
    `bands` of electrodes sees them as they are and turned by one place either way, and is averaged over the `turns`. Blocks
    of time-depth separable convolutions follow [hannun2019]; each shortens time by `kernel` - 1 steps, of the beginning.
    During training, a limited number of segments of time and of frequency, of limited length, is masked in each channel.
    With 32 channels and 99 outputs: 5,217,184 parameters and 76,131 in the last layer; 5 s at 2 kHz give 498 steps of 8 ms.

    Raises
    ------
    ModelError
        The channels are no bands of equal size, or the window is too short for one step.
    """
    from torch import nn

    masks = _masks((time_masks, time_mask), (frequency_masks, frequency_mask))
    encoder = _encoder(channels, samples, bands, window, hop, features, turns, depths, kernel, masks)
    return nn.Sequential(encoder, nn.Linear(bands * features, outputs))


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
    """Joint angles over time from the muscles of a wrist, (window, channel, sample) to (window, output).

    The encoder of `typing_network` without masks, and a linear layer for the `joints` of each of its steps. What follows the
    first `context` samples is answered, at as many even times as the outputs hold, between two steps in proportion; a step
    stands where its last sample is, and the first one for all before it. The defaults need a context of 1,790 samples, as
    the network of emg2pose does [salter2024]; it is none of the networks published for poses. While it is trained, the
    electrodes of each batch are turned by one of the `rolls`, drawn at random, as published.

    Raises
    ------
    ModelError
        The outputs are no whole number of times for each joint, or as `typing_network`.
    """
    from torch import nn

    if outputs % joints:
        raise ModelError(
            f"{outputs} numbers are no whole number of times for each of {joints} joints: set `joints`"
        )
    rolled = _classes()["Rolled"](bands, rolls) if any(rolls) else nn.Identity()
    encoder = _encoder(channels, samples, bands, window, hop, features, turns, depths, kernel, rolled)
    lost = sum(kernel - 1 for _ in depths)
    last = nn.Linear(bands * features, joints)
    if not 0 <= context < samples:
        raise ModelError(f"a `context` of {context} samples leaves nothing of {samples} to answer")
    times = outputs // joints
    at = [context + time * (samples - context) / times for time in range(times)]
    # A step knows what there was until the end of its spectrum.
    first, steps = lost * hop + window - 1, (samples - window) // hop + 1 - lost
    place = [min(max((sample - first) / hop, 0.0), steps - 1.0) for sample in at]
    return _classes()["Spread"](encoder, last, place)


def _encoder(
    channels: int,
    samples: int,
    bands: int,
    window: int,
    hop: int,
    features: int,
    turns: tuple[int, ...],
    depths: tuple[int, ...],
    kernel: int,
    masks: nn.Module,
) -> nn.Module:
    """(window, channel, sample) to (window, time, band × feature)."""
    from torch import nn

    if channels % bands:
        raise ModelError(f"{channels} channels are no {bands} bands of as many electrodes each: set `bands`")
    width = bands * features
    if any(width % depth for depth in depths):
        raise ModelError(f"`depths` {depths} must divide {bands} × {features} features")
    shortest = window + hop * sum(kernel - 1 for _ in depths)
    if samples < shortest:
        raise ModelError(
            f"this network needs windows of at least {shortest} samples, these have {samples}: lengthen the window, raise "
            "the sampling rate, or take a smaller `kernel` or `hop`"
        )
    own = _classes()
    electrodes = channels // bands
    return nn.Sequential(
        own["LogSpectrogram"](window, hop),
        masks,
        nn.BatchNorm2d(channels),
        own["Turned"](bands, electrodes, window // 2 + 1, features, turns),
        *(
            layer
            for depth in depths
            for layer in (own["Convolution"](depth, width, kernel), own["Perceptron"](width))
        ),
    )


def _masks(time: tuple[int, int], frequency: tuple[int, int]) -> nn.Module:
    from torch import nn

    return _classes()["Masks"](time, frequency) if time[0] or frequency[0] else nn.Identity()


@cache
def _classes() -> dict[str, Any]:
    """The layers, made when torch is there."""
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
        """While it is trained, stretches of time and of frequency are set to zero, in each channel other ones."""

        def __init__(self, time: tuple[int, int], frequency: tuple[int, int]) -> None:
            super().__init__()
            self.along = {3: time, 2: frequency}

        def forward(self, spectra: Tensor) -> Tensor:
            if not self.training:
                return spectra
            for axis, (most, width) in self.along.items():
                for _ in range(int(torch.randint(most + 1, ()))):
                    spectra = spectra.masked_fill(self._stretch(spectra, axis, width), 0.0)
            return spectra

        @staticmethod
        def _stretch(spectra: Tensor, axis: int, width: int) -> Tensor:
            size = spectra.shape[axis]
            length = torch.rand((*spectra.shape[:2], 1), device=spectra.device) * min(width, size)
            first = torch.rand_like(length) * (size - length)
            place = torch.arange(size, device=spectra.device)
            inside = (place >= first.floor()) & (place < first.floor() + length.floor())
            return inside.unsqueeze(2 if axis == 3 else 3)

    class Rolled(nn.Module):  # type: ignore[misc]
        """While it is trained, the electrodes of each band are turned by a place drawn for the batch."""

        def __init__(self, bands: int, rolls: Sequence[int]) -> None:
            super().__init__()
            self.bands, self.rolls = bands, tuple(rolls)

        def forward(self, spectra: Tensor) -> Tensor:
            if not self.training:
                return spectra
            roll = self.rolls[int(torch.randint(len(self.rolls), ()))]
            return spectra.unflatten(1, (self.bands, -1)).roll(roll, dims=2).flatten(1, 2)

    class Turned(nn.Module):  # type: ignore[misc]
        """(window, channel, frequency, time) to (window, time, band × feature): a perceptron a band, mean over turns."""

        def __init__(
            self, bands: int, electrodes: int, frequencies: int, features: int, turns: Sequence[int]
        ) -> None:
            super().__init__()
            self.bands, self.electrodes, self.turns = bands, electrodes, tuple(turns)
            self.perceptrons = nn.ModuleList(
                [
                    nn.Sequential(nn.Linear(electrodes * frequencies, features), nn.ReLU())
                    for _ in range(bands)
                ]
            )

        def forward(self, spectra: Tensor) -> Tensor:
            of_band = spectra.unflatten(1, (self.bands, self.electrodes)).permute(1, 0, 4, 2, 3)
            found = []
            for band, perceptron in zip(of_band, self.perceptrons, strict=True):
                turned = [perceptron(band.roll(turn, dims=2).flatten(2)) for turn in self.turns]
                found.append(torch.stack(turned).mean(dim=0))
            return torch.cat(found, dim=2)

    class Convolution(nn.Module):  # type: ignore[misc]
        """(window, time, feature), `kernel` - 1 steps shorter: features as depth × rest, convolved over time."""

        def __init__(self, depth: int, width: int, kernel: int) -> None:
            super().__init__()
            self.depth = depth
            self.convolution = nn.Conv2d(depth, depth, (1, kernel))
            self.norm = nn.LayerNorm(width)

        def forward(self, values: Tensor) -> Tensor:
            folded = values.transpose(1, 2).unflatten(1, (self.depth, -1))
            found = functional.relu(self.convolution(folded)).flatten(1, 2).transpose(1, 2)
            return self.norm(found + values[:, -found.shape[1] :])

    class Perceptron(nn.Module):  # type: ignore[misc]
        """(window, time, feature): two linear layers beside the input."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            self.norm = nn.LayerNorm(width)

        def forward(self, values: Tensor) -> Tensor:
            return self.norm(self.layers(values) + values)

    class Spread(nn.Module):  # type: ignore[misc]
        """(window, channel, sample) to (window, joint × time): the encoder's steps, read at places between them."""

        def __init__(self, encoder: nn.Module, last: nn.Module, place: Sequence[float]) -> None:
            super().__init__()
            self.encoder, self.last = encoder, last
            between = torch.tensor(place)
            self.register_buffer("before", between.floor().long(), persistent=False)
            self.register_buffer("share", between - between.floor(), persistent=False)

        def forward(self, values: Tensor) -> Tensor:
            angles = self.last(self.encoder(values)).transpose(1, 2)
            after = (self.before + 1).clamp(max=angles.shape[2] - 1)
            spread = angles[:, :, self.before] * (1 - self.share) + angles[:, :, after] * self.share
            return spread.flatten(1)

    made = (LogSpectrogram, Masks, Rolled, Turned, Convolution, Perceptron, Spread)
    return {layer.__name__: layer for layer in made}
