"""Figures of decoding: which class was predicted as which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.report.plots.style import INK, axes, finish
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confusion"]


def confusion(score: Score | xr.DataArray, *, ax: Axes | None = None) -> Axes:
    """How often each true class was predicted as each class, in percent of the true class.

    Takes a score whose samples hold predictions beside the truth (of `nl.decode` and decoding benchmarks), or those.

    Raises
    ------
    MetricError
        There are no predictions, or they are not classes.
    """
    held = (
        score.samples.attrs.get("predictions")
        if isinstance(score, Score) and score.samples is not None
        else score
    )
    if not isinstance(held, xr.DataArray) or "truth" not in held.coords:
        raise MetricError("no predictions with the truth beside them to draw; decode classes with nl.decode")
    predicted, truth = _classes(held)
    names = np.unique(np.concatenate([truth, predicted]))
    counts = np.zeros((len(names), len(names)))
    np.add.at(counts, (np.searchsorted(names, truth), np.searchsorted(names, predicted)), 1)
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    ax = ax or axes(width=2.2 + 0.55 * len(names), height=1.8 + 0.5 * len(names))
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    for y, x in np.ndindex(shares.shape):
        colour = "white" if shares[y, x] > 60 else INK
        ax.text(x, y, f"{shares[y, x]:.0f}", ha="center", va="center", fontsize=9, color=colour)
    ax.set_xticks(range(len(names)), names.astype(str), rotation=30, ha="right")
    ax.set_yticks(range(len(names)), names.astype(str))
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    ax.figure.colorbar(image, ax=ax, label="% of the true class", shrink=0.8)
    return finish(ax, {"classes": names.tolist(), "percent": shares.tolist()}, spines=False)


def _classes(held: xr.DataArray) -> tuple[Any, Any]:
    """Predicted and true classes; of probabilities the most probable one."""
    truth = np.asarray(held["truth"].values)
    other = [dim for dim in held.dims if dim not in held["truth"].dims]
    if not other:
        predicted = np.asarray(held.values)
    elif len(other) == 1 and other[0] in held.coords:
        predicted = np.asarray(held[other[0]].values)[np.asarray(held.argmax(str(other[0])).values)]
    else:
        raise MetricError(f"predictions have dimensions {held.dims}; classes are needed along one of them")
    if predicted.dtype.kind == "f" or truth.dtype.kind == "f":
        raise MetricError("the predictions are numbers, not classes: there is no confusion to draw")
    return predicted.astype(str), truth.astype(str)
