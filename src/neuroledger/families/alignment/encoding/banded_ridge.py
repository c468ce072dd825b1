"""Banded ridge regression: one penalty for each feature space, given or chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.encoding.blocks import inner_blocks
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.stats.splits import Split

__all__ = [
    "banded_predictions",
    "BandedRidge",
    "BandedSearch",
    "candidate_penalties",
]

# Number of targets whose predictions are held at a time.
TARGETS = 1024
# Concentrations of the Dirichlet distributions of band weights, in turn: sparse and even ones [dupre2022].
CONCENTRATIONS = (0.1, 1.0)
# From 1e-4 to 1e4 by half powers of ten, correctly rounded: they are part of a score's definition, and NumPy's powers
# differ between processors.
DEFAULT_ALPHAS = tuple(
    float(Decimal(10) ** (Decimal(step) / 2)) for step in range(-8, 9)
)


class BandedSearch(BaseModel):
    """Penalties of banded ridge regression, given or how they are chosen.

    Attributes
    ----------
    penalties
        The penalty of each band by name, in squared units of its features; None: they are chosen.
    alphas, candidates
        A chosen penalty is ``alpha · v / weight``, where ``v`` is the variance of the band summed over its features,
        and the weights of all bands sum to 1: equal ones, each band alone, and random ones up to this number
        [dupre2022].
    folds
        Contiguous blocks of the training rows in which the squared error of each choice is measured.
    per_target
        Whether each neuroid has its own penalties.
    seed
        Seed of the random weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    penalties: Mapping[str, Annotated[float, Field(gt=0)]] | None = None
    alphas: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)
    ] = DEFAULT_ALPHAS
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 20
    folds: Annotated[int, Field(ge=2)] = 4
    per_target: bool = True
    seed: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class BandedRidge:
    """A readout of features in bands: minimises ``|Y − Σ_b X_b W_b − w|² + Σ_b λ_b |W_b|²``.

    Attributes
    ----------
    search
        Its penalties.
    bands
        Names of the bands, in order.
    band
        Band of each feature, (feature,).
    gap
        Rows next to a block that train nothing where penalties are chosen.
    """

    search: BandedSearch
    bands: Sequence[str]
    band: Indices
    gap: int = 0

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order; ``alpha`` is the geometric mean of a target's penalties."""
        X = floats(problem.X)
        Y = problem.Y
        for number, split in enumerate(problem.splits):
            values, penalties = banded_predictions(self, X, Y, split)
            with np.errstate(divide="ignore"):
                mean = np.exp(np.log(penalties).mean(axis=0))
            yield Prediction(problem.workspace.put(values), alpha=mean, split=number)


def banded_predictions(
    readout: BandedRidge, X: Floats, Y: Floats, split: Split
) -> tuple[Floats, Floats]:
    """Return predictions of the test rows (row × target), and the penalties (band × target); infinite: the band is unused.

    Parameters
    ----------
    X, Y
        Features (row × feature) and targets (row × target), finite.

    Raises
    ------
    MetricError
        A band has no penalty, or does not vary.
    """
    whole = _fold(readout, X, Y, split)
    search = readout.search
    if search.penalties is not None:
        missing = [name for name in readout.bands if name not in search.penalties]
        if missing:
            raise MetricError(
                f"the band {missing[0]!r} has no penalty; `penalties` names {', '.join(search.penalties)}"
            )
        given = np.array([search.penalties[name] for name in readout.bands])
        values = _spectral(whole, 1 / given, [1.0])
        return values[0], np.repeat(given[:, None], Y.shape[1], axis=1)
    weights = candidate_penalties(search, len(readout.bands))
    scale = 1 / _variances(readout, X[split.train])
    chosen = _chosen(readout, X, Y, split.train, weights * scale)
    return _refitted(whole, weights * scale, search.alphas, chosen)


class _Spectrum(NamedTuple):
    """``test @ diag(1 / (power + alpha)) @ (left @ right)`` are predictions without the mean.

    ``test`` is (test row × direction), ``power`` (direction,), ``left`` (direction × part) and ``right`` (part ×
    target).
    """

    test: Floats
    power: Floats
    left: Floats
    right: Floats


class _ByFeatures(NamedTuple):
    """A training and a test part with fewer features than training rows.

    ``test`` are centred features of the test rows, ``square`` (feature × feature) and ``product`` (feature × target)
    those of the training rows; ``base`` (target,) is the mean of the training rows, and ``measured`` the targets of
    the test rows.
    """

    test: Floats
    square: Floats
    product: Floats
    base: Floats
    measured: Floats
    band: Indices

    def spectrum(self, weights: Floats) -> _Spectrum:
        """Return the spectrum with the squares of features multiplied by the weight of their band."""
        scale = np.sqrt(weights)[self.band]
        power, axes = np.linalg.eigh(self.square * scale[:, None] * scale)
        scaled = axes.T * scale
        return _Spectrum(
            self.test @ scaled.T, np.maximum(power, 0.0), scaled, self.product
        )


class _ByRows(NamedTuple):
    """The same with at least as many features as training rows: Gram matrices (band × row × row), targets (row × target)."""

    among: Floats
    across: Floats
    right: Floats
    base: Floats
    measured: Floats

    def spectrum(self, weights: Floats) -> _Spectrum:
        """Return the spectrum with the squares of features multiplied by the weight of their band."""
        K = np.tensordot(weights, self.among, axes=1)
        power, axes = np.linalg.eigh(K)
        cross = np.tensordot(weights, self.across, axes=1)
        return _Spectrum(cross @ axes, np.maximum(power, 0.0), axes.T, self.right)


_Fold = _ByFeatures | _ByRows


def _fold(readout: BandedRidge, X: Floats, Y: Floats, split: Split) -> _Fold:
    train = X[split.train]
    test = X[split.test]
    level = train.mean(axis=0)
    base = Y[split.train].mean(axis=0)
    train, test, right = train - level, test - level, Y[split.train] - base
    measured = Y[split.test]
    if train.shape[1] < len(train):
        square = train.T @ train
        product = train.T @ right
        return _ByFeatures(test, square, product, base, measured, readout.band)
    among = []
    across = []
    for number in range(len(readout.bands)):
        own = readout.band == number
        features = train[:, own]
        among.append(features @ features.T)
        across.append(test[:, own] @ features.T)
    return _ByRows(np.array(among), np.array(across), right, base, measured)


def _spectral(
    fold: _Fold,
    weights: Floats,
    alphas: Sequence[float] | Floats,
    targets: slice | Indices = slice(None),
    spectrum: _Spectrum | None = None,
) -> Floats:
    """Return predictions (alpha × test row × target) of some targets."""
    test, power, left, right = spectrum or fold.spectrum(weights)
    response = left @ right[:, targets]
    shrunk = [response / (power + alpha)[:, None] for alpha in alphas]
    base = fold.base[targets]
    return np.array([test @ each + base for each in shrunk])


def candidate_penalties(search: BandedSearch, bands: int) -> Floats:
    """Return weights of the bands, (candidate × band), each candidate with the sum 1."""
    if bands == 1:
        return np.ones((1, 1))
    rng = np.random.default_rng(search.seed)
    equal = np.full((1, bands), 1 / bands)
    alone = np.eye(bands)
    drawn = [np.zeros((0, bands))]
    for number in range(search.candidates - bands - 1):
        concentration = CONCENTRATIONS[number % len(CONCENTRATIONS)]
        weights = rng.dirichlet(np.full(bands, concentration))
        drawn.append(weights[None])
    return np.concatenate([equal, alone, *drawn])


def _variances(readout: BandedRidge, X: Floats) -> Floats:
    """Return the variance of each band, summed over its features, (band,)."""
    power = X.var(axis=0)
    found = np.bincount(readout.band, power, len(readout.bands)).astype(np.float64)
    if not (found > 0).all():
        name = readout.bands[int(np.argmin(found))]
        raise MetricError(f"the band {name!r} does not vary over the training rows")
    return found


def _chosen(
    readout: BandedRidge, X: Floats, Y: Floats, train: Indices, weights: Floats
) -> tuple[Indices, Indices]:
    """Return the candidate and the position of alpha with the smallest squared error, for each target."""
    search = readout.search
    alphas = np.asarray(search.alphas)
    parts = inner_blocks(train, search.folds, readout.gap)
    folds = [
        _fold(readout, X, Y, Split(train[part.train], train[part.test]))
        for part in parts
    ]
    error = np.zeros((len(weights), len(alphas), Y.shape[1]))
    for candidate, each in enumerate(weights):
        for fold in folds:
            error[candidate] += _errors(fold, each, alphas)
    if not search.per_target:
        variance = np.maximum(Y.var(axis=0), np.finfo(np.float64).tiny)
        total = (error / variance).sum(axis=2, keepdims=True)
        error = np.repeat(total, Y.shape[1], axis=2)
    choices = error.reshape(-1, Y.shape[1])
    best: Indices = choices.argmin(axis=0)
    return np.asarray(best // len(alphas)), np.asarray(best % len(alphas))


def _errors(fold: _Fold, weights: Floats, alphas: Floats) -> Floats:
    """Return the summed squared error of the test rows, (alpha × target)."""
    spectrum = fold.spectrum(weights)
    count = fold.measured.shape[1]
    error = np.empty((len(alphas), count))
    for start in range(0, count, TARGETS):
        part = slice(start, start + TARGETS)
        values = _spectral(fold, weights, alphas, part, spectrum)
        error[:, part] = ((values - fold.measured[:, part]) ** 2).sum(axis=1)
    return error


def _refitted(
    whole: _Fold,
    weights: Floats,
    alphas: Sequence[float],
    chosen: tuple[Indices, Indices],
) -> tuple[Floats, Floats]:
    """Return predictions with the chosen penalties of each target, and the penalties (band × target)."""
    candidate, alpha = chosen
    values = np.empty(whole.measured.shape)
    for each in np.unique(candidate):
        spectrum = whole.spectrum(weights[each])
        for at in np.unique(alpha[candidate == each]):
            targets = np.flatnonzero((candidate == each) & (alpha == at))
            (values[:, targets],) = _spectral(
                whole, weights[each], [alphas[at]], targets, spectrum
            )
    with np.errstate(divide="ignore"):
        penalties = np.asarray(alphas)[alpha] / weights[candidate].T
    return values, penalties
