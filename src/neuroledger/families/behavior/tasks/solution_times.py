"""When a growing representation first solves a stimulus: the crossing of a threshold between time bins."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Array, Floats

__all__ = ["crossing_times", "weighted_rank_correlation", "softmax_readout"]

PENALTY = 0.463  # of Kar et al.'s readout: ½ · PENALTY · ‖weights‖² beside the mean cross-entropy
NEGLIGIBLE = 1e-12  # of the largest variance: directions in which the training patterns do not differ


def crossing_times(performance: Floats, times: Floats, thresholds: Floats) -> Floats:
    """Time at which each row of ``(stimulus, time)`` reaches its threshold; NaN where it never does.

    The first bin at or above the threshold is joined by a line with the best earlier bin below it; without such a bin
    the time of the first is taken.
    """
    out = np.full(len(performance), np.nan)
    for row, (curve, threshold) in enumerate(zip(performance, thresholds, strict=True)):
        reached = np.flatnonzero(curve >= threshold)
        if not reached.size:
            continue
        hit = int(reached[0])
        before = np.flatnonzero(curve[:hit] < threshold)
        out[row] = times[hit]
        if before.size:
            last = int(before[np.argmax(curve[before])])
            share = (threshold - curve[last]) / (curve[hit] - curve[last])
            out[row] = times[last] + share * (times[hit] - times[last])
    return out


def softmax_readout(
    train: Floats, labels: Array, test: Floats, *, penalty: float = PENALTY
) -> tuple[Floats, Array]:
    """Class probabilities ``(stimulus, class)`` of test features, and the classes, by a regularised softmax readout.

    Features are standardised on the training part; weights and bias minimise the mean cross-entropy plus
    ``½ penalty ‖·‖²``, to the optimum. The optimum is in the span of the training patterns, so features are first
    rotated into it: the cost grows with stimuli, not with features.
    """
    from sklearn.linear_model import LogisticRegression

    mean, deviation = train.mean(axis=0), train.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    x, held = (train - mean) / scale, (test - mean) / scale
    if x.shape[1] > x.shape[0]:
        x, held = _in_their_span(x, held)
    ones, more = np.ones((len(x), 1)), np.ones((len(held), 1))
    model = LogisticRegression(
        C=1 / (penalty * len(x)), fit_intercept=False, solver="lbfgs", tol=1e-8, max_iter=2000
    ).fit(np.hstack([x, ones]), labels)
    found = model.predict_proba(np.hstack([held, more]))
    return np.asarray(found, dtype=np.float64), np.asarray(model.classes_)


def weighted_rank_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Spearman correlation of two rows of values with ``(draw, row)`` weights."""
    ranks = [_ranks(values, weights) for values in (x, y)]
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (rank - (weights * rank).sum(axis=1, keepdims=True) / total for rank in ranks)
        covariance = (weights * a * b).sum(axis=1)
        r: Floats = covariance / np.sqrt((weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1))
    return r


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Mean ranks ``(draw, row)`` of values that occur ``weights`` times."""
    distinct, group = np.unique(values, return_inverse=True)
    counts = np.zeros((len(weights), len(distinct)))
    for row, number in enumerate(group.ravel()):
        counts[:, number] += weights[:, row]
    ranks: Floats = (np.cumsum(counts, axis=1) - counts + (counts + 1) / 2)[:, group.ravel()]
    return ranks


def _in_their_span(x: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Both parts along the principal axes of ``x``, by its Gram matrix: inner products stay as they are."""
    variance, axes = np.linalg.eigh(x @ x.T)
    kept = variance > NEGLIGIBLE * variance[-1]
    length = np.sqrt(variance[kept])
    return axes[:, kept] * length, (held @ x.T) @ (axes[:, kept] / length)
