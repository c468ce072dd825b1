"""Does the model solve late what the brain solves late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.stats import rankdata

from neuroledger.core.behaviour.discrimination import (
    collapse,
    image_dprimes,
    pearson,
    rates_from_probabilities,
)
from neuroledger.core.behaviour.solution_times import crossing_times, softmax_readout
from neuroledger.core.coding import coordinate, encode
from neuroledger.core.registry import metric
from neuroledger.core.splits import Split
from neuroledger.errors import MetricError

__all__ = ["object_solution_times"]

Floats = npt.NDArray[np.float64]


@metric("object_solution_times", version=1)
def object_solution_times(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    label: str = "image_label",
    threshold: str = "i1",
) -> xr.DataArray:
    """Spearman correlation of solution times over the tested stimuli, for each split: ``(split,)``.

    In every time bin a softmax readout of the object is fitted to the training stimuli; the d-prime of each tested
    stimulus (i1, not normalised, averaged over distractors) follows from its probabilities. The model solves a
    stimulus when that d-prime reaches people's.

    Parameters
    ----------
    source
        Model responses ``(presentation, neuroid, time_bin)`` with ``time_bin_start`` in ms.
    target
        Solution times of the brain in ms ``(presentation,)``, NaN where it did not solve; with the objects
        (``label``) and people's d-prime (``threshold``).
    label, threshold
        Coordinates of the target (the object also of the source).

    Raises
    ------
    MetricError
        No time, missing coordinates, or no split with three stimuli that both solve.

    Notes
    -----
    Kar et al. (2019); Kubilius et al. (2019). The readout is fitted to the optimum of the peer's objective, where the
    peer stops after forty epochs of Adam from random weights.
    """
    if "time_bin" not in source.dims or "time_bin_start" not in source.coords:
        raise MetricError(
            "solution times need responses over time: (presentation, neuroid, time_bin) with time_bin_start"
        )
    named = coordinate(target, label)
    named = coordinate(source, label) if named is None else named
    people = coordinate(target, threshold)
    if named is None or people is None:
        raise MetricError(
            f"solution times need the coordinates {label!r} (the object) and {threshold!r} (people's d-prime)"
        )
    starts = np.asarray(source["time_bin_start"].values, dtype=np.float64)
    order = np.argsort(starts)
    responses = source.transpose("time_bin", "presentation", "neuroid").values[order]
    objects, brain = encode(named), np.asarray(target.values, dtype=np.float64).ravel()
    values, notes = [], []
    for number, split in enumerate(splits):
        predicted = _times(responses, starts[order], objects.codes, people.astype(np.float64), split)
        both = ~(np.isnan(predicted) | np.isnan(brain[split.test]))
        values.append(
            pearson(rankdata(predicted[both]), rankdata(brain[split.test][both]))
            if both.sum() >= 3
            else np.nan
        )
        if np.isnan(values[-1]):
            notes.append(
                f"split {number}: {int(both.sum())} stimuli solved by both, or all at one time: left out"
            )
    if np.isnan(values).all():
        raise MetricError("in no split do model and brain solve at least three stimuli at different times")
    out = xr.DataArray(np.asarray(values), dims=("split",), coords={"split": np.arange(len(values))})
    out.attrs["notes"] = notes
    return out


def _times(
    responses: Floats, starts: Floats, objects: npt.NDArray[np.intp], thresholds: Floats, split: Split
) -> Floats:
    """Predicted solution times of the tested stimuli."""
    truth = objects[split.test]
    performance = np.full((len(split.test), len(starts)), -np.inf)
    for bin in range(len(starts)):
        features = responses[bin].astype(np.float64)
        probabilities, classes = softmax_readout(
            features[split.train], objects[split.train], features[split.test]
        )
        wide = np.zeros((len(split.test), int(objects.max()) + 1))
        wide[:, classes] = probabilities
        patterns = image_dprimes(rates_from_probabilities(wide, truth), truth, normalise=False)
        performance[:, bin] = np.nan_to_num(collapse(patterns)[:, 0], nan=-np.inf)
        if (performance.max(axis=1) >= thresholds[split.test]).all():
            break
    return crossing_times(performance[:, : bin + 1], starts[: bin + 1], thresholds[split.test])
