"""Ridge readouts of classes: each class against the rest, with one penalty for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.ridge_cv import (
    RidgeCv,
    errors,
    of_gram,
    predicted,
)
from neuroledger.stats.workspace import Workspace

__all__ = ["decisions"]


def decisions(
    train: Floats, codes: Indices, test: Floats, penalties: Sequence[float]
) -> tuple[Indices, Floats]:
    """Sorted classes of ``codes``, and the decision value of each class for the rows of ``test``: (row, class).

    Features are scaled to mean 0 and variance 1 over ``train``; constant features are only centred. The target of each
    class is 1 for its own rows and -1 for the others. The penalty minimises the squared leave-one-out error over all
    classes; the first of equal penalties is used.

    Raises
    ------
    MetricError
        ``train`` contains only one class.
    """
    classes = np.unique(codes)
    if len(classes) < 2:
        raise MetricError(
            "a readout needs stimuli of at least two labels to be fitted to"
        )
    mean = train.mean(axis=0)
    variance = train.var(axis=0)
    # A variance within rounding error counts as zero.
    eps = np.finfo(np.float64).eps
    n = len(train)
    flat = variance <= n * eps * variance + (n * mean * eps) ** 2
    scale = np.where(flat, 1.0, np.sqrt(variance))
    Z = (train - mean) / scale
    new = (test - mean) / scale
    Y = np.where(codes[:, None] == classes, 1.0, -1.0)
    base = Y.mean(axis=0)
    rule = RidgeCv(alphas=tuple(penalties))
    spectrum = of_gram(Z @ Z.T, new @ Z.T, np).of(Y - base)
    best = int(np.argmin(errors(spectrum, Y - base, rule, np)))
    scores: Floats = (
        predicted(spectrum, np.asarray(rule.alphas)[[best]], Workspace(), np) + base
    )
    return classes, scores
