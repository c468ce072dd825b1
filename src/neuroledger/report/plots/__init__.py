"""Figures: each takes a board or scores, draws into ``ax`` or a figure of its own, and keeps its numbers at ``ax.data``."""

from neuroledger.report.plots.boards import agreement, bars, controls, differences, heat_map, ranks, tradeoff
from neuroledger.report.plots.scores import paired, reliability, scatter
from neuroledger.report.plots.style import save

__all__ = [
    "agreement", "bars", "controls", "differences", "heat_map", "paired", "ranks", "reliability", "save", "scatter",
    "tradeoff",
]  # fmt: skip
