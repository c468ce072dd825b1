"""Decoding scores: predictions on held-out windows against the truth, with an interval over subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy.special import ndtri, stdtrit

from neuroledger.data.arrays import Array, Floats
from neuroledger.errors import MetricError
from neuroledger.families.decoding.metrics.decoding_measures import MEASURES, Measure, Rows
from neuroledger.spec.registry import metric

__all__ = ["decoding"]


FEW_CLUSTERS = 6
MOST_CLUSTERS = 1000
BOUNDS = {
    "rmse": (0.0, np.inf),
    "mae": (0.0, np.inf),
    "binned_mae": (0.0, np.inf),
    "r2": (-np.inf, 1.0),
    "pearson_r": (-1.0, 1.0),
    "word_error_rate": (0.0, np.inf),
}
LABELLED = ("accuracy", "balanced_accuracy", "macro_f1", "auroc")


@metric("decoding", version=3, input="predictions")
def decoding(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    measure: Literal[
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "auroc",
        "pearson_r",
        "rmse",
        "r2",
        "mae",
        "binned_mae",
        "retrieval",
        "word_error_rate",
    ] = "balanced_accuracy",
    per: Literal["window", "recording", "subject"] = "window",
    cluster: str = "subject",
    pool: bool = False,
    resamples: int = 1000,
    k: int | None = None,
    symbols: Literal["word", "character"] | None = None,
    edges: tuple[float, ...] | None = None,
) -> xr.DataArray:
    r"""One value per training seed and split, (seed, split); the formula is that of the `measure`.

    Parameters
    ----------
    source
        Predictions: (presentation,), or (presentation, choice) scores, or (presentation, neuroid) embeddings; in
        the order of `target`, with coordinates `seed`, `split`, `subject` and `recording` where there are several.
    target
        The truth, of the same rows.
    per
        What is scored: every window, or one answer per recording or subject. The latter is the share of windows
        that voted for each choice, or the mean of the predicted numbers.
    cluster
        The coordinate that is resampled for the interval: what was drawn independently, subjects as a rule.
    pool
        Score all splits of a seed together, not each and then their mean: needed where a split tests one class.
    resamples, k, symbols, edges
        Bootstrap resamples; candidates that count as a hit (retrieval); what an error rate counts; bins of the truth.

    Returns
    -------
    xr.DataArray
        attrs["replicates"] (resample,): the mean over splits and seeds when clusters are drawn with replacement,
        spread about the value by :math:`\sqrt{n/(n-1)}\, t_{0.975,n-1}/z_{0.975}`, which makes the percentile
        interval of few clusters as wide as Student's [hesterberg2015], and with :math:`K > 1` splits by
        :math:`\sqrt{1 + K/(K-1)}` more: what their folds learn, they learn from the same data, so that the mean over
        folds varies more than the folds tell [nadeau2003]. A split counts in a resample as often as its clusters do.
        attrs["draws"] (draw,): the replicates before they are kept within bounds, for models that are compared: their
        clusters are drawn alike. attrs["clusters"] (cluster,): each cluster's own value, mean over splits and seeds, up to
        1,000 of them; NaN where a cluster alone has none.
        attrs["notes"]: the unit, the cluster and their numbers.

    Raises
    ------
    MetricError
        if rows do not match, predictions are not finite, or the truth varies within a unit.
    """
    rows, seeds, splits, clusters = _units(source, target, per, cluster, measure)
    options = {
        name: value for name, value in (("k", k), ("symbols", symbols), ("edges", edges)) if value is not None
    }
    folds = len(np.unique(splits))
    if pool:
        splits = np.zeros(len(splits), dtype=int)
    cells = {
        (seed, split): np.flatnonzero((seeds == seed) & (splits == split))
        for seed in np.unique(seeds)
        for split in np.unique(splits[seeds == seed])
    }
    scorers = {cell: MEASURES[measure](_take(rows, at), **options) for cell, at in cells.items()}
    seed_names, split_names = np.unique(seeds), np.unique(splits)
    values = np.full((len(seed_names), len(split_names)), np.nan)
    for (seed, split), at in cells.items():
        place = np.searchsorted(seed_names, seed), np.searchsorted(split_names, split)
        values[place] = scorers[seed, split](np.ones(len(at)))
    constant = _constant(rows, cells, scorers) if measure == "pearson_r" else []
    for seed, split in constant if np.isfinite(values).any() else []:
        values[np.searchsorted(seed_names, seed), np.searchsorted(split_names, split)] = 0.0
        scorers[seed, split] = lambda weights: 0.0
    samples = xr.DataArray(values, dims=("seed", "split"), coords={"seed": seed_names, "split": split_names})
    names = np.unique(clusters)
    samples.attrs["notes"] = _notes(per, cluster, len(names), folds) + _undefined(values, len(constant))
    samples.attrs["n"] = {"windows": _windows(source), cluster: len(names)}
    samples.attrs["replicates"] = np.empty(0)
    samples.attrs["predictions"] = _predictions(source, target)
    if len(names) > 1 and np.isfinite(values).any(axis=1).all():
        raw = _resample(cells, scorers, clusters, names, resamples, rng)
        spread = np.sqrt(len(names) / (len(names) - 1)) * stdtrit(len(names) - 1, 0.975) / ndtri(0.975)
        spread *= np.sqrt(1 + folds / (folds - 1)) if folds > 1 else 1.0
        value = float(np.nanmean(values, axis=1).mean())
        drawn = value + spread * (raw - value)
        samples.attrs["replicates"] = np.clip(drawn, *BOUNDS.get(measure, (0.0, 1.0)))
        samples.attrs["draws"] = xr.DataArray(drawn, dims=("draw",))
        samples.attrs["clusters"] = _of_each(cells, scorers, clusters, names)
    return samples


def _of_each(
    cells: dict[tuple[Any, Any], Array],
    scorers: dict[tuple[Any, Any], Measure],
    clusters: Array,
    names: Array,
) -> xr.DataArray:
    """The measure on the rows of each cluster alone, (cluster,)."""
    names = names if len(names) <= MOST_CLUSTERS else names[:0]
    found: dict[str, list[float]] = {str(name): [] for name in names}
    for cell, at in cells.items():
        for name in np.unique(clusters[at]) if found else ():
            found[str(name)].append(scorers[cell]((clusters[at] == name).astype(float)))
    values = np.array([np.mean(each) for each in found.values()])
    return xr.DataArray(values, dims=("cluster",), coords={"cluster": np.array(list(found), dtype=str)})


def _constant(
    rows: Rows, cells: dict[tuple[Any, Any], Array], scorers: dict[tuple[Any, Any], Measure]
) -> list[tuple[Any, Any]]:
    """The seeds and splits whose truth varies and that have no correlation all the same."""
    truth = np.asarray(rows.truth, dtype=float).reshape(len(rows.truth), -1)
    return [
        cell
        for cell, at in cells.items()
        if (np.ptp(truth[at], axis=0) > 0).all() and not np.isfinite(scorers[cell](np.ones(len(at))))
    ]


def _undefined(values: Floats, constant: int) -> list[str]:
    """What a reader must know of splits that have no value of their own."""
    lost = int((~np.isfinite(values)).sum())
    if lost == values.size:
        why = f"{constant} predict a constant" if constant else "what each tests must vary"
        return [f"none of {lost} trainings has a score: {why}"]
    notes = [f"{lost} of {values.size} trainings have no score, since what they test does not vary: left out"]
    said = f"{constant} of {values.size} trainings predict a constant, which has no correlation: counted as 0"
    return (notes if lost else []) + ([said] if constant else [])


def _resample(
    cells: dict[tuple[Any, Any], Array],
    scorers: dict[tuple[Any, Any], Measure],
    clusters: Array,
    names: Array,
    resamples: int,
    rng: np.random.Generator,
) -> Floats:
    """The mean over splits and seeds of every resample of the clusters, (resample,); undefined ones are left out."""
    codes = np.searchsorted(names, clusters)
    draws = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples).astype(float)
    scores = np.empty((resamples, len(cells)))
    shares = np.empty_like(scores)
    for column, (cell, at) in enumerate(cells.items()):
        present = np.unique(codes[at])
        of_row = codes[at]
        scores[:, column] = [scorers[cell](draw[of_row]) if draw[present].any() else np.nan for draw in draws]
        shares[:, column] = draws[:, present].mean(axis=1)
    shares = np.where(np.isfinite(scores), shares, 0.0)
    total = shares.sum(axis=1)
    defined = total > 0
    mean: Floats = (np.where(np.isfinite(scores), scores, 0.0) * shares).sum(axis=1)[defined] / total[defined]
    return mean


def _units(
    source: xr.DataArray, target: xr.DataArray, unit: str, cluster: str, measure: str
) -> tuple[Rows, Array, Array, Array]:
    """What is scored, with the seed, split and cluster of each row."""
    count = target.sizes["presentation"]
    if source.sizes.get("presentation") != count:
        raise MetricError(f"{source.sizes.get('presentation')} predictions for {count} presentations")
    answer, truth = np.asarray(source.values), np.asarray(target.values)
    if answer.dtype.kind in "fc" and not np.isfinite(answer).all():
        raise MetricError(
            f"{int((~np.isfinite(answer)).sum())} predictions are not finite: the model diverged"
        )
    choices = np.asarray(source["choice"].values).astype(str) if "choice" in source.dims else None
    subject, stimulus = _along(target, "subject", count), _along(target, "stimulus_id", count)
    seeds, splits = _along(source, "seed", count, 0), _along(source, "split", count, 0)
    clusters = _along(target if cluster in target.coords else source, cluster, count)
    if unit == "window":
        return Rows(truth, answer, choices, subject, stimulus), seeds, splits, clusters
    groups = np.stack([seeds.astype(str), splits.astype(str), subject, _along(target, unit, count)], axis=1)
    _, first, group = np.unique(groups, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    if measure in LABELLED and truth.ndim == 1:
        truth = truth.astype(str)
        if (truth != truth[first][group]).any():
            raise MetricError(f"the truth varies within a {unit}: score windows, or choose another unit")
        truth = truth[first]
        labels = Rows(truth, answer, choices, subject, stimulus).labels
        choices = np.unique(labels) if choices is None else choices
        votes = (labels[:, None] == choices).astype(float)
    else:
        votes, truth = answer, _mean_of(truth.astype(float), group)
    return (
        Rows(truth, _mean_of(votes.astype(float), group), choices, subject[first], stimulus[first]),
        seeds[first],
        splits[first],
        clusters[first],
    )


def _windows(source: xr.DataArray) -> int:
    """How many different windows were tested; each is predicted once per training seed."""
    return len(np.unique(source["row"].values)) if "row" in source.coords else source.sizes["presentation"]


def _take(rows: Rows, at: Array) -> Rows:
    return replace(
        rows,
        truth=rows.truth[at],
        answer=rows.answer[at],
        subject=rows.subject[at],
        stimulus=rows.stimulus[at],
    )


def _mean_of(values: Array, group: Array) -> Array:
    total = np.zeros((int(group.max()) + 1, *values.shape[1:]))
    np.add.at(total, group, values)
    return total / np.bincount(group).reshape(-1, *([1] * (values.ndim - 1)))


def _along(array: xr.DataArray, name: str, count: int, default: Any = None) -> Array:
    """A coordinate of the presentations; texts unless a default says that it may be missing."""
    if name in array.coords and array[name].dims == ("presentation",):
        values = np.asarray(array[name].values)
        return values if default is not None else values.astype(str)
    if name in array.coords and array[name].ndim == 0:
        return np.full(count, array[name].item() if default is not None else str(array[name].item()))
    if default is not None:
        return np.full(count, default)
    if name in ("subject", "stimulus_id", "recording"):
        return np.full(count, "1")
    raise MetricError(f"no coordinate {name!r} on the presentations: name one that was drawn independently")


def _notes(unit: str, cluster: str, clusters: int, folds: int) -> list[str]:
    scored = {
        "window": "every window is scored",
        "recording": "one answer per recording",
        "subject": "one answer per subject",
    }
    if clusters < 2:
        return [f"{scored[unit]}; no interval: all rows have one {cluster}"]
    few = ", too few to trust its ends" if clusters < FEW_CLUSTERS else ""
    shared = f", widened because {folds} folds learn from the same data" if folds > 1 else ""
    return [f"{scored[unit]}; interval over {clusters} values of {cluster}{shared}{few}"]


def _predictions(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """The predictions with the truth beside them."""
    truth = (target.dims, np.asarray(target.values))
    if target.dims == ("presentation",):
        return source.assign_coords(truth=truth)
    return source
