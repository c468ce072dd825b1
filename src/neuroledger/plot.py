"""Figures of leaderboards, scores and assemblies, drawn into ``ax`` or a new figure, with their numbers in ``ax.data``.

Each function returns axes, which a notebook displays and ``save`` writes to a file.
"""

from neuroledger.families.alignment.figures import layer_map, layers, time
from neuroledger.families.alignment.similarity.figures import rdm
from neuroledger.families.decoding.figures import (
    confusion,
    forest,
    learning_curve,
    topography,
)
from neuroledger.report.plots import (
    agreement,
    bars,
    controls,
    differences,
    heat_map,
    paired,
    ranks,
    reliability,
    save,
    scatter,
    tradeoff,
)

__all__ = [
    "agreement",
    "bars",
    "confusion",
    "controls",
    "differences",
    "forest",
    "heat_map",
    "layer_map",
    "layers",
    "learning_curve",
    "paired",
    "ranks",
    "rdm",
    "reliability",
    "save",
    "scatter",
    "time",
    "topography",
    "tradeoff",
]
