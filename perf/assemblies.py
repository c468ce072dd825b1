"""Seeded simulated data in the sizes of well-known data sets, with as many labels as these have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray


@dataclass(frozen=True)
class Size:
    """Stimuli × features → targets, and repetitions for ceilings."""

    label: str
    stimuli: int
    features: int
    targets: int
    repetitions: int

    @property
    def wide(self) -> bool:
        """Whether there are so many targets that metrics run over two splits instead of ten."""
        return self.targets > 1000


SIZES = {
    size.label: size
    for size in (
        Size("FZ 9k", 135, 9216, 102, 20),
        Size("MJ 9k", 2560, 9216, 168, 46),
        Size("MJ 25k", 2560, 25088, 168, 46),
        Size("fMRI 9k", 1000, 9216, 20_000, 3),
    )
}

# Every case runs once on this size first, so that imports and caches are not measured.
WARM = Size("warm", 100, 200, 20, 4)


@cache
def arrays(size: Size) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rectified features (float32) and targets with shared latent factors of decreasing strength."""
    rng = np.random.default_rng(0)
    rank = min(300, size.stimuli - 1)
    Z = rng.standard_normal((size.stimuli, rank)) / np.sqrt(np.arange(1, rank + 1))
    X = Z @ rng.standard_normal((rank, size.features)) + 0.3 * rng.standard_normal(
        (size.stimuli, size.features)
    )
    Y = Z @ rng.standard_normal((rank, size.targets)) + rng.standard_normal(
        (size.stimuli, size.targets)
    )
    return np.maximum(X, 0).astype(np.float32), Y


def stimuli(count: int) -> dict[str, NDArray[Any]]:
    """Columns of the stimuli: an object on a background, its pose, and its file."""
    rng = np.random.default_rng(2)
    number = np.arange(count)
    ids = np.array([f"s{i:05d}" for i in number])
    columns: dict[str, NDArray[Any]] = {
        "stimulus_id": ids,
        "object_name": np.array([f"object_{i}" for i in range(8)])[number % 8],
        "category_name": np.array(["animal", "thing"])[number % 8 // 4],
        "background_id": np.array([f"b{i:03d}" for i in rng.integers(0, 200, count)]),
        "image_file_name": np.char.add(ids, ".png"),
        "variation": number % 3,
    }
    pose = ("size", "s", "ty", "tz", "rxy", "rxz", "ryz")
    return columns | {name: np.round(rng.uniform(-1, 1, count), 4) for name in pose}


def units(count: int, *, of_model: bool) -> dict[str, NDArray[Any]]:
    """Columns of the units of a model's layer, or of the electrodes of an array."""
    number = np.arange(count)
    if of_model:
        return {
            "neuroid_id": np.char.add("model.layer.", number.astype(str)),
            "neuroid_num": number,
            "model": np.full(count, "model"),
            "layer": np.full(count, "layer"),
            "channel": number // 36,
            "channel_x": number % 36 // 6,
            "channel_y": number % 6,
        }
    return {
        "neuroid_id": np.char.add("electrode_", np.char.zfill(number.astype(str), 5)),
        "animal": np.array(["one", "two"])[number % 2],
        "region": np.full(count, "IT"),
        "hemisphere": np.array(["L", "R"])[number % 2],
        "row": number // 10,
        "col": number % 10,
    }


def labelled(
    values: NDArray[Any],
    presentation: dict[str, NDArray[Any]],
    neuroid: dict[str, NDArray[Any]],
) -> xr.DataArray:
    """``(presentation, neuroid)`` with plain coordinates."""
    coords = {name: ("presentation", column) for name, column in presentation.items()}
    coords |= {name: ("neuroid", column) for name, column in neuroid.items()}
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def assembly(values: NDArray[Any]) -> xr.DataArray:
    """An assembly with ids and objects of presentations and ids of neuroids: the minimum for a metric."""
    columns = stimuli(len(values))
    presentation = {name: columns[name] for name in ("stimulus_id", "object_name")}
    return labelled(values, presentation, {"neuroid_id": np.arange(values.shape[1])})


@cache
def recorded(size: Size, precision: str) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's features, in ``precision``, and a brain's responses, with all labels."""
    X, Y = arrays(size)
    source = labelled(
        X.astype(precision, copy=False),
        stimuli(size.stimuli),
        units(size.features, of_model=True),
    )
    return source, labelled(
        Y, stimuli(size.stimuli), units(size.targets, of_model=False)
    )


@cache
def repeated(size: Size) -> xr.DataArray:
    """Noisy repetitions of the responses, in random order."""
    rng = np.random.default_rng(1)
    _, Y = arrays(size)
    rows = rng.permutation(np.repeat(np.arange(size.stimuli), size.repetitions))
    repetition = np.empty(len(rows), int)
    order = np.argsort(rows, kind="stable")
    repetition[order] = np.tile(np.arange(size.repetitions), size.stimuli)
    values = Y[rows] + 2 * rng.standard_normal((len(rows), size.targets))
    columns = {name: column[rows] for name, column in stimuli(size.stimuli).items()}
    return labelled(
        values,
        columns | {"repetition": repetition},
        units(size.targets, of_model=False),
    )
