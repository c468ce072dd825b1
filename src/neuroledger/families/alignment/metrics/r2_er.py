"""Fraction of explainable variance that a readout explains, corrected for noise without a ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings, floats
from neuroledger.data.factorize import encode, first_rows
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.held_out import Estimator
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.regression.problem import Problem, Targets
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import held_out_deviation, inflation
from neuroledger.stats.workspace import Workspace

__all__ = ["r2_er", "unbiased_fraction"]

FEWEST_TESTED = 5


@metric("r2_er", version=3, trials=True)
def r2_er(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Pls(),  # noqa: B008 - a frozen default
) -> Samples:
    """Squared correlation of predictions with the noiseless responses, estimated from noisy ones [pospisil2021].

    The numerator is the squared product of the centred predictions (of unit length) with the mean responses, the
    denominator the sum of squares of the mean responses; the expected contribution of noise of the measured variance is
    subtracted from both. The readout is fitted to the mean responses to the train stimuli and predicts those to the test
    stimuli.

    Parameters
    ----------
    source
        ``(presentation, neuroid)``, one row per stimulus.
    target
        ``(presentation, neuroid)`` with ``stimulus_id``; repetitions are not averaged.

    Returns
    -------
    Samples
        ``(split, neuroid)``; NaN where the responses to the test stimuli have no more variance than noise.

    Raises
    ------
    MetricError
        A stimulus was presented only once, no neuroid is complete, or a split tests on fewer than 5 stimuli.
    """
    values = floats(target.transpose("presentation", "neuroid").values)
    X = source.transpose("presentation", "neuroid").values
    coded = encode(target["stimulus_id"].values)
    count = np.bincount(coded.codes).astype(np.float64)
    if count.min() < 2:
        raise MetricError(
            f"stimulus {str(coded.labels[count.argmin()])!r} was presented once; r2_er needs two or more repetitions of "
            "every stimulus, to know the noise"
        )
    complete: Booleans = np.asarray(np.isfinite(values).all(axis=0))
    if not complete.any():
        raise MetricError(
            "no neuroid has a response in every presentation; drop what is incomplete"
        )
    notes = []
    if not complete.all():
        notes.append(
            f"{int((~complete).sum())} of {len(complete)} neuroids left out: responses are missing"
        )
    level = np.abs(values[:, complete]).max(axis=0)
    values = values[:, complete] / np.where(level > 0, level, 1.0)
    order = np.argsort(coded.codes, kind="stable")
    starts = np.searchsorted(coded.codes[order], np.arange(len(count)))
    mean = np.add.reduceat(values[order], starts, axis=0) / count[:, None]
    squares = np.add.reduceat((values - mean[coded.codes])[order] ** 2, starts, axis=0)
    noise = squares / ((count - 1) * count)[:, None]
    parts = [
        Split(*(np.unique(coded.codes[rows]) for rows in split)) for split in splits
    ]
    if (fewest := min(len(part.test) for part in parts)) < FEWEST_TESTED:
        raise MetricError(
            f"a split tests on {fewest} stimuli; r2_er needs {FEWEST_TESTED}: use fewer folds or a larger test part"
        )
    features = X[first_rows(coded.codes, len(count))]
    problem = Problem(features, Targets(mean, whole=True), parts, workspace)
    result = np.full((len(parts), len(complete)), np.nan)
    tested: list[_Tested] = []
    for at, (part, predicted) in enumerate(
        zip(parts, estimator.predictions(problem), strict=True)
    ):
        notes.extend(note for note in predicted.notes if note not in notes)
        answers = workspace.take(predicted.values)
        result[at, complete] = unbiased_fraction(
            answers, mean[part.test], noise[part.test].mean(axis=0)
        )
        tested.append(_Tested(part.test, answers, mean[part.test], noise[part.test]))
    undefined = int(np.isnan(result[:, complete]).all(axis=0).sum())
    if undefined:
        notes.append(
            f"{undefined} neuroids have no more variance than noise, or constant predictions"
        )

    coords = {name: c for name, c in target.coords.items() if c.dims == ("neuroid",)}
    samples = xr.DataArray(
        result,
        dims=("split", "neuroid"),
        coords={**coords, "split": np.arange(len(parts))},
    )
    varies = _variation(
        samples, coded.labels.astype(str), complete, tested, inflation(parts)
    )
    return Samples(samples, varies, notes=notes)


class _Tested(NamedTuple):
    """Test stimuli of a split, and their predictions, mean responses and noise (stimulus × complete neuroid)."""

    stimuli: Indices
    predicted: Floats
    measured: Floats
    noise: Floats

    def without(self, kept: Booleans) -> _Tested:
        """Return some of the stimuli."""
        return _Tested(
            self.stimuli[kept],
            self.predicted[kept],
            self.measured[kept],
            self.noise[kept],
        )

    def terms(self) -> Floats:
        """Return numerator and denominator of the fraction, per degree of freedom, (2 × neuroid)."""
        product, total = _terms(self.predicted, self.measured, self.noise.mean(axis=0))
        return np.stack([product, total]) / max(len(self.measured) - 1, 1)


def _variation(
    samples: xr.DataArray,
    ids: Strings,
    complete: Booleans,
    tested: Sequence[_Tested],
    inflated: float,
) -> Variation:
    """Return how the fractions change without tested stimuli; the fits stay.

    A fraction changes by the changes of its numerator and denominator, to first order about their means over all splits:
    the variance in a single split without noise may be close to 0.
    """
    whole = np.array([part.terms() for part in tested])
    product, total = np.nanmean(whole, axis=0)

    def moved_by(part: _Tested, terms: Floats, kept: Booleans) -> Floats:
        change = (
            part.without(kept).terms() - terms
            if kept.sum() > 1
            else np.zeros_like(terms)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (change[0] - product / total * change[1]) / total
        return np.where(total > 0, slope, 0.0)

    def without(keep: Keep) -> xr.DataArray:
        moved = samples.copy(deep=True)
        for at, (part, terms) in enumerate(zip(tested, whole, strict=True)):
            kept = keep["stimulus"][part.stimuli]
            own = samples.values[at, complete]
            left = own + moved_by(part, terms, kept)
            moved.values[at, complete] = held_out_deviation(
                own, left, np.asarray(1 - kept.mean())
            )
        return moved

    return Variation({"stimulus": ids}, without, inflation={"stimulus": inflated})


def unbiased_fraction(predicted: Floats, measured: Floats, noise: Floats) -> Floats:
    """Corrected squared correlation of each column (stimulus × column); ``noise`` is the variance of noise in the means."""
    product, total = _terms(predicted, measured, noise)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, product / total, np.nan)


def _terms(predicted: Floats, measured: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return numerator and denominator of the fraction of each column; the numerator of constant predictions is NaN."""
    x = predicted - predicted.mean(axis=0)
    y = measured - measured.mean(axis=0)
    size = (x * x).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = (x * y).sum(axis=0) ** 2 / size
        product = np.where(size > 0, explained - noise, np.nan)
    return product, (y * y).sum(axis=0) - (len(y) - 1) * noise
