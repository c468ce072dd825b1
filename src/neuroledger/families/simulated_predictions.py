"""Simulated experiments with predictions and truth: new items that are predicted as well as the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from neuroledger.data.arrays import Indices, floats
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.stats.calibration import Experiment

__all__ = ["simulated_predictions"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Standard deviation of the log size of errors between models of an item.
BETWEEN = 0.3


def simulated_predictions(measured: Measurement, factors: Collection[str]) -> Draw:
    """Return a generator of simulated experiments: new items of the factor that the score varies with, in the same layout.

    Simulated classes are predicted with the measured accuracy, and with log odds that vary between items as measured.
    Simulated numbers of an item are those of a measured item, with its errors scaled by a factor for each model. Spikes are
    drawn from the mean rate of each neuron over time, times the excitability of the item; a model predicts these rates
    with noise.

    Raises
    ------
    MetricError
        Predictions and truth are neither classes nor numbers in corresponding rows.
    """
    source = measured.source
    target = measured.target
    rows = len(target)
    by = next(
        (
            name
            for name in factors
            if name in target.coords and target[name].dims == target.dims[:1]
        ),
        None,
    )
    names = (
        target[by].values.astype(str) if by is not None else np.arange(rows).astype(str)
    )
    codes = np.unique(names, return_inverse=True)[1].ravel()
    if (
        target.dims == source.dims
        and target.dims[0] == "presentation"
        and target.ndim == 2
    ):
        return _counts(measured, codes)
    if target.dims != ("presentation",) or "time_bin" in source.dims:
        raise MetricError(
            f"no generative model of predictions with dimensions {tuple(map(str, source.dims))} is known"
        )
    if source.sizes.get("presentation") != target.sizes["presentation"]:
        raise MetricError(
            "no generative model of predictions of several trainings is known"
        )
    if (
        target.dtype.kind == "f"
        and source.dims == target.dims
        and source.dtype.kind == "f"
    ):
        return _numbers(measured, codes)
    if source.dims == target.dims or "choice" in source.dims:
        return _classes(measured, codes)
    raise MetricError(
        f"no generative model of predictions with dimensions {tuple(map(str, source.dims))} is known"
    )


def _classes(measured: Measurement, codes: Indices) -> Draw:
    source = measured.source
    target = measured.target
    truth = np.asarray(target.values).astype(str)
    items = int(codes.max()) + 1
    if "choice" in source.dims:
        source = source.transpose("presentation", "choice")
        labels = np.asarray(source["choice"].values).astype(str)
        answers = labels[np.asarray(source.values).argmax(axis=1)]
    else:
        answers = np.asarray(source.values).astype(str)
        labels = np.unique(np.concatenate([truth, answers]))
    if len(labels) < 2 or not np.isin(truth, labels).all():
        raise MetricError(
            "no generative model of these predictions is known: they need two classes at least"
        )
    if len(np.unique(answers)) == 1 and len(np.unique(truth)) > 1:
        raise MetricError(
            f"all {len(answers)} predictions are {answers[0]!r}: this model distinguishes nothing"
        )
    right = np.bincount(codes, answers == truth)
    count = np.bincount(codes)
    odds = np.log((right.sum() + 0.5) / (len(truth) - right.sum() + 0.5))
    item_odds = np.log((right + 0.5) / (count - right + 0.5))
    noise = (1 / (right + 0.5) + 1 / (count - right + 0.5)).mean()
    between = (
        np.sqrt(max(0.0, item_odds.var(ddof=1) - noise))
        if 1 < items < len(truth)
        else 0.0
    )
    place = np.array([labels.tolist().index(name) for name in truth])

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        # Items of one row get random classes; items of several rows keep theirs.
        truths = rng.choice(place, len(place)) if items == len(truth) else place
        simulated = target.copy(data=labels[truths].astype(truth.dtype))
        ability = between * rng.standard_normal(items)
        measurements = []
        for _ in range(models):
            # Half of the variance between items is shared by all models.
            model_odds = (
                odds
                + np.sqrt(0.5) * ability
                + np.sqrt(0.5) * between * rng.standard_normal(items)
            )
            correct = rng.random(len(truths)) < (1 / (1 + np.exp(-model_odds)))[codes]
            predicted = np.where(
                correct,
                truths,
                (truths + rng.integers(1, len(labels), len(truths))) % len(labels),
            )
            values: Any = labels[predicted]
            if "choice" in source.dims:
                values = rng.dirichlet(np.ones(len(labels)), len(truths)) / 2
                values[np.arange(len(truths)), predicted] += 0.5
            measurements.append(
                Measurement(source.copy(data=values), simulated, splits=measured.splits)
            )
        return Experiment(measurements)

    return draw


def _numbers(measured: Measurement, codes: Indices) -> Draw:
    source = measured.source
    target = measured.target
    truth, predicted = (floats(side.values) for side in (target, source))
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max()) + 1)]
    if len(set(map(len, members))) > 1:
        raise MetricError(
            "no generative model of numbers of items of different lengths is known"
        )
    table = np.stack(members)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        drawn_items = rng.integers(0, len(table), len(table))
        values = np.empty_like(truth)
        errors = np.empty_like(truth)
        values[table] = truth[table[drawn_items]]
        errors[table] = predicted[table[drawn_items]] - truth[table[drawn_items]]
        simulated = target.copy(data=values)
        measurements = []
        for _ in range(models):
            size = np.exp(BETWEEN * rng.standard_normal(len(table)))[codes]
            measurements.append(
                Measurement(
                    source.copy(data=values + size * errors),
                    simulated,
                    splits=measured.splits,
                )
            )
        return Experiment(measurements)

    return draw


def _counts(measured: Measurement, codes: Indices) -> Draw:
    """Return the generator for spike counts (window, neuron) of items with equal lengths."""
    source = measured.source
    target = measured.target
    counts = floats(target.values)
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max()) + 1)]
    if (
        len(set(map(len, members))) > 1
        or not (np.isfinite(counts) & (counts >= 0)).all()
    ):
        raise MetricError(
            "of numbers by neuron, only counts in items of one length have a generative model"
        )
    table = np.stack(members)
    course = counts[table].mean(axis=0)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        excited = np.exp(
            BETWEEN * rng.standard_normal((len(table), 1, counts.shape[1]))
            - BETWEEN**2 / 2
        )
        rates = np.empty_like(counts)
        rates[table] = course * excited
        simulated = target.copy(data=rng.poisson(rates).astype(target.dtype))
        measurements = []
        for _ in range(models):
            predicted = rates * np.exp(BETWEEN * rng.standard_normal(rates.shape))
            measurements.append(
                Measurement(
                    source.copy(data=predicted), simulated, splits=measured.splits
                )
            )
        return Experiment(measurements)

    return draw
