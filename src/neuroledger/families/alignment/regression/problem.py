"""A regression problem: features, targets and splits, and what a readout predicts for the test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from neuroledger.data.arrays import Floats, Indices
from neuroledger.families.alignment.similarity.gram import Features, features
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Array, Workspace

__all__ = ["DIFFERENCE", "Prediction", "Problem", "Readout", "column_correlation"]

# The rounding of predictions that are computed as the responses less a residual.
DIFFERENCE = 1e-12
# Products below this have lost digits to underflow.
SMALL = 1e-290


class Prediction(NamedTuple):
    """What one split's readout predicts: test row × target, what should be known of it, and the chosen penalty.

    ``rounding`` is the share of a target's variation by which predictions of equal rows may differ.
    """

    values: Array
    notes: tuple[str, ...] = ()
    alpha: Floats | None = None
    rounding: float = 0.0


@dataclass(frozen=True)
class Problem:
    """Features ``X`` (row × feature) that predict targets ``Y`` (row × target, float64, finite) over ``splits``."""

    X: Array
    Y: Floats
    splits: Sequence[Split]
    workspace: Workspace

    @cached_property
    def features(self) -> Features:
        """The features as an operator on rows, on the device."""
        return features(self.X, self.workspace, self.key)

    @cached_property
    def key(self) -> str:
        """The features' content hash, under which the workspace keeps what is computed from them."""
        return self.workspace.key(self.X)

    @cached_property
    def centred(self) -> Array:
        """The targets on the device, less their mean over all rows (undone by :attr:`mean`)."""
        return self.workspace.put(self.Y - self.mean)

    @cached_property
    def mean(self) -> Floats:
        """Mean of each target over all rows."""
        return np.asarray(self.Y.mean(axis=0))

    def left_out(self, split: Split) -> Indices:
        """Rows that do not train ``split``: its test rows, and any that it does not use."""
        out = np.ones(len(self.Y), bool)
        out[split.train] = False
        return np.flatnonzero(out)


class Readout(Protocol):
    """A way to predict the targets of test rows from those of train rows, split by split."""

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """One prediction for each split, in order, on the device."""
        ...


def column_correlation(A: Array, B: Array, xp: Any) -> Array:
    """Pearson correlation of each column of ``A`` with that of ``B``; NaN where a column is constant."""
    constant = (A[:1] == A).all(0) | (B[:1] == B).all(0)
    A = A - A.mean(0)
    B = B - B.mean(0)
    a, b = (A * A).sum(0), (B * B).sum(0)
    # The product of two small sums of squares underflows before its root does.
    size = xp.where(a * b > SMALL, xp.sqrt(a * b), xp.sqrt(a) * xp.sqrt(b))
    flat = constant | (size == 0)
    return cast(Array, xp.where(flat, xp.nan, (A * B).sum(0) / xp.where(flat, 1.0, size)))
