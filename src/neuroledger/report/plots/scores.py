"""Figures of scores: two models site by site, sites against their ceiling, time, and layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.errors import MetricError, RequestError
from neuroledger.report.plots.style import ACCENT, INK, PALETTE, SOFT, axes, finish
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["layers", "reliability", "scatter", "time"]


def scatter(a: Score, b: Score, *, labels: tuple[str, str] = ("A", "B"), ax: Axes | None = None) -> Axes:
    """Two scores of one benchmark, neuroid by neuroid (or other sample), with how many lie on each side.

    Raises
    ------
    MetricError
        A score has no samples, or they cannot be set against each other.
    """
    x, y = _pairs(_sites(a), _sites(b))
    ax = ax or axes(width=4.2, height=4.2)
    _diagonal(ax, x, y)
    ax.scatter(x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2)
    ax.set_xlabel(f"{labels[0]} (higher for {int((x > y).sum())})")
    ax.set_ylabel(f"{labels[1]} (higher for {int((y > x).sum())})")
    ax.set_aspect("equal")
    return finish(ax, {labels[0]: x.tolist(), labels[1]: y.tolist()})


def reliability(score: Score, *, ax: Axes | None = None) -> Axes:
    """Each neuroid's raw score against its own ceiling: whether the model or the data is the limit.

    Both are means over splits, on their own scales. The dashed line is the best that the data allow: the ceiling itself,
    or its square root where a correlation is set against a split-half reliability.

    Raises
    ------
    MetricError
        The score has no ceiling with samples for the same neuroids.
    """
    if score.ceiling is None:
        raise MetricError(f"score {score.id!r} has no ceiling to set its samples against")
    x, y = _pairs(_sites(score.ceiling), _sites(score))
    ax = ax or axes(width=4.2, height=4.2)
    at = np.linspace(min(0.0, float(x.min())), float(x.max()), 100)
    noisy = score.scale == "correlation" and score.ceiling.scale == "reliability"
    best = np.sqrt(np.maximum(at, 0.0)) if noisy else at
    ax.plot(at, best, color=SOFT, linewidth=1, linestyle="--", zorder=1)
    ax.scatter(x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2)
    ax.set_xlabel(f"ceiling ({score.ceiling.scale.replace('_', ' ')})")
    ax.set_ylabel(f"score ({score.scale.replace('_', ' ')}, before the ceiling)")
    return finish(ax, {"ceiling": x.tolist(), "score": y.tolist()})


def time(scores: Score | Mapping[str, Score], *, ax: Axes | None = None) -> Axes:
    """Raw score over time bins: median over neuroids of the mean over splits, with the ceiling of each bin in grey.

    Several scores of one benchmark (by label) are drawn as several curves.

    Raises
    ------
    MetricError
        The samples have no time bins.
    """
    held = {"score": scores} if isinstance(scores, Score) else dict(scores)
    if not held:
        raise RequestError("no score to draw")
    ax = ax or axes(width=6, height=3.6)
    data: dict[str, Any] = {}
    first = next(iter(held.values()))
    if (
        first.ceiling is not None
        and first.ceiling.samples is not None
        and "time_bin" in first.ceiling.samples.dims
    ):
        at, values = _course(first.ceiling)
        ax.plot(at, values, color=SOFT, linewidth=6, alpha=0.35, solid_capstyle="round", label="ceiling")
        data["ceiling"] = values.tolist()
    for i, (label, score) in enumerate(held.items()):
        at, values = _course(score)
        ax.plot(at, values, color=PALETTE[i % len(PALETTE)], marker="o", markersize=4, label=label)
        data[label] = values.tolist()
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":")
    ax.set_xlabel("middle of the time bin [ms]")
    ax.set_ylabel(f"{first.scale.replace('_', ' ')}, before the ceiling")
    if len(data) > 1:
        ax.legend(frameon=False, fontsize=9)
    return finish(ax, {"time": at.tolist(), **data})


def layers(
    scores: Mapping[str, Score] | Mapping[str, Mapping[str, Score]],
    *,
    committed: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores over relative depth, as :func:`neuroledger.layers` gives them; by label for several regions or benchmarks.

    ``committed`` names for a label the layer that the model commits to, which is marked. The ceiling is dashed.

    Raises
    ------
    RequestError
        There are no layers, or a committed layer is not among them.
    """
    curves: dict[str, Mapping[str, Score]] = {}
    for name, held in scores.items():
        if isinstance(held, Score):
            curves.setdefault("score", {})
            curves["score"] = {**curves["score"], name: held}
        else:
            curves[name] = held
    if not curves or not all(curves.values()):
        raise RequestError("no layers to draw; see neuroledger.layers(model, benchmark)")
    ax = ax or axes(width=6, height=3.8)
    for i, (label, curve) in enumerate(curves.items()):
        colour = PALETTE[i % len(PALETTE)]
        depth = np.linspace(0, 1, len(curve)) if len(curve) > 1 else np.zeros(1)
        values = np.array([score.value for score in curve.values()])
        low, high = (np.array([getattr(score, end) for score in curve.values()]) for end in ("low", "high"))
        ax.fill_between(depth, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(depth, values, color=colour, marker="o", markersize=4, label=label)
        chosen = (committed or {}).get(label)
        if chosen is not None:
            if chosen not in curve:
                raise RequestError(
                    f"layer {chosen!r} of {label!r} has no score; there are {', '.join(curve)}"
                )
            at = list(curve).index(chosen)
            ax.plot([depth[at]], [values[at]], marker="D", markersize=9, color=colour, markeredgecolor=INK)
    first = next(iter(curves.values()))
    if next(iter(first.values())).ceiling is not None:
        ax.axhline(1.0, color=INK, linewidth=1, linestyle="--")
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":")
    if len(curves) == 1:
        ax.set_xticks(
            np.linspace(0, 1, len(first)) if len(first) > 1 else [0.0], list(first), rotation=40, ha="right"
        )
    else:
        ax.set_xlabel("relative depth")
        ax.legend(frameon=False, fontsize=9)
    ax.set_ylabel(next(iter(first.values())).scale.replace("_", " "))
    return finish(
        ax, {label: {layer: score.value for layer, score in curve.items()} for label, curve in curves.items()}
    )


def _sites(score: Score) -> Any:
    samples = score.samples
    if samples is None or not samples.dims:
        raise MetricError(f"score {score.id!r} has no samples to plot")
    values = np.asarray(samples.values, dtype=np.float64)
    if "split" in samples.dims and len(samples.dims) > 1:
        values = np.asarray(samples.mean("split", skipna=True).values, dtype=np.float64)
    return values.ravel()


def _pairs(x: Any, y: Any) -> tuple[Any, Any]:
    if x.shape != y.shape:
        raise MetricError(f"the samples cannot be paired: {x.size} and {y.size}; score both on one benchmark")
    present = np.isfinite(x) & np.isfinite(y)
    if not present.any():
        raise MetricError("no sample is defined on both sides")
    return x[present], y[present]


def _diagonal(ax: Axes, x: Any, y: Any) -> None:
    ends = [float(min(x.min(), y.min(), 0)), float(max(x.max(), y.max()))]
    ax.plot(ends, ends, color=SOFT, linewidth=1, linestyle="--", zorder=1)


def _course(score: Score) -> tuple[Any, Any]:
    """Middle of each time bin in ms, and the median over neuroids of the mean over splits."""
    samples = score.samples
    if samples is None or "time_bin" not in samples.dims:
        raise MetricError(
            f"score {score.id!r} has no samples over time bins; use a metric with `time: separate`"
        )
    over_splits = samples.mean("split", skipna=True) if "split" in samples.dims else samples
    rest = [dim for dim in over_splits.dims if dim != "time_bin"]
    values = np.asarray(over_splits.median(rest, skipna=True).values, dtype=np.float64)
    if {"time_bin_start", "time_bin_end"} <= set(samples.coords):
        at = (samples["time_bin_start"].values + samples["time_bin_end"].values) / 2
    else:
        at = np.arange(values.size)
    return np.asarray(at, dtype=np.float64), values
