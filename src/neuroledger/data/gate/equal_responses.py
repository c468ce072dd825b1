"""Find responses that are copies of those in another presentation, where no column of a table says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.factorize import encode
from neuroledger.data.normalise_input import as_text

__all__ = ["Equal", "equal_responses"]

MOST_CELLS: Final = 200
"""Largest number of neuroids and time bins that are examined, evenly spaced: a copied row shows in all of them."""
MOST_PAIRS: Final = 2000
CHANCE: Final = 1e-6
"""Expected number of equal rows by chance below which equal rows are copies."""
SELECTIVE: Final = 100.0
"""How much likelier equal values are in one stimulus than in two: about the ratio of a neuroid's deviations between and
within stimuli, and a ratio of 100 would be a reliability of .9999."""
DEVIATIONS: Final = 6.0
UNSEEN: Final = 3.0
"""Upper bound (95 %) of a Poisson mean of which nothing was observed."""


@dataclass(frozen=True)
class Equal:
    """Copies found by their values: presentations, or with ``cells`` single responses; ``row`` is the first copy."""

    count: int
    row: int
    cells: bool
    by_chance: int = 0


def equal_responses(assembly: xr.DataArray) -> Equal | None:
    """Find copies among presentations of the same stimulus; None if there are none, or if the data cannot show it.

    Parameters
    ----------
    assembly
        Responses ``(presentation, neuroid)`` or ``(presentation, neuroid, time_bin)`` with ``stimulus_id``.

    Notes
    -----
    Counts of spikes are equal by chance. Two rows are copies only if the values other than each neuroid's commonest one
    would hardly all agree by chance, judged by how often they agree in the other pairs of presentations of one stimulus;
    single responses only if values agree much more often within stimuli than between, which no selectivity explains.
    """
    if (
        set(assembly.dims) - {"time_bin"} != {"presentation", "neuroid"}
        or assembly.dtype.kind not in "iuf"
    ):
        return None
    stimuli = encode(as_text(assembly["stimulus_id"].values)).codes
    if len(np.unique(stimuli)) in (1, len(stimuli)):
        return None
    values = assembly.transpose("presentation", ...).values
    values = values.reshape(len(values), -1)
    chosen = np.unique(
        np.linspace(0, values.shape[1] - 1, MOST_CELLS).round().astype(np.intp)
    )
    cells = floats(values[:, chosen]) + 0.0  # -0.0 becomes 0.0
    rows = _equal_rows(cells, stimuli)
    # The examined cells find candidates; the whole rows confirm them.
    rows = [
        (a, b)
        for a, b in rows
        if np.array_equal(values[a], values[b], equal_nan=values.dtype.kind == "f")
    ]
    if rows and _surprising(cells, stimuli, rows):
        return Equal(len({b for _, b in rows}), min(b for _, b in rows), cells=False)
    return _equal_cells(cells, stimuli)


def _equal_rows(cells: Floats, stimuli: Indices) -> list[tuple[int, int]]:
    """Pairs of successive presentations of one stimulus with equal values; rows without any value are no pair."""
    present = ~np.isnan(cells).all(axis=1)
    content = np.ascontiguousarray(
        np.column_stack(
            [stimuli.astype(float), np.where(np.isnan(cells), np.inf, cells)]
        )
    )
    seen: dict[bytes, int] = {}
    pairs = []
    for row in np.flatnonzero(present).tolist():
        key = content[row].tobytes()
        if key in seen:
            pairs.append((seen[key], row))
        seen[key] = row
    return pairs


def _pairs_within(stimuli: Indices) -> Indices:
    """Pairs of successive presentations of one stimulus, (pair, 2); at most `MOST_PAIRS`, evenly spaced."""
    order = np.argsort(stimuli, kind="stable")
    same = np.flatnonzero(np.diff(stimuli[order]) == 0)
    if len(same) > MOST_PAIRS:
        same = same[np.linspace(0, len(same) - 1, MOST_PAIRS).round().astype(np.intp)]
    return np.stack([order[same], order[same + 1]], axis=1)


def _surprising(cells: Floats, stimuli: Indices, equal: list[tuple[int, int]]) -> bool:
    """Whether these pairs of rows would hardly be equal by chance: the most surprising of them decides."""
    telling = _is_uncommon(cells)
    pairs = _pairs_within(stimuli)
    alike = (cells[pairs[:, 0]] == cells[pairs[:, 1]]) | (
        np.isnan(cells[pairs[:, 0]]) & np.isnan(cells[pairs[:, 1]])
    )
    pairs = pairs[~alike.all(axis=1)]
    one = cells[pairs[:, 0]]
    other = cells[pairs[:, 1]]
    asked = telling[pairs[:, 0]] | telling[pairs[:, 1]]
    agreed = (asked & (one == other)).sum(axis=0)
    logarithms = np.log((agreed + 1) / (asked.sum(axis=0) + 2))
    evidence = min(float(logarithms[telling[a]].sum()) for a, _ in equal)
    return bool(np.log(max(len(pairs), 1)) + evidence < np.log(CHANCE))


def _is_uncommon(cells: Floats) -> Booleans:
    """Whether a value is present and not the commonest one of its column: silence is shared by chance."""
    uncommon = ~np.isnan(cells)
    for at in range(cells.shape[1]):
        labels, counts = np.unique(cells[:, at][uncommon[:, at]], return_counts=True)
        if len(labels) and counts.max() > 1:
            uncommon[:, at] &= cells[:, at] != labels[np.argmax(counts)]
    return uncommon


@dataclass(frozen=True)
class _Agreement:
    """Pairs of responses of one neuroid: in one stimulus and all, and of each those with equal values."""

    within: int
    anywhere: int
    possible_within: int
    possible: int
    first: int
    """Row of the first response that is equal to another one of its stimulus; -1 if there is none."""


def _equal_cells(cells: Floats, stimuli: Indices) -> Equal | None:
    """Copies of single responses, from how often values agree within and between stimuli."""
    within = 0
    expected = 0.0
    likeliest = 0.0
    first: list[int] = []
    for column in cells.T:
        rows = np.flatnonzero(~np.isnan(column))
        found = _agreement(column[rows], stimuli[rows])
        between = found.possible - found.possible_within
        if not found.possible_within or not between:
            continue
        ratio = found.possible_within / between
        within += found.within
        expected += SELECTIVE * ratio * (found.anywhere - found.within)
        likeliest = max(likeliest, ratio)
        if found.within:
            first.append(int(rows[found.first]))
    expected += UNSEEN * SELECTIVE * likeliest
    if not first or within <= expected + DEVIATIONS * np.sqrt(expected) + UNSEEN:
        return None
    return Equal(within, min(first), cells=True, by_chance=int(np.ceil(expected)))


def _agreement(column: Floats, stimuli: Indices) -> _Agreement:
    values = encode(column).codes
    both = values.astype(np.int64) * (int(stimuli.max(initial=0)) + 1) + stimuli
    _, cell, counts = np.unique(both, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts[cell.ravel()] > 1)
    return _Agreement(
        within=_pairs_of(counts),
        anywhere=_pairs_of(np.bincount(values)),
        possible_within=_pairs_of(np.bincount(stimuli)),
        possible=len(column) * (len(column) - 1) // 2,
        first=int(repeated[0]) if len(repeated) else -1,
    )


def _pairs_of(counts: Array) -> int:
    counts = np.asarray(counts, dtype=np.int64)
    return int((counts * (counts - 1) // 2).sum())
