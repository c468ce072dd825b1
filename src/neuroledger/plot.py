"""Figures of boards, scores and assemblies: drawn into ``ax`` or a new figure, with the numbers at ``ax.data``."""

from neuroledger.families.alignment.similarity.figures import rdm
from neuroledger.report.plots import (
    agreement,
    bars,
    controls,
    heat_map,
    layers,
    ranks,
    reliability,
    save,
    scatter,
    time,
    tradeoff,
)

__all__ = [
    "agreement", "bars", "controls", "heat_map", "layers", "ranks", "rdm", "reliability", "save", "scatter", "time",
    "tradeoff",
]  # fmt: skip
