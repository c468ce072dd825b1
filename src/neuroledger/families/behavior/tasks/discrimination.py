"""Object discrimination: choice counts, the probability of each distractor, and d-prime per image or object.

The measures of Rajalingham et al. (2018): ``i1``/``i2`` on images, ``o1``/``o2`` on objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import xarray as xr
from scipy.special import ndtri

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.stats.samples import Keep, Variation

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
    "without_images",
]

LIMIT = 5.0  # d-prime of a perfect observer
FREE = 2  # smallest number of values of a pattern that vary independently
FEWEST = 3  # smallest number of values with a correlation
ROUNDING = 1e-12  # share of the largest value below which differences are rounding
KEPT = 1_000_000  # largest number of trials whose shuffles are cached


def halves(n: int, *, repetitions: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield random halves of ``n`` trials; the first half has ``floor(n / 2)``.

    NumPy's legacy generator shuffles a fresh ``0 … n-1`` for every repetition, so a metric and its ceiling use the same
    halves if they have the same seed.
    """
    for order in (
        _orders(n, repetitions, seed) if n <= KEPT else _shuffled(n, repetitions, seed)
    ):
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
    image: Indices,
    choice: Indices,
    sample: Indices,
    distractor: Indices,
    truth: Indices,
    n_choices: int,
) -> Floats:
    """Return how often each object was chosen for each image when it was offered: ``(image, choice)``.

    ``truth`` contains the object of each image. NaN if the choice is the object itself, or was never offered.
    """
    return rates_from_cells(
        cells(image, choice, sample, distractor, n_choices), truth, n_choices
    )


def cells(
    image: Indices,
    choice: Indices,
    sample: Indices,
    distractor: Indices,
    n_choices: int,
) -> Indices:
    """Return the cells of image × choice of each trial, ``(3, trial)``: of the choice and of the two offered objects."""
    return image * n_choices + np.stack([choice, sample, distractor])


def rates_from_cells(
    trials: Indices, truth: Indices, n_choices: int, rows: Indices | None = None
) -> Floats:
    """Return the rates of :func:`rates_from_trials` for trials (or some ``rows``) given by their :func:`cells`."""
    return rates_from_counts(
        counts_of_cells(trials, truth.size * n_choices, rows), truth, n_choices
    )


def counts_of_cells(trials: Indices, size: int, rows: Indices | None = None) -> Indices:
    """Count how often each cell of image × choice was chosen and was offered in the trials (or ``rows``): ``(2, cell)``."""
    chosen, sample, distractor = (
        np.bincount(column if rows is None else column.take(rows), minlength=size)
        for column in trials
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
        rates: Floats = probabilities / (
            probabilities + probabilities[rows, truth][:, None]
        )
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
        total[groups] = np.add.reduceat(
            np.where(present, values, 0.0)[order], starts, axis=0
        )
        count[groups] = np.add.reduceat(
            present[order], starts, axis=0, dtype=np.float64
        )
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
        values: Floats = np.clip(
            ndtri(1.0 - rates) - ndtri(false_alarms).T[truth], -LIMIT, LIMIT
        )
    if normalise:
        values = values - group_mean(values, truth, n_choices)[truth]
    return values


def object_dprimes(rates: Floats, truth: Indices) -> Floats:
    """Return the d-prime of each pair of objects: ``(object, object)``, symmetric, clipped to ±5."""
    false_alarms = group_mean(rates, truth, rates.shape[1])
    with np.errstate(invalid="ignore"):
        values: Floats = np.clip(
            ndtri(1.0 - false_alarms.T) - ndtri(false_alarms), -LIMIT, LIMIT
        )
    return values


def pattern(
    rates: Floats, truth: Indices, *, level: str, distractors: str, normalise: bool
) -> Floats:
    """Return d-primes per image or object (``level``), for each distractor or averaged over them (``distractors``)."""
    values = (
        image_dprimes(rates, truth, normalise=normalise)
        if level == "image"
        else object_dprimes(rates, truth)
    )
    if distractors == "mean":
        return collapse(values)
    return values


def collapse(values: Floats) -> Floats:
    """Return the mean over choices, ignoring missing values: ``(row, 1)``."""
    present = ~np.isnan(values)
    count = present.sum(axis=1, keepdims=True)
    mean = np.full((values.shape[0], 1), np.nan)
    np.divide(
        np.where(present, values, 0.0).sum(axis=1, keepdims=True),
        count,
        out=mean,
        where=count > 0,
    )
    return mean


def pearson(x: Floats, y: Floats) -> float:
    """Return the Pearson correlation of two flat arrays without missing values.

    NaN below 3 values, whose correlation is always 1 or -1, or if the values of an array differ by rounding only.
    """
    if x.size < FEWEST or _alike(x) or _alike(y):
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / size, -1.0, 1.0))


def _alike(values: Floats) -> bool:
    return float(np.ptp(values)) <= ROUNDING * float(np.abs(values).max())


def independent(known: Array, truth: Indices, *, normalise: bool) -> int:
    """Return how many of the ``known`` d-primes (image or object × column) vary independently of the subtracted means."""
    if not normalise:
        return int(known.sum()) - 1
    return int(known.sum()) - sum(
        int(known[truth == group].any(axis=0).sum()) for group in np.unique(truth)
    )


def without_images(
    images: Array,
    truth: Indices,
    rates: Sequence[tuple[Floats, Floats]],
    *,
    level: str,
    distractors: str,
    normalise: bool,
) -> Variation:
    """Return how correlations of patterns ``(split,)`` change without images, for pairs of rates ``(image, object)``.

    An image affects its own row, the false alarms of other objects' images, and the means that are subtracted. The halves of
    the trials, from which the rates come, stay the same.
    """

    def without(keep: Keep) -> xr.DataArray:
        rows = keep["stimulus"]
        correlations = []
        for pair in rates:
            first, second = (
                pattern(
                    side[rows],
                    truth[rows],
                    level=level,
                    distractors=distractors,
                    normalise=normalise,
                )
                for side in pair
            )
            known = ~(np.isnan(first) | np.isnan(second))
            correlations.append(pearson(first[known], second[known]))
        return xr.DataArray(correlations, dims=("split",))

    return Variation({"stimulus": images.astype(str)}, without)
