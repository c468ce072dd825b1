"""Two small convolutional networks for signals, EEGNet and ShallowFBCSPNet, with their published parameter counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuroledger.errors import ModelError
from neuroledger.spec.trusted import factory

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["eegnet", "limit_norms", "shallow_fbcsp_net"]

_SAFE_LOG_FLOOR = 1e-6


@factory
def eegnet(
    channels: int,
    samples: int,
    outputs: int,
    *,
    temporal_filters: int = 8,
    depth: int = 2,
    kernel: int = 64,
    depthwise_kernel: int = 16,
    dropout: float = 0.25,
    last_norm: float | None = None,
) -> nn.Module:
    """EEGNet for windows (window, channel, sample): temporal, spatial, then separable convolution [lawhern2018].

    It has `temporal_filters` filters over time, `depth` spatial filters for each (with a norm of at most one, see
    `limit_norms`), a separable convolution, and one linear layer after two poolings.
    With 22 channels, 256 samples and 4 outputs: 1,456 parameters and 516 in the last layer.

    The weights of each output have a norm of at most `last_norm`: 0.25 in the publication's code, unlimited by default, as
    in braindecode, whose network NeuralBench trains.

    Raises
    ------
    ModelError
        The windows have fewer than 32 samples, so that nothing remains after the poolings.
    """
    from torch import nn

    features = temporal_filters * depth
    length = _same(_same(samples, kernel) // 4, depthwise_kernel) // 8
    _require(length, "EEGNet", samples, at_least=32)
    spatial = nn.Conv2d(
        temporal_filters, features, (channels, 1), groups=temporal_filters, bias=False
    )
    spatial.largest_norm = 1.0
    last = nn.Linear(features * length, outputs)
    last.largest_norm = last_norm
    network = nn.Sequential(
        nn.Unflatten(1, (1, channels)),
        nn.Conv2d(
            1, temporal_filters, (1, kernel), padding=(0, kernel // 2), bias=False
        ),
        nn.BatchNorm2d(temporal_filters, momentum=0.01, eps=1e-3),
        spatial,
        nn.BatchNorm2d(features, momentum=0.01, eps=1e-3),
        nn.ELU(),
        nn.AvgPool2d((1, 4)),
        nn.Dropout(dropout),
        nn.Conv2d(
            features,
            features,
            (1, depthwise_kernel),
            groups=features,
            padding=(0, depthwise_kernel // 2),
            bias=False,
        ),
        nn.Conv2d(features, features, 1, bias=False),
        nn.BatchNorm2d(features, momentum=0.01, eps=1e-3),
        nn.ELU(),
        nn.AvgPool2d((1, 8)),
        nn.Dropout(dropout),
        nn.Flatten(),
        last,
    )
    return _glorot(network)


@factory
def shallow_fbcsp_net(
    channels: int,
    samples: int,
    outputs: int,
    *,
    filters: int = 40,
    kernel: int = 25,
    pool: int = 75,
    stride: int = 15,
    dropout: float = 0.5,
) -> nn.Module:
    """ShallowFBCSPNet for windows (window, channel, sample): learned log band power [schirrmeister2017].

    Temporal and spatial filters, squared, averaged over `pool` samples every `stride`, logarithm, one linear layer.
    With 22 channels, 256 samples and 4 outputs: 36,320 parameters and 1,764 in the last layer.

    Raises
    ------
    ModelError
        The window is shorter than one pooling of the filtered signal.
    """
    from torch import nn

    length = (samples - kernel + 1 - pool) // stride + 1
    _require(length, "ShallowFBCSPNet", samples, at_least=kernel + pool - 1)
    network = nn.Sequential(
        nn.Unflatten(1, (1, channels)),
        nn.Conv2d(1, filters, (1, kernel)),
        nn.Conv2d(filters, filters, (channels, 1), bias=False),
        nn.BatchNorm2d(filters, momentum=0.1),
        _elementwise(lambda values: values * values),
        nn.AvgPool2d((1, pool), (1, stride)),
        _elementwise(lambda values: values.clamp(min=_SAFE_LOG_FLOOR).log()),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(filters * length, outputs),
    )
    return _glorot(network)


def limit_norms(network: nn.Module) -> None:
    """Rescale, in place, each trained filter of layers with `largest_norm` to at most that Euclidean norm."""
    import torch

    for module in network.modules():
        limit = getattr(module, "largest_norm", None)
        if limit is not None and module.weight.requires_grad:
            with torch.no_grad():
                module.weight.copy_(
                    torch.renorm(module.weight, p=2, dim=0, maxnorm=limit)
                )


def _same(samples: int, kernel: int) -> int:
    """Length after a convolution padded by half its kernel on both sides."""
    return samples + 2 * (kernel // 2) - kernel + 1


def _require(length: int, name: str, samples: int, *, at_least: int) -> None:
    if length < 1:
        raise ModelError(
            f"{name} needs windows of at least {at_least} samples, these have {samples}: "
            "lengthen the window or raise the sampling rate"
        )


def _elementwise(function: Any) -> nn.Module:
    from torch import nn

    class Elementwise(nn.Module):  # type: ignore[misc]
        """Applies a function to every value."""

        def forward(self, values: Tensor) -> Tensor:
            return function(values)

    return Elementwise()


def _glorot(network: nn.Module) -> nn.Module:
    """Initialise with uniform Glorot weights and zero biases, as in both papers' reference implementations."""
    from torch import nn

    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
