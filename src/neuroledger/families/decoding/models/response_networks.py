"""A network for few samples of very many channels, such as fMRI responses: a residual perceptron for every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroledger.spec.trusted import factory

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["residual_mlp"]


@factory
def residual_mlp(
    channels: int,
    samples: int,
    outputs: int,
    *,
    hidden: int = 128,
    blocks: int = 2,
    dropout: float = 0.5,
    block_dropout: float = 0.15,
) -> nn.Module:
    """Perceptron for windows (window, channel, sample): applied to each sample, with a learnt mean over time [scotti2023].

    Every sample is projected to `hidden` values, normalised and passed through `blocks` residual blocks; the results are
    combined over time with one weight per sample, and two linear layers compute the outputs. The defaults are those of
    NeuralBench's network for fMRI: with 20,484 channels, 4 samples and 1,536 outputs, it has 5,214,853 parameters.
    """
    from torch import nn

    def step(inputs: int, share: float) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Dropout(share),
        )

    class ResidualMlp(nn.Module):  # type: ignore[misc]
        """(window, channel, sample) to (window, output)."""

        def __init__(self) -> None:
            super().__init__()
            self.first = step(channels, dropout)
            self.blocks = nn.ModuleList(
                [step(hidden, block_dropout) for _ in range(blocks)]
            )
            self.over_time = nn.Linear(samples, 1)
            self.last = nn.Sequential(
                nn.Linear(hidden, outputs), nn.Linear(outputs, outputs)
            )

        def forward(self, windows: Tensor) -> Tensor:
            hidden_values = self.first(windows.transpose(1, 2))
            for block in self.blocks:
                hidden_values = hidden_values + block(hidden_values)
            return self.last(self.over_time(hidden_values.transpose(1, 2))[:, :, 0])

    return ResidualMlp()
