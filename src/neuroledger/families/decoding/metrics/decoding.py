"""Decoding scores: predictions on held-out windows against the truth, with an interval over subjects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.decoding import examples
from neuroledger.families.decoding.metrics.decoding_measures import (
    MEASURES,
    Measure,
    Rows,
)
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, NotKnown, Samples, Variation
from neuroledger.stats.variation import held_out_deviation

__all__ = [
    "Cell",
    "along",
    "cells_of",
    "decoding",
    "folds_together",
    "inflation_of_folds",
    "scored",
    "variation_of",
]


# With fewer clusters, a note says that the interval has few degrees of freedom.
FEW_CLUSTERS = 6
# A recall of fewer rows counts as one of so many where one more right answer is considered.
FEWEST = 3
SINGLE_LABEL = ("accuracy", "balanced_accuracy", "auroc", "cohen_kappa")
LABELLED = (*SINGLE_LABEL, "macro_f1")
# Shares of outcomes, to which one more outcome can be added.
SHARES = ("accuracy", "balanced_accuracy", "auroc", "macro_f1", "retrieval")
# The range of measures that have one.
BOUNDED = {
    "pearson_r": (-1.0, 1.0),
    "cohen_kappa": (-1.0, 1.0),
    **dict.fromkeys(SHARES, (0.0, 1.0)),
}


@metric("decoding", version=13, input="predictions", example=examples.of_measure)
def decoding(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Literal[
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "cohen_kappa",
        "auroc",
        "pearson_r",
        "rmse",
        "r2",
        "mae",
        "binned_mae",
        "bits_per_spike",
        "retrieval",
        "word_error_rate",
    ] = "balanced_accuracy",
    per: Literal["window", "recording", "subject"] = "window",
    cluster: str = "subject",
    pool: bool = False,
    k: int | None = None,
    symbols: Literal["word", "character"] | None = None,
    edges: tuple[float, ...] | None = None,
) -> Samples:
    r"""Score predictions: one value of the `measure` per training seed and split, (seed, split).

    Parameters
    ----------
    source
        Predictions: (presentation,), or (presentation, choice) scores, or (presentation, neuroid) embeddings; in
        the order of `target`, with coordinates `seed`, `split`, `subject` and `recording` if there are several.
    target
        The true values of the same rows.
    per
        The scored unit: every window, or one prediction per recording or subject. The latter is the share of windows
        that voted for each choice, or the mean of the predicted numbers.
    cluster
        The coordinate whose values are left out for the interval: the unit of independent sampling, usually the subject.
    pool
        Score all splits of a seed together instead of averaging their scores; needed if a split tests only one class.
    k, symbols, edges
        Number of candidates that count as a hit (retrieval); unit of an error rate; bins of the true values.

    Returns
    -------
    Samples
        Clusters are left out of the tested windows, and the decoders stay. Folds that train on each other's clusters are
        correlated, so the variance is multiplied by 1 + J·n₂/n₁ [nadeau2003]. If several clusters are asked for the same
        stimuli, retrieval also depends on these.

    Raises
    ------
    MetricError
        The rows do not match, predictions are not finite, or the true values vary within a unit.
    """
    rows, seeds, splits, clusters = _units(source, target, per, cluster, measure)
    options = {
        name: value
        for name, value in (("k", k), ("symbols", symbols), ("edges", edges))
        if value is not None
    }
    folds = folds_together(source, splits, cluster)
    if pool:
        splits = np.zeros(len(splits), dtype=int)
    cells = cells_of(seeds, splits)
    scorers = {
        cell: MEASURES[measure](_take(rows, at), **options)
        for cell, at in cells.items()
    }
    samples = scored(scorers, cells)
    values = samples.values
    constant = _constant(rows, cells, scorers) if measure == "pearson_r" else []
    for seed, split in constant if np.isfinite(values).any() else []:
        samples.loc[{"seed": seed, "split": split}] = 0.0
        scorers[seed, split] = lambda weights: 0.0
    names = np.unique(clusters)
    variation: Variation | NotKnown
    if len(names) > 1 and np.isfinite(values).any(axis=1).all():
        items = {cluster: clusters}
        if measure == "retrieval" and _asked_of_several(rows, clusters):
            items["stimulus"] = rows.stimulus
        inflated = {
            cluster: inflation_of_folds(source, splits, clusters, folds, pool),
            "stimulus": 1.0,
        }
        variation = variation_of(
            samples, cells, scorers, items, {name: inflated[name] for name in items}
        )
    else:
        variation = NotKnown(f"all rows have one {cluster}")
    return Samples(
        samples,
        variation,
        limits=BOUNDED.get(measure),
        outcome=_step(measure, rows, samples.sizes["seed"])
        if measure in SHARES
        else 0.0,
        counts={"windows": _windows(source), cluster: len(names)},
        notes=_notes(per, cluster, len(names), folds)
        + _undefined(values, len(constant)),
        predictions=_predictions(source, target),
    )


# A seed and a split.
Cell = tuple[int, int]


def cells_of(seeds: Array, splits: Array) -> dict[Cell, Array]:
    """Return the rows of each seed and split."""
    return {
        (seed, split): np.flatnonzero((seeds == seed) & (splits == split))
        for seed in np.unique(seeds)
        for split in np.unique(splits[seeds == seed])
    }


def scored(
    scorers: Mapping[Cell, Measure], cells: Mapping[Cell, Array]
) -> xr.DataArray:
    """The value of each seed and split, (seed, split); not a number for a split that a seed does not have."""
    seeds = np.unique([seed for seed, _ in cells])
    splits = np.unique([split for _, split in cells])
    values = np.full((len(seeds), len(splits)), np.nan)
    for (seed, split), rows in cells.items():
        place = np.searchsorted(seeds, seed), np.searchsorted(splits, split)
        values[place] = scorers[seed, split](np.ones(len(rows)))
    return xr.DataArray(
        values, dims=("seed", "split"), coords={"seed": seeds, "split": splits}
    )


def variation_of(
    samples: xr.DataArray,
    cells: Mapping[Cell, Array],
    scorers: Mapping[Cell, Measure],
    items: Mapping[str, Array],
    inflated: Mapping[str, float],
) -> Variation:
    """Return how the measure of each seed and split changes without tested items; the decoders stay.

    Parameters
    ----------
    cells, scorers
        Rows of each seed and split, and its measure as a function of their weights.
    items
        For each factor, the item of each row.
    inflated
        Factor of the variance for what folds learn from the same data, by factor.
    """
    places = {name: list(samples[name].values.tolist()) for name in samples.dims}

    def without(keep: Keep) -> xr.DataArray:
        moved = samples.values.copy()
        for (seed, split), at in cells.items():
            place = places["seed"].index(seed), places["split"].index(split)
            kept = np.logical_and.reduce([rows[at] for rows in keep.values()])
            left_out = [
                1 - len(set(items[name][at][kept])) / len(set(items[name][at]))
                for name in keep
            ]
            share = max(left_out)
            if (
                share == 1
            ):  # the split has no other items, so that the mean is that of other splits
                moved[place] = np.nanmean(samples.values[place[0]])
            elif share > 0:
                moved[place] = held_out_deviation(
                    moved[place], scorers[seed, split](kept.astype(float)), share
                )
        return samples.copy(data=moved)

    return Variation(items, without, inflation=inflated)


def _asked_of_several(rows: Rows, clusters: Array) -> bool:
    """Whether there are several stimuli, and at least one is asked of several clusters."""
    pairs = set(
        zip(
            rows.stimulus.astype(str).tolist(),
            clusters.astype(str).tolist(),
            strict=True,
        )
    )
    return 1 < len(set(rows.stimulus.astype(str).tolist())) < len(pairs)


def inflation_of_folds(
    source: xr.DataArray, splits: Array, clusters: Array, folds: int, pool: bool
) -> float:
    """Return 1 + J·n₂/n₁ for J folds that train on the same data, with n₂ tested and n₁ trained clusters [nadeau2003].

    The trained clusters of a fold are those that other folds of its decoder test. Without such folds it is 1: the claim
    is about these decoders.
    """
    if folds < 2 or pool:
        return 1.0
    decoders = (
        along(source, "decoder", len(splits), "")
        if len(splits) == source.sizes["presentation"]
        else None
    )
    owners = np.full(len(splits), "") if decoders is None else decoders
    terms = []
    for owner in np.unique(owners):
        own = owners == owner
        count = len(np.unique(clusters[own]))
        tested = np.mean(
            [
                len(np.unique(clusters[own & (splits == name)]))
                for name in np.unique(splits[own])
            ]
        )
        if count > tested:
            terms.append(len(np.unique(splits[own])) * tested / (count - tested))
    if terms:
        return 1 + float(np.mean(terms))
    return 1.0


def folds_together(source: xr.DataArray, splits: Array, cluster: str) -> int:
    """The number of folds that train on the same data; with one decoder per subject, only folds of one subject do."""
    if "decoder" not in source.coords:
        return len(np.unique(splits))
    if cluster == "subject":
        return 1
    owners = np.asarray(source["decoder"].values)
    numbers = np.asarray(source["split"].values)
    return max(len(np.unique(numbers[owners == owner])) for owner in np.unique(owners))


def _step(measure: str, rows: Rows, seeds: int) -> float:
    """The change of the score by one more right answer of the class with the fewest rows; 0 for several labels of a row."""
    if measure in ("accuracy", "retrieval"):
        return seeds / len(rows.truth)
    if rows.truth.ndim > 1:
        return 0.0
    sizes = np.unique(as_text(rows.truth), return_counts=True)[1] / seeds
    # A recall of one or two rows says nothing, and its class does not weigh more than another.
    return float(1 / (len(sizes) * max(sizes.min(), FEWEST)))


def _constant(
    rows: Rows,
    cells: dict[Cell, Array],
    scorers: dict[Cell, Measure],
) -> list[Cell]:
    """The seeds and splits with an undefined correlation although the true values vary."""
    truth = np.asarray(rows.truth, dtype=float).reshape(len(rows.truth), -1)
    return [
        cell
        for cell, at in cells.items()
        if (np.ptp(truth[at], axis=0) > 0).all()
        and not np.isfinite(scorers[cell](np.ones(len(at))))
    ]


def _undefined(values: Floats, constant: int) -> list[str]:
    """Notes about splits without a score of their own."""
    missing = int((~np.isfinite(values)).sum())
    if missing == values.size:
        reason = (
            f"{constant} predict a constant"
            if constant
            else "what each tests must vary"
        )
        return [f"none of {missing} trainings has a score: {reason}"]
    notes = [
        f"{missing} of {values.size} trainings have no score, since what they test does not vary: left out"
    ]
    note = f"{constant} of {values.size} trainings predict a constant, which has no correlation: counted as 0"
    return (notes if missing else []) + ([note] if constant else [])


def _units(
    source: xr.DataArray, target: xr.DataArray, unit: str, cluster: str, measure: str
) -> tuple[Rows, Array, Array, Array]:
    """The scored units, with the seed, split and cluster of each."""
    require_same_rows(source, target)
    count = target.sizes["presentation"]
    answer = np.asarray(source.values)
    truth = np.asarray(target.values)
    if answer.dtype.kind in "fc" and not np.isfinite(answer).all():
        raise MetricError(
            f"{int((~np.isfinite(answer)).sum())} predictions are not finite: the model diverged"
        )
    if truth.ndim > 1 and measure in SINGLE_LABEL:
        raise MetricError(
            f"{measure} needs one true label for each row, and the truth has {truth.shape[1]}; macro_f1 scores several"
        )
    choices = as_text(source["choice"].values) if "choice" in source.dims else None
    subject = along(target, "subject", count)
    stimulus = along(target, "stimulus_id", count)
    seeds = along(source, "seed", count, 0)
    splits = along(source, "split", count, 0)
    clusters = along(target if cluster in target.coords else source, cluster, count)
    if unit == "window":
        return Rows(truth, answer, choices, subject, stimulus), seeds, splits, clusters
    groups = np.stack(
        [seeds.astype(str), splits.astype(str), subject, along(target, unit, count)],
        axis=1,
    )
    _, first, group = np.unique(groups, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    if measure in LABELLED and truth.ndim == 1:
        truth = as_text(truth)
        if (truth != truth[first][group]).any():
            raise MetricError(
                f"the truth varies within a {unit}: score windows, or choose another unit"
            )
        truth = truth[first]
        labels = Rows(truth, answer, choices, subject, stimulus).labels
        if choices is None:
            choices = np.unique(labels)
        votes = (labels[:, None] == choices).astype(float)
    else:
        votes = answer
        truth = _mean_of(truth.astype(float), group)
    return (
        Rows(
            truth,
            _mean_of(votes.astype(float), group),
            choices,
            subject[first],
            stimulus[first],
        ),
        seeds[first],
        splits[first],
        clusters[first],
    )


def _windows(source: xr.DataArray) -> int:
    """The number of distinct tested windows; each is predicted once per training seed."""
    if "row" in source.coords:
        return len(np.unique(source["row"].values))
    return source.sizes["presentation"]


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


def along(
    array: xr.DataArray, name: str, count: int, default: str | float | None = None
) -> Array:
    """A coordinate of the presentations, as text unless a default is given for a missing one."""
    if name in array.coords and array[name].dims == ("presentation",):
        values = np.asarray(array[name].values)
        if default is not None:
            return values
        return values.astype(str)
    if name in array.coords and array[name].ndim == 0:
        return np.full(
            count,
            array[name].item() if default is not None else str(array[name].item()),
        )
    if default is not None:
        return np.full(count, default)
    if name in ("subject", "stimulus_id", "recording"):
        return np.full(count, "1")
    raise MetricError(
        f"no coordinate {name!r} on the presentations: name one that was drawn independently"
    )


def _notes(unit: str, cluster: str, clusters: int, folds: int) -> list[str]:
    scored = {
        "window": "every window is scored",
        "recording": "one answer per recording",
        "subject": "one answer per subject",
    }
    if clusters < 2:
        return [f"{scored[unit]}; no interval: all rows have one {cluster}"]
    few = ", too few to trust its ends" if clusters < FEW_CLUSTERS else ""
    shared = (
        f", widened because {folds} folds learn from the same data" if folds > 1 else ""
    )
    return [
        f"{scored[unit]}; interval over {clusters} values of {cluster}{shared}{few}"
    ]


def _predictions(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """The predictions, with the true values as coordinate `truth`."""
    truth = (target.dims, np.asarray(target.values))
    if target.dims == ("presentation",):
        return source.assign_coords(truth=truth)
    return source
