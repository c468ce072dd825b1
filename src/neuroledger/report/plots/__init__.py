"""Figures: each takes a board or scores, draws into ``ax`` or a figure of its own, and keeps its numbers at ``ax.data``."""

from neuroledger.report.plots.boards import bars, controls, heat_map, tradeoff
from neuroledger.report.plots.scores import scatter
from neuroledger.report.plots.style import save

__all__ = ["bars", "controls", "heat_map", "save", "scatter", "tradeoff"]
