"""Blocks of time as splits: contiguous test blocks, and training rows at a distance from them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings, floats
from neuroledger.errors import MetricError
from neuroledger.spec.base import Frozen
from neuroledger.stats.groups import MOST_GROUPS
from neuroledger.stats.splits import Split

__all__ = ["Blocks", "inner_blocks", "segments"]

# A test part has as many rows at least, or its correlation means little.
FEWEST_TESTED = 10


class Blocks(Frozen):
    """Division of continuous recordings: each block is tested once, and rows near it train nothing.

    Attributes
    ----------
    by
        ``time``: each run is cut into ``folds`` blocks, and a split tests the same block of every run. ``run``: a
        split tests one run. ``intervals``: a split tests the bins between two times (ms) of every run.
    gap
        Number of bins on both sides of a test block that are left out of training.
    """

    by: Literal["time", "run", "intervals"] = "time"
    folds: Annotated[int, Field(ge=2, le=1000)] = 5
    gap: Annotated[int, Field(ge=0)] = 0
    intervals: tuple[tuple[float, float], ...] = ()

    def splits(self, run: Indices, bin: Indices, start: Sequence[float]) -> list[Split]:
        """Return the splits of rows.

        Parameters
        ----------
        run, bin
            Run and bin of each row, (row,).
        start
            Start of each bin in ms, (bin,).

        Raises
        ------
        MetricError
            Intervals overlap or are empty, there is one run only, or a part has too few rows.
        """
        tested = self._tested(run, bin, floats(start))
        return [_apart(mask, run, bin, self.gap) for mask in tested]

    def _tested(
        self,
        run: Indices,
        bin: Indices,
        start: Floats,
    ) -> list[Booleans]:
        if self.by == "run":
            runs = np.unique(run)
            if len(runs) < 2:
                raise MetricError(
                    "blocks by run need at least two runs; use `by: time` for one"
                )
            return [run == each for each in runs]
        if self.by == "intervals":
            _require_disjoint(self.intervals)
            times = start[bin]
            return [(times >= low) & (times < high) for low, high in self.intervals]
        first = int(bin.min())
        count = int(bin.max()) - int(bin.min()) + 1
        if count < self.folds * FEWEST_TESTED:
            raise MetricError(
                f"{self.folds} blocks of a run of {count} usable bins have fewer than {FEWEST_TESTED} bins: use "
                "fewer folds or "
                "longer runs"
            )
        block = (bin - first) * self.folds // count
        return [block == each for each in range(self.folds)]


def _require_disjoint(intervals: Sequence[tuple[float, float]]) -> None:
    if not intervals:
        raise MetricError("blocks by intervals need `intervals`: [[from, to], …] in ms")
    ordered = sorted(intervals)
    for low, high in ordered:
        if not low < high:
            raise MetricError(f"the block from {low:g} to {high:g} ms is empty")
    for (low, high), (after, end) in itertools.pairwise(ordered):
        if after < high:
            raise MetricError(
                f"blocks overlap: {low:g} to {high:g} ms and {after:g} to {end:g} ms share bins, which would be "
                "tested twice"
            )


def _apart(
    tested: Booleans,
    run: Indices,
    bin: Indices,
    gap: int,
) -> Split:
    """Return the split that tests a mask of rows; its training rows are more than ``gap`` bins away."""
    length = int(bin.max()) + 1
    place = run * (length + 2 * gap) + bin + gap  # runs do not touch
    covered = np.zeros((int(run.max()) + 1) * (length + 2 * gap), dtype=bool)
    at = place[tested]
    for shift in range(-gap, gap + 1):
        covered[at + shift] = True
    split = Split(np.flatnonzero(~covered[place]), np.flatnonzero(tested))
    for name, part in zip(Split._fields, split, strict=True):
        if len(part) < FEWEST_TESTED:
            raise MetricError(
                f"a block has {len(part)} {name} rows; at least {FEWEST_TESTED} are needed: use fewer folds, a "
                "smaller gap, or "
                "longer runs"
            )
    return split


def inner_blocks(rows: Indices, folds: int, gap: int) -> list[Split]:
    """Divide training rows (ascending row numbers) into contiguous blocks for the choice of penalties.

    Row numbers closer than ``gap`` to a test block train nothing. Positions are within ``rows``.
    """
    edges = np.linspace(0, len(rows), folds + 1).round().astype(np.intp)
    splits = []
    for low, high in itertools.pairwise(edges):
        near = (rows >= rows[low] - gap) & (rows <= rows[high - 1] + gap)
        train = np.flatnonzero(~near)
        if high > low and len(train):
            splits.append(Split(train, np.arange(low, high)))
    if not splits:
        raise MetricError(
            f"{len(rows)} training rows cannot choose penalties in {folds} folds with gaps of {gap}: give "
            "`penalties`, or use "
            "fewer folds"
        )
    return splits


def segments(run: Indices, bin: Indices) -> Strings:
    """Return the segment of time of each row, (row,): at most 60 of equal length over all runs.

    Neighbouring bins depend on each other, so that segments, not bins, are the items over which a score varies.
    """
    runs = int(run.max()) + 1
    count = int(bin.max()) + 1
    pieces = min(max(1, MOST_GROUPS // runs), count)
    piece = bin * pieces // count
    names = zip(run.tolist(), piece.tolist(), strict=True)
    return np.array([f"{run}@{piece}" for run, piece in names])
