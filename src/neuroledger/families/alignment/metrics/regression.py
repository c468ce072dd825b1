"""Regression: how well a readout of one assembly predicts each neuroid of another on held-out presentations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.regression.held_out import (
    Correlation,
    Facts,
    MapEstimator,
    correlations,
)
from neuroledger.families.alignment.regression.held_out_variation import (
    held_out_variation,
)
from neuroledger.families.alignment.regression.linear import Linear
from neuroledger.families.alignment.regression.mask import Mask
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.similarity.gram import responses_of
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import inflation
from neuroledger.stats.workspace import Workspace

__all__ = ["regression"]


@metric("regression", version=11, example=examples.of_readouts)
def regression(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: MapEstimator = Pls(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
    time: Literal["none", "shared", "separate"] = "none",
    reverse: bool = False,
    relative: bool = False,
) -> Samples:
    """Correlate predicted with measured responses on the test presentations of each split.

    ``estimator`` is fitted on the train presentations from ``source`` (presentation, neuroid) to ``target``
    (presentation, neuroid), and predicts the test presentations; each neuroid's prediction is correlated with its
    responses. If both sides have a ``time_bin`` dimension, ``time`` chooses between one set of weights for all bins
    (``shared``: bins are additional rows of the fit) and separate weights for each bin (``separate``). ``reverse``
    predicts the source from the target. The estimator ``mask`` needs the coordinates ``channel``, ``channel_x`` and
    ``channel_y`` on the neuroids that it predicts from. ``relative`` divides the features by the root of their mean
    variance, so that penalties do not depend on the units of the features; other estimators do not depend on them anyway.

    Returns
    -------
    Samples
        Correlations ``(split, neuroid)`` or ``(split, time_bin, neuroid)``. Neuroids whose responses are constant
        or have missing values are NaN and counted in the notes.

    Raises
    ------
    MetricError
        Source and target have different presentations or time bins, features are missing or lack the coordinates that a
        mask needs, or no neuroid can be predicted.
    """
    if reverse:
        source, target = target, source
    source = _ordered(source, time)
    target = _ordered(target, time)
    if source.sizes["presentation"] != target.sizes["presentation"]:
        raise MetricError(
            f"source has {source.sizes['presentation']} presentations and target "
            f"{target.sizes['presentation']}; both sides need one row for each stimulus_id"
        )
    if time != "none" and source.sizes["time_bin"] != target.sizes["time_bin"]:
        raise MetricError(
            f"source has {source.sizes['time_bin']} time bins and target {target.sizes['time_bin']}; "
            "record both in the same bins"
        )
    if relative:
        source = source.copy(data=_of_unit_variance(source.values))
    by_order = isinstance(estimator, Mask) or (
        isinstance(estimator, Linear) and estimator.solver == "lapack"
    )
    if by_order:
        source, target, splits = _by_stimulus(source, target, splits)
    readout = estimator.over(source) if isinstance(estimator, Mask) else estimator
    facts = Facts([], [], [])
    if time == "separate":
        bins = [
            correlations(
                source[..., t].values,
                target[..., t].values,
                splits,
                workspace,
                readout,
                correlation,
                1,
                facts,
            )
            for t in range(target.sizes["time_bin"])
        ]
        values = np.concatenate(bins, axis=1)
    else:
        count = 1 if time == "none" else target.sizes["time_bin"]
        values = correlations(
            _stacked(source),
            _stacked(target),
            _repeated(splits, count),
            workspace,
            readout,
            correlation,
            count,
            facts,
        )
    samples = _labelled(values, target, time)
    penalties = np.concatenate(facts.penalties, axis=1)
    if np.isfinite(penalties).any():
        chosen = _labelled(penalties, target, time)
        samples = samples.assign_coords(penalty=(samples.dims, chosen.values))
    rows = target.sizes["presentation"]
    ids = (
        as_text(target["stimulus_id"].values)
        if "stimulus_id" in target.coords
        else np.arange(rows).astype(str)
    )
    places = _places(len(splits), samples.sizes.get("time_bin", 1), time)
    varies = held_out_variation(
        samples, ids, facts.test_parts, places, inflation(splits)
    )
    return Samples(samples, varies, notes=facts.notes)


def _places(splits: int, bins: int, time: str) -> list[list[int]]:
    """Return, for each split, the positions of its time bins among the held-out parts."""
    if time == "separate":  # ordered bin by bin
        return [
            [bin * splits + split for bin in range(bins)] for split in range(splits)
        ]
    return [[split * bins + bin for bin in range(bins)] for split in range(splits)]


def _of_unit_variance(features: Array) -> Array:
    """Divide features (row × …) by the root of their mean variance over rows; constant features are returned unchanged."""
    values = floats(features)
    largest = float(np.abs(values).max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return features
    values = values / largest
    power = float(np.mean((values - values.mean(axis=0)) ** 2))
    if power > 0:
        return values / math.sqrt(power)
    return features


def _by_stimulus(
    source: xr.DataArray, target: xr.DataArray, splits: Sequence[Split]
) -> tuple[xr.DataArray, xr.DataArray, Sequence[Split]]:
    """Sort both sides and the splits by ``stimulus_id``, so that rounding and random draws do not depend on row order."""
    if "stimulus_id" not in target.coords:
        return source, target, splits
    order = np.argsort(target["stimulus_id"].values, kind="stable")
    positions = np.argsort(order)
    sorted_splits = [
        Split(np.sort(positions[split.train]), np.sort(positions[split.test]))
        for split in splits
    ]
    return (
        source.isel(presentation=order),
        target.isel(presentation=order),
        sorted_splits,
    )


def _ordered(assembly: xr.DataArray, time: str) -> xr.DataArray:
    dims = (
        ("presentation", "neuroid")
        if time == "none"
        else ("presentation", "neuroid", "time_bin")
    )
    if (
        "time_bin" in assembly.dims
        and time == "none"
        and assembly.sizes["time_bin"] == 1
    ):
        assembly = assembly.isel(time_bin=0)
    if set(assembly.dims) != set(dims):
        raise MetricError(
            f"regression needs dimensions ({', '.join(dims)}), not ({', '.join(map(str, assembly.dims))})"
            + (
                "; `time: shared` or `separate` scores time bins"
                if "time_bin" in assembly.dims
                else ""
            )
        )
    if assembly.dims == dims:
        return assembly
    return assembly.transpose(*dims)


def _stacked(assembly: xr.DataArray) -> Array:
    """Concatenate the rows of all time bins (time-bin major); a two-dimensional assembly is returned unchanged."""
    if assembly.ndim == 2:
        return responses_of(assembly)
    return np.concatenate(
        [assembly[..., t].values for t in range(assembly.sizes["time_bin"])]
    )


def _repeated(splits: Sequence[Split], bins: int) -> Sequence[Split]:
    """Repeat the presentations of each split for every time bin; test rows stay grouped by bin."""
    if bins == 1:
        return splits
    rows = max(int(np.concatenate(split).max()) for split in splits) + 1
    return [
        Split(
            *(np.concatenate([part + t * rows for t in range(bins)]) for part in split)
        )
        for split in splits
    ]


def _labelled(values: Floats, target: xr.DataArray, time: str) -> xr.DataArray:
    coords = {
        name: coord
        for name, coord in target.coords.items()
        if coord.dims == ("neuroid",)
        or (time != "none" and coord.dims == ("time_bin",))
    }
    dims = ("split", "time_bin", "neuroid")
    if time == "none":
        values, dims = values[:, 0], ("split", "neuroid")  # type: ignore[assignment]
    return xr.DataArray(
        values, dims=dims, coords={**coords, "split": np.arange(len(values))}
    )
