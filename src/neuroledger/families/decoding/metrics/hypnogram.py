"""Differences of predicted from true hypnograms, by feature of the night."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.families.decoding.examples import of_nights
from neuroledger.families.decoding.hypnograms import hypnogram
from neuroledger.families.decoding.metrics.by_recording import (
    Recording,
    samples_by_recording,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.uncertainty import NOWHERE

__all__ = ["hypnogram_difference"]


@metric("hypnogram_difference", version=1, input="predictions", example=of_nights)
def hypnogram_difference(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    feature: Literal[
        "total_sleep_time_min",
        "sleep_efficiency_percent",
        "sleep_latency_min",
        "rem_latency_min",
        "wake_after_sleep_onset_min",
        "n1_percent",
        "n2_percent",
        "n3_percent",
        "rem_percent",
        "transitions",
    ],
    signed: bool = False,
    stages: dict[str, str] | None = None,
    cluster: str = "subject",
) -> Samples:
    """Mean over recordings of the difference of a feature, predicted minus true, per training seed and split, (seed, split).

    A recording is one night, whose windows are all tested; see :class:`~neuroledger.families.decoding.hypnograms.Hypnogram`
    for the features, whose names state their units. Nights of which the feature is undefined, such as the latency of REM
    sleep without any, are left out.

    Parameters
    ----------
    source
        Predictions of windows: labels (presentation,), or scores (presentation, choice), in the order of `target`, with
        coordinates `onset` (seconds) and `recording`, and `seed` and `split` if there are several.
    target
        The true labels of the same windows.
    feature
        The feature that is compared.
    signed
        The mean of the differences, which is the bias; otherwise of their absolute values.
    stages
        The stage (W, N1, N2, N3 or R) of each label that has another word.
    cluster
        The coordinate whose values are left out for the interval, usually the subject.

    Raises
    ------
    MetricError
        The rows do not match, have no onset or recording, or a label is no stage.
    """

    def difference(windows: Recording) -> list[float]:
        predicted, true = (
            _feature(labels, windows, feature, stages or {})
            for labels in (windows.answer, windows.truth)
        )
        return [predicted - true if signed else abs(predicted - true)]

    kind = "mean" if signed else "mean absolute"
    return samples_by_recording(
        source,
        target,
        difference,
        _mean,
        cluster=cluster,
        limits=NOWHERE if signed else None,
        notes=[
            f"{kind} difference of {feature}, predicted minus true, over recordings"
        ],
    )


def _feature(
    labels: Array, windows: Recording, feature: str, stages: Mapping[str, str]
) -> float:
    """The feature of a night with these labels."""
    words = np.array([stages.get(label, label) for label in labels.tolist()])
    night = hypnogram(words, onsets_s=windows.onsets, window_s=windows.step)
    return float(night._asdict()[feature])


def _mean(weights: Floats, table: Floats) -> float:
    """The weighted mean over the recordings of which the feature is defined."""
    (differences,) = table.T
    known = np.where(np.isfinite(differences), weights, 0.0)
    total = known.sum()
    if total <= 0:
        return float("nan")
    return float(known @ np.nan_to_num(differences) / total)
