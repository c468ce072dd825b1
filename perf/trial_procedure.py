"""A reimplementation of Brain-Score's behavioural procedure, step by step, on assemblies whose labels form an index.

The patterns of i1 and i2n are computed cell by cell: for each image and choice, all labels of the cell are collected and
passed to a function. Error consistency selects each subject's trials of a condition by their labels, sorts them, and
merges the scores by their labels.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import norm, pearsonr

from perf.procedure import ordered


@dataclass(frozen=True)
class Cells:
    """A matrix of image × choice; ``labels`` contains every column of labels with its axis."""

    values: np.ndarray
    labels: dict[str, tuple[int, np.ndarray]]

    def apply(self, groups: tuple[str, str], function: Callable[..., Any]) -> Cells:
        """Apply ``function(cells, **labels)`` to each pair of distinct labels, and assemble the results."""
        places: dict[str, dict[Any, list[int]]] = {}
        for name in groups:
            places[name] = defaultdict(list)
            for at, label in enumerate(self.labels[name][1]):
                places[name][label].append(at)
        result = np.zeros(self.values.shape)
        copied = {
            name: (axis, np.array([None] * len(column)))
            for name, (axis, column) in self.labels.items()
        }
        for pair in itertools.product(
            *(np.unique(self.labels[name][1]) for name in groups)
        ):
            at = [places[name][label] for name, label in zip(groups, pair, strict=True)]
            labels_of_cells = {
                name: _scalar(column[at[axis]])
                for name, (axis, column) in self.labels.items()
            }
            result[tuple(at) if len(at[0]) == 1 else np.ix_(*at)] = function(
                _scalar(self.values[tuple(at) if len(at[0]) == 1 else np.ix_(*at)]),
                **labels_of_cells,
            )
            for name, label in labels_of_cells.items():
                copied[name][1][at[copied[name][0]]] = label
        return Cells(result, copied)

    def by(self, first: str, second: str) -> dict[tuple[Any, Any], Any]:
        """Values by pairs of labels; a list where a pair occurs several times."""
        values_by_pair: dict[tuple[Any, Any], Any] = {}
        pairs = itertools.product(self.labels[first][1], self.labels[second][1])
        for pair, value in zip(pairs, self.values.ravel(), strict=True):
            if pair in values_by_pair:
                values_by_pair[pair] = (
                    [*values_by_pair[pair], value]
                    if isinstance(values_by_pair[pair], list)
                    else [values_by_pair[pair], value]
                )
            else:
                values_by_pair[pair] = value
        return values_by_pair

    def assembly(self) -> xr.DataArray:
        """The matrix with its labels as indexes."""
        dims = ("presentation", "choice")
        coords = {
            name: (dims[axis], np.array(column.tolist()))
            for name, (axis, column) in self.labels.items()
        }
        return xr.DataArray(self.values, dims=dims, coords=coords)


def _scalar(values: np.ndarray) -> Any:
    return values.item() if values.size == 1 else values


def _of_model(source: xr.DataArray, target: xr.DataArray) -> Cells:
    """The probability of each choice against the true object."""
    truth_of = dict(
        zip(target["stimulus_id"].values, target["truth"].values, strict=True)
    )
    labels = {
        str(name): (source.dims.index(coord.dims[0]), coord.values)
        for name, coord in source.coords.items()
        if name != "presentation"
    }
    labels["truth"] = (
        0,
        np.array([truth_of[image] for image in source["stimulus_id"].values]),
    )
    cells = Cells(source.values, labels)
    probabilities = cells.by("stimulus_id", "choice")

    def against_truth(
        p: float, stimulus_id: str, truth: str, choice: str, **_: Any
    ) -> float:
        return (
            float("nan")
            if truth == choice
            else p / (p + probabilities[stimulus_id, truth])
        )

    return cells.apply(("stimulus_id", "choice"), against_truth)


def _of_subjects(trials: xr.DataArray) -> Cells:
    """The rate at which each object was chosen for an image when it was offered, counted label by label."""
    columns = {
        str(name): coord.values
        for name, coord in trials.coords.items()
        if name not in ("presentation", "choice")
    }
    images = columns["stimulus_id"]
    chosen = Counter(zip(images, trials.values, strict=True))
    offered = Counter(
        itertools.chain(
            *(
                [(image, sample), (image, other)]
                for image, sample, other in zip(
                    images, columns["sample_obj"], columns["dist_obj"], strict=True
                )
            )
        )
    )
    choices = np.unique(trials.values)
    ids, first = np.unique(images, return_index=True)
    rates = np.zeros((len(ids), len(choices)))
    for (row, image), (column, choice) in itertools.product(
        enumerate(ids), enumerate(choices)
    ):
        of_image = columns["truth"][first[row]]
        defined = of_image != choice and offered[image, choice] > 0
        rates[row, column] = (
            chosen[image, choice] / offered[image, choice] if defined else np.nan
        )
    labels = {name: (0, column[first]) for name, column in columns.items()}
    return Cells(rates, labels | {"choice": (1, choices)})


def _pattern(cells: Cells, *, normalise: bool, mean: bool) -> xr.DataArray:
    """Clipped d-primes, optionally without each object's mean, and optionally averaged over choices."""
    alarms = cells.by("truth", "choice")

    def dprime(rate: float, truth: str, choice: str, **_: Any) -> Any:
        return norm.ppf(1 - rate) - norm.ppf(np.nanmean(alarms[choice, truth]))

    dprimes = cells.apply(("stimulus_id", "choice"), dprime)
    dprimes = replace(dprimes, values=dprimes.values.clip(-5, 5))
    if normalise:
        dprimes = dprimes.apply(
            ("truth", "choice"), lambda group, **_: group - np.nanmean(group)
        )
    pattern = ordered(dprimes.assembly(), "stimulus_id")
    return pattern.mean("choice", skipna=True) if mean else ordered(pattern, "choice")


def _correlation(a: xr.DataArray, b: xr.DataArray, *, skip: bool) -> float:
    if not (a["stimulus_id"].values == b["stimulus_id"].values).all():
        raise ValueError("the sides differ in stimulus_id")
    x, y = a.values.ravel(), b.values.ravel()
    known = ~np.isnan(y) & ~np.isnan(x) if skip else ~np.isnan(y)
    return float(pearsonr(x[known], y[known]).statistic)


def discriminated(
    source: xr.DataArray, target: xr.DataArray, *, normalise: bool, mean: bool
) -> np.ndarray:
    """Score and ceiling over two random halves of the trials."""
    with warnings.catch_warnings():  # cells of an object with itself have no alarms
        warnings.simplefilter("ignore", RuntimeWarning)
        return _discriminated(source, target, normalise=normalise, mean=mean)


def _discriminated(
    source: xr.DataArray, target: xr.DataArray, *, normalise: bool, mean: bool
) -> np.ndarray:
    correlations: list[list[float]] = [[], []]
    random = np.random.RandomState(0)
    for _ in range(2):
        model = _pattern(_of_model(source, target), normalise=normalise, mean=mean)
        half = _pattern(
            _of_subjects(_halves(target, random)[0]), normalise=normalise, mean=mean
        )
        correlations[0].append(_correlation(model, half, skip=False))
    random = np.random.RandomState(0)
    for _ in range(2):
        halves = [
            _pattern(_of_subjects(half), normalise=normalise, mean=mean)
            for half in _halves(target, random)
        ]
        correlations[1].append(_correlation(*halves, skip=True))
    return np.array([np.mean(values) for values in correlations])


def _halves(
    trials: xr.DataArray, random: np.random.RandomState
) -> tuple[xr.DataArray, xr.DataArray]:
    order = list(range(trials.size))
    random.shuffle(order)
    return trials[order[: len(order) // 2]], trials[order[len(order) // 2 :]]


def _kappa(a: xr.DataArray, b: xr.DataArray) -> float:
    a, b = ordered(a, "stimulus_id"), ordered(b, "stimulus_id")
    if not (a["stimulus_id"].values == b["stimulus_id"].values).all():
        raise ValueError("the sides differ in stimulus_id")
    first_correct, second_correct = (
        a.values == a["truth"].values,
        b.values == b["truth"].values,
    )
    expected = np.mean(first_correct) * np.mean(second_correct) + (
        1 - np.mean(first_correct)
    ) * (1 - np.mean(second_correct))
    return float(
        ((first_correct == second_correct).sum() / len(second_correct) - expected)
        / (1 - expected)
    )


def _summary(scores: list[xr.DataArray]) -> float:
    """Scores merged by their labels, averaged over conditions and subjects; the spread is computed too."""
    merged = xr.merge(
        [score.rename("score") for score in scores], join="outer", compat="no_conflicts"
    )["score"]
    merged.std(["condition", "subject"])
    return float(abs(merged.mean("condition").mean("subject")))


def agreed(source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Error consistency of a model with each subject in each condition, and of each pair of subjects."""
    subjects = sorted(set(target["subject"].values))
    conditions = sorted(set(target["condition"].values))
    scores = []
    for subject, condition in itertools.product(subjects, conditions):
        kappa = _kappa(
            source.sel(condition=condition),
            target.sel(subject=subject, condition=condition),
        )
        scores.append(
            xr.DataArray(kappa).expand_dims(subject=[subject], condition=[condition])
        )
    pairs = []
    for (first, second), condition in itertools.product(
        itertools.combinations(subjects, 2), conditions
    ):
        sides = [
            target.sel(subject=subject, condition=condition)
            for subject in (first, second)
        ]
        pairs.append(
            xr.DataArray(_kappa(*sides)).expand_dims(
                subject=[f"{first}|{second}"], condition=[condition]
            )
        )
    return np.array([_summary(scores), _summary(pairs)])
