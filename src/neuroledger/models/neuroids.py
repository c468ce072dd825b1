"""Activations become a model's responses: units with names and places, in the time bins that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.errors import ModelError

Bin = tuple[float, float]

BLOCK = 1 << 24
"""Numbers that are aligned at once."""


def overlap_weights(source: Sequence[Bin], target: Sequence[Bin]) -> NDArray[np.float64]:
    """Weights (target, source): the part of each source bin, in its own width, that lies within the target bin."""
    first, last = (np.array([bin_[side] for bin_ in source], dtype=float) for side in (0, 1))
    rows = []
    for start, end in target:
        shared = np.minimum(last, end) - np.maximum(first, start)
        rows.append(np.clip(shared, 0, None) / (last - first))
    return np.array(rows).reshape(len(target), len(source))


def align_time(
    values: NDArray[Any], source: Sequence[Bin], target: Sequence[Bin], model: str
) -> NDArray[Any]:
    """Activations (presentation, source bin, …) as (presentation, target bin, …), in milliseconds from onset.

    A target bin is the mean of the source bins weighted by the part of each that lies within it.

    Raises
    ------
    ModelError
        A requested bin is not covered by the model's own bins from its start to its end.
    """
    covered = _merged(source)
    for start, end in target:
        if not any(low <= start and end <= high for low, high in covered):
            span = ", ".join(f"{low:g}–{high:g}" for low, high in covered)
            raise ModelError(f"model {model!r} has no answer for {start:g}–{end:g} ms: it covers {span} ms")
    weights = overlap_weights(source, target)
    weights = weights / weights.sum(axis=1, keepdims=True)
    aligned = np.empty((len(values), len(target), *values.shape[2:]), np.result_type(weights, values))
    # A block of presentations at a time: the activations may lie on disk, and a product copies what it is given.
    step = max(1, BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), step):
        block = np.tensordot(weights, values[start : start + step], axes=(1, 1))
        aligned[start : start + step] = np.moveaxis(block, 0, 1)
    return aligned


def _merged(bins: Sequence[Bin]) -> list[Bin]:
    """The stretches of time that the bins cover without a gap."""
    merged: list[Bin] = []
    for start, end in sorted(bins):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


Array = NDArray[Any]

AXES: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        2: ("channel", "embedding"),
        3: ("channel", "channel_x", "channel_y"),
        4: ("channel_temporal", "channel", "channel_x", "channel_y"),
    }
)
PLACES: Final = ("channel_temporal", "channel", "channel_x", "channel_y", "embedding")


def labelled(
    values: Array,
    shapes: Mapping[str, tuple[int, ...]],
    stimulus_ids: Sequence[str],
    *,
    model: str,
    region: str,
    time_bins: Sequence[Bin] | None,
) -> xr.DataArray:
    """Responses (presentation, neuroid[, time_bin]) as an assembly.

    ``shapes`` are the layers side by side along ``neuroid``, each in C order of its own axes. Neuroids carry their
    number and their place along those axes: ``channel, channel_x, channel_y`` of a convolution's maps,
    ``channel, embedding`` of tokens. Presentations go through all stimuli in one repetition after another.
    """
    repetitions = len(values) // len(stimulus_ids)
    counts = {layer: int(np.prod(shape)) for layer, shape in shapes.items()}
    names = [f"{model}.{layer}.{number}" for layer, count in counts.items() for number in range(count)]
    # Text of fixed width: xarray copies objects one by one, which takes longer than the responses do.
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", np.tile(np.asarray(stimulus_ids, dtype=str), repetitions)),
        "neuroid_id": ("neuroid", np.array(names, dtype=str)),
        "neuroid_num": ("neuroid", np.concatenate([np.arange(count) for count in counts.values()])),
        "layer": ("neuroid", np.repeat(np.array(list(counts), dtype=str), list(counts.values()))),
        "region": ("neuroid", np.full(len(names), region)),
    }
    for name in PLACES:
        place = np.concatenate([_place(shape, name) for shape in shapes.values()])
        if not np.isnan(place).all():
            coords[name] = ("neuroid", place)
    if repetitions > 1:
        coords["repetition"] = ("presentation", np.repeat(np.arange(repetitions), len(stimulus_ids)))
    dims: tuple[str, ...] = ("presentation", "neuroid")
    if time_bins is not None:
        dims = (*dims, "time_bin")
        edges = np.asarray(time_bins, dtype=float).reshape(-1, 2)
        coords |= {"time_bin_start": ("time_bin", edges[:, 0]), "time_bin_end": ("time_bin", edges[:, 1])}
    return xr.DataArray(values, dims=dims, coords=coords, attrs={"model": model})


def _place(shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Index of every neuroid along the axis ``name``; NaN where the layer has no such axis."""
    axes = AXES.get(len(shape), ())
    if name not in axes:
        return np.full(int(np.prod(shape)), np.nan)
    along = axes.index(name)
    index = np.arange(shape[along], dtype=float).reshape(
        [-1 if axis == along else 1 for axis in range(len(shape))]
    )
    return np.broadcast_to(index, shape).ravel()
