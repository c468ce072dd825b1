"""Figures of alignment scores: layers over depth, layers by region, and time courses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from neuroledger.data.arrays import floats
from neuroledger.errors import MetricError, RequestError
from neuroledger.report.plots.style import INK, PALETTE, SOFT, axes, finish, legend
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["layer_map", "layers", "time"]


# Clusters with a larger corrected p value are not marked.
SIGNIFICANT = 0.05


@runtime_checkable
class Curve(Protocol):
    """A layer curve, as :func:`neuroledger.layers` returns it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain data."""
        ...


def layers(
    scores: Curve | Mapping[str, Score] | Mapping[str, Mapping[str, Score]],
    *,
    committed: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw scores of layers over relative depth, one curve per label for several regions or benchmarks.

    A curve of :func:`neuroledger.layers` is drawn with its 95 % intervals, the untrained twin in grey, the ceiling with
    its interval as a grey band, zero dotted, a ring around the layer that one half of the stimuli chose, and beside it a
    diamond: its score on the other half. Several curves by label are drawn as lines; ``committed`` maps a label to the
    layer that the model commits to, which is marked, and the ceiling is dashed.

    Raises
    ------
    RequestError
        There are no layers, or a committed layer is not among them.

    Examples
    --------
    >>> import neuroledger as nl
    >>> scores = {"conv1": nl.Score(0.2), "conv2": nl.Score(0.4), "logits": nl.Score(0.3)}
    >>> ax = nl.plot.layers({"IT": scores}, committed={"IT": "conv2"})
    >>> ax.get_ylabel()
    'score'
    """
    if isinstance(scores, Curve):
        return _layer_curve(scores.to_dict(), ax or axes(width=7, height=4.4))
    single = {name: score for name, score in scores.items() if isinstance(score, Score)}
    curves: dict[str, Mapping[str, Score]] = {"score": single} if single else {}
    curves |= {
        name: curve for name, curve in scores.items() if not isinstance(curve, Score)
    }
    if not curves or not all(curves.values()):
        raise RequestError(
            "no layers to draw; see neuroledger.layers(model, benchmark)"
        )
    ax = ax or axes(width=6, height=3.8)
    for i, (label, curve) in enumerate(curves.items()):
        colour = PALETTE[i % len(PALETTE)]
        if len(curve) > 1:
            depth = np.linspace(0, 1, len(curve))
        else:
            depth = np.zeros(1)
        values = np.array([score.value for score in curve.values()])
        low, high = (
            np.array([getattr(score, end) for score in curve.values()])
            for end in ("low", "high")
        )
        ax.fill_between(depth, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(depth, values, color=colour, marker="o", markersize=4, label=label)
        chosen = (committed or {}).get(label)
        if chosen is not None:
            if chosen not in curve:
                raise RequestError(
                    f"layer {chosen!r} of {label!r} has no score; there are {', '.join(curve)}"
                )
            at = list(curve).index(chosen)
            ax.plot(
                [depth[at]],
                [values[at]],
                marker="D",
                markersize=9,
                color=colour,
                markeredgecolor=INK,
            )
    first = next(iter(curves.values()))
    if next(iter(first.values())).ceiling is not None:
        ax.axhline(1.0, color=INK, linewidth=1, linestyle="--", label="ceiling")
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":", label="nothing explained")
    if len(curves) == 1:
        ax.set_xticks(
            np.linspace(0, 1, len(first)) if len(first) > 1 else [0.0],
            list(first),
            rotation=40,
            ha="right",
        )
    else:
        ax.set_xlabel("relative depth (0 first, 1 last layer)")
    legend(ax)
    ax.set_ylabel(next(iter(first.values())).scale.replace("_", " "))
    return finish(
        ax,
        {
            label: {layer: score.value for layer, score in curve.items()}
            for label, curve in curves.items()
        },
    )


def _layer_curve(curve: Mapping[str, Any], ax: Axes) -> Axes:
    """Draw one curve from its plain data."""
    stages = curve["layers"]
    depth = [stage["depth"] for stage in stages]
    twins = [stage["untrained"] for stage in stages]
    ceiling = curve["ceiling"]
    if ceiling is not None:
        low, high = (
            ceiling[end] if ceiling[end] is not None else ceiling["value"]
            for end in ("low", "high")
        )
        ax.axhspan(low, high, color=SOFT, alpha=0.2, linewidth=0, label="ceiling")
        ax.axhline(ceiling["value"], color=SOFT, linewidth=1)
    if all(twin is not None for twin in twins):
        _band(ax, depth, twins, SOFT, "untrained")
    _band(ax, depth, stages, PALETTE[0], "trained" if all(twins) else curve["model"])
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":", label="nothing explained")
    for name, marker in (("committed", "s"), ("chosen", "o")):
        for stage in (stage for stage in stages if stage["layer"] == curve[name]):
            ax.plot(
                [stage["depth"]],
                [stage["value"]],
                marker=marker,
                markersize=11,
                markerfacecolor="none",
                markeredgecolor=INK,
                linestyle="none",
                label=f"{name}: {stage['layer']}",
            )
            if name == "chosen" and curve["nested"] is not None:
                _diamond(ax, stage["depth"] + 0.02, curve["nested"])
    ax.set_xticks(depth, [stage["layer"] for stage in stages], rotation=40, ha="right")
    scale = curve["scale"].replace("_", " ")
    ax.set_ylabel(f"{scale} after the ceiling" if ceiling is not None else scale)
    choice = curve["choice"]
    nested = (
        f"Layer chosen on {choice['chosen_on']} stimuli; diamond: its score on the {choice['scored_on']} others"
        if curve["nested"] is not None
        else "Best layer on all stimuli (optimistic: no stimuli were left to score the choice on)"
    )
    ax.set_title(f"{curve['model']} on {curve['benchmark']}\n{nested}", loc="left")
    legend(ax)
    finish(ax, dict(curve))
    ax.title.set_fontsize(9)
    return ax


def _band(
    ax: Axes,
    depth: list[float],
    marks: list[Mapping[str, float | None]],
    colour: str,
    label: str,
) -> None:
    """Draw values over depth with their intervals."""
    values, low, high = (
        np.array(
            [np.nan if mark[name] is None else mark[name] for mark in marks],
            dtype=np.float64,
        )
        for name in ("value", "low", "high")
    )
    ax.fill_between(depth, low, high, color=colour, alpha=0.18, linewidth=0)
    ax.plot(depth, values, color=colour, marker="o", markersize=4, label=label)


def _diamond(ax: Axes, x: float, nested: Mapping[str, float]) -> None:
    """Draw the score of the choice on other stimuli, with its interval."""
    if nested["low"] is not None and nested["high"] is not None:
        ax.plot([x, x], [nested["low"], nested["high"]], color=INK, linewidth=1)
    ax.plot(
        [x],
        [nested["value"]],
        marker="D",
        markersize=6,
        color=INK,
        linestyle="none",
        label="on other stimuli",
    )


def layer_map(
    scores: Mapping[str, Mapping[str, Score]],
    *,
    committed: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the score of each layer (rows) in each region or benchmark (columns); committed layers are boxed.

    ``scores`` maps a region to the scores of its layers, as returned by :func:`neuroledger.layers`.

    Raises
    ------
    RequestError
        There are no layers, or regions have different layers.

    Examples
    --------
    >>> import neuroledger as nl
    >>> scores = {"conv1": nl.Score(0.2), "conv2": nl.Score(0.4)}
    >>> ax = nl.plot.layer_map({"V4": scores, "IT": scores})
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['V4', 'IT']
    """
    from matplotlib.patches import Rectangle

    names = list(next(iter(scores.values()), {}))
    if not names or any(list(column) != names for column in scores.values()):
        raise RequestError(
            "no map to draw: every region needs scores of the same layers; see neuroledger.layers"
        )
    values = np.array(
        [[scores[region][layer].value for region in scores] for layer in names]
    )
    ax = ax or axes(width=2.6 + 0.8 * len(scores), height=1.6 + 0.34 * len(names))
    image = ax.imshow(values, cmap="viridis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for y, x in np.ndindex(values.shape):
        colour = "white" if values[y, x] < middle else INK
        ax.text(
            x,
            y,
            f"{values[y, x]:.2f}",
            ha="center",
            va="center",
            fontsize=8,
            color=colour,
        )
    for x, region in enumerate(scores):
        layer = (committed or {}).get(region)
        if layer in names:
            box = Rectangle(
                (x - 0.5, names.index(layer) - 0.5),
                1,
                1,
                fill=False,
                edgecolor="white",
                linewidth=2.5,
            )
            ax.add_patch(box)
    ax.set_xticks(range(len(scores)), list(scores))
    ax.set_yticks(range(len(names)), names)
    scale = next(iter(next(iter(scores.values())).values())).scale.replace("_", " ")
    ax.figure.colorbar(image, ax=ax, label=scale, shrink=0.8)
    data = {
        region: {layer: score.value for layer, score in column.items()}
        for region, column in scores.items()
    }
    return finish(ax, data, spines=False)


def time(scores: Score | Mapping[str, Score], *, ax: Axes | None = None) -> Axes:
    """Draw raw scores over time bins: median over neuroids of the mean over splits, with the ceiling of each bin in grey.

    Several scores of one benchmark (by label) are drawn as separate curves. A line below marks the bins of clusters with a
    corrected p value of at most .05. Samples of the time of a model and that of the brain are drawn as a matrix.

    Raises
    ------
    MetricError
        The samples have no time bins.
    RequestError
        There are no scores.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import neuroledger as nl
    >>> bins = {"time_bin_start": ("time_bin", [70, 120]), "time_bin_end": ("time_bin", [120, 170])}
    >>> samples = xr.DataArray([[0.1, 0.2], [0.3, 0.5]], dims=("time_bin", "neuroid"), coords=bins)
    >>> ax = nl.plot.time(nl.Score(0.3, scale="correlation", samples=samples))
    >>> ax.get_xlabel()
    'middle of the time bin [ms]'
    """
    if isinstance(scores, Score):
        curves = {"score": scores}
    else:
        curves = dict(scores)
    if not curves:
        raise RequestError("no score to draw")
    ax = ax or axes(width=6, height=3.6)
    data: dict[str, object] = {}
    first = next(iter(curves.values()))
    if first.samples is not None and "source_bin" in first.samples.dims:
        return _time_matrix(next(iter(curves)), first, ax)
    if (
        first.ceiling is not None
        and first.ceiling.samples is not None
        and "time_bin" in first.ceiling.samples.dims
    ):
        times, values = _time_course(first.ceiling)
        ax.plot(
            times,
            values,
            color=SOFT,
            linewidth=6,
            alpha=0.35,
            solid_capstyle="round",
            label="ceiling",
        )
        data["ceiling"] = values.tolist()
    for i, (label, score) in enumerate(curves.items()):
        times, values = _time_course(score)
        ax.plot(
            times,
            values,
            color=PALETTE[i % len(PALETTE)],
            marker="o",
            markersize=4,
            label=label,
        )
        data[label] = values.tolist()
        data |= _marked_clusters(ax, label, score, i)
    ax.axhline(0.0, color=SOFT, linewidth=1, linestyle=":")
    ax.set_xlabel("middle of the time bin [ms]")
    ax.set_ylabel(f"{first.scale.replace('_', ' ')}, before the ceiling")
    legend(ax)
    return finish(ax, {"time": times.tolist(), **data})


def _marked_clusters(
    ax: Axes, label: str, score: Score, number: int
) -> dict[str, list[float]]:
    """Mark the bins of significant clusters by a line below; return their times, or nothing if none were tested."""
    marked = _in_clusters(score)
    if marked is None:
        return {}
    times, _ = _time_course(score)
    place = np.where(marked, 0.04 * (1 + number), np.nan)
    colour = PALETTE[number % len(PALETTE)]
    ax.plot(times, place, color=colour, linewidth=3, transform=ax.get_xaxis_transform())
    return {f"clusters of {label}": times[marked].tolist()}


def _in_clusters(score: Score) -> Any:
    """Return which time bins are in a cluster with p ≤ .05, (bin,), or None if no clusters were tested."""
    samples = score.samples
    if samples is None or "cluster_p" not in samples.coords:
        return None
    return np.asarray(samples["cluster_p"].values) <= SIGNIFICANT


def _time_matrix(label: str, score: Score, ax: Axes) -> Axes:
    """Draw samples (source_bin, time_bin), with the outline of clusters with p ≤ .05."""
    samples: Any = score.samples
    values = floats(samples.values)
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis")
    marked = _in_clusters(score)
    if marked is not None and marked.any():
        ax.contour(marked.astype(np.float64), levels=[0.5], colors="white")
    ax.set_xlabel("time bin of the brain")
    ax.set_ylabel("time bin of the model")
    figure: Any = ax.get_figure(root=True)
    figure.colorbar(image, ax=ax, label=score.scale.replace("_", " "))
    return finish(ax, {label: values.tolist()}, spines=False)


def _time_course(score: Score) -> tuple[Any, Any]:
    """Middle of each time bin in ms, and the median over neuroids of the mean over splits."""
    samples = score.samples
    if samples is None or "time_bin" not in samples.dims:
        raise MetricError(
            f"score {score.id!r} has no samples over time bins; use a metric with `time: separate`"
        )
    over_splits = (
        samples.mean("split", skipna=True) if "split" in samples.dims else samples
    )
    rest = [dim for dim in over_splits.dims if dim != "time_bin"]
    values = floats(over_splits.median(rest, skipna=True).values)
    if {"time_bin_start", "time_bin_end"} <= set(samples.coords):
        times = (samples["time_bin_start"].values + samples["time_bin_end"].values) / 2
    else:
        times = np.arange(values.size)
    return floats(times), values
