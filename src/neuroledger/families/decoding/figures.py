"""Figures of decoding: confusion matrices, learning curves, effects over data sets, and scalp maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import floats
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.decoding.results import meta_analysis, statistics
from neuroledger.report.plots.style import INK, PALETTE, SOFT, Panels, axes, finish
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confusion", "forest", "learning_curve", "topography"]


def confusion(score: Score | xr.DataArray, *, ax: Axes | None = None) -> Axes:
    """Draw a confusion matrix: the share of predictions of each class, in percent of the true class.

    Takes a score with predictions (of `nl.decode` or a decoding benchmark), or the predictions.

    Raises
    ------
    MetricError
        There are no predictions, or they are not classes.

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
    >>> ax = nl.plot.confusion(scores["linear"])
    >>> ax.get_xlabel()
    'predicted'
    """
    predictions = score.predictions if isinstance(score, Score) else score
    if not isinstance(predictions, xr.DataArray) or "truth" not in predictions.coords:
        raise MetricError(
            "the score has no predictions with their truth to draw; decode classes with nl.decode"
        )
    predicted, truth = _classes(predictions)
    names = np.unique(np.concatenate([truth, predicted]))
    counts = np.zeros((len(names), len(names)))
    np.add.at(
        counts, (np.searchsorted(names, truth), np.searchsorted(names, predicted)), 1
    )
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    ax = ax or axes(width=2.2 + 0.55 * len(names), height=1.8 + 0.5 * len(names))
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    for y, x in np.ndindex(shares.shape):
        colour = "white" if shares[y, x] > 60 else INK
        ax.text(
            x,
            y,
            f"{shares[y, x]:.0f}",
            ha="center",
            va="center",
            fontsize=9,
            color=colour,
        )
    ax.set_xticks(range(len(names)), names.astype(str), rotation=30, ha="right")
    ax.set_yticks(range(len(names)), names.astype(str))
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    ax.figure.colorbar(image, ax=ax, label="% of the true class", shrink=0.8)
    return finish(
        ax, {"classes": names.tolist(), "percent": shares.tolist()}, spines=False
    )


def _classes(predictions: xr.DataArray) -> tuple[Any, Any]:
    """Predicted and true classes; from scores of classes, the class with the highest score."""
    truth = np.asarray(predictions["truth"].values)
    class_dims = [
        dim for dim in predictions.dims if dim not in predictions["truth"].dims
    ]
    if not class_dims:
        predicted = np.asarray(predictions.values)
    elif len(class_dims) == 1 and class_dims[0] in predictions.coords:
        predicted = np.asarray(predictions[class_dims[0]].values)[
            np.asarray(predictions.argmax(str(class_dims[0])).values)
        ]
    else:
        raise MetricError(
            f"predictions have dimensions {predictions.dims}; classes are needed along one of them"
        )
    if predicted.dtype.kind == "f" or truth.dtype.kind == "f":
        raise MetricError(
            "the predictions are numbers, not classes: a confusion matrix cannot be drawn"
        )
    return predicted.astype(str), truth.astype(str)


def learning_curve(results: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the mean score and its standard error over subjects by the number of training windows, for each pipeline.

    Takes the table (`nl.decoding.table`) of a decoding with the rule `learning_curve`.

    Raises
    ------
    RequestError
        The table has only one size of the training part.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 60), np.repeat(["a", "b", "c"], 40)
    >>> windows = rng.standard_normal((120, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> facts = {"subject": people, "session": np.tile(np.repeat(["1", "2"], 20), 3)}
    >>> rule = {"name": "learning_curve", "sizes": [0.5, 1.0], "permutations": 1}
    >>> score = nl.decode(LogisticRegression(), windows, labels, groups=facts, train="each", splits=rule)
    >>> ax = nl.plot.learning_curve(nl.decoding.table(score))
    >>> ax.get_xlabel()
    'training windows'
    """
    people = (
        results.groupby(["pipeline", "samples", "subject"])["score"]
        .mean()
        .reset_index()
    )
    if people["samples"].nunique() < 2:
        raise RequestError(
            "the table has one size of the training part: decode with the rule `learning_curve`"
        )
    ax = ax or axes()
    curves: dict[str, Any] = {}
    for colour, (name, part) in zip(
        PALETTE * 9, people.groupby("pipeline"), strict=False
    ):
        scores = part.groupby("samples")["score"]
        mean = scores.mean()
        error = scores.sem().fillna(0)
        ax.plot(
            mean.index, mean, marker="o", markersize=4, color=colour, label=str(name)
        )
        ax.fill_between(
            mean.index,
            mean - error,
            mean + error,
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        curves[str(name)] = {
            "samples": mean.index.tolist(),
            "score": mean.tolist(),
            "error": error.tolist(),
        }
    ax.set_xlabel("training windows")
    ax.set_ylabel("score")
    ax.legend(frameon=False, fontsize=9)
    return finish(ax, curves)


def forest(
    results: pd.DataFrame, better: str, than: str, *, ax: Axes | None = None
) -> Axes:
    """Draw the effect of one pipeline over another on each data set, with its 95 % interval, and over all of them.

    An effect is the mean difference in standard deviations over subjects; its interval uses the variance
    1/n + effect²/2n. The p-value of each row is one-sided (`nl.decoding.statistics`, `nl.decoding.meta_analysis`).

    Raises
    ------
    RequestError
        The two pipelines are not in the table.

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
    >>> results = nl.decoding.table(scores)
    >>> ax = nl.plot.forest(results, "linear", "bayes")
    >>> ax.get_xlabel()
    'effect of linear over bayes, standard deviations'
    """

    def of(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["pipe1"] == better) & (frame["pipe2"] == than)]

    by_dataset = of(statistics(results))
    pooled = of(meta_analysis(results))
    if by_dataset.empty:
        raise RequestError(f"no data set has both {better!r} and {than!r}")
    effect = by_dataset["smd"].to_numpy()
    people = by_dataset["nsub"].to_numpy()
    half = 1.96 * np.sqrt(1 / people + effect**2 / (2 * people))
    weights = np.sqrt(people) / np.sqrt(people).sum()
    middle = float(pooled["smd"].iloc[0])
    width = float(np.sqrt(weights**2 @ half**2))
    ax = ax or axes(height=1.2 + 0.35 * len(by_dataset))
    place = np.arange(len(by_dataset), 0, -1)
    ax.errorbar(
        effect, place, xerr=half, fmt="s", color=PALETTE[0], markersize=5, capsize=2
    )
    ax.errorbar(
        [middle], [0], xerr=[width], fmt="D", color=INK, markersize=6, capsize=2
    )
    ax.axvline(0, color=SOFT, linewidth=0.8)
    p = [*by_dataset["p"], pooled["p"].iloc[0]]
    names = [
        *(
            f"{name} ({count})"
            for name, count in zip(by_dataset["dataset"], people, strict=True)
        ),
        "all",
    ]
    ax.set_yticks(
        [*place, 0],
        [f"{name}  p {value:.2g}" for name, value in zip(names, p, strict=True)],
    )
    ax.set_xlabel(f"effect of {better} over {than}, standard deviations")
    interval = [
        [float(e - h), float(e + h)]
        for e, h in zip([*effect, middle], [*half, width], strict=True)
    ]
    return finish(
        ax,
        {
            "rows": names,
            "smd": [*effect.tolist(), middle],
            "interval": interval,
            "p": p,
        },
    )


def topography(values: Any, positions: Any, *, titles: tuple[str, ...] = ()) -> Panels:
    """Draw scalp maps of channel values, seen from above, one for each row, on one colour scale.

    Parameters
    ----------
    values
        (channel,) or (map, channel), such as `nl.decoding.patterns(...)` at a sample.
    positions
        (channel, 3) in metres, head frame (`x` to the right, `y` to the front), or (channel, 2).

    Raises
    ------
    RequestError
        Fewer than four channels have a position, or the numbers of values and positions differ.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> angles = np.arange(8) * np.pi / 4
    >>> panels = nl.plot.topography(np.cos(angles), 0.08 * np.column_stack([np.cos(angles), np.sin(angles)]))
    >>> len(panels)
    1
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle
    from scipy.interpolate import RBFInterpolator

    maps = np.atleast_2d(floats(values))
    places = floats(positions)
    if places.ndim != 2 or maps.shape[1] != len(places):
        raise RequestError(
            f"topography: {maps.shape[1]} values for {len(places)} positions of channels"
        )
    if places.shape[1] == 3:
        # Azimuthal projection: the angle from the vertex becomes the distance from the centre; ears are at the rim.
        lifted = places - np.nanmean(places, axis=0) * [1, 1, 0]
        angle = np.arctan2(np.hypot(lifted[:, 0], lifted[:, 1]), lifted[:, 2])
        places = (angle / (np.pi / 2) / np.hypot(*lifted[:, :2].T).clip(1e-9))[
            :, None
        ] * lifted[:, :2]
    located = np.isfinite(places).all(axis=1)
    if located.sum() < 4:
        raise RequestError(
            f"topography: {int(located.sum())} channels have a position; a map needs four"
        )
    places, maps = places[located], maps[:, located]
    rim = max(1.0, float(np.hypot(*places.T).max()))
    grid = np.stack(np.meshgrid(*[np.linspace(-rim, rim, 64)] * 2), axis=-1)
    inside = np.hypot(*np.moveaxis(grid, -1, 0)) <= rim
    limit = float(np.abs(maps).max()) or 1.0
    figure = Figure(figsize=(2.4 * len(maps) + 0.8, 2.6), layout="constrained")
    panels = []
    image = None
    for number, row in enumerate(maps, 1):
        ax: Axes = figure.add_subplot(1, len(maps), number)
        surface = np.full(inside.shape, np.nan)
        surface[inside] = RBFInterpolator(places, row, kernel="thin_plate_spline")(
            grid[inside]
        )
        image = ax.imshow(
            surface,
            origin="lower",
            extent=(-rim, rim, -rim, rim),
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        ax.scatter(places[:, 0], places[:, 1], s=6, color=INK)
        ax.add_patch(Circle((0, 0), rim, fill=False, color=INK, linewidth=1))
        ax.plot(
            [-0.08 * rim, 0, 0.08 * rim], [rim, 1.1 * rim, rim], color=INK, linewidth=1
        )
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_title(titles[number - 1] if number <= len(titles) else "")
        panels.append(
            finish(
                ax, {"values": row.tolist(), "places": places.tolist()}, spines=False
            )
        )
    figure.colorbar(image, ax=panels, shrink=0.8)  # type: ignore[arg-type]
    return Panels(panels)
