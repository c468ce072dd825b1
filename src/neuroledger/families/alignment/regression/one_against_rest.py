"""Ridge readouts of classes: one of each class against the rest, all with one penalty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv, errors, of_gram, predicted
from neuroledger.stats.workspace import Workspace

__all__ = ["decisions"]


def decisions(
    train: Floats, codes: Indices, test: Floats, penalties: Sequence[float]
) -> tuple[Indices, Floats]:
    """The classes of ``codes`` in order, and the decision value of each for the rows of ``test``: (row, class).

    Features are scaled to mean 0 and variance 1 over ``train``, constant ones to mean 0 alone. Each class is 1 for its
    own rows and -1 for the others; the penalty is that of least squared leave-one-out error over all classes, the first
    of equal ones.

    Raises
    ------
    MetricError
        ``train`` shows one class alone.
    """
    classes = np.unique(codes)
    if len(classes) < 2:
        raise MetricError("a readout needs stimuli of at least two labels to be fitted to")
    mean, variance = train.mean(axis=0), train.var(axis=0)
    # A variance that rounding alone explains is none.
    eps, n = np.finfo(np.float64).eps, len(train)
    flat = variance <= n * eps * variance + (n * mean * eps) ** 2
    scale = np.where(flat, 1.0, np.sqrt(variance))
    Z, new = (train - mean) / scale, (test - mean) / scale
    Y = np.where(codes[:, None] == classes, 1.0, -1.0)
    base = Y.mean(axis=0)
    rule = RidgeCv(alphas=tuple(penalties))
    spectrum = of_gram(Z @ Z.T, new @ Z.T, Y - base, np)
    best = int(np.argmin(errors(spectrum, Y - base, rule, np)))
    found: Floats = predicted(spectrum, np.asarray(rule.alphas)[[best]], Workspace(), np) + base
    return classes, found
