"""Figures of boards, scores and assemblies: drawn into ``ax`` or a new figure, with the numbers at ``ax.data``.

A notebook displays what a function returns; ``save`` writes it.
"""

from neuroledger.families.alignment.similarity.figures import rdm
from neuroledger.report.plots import (
    agreement,
    bars,
    confusion,
    controls,
    differences,
    heat_map,
    layer_map,
    layers,
    paired,
    ranks,
    reliability,
    save,
    scatter,
    time,
    tradeoff,
)

__all__ = [
    "agreement", "bars", "confusion", "controls", "differences", "heat_map", "layer_map", "layers", "paired", "ranks", "rdm",
    "reliability", "save", "scatter", "time", "tradeoff",
]  # fmt: skip
