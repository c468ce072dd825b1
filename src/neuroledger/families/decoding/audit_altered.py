"""Recordings that are copies with another gain, a filter or added noise: their windows correlate, but are not identical."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Indices, floats
from neuroledger.families.decoding.audit_common import Problems, first_names, text_of
from neuroledger.families.decoding.audit_copies import SAME, normalised

__all__ = [
    "BANDS",
    "FEWEST",
    "SHARE",
    "Spectra",
    "altered_copies",
    "are_identical",
    "whitened_spectra",
]

MOST_WINDOWS: Final = 40
"""Largest number of windows of a recording that are compared, from its beginning."""
MOST_FEATURES: Final = 3000
FEWEST: Final = 5
"""Least number of windows that match at one distance in time."""
SHARE: Final = 0.5
"""Least share of a recording's windows that match."""
ALIKE: Final = 0.75
"""Least median correlation of matching windows in one band: a signal with as much added noise correlates with .71."""
BANDS: Final = 8
APART: Final = 0.05
"""Onsets are at one distance if they agree to this many seconds."""


@dataclass(frozen=True)
class Spectra:
    """Features of windows ``(window, feature)``, the band of each feature, and rows and onsets by recording."""

    features: Floats
    bands: Indices
    rows: dict[str, Indices]
    onsets: Floats
    origins: Indices
    """Row of each window in the assembly."""


def altered_copies(assembly: xr.DataArray) -> Problems:
    """Pairs of recordings whose windows match one by one, at one distance in time, in at least one band of frequencies.

    Spectra are whitened for each recording and channel, which undoes gains and filters within the pass band. People whose
    brains follow the same stimulus also match, but with far lower correlations.
    """
    names, counts = np.unique(text_of(assembly, "recording"), return_counts=True)
    if (counts >= FEWEST).sum() < 2 or assembly.sizes["sample"] < 2 * BANDS:
        return
    spectra = whitened_spectra(assembly, list(map(str, names[counts >= FEWEST])))
    found = []
    for one, other in combinations(spectra.rows, 2):
        matched = _matches(spectra, spectra.rows[one], spectra.rows[other])
        if len(matched) < max(
            FEWEST, SHARE * min(len(spectra.rows[one]), len(spectra.rows[other]))
        ):
            continue
        alike = _largest_correlation(spectra, matched)
        if alike >= ALIKE and not _identical(assembly, spectra, matched):
            found.append(f"{one} and {other} ({len(matched)} windows, r = {alike:.2f})")
    if found:
        yield (
            "audit.duplicate",
            f"{len(found)} pairs of recordings have the same windows up to gain, filter or noise: {first_names(found)}",
            "Find out to whom the recording belongs, and remove the copy",
        )


def whitened_spectra(
    assembly: xr.DataArray, names: list[str], most: int = MOST_WINDOWS
) -> Spectra:
    """Spectra of `most` windows of each recording, divided by the root mean square of each channel and frequency."""
    recordings = text_of(assembly, "recording")
    onsets = assembly["onset"].values.astype(float)
    samples = assembly.sizes["sample"]
    channels = assembly.sizes["channel"]
    frequencies = np.arange(1, samples // 2)
    chosen = _chosen(channels * len(frequencies))
    channel_of, bin_of = np.divmod(chosen, len(frequencies))
    taper = np.hanning(samples)
    rows: dict[str, Indices] = {}
    parts: list[Array] = []
    kept: list[Floats] = []
    origins: list[Indices] = []
    first = 0
    for name in names:
        here = np.flatnonzero(recordings == name)
        here = here[np.argsort(onsets[here], kind="stable")][:most]
        values = floats(assembly.values[here])
        values = (values - values.mean(axis=2, keepdims=True)) * taper
        spectrum = np.fft.rfft(values, axis=2)[:, channel_of, frequencies[bin_of]]
        # The mean over windows is what every window of a task shares; copies share what is left.
        spectrum = spectrum - spectrum.mean(axis=0)
        scale = np.sqrt((np.abs(spectrum) ** 2).mean(axis=0))
        white = spectrum / np.where(scale > 0, scale, np.inf)
        parts.append(np.concatenate([white.real, white.imag], axis=1))
        rows[name] = np.arange(first, first + len(here))
        kept.append(onsets[here])
        origins.append(here)
        first += len(here)
    band = bin_of * BANDS // len(frequencies)
    return Spectra(
        np.concatenate(parts),
        np.concatenate([band, band]),
        rows,
        np.concatenate(kept),
        np.concatenate(origins),
    )


def _chosen(count: int) -> Indices:
    """Some of the channels and frequencies, drawn with a fixed seed."""
    if 2 * count <= MOST_FEATURES:
        return np.arange(count)
    drawn = np.random.default_rng(0).choice(count, MOST_FEATURES // 2, replace=False)
    return np.asarray(np.sort(drawn))


def _matches(spectra: Spectra, one: Indices, other: Indices) -> list[tuple[int, int]]:
    """Windows and the most similar one of the other recording, of those at the commonest distance in time."""
    best: list[tuple[int, int]] = []
    for band in range(BANDS):
        columns = spectra.bands == band
        if not columns.any():
            continue
        similar = (
            spectra.features[one][:, columns] @ spectra.features[other][:, columns].T
        )
        pairs = list(
            zip(one.tolist(), other[similar.argmax(axis=1)].tolist(), strict=True)
        )
        distances = np.array([spectra.onsets[b] - spectra.onsets[a] for a, b in pairs])
        at_one = np.abs(distances[:, None] - distances) <= APART
        commonest = int(at_one.sum(axis=1).argmax())
        agreeing = [
            pair for pair, same in zip(pairs, at_one[commonest], strict=True) if same
        ]
        if len(agreeing) > len(best):
            best = agreeing
    return best


def _largest_correlation(spectra: Spectra, matched: list[tuple[int, int]]) -> float:
    """Median correlation of the matching windows, in the band in which it is largest."""
    first, second = (
        spectra.features[list(rows)] for rows in zip(*matched, strict=True)
    )
    medians = []
    for band in range(BANDS):
        columns = spectra.bands == band
        a = first[:, columns]
        b = second[:, columns]
        size = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
        medians.append(
            float(np.median((a * b).sum(axis=1) / np.where(size > 0, size, np.inf)))
        )
    return max(medians)


def _identical(
    assembly: xr.DataArray, spectra: Spectra, matched: list[tuple[int, int]]
) -> bool:
    """Whether a matching window is the same up to gain, which is another finding."""
    return any(
        are_identical(assembly, *spectra.origins[[a, b]].tolist()) for a, b in matched
    )


def are_identical(assembly: xr.DataArray, a: int, b: int) -> bool:
    """Whether two windows, by their rows, are the same up to gain and sign."""
    first, second = normalised(np.asarray(assembly.values[[a, b]]))
    return abs(float(first @ second)) / len(first) > SAME
