"""Object discrimination: choice counts, the probability of each distractor, and d-prime per image or object.

The measures of Rajalingham et al. (2018): ``i1``/``i2`` on images, ``o1``/``o2`` on objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.stats.spread import Influence, reweighted

__all__ = [
    "cells",
    "collapse",
    "counts_of_cells",
    "group_mean",
    "halves",
    "image_dprimes",
    "object_dprimes",
    "pattern",
    "pearson",
    "rates_from_cells",
    "rates_from_counts",
    "rates_from_probabilities",
    "rates_from_trials",
    "of_new_images",
    "weighted_pearson",
]

LIMIT = 5.0  # d-prime of a perfect observer
KEPT = 1_000_000  # trials whose shuffles are kept


def halves(n: int, *, repetitions: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Random halves of ``n`` trials; the first has ``floor(n / 2)``.

    The stream is that of NumPy's legacy generator shuffling a fresh ``0 … n-1`` for every repetition, so a metric
    and its ceiling with one seed see the same halves.
    """
    for order in _orders(n, repetitions, seed) if n <= KEPT else _shuffled(n, repetitions, seed):
        yield order[: n // 2], order[n // 2 :]


@lru_cache(maxsize=4)
def _orders(n: int, repetitions: int, seed: int) -> tuple[Indices, ...]:
    """The shuffles, kept: a metric, its ceiling and every further model divide the same trials."""
    found = tuple(_shuffled(n, repetitions, seed))
    for order in found:
        order.flags.writeable = False
    return found


def _shuffled(n: int, repetitions: int, seed: int) -> Iterator[Indices]:
    random = np.random.RandomState(seed)
    for _ in range(repetitions):
        order = np.arange(n, dtype=np.intp)
        random.shuffle(order)
        yield order


def rates_from_trials(
    image: Indices, choice: Indices, sample: Indices, distractor: Indices, truth: Indices, n_choices: int
) -> Floats:
    """How often each object was chosen for each image, when it was on offer: ``(image, choice)``.

    ``truth`` holds the object of each image. NaN where the choice is the object itself, or was never offered.
    """
    return rates_from_cells(cells(image, choice, sample, distractor, n_choices), truth, n_choices)


def cells(image: Indices, choice: Indices, sample: Indices, distractor: Indices, n_choices: int) -> Indices:
    """The cells of image × choice in which each trial counts, ``(3, trial)``: chosen, and the two on offer."""
    return image * n_choices + np.stack([choice, sample, distractor])


def rates_from_cells(trials: Indices, truth: Indices, n_choices: int, rows: Indices | None = None) -> Floats:
    """As :func:`rates_from_trials`, of (some ``rows`` of) trials given by their :func:`cells`."""
    return rates_from_counts(counts_of_cells(trials, truth.size * n_choices, rows), truth, n_choices)


def counts_of_cells(trials: Indices, size: int, rows: Indices | None = None) -> Indices:
    """How often each cell of image × choice was chosen, and was on offer, in (some ``rows`` of) trials: ``(2, cell)``."""
    chosen, sample, distractor = (
        np.bincount(column if rows is None else column.take(rows), minlength=size) for column in trials
    )
    return np.stack([chosen, sample + distractor])


def rates_from_counts(counts: Indices, truth: Indices, n_choices: int) -> Floats:
    """As :func:`rates_from_trials`, of :func:`counts_of_cells`."""
    chosen, offered = counts
    flat = np.full(truth.size * n_choices, np.nan)
    np.divide(chosen, offered, out=flat, where=offered > 0)
    rates = flat.reshape(truth.size, n_choices)
    rates[np.arange(truth.size), truth] = np.nan
    return rates


def rates_from_probabilities(probabilities: Floats, truth: Indices) -> Floats:
    """Probability of each distractor against the object of the image, ``p(c) / (p(c) + p(truth))``."""
    rows = np.arange(truth.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates: Floats = probabilities / (probabilities + probabilities[rows, truth][:, None])
    rates[rows, truth] = np.nan
    return rates


def group_mean(values: Floats, group: Indices, n_groups: int) -> Floats:
    """Mean of the rows of each group, missing values skipped: ``(group, column)``; NaN where there is none."""
    present = ~np.isnan(values)
    total = np.zeros((n_groups, values.shape[1]))
    count = np.zeros((n_groups, values.shape[1]))
    order = np.argsort(group, kind="stable")
    there, starts = np.unique(group[order], return_index=True)
    if there.size:
        total[there] = np.add.reduceat(np.where(present, values, 0.0)[order], starts, axis=0)
        count[there] = np.add.reduceat(present[order], starts, axis=0, dtype=np.float64)
    mean = np.full_like(total, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def image_dprimes(rates: Floats, truth: Indices, *, normalise: bool) -> Floats:
    """d-prime of each image against each choice: ``(image, choice)``, clipped to ±5.

    The hit rate is one minus the rate of the distractor; the false-alarm rate is the mean, over images of the
    distractor object, of the rate at which this image's object was chosen. With ``normalise`` the mean over the
    images of one object is taken off each choice, so that only differences between images of an object remain.
    """
    n_choices = rates.shape[1]
    false_alarms = group_mean(rates, truth, n_choices)
    with np.errstate(invalid="ignore"):
        values: Floats = np.clip(ndtri(1.0 - rates) - ndtri(false_alarms).T[truth], -LIMIT, LIMIT)
    if normalise:
        values = values - group_mean(values, truth, n_choices)[truth]
    return values


def object_dprimes(rates: Floats, truth: Indices) -> Floats:
    """d-prime of each pair of objects: ``(object, object)``, symmetric, clipped to ±5."""
    false_alarms = group_mean(rates, truth, rates.shape[1])
    with np.errstate(invalid="ignore"):
        values: Floats = np.clip(ndtri(1.0 - false_alarms.T) - ndtri(false_alarms), -LIMIT, LIMIT)
    return values


def pattern(rates: Floats, truth: Indices, *, level: str, distractors: str, normalise: bool) -> Floats:
    """d-primes of ``level`` image or object, per distractor (``each``) or averaged over distractors (``mean``)."""
    values = (
        image_dprimes(rates, truth, normalise=normalise) if level == "image" else object_dprimes(rates, truth)
    )
    return collapse(values) if distractors == "mean" else values


def collapse(values: Floats) -> Floats:
    """Mean over choices, missing values skipped: ``(row, 1)``."""
    present = ~np.isnan(values)
    count = present.sum(axis=1, keepdims=True)
    mean = np.full((values.shape[0], 1), np.nan)
    np.divide(np.where(present, values, 0.0).sum(axis=1, keepdims=True), count, out=mean, where=count > 0)
    return mean


def pearson(x: Floats, y: Floats) -> float:
    """Pearson correlation of two flat arrays without missing values; NaN if one of them is constant."""
    if x.size < 2:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / scale, -1.0, 1.0)) if scale > 0 else float("nan")


def weighted_pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Correlation of two ``(row, column)`` arrays with NaN gaps under each of ``(draw, row)`` row weights."""
    present = ~(np.isnan(x) | np.isnan(y))
    a, b = np.where(present, x, 0.0), np.where(present, y, 0.0)
    a = np.where(present, a - a.sum() / max(int(present.sum()), 1), 0.0)
    b = np.where(present, b - b.sum() / max(int(present.sum()), 1), 0.0)
    sums = np.stack(
        [present.sum(1), a.sum(1), b.sum(1), (a * a).sum(1), (b * b).sum(1), (a * b).sum(1)], axis=1
    )
    n, sa, sb, saa, sbb, sab = (weights @ sums).T
    with np.errstate(invalid="ignore", divide="ignore"):
        r: Floats = (sab - sa * sb / n) / np.sqrt((saa - sa**2 / n) * (sbb - sb**2 / n))
    return r


def of_new_images(images: Array, patterns: Sequence[tuple[Floats, Floats]]) -> Influence:
    """How new images move the mean correlation over pairs of ``(image, column)`` patterns."""
    return reweighted(
        {"stimulus": images},
        lambda w: np.asarray(np.mean([weighted_pearson(x, y, w["stimulus"]) for x, y in patterns], axis=0)),
    )
