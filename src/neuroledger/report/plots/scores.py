"""Figures of scores: models site by site and subject by subject, ceilings, time, layers, and confused classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError, RequestError
from neuroledger.report.plots.style import ACCENT, INK, PALETTE, SOFT, axes, finish, legend
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confusion", "layer_map", "layers", "paired", "reliability", "scatter", "time"]


def scatter(
    a: Score | Mapping[str, Score],
    b: Score | None = None,
    *,
    labels: tuple[str, str] = ("first", "second"),
    ax: Axes | None = None,
) -> Axes:
    """Two scores of one benchmark, neuroid by neuroid (or other sample), with how many lie on each side.

    ``scatter({"gabor": first, "cnn": second})`` names the models; so do two scores with ``labels``.

    Raises
    ------
    RequestError
        There are not two scores.
    MetricError
        A score has no samples, or they cannot be set against each other.
    """
    held = dict(a) if isinstance(a, Mapping) else dict(zip(labels, (a, b), strict=True))
    if len(held) != 2 or not all(isinstance(each, Score) for each in held.values()):
        raise RequestError(f"a scatter needs two scores, not {len(held)}: {{'model': score, 'other': score}}")
    (first, one), (second, other) = ((name, score) for name, score in held.items() if score is not None)
    x, y = _pairs(_sites(one), _sites(other))
    ax = ax or axes(width=4.2, height=4.2)
    _diagonal(ax, x, y)
    ax.scatter(x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2, label=_item(one))
    unit = f", {one.scale.replace('_', ' ')}"
    ax.set_xlabel(f"{first}{unit} (higher for {int((x > y).sum())})")
    ax.set_ylabel(f"{second}{unit} (higher for {int((y > x).sum())})")
    ax.set_aspect("equal")
    legend(ax)
    return finish(ax, {first: x.tolist(), second: y.tolist()})


def paired(scores: Mapping[str, Score], *, by: str = "subject", ax: Axes | None = None) -> Axes:
    """Each subject's (or other item's) score under every label, joined by a line; the median is thick.

    Raises
    ------
    RequestError
        There are fewer than two scores.
    MetricError
        A score has no samples along ``by``, or they are of other items.
    """
    if len(scores) < 2:
        raise RequestError("a paired figure needs two scores or more: {'model': score, 'other': score}")
    values: dict[str, dict[str, float]] = {}
    for label, score in scores.items():
        samples = score.samples
        if samples is None or by not in samples.dims:
            there = ", ".join(map(str, samples.dims)) if samples is not None else "none"
            raise MetricError(f"score {label!r} has no samples along {by!r}; its dimensions: {there}")
        rest = [dim for dim in samples.dims if dim != by]
        means = samples.mean(rest, skipna=True) if rest else samples
        names = samples[by].values if by in samples.coords else range(samples.sizes[by])
        values[label] = {str(n): float(v) for n, v in zip(names, np.asarray(means.values), strict=True)}
    shared = [name for name in next(iter(values.values())) if all(name in each for each in values.values())]
    if not shared:
        raise MetricError(f"the scores share no {by}: score all on one benchmark")
    table = np.array([[each[name] for each in values.values()] for name in shared])
    ax = ax or axes(width=1.8 + 1.2 * len(scores), height=3.8)
    for i, line in enumerate(table):
        ax.plot(
            line,
            color=SOFT,
            alpha=0.55,
            linewidth=1,
            marker="o",
            markersize=3,
            label=f"one {by}" if not i else None,
        )
    ax.plot(
        np.nanmedian(table, axis=0), color=ACCENT, linewidth=3, marker="o", label=f"median of {len(shared)}"
    )
    ax.set_xticks(range(len(scores)), list(scores), rotation=20 if len(scores) > 3 else 0)
    ax.set_xlim(-0.3, len(scores) - 0.7)
    ax.set_ylabel(next(iter(scores.values())).scale.replace("_", " "))
    legend(ax)
    return finish(ax, {"items": shared, **{label: table[:, i].tolist() for i, label in enumerate(values)}})


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


def layer_map(
    scores: Mapping[str, Mapping[str, Score]],
    *,
    committed: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Layers by regions (or benchmarks): the score of each layer in each region, the committed layer boxed.

    ``scores`` maps a region to its layers' scores, as :func:`neuroledger.layers` gives them.

    Raises
    ------
    RequestError
        There are no layers, or regions have other layers.
    """
    from matplotlib.patches import Rectangle

    names = list(next(iter(scores.values()), {}))
    if not names or any(list(each) != names for each in scores.values()):
        raise RequestError(
            "no map to draw: every region needs scores of the same layers; see neuroledger.layers"
        )
    values = np.array([[scores[region][layer].value for region in scores] for layer in names])
    ax = ax or axes(width=2.6 + 0.8 * len(scores), height=1.6 + 0.34 * len(names))
    image = ax.imshow(values, cmap="viridis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for y, x in np.ndindex(values.shape):
        colour = "white" if values[y, x] < middle else INK
        ax.text(x, y, f"{values[y, x]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    for x, region in enumerate(scores):
        layer = (committed or {}).get(region)
        if layer in names:
            box = Rectangle(
                (x - 0.5, names.index(layer) - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=2.5
            )
            ax.add_patch(box)
    ax.set_xticks(range(len(scores)), list(scores))
    ax.set_yticks(range(len(names)), names)
    scale = next(iter(next(iter(scores.values())).values())).scale.replace("_", " ")
    ax.figure.colorbar(image, ax=ax, label=scale, shrink=0.8)
    data = {region: {layer: score.value for layer, score in each.items()} for region, each in scores.items()}
    return finish(ax, data, spines=False)


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
    ax.plot(at, best, color=SOFT, linewidth=1, linestyle="--", zorder=1, label="best that the data allow")
    ax.scatter(x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2, label=_item(score))
    ax.set_xlabel(f"ceiling ({score.ceiling.scale.replace('_', ' ')})")
    ax.set_ylabel(f"score ({score.scale.replace('_', ' ')}, before the ceiling)")
    legend(ax)
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
    legend(ax)
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
        ax.axhline(1.0, color=INK, linewidth=1, linestyle="--", label="ceiling")
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":", label="nothing explained")
    if len(curves) == 1:
        ax.set_xticks(
            np.linspace(0, 1, len(first)) if len(first) > 1 else [0.0], list(first), rotation=40, ha="right"
        )
    else:
        ax.set_xlabel("relative depth (0 first, 1 last layer)")
    legend(ax)
    ax.set_ylabel(next(iter(first.values())).scale.replace("_", " "))
    return finish(
        ax, {label: {layer: score.value for layer, score in curve.items()} for label, curve in curves.items()}
    )


def _item(score: Score) -> str:
    """What a point is."""
    dims = [str(dim) for dim in score.samples.dims if dim != "split"] if score.samples is not None else []
    return f"one {dims[0].replace('_', ' ')}" if dims else "one split"


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
