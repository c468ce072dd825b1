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
from neuroledger.families.alignment.similarity.influence import FEWEST_LEFT
from neuroledger.families.alignment.similarity.noise import NOISELESS, rank_agreement
from neuroledger.families.alignment.similarity.rdm import RANKED, Comparison, Distance
from neuroledger.spec.registry import ceiling
from neuroledger.stats.splits import Split
from neuroledger.stats.spread import Influence, Items, centred, from_left_out

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


@ceiling("rdm_consistency", version=6, together=_fits)
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
    found = _reliability(data)
    reliability = found.summary.reliability
    error = math.sqrt(sum(float(part[:, 0] @ part[:, 0]) for part in (found.by_stimulus, found.by_neuroid)))
    if reliability - 1.96 * error <= 0:
        raise CeilingError(
            f"the reliability of the RDM is {reliability:.3f} ± {1.96 * error:.3f}, which includes 0: the data "
            "contain no geometry to compare with; record more repetitions, stimuli or neuroids"
        )
    if found.agreement < CERTAIN:
        raise CeilingError(
            f"the RDMs of the halves agree by {found.agreement:.2f} standard deviations more than with permuted "
            f"stimuli, and noise may reach {CERTAIN}: the data may contain no geometry to compare with; record more "
            "repetitions, stimuli or neuroids"
        )
    value = _agreement(found, found.summary, distance, comparison)
    slopes = _slopes(found, distance, comparison)
    rows, columns = np.argsort(data.ids), np.argsort(data.neuroids)
    factors = {
        "stimulus": Items(data.ids[rows], (found.by_stimulus @ slopes)[rows]),
        "neuroid": Items(data.neuroids[columns], (found.by_neuroid @ slopes)[columns]),
    }
    crossed = {("stimulus", "neuroid"): slopes[0] * found.cells[np.ix_(rows, columns)]}
    # A few strong neuroids may dominate the geometry.
    influence = Influence(factors, crossed, sure={name: items.sure for name, items in factors.items()})
    # The higher a ceiling is, the less it varies.
    attrs = {"influence": influence, "limits": (0.0, 1.0), "skewed": True, "notes": notes}
    return xr.DataArray(value, attrs=attrs)


def _slopes(found: _Reliability, distance: Distance, comparison: Comparison) -> Floats:
    """Derivative of the agreement by each number of the summary, in the order of its fields."""
    slopes = np.zeros(len(found.summary))
    deviations = np.sqrt((found.by_stimulus**2).sum(axis=0) + (found.by_neuroid**2).sum(axis=0))
    for at, (number, deviation) in enumerate(zip(found.summary, deviations, strict=True)):
        step = min(0.05 * abs(number), 0.25 * float(deviation))
        if step <= 0:
            continue
        low, high = (
            _agreement(
                found, found.summary._replace(**{_Summary._fields[at]: number + change}), distance, comparison
            )
            for change in (-step, step)
        )
        slopes[at] = (high - low) / (2 * step)
    return slopes


class _Patterns(NamedTuple):
    """Mean patterns (stimulus × neuroid), patterns of the halves (split × half), and the noise of the mean pattern.

    ``noise`` is the trace of the noise covariance, of which ``noise_of_stimulus`` is the part of each stimulus's residuals
    and ``noise_of_neuroid`` that of each neuroid; ``noise_square`` is the trace of the square of the covariance, and
    ``across`` that of its product with the second moment of the patterns. ``centred`` says whether the mean over neuroids
    is subtracted.
    """

    mean: Floats
    halves: list[tuple[Floats, Floats]]
    norm: Floats
    noise: float
    noise_of_stimulus: Floats
    noise_of_neuroid: Floats
    noise_square: float
    across: float
    ids: Any
    neuroids: Any
    centred: bool


class _Summary(NamedTuple):
    """What determines the agreement.

    The share of noiseless variance in the measured dissimilarities, their mean and variance, the mean power of the
    noiseless patterns and its relative variance, and the noise of the mean pattern.
    """

    reliability: float
    mean: float
    variance: float
    power: float
    relative: float
    noise: float
    noise_square: float


class _Reliability(NamedTuple):
    """The summary, and the contribution of each item to its deviation.

    ``by_stimulus`` (stimulus, number) and ``by_neuroid`` (neuroid, number) have a column for each number of the summary;
    ``cells`` (stimulus, neuroid) is the part of the reliability's deviation that is contained in both.
    ``agreement`` is the covariance of the halves over its standard deviation with permuted stimuli.
    """

    summary: _Summary
    dissimilarities: Floats
    by_stimulus: Floats
    by_neuroid: Floats
    cells: Floats
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
        np.bincount(coded.codes, (residual**2).sum(axis=1), len(counts))[usable] / freedom * share,
        covariance.diagonal(),
        square,
        across,
        coded.labels.astype(str)[usable],
        neuroids.astype(str)[complete],
        distance == "correlation",
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
    """Covariance of the halves divided by the variance of the measured dissimilarities, and the influence of items.

    The influence of neuroids is the larger of two: derivatives by their weights underestimate the variance where all
    are noisy, and the values without each where the strongest are.
    """
    normed = bool((data.norm != 1).any())
    full = data.mean / data.norm[:, None]
    n, p = full.shape
    count = n * (n - 1)
    distances, deviation = _pairs(full, normed)
    variance = float((deviation**2).sum()) / count
    if variance <= 0:
        raise CeilingError("all stimuli are equally dissimilar: the RDM does not vary")
    shared, by_cell, permuted = np.zeros((n, n)), np.zeros((n, p)), 0.0
    for first, second in data.halves:
        a, b = first / data.norm[:, None], second / data.norm[:, None]
        (_, A), (_, B) = _pairs(a, normed), _pairs(b, normed)
        shared += A * B / len(data.halves)
        # At least the deviation of the mean over splits.
        permuted += _permuted_deviation(A, B) / len(data.halves)
        by_cell += (_slopes_of_cells(B, a, full, normed) + _slopes_of_cells(A, b, full, normed)) / len(
            data.halves
        )
    value = float(shared.sum()) / count / variance
    of_deviation = _slopes_of_cells(deviation, full, full, normed)
    by_cell = (by_cell - 2 * value * of_deviation) / count / variance
    pairs = (shared - value * deviation**2) / variance
    rows = pairs.sum(axis=1) / (n - 1)
    power = data.norm**2 if normed else np.ones(n)
    summary = _Summary(
        value,
        float(distances.sum()) / count,
        variance,
        *_power(power, data, normed),
        data.noise,
        data.noise_square,
    )
    by_stimulus = np.stack(
        [
            2 * (rows - rows.mean()) / n,
            2 * (distances.sum(axis=1) / (n - 1) - summary.mean) / n,
            2 * ((deviation**2).sum(axis=1) / (n - 1) - variance) / n,
            *from_left_out(np.array([_without_stimulus(s, power, data, normed) for s in range(n)])).T,
        ],
        axis=1,
    )
    of_neuroid = np.zeros((p, len(summary)))
    of_neuroid[:, 3:] = from_left_out(np.array([_without_neuroid(k, power, data, normed) for k in range(p)]))
    of_neuroid[:, 0] = by_cell.sum(axis=0)
    of_neuroid[:, 1] = _slopes_of_cells(1 - np.eye(n), full, full, normed).sum(axis=0) / count
    of_neuroid[:, 2] = 2 * of_deviation.sum(axis=0) / count
    if p > FEWEST_LEFT:
        left = from_left_out(_rdm_without_each_neuroid(data, normed))
        if left[:, 0] @ left[:, 0] > of_neuroid[:, 0] @ of_neuroid[:, 0]:
            of_neuroid[:, :3] = left
    by_stimulus = math.sqrt(n / (n - 1)) * (by_stimulus - by_stimulus.mean(axis=0))
    by_neuroid = math.sqrt(p / max(1, p - 1)) * (of_neuroid - of_neuroid.mean(axis=0))
    cells = centred(2 * by_cell)
    # The noise of a pair is in the deviations of both of its stimuli, of two neuroids, and of four single values; it must
    # count only once.
    within = max(0.0, float((pairs**2).sum()) / count - 2 * float(rows.var()))
    for part, times in ((by_stimulus[:, 0], 1), (by_neuroid[:, 0], 2)):
        part *= _reduction(float(part @ part), times * 2 * within / count, 0.25)
    cells *= _reduction(float((cells**2).sum()), 4 * 2 * within / count, 0.0)
    return _Reliability(
        summary,
        distances[np.triu_indices(n, 1)],
        by_stimulus,
        by_neuroid,
        cells,
        float(shared.sum()) / permuted if permuted > 0 else 0.0,
    )


def _power(power: Floats, data: _Patterns, normed: bool) -> tuple[float, float]:
    """Mean power of the noiseless patterns, and its variance over stimuli divided by the square of the mean."""
    signal = float(power.mean()) - data.noise
    spread = float(power.var(ddof=1))
    excess = spread - 2 * data.noise_square - 4 * data.across
    # The weight is near 0 for an excess within its sampling error, and near 1 for a much larger one.
    doubt = 4 * 2 / (len(power) - 1) * spread**2
    weight = excess**2 / (excess**2 + doubt) if excess > 0 else 0.0
    return signal, min(4.0, weight * excess / signal**2) if normed and signal > 0 else 0.0


def _without_stimulus(
    s: int, power: Floats, data: _Patterns, normed: bool
) -> tuple[float, float, float, float]:
    """The last four numbers of the summary without a stimulus."""
    n = len(power)
    noise = (data.noise - data.noise_of_stimulus[s]) * n / (n - 1)
    return *_power(np.delete(power, s), data._replace(noise=noise), normed), noise, data.noise_square


def _without_neuroid(
    k: int, power: Floats, data: _Patterns, normed: bool
) -> tuple[float, float, float, float]:
    """The last four numbers of the summary without a neuroid; their higher moments are taken as known."""
    noise = data.noise - data.noise_of_neuroid[k]
    rest = power - _share(data) * data.mean[:, k] ** 2 if normed else power
    return *_power(rest, data._replace(noise=noise), normed), noise, data.noise_square


def _share(data: _Patterns) -> float:
    """Share of a product of two responses by which the product of two patterns changes without the neuroid.

    The mean over neuroids changes too, which is subtracted for correlation distances.
    """
    p = data.mean.shape[1]
    return p / (p - 1) if data.centred else 1.0


def _rdm_without_each_neuroid(data: _Patterns, normed: bool) -> Floats:
    """The first three numbers of the summary without each neuroid, (neuroid, number); NaN if they are undefined."""
    n, p = data.mean.shape
    moments = _normed_moments if normed else _moments
    count = n * (n - 1)
    own, _, square = moments(data, data.mean, data.mean)
    mean = own / count
    variance = square / count - mean**2
    between = np.zeros(p)
    for first, second in data.halves:
        a, b, product = moments(data, first, second)
        between += (product / count - a / count * b / count) / len(data.halves)
    with np.errstate(invalid="ignore", divide="ignore"):
        reliability = np.where(variance > 0, between / variance, np.nan)
    return np.stack([reliability, mean, variance], axis=1)


def _normed_moments(data: _Patterns, first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums over pairs of stimuli of two dissimilarities, and of their product, without each neuroid, (neuroid,) each.

    A similarity without neuroid ``k`` is ``(P_st - c a_sk a_tk) / (|f_s| |f_t|)``: its sums over pairs are quadratic forms.
    """
    share, count = _share(data), len(first) * (len(first) - 1)
    P, Q = first @ first.T, second @ second.T
    power = (data.mean**2).sum(axis=1)[:, None]
    rest = power - share * data.mean**2
    # NaN if a stimulus has a response of this neuroid only.
    u = 1 / np.where(rest > 1e-12 * power, rest, np.nan)
    v = np.sqrt(u)
    p, q = (np.diagonal(each)[:, None] - share * part**2 for each, part in ((P, first), (Q, second)))

    def total(products: Floats, part: Floats, diagonal: Floats) -> Floats:
        whole = _form(products, v) - share * (part * v).sum(axis=0) ** 2
        return np.asarray(whole - (diagonal * u).sum(axis=0))

    a, b = total(P, first, p), total(Q, second, q)
    both = _form(P * Q, u) - share * (_form(P, second * u) + _form(Q, first * u))
    both += share**2 * (first * second * u).sum(axis=0) ** 2 - (p * q * u**2).sum(axis=0)
    return count - a, count - b, count - a - b + both


def _moments(data: _Patterns, first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """As :func:`_normed_moments`, for squared distances per neuroid: those of a neuroid are ``a_s² + a_t² - 2 a_s a_t``."""
    n, p = first.shape
    D, E = (p * _pairs(each, normed=False)[0] for each in (first, second))
    a, b = first**2, second**2

    def own(squares: Floats, part: Floats) -> Floats:
        return np.asarray(2 * n * squares.sum(axis=0) - 2 * part.sum(axis=0) ** 2)

    def shared(distances: Floats, squares: Floats, part: Floats) -> Floats:
        return np.asarray(2 * (distances.sum(axis=1) @ squares) - 2 * _form(distances, part))

    each = (
        2 * n * (a * b).sum(axis=0)
        + 2 * a.sum(axis=0) * b.sum(axis=0)
        + 4 * (first * second).sum(axis=0) ** 2
    )
    each -= 4 * (a * second).sum(axis=0) * second.sum(axis=0) + 4 * (first * b).sum(axis=0) * first.sum(
        axis=0
    )
    product = (D * E).sum() - shared(D, b, second) - shared(E, a, first) + each
    return (D.sum() - own(a, first)) / (p - 1), (E.sum() - own(b, second)) / (p - 1), product / (p - 1) ** 2


def _form(products: Floats, values: Floats) -> Floats:
    """The quadratic form of each column of ``values``, (neuroid,)."""
    return np.asarray((values * (products @ values)).sum(axis=0))


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


def _reduction(total: float, variance: float, least: float) -> float:
    """Factor of deviations that removes ``variance`` from their ``total``, of which the share ``least`` remains."""
    return math.sqrt(max(least, 1 - variance / total)) if total > 0 else 1.0


def _pairs(patterns: Floats, normed: bool) -> tuple[Floats, Floats]:
    """Dissimilarities of all pairs (stimulus × stimulus) and their deviations from the mean; both are 0 on the diagonal."""
    product = patterns @ patterns.T
    squares = product.diagonal()
    distances = 1 - product if normed else (squares[:, None] + squares - 2 * product) / patterns.shape[1]
    n = len(distances)
    np.fill_diagonal(distances, 0.0)
    deviation = distances - distances.sum() / (n * (n - 1))
    np.fill_diagonal(deviation, 0.0)
    return distances, deviation


def _slopes_of_cells(weights: Floats, patterns: Floats, full: Floats, normed: bool) -> Floats:
    """Derivative of the weighted sum of dissimilarities by the weight of each neuroid in each stimulus, (stimulus, neuroid).

    The sum over stimuli is the derivative by the weight of the neuroid.
    """
    products = patterns * (weights @ patterns)
    if not normed:
        slopes = 2 * weights.sum(axis=1)[:, None] * patterns**2 - 2 * products
        return np.asarray(slopes / patterns.shape[1])
    # The norms are those of the full means also for products of halves.
    return np.asarray((weights * (patterns @ patterns.T)).sum(axis=1)[:, None] * full**2 - products)


def _agreement(found: _Reliability, summary: _Summary, distance: Distance, comparison: Comparison) -> float:
    """Expected agreement of a noiseless RDM with a measured one that has the ``summary``, and the shape of that found."""
    reliability = min(max(summary.reliability, 1e-9), 1.0)
    mean, variance = summary.mean, summary.variance
    d = mean + (found.dissimilarities - found.summary.mean) * math.sqrt(variance / found.summary.variance)
    similarity = (1 - mean, reliability * variance)
    shrinkage, square = _shrinkage(summary)
    level, second = similarity[0] / shrinkage, (similarity[1] + similarity[0] ** 2) / square
    # Noise increases squared distances, which are means over neuroids.
    bias = 2 * summary.noise / len(found.by_neuroid)
    if comparison == "cosine":
        if distance in ("correlation", "cosine"):
            product = 1 - level - similarity[0] + second * shrinkage
            size = 1 - 2 * level + second
        else:
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
        level = summary.noise_square + summary.noise * (mean - bias)
        slope = summary.noise / level if level > 0 else 0.0
    return factor * rank_agreement(d, reliability, comparison, slope)


def _shrinkage(summary: _Summary) -> tuple[float, float]:
    """Mean and mean square, over pairs, of the factor by which noise in the norms shrinks a similarity."""
    signal, relative = summary.power, summary.relative
    if relative <= 0 or signal <= 0:
        return 1.0, 1.0
    width = math.log1p(relative)
    normal = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    power = signal * np.exp(math.sqrt(width) * normal - width / 2)
    shares = power / (power + summary.noise)
    return float(np.sqrt(shares).mean()) ** 2, float(shares.mean()) ** 2
