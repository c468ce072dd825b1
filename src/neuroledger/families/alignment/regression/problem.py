"""A regression problem (features, targets and splits), and the predictions of a readout for the test rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import NamedTuple, Protocol, cast

import numpy as np

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.data.memory import BLOCK, release
from neuroledger.families.alignment.similarity.gram import Features, features
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = [
    "DIFFERENCE",
    "Prediction",
    "Problem",
    "Readout",
    "Targets",
    "column_correlation",
]

# Relative rounding error of predictions that are computed as responses minus residuals.
DIFFERENCE = 1e-12
# Products below this have lost digits by underflow.
SMALL = 1e-290


class Prediction(NamedTuple):
    """Predictions of one split (test row × target), notes about the fit, and the chosen penalty.

    ``rounding`` is the share of a target's standard deviation by which predictions of equal rows may differ. ``split`` is
    the number of the split; ``of`` are the targets that are predicted, or None for all.
    """

    values: Array
    notes: tuple[str, ...] = ()
    alpha: Floats | None = None
    rounding: float = 0.0
    split: int = 0
    of: Problem | None = None


@dataclass(frozen=True)
class Targets:
    """Finite targets as they were recorded, of which a block is converted to float64 at a time.

    Attributes
    ----------
    values
        (recorded row, column), in memory or a memory map.
    columns
        Columns that are targets; None for all.
    rows
        Recorded row of each row, which may repeat; None for all in order.
    power
        Values are multiplied by 2 to this power.
    whole
        Whether all targets are one block.
    """

    values: Array
    columns: Indices | None = None
    rows: Indices | None = None
    power: int = 0
    whole: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and targets."""
        rows, columns = self.values.shape
        return (
            rows if self.rows is None else len(self.rows),
            columns if self.columns is None else len(self.columns),
        )

    def blocks(self) -> list[slice]:
        """Slices of successive targets, of 16 MiB each."""
        rows, count = self.shape
        step = count if self.whole else max(1, BLOCK // (8 * rows))
        return [slice(start, start + step) for start in range(0, count, step)]

    def block(self, at: slice) -> Floats:
        """Some targets, (row, target)."""
        columns = at if self.columns is None else self.columns[at]
        part = self.values[:, columns]
        if self.rows is not None:
            part = part[self.rows]
        part = np.ascontiguousarray(part, dtype=np.float64)
        release(self.values)
        return np.ldexp(part, self.power) if self.power else part


@dataclass(frozen=True)
class Problem:
    """Features ``X`` (row × feature) that predict targets over ``splits``: all of them, or those ``at`` some positions."""

    X: Array
    targets: Targets
    splits: Sequence[Split]
    workspace: Workspace
    at: slice = field(default_factory=lambda: slice(None))

    def blocks(self) -> Iterator[Problem]:
        """The problems of successive blocks of targets; features belong to all of them, and are those of this problem."""
        parts = self.targets.blocks()
        if len(parts) == 1:
            yield self
        else:
            yield from (replace(self, at=part) for part in parts)

    @property
    def divided(self) -> bool:
        """Whether there are several blocks."""
        return len(self.targets.blocks()) > 1

    def placed(self, predictions: Iterable[Prediction]) -> Iterator[Prediction]:
        """Predictions of these targets, one for each split in order."""
        for split, predicted in enumerate(predictions):
            yield predicted._replace(split=split, of=self)

    @cached_property
    def Y(self) -> Floats:  # noqa: N802 - as in the formulas
        """The targets, (row, target)."""
        return self.targets.block(self.at)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.targets.shape[0]

    @cached_property
    def features(self) -> Features:
        """The features as an operator on rows, on the device."""
        return features(self.X, self.workspace, self.key)

    @cached_property
    def key(self) -> str:
        """Content hash of the features: the key of results that the workspace caches."""
        return self.workspace.key(self.X)

    @cached_property
    def centred(self) -> Array:
        """The targets on the device, minus :attr:`mean`."""
        return self.workspace.put(self.Y - self.mean)

    @cached_property
    def mean(self) -> Floats:
        """Mean of each target over all rows."""
        return np.asarray(self.Y.mean(axis=0))

    @cached_property
    def spread(self) -> Floats:
        """Standard deviation of each target over all rows."""
        return np.asarray(self.Y.std(axis=0))

    @cached_property
    def level(self) -> Floats:
        """Root mean square of each target over all rows."""
        return np.asarray(np.sqrt((self.Y * self.Y).mean(axis=0)))

    def left_out(self, split: Split) -> Indices:
        """Rows that are not training rows of ``split``: its test rows and unused rows."""
        out = np.ones(self.rows, bool)
        out[split.train] = False
        return np.flatnonzero(out)


class Readout(Protocol):
    """An estimator that predicts the targets of test rows after a fit to the train rows, for each split."""

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split and block of targets, on the device."""
        ...


def column_correlation(A: Array, B: Array, xp: ModuleType) -> Array:
    """Pearson correlation of each column of ``A`` with the same column of ``B``; NaN if either is constant."""
    constant = (A[:1] == A).all(0) | (B[:1] == B).all(0)
    A = A - A.mean(0)
    B = B - B.mean(0)
    a = (A * A).sum(0)
    b = (B * B).sum(0)
    # The product of two small sums of squares underflows before the product of their roots.
    product = a * b
    size = xp.where(product > SMALL, xp.sqrt(product), xp.sqrt(a) * xp.sqrt(b))
    flat = constant | (size == 0)
    return cast(
        Array, xp.where(flat, xp.nan, (A * B).sum(0) / xp.where(flat, 1.0, size))
    )
