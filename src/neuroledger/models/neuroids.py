"""Convert activations to responses: neuroids with ids and positions, in the requested time bins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Strings, floats
from neuroledger.data.memory import Deferred
from neuroledger.errors import ModelError

Bin = tuple[float, float]

BLOCK = 1 << 24
"""Number of values that are aligned at once."""


def overlap_weights(source: Sequence[Bin], target: Sequence[Bin]) -> Floats:
    """Return weights (target, source): the share of each source bin that overlaps the target bin."""
    first, last = (
        np.array([bin_[side] for bin_ in source], dtype=float) for side in (0, 1)
    )
    rows = []
    for start, end in target:
        shared = np.minimum(last, end) - np.maximum(first, start)
        rows.append(np.clip(shared, 0, None) / (last - first))
    return np.array(rows).reshape(len(target), len(source))


def align_time(
    values: Array, source: Sequence[Bin], target: Sequence[Bin], model: str
) -> Array:
    """Resample activations (presentation, source bin, …) to (presentation, target bin, …); bins are in ms from onset.

    A target bin is the mean of the source bins, weighted by the share of each that overlaps it.

    Raises
    ------
    ModelError
        A target bin is not completely covered by the source bins.
    """
    covered = _merged(source)
    for start, end in target:
        if not any(low <= start and end <= high for low, high in covered):
            span = ", ".join(f"{low:g}–{high:g}" for low, high in covered)
            raise ModelError(
                f"model {model!r} gives no response for {start:g}–{end:g} ms; its time bins cover {span} ms"
            )
    weights = overlap_weights(source, target)
    weights = weights / weights.sum(axis=1, keepdims=True)
    aligned = np.empty(
        (len(values), len(target), *values.shape[2:]), np.result_type(weights, values)
    )
    # In blocks of presentations: the activations may be memory-mapped, and the product copies its arguments.
    step = max(1, BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), step):
        block = np.tensordot(weights, values[start : start + step], axes=(1, 1))
        aligned[start : start + step] = np.moveaxis(block, 0, 1)
    return aligned


def _merged(bins: Sequence[Bin]) -> list[Bin]:
    """Return the intervals that the bins cover without a gap."""
    merged: list[Bin] = []
    for start, end in sorted(bins):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


AXES: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        2: ("channel", "embedding"),
        3: ("channel", "channel_x", "channel_y"),
        4: ("channel_temporal", "channel", "channel_x", "channel_y"),
    }
)
PLACES: Final = ("channel_temporal", "channel", "channel_x", "channel_y", "embedding")


def labelled(
    values: Array | Deferred,
    shapes: Mapping[str, tuple[int, ...]],
    stimulus_ids: Sequence[str],
    *,
    model: str,
    region: str,
    time_bins: Sequence[Bin] | None,
) -> xr.DataArray:
    """Return responses (presentation, neuroid[, time_bin]) as an assembly.

    ``shapes`` are those of the layers, which are concatenated along ``neuroid``, each in C order. The coordinates of a
    neuroid are its number and its position along the axes of its layer: ``channel, channel_x, channel_y`` for a
    convolution, ``channel, embedding`` for tokens. Presentations contain all stimuli once per repetition, in order.
    """
    repetitions = len(values) // len(stimulus_ids)
    counts = {layer: int(np.prod(shape)) for layer, shape in shapes.items()}
    count = sum(counts.values())
    last = [f"{model}.{layer}.{max(0, number - 1)}" for layer, number in counts.items()]

    def named() -> Strings:
        # Fixed-width text: xarray copies objects one by one, which takes longer than computing the responses.
        names = [
            f"{model}.{layer}.{number}"
            for layer, number_of_features in counts.items()
            for number in range(number_of_features)
        ]
        return np.array(names, dtype=str)

    def along(name: str) -> Floats:
        return np.concatenate([_place(shape, name) for shape in shapes.values()])

    # Most metrics read none of the coordinates of neuroids, which can be many: they are made when they are read.
    text = f"<U{max(map(len, last))}"
    layers = np.array(list(counts), dtype=str)
    of_neuroids: dict[str, tuple[str | type, Callable[[], Array]]] = {
        "neuroid_id": (text, named),
        "neuroid_num": (
            np.int64,
            lambda: np.concatenate([np.arange(number) for number in counts.values()]),
        ),
        "layer": (
            layers.dtype.str,
            lambda: np.repeat(layers, list(counts.values())),
        ),
        "region": (f"<U{len(region)}", lambda: np.full(count, region)),
    }
    for name in PLACES:
        if any(name in AXES.get(len(shape), ()) for shape in shapes.values()):
            of_neuroids[name] = (np.float64, partial(along, name))
    coords: dict[str, object] = {
        "stimulus_id": (
            "presentation",
            np.tile(np.asarray(stimulus_ids, dtype=str), repetitions),
        ),
    }
    coords |= {
        name: ("neuroid", Deferred((count,), dtype, make))
        for name, (dtype, make) in of_neuroids.items()
    }
    if repetitions > 1:
        coords["repetition"] = (
            "presentation",
            np.repeat(np.arange(repetitions), len(stimulus_ids)),
        )
    dims: tuple[str, ...] = ("presentation", "neuroid")
    if time_bins is not None:
        dims = (*dims, "time_bin")
        edges = floats(time_bins).reshape(-1, 2)
        coords |= {
            "time_bin_start": ("time_bin", edges[:, 0]),
            "time_bin_end": ("time_bin", edges[:, 1]),
        }
    return xr.DataArray(values, dims=dims, coords=coords, attrs={"model": model})


def _place(shape: tuple[int, ...], name: str) -> Floats:
    """Return the index of every neuroid along the axis ``name``; NaN if the layer has no such axis."""
    axes = AXES.get(len(shape), ())
    if name not in axes:
        return np.full(int(np.prod(shape)), np.nan)
    along = axes.index(name)
    index = np.arange(shape[along], dtype=float).reshape(
        [-1 if axis == along else 1 for axis in range(len(shape))]
    )
    return np.broadcast_to(index, shape).ravel()
