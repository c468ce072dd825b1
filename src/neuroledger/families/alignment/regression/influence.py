"""Influence of stimuli and neuroids on held-out correlations: of tested items, and of what readouts were fitted to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.regression.held_out import HeldOutPart
from neuroledger.families.alignment.regression.training import Slopes
from neuroledger.stats.resampling import Fitted, SharedFit
from neuroledger.stats.splits import Split

__all__ = ["correlation_influence", "refit_of", "training_influence"]


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


def training_influence(
    parts: Sequence[HeldOutPart], bins: Sequence[int], weights: Floats, signs: Floats, columns: Floats
) -> Fitted | None:
    """Influence of stimuli and targets through the fits, on a number that depends on the correlation of each part.

    Parameters
    ----------
    bins
        Time bin of each part.
    weights
        Derivative of the number by the correlation of each part and target, (part, target).
    signs, columns
        A random sign of each row of an assembly with one row for each stimulus, (row,), and of each target, (target,).

    Returns
    -------
    Fitted | None
        ``cells`` and ``signed_cells`` have dimensions (row, time bin, target). None if it is not known how the estimator
        depends on training rows.
    """
    fits = {id(part.training): part.training for part in parts}
    if None in fits.values():
        return None
    count, targets = len(signs), weights.shape[1]
    rows, signed, own, signed_own = np.zeros(count), np.zeros(count), np.zeros(targets), np.zeros(targets)
    cells, leverage = np.zeros((3, count, max(bins) + 1, targets)), 0.0
    for training in filter(None, fits.values()):
        chosen = [at for at, part in enumerate(parts) if part.training is training]
        slopes = [_slopes(parts[at], weights[at], signs[parts[at].rows % count], columns) for at in chosen]
        for at, found in zip(chosen, training.influence(slopes), strict=True):
            train, present = parts[at].train % count, np.flatnonzero(parts[at].columns)
            np.add.at(rows, train, found.rows)
            np.add.at(signed, train, found.signed)
            for kind, values in zip(cells, (found.cells, found.signed_cells, found.marked), strict=True):
                np.add.at(kind[:, bins[at]], np.ix_(train, present), values)
            own[present] += found.targets
            signed_own[present] += found.signed_targets
            leverage += found.leverage
    # Each tested row with each target, without the share of single responses, which ``cells`` contain.
    marked = cells[2].sum(axis=(0, 1))
    across = float(((marked - marked.mean()) ** 2).sum() - (cells[2] ** 2).sum())
    items = {"neuroid": SharedFit(own, signed_own, max(across, 0.0))}
    return Fitted(rows, signed, cells[0], cells[1], items, leverage / len(parts))


def _slopes(part: HeldOutPart, weights: Floats, signs: Floats, columns: Floats) -> Slopes:
    """Derivative of the weighted sum of a part's correlations by the predictions of its split; 0 for other time bins."""
    a, b = part.values - part.values.mean(axis=0), part.measured - part.measured.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        length = np.sqrt((a * a).sum(axis=0))
        slope = (b / np.sqrt((b * b).sum(axis=0)) - part.r * a / length) / length
    gradient, all_signs = np.zeros((part.tested, slope.shape[1])), np.ones(part.tested)
    gradient[part.places] = np.where(np.isfinite(part.r), np.nan_to_num(slope) * weights[part.columns], 0.0)
    all_signs[part.places] = signs
    return Slopes(part.split, gradient, all_signs, columns[part.columns])


def _without_each(a: Floats, b: Floats) -> Floats:
    """Correlation of each column with each row left out in turn, (row, column), computed from sums."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    rest = len(a) - 1
    product = (a * b).sum(axis=0) - a * b - a * b / rest
    own = (a * a).sum(axis=0) - a * a - a * a / rest
    other = (b * b).sum(axis=0) - b * b - b * b / rest
    return np.asarray(product / np.sqrt(own * other))
