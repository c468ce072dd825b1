"""Influence of tested stimuli on held-out correlations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neuroledger.families.alignment.regression.held_out import HeldOutPart
from neuroledger.stats.splits import Split

__all__ = ["correlation_influence", "refit_of"]

Floats = NDArray[np.float64]

# With at most this many rows, a correlation without one of them is nearly always 1 or -1.
FEWEST_LEFT = 3


def correlation_influence(parts: Sequence[HeldOutPart]) -> list[Floats]:
    """Influence of each row on the correlation of each target, (row, all targets), for each held-out part.

    The root mean square of two estimates: leaving the row out of its own part, which overestimates the influence in small
    parts [efron1981], and the derivative of the correlation at the pooled moments of all parts, which underestimates it.
    """
    count = sum(len(part.rows) for part in parts)
    mean_a = sum(part.predicted.sum(axis=0) for part in parts) / count
    mean_b = sum(part.measured.sum(axis=0) for part in parts) / count
    aa, bb, ab = (
        sum((pair[0] * pair[1]).sum(axis=0) for pair in pairs) / count
        for pairs in zip(
            *(
                ((a, a), (b, b), (a, b))
                for a, b in ((part.predicted - mean_a, part.measured - mean_b) for part in parts)
            ),
            strict=True,
        )
    )
    influences = []
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = ab / np.sqrt(aa * bb)
        for part in parts:
            n = len(part.rows)
            a, b = (part.predicted - mean_a) / np.sqrt(aa), (part.measured - mean_b) / np.sqrt(bb)
            smooth = (a * b - pooled / 2 * (a * a + b * b)) / n
            if n > FEWEST_LEFT:
                left_out = _without_each(part.predicted, part.measured)
                sharp = (np.nanmean(left_out, axis=0) - left_out) * np.sqrt((n - 1) / n)
                sharp = np.where(np.isfinite(sharp), sharp, smooth)
                smooth = np.copysign(np.sqrt((smooth**2 + sharp**2) / 2), smooth + sharp)
            values = np.zeros((n, len(part.columns)))
            values[:, part.columns] = np.where(np.isfinite(part.r), np.nan_to_num(smooth), 0.0)
            influences.append(values)
    return influences


def refit_of(splits: Sequence[Split], features: int) -> float:
    """Factor by which the variance shared by all neuroids exceeds that of the tested stimuli: folds share training data.

    Nadeau and Bengio's term [nadeau2003], the number of tested over trained stimuli, is scaled by the number of features
    over trained stimuli (at most 1), because a readout of few features depends little on its training stimuli.
    """
    tested = len(np.unique(np.concatenate([split.test for split in splits])))
    trained = float(np.mean([len(split.train) for split in splits]))
    return 1 + tested / trained * min(1.0, features / trained)


def _without_each(a: Floats, b: Floats) -> Floats:
    """Correlation of each column with each row left out in turn, (row, column), computed from sums."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    rest = len(a) - 1
    product = (a * b).sum(axis=0) - a * b - a * b / rest
    own = (a * a).sum(axis=0) - a * a - a * a / rest
    other = (b * b).sum(axis=0) - b * b - b * b / rest
    return np.asarray(product / np.sqrt(own * other))
