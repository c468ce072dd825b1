"""Figures of scores: two models by neuroid, several models by subject, and neuroids against their ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from neuroledger.data.arrays import floats
from neuroledger.errors import MetricError, RequestError
from neuroledger.report.plots.style import ACCENT, SOFT, axes, finish, legend
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from neuroledger.data.arrays import Floats

__all__ = ["paired", "reliability", "scatter"]


def scatter(
    a: Score | Mapping[str, Score],
    b: Score | None = None,
    *,
    labels: tuple[str, str] = ("first", "second"),
    ax: Axes | None = None,
) -> Axes:
    """Draw two scores of one benchmark against each other by neuroid (or other sample), with the counts on each side.

    ``scatter({"gabor": first, "cnn": second})`` names the models; so do two scores with ``labels``.

    Raises
    ------
    RequestError
        The number of scores is not two.
    MetricError
        A score has no samples, or the samples cannot be paired.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> features = rng.standard_normal((80, 6))
    >>> brain = features @ rng.standard_normal((6, 4)) + rng.standard_normal((80, 4))
    >>> score = nl.metric("ridge")(features, brain)
    >>> other = nl.metric("pls", estimator={"components": 2})(features, brain)
    >>> ax = nl.plot.scatter({"ridge": score, "pls": other})
    >>> ax.get_xlabel()
    'ridge, correlation (higher for 4 of 4)'
    """
    scores = (
        dict(a) if isinstance(a, Mapping) else dict(zip(labels, (a, b), strict=True))
    )
    if len(scores) != 2 or not all(
        isinstance(score, Score) for score in scores.values()
    ):
        raise RequestError(
            f"a scatter needs two scores, not {len(scores)}: {{'model': score, 'other': score}}"
        )
    (first, x_score), (second, y_score) = (
        (name, score) for name, score in scores.items() if score is not None
    )
    x, y = _pairs(_samples(x_score), _samples(y_score))
    ax = ax or axes(width=4.2, height=4.2)
    _diagonal(ax, x, y)
    ax.scatter(
        x,
        y,
        s=18,
        color=ACCENT,
        alpha=0.7,
        linewidths=0,
        zorder=2,
        label=_item(x_score),
    )
    unit = f", {x_score.scale.replace('_', ' ')}"
    ax.set_xlabel(f"{first}{unit} (higher for {int((x > y).sum())} of {len(x)})")
    ax.set_ylabel(f"{second}{unit} (higher for {int((y > x).sum())} of {len(y)})")
    ax.set_aspect("equal")
    legend(ax)
    return finish(ax, {first: x.tolist(), second: y.tolist()})


def paired(
    scores: Mapping[str, Score], *, by: str = "subject", ax: Axes | None = None
) -> Axes:
    """Draw the scores of each subject (or other item) as a line over the labels, and their median as a thick line.

    Raises
    ------
    RequestError
        The number of scores is less than two.
    MetricError
        A score has no samples along ``by``, or the scores share no item.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 30), np.repeat(["a", "b", "c"], 20)
    >>> windows = rng.standard_normal((60, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> pipelines = {"linear": LogisticRegression(), "bayes": GaussianNB()}
    >>> scores = {name: nl.decode(one, windows, labels, groups=people) for name, one in pipelines.items()}
    >>> ax = nl.plot.paired(scores, by="split")
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['linear', 'bayes']
    """
    if len(scores) < 2:
        raise RequestError(
            "a paired figure needs two scores or more: {'model': score, 'other': score}"
        )
    values = [_means_by(label, score, by) for label, score in scores.items()]
    shared = [name for name in values[0] if all(name in items for items in values)]
    if not shared:
        raise MetricError(f"the scores share no {by}: score all on one benchmark")
    table = np.array([[items[name] for items in values] for name in shared])
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
        np.nanmedian(table, axis=0),
        color=ACCENT,
        linewidth=3,
        marker="o",
        label=f"median of {len(shared)}",
    )
    ax.set_xticks(
        range(len(scores)), list(scores), rotation=20 if len(scores) > 3 else 0
    )
    ax.set_xlim(-0.3, len(scores) - 0.7)
    ax.set_ylabel(next(iter(scores.values())).scale.replace("_", " "))
    legend(ax)
    data: dict[str, object] = {"items": shared}
    for i, label in enumerate(scores):
        data[label] = table[:, i].tolist()
    return finish(ax, data)


def reliability(score: Score, *, ax: Axes | None = None) -> Axes:
    """Draw the raw score of each neuroid against its ceiling, to see whether the model or the data limit the score.

    Both are means over splits, on their own scales. The dashed line is the best score that the data allow: the ceiling,
    or its square root if the score is a correlation and the ceiling a split-half reliability.

    Raises
    ------
    MetricError
        The score has no ceiling with samples for the same neuroids.

    Examples
    --------
    >>> import neuroledger as nl
    >>> score = nl.score("pixels16", "Digits.simulated.V4-pls", limit=100)
    >>> ax = nl.plot.reliability(score)
    >>> ax.get_ylabel()
    'score (correlation, before the ceiling)'
    """
    if score.ceiling is None:
        raise MetricError(
            f"score {score.id!r} has no ceiling: choose a benchmark with a ceiling"
        )
    x, y = _pairs(_samples(score.ceiling), _samples(score))
    ax = ax or axes(width=4.2, height=4.2)
    grid = np.linspace(min(0.0, float(x.min())), float(x.max()), 100)
    is_reliability = (
        score.scale == "correlation" and score.ceiling.scale == "reliability"
    )
    best = np.sqrt(np.maximum(grid, 0.0)) if is_reliability else grid
    ax.plot(
        grid,
        best,
        color=SOFT,
        linewidth=1,
        linestyle="--",
        zorder=1,
        label="best that the data allow",
    )
    ax.scatter(
        x, y, s=18, color=ACCENT, alpha=0.7, linewidths=0, zorder=2, label=_item(score)
    )
    ax.set_xlabel(f"ceiling ({score.ceiling.scale.replace('_', ' ')})")
    ax.set_ylabel(f"score ({score.scale.replace('_', ' ')}, before the ceiling)")
    legend(ax)
    return finish(ax, {"ceiling": x.tolist(), "score": y.tolist()})


def _item(score: Score) -> str:
    """Return the label of a point."""
    if score.samples is not None:
        dims = [str(dim) for dim in score.samples.dims if dim != "split"]
    else:
        dims = []
    if dims:
        return f"one {dims[0].replace('_', ' ')}"
    return "one split"


def _means_by(label: str, score: Score, by: str) -> dict[str, float]:
    """Return the mean of the samples of each item along a dimension, by its name."""
    samples = score.samples
    if samples is None or by not in samples.dims:
        if samples is None:
            dims = "none"
        else:
            dims = ", ".join(map(str, samples.dims))
        raise MetricError(
            f"score {label!r} has no samples along {by!r}; its dimensions: {dims}"
        )
    rest = [dim for dim in samples.dims if dim != by]
    means = samples.mean(rest, skipna=True) if rest else samples
    names = samples[by].values if by in samples.coords else range(samples.sizes[by])
    pairs = zip(names, np.asarray(means.values), strict=True)
    return {str(name): float(value) for name, value in pairs}


def _samples(score: Score) -> Floats:
    samples = score.samples
    if samples is None or not samples.dims:
        raise MetricError(f"score {score.id!r} has no samples to plot")
    values = floats(samples.values)
    if "split" in samples.dims and len(samples.dims) > 1:
        values = floats(samples.mean("split", skipna=True).values)
    return values.ravel()


def _pairs(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if x.shape != y.shape:
        raise MetricError(
            f"the samples cannot be paired: {x.size} and {y.size}; score both on one benchmark"
        )
    present = np.isfinite(x) & np.isfinite(y)
    if not present.any():
        raise MetricError(
            "no sample has a value in both scores: score both on one benchmark"
        )
    return x[present], y[present]


def _diagonal(ax: Axes, x: Floats, y: Floats) -> None:
    low = float(min(x.min(), y.min(), 0))
    high = float(max(x.max(), y.max()))
    ends = [low, high]
    ax.plot(ends, ends, color=SOFT, linewidth=1, linestyle="--", zorder=1)
