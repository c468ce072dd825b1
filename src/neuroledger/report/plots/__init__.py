"""Figures: each takes a board or scores, draws into ``ax`` or a figure of its own, and keeps its numbers at ``ax.data``."""

from neuroledger.report.plots.boards import agreement, bars, controls, heat_map, ranks, tradeoff
from neuroledger.report.plots.scores import layers, reliability, scatter, time
from neuroledger.report.plots.style import save

__all__ = [
    "agreement",
    "bars",
    "controls",
    "heat_map",
    "layers",
    "ranks",
    "reliability",
    "save",
    "scatter",
    "time",
    "tradeoff",
]
