"""Figures: each takes a board or scores, draws into ``ax`` or a figure of its own, and keeps its numbers at ``ax.data``."""

from neuroledger.report.plots.boards import agreement, bars, controls, differences, heat_map, ranks, tradeoff
from neuroledger.report.plots.scores import (
    confusion,
    layer_map,
    layers,
    paired,
    reliability,
    scatter,
    time,
)
from neuroledger.report.plots.style import save

__all__ = [
    "agreement", "bars", "confusion", "controls", "differences", "heat_map", "layer_map", "layers", "paired", "ranks",
    "reliability", "save", "scatter", "time", "tradeoff",
]  # fmt: skip
