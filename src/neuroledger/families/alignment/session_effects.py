"""Whether responses differ between sessions by more than chance: in their mean, given the stimuli, or in their spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, floats
from neuroledger.data.factorize import encode
from neuroledger.data.normalise_input import as_text

__all__ = ["SessionEffects", "session_effects"]

LEVEL: Final = 0.001
"""Probability of a report without any effect, over all neuroids and both tests (Bonferroni)."""
MOST_NEUROIDS: Final = 500
"""Largest number of neuroids that are tested, spread evenly over all; the report says how many were."""


@dataclass(frozen=True)
class SessionEffects:
    """Numbers of sessions and of examined neuroids, and of those whose mean or spread differs between sessions."""

    sessions: int
    neuroids: int
    means: int
    spreads: int

    @property
    def differ(self) -> bool:
        """Whether any neuroid differs by more than chance."""
        return self.means + self.spreads > 0


def session_effects(
    assembly: xr.DataArray, by: str = "session"
) -> SessionEffects | None:
    """Test each neuroid's responses for effects of the session; None if no stimulus occurs in two sessions.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)``, or with ``time_bin``, over which responses are averaged.
    by
        Coordinate of presentations with the session.

    Notes
    -----
    Means are compared by the F test of sessions in an additive model of stimuli and sessions, spreads by Brown and
    Forsythe's test. Neuroids with missing values are tested on what exists.
    """
    stimuli = encode(as_text(assembly["stimulus_id"].values)).codes
    sessions = encode(as_text(assembly[by].values)).codes
    count = int(sessions.max()) + 1
    if count < 2 or not _shared(stimuli, sessions):
        return None
    array = assembly.transpose("presentation", "neuroid", ...)
    values = floats(array.values)
    values = values.reshape(*values.shape[:2], -1).mean(axis=2)
    chosen = np.unique(
        np.linspace(0, values.shape[1] - 1, MOST_NEUROIDS).round().astype(np.intp)
    )
    level = LEVEL / (2 * len(chosen))
    means = spreads = 0
    for neuroid in chosen.tolist():
        present = np.isfinite(values[:, neuroid])
        column = values[present, neuroid]
        means += _p_of_means(column, stimuli[present], sessions[present]) < level
        spreads += _p_of_spreads(column, sessions[present]) < level
    return SessionEffects(count, len(chosen), means, spreads)


def _shared(stimuli: Indices, sessions: Indices) -> bool:
    """Whether a stimulus occurs in two sessions."""
    pairs = np.unique(np.stack([stimuli, sessions], axis=1), axis=0)
    return len(pairs) > len(np.unique(stimuli))


def _p_of_means(values: Floats, stimuli: Indices, sessions: Indices) -> float:
    """Probability of differences this large between sessions, given the stimuli; 1 if they cannot be compared."""
    from scipy.stats import f

    if not len(values):
        return 1.0
    indicators = (sessions[:, None] == np.unique(sessions)[1:]).astype(np.float64)
    residual = _within(values[:, None], stimuli)[:, 0]
    design = _within(indicators, stimuli)
    effect, _, rank, _ = np.linalg.lstsq(design, residual, rcond=None)
    free = len(values) - len(np.unique(stimuli)) - int(rank)
    if rank == 0 or free < 1:
        return 1.0
    explained = float(((design @ effect) ** 2).sum())
    left = max(float((residual**2).sum()) - explained, 0.0)
    if left == 0:
        return 0.0 if explained > 0 else 1.0
    return float(f.sf(explained / rank / (left / free), rank, free))


def _within(columns: Floats, stimuli: Indices) -> Floats:
    """Columns ``(presentation, column)`` minus their mean over the presentations of the same stimulus."""
    _, codes, counts = np.unique(stimuli, return_inverse=True, return_counts=True)
    totals = np.zeros((len(counts), columns.shape[1]))
    np.add.at(totals, codes.ravel(), columns)
    return np.asarray(columns - (totals / counts[:, None])[codes.ravel()])


def _p_of_spreads(values: Floats, sessions: Indices) -> float:
    """Probability of spreads that differ this much between sessions, by Brown and Forsythe's test."""
    from scipy.stats import levene

    groups = [values[_is(sessions, session)] for session in np.unique(sessions)]
    groups = [group for group in groups if len(group) > 1]
    if len(groups) < 2 or all(np.ptp(group) == 0 for group in groups):
        return 1.0
    probability = float(levene(*groups, center="median").pvalue)
    if np.isfinite(probability):
        return probability
    return 1.0


def _is(codes: Indices, code: int) -> Booleans:
    return np.asarray(codes == code)
