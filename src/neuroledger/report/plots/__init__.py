"""Figures of leaderboards and scores, drawn into ``ax`` or a new figure, with their numbers in ``ax.data``."""

from neuroledger.report.plots.boards import (
    agreement,
    bars,
    controls,
    differences,
    heat_map,
    ranks,
    tradeoff,
)
from neuroledger.report.plots.scores import paired, reliability, scatter
from neuroledger.report.plots.style import save

__all__ = [
    "agreement",
    "bars",
    "controls",
    "differences",
    "heat_map",
    "paired",
    "ranks",
    "reliability",
    "save",
    "scatter",
    "tradeoff",
]
