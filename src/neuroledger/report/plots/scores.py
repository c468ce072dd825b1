"""Figures of single scores: two models site by site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.core.score import Score
from neuroledger.errors import MetricError
from neuroledger.report.plots.style import ACCENT, SOFT, axes, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["scatter"]


def scatter(a: Score, b: Score, *, labels: tuple[str, str] = ("A", "B"), ax: Axes | None = None) -> Axes:
    """Two scores of one benchmark, neuroid by neuroid (or other sample), with how many lie on each side.

    Raises
    ------
    MetricError
        A score has no samples, or they cannot be set against each other.
    """
    x, y = _sites(a), _sites(b)
    if x.shape != y.shape:
        raise MetricError(f"the samples cannot be paired: {x.size} and {y.size}; score both on one benchmark")
    present = np.isfinite(x) & np.isfinite(y)
    x, y = x[present], y[present]
    ax = ax or axes(width=4.2, height=4.2)
    ends = [float(min(x.min(), y.min(), 0)), float(max(x.max(), y.max()))]
    ax.plot(ends, ends, color=SOFT, linewidth=1, linestyle="--", zorder=1)
    ax.scatter(x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2)
    ax.set_xlabel(f"{labels[0]} (higher for {int((x > y).sum())})")
    ax.set_ylabel(f"{labels[1]} (higher for {int((y > x).sum())})")
    ax.set_aspect("equal")
    return finish(ax, {labels[0]: x.tolist(), labels[1]: y.tolist()})


def _sites(score: Score) -> Any:
    samples = score.samples
    if samples is None or not samples.dims:
        raise MetricError(f"score {score.id!r} has no samples to plot")
    values = np.asarray(samples.values, dtype=np.float64)
    if "split" in samples.dims and len(samples.dims) > 1:
        values = np.asarray(samples.mean("split", skipna=True).values, dtype=np.float64)
    return values.ravel()
