"""Object discrimination: choice counts, the probability of each distractor, and d-prime per image or object.

The measures of Rajalingham et al. (2018): ``i1``/``i2`` on images, ``o1``/``o2`` on objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.stats.spread import DRAWS, Influence, left_out

__all__ = [
    "FEWEST",
    "FREE",
    "ROUNDING",
    "cells",
    "collapse",
    "counts_of_cells",
    "group_mean",
    "halves",
    "image_dprimes",
    "independent",
    "object_dprimes",
    "pattern",
    "pearson",
    "rates_from_cells",
    "rates_from_counts",
    "rates_from_probabilities",
    "rates_from_trials",
    "of_new_images",
]

LIMIT = 5.0  # d-prime of a perfect observer
FREE = 2  # smallest number of values of a pattern that vary independently
FEWEST = 3  # smallest number of values with a correlation
ROUNDING = 1e-12  # share of the largest value below which differences are rounding
TOGETHER = 64  # number of images left out in one computation
KEPT = 1_000_000  # largest number of trials whose shuffles are cached


def halves(n: int, *, repetitions: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield random halves of ``n`` trials; the first half has ``floor(n / 2)``.

    NumPy's legacy generator shuffles a fresh ``0 … n-1`` for every repetition, so a metric and its ceiling use the same
    halves if they have the same seed.
    """
    for order in _orders(n, repetitions, seed) if n <= KEPT else _shuffled(n, repetitions, seed):
        yield order[: n // 2], order[n // 2 :]


@lru_cache(maxsize=4)
def _orders(n: int, repetitions: int, seed: int) -> tuple[Indices, ...]:
    """Return the shuffles, cached because a metric, its ceiling and every further model divide the same trials."""
    orders = tuple(_shuffled(n, repetitions, seed))
    for order in orders:
        order.flags.writeable = False
    return orders


def _shuffled(n: int, repetitions: int, seed: int) -> Iterator[Indices]:
    random = np.random.RandomState(seed)
    for _ in range(repetitions):
        order = np.arange(n, dtype=np.intp)
        random.shuffle(order)
        yield order


def rates_from_trials(
    image: Indices, choice: Indices, sample: Indices, distractor: Indices, truth: Indices, n_choices: int
) -> Floats:
    """Return how often each object was chosen for each image when it was offered: ``(image, choice)``.

    ``truth`` contains the object of each image. NaN if the choice is the object itself, or was never offered.
    """
    return rates_from_cells(cells(image, choice, sample, distractor, n_choices), truth, n_choices)


def cells(image: Indices, choice: Indices, sample: Indices, distractor: Indices, n_choices: int) -> Indices:
    """Return the cells of image × choice of each trial, ``(3, trial)``: of the choice and of the two offered objects."""
    return image * n_choices + np.stack([choice, sample, distractor])


def rates_from_cells(trials: Indices, truth: Indices, n_choices: int, rows: Indices | None = None) -> Floats:
    """Return the rates of :func:`rates_from_trials` for trials (or some ``rows``) given by their :func:`cells`."""
    return rates_from_counts(counts_of_cells(trials, truth.size * n_choices, rows), truth, n_choices)


def counts_of_cells(trials: Indices, size: int, rows: Indices | None = None) -> Indices:
    """Count how often each cell of image × choice was chosen and was offered in the trials (or ``rows``): ``(2, cell)``."""
    chosen, sample, distractor = (
        np.bincount(column if rows is None else column.take(rows), minlength=size) for column in trials
    )
    return np.stack([chosen, sample + distractor])


def rates_from_counts(counts: Indices, truth: Indices, n_choices: int) -> Floats:
    """Return the rates of :func:`rates_from_trials` for counts from :func:`counts_of_cells`."""
    chosen, offered = counts
    flat = np.full(truth.size * n_choices, np.nan)
    np.divide(chosen, offered, out=flat, where=offered > 0)
    rates = flat.reshape(truth.size, n_choices)
    rates[np.arange(truth.size), truth] = np.nan
    return rates


def rates_from_probabilities(probabilities: Floats, truth: Indices) -> Floats:
    """Return the probability of each distractor against the object of the image, ``p(c) / (p(c) + p(truth))``."""
    rows = np.arange(truth.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates: Floats = probabilities / (probabilities + probabilities[rows, truth][:, None])
    rates[rows, truth] = np.nan
    return rates


def group_mean(values: Floats, group: Indices, n_groups: int) -> Floats:
    """Return the mean of the rows of each group, ignoring missing values: ``(group, column)``; NaN if there is none."""
    present = ~np.isnan(values)
    total = np.zeros((n_groups, values.shape[1]))
    count = np.zeros((n_groups, values.shape[1]))
    order = np.argsort(group, kind="stable")
    groups, starts = np.unique(group[order], return_index=True)
    if groups.size:
        total[groups] = np.add.reduceat(np.where(present, values, 0.0)[order], starts, axis=0)
        count[groups] = np.add.reduceat(present[order], starts, axis=0, dtype=np.float64)
    mean = np.full_like(total, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def image_dprimes(rates: Floats, truth: Indices, *, normalise: bool) -> Floats:
    """Return the d-prime of each image against each choice: ``(image, choice)``, clipped to ±5.

    The hit rate is one minus the rate of the distractor; the false-alarm rate is the mean, over images of the
    distractor object, of the rate at which this image's object was chosen. With ``normalise`` the mean over the
    images of an object is subtracted for each choice, so that only differences between images of an object remain.
    """
    n_choices = rates.shape[1]
    false_alarms = group_mean(rates, truth, n_choices)
    with np.errstate(invalid="ignore"):
        values: Floats = np.clip(ndtri(1.0 - rates) - ndtri(false_alarms).T[truth], -LIMIT, LIMIT)
    if normalise:
        values = values - group_mean(values, truth, n_choices)[truth]
    return values


def object_dprimes(rates: Floats, truth: Indices) -> Floats:
    """Return the d-prime of each pair of objects: ``(object, object)``, symmetric, clipped to ±5."""
    false_alarms = group_mean(rates, truth, rates.shape[1])
    with np.errstate(invalid="ignore"):
        values: Floats = np.clip(ndtri(1.0 - false_alarms.T) - ndtri(false_alarms), -LIMIT, LIMIT)
    return values


def pattern(rates: Floats, truth: Indices, *, level: str, distractors: str, normalise: bool) -> Floats:
    """Return d-primes per image or object (``level``), for each distractor or averaged over them (``distractors``)."""
    values = (
        image_dprimes(rates, truth, normalise=normalise) if level == "image" else object_dprimes(rates, truth)
    )
    return collapse(values) if distractors == "mean" else values


def collapse(values: Floats) -> Floats:
    """Return the mean over choices, ignoring missing values: ``(row, 1)``."""
    present = ~np.isnan(values)
    count = present.sum(axis=1, keepdims=True)
    mean = np.full((values.shape[0], 1), np.nan)
    np.divide(np.where(present, values, 0.0).sum(axis=1, keepdims=True), count, out=mean, where=count > 0)
    return mean


def pearson(x: Floats, y: Floats) -> float:
    """Return the Pearson correlation of two flat arrays without missing values.

    NaN below 3 values, whose correlation is always 1 or -1, or if the values of an array differ by rounding only.
    """
    if x.size < FEWEST or _alike(x) or _alike(y):
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / float(np.sqrt((x @ x) * (y @ y))), -1.0, 1.0))


def _alike(values: Floats) -> bool:
    return float(np.ptp(values)) <= ROUNDING * float(np.abs(values).max())


def independent(known: Array, truth: Indices, *, normalise: bool) -> int:
    """Return how many of the ``known`` d-primes (image or object × column) vary independently of the subtracted means."""
    if not normalise:
        return int(known.sum()) - 1
    return int(known.sum()) - sum(int(known[truth == group].any(axis=0).sum()) for group in np.unique(truth))


def of_new_images(
    images: Array,
    truth: Indices,
    rates: Sequence[tuple[Floats, Floats]],
    *,
    level: str,
    distractors: str,
    normalise: bool,
) -> Influence:
    """Return the influence of images on the mean correlation between patterns, for pairs of rates ``(image, object)``.

    An image affects its own row, the false alarms of other objects' images, and the means that are subtracted. Each image is
    left out in turn (Tukey's jackknife). For patterns of few objects, this overestimates the variance; draws of other images
    underestimate it, because they add noise to patterns that contain noise already, which lowers their correlation and how
    much it varies. The variance is then the mean of both.
    """
    make, count = (_of_images if level == "image" else _of_objects), len(images)
    summed = [make(first, second, truth, distractors, normalise) for first, second in rates]
    items = left_out(images, np.mean([_without_each(each, truth) for each in summed], axis=0))
    per_object = float(np.median(np.bincount(truth)[np.unique(truth)]))
    if (normalise or level == "object") and per_object > 1:
        # Only images within an object are random, and they are few.
        scale = np.sqrt((1 - 1 / per_object) / (1 - 1 / count))
        items = replace(items, deviation=scale * items.deviation)
    if level == "object" and per_object > 1:
        drawn = np.mean([_of_draws(each, truth) for each in summed], axis=0)
        variance = float(np.nanvar(drawn)) * (per_object + 1) / (per_object - 1)
        middle = np.sqrt((1 + variance / items.variance) / 2) if items.variance > 0 else 1.0
        items = replace(items, deviation=middle * items.deviation)
    return Influence({"stimulus": items})


class _Summed(NamedTuple):
    """A correlation that depends on images only through sums over the images of each object.

    ``tables`` are arrays (image, column) whose sums over the images of each object, (set of images, object, column), are the
    arguments of ``correlation``, which returns that of each set.
    """

    objects: int
    tables: list[Floats]
    correlation: Callable[[list[Floats]], Floats]


def _without_each(summed: _Summed, truth: Indices) -> Floats:
    """Return the correlation without each image, (image,)."""
    whole = [
        np.stack([table[truth == group].sum(axis=0) for group in range(summed.objects)])
        for table in summed.tables
    ]
    values = []
    for start in range(0, len(truth), TOGETHER):
        left = np.arange(start, min(start + TOGETHER, len(truth)))
        sums = [np.repeat(total[None], len(left), axis=0) for total in whole]
        for total, table in zip(sums, summed.tables, strict=True):
            total[np.arange(len(left)), truth[left]] -= table[left]
        values.append(summed.correlation(sums))
    return np.concatenate(values)


def _of_draws(summed: _Summed, truth: Indices) -> Floats:
    """Return the correlation for random exponential weights of images, (draw,): the Bayesian bootstrap."""
    weights = np.random.default_rng(0).exponential(size=(DRAWS, len(truth)))
    groups = [np.flatnonzero(truth == group) for group in range(summed.objects)]
    return summed.correlation(
        [np.stack([weights[:, rows] @ table[rows] for rows in groups], axis=1) for table in summed.tables]
    )


def _of_objects(first: Floats, second: Floats, truth: Indices, distractors: str, _: bool) -> _Summed:
    """Return the correlation of object patterns as a function of sums of rates over the images of each object."""

    def correlation(sums: list[Floats]) -> Floats:
        sides = []
        for total, count in (sums[:2], sums[2:]):
            known = _mean(total, count)
            with np.errstate(invalid="ignore"):
                values = np.clip(ndtri(1.0 - known.transpose(0, 2, 1)) - ndtri(known), -LIMIT, LIMIT)
            if distractors == "mean":
                present = ~np.isnan(values)
                values = _mean(np.where(present, values, 0.0).sum(axis=2), present.sum(axis=2))
            sides.append(values.reshape(len(values), -1))
        return np.array(
            [
                pearson(x[known], y[known])
                for x, y in zip(*sides, strict=True)
                for known in (~(np.isnan(x) | np.isnan(y)),)
            ]
        )

    return _Summed(first.shape[1], [*_rate_tables(first), *_rate_tables(second)], correlation)


def _rate_tables(rates: Floats) -> tuple[Floats, Floats]:
    """Return rates with 0 for missing ones, and whether they are present: their sums give means of rates."""
    present = ~np.isnan(rates)
    return np.where(present, rates, 0.0), present.astype(np.float64)


def _mean(total: Floats, count: Floats) -> Floats:
    mean = np.full(total.shape, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def _of_images(first: Floats, second: Floats, truth: Indices, distractors: str, normalise: bool) -> _Summed:
    """Return the correlation of image patterns as a function of sums over the images of each object.

    For each object and choice, another set of images shifts the values of all images by the same amount: by the subtracted
    mean, or by the change of the false alarms. Clipped values do not change with the false alarms; of a mean over choices,
    the share that is not clipped changes.
    """
    patterns = [
        pattern(rates, truth, level="image", distractors=distractors, normalise=normalise)
        for rates in (first, second)
    ]
    known = ~(np.isnan(patterns[0]) | np.isnan(patterns[1]))
    x, y = (np.where(known, values, 0.0) for values in patterns)
    x, y = (np.where(known, values - values.sum() / max(int(known.sum()), 1), 0.0) for values in (x, y))
    # The share of each value that is shifted, for both sides.
    f, g = (
        np.where(known, 1.0 if normalise else _unclipped(rates, truth, distractors), 0.0)
        for rates in (first, second)
    )
    moments = [
        known.astype(np.float64),
        x,
        y,
        x * x,
        y * y,
        x * y,
        f,
        g,
        f * f,
        g * g,
        f * g,
        f * x,
        g * y,
        f * y,
        g * x,
    ]
    alarms = [group_mean(rates, truth, rates.shape[1]) for rates in (first, second)]

    def moves(sums: list[Floats]) -> list[Floats]:
        if normalise:
            weight = np.where(sums[0] > 0, sums[0], 1.0)
            return [part / weight for part in (sums[1], sums[2])]
        shifts = []
        for total, count, alarm in zip(sums[-4::2], sums[-3::2], alarms, strict=True):
            with np.errstate(invalid="ignore"):
                shift = np.nan_to_num(ndtri(_mean(total, count)) - ndtri(alarm), posinf=0, neginf=0)
            # Of the choice's false alarms with the object: (set, object, choice).
            shift = shift.transpose(0, 2, 1)
            if distractors == "mean":
                shift = shift.sum(axis=2, keepdims=True) / max(1, shift.shape[2] - 1)
            shifts.append(shift)
        return shifts

    def correlation(sums: list[Floats]) -> Floats:
        a, b = moves(sums)
        # Each (set, object, choice).
        w, sx, sy, sxx, syy, sxy, sf, sg, sff, sgg, sfg, sfx, sgy, sfy, sgx = sums[: len(moments)]
        n = w.sum(axis=(1, 2))
        tx, ty = (part.sum(axis=(1, 2)) for part in (sx - a * sf, sy - b * sg))
        txx = (sxx - 2 * a * sfx + a * a * sff).sum(axis=(1, 2))
        tyy = (syy - 2 * b * sgy + b * b * sgg).sum(axis=(1, 2))
        txy = (sxy - a * sfy - b * sgx + a * b * sfg).sum(axis=(1, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((txy - tx * ty / n) / np.sqrt((txx - tx**2 / n) * (tyy - ty**2 / n)))

    return _Summed(first.shape[1], [*moments, *_rate_tables(first), *_rate_tables(second)], correlation)


def _unclipped(rates: Floats, truth: Indices, distractors: str) -> Floats:
    """Return which d-primes of images are not clipped, 1 or 0, or their share in the mean over choices."""
    values = image_dprimes(rates, truth, normalise=False)
    free = np.where(np.isnan(values), np.nan, np.abs(values) < LIMIT)
    return collapse(free) if distractors == "mean" else free
