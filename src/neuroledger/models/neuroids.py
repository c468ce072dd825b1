"""Model units get names: which layer they belong to, and where in it they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.time_bins import Bin

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
