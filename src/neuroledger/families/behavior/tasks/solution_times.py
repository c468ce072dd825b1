"""Solution times: when the performance of a readout over time first reaches a threshold."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.errors import MetricError

__all__ = ["crossing_times", "softmax_readout"]

PENALTY = 0.463  # Kar et al. minimise the mean cross-entropy + ½ · PENALTY · ‖weights‖²
NEGLIGIBLE = (
    1e-12  # directions with less than this share of the largest variance are dropped
)


def crossing_times(performance: Floats, times: Floats, thresholds: Floats) -> Floats:
    """Return the time at which each row of ``(stimulus, time)`` reaches its threshold; NaN if it never does.

    The time is interpolated linearly between the first bin at or above the threshold and the best earlier bin; without an
    earlier bin whose performance is defined, it is the time of the first.
    """
    out = np.full(len(performance), np.nan)
    for row, (curve, threshold) in enumerate(zip(performance, thresholds, strict=True)):
        reached = np.flatnonzero(curve >= threshold)
        if not reached.size:
            continue
        hit = int(reached[0])
        below = np.flatnonzero(np.isfinite(curve[:hit]))
        out[row] = times[hit]
        if below.size:
            last = int(below[np.argmax(curve[below])])
            share = (threshold - curve[last]) / (curve[hit] - curve[last])
            out[row] = times[last] + share * (times[hit] - times[last])
    return out


def softmax_readout(
    train: Floats, labels: Array, test: Floats, *, penalty: float = PENALTY
) -> tuple[Floats, Array]:
    """Return class probabilities ``(stimulus, class)`` of test features, and the classes, by a regularised softmax readout.

    Features are standardised on the training part; weights and bias are the optimum of the mean cross-entropy plus
    ``½ penalty ‖·‖²``. The optimum is in the span of the training patterns, so features are first rotated into it: the
    cost grows with the number of stimuli, not of features.

    Raises
    ------
    MetricError
        All training stimuli have one label.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        raise MetricError(
            "all training stimuli show one object: a readout of objects needs at least two"
        )
    mean = train.mean(axis=0)
    deviation = train.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    z_train = (train - mean) / scale
    z_test = (test - mean) / scale
    if z_train.shape[1] > z_train.shape[0]:
        z_train, z_test = _project_on_span(z_train, z_test)
    ones = np.ones((len(z_train), 1))
    test_ones = np.ones((len(z_test), 1))
    model = LogisticRegression(
        C=1 / (penalty * len(z_train)),
        fit_intercept=False,
        solver="lbfgs",
        tol=1e-8,
        max_iter=2000,
    ).fit(np.hstack([z_train, ones]), labels)
    probabilities = model.predict_proba(np.hstack([z_test, test_ones]))
    return floats(probabilities), np.asarray(model.classes_)


def _project_on_span(x: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Rotate both parts to the principal axes of ``x``, computed from its Gram matrix; inner products are preserved."""
    variance, axes = np.linalg.eigh(x @ x.T)
    large = variance > NEGLIGIBLE * variance[-1]
    length = np.sqrt(variance[large])
    return axes[:, large] * length, (test @ x.T) @ (axes[:, large] / length)
