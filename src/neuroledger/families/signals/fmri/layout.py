"""How the series of a run are read as channels: the same ones in every run, in time as declared, on the grid of the mask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.runs import HEMISPHERES, Run, companion
from neuroledger.families.signals.fmri.space import (
    MESHES,
    Channels,
    Space,
    Surface,
    Transforms,
    Vertices,
    Voxels,
    by_transforms,
    image,
    on_cortex,
    values_of,
    vertices_in,
    voxels_in,
)

__all__ = ["Layout", "layout_of", "transforms_of"]

Array = npt.NDArray[Any]


class Layout(NamedTuple):
    """Names and places of the channels, and how the values of a run (channel, volume) are read."""

    channels: Sequence[str]
    places: Array | None
    read: Callable[[Run], Array]


def layout_of(
    space: Space, runs: Sequence[Run], files: Mapping[str, Path], *, masked: bool, seconds: float
) -> Layout:
    """How the runs are read; `masked` says whether they were given masks.

    Raises
    ------
    DataError
        Masks are missing or lie on several grids, or, on reading, a series is of another rate, shape or grid than its mask.
    """

    def opened(run: Run) -> Any:
        loaded = image(files[run.series[0]], run.series[0])
        shape = getattr(loaded, "shape", ())
        if len(shape) != 4 or len(run.series) > 1:
            raise DataError(
                f"{run.series[0]} has {len(shape)} dimensions, not x, y, z and volumes; of surfaces, say "
                "`space: {name: vertices}`"
            )
        _in_time(loaded, run, files, seconds)
        return loaded

    if isinstance(space, Voxels):
        if not masked:
            raise DataError(
                "`space: {name: voxels}` needs `mask`: how the files are called that say which voxels"
            )
        called = sorted({str(run.mask) for run in runs})
        channels, places = voxels_in([(image(files[name], name), name) for name in called])
        first = image(files[called[0]], called[0])

        def voxels(run: Run) -> Array:
            loaded = opened(run)
            _same_grid(loaded, run.series[0], first, called[0])
            return _flat(loaded, run.series[0], channels)

        return Layout([f"voxel_{place}" for place in channels.voxels], places, voxels)
    count = MESHES[space.mesh]
    names = [f"{side}_{vertex}" for side in HEMISPHERES[1] for vertex in range(count)]
    if isinstance(space, Vertices):
        if len(runs[0].series) != 2:
            raise DataError(
                "`space: {name: vertices}` needs a series with {hemi} in its name: one file a hemisphere"
            )

        def vertices(run: Run) -> Array:
            sides = [(image(files[name], name), name) for name in run.series]
            _sidecar(run, files, seconds)
            return vertices_in(space, sides)

        return Layout(names, None, vertices)
    if isinstance(space, Surface):
        _in_mni(runs)
    known: dict[Any, Channels] = {}

    def projected(run: Run) -> Array:
        loaded = opened(run)
        person = run.subject if isinstance(space, Transforms) else None
        key = (person, loaded.shape[:3], loaded.affine.tobytes())
        if key not in known:
            known.clear()
            known[key] = (
                _transformed(space, run, files, loaded.shape)
                if isinstance(space, Transforms)
                else on_cortex(space, loaded.shape, loaded.affine)
            )
        channels = known[key]
        flat = _flat(loaded, run.series[0], channels)
        if run.mask is not None:
            inside = image(files[run.mask], run.mask)
            _same_grid(loaded, run.series[0], inside, run.mask)
            flat[~(values_of(inside, run.mask).ravel(order="F")[channels.voxels] > 0)] = 0
        return channels.of(flat)

    return Layout(names, None, projected)


def _in_mni(runs: Sequence[Run]) -> None:
    """Names that say a space say one of MNI; in a person's own, fsaverage would lie anywhere and nothing would show it."""
    for run in runs:
        said = re.search(r"_space-([A-Za-z0-9]+)", run.series[0])
        if said is not None and not said[1].startswith("MNI"):
            raise DataError(
                f"{run.series[0]} is in the space {said[1]}, and `space: {{name: surface}}` projects from a space of MNI: "
                "take series in one, or on fsaverage"
            )


def _transformed(space: Transforms, run: Run, files: Mapping[str, Path], shape: Sequence[int]) -> Channels:
    """The published transforms of the run's person."""

    def held(pattern: str, side: str) -> Array:
        name = _transform(pattern, side, run, tuple(files))
        return values_of(image(files[name], name), name)

    layers = {side: [held(pattern, side) for pattern in space.layers] for side in HEMISPHERES[1]}
    vertices = {side: held(space.vertices, side) for side in HEMISPHERES[1]}
    return by_transforms(space, layers, vertices, shape)


def transforms_of(space: Transforms, run: Run, names: Sequence[str]) -> list[str]:
    """The files of transforms of the run's person.

    Raises
    ------
    DataError
        One is missing.
    """
    patterns = (*space.layers, space.vertices)
    return [_transform(pattern, side, run, names) for pattern in patterns for side in HEMISPHERES[1]]


def _transform(pattern: str, side: str, run: Run, names: Sequence[str]) -> str:
    return companion(pattern, names, {**run.fields, "hemi": side}, "transform", run.series[0])


def _flat(loaded: Any, name: str, channels: Channels) -> Array:
    """(voxel that is read, volume)."""
    values = values_of(loaded, name)
    return values.reshape((-1, values.shape[3]), order="F")[channels.voxels]


def _same_grid(loaded: Any, name: str, other: Any, called: str) -> None:
    if loaded.shape[:3] != other.shape[:3] or not np.allclose(loaded.affine, other.affine, atol=1e-2):
        raise DataError(
            f"{name} {loaded.shape[:3]} and its mask {called} {other.shape[:3]} do not lie on the same grid: they are of "
            "different spaces or versions"
        )


def _in_time(loaded: Any, run: Run, files: Mapping[str, Path], seconds: float) -> None:
    """The time between volumes is what is declared; 0 and 1 in a header are what programs write that do not know it."""
    step = float(loaded.header.get_zooms()[3])
    unit = loaded.header.get_xyzt_units()[1] if hasattr(loaded.header, "get_xyzt_units") else "sec"
    step = step / 1000 if unit == "msec" else step
    if step not in (0.0, 1.0) and abs(step / seconds - 1) > 0.01:
        raise DataError(
            f"{run.series[0]} says that its volumes are {step:g} s apart, not {seconds:g} s as `seconds` says"
        )
    _sidecar(run, files, seconds)


def _sidecar(run: Run, files: Mapping[str, Path], seconds: float) -> None:
    if run.sidecar is None:
        return
    with parsing(run.sidecar, "a sidecar in JSON"):
        said = json.loads(files[run.sidecar].read_text(encoding="utf-8")).get("RepetitionTime")
    if isinstance(said, int | float) and said and abs(said / seconds - 1) > 0.01:
        raise DataError(
            f"{run.sidecar} says that volumes are {said:g} s apart, not {seconds:g} s as `seconds` says"
        )
