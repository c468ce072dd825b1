"""Ceiling of an RDM: the expected agreement of the noiseless dissimilarities with the measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtri

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.noise import NOISELESS, rank_agreement
from neuroledger.families.alignment.similarity.rdm import RANKED, Comparison, Distance
from neuroledger.spec.registry import ceiling
from neuroledger.stats.splits import Split
from neuroledger.stats.spread import Influence, Items

__all__ = ["rdm_consistency"]

FEWEST_STIMULI = 4
# Agreement of the halves, in standard deviations of that with permuted stimuli, that at most one in 200 sets of noise has.
CERTAIN = 2.58
# Number of quantiles at which the distribution of the patterns' power is evaluated.
QUANTILES = 400


def _fits(parameters: Any) -> None:
    if parameters.distance == "euclidean" and parameters.comparison not in RANKED:
        raise ValueError(
            "the noise of euclidean distances is not additive: use `distance: squared_euclidean`, or a comparison by "
            "ranks (spearman, rho_a, kendall_tau_a)"
        )


@ceiling("rdm_consistency", version=4, together=_fits)
def rdm_consistency(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> xr.DataArray:
    """Expected agreement of the noiseless RDM with the RDM of the responses averaged over all repetitions.

    The products of the patterns of two stimuli have no noise bias, and the products in two halves of the repetitions have
    independent noise. If the products of each half are divided by the norms of the full means, the covariance of the
    halves over pairs of stimuli is therefore the variance of the noiseless part of the full RDM, at any signal-to-noise
    ratio and number of repetitions. The Spearman-Brown formula does not apply, because a part of the noise of products
    falls with the square of the number of repetitions. The share of that variance in the variance of the RDM is its
    reliability; the square root of the reliability is the correlation with the noiseless part. Comparisons by ranks need
    the distribution of the noiseless dissimilarities, which is deconvolved from the measured one [richardson1972,
    lucy1974]. Noise shrinks correlations of weak patterns more than those of strong ones; this effect is estimated from
    the variance of the patterns' power, which is assumed to be lognormal.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``stimulus_id`` and ``repetition``, not averaged.

    Returns
    -------
    xr.DataArray
        One number. ``attrs["influence"]`` is the contribution of each stimulus and neuroid to its deviation.

    Raises
    ------
    CeilingError
        There are no repetitions, the interval of the reliability includes 0, or the halves agree no more than noise may.
    """
    if "stimulus_id" not in assembly.coords or set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(
            "an RDM's consistency needs (presentation, neuroid) with stimulus_id and repetitions that are not averaged"
        )
    notes: list[str] = []
    data = _patterns(assembly, splits, distance, notes)
    reliability = _reliability(data)
    deviations = {
        "stimulus": (data.ids, reliability.by_stimulus),
        "neuroid": (data.neuroids, reliability.by_neuroid),
    }
    error = math.sqrt(sum(float(deviation @ deviation) for _, deviation in deviations.values()))
    if reliability.value - 1.96 * error <= 0:
        raise CeilingError(
            f"the reliability of the RDM is {reliability.value:.3f} ± {1.96 * error:.3f}, which includes 0: the data "
            "contain no geometry to compare with; record more repetitions, stimuli or neuroids"
        )
    if reliability.agreement < CERTAIN:
        raise CeilingError(
            f"the RDMs of the halves agree by {reliability.agreement:.2f} standard deviations more than with permuted "
            f"stimuli, and noise may reach {CERTAIN}: the data may contain no geometry to compare with; record more "
            "repetitions, stimuli or neuroids"
        )
    value = _agreement(reliability, reliability.value, distance, comparison)
    step = min(0.05 * reliability.value, 0.25 * error)
    slope = 0.0
    if step > 0:
        ends = [
            _agreement(reliability, reliability.value + sign * step, distance, comparison) for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
    scaled = {name: (ids, slope * deviation) for name, (ids, deviation) in deviations.items()}
    factors = {
        name: Items(np.sort(ids), deviation[np.argsort(ids)]) for name, (ids, deviation) in scaled.items()
    }
    return xr.DataArray(value, attrs={"notes": notes, "influence": Influence(factors)})


class _Patterns(NamedTuple):
    """Mean patterns (stimulus × neuroid), patterns of the halves (split × half), and the noise of the mean pattern.

    ``noise`` is the trace of the noise covariance, ``noise_square`` the trace of its square, and ``across`` the trace of
    its product with the second moment of the patterns.
    """

    mean: Floats
    halves: list[tuple[Floats, Floats]]
    norm: Floats
    noise: float
    noise_square: float
    across: float
    ids: Any
    neuroids: Any


class _Reliability(NamedTuple):
    """Share of noiseless variance in the measured dissimilarities, and the contribution of each item to its deviation.

    ``agreement`` is the covariance of the halves over its standard deviation with permuted stimuli.
    """

    value: float
    dissimilarities: Floats
    power: tuple[float, float]
    noise: float
    noise_square: float
    by_stimulus: Floats
    by_neuroid: Floats
    agreement: float


def _patterns(
    assembly: xr.DataArray, splits: Sequence[Split], distance: Distance, notes: list[str]
) -> _Patterns:
    values = np.asarray(assembly.transpose("presentation", "neuroid").values, dtype=np.float64)
    complete: Booleans = np.asarray(np.isfinite(values).all(axis=0))
    if not complete.all():
        notes.append(f"{int((~complete).sum())} of {len(complete)} neuroids left out: responses are missing")
        values = values[:, complete]
    if values.shape[1] < (2 if distance == "correlation" else 1):
        raise CeilingError(f"{distance} dissimilarity needs more complete neuroids than {values.shape[1]}")
    values = values / max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    if distance == "correlation":
        values = values - values.mean(axis=1, keepdims=True)
    elif distance != "cosine":
        values = values - values.mean(axis=0)
    coded = encode(assembly["stimulus_id"].values)
    counts = np.bincount(coded.codes, minlength=len(coded.labels))
    parts = [[_mean(values, coded.codes, rows, len(counts)) for rows in split] for split in splits]
    mean = _mean(values, coded.codes, np.arange(len(values)), len(counts))
    usable: Booleans = np.asarray(
        np.all([np.isfinite(part[:, 0]) for pair in parts for part in pair], axis=0)
    )
    norm = np.linalg.norm(mean, axis=1)
    usable &= norm > 1e-12 * norm.max()
    if int(usable.sum()) < FEWEST_STIMULI:
        raise CeilingError(
            f"only {int(usable.sum())} stimuli have a pattern in both halves of every split; an RDM's consistency needs at "
            f"least {FEWEST_STIMULI}"
        )
    if not usable.all():
        notes.append(f"{int((~usable).sum())} of {len(usable)} stimuli left out: not in both halves")
    residual = values - mean[coded.codes]
    freedom = len(values) - len(counts)
    share = float((1 / counts[usable]).mean())  # of one trial's noise in the mean over a stimulus's trials
    covariance = residual.T @ residual / freedom * share
    trace = float(np.trace(covariance))
    # Sampling error of the covariance inflates the trace of its square.
    square = float((covariance * covariance).sum()) - trace**2 / freedom
    square *= freedom**2 / max(1.0, (freedom - 1) * (freedom + 2))
    mean = mean[usable]
    across = float(((mean @ covariance) * mean).sum()) / len(mean) - square
    unit = norm[usable] if distance in ("correlation", "cosine") else np.ones(len(mean))
    neuroids = assembly["neuroid_id"].values if "neuroid_id" in assembly.coords else np.arange(len(complete))
    halves = [(first[usable], second[usable]) for first, second in parts]
    return _Patterns(
        mean,
        halves,
        unit,
        trace,
        square,
        across,
        coded.labels.astype(str)[usable],
        neuroids.astype(str)[complete],
    )


def _mean(values: Floats, stimulus: Indices, rows: Indices, count: int) -> Floats:
    """Mean of each stimulus over ``rows`` (stimulus × neuroid); NaN for stimuli without rows."""
    from scipy.sparse import csr_array

    members = csr_array(
        (np.ones(len(rows)), (stimulus[rows], np.arange(len(rows)))), shape=(count, len(rows))
    )
    total: Floats = np.asarray(members @ values[rows])
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / np.bincount(stimulus[rows], minlength=count)[:, None]


def _reliability(data: _Patterns) -> _Reliability:
    """Covariance of the halves divided by the variance of the measured dissimilarities, and its derivatives."""
    normed = bool((data.norm != 1).any())
    full = data.mean / data.norm[:, None]
    n, p = full.shape
    upper = np.triu_indices(n, 1)
    distances, deviation = _pairs(full, normed)
    variance = float((deviation**2).sum()) / (n * (n - 1))
    if variance <= 0:
        raise CeilingError("all stimuli are equally dissimilar: the RDM does not vary")
    shared = np.zeros((n, n))
    slope = np.zeros(p)
    permuted = 0.0
    for first, second in data.halves:
        a, b = first / data.norm[:, None], second / data.norm[:, None]
        (_, A), (_, B) = _pairs(a, normed), _pairs(b, normed)
        shared += A * B / len(data.halves)
        permuted += _permuted_deviation(A, B) / len(
            data.halves
        )  # at least the deviation of the mean over splits
        slope += (_neuroid_slopes(B, a, full, normed) + _neuroid_slopes(A, b, full, normed)) / len(
            data.halves
        )
    count = n * (n - 1)
    value = float(shared.sum()) / count / variance
    slope = (slope - 2 * value * _neuroid_slopes(deviation, full, full, normed)) / count / variance
    cells = (shared - value * deviation**2) / variance
    rows = cells.sum(axis=1) / (n - 1)
    by_stimulus = math.sqrt(n / (n - 1)) * 2 * (rows - rows.mean()) / n
    by_neuroid = math.sqrt(p / max(1, p - 1)) * (slope - slope.mean())
    # The noise of a pair is in the deviations of both of its stimuli and of the neuroids; it must count only once.
    within = max(0.0, float((cells**2).sum()) / count - 2 * float(rows.var()))
    by_stimulus *= _noise_reduction(by_stimulus, 2 * within / count)
    by_neuroid *= _noise_reduction(by_neuroid, 4 * within / count)
    power = data.norm**2 if normed else np.ones(n)
    signal = float(power.mean()) - data.noise
    spread = float(power.var(ddof=1))
    excess = spread - 2 * data.noise_square - 4 * data.across
    # The weight is near 0 for an excess within its sampling error, and near 1 for a much larger one.
    doubt = 4 * 2 / (n - 1) * spread**2
    weight = excess**2 / (excess**2 + doubt) if excess > 0 else 0.0
    relative = min(4.0, weight * excess / signal**2) if normed and signal > 0 else 0.0
    return _Reliability(
        value,
        distances[upper],
        (signal, relative),
        data.noise,
        data.noise_square,
        by_stimulus,
        by_neuroid,
        float(shared.sum()) / permuted if permuted > 0 else 0.0,
    )


def _permuted_deviation(A: Floats, B: Floats) -> float:
    """Standard deviation of ``(A * B).sum()`` over permutations of the stimuli of one half [mantel1967].

    Both matrices are symmetric, with a zero diagonal and a sum of 0.
    """
    n = len(A)
    (a, a_rows), (b, b_rows) = ((float((M * M).sum()), float((M.sum(axis=1) ** 2).sum())) for M in (A, B))
    pairs = n * (n - 1)
    variance = 2 * a * b / pairs + 4 * (a_rows - a) * (b_rows - b) / (pairs * (n - 2))
    variance += 4 * (a - 2 * a_rows) * (b - 2 * b_rows) / (pairs * (n - 2) * (n - 3))
    return math.sqrt(max(0.0, variance))


def _noise_reduction(deviations: Floats, variance: float) -> float:
    """Factor that removes ``variance`` from the deviations; at least a quarter of their variance remains."""
    total = float(deviations @ deviations)
    return math.sqrt(max(0.25, 1 - variance / total)) if total > 0 else 1.0


def _pairs(patterns: Floats, normed: bool) -> tuple[Floats, Floats]:
    """Dissimilarities of all pairs (stimulus × stimulus) and their deviations from the mean; both are 0 on the diagonal."""
    product = patterns @ patterns.T
    squares = product.diagonal()
    distances = 1 - product if normed else (squares[:, None] + squares - 2 * product) / patterns.shape[1]
    n = len(distances)
    np.fill_diagonal(distances, 0.0)
    centred = distances - distances.sum() / (n * (n - 1))
    np.fill_diagonal(centred, 0.0)
    return distances, centred


def _neuroid_slopes(weights: Floats, patterns: Floats, full: Floats, normed: bool) -> Floats:
    """Derivative of the weighted sum of dissimilarities with respect to the weight of each neuroid, (neuroid,)."""
    products = np.einsum("ik,ik->k", patterns, weights @ patterns)
    if not normed:
        slopes = 2 * (weights.sum(axis=1) @ patterns**2) - 2 * products
        return np.asarray(slopes / patterns.shape[1])
    # The norms are those of the full means also for products of halves.
    norm_slopes = (weights * (patterns @ patterns.T)).sum(axis=1) @ full**2
    return np.asarray(norm_slopes - products)


def _agreement(
    estimate: _Reliability, reliability: float, distance: Distance, comparison: Comparison
) -> float:
    """Expected agreement of a noiseless RDM of the same geometry with the measured one."""
    reliability = min(max(reliability, 1e-9), 1.0)
    d = estimate.dissimilarities
    mean, variance = float(d.mean()), float(d.var())
    similarity = (1 - mean, reliability * variance)
    shrinkage, square = _shrinkage(estimate)
    level, second = similarity[0] / shrinkage, (similarity[1] + similarity[0] ** 2) / square
    if comparison == "cosine":
        if distance in ("correlation", "cosine"):
            product = 1 - level - similarity[0] + second * shrinkage
            size = 1 - 2 * level + second
        else:
            bias = 2 * estimate.noise / max(1, len(estimate.by_neuroid))
            size = reliability * variance + (mean - bias) ** 2
            product = size + bias * (mean - bias)
        return product / math.sqrt(size * (variance + mean**2))
    factor = 1.0
    if square < 1:
        own = second - level**2
        total = second * square - (level * shrinkage) ** 2
        factor = min(1.0, math.sqrt(max(own, 0.0) / total) * shrinkage) if total > 0 else 1.0
    if comparison == "pearson" or reliability >= NOISELESS:
        return factor * math.sqrt(reliability)
    slope = 0.0
    if distance not in ("correlation", "cosine"):
        # The noise variance of a squared distance is (8 tr Σ² + 8 tr Σ d) / p², where d is the distance without bias.
        bias = 2 * estimate.noise / max(1, len(estimate.by_neuroid))
        level = estimate.noise_square + estimate.noise * (mean - bias)
        slope = estimate.noise / level if level > 0 else 0.0
    return factor * rank_agreement(d, reliability, comparison, slope)


def _shrinkage(estimate: _Reliability) -> tuple[float, float]:
    """Mean and mean square, over pairs, of the factor by which noise in the norms shrinks a similarity."""
    signal, relative = estimate.power
    if relative <= 0 or signal <= 0:
        return 1.0, 1.0
    width = math.log1p(relative)
    normal = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    power = signal * np.exp(math.sqrt(width) * normal - width / 2)
    shares = power / (power + estimate.noise)
    return float(np.sqrt(shares).mean()) ** 2, float(shares.mean()) ** 2
