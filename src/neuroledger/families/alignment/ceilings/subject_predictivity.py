"""Subject predictivity: prediction of each subject's responses from those of the other subjects."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import cast

import numpy as np
import xarray as xr
from pydantic import NonNegativeInt
from scipy.optimize import OptimizeWarning, curve_fit

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.regression.held_out import (
    Correlation,
    Estimator,
    Facts,
    correlations,
)
from neuroledger.families.alignment.regression.held_out_variation import (
    held_out_variation,
)
from neuroledger.families.alignment.regression.missing_trials import (
    with_means_for_missing_trials,
)
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import ceiling
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import inflation, one_by_one
from neuroledger.stats.workspace import Workspace

__all__ = [
    "asymptote",
    "extrapolated_predictivity",
    "rise",
    "subject_predictivity",
]

FEWEST = 2


@ceiling("subject_predictivity", version=4)
def subject_predictivity(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Ridge(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
) -> Samples:
    """Correlation of predicted and measured responses, with the other subjects in place of a model.

    For each subject, the neuroids of all other subjects are the features of ``estimator``, and the score is computed as
    for a model. A model that predicts as well as the pooled other brains reaches this ceiling, which increases with the
    number of subjects.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repeated presentations are separate rows, or were
        averaged before. The mean of the neuroid's other responses to the stimulus stands for a missing one.

    Returns
    -------
    Samples
        ``(split, neuroid)`` with ``subject``. An interval for new subjects counts them as the predicted ones only: other
        predictors would change the ceiling further.

    Raises
    ------
    CeilingError
        Fewer than two subjects have a neuroid with a response to every stimulus; subjects without such a neuroid are left
        out.
    """
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        raise CeilingError(
            "subject predictivity needs the coordinate 'subject' on the neuroids"
        )
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(
            f"subject predictivity needs (presentation, neuroid), not {tuple(assembly.dims)}"
        )
    assembly, counted = with_means_for_missing_trials(assembly, splits)
    values = assembly.transpose("presentation", "neuroid").values
    labels = assembly["subject"].values.astype(str)
    complete = np.isfinite(values).all(axis=0)
    subjects, notes = _complete_subjects(labels, complete)
    notes = [*counted, *notes]
    if len(subjects) < FEWEST:
        raise CeilingError(
            "one subject cannot be predicted from others: subject predictivity needs at least two"
            + "".join(f" ({note})" for note in notes)
        )
    result = np.full((len(splits), values.shape[1]), np.nan)
    coords = {
        name: coord
        for name, coord in assembly.coords.items()
        if coord.dims == ("neuroid",)
    }
    coords["split"] = xr.DataArray(np.arange(len(splits)), dims="split")
    samples = xr.DataArray(result, dims=("split", "neuroid"), coords=coords)
    ids = stimulus_names(assembly, len(values))
    inflated = inflation(splits)
    varying: list[tuple[Booleans, Variation]] = []
    for subject in subjects:
        facts = Facts(notes, [], [])
        others = (labels != subject) & complete
        try:
            scores = correlations(
                values[:, others],
                values[:, labels == subject],
                splits,
                workspace,
                estimator,
                correlation,
                1,
                facts,
            )
        except MetricError as error:
            raise CeilingError(f"subject {str(subject)!r}: {error}") from error
        own = labels == subject
        result[:, own] = scores[:, 0]
        places = [[at] for at in range(len(splits))]
        varying.append(
            (
                own,
                held_out_variation(
                    samples[:, own], ids, facts.test_parts, places, inflated
                ),
            )
        )

    def each(factor: str, codes: Indices) -> Floats:
        left = np.full((int(codes.max()) + 1, *result.shape), np.nan)
        for own, part in varying:
            left[:, :, own] = np.array(one_by_one(part, factor, codes, len(left)))
        return left

    def without(keep: Keep) -> xr.DataArray:
        left = np.full(result.shape, np.nan)
        for own, part in varying:
            left[:, own] = part.without(keep).values
        return samples.copy(data=left)

    varies = Variation(
        {"stimulus": ids}, without, each, inflation={"stimulus": inflated}
    )
    return Samples(samples, varies, notes=notes)


def _complete_subjects(
    labels: np.ndarray, complete: np.ndarray
) -> tuple[list[str], list[str]]:
    """Subjects that have a neuroid without missing responses, and a note about the others."""
    subjects = np.unique(labels[complete]).tolist()
    incomplete = sorted(set(labels.tolist()) - set(subjects))
    if not incomplete:
        return subjects, []
    return subjects, [
        f"{len(incomplete)} subjects without a complete neuroid were left out, first {incomplete[0]!r}"
    ]


@ceiling("extrapolated_predictivity", version=4, example=examples.of_several_subjects)
def extrapolated_predictivity(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Ridge(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
    bootstraps: AtLeastOne = 100,
    seed: NonNegativeInt = 0,
) -> Samples:
    """Subject predictivity of each neuroid, extrapolated to infinitely many subjects: ``(neuroid,)``.

    Subject predictivity is computed in every set of 2, 3, … subjects, and ``v (1 − exp(−x / τ))`` is fitted to the means
    over sets of x subjects. The ceiling is the median of v over bootstraps of the sets and splits.

    Parameters
    ----------
    assembly
        As for :func:`subject_predictivity`.
    bootstraps, seed
        Number of bootstraps of sets and splits, and their seed, which is reset for each neuroid as in Brain-Score.

    Returns
    -------
    Samples
        ``(neuroid,)``. Without some stimuli, the ceiling changes as the height of the curve that is fitted to the mean
        predictivities of all sets.

    Raises
    ------
    CeilingError
        There are fewer than three subjects, or the curve cannot be fitted to any neuroid.

    Notes
    -----
    Schrimpf et al. (2021), as Brain-Score language computes it.
    """
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        raise CeilingError(
            "extrapolation over subjects needs the coordinate 'subject' on the neuroids"
        )
    labels = assembly["subject"].values.astype(str)
    rows = [dim for dim in assembly.dims if dim != "neuroid"]
    assembly, counted = with_means_for_missing_trials(assembly, splits)
    subjects, notes = _complete_subjects(labels, (~assembly.isnull()).all(rows).values)
    notes = [*counted, *notes]
    if len(subjects) < FEWEST + 1:
        details = "".join(f" ({note})" for note in notes)
        raise CeilingError(
            f"{len(subjects)} subjects: a curve over their number needs at least three{details}"
        )
    sizes = range(FEWEST, len(subjects) + 1)
    samples: dict[int, list[list[float]]] = {
        size: [[] for _ in labels] for size in sizes
    }
    varying: dict[int, list[tuple[Indices, Variation]]] = {size: [] for size in sizes}
    for size in sizes:
        for chosen in combinations(subjects, size):
            columns = np.flatnonzero(np.isin(labels, chosen))
            part = subject_predictivity(
                assembly.isel(neuroid=columns),
                splits=splits,
                workspace=workspace,
                estimator=estimator,
                correlation=correlation,
            )
            for column, values in zip(
                columns, part.values.transpose("neuroid", "split").values, strict=True
            ):
                samples[size][column] += values[np.isfinite(values)].tolist()
            varying[size].append((columns, cast(Variation, part.variation)))
    asymptotes = np.asarray(
        [
            asymptote(
                [samples[size][column] for size in sizes], sizes, bootstraps, seed
            )
            for column in range(len(labels))
        ]
    )
    if not np.isfinite(asymptotes).any():
        raise CeilingError(
            "no neuroid's predictivity could be extrapolated over the number of subjects"
        )
    coords = {
        name: coord
        for name, coord in assembly.coords.items()
        if coord.dims == ("neuroid",)
    }
    undefined = int(np.isnan(asymptotes[np.isin(labels, subjects)]).sum())
    notes += (
        [f"{undefined} of {len(labels)} neuroids could not be extrapolated"]
        if undefined
        else []
    )

    means = np.array(
        [
            [np.mean(values) if values else np.nan for values in samples[size]]
            for size in sizes
        ]
    )
    heights = _heights(means, sizes)
    result = xr.DataArray(asymptotes, dims=("neuroid",), coords=coords)

    def moved(left: Mapping[int, Sequence[tuple[Indices, Floats]]]) -> Floats:
        of_sizes = np.array(
            [_mean_over_sets(left[size], len(labels)) for size in sizes]
        )
        return np.asarray(asymptotes + _heights(of_sizes, sizes) - heights)

    def without(keep: Keep) -> xr.DataArray:
        left = {
            size: [(columns, varies.without(keep).values) for columns, varies in parts]
            for size, parts in varying.items()
        }
        return result.copy(data=moved(left))

    def each(factor: str, codes: Indices) -> Floats:
        count = int(codes.max()) + 1
        left = {
            size: [
                (columns, one_by_one(varies, factor, codes, count))
                for columns, varies in parts
            ]
            for size, parts in varying.items()
        }
        return np.array(
            [
                moved(
                    {
                        size: [(columns, groups[at]) for columns, groups in parts]
                        for size, parts in left.items()
                    }
                )
                for at in range(count)
            ]
        )

    ids = stimulus_names(assembly, assembly.sizes["presentation"])
    varies = Variation(
        {"stimulus": ids}, without, each, inflation={"stimulus": inflation(splits)}
    )
    return Samples(result, varies, notes=notes)


def _mean_over_sets(parts: Sequence[tuple[Indices, Floats]], neuroids: int) -> Floats:
    """Mean over sets of subjects and splits, (neuroid,), of predictivities (split, neuroid of the set)."""
    total = np.zeros(neuroids)
    known = np.zeros(neuroids)
    for columns, values in parts:
        total[columns] += np.nansum(values, axis=0)
        known[columns] += np.isfinite(values).sum(axis=0)
    return np.asarray(total / np.where(known > 0, known, np.nan))


def _heights(means: Floats, sizes: Sequence[int]) -> Floats:
    """Height of the curve fitted to the means of each neuroid, (size, neuroid)."""
    return np.array([_height(column.tolist(), sizes) for column in means.T])


def asymptote(
    samples: Sequence[Sequence[float]], sizes: Sequence[int], bootstraps: int, seed: int
) -> float:
    """Median over bootstraps of the height of the fitted curve; NaN if a size has no value or no fit converges."""
    if not all(samples):
        return float("nan")
    rng = np.random.RandomState(seed)
    heights = []
    for _ in range(bootstraps):
        means = [
            float(np.mean(rng.choice(values, size=len(values), replace=True)))
            for values in samples
        ]
        height = _height(means, sizes)
        if np.isfinite(height):
            heights.append(height)
    if heights:
        return float(np.median(heights))
    return float("nan")


def _height(means: Sequence[float], sizes: Sequence[int]) -> float:
    """Height of the curve fitted to mean predictivities by number of subjects; NaN if the fit does not converge."""
    try:
        # The covariance of the parameters is not used, and an extreme pace of an intermediate step may overflow.
        with (
            warnings.catch_warnings(),
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),
        ):
            warnings.simplefilter("ignore", OptimizeWarning)
            (height, _), _ = curve_fit(
                rise, list(sizes), means, bounds=([0, -np.inf], [1, np.inf])
            )
    except (RuntimeError, ValueError):
        return float("nan")
    return float(height)


def rise(x: np.ndarray, height: float, pace: float) -> np.ndarray:
    """Return ``height · (1 − exp(−x / pace))``."""
    return height * (1 - np.exp(-np.asarray(x) / pace))
