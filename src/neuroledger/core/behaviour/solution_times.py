"""When a growing representation first solves a stimulus: the crossing of a threshold between time bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["crossing_times", "softmax_readout"]

Floats = npt.NDArray[np.float64]
PENALTY = 0.463  # of Kar et al.'s readout: ½ · PENALTY · ‖weights‖² beside the mean cross-entropy


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
    train: Floats, labels: npt.NDArray[Any], test: Floats, *, penalty: float = PENALTY
) -> tuple[Floats, npt.NDArray[Any]]:
    """Class probabilities ``(stimulus, class)`` of test features, and the classes, by a regularised softmax readout.

    Features are standardised on the training part; weights and bias minimise the mean cross-entropy plus
    ``½ penalty ‖·‖²``, to the optimum. The optimum lies in the span of the training patterns, so features are first
    rotated into it: the cost grows with stimuli, not with features.
    """
    from sklearn.linear_model import LogisticRegression

    mean, deviation = train.mean(axis=0), train.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    x, held = (train - mean) / scale, (test - mean) / scale
    if x.shape[1] > x.shape[0]:
        _, _, axes = np.linalg.svd(x, full_matrices=False)
        x, held = x @ axes.T, held @ axes.T
    ones, more = np.ones((len(x), 1)), np.ones((len(held), 1))
    model = LogisticRegression(
        C=1 / (penalty * len(x)), fit_intercept=False, solver="lbfgs", tol=1e-8, max_iter=2000
    ).fit(np.hstack([x, ones]), labels)
    found = model.predict_proba(np.hstack([held, more]))
    return np.asarray(found, dtype=np.float64), np.asarray(model.classes_)
