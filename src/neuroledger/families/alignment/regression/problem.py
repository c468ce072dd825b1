"""A regression problem (features, targets and splits), and the predictions of a readout for the test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple, Protocol, cast

import numpy as np

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.families.alignment.similarity.gram import Features, features
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["DIFFERENCE", "Prediction", "Problem", "Readout", "column_correlation"]

# Relative rounding error of predictions that are computed as responses minus residuals.
DIFFERENCE = 1e-12
# Products below this have lost digits by underflow.
SMALL = 1e-290


class Prediction(NamedTuple):
    """Predictions of one split (test row × target), notes about the fit, and the chosen penalty.

    ``rounding`` is the share of a target's standard deviation by which predictions of equal rows may differ.
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

    def left_out(self, split: Split) -> Indices:
        """Rows that are not training rows of ``split``: its test rows and unused rows."""
        out = np.ones(len(self.Y), bool)
        out[split.train] = False
        return np.flatnonzero(out)


class Readout(Protocol):
    """An estimator that predicts the targets of test rows after a fit to the train rows, for each split."""

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order, on the device."""
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
