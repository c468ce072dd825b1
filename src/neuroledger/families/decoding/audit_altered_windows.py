"""Single windows that are copies of others with another gain and added noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.families.decoding.audit_altered import (
    BANDS,
    FEWEST,
    SHARE,
    Spectra,
    are_identical,
    whitened_spectra,
)
from neuroledger.families.decoding.audit_common import Problems, first_names, text_of
from neuroledger.families.decoding.audit_copies import normalised

__all__ = ["altered_windows"]

ALIKE: Final = 0.6
"""Least correlation of copies in a band: a band with as much added noise as signal correlates with .71."""
BEYOND: Final = 2.0
"""Copies correlate at least this many times as high as one in a thousand other pairs."""
BANDS_ALIKE: Final = BANDS // 2
"""Least number of bands in which copies are alike; most artefacts are alike in one or two."""
FEWEST_FEATURES: Final = 12
"""Bands with fewer numbers are not compared."""
FEWEST_CHANNELS: Final = 3
"""Signals of fewer channels are not compared, because an artefact cannot be distinguished from a copy."""
ALIKE_BESIDE: Final = 0.5
"""Least correlation of copies beside the pattern of channels that is strongest in a window."""
MOST_PARTNERS: Final = 3
"""A window that is like more others is not their copy: all windows of these signals are alike."""
MOST_WINDOWS: Final = 3000
"""Largest number of windows that are compared."""
SAMPLED: Final = 300
"""Number of windows by which the correlations of other pairs are known."""


def altered_windows(assembly: xr.DataArray) -> Problems:
    """Pairs of windows that are the same signal with another gain and noise, in few places of the recordings.

    They are alike in half of the bands of frequencies, whitened for each recording and channel, far more than other pairs,
    and also beside the strongest pattern of channels, so that equal artefacts are no copies. Pairs that share samples, that
    are identical up to gain, or that belong to two recordings which are copies as a whole are left out.
    """
    names, counts = np.unique(text_of(assembly, "recording"), return_counts=True)
    chosen = list(map(str, names[counts >= FEWEST]))
    if (
        not chosen
        or assembly.sizes["sample"] < 2 * BANDS
        or assembly.sizes["channel"] < FEWEST_CHANNELS
    ):
        return
    spectra = whitened_spectra(
        assembly, chosen, max(MOST_WINDOWS // len(chosen), FEWEST)
    )
    numbers = np.concatenate(list(spectra.rows.values()))[:MOST_WINDOWS]
    threshold = max(ALIKE, BEYOND * _usual(spectra, numbers))
    alike = _bands_alike(spectra, numbers, threshold) >= BANDS_ALIKE
    pairs = list(_copies(assembly, spectra, numbers, alike))
    if not pairs:
        return
    recordings = text_of(assembly, "recording")
    subjects = text_of(assembly, "subject")
    onsets = assembly["onset"].values.astype(float)
    across = sum(subjects[a] != subjects[b] for a, b in pairs)
    examples = [
        f"{recordings[a]} at {onsets[a]:g} s and {recordings[b]} at {onsets[b]:g} s"
        for a, b in pairs
    ]
    yield (
        "audit.duplicate",
        f"{len(pairs)} pairs of windows are the same signal up to gain and noise, {across} of them of two subjects: "
        f"{first_names(examples)}",
        "Find out which of them were recorded, and remove the copies",
    )


def _correlations(spectra: Spectra, numbers: Indices) -> Iterator[Floats]:
    """Yield the correlations of windows in each band with enough features, (window, window)."""
    for band in range(BANDS):
        columns = np.flatnonzero(spectra.bands == band)
        if len(columns) < FEWEST_FEATURES:
            continue
        features: Floats = spectra.features[np.ix_(numbers, columns)]
        size = np.linalg.norm(features, axis=1, keepdims=True)
        features = features / np.where(size > 0, size, np.inf)
        yield features @ features.T


def _usual(spectra: Spectra, numbers: Indices) -> float:
    """The correlation that one in a thousand pairs reaches in as many bands as copies do."""
    count = min(len(numbers), SAMPLED)
    drawn = np.sort(np.random.default_rng(0).choice(numbers, count, replace=False))
    bands = np.array(list(_correlations(spectra, drawn)))
    if len(bands) < BANDS_ALIKE or count < FEWEST:
        return 1.0
    reached = np.sort(bands, axis=0)[-BANDS_ALIKE]
    return float(np.quantile(reached[np.triu_indices(count, 1)], 0.999))


def _bands_alike(
    spectra: Spectra, numbers: Indices, threshold: float
) -> npt.NDArray[np.int8]:
    """Number of bands in which two windows correlate above the threshold, (window, window), 0 below the diagonal."""
    count = np.zeros((len(numbers), len(numbers)), dtype=np.int8)
    for correlations in _correlations(spectra, numbers):
        count += correlations > threshold
    return np.triu(count, 1)


def _beside(first: Floats, second: Floats) -> float:
    """Correlation of two windows, (channel, sample), beside the strongest pattern of channels of the first."""
    pattern = np.linalg.svd(first, full_matrices=False)[0][:, :1]
    a, b = (window - pattern @ (pattern.T @ window) for window in (first, second))
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    if size > 0:
        return float((a * b).sum()) / size
    return 0.0


def _copies(
    assembly: xr.DataArray,
    spectra: Spectra,
    numbers: Indices,
    alike: Booleans,
) -> Iterator[tuple[int, int]]:
    """Yield the rows of pairs of windows that are copies."""
    partners = alike.sum(axis=0) + alike.sum(axis=1)
    rows = spectra.origins[numbers]
    recordings = text_of(assembly, "recording")[rows]
    onsets = spectra.onsets[numbers]
    seconds = assembly.sizes["sample"] / float(assembly.attrs["sampling_rate"])
    found = []
    for a, b in np.argwhere(alike).tolist():
        overlap = (
            recordings[a] == recordings[b] and abs(onsets[a] - onsets[b]) < seconds
        )
        stereotyped = max(partners[a], partners[b]) > MOST_PARTNERS
        if not overlap and not stereotyped:
            found.append((a, b))
    windows = Counter(recordings.tolist())
    of_recordings = Counter((recordings[a], recordings[b]) for a, b in found)
    for a, b in found:
        pair = (recordings[a], recordings[b])
        as_a_whole = of_recordings[pair] >= max(
            FEWEST, SHARE * min(windows[pair[0]], windows[pair[1]])
        )
        if pair[0] != pair[1] and as_a_whole:
            continue
        one = int(rows[a])
        other = int(rows[b])
        windows_of_pair = normalised(np.asarray(assembly.values[[one, other]])).reshape(
            2, *assembly.shape[1:]
        )
        if _beside(*windows_of_pair) > ALIKE_BESIDE and not are_identical(
            assembly, one, other
        ):
            yield one, other
