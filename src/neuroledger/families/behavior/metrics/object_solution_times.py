"""Whether the model solves the same stimuli late as the brain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from neuroledger.data.arrays import Floats, Indices, Reals, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.tasks.discrimination import (
    collapse,
    image_dprimes,
    pearson,
    rates_from_probabilities,
)
from neuroledger.families.behavior.tasks.solution_times import (
    crossing_times,
    softmax_readout,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import held_out_deviation, inflation
from neuroledger.stats.workspace import Workspace, fingerprint

__all__ = ["object_solution_times"]


@metric(
    "object_solution_times", version=2, timed=True, example=examples.of_solution_times
)
def object_solution_times(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    label: str = "image_label",
    threshold: str = "i1",
) -> Samples:
    """Return the Spearman correlation of solution times over the tested stimuli, for each split: ``(split,)``.

    In every time bin a softmax readout of the object is fitted to the training stimuli; its probabilities give the d-prime
    of each tested stimulus (i1, not normalised, averaged over distractors). The model solves a stimulus when this
    d-prime reaches that of people.

    Parameters
    ----------
    source
        Model responses ``(presentation, neuroid, time_bin)`` with ``time_bin_start`` in ms.
    target
        Solution times of the brain in ms ``(presentation,)``, NaN for unsolved stimuli, with the objects (``label``)
        and the d-prime of people (``threshold``).
    label, threshold
        Coordinates of the target; that of the object may also be in the source.

    Raises
    ------
    MetricError
        Time bins or coordinates are missing, or no split has three stimuli that both solve.

    Notes
    -----
    Kar et al. (2019); Kubilius et al. (2019). The readout is the optimum of the objective in Brain-Score, which stops after
    forty epochs of Adam from random weights.
    """
    if "time_bin" not in source.dims or "time_bin_start" not in source.coords:
        raise MetricError(
            "solution times need responses over time: (presentation, neuroid, time_bin) with time_bin_start"
        )
    labels = coordinate(target, label)
    if labels is None:
        labels = coordinate(source, label)
    people = coordinate(target, threshold)
    if labels is None or people is None:
        raise MetricError(
            f"solution times need the coordinates {label!r} (the object) and {threshold!r} (people's d-prime)"
        )
    starts = floats(source["time_bin_start"].values)
    order = np.argsort(starts)
    responses = source.transpose("time_bin", "presentation", "neuroid").values
    objects = encode(labels).codes
    brain = floats(target.values).ravel()
    thresholds = people.astype(np.float64)

    def solve() -> list[Floats]:
        bins = [responses[number] for number in order]
        return [
            _times(bins, starts[order], objects, thresholds, split) for split in splits
        ]

    # The times do not depend on those of the brain, so permutation tests on the same responses use the cached values.
    fingerprints = (
        fingerprint(responses),
        *map(fingerprint, (starts, objects, thresholds, *map(np.hstack, splits))),
    )
    solved = workspace.memo.get(
        ("object_solution_times", *fingerprints),
        solve,
        lambda times: sum(part.nbytes for part in times),
    )
    values = []
    notes = []
    known = []
    for number, (split, predicted) in enumerate(zip(splits, solved, strict=True)):
        solved_by_both = ~(np.isnan(predicted) | np.isnan(brain[split.test]))
        enough = solved_by_both.sum() >= 3
        pair = predicted[solved_by_both], brain[split.test][solved_by_both]
        values.append(
            pearson(rankdata(pair[0]), rankdata(pair[1])) if enough else np.nan
        )
        if np.isnan(values[-1]):
            notes.append(
                f"split {number}: {int(solved_by_both.sum())} stimuli solved by both, or all at one time: left out"
            )
        else:
            known.append((number, *pair, split.test[solved_by_both]))
    if np.isnan(values).all():
        raise MetricError(
            "in no split do model and brain solve at least three stimuli at different times: its responses do not "
            "tell the objects apart as well as people do"
        )
    unsolved = sum(int(np.isnan(times).sum()) for times in solved)
    if unsolved:
        notes.append(
            f"{unsolved} of {sum(map(len, solved))} tested stimuli were never solved by the model: left out"
        )
    out = xr.DataArray(
        np.asarray(values), dims=("split",), coords={"split": np.arange(len(values))}
    )

    def without(keep: Keep) -> xr.DataArray:
        left, share = np.full((2, len(values)), np.nan)
        for number, times, of_brain, rows in known:
            stay = keep["stimulus"][rows]
            left[number] = pearson(rankdata(times[stay]), rankdata(of_brain[stay]))
            share[number] = 1 - stay.mean()
        return out.copy(data=held_out_deviation(out.values, left, share))

    variation = Variation(
        {"stimulus": stimulus_names(target, len(brain))},
        without,
        inflation={"stimulus": inflation(splits)},
    )
    return Samples(out, variation, notes=notes)


def _times(
    bins: Sequence[Reals],
    starts: Floats,
    objects: Indices,
    thresholds: Floats,
    split: Split,
) -> Floats:
    """Return the predicted solution times of the tested stimuli."""
    truth = objects[split.test]
    performance = np.full((len(split.test), len(starts)), -np.inf)
    for bin, responses in enumerate(bins):
        features = responses.astype(np.float64)
        probabilities, classes = softmax_readout(
            features[split.train], objects[split.train], features[split.test]
        )
        wide = np.zeros((len(split.test), int(objects.max()) + 1))
        wide[:, classes] = probabilities
        patterns = image_dprimes(
            rates_from_probabilities(wide, truth), truth, normalise=False
        )
        performance[:, bin] = np.nan_to_num(collapse(patterns)[:, 0], nan=-np.inf)
        if (performance.max(axis=1) >= thresholds[split.test]).all():
            break
    return crossing_times(
        performance[:, : bin + 1], starts[: bin + 1], thresholds[split.test]
    )
