"""Properties of tuning curves: selectivity, bandwidth, size and texture indices.

Curves are ``(neuroid, condition)``; every function processes all neuroids at once. The definitions are those of Marques
et al. (2021), after Ringach et al. (2002), De Valois et al. (1982), Schiller et al. (1976), Cavanaugh et al. (2002) and
Freeman et al. (2013).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.ndimage import convolve1d

from neuroledger.data.arrays import Floats

__all__ = [
    "circular_variance",
    "mean_and_modulation",
    "orientation_bandwidth",
    "orthogonal_preferred_ratio",
    "size_tuning",
    "sparseness",
    "spatial_frequency_tuning",
    "texture_modulation",
    "variance_components",
]

Smoothing = Literal["hanning", "smooth", "flat", "triangle"]

KERNELS: dict[str, tuple[float, ...]] = {
    "hanning": (0.0, 0.4, 1.0, 0.4, 0.0),
    "smooth": (0.0, 0.2, 1.0, 0.2, 0.0),
    "flat": (1.0, 1.0, 1.0, 1.0, 1.0),
    "triangle": (0.5, 0.75, 1.0, 0.75, 0.5),
}


class Bandwidth(NamedTuple):
    """Width of orientation tuning and preferred orientation, both in degrees."""

    width: Floats
    preferred: Floats


class FrequencyTuning(NamedTuple):
    """Bandwidth (per cent, or octave-like), preferred frequency, and fit of the smoothed curve to the data."""

    width: Floats
    preferred: Floats
    r2: Floats


class SizeTuning(NamedTuple):
    """Grating summation field and surround diameter (in units of the radii), their ratio, suppression index."""

    summation_field: Floats
    surround_diameter: Floats
    ratio: Floats
    suppression: Floats


class Variances(NamedTuple):
    """Ratio of family to sample variance, and the shares of both in the total."""

    ratio: Floats
    sample: Floats
    family: Floats


def _smooth(
    curves: Floats, smoothing: Smoothing | None, mode: Literal["constant", "nearest"]
) -> Floats:
    if smoothing is None:
        return curves
    kernel = np.asarray(KERNELS[smoothing])
    return np.asarray(convolve1d(curves, kernel / kernel.sum(), axis=-1, mode=mode))


def circular_variance(curves: Floats, orientations: Floats) -> Floats:
    """``1 − |Σ r e^{2iθ}| / Σ |r|`` of orientations in degrees: 0 for responses to one orientation, 1 for no preference."""
    resultant = np.abs(curves @ np.exp(2j * np.deg2rad(orientations)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - resultant / np.abs(curves).sum(axis=-1))


def orientation_bandwidth(
    curves: Floats,
    orientations: Floats,
    *,
    smoothing: Smoothing | None = "hanning",
    threshold: float = 0.5,
    half: bool = False,
) -> Bandwidth:
    """Distance between the nearest crossings of ``threshold`` × maximum on both sides of the peak.

    The curve is repeated over 540°, smoothed, and interpolated by a cubic spline at every degree. The width is NaN if a
    crossing is missing or the width exceeds 180°; ``half`` returns half of it.
    """
    extended = np.concatenate([orientations - 180, orientations, orientations + 180])
    tiled = _smooth(np.tile(curves, (1, 3)), smoothing, "constant")
    degrees = np.linspace(-180, 359, 540)
    full = make_interp_spline(extended, tiled, k=3, axis=1)(degrees)
    preferred = full[:, 180:360].argmax(axis=1)
    width = np.full(len(curves), np.nan)
    for neuroid, peak in enumerate(preferred + 180):
        low = np.flatnonzero(full[neuroid] <= full[neuroid, peak] * threshold)
        before = low[low < peak]
        after = low[low > peak]
        if (
            before.size
            and after.size
            and degrees[after[0]] - degrees[before[-1]] <= 180
        ):
            width[neuroid] = degrees[after[0]] - degrees[before[-1]]
    return Bandwidth(width / 2 if half else width, preferred.astype(np.float64))


def orthogonal_preferred_ratio(curves: Floats) -> Floats:
    """Response to the orientation orthogonal to the preferred one, divided by the response to the preferred one."""
    count = curves.shape[1]
    rows = np.arange(len(curves))
    preferred = curves.argmax(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            curves[rows, (preferred + count // 2) % count] / curves[rows, preferred]
        )


def spatial_frequency_tuning(
    curves: Floats,
    frequencies: Floats,
    *,
    smoothing: Smoothing | None = "triangle",
    threshold: float = 0.707,
    mode: Literal["ratio", "octaves"] = "ratio",
) -> FrequencyTuning:
    """Peak and bandwidth on an axis of log₂ frequency, interpolated at 100 points by a cubic spline.

    ``ratio``: 100 × lower / upper frequency at ``threshold`` × maximum; ``octaves``: upper / lower − 1 (as in the peer;
    octaves would be the log₂ of the ratio). NaN if a side does not fall below the threshold.
    """
    axis = np.log2(frequencies)
    fine = np.linspace(axis[0], axis[-1], num=100)
    spline = make_interp_spline(
        axis, _smooth(curves, smoothing, "nearest"), k=3, axis=1
    )
    full = spline(fine)
    peaks = full.argmax(axis=1)
    sides = np.full((len(curves), 2), np.nan)
    for neuroid, peak in enumerate(peaks):
        low = np.flatnonzero(full[neuroid] <= full[neuroid, peak] * threshold)
        before = low[low < peak]
        after = low[low > peak]
        sides[neuroid, 0] = fine[before[-1]] if before.size else np.nan
        sides[neuroid, 1] = fine[after[0]] if after.size else np.nan
    lower, upper = 2.0**sides.T
    rest = ((curves - spline(axis)) ** 2).sum(axis=1)
    total = ((curves - curves.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = 1 - rest / total
    if mode == "octaves":
        width = upper / lower - 1
    else:
        width = lower / upper * 100
    return FrequencyTuning(
        np.asarray(width), np.asarray(2.0 ** fine[peaks]), np.asarray(r2)
    )


def size_tuning(curves: Floats, radii: Floats) -> SizeTuning:
    """Summation field, surround diameter and suppression of responses to gratings of increasing radius.

    Suppression is ``(max − last) / max``. If it exceeds 0.1, the summation field is twice the first radius with 95 % of
    the maximum, and the surround diameter is twice the first radius beyond the peak at which the response is within 5 % of
    the last one; otherwise both are NaN.
    """
    peaks = curves.max(axis=1)
    last = curves[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        suppression = (peaks - last) / peaks
    field = np.full(len(curves), np.nan)
    surround = np.full(len(curves), np.nan)
    for neuroid in np.flatnonzero((peaks > 0) & (suppression > 0.1)):
        curve = curves[neuroid]
        field[neuroid] = 2 * radii[np.flatnonzero(curve >= 0.95 * peaks[neuroid])[0]]
        plateau = last[neuroid] + 0.05 * abs(last[neuroid])
        beyond = np.flatnonzero((curve <= plateau) & (radii > radii[curve.argmax()]))
        surround[neuroid] = 2 * radii[beyond[0]]
    return SizeTuning(field, surround, surround / field, np.asarray(suppression))


def texture_modulation(noise: Floats, texture: Floats) -> Floats:
    """Mean over families ``(neuroid, family)`` of ``(texture − noise) / (texture + noise)``, ignoring 0/0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        index = (texture - noise) / (texture + noise)
    known = ~np.isnan(index)
    mean = np.full(len(index), np.nan)
    np.divide(
        np.where(known, index, 0.0).sum(axis=1),
        known.sum(axis=1),
        out=mean,
        where=known.any(axis=1),
    )
    return mean


def sparseness(responses: Floats) -> Floats:
    """``(1 − (Σr/n)² / (Σr²/n)) / (1 − 1/n)`` over all conditions of each neuroid: 0 dense, 1 for a single response."""
    flat = responses.reshape(len(responses), -1)
    n = flat.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            (1 - flat.mean(axis=1) ** 2 / (flat**2).mean(axis=1)) / (1 - 1 / n)
        )


def variance_components(responses: Floats) -> Variances:
    """Nested analysis of variance of ``(neuroid, family, sample)`` or ``(neuroid, family, sample, repetition)``.

    The ratio is ``(family / total + .02) / (sample / total + .02)``.
    """
    families, samples = responses.shape[1:3]
    sample_means = responses.mean(axis=3) if responses.ndim == 4 else responses
    means = sample_means.mean(axis=2)
    between = ((means - means.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) / (
        families - 1
    )
    within = ((sample_means - means[:, :, None]) ** 2).sum(axis=(1, 2)) / (
        families * (samples - 1)
    )
    if responses.ndim == 4:
        n = responses.shape[3]
        rest = ((responses - sample_means[..., None]) ** 2).sum(axis=(1, 2, 3)) / (
            families * samples * (n - 1)
        )
        sample = (n * within - rest) / n
        family = (samples * n * between - n * within) / (samples * n)
        residual = rest
    else:
        sample = within
        family = (samples * between - within) / samples
        residual = np.zeros_like(within)
    total = residual + sample + family
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (family / total + 0.02) / (sample / total + 0.02)
        return Variances(
            np.asarray(ratio), np.asarray(sample / total), np.asarray(family / total)
        )


def mean_and_modulation(responses: Floats) -> tuple[Floats, Floats]:
    """F0, the mean over phases (last axis), and F1, the amplitude of the first harmonic, ``2 |FFT₁| / n``."""
    harmonic = np.fft.rfft(responses, axis=-1)[..., 1]
    return responses.mean(axis=-1), np.asarray(
        2 * np.abs(harmonic) / responses.shape[-1]
    )
