"""How the series of a run are read as channels, with checks of the repetition time and of the mask's grid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuroledger.data.arrays import Array
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


class Layout(NamedTuple):
    """Names and positions of the channels, and a function that reads the values of a run (channel, volume)."""

    channels: Sequence[str]
    places: Array | None
    read: Callable[[Run], Array]


def layout_of(
    space: Space,
    runs: Sequence[Run],
    files: Mapping[str, Path],
    *,
    masked: bool,
    seconds: float,
) -> Layout:
    """How the runs are read; `masked` says whether they have masks.

    Raises
    ------
    DataError
        Masks are missing or have different grids, or, on reading, a series has the wrong rate, shape or grid.
    """

    def opened(run: Run) -> Any:
        loaded = image(files[run.series[0]], run.series[0])
        shape = getattr(loaded, "shape", ())
        if len(shape) != 4 or len(run.series) > 1:
            raise DataError(
                f"{run.series[0]} has {len(shape)} dimensions, not x, y, z and volumes; for surfaces, declare "
                "`space: {name: vertices}`"
            )
        _require_rate(loaded, run, files, seconds)
        return loaded

    if isinstance(space, Voxels):
        if not masked:
            raise DataError(
                "`space: {name: voxels}` needs `mask`, the pattern of the names of the mask files"
            )
        masks = sorted({str(run.mask) for run in runs})
        channels, places = voxels_in(
            [(image(files[name], name), name) for name in masks]
        )
        first = image(files[masks[0]], masks[0])

        def voxels(run: Run) -> Array:
            loaded = opened(run)
            _require_same_grid(loaded, run.series[0], first, masks[0])
            return _flat(loaded, run.series[0], channels)

        return Layout([f"voxel_{place}" for place in channels.voxels], places, voxels)
    count = MESHES[space.mesh]
    names = [f"{side}_{vertex}" for side in HEMISPHERES[1] for vertex in range(count)]
    if isinstance(space, Vertices):
        if len(runs[0].series) != 2:
            raise DataError(
                "`space: {name: vertices}` needs a series with {hemi} in its name: one file per hemisphere"
            )

        def vertices(run: Run) -> Array:
            sides = [(image(files[name], name), name) for name in run.series]
            _check_sidecar(run, files, seconds)
            return vertices_in(space, sides)

        return Layout(names, None, vertices)
    if isinstance(space, Surface):
        _require_mni(runs)
    known: dict[Any, Channels] = {}

    def projected(run: Run) -> Array:
        loaded = opened(run)
        subject = run.subject if isinstance(space, Transforms) else None
        key = (subject, loaded.shape[:3], loaded.affine.tobytes())
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
            _require_same_grid(loaded, run.series[0], inside, run.mask)
            flat[
                ~(values_of(inside, run.mask).ravel(order="F")[channels.voxels] > 0)
            ] = 0
        return channels.of(flat)

    return Layout(names, None, projected)


def _require_mni(runs: Sequence[Run]) -> None:
    """Return if no name states a space other than MNI; in another space, fsaverage would silently be misplaced."""
    for run in runs:
        space = re.search(r"_space-([A-Za-z0-9]+)", run.series[0])
        if space is not None and not space[1].startswith("MNI"):
            raise DataError(
                f"{run.series[0]} is in the space {space[1]}, but `space: {{name: surface}}` projects from an MNI space: "
                "use series in MNI space, or on fsaverage"
            )


def _transformed(
    space: Transforms, run: Run, files: Mapping[str, Path], shape: Sequence[int]
) -> Channels:
    """The channels by the published transforms of the run's subject."""

    def values_in(pattern: str, side: str) -> Array:
        name = _transform(pattern, side, run, tuple(files))
        return values_of(image(files[name], name), name)

    layers = {
        side: [values_in(pattern, side) for pattern in space.layers]
        for side in HEMISPHERES[1]
    }
    vertices = {side: values_in(space.vertices, side) for side in HEMISPHERES[1]}
    return by_transforms(space, layers, vertices, shape)


def transforms_of(space: Transforms, run: Run, names: Sequence[str]) -> list[str]:
    """The files of transforms for the run's subject.

    Raises
    ------
    DataError
        A file is missing.
    """
    patterns = (*space.layers, space.vertices)
    return [
        _transform(pattern, side, run, names)
        for pattern in patterns
        for side in HEMISPHERES[1]
    ]


def _transform(pattern: str, side: str, run: Run, names: Sequence[str]) -> str:
    return companion(
        pattern, names, {**run.fields, "hemi": side}, "transform", run.series[0]
    )


def _flat(loaded: Any, name: str, channels: Channels) -> Array:
    """The values of the voxels that the channels use, (voxel, volume)."""
    values = values_of(loaded, name)
    return values.reshape((-1, values.shape[3]), order="F")[channels.voxels]


def _require_same_grid(loaded: Any, name: str, mask_image: Any, mask: str) -> None:
    if loaded.shape[:3] != mask_image.shape[:3] or not np.allclose(
        loaded.affine, mask_image.affine, atol=1e-2
    ):
        raise DataError(
            f"{name} {loaded.shape[:3]} and its mask {mask} {mask_image.shape[:3]} have different grids: use files of "
            "the same space and version"
        )


def _require_rate(
    loaded: Any, run: Run, files: Mapping[str, Path], seconds: float
) -> None:
    """Return if the time between volumes is the declared one; 0 and 1 in a header may mean that it is unknown."""
    step = float(loaded.header.get_zooms()[3])
    unit = (
        loaded.header.get_xyzt_units()[1]
        if hasattr(loaded.header, "get_xyzt_units")
        else "sec"
    )
    if unit == "msec":
        step = step / 1000
    if step not in (0.0, 1.0) and abs(step / seconds - 1) > 0.01:
        raise DataError(
            f"{run.series[0]} states {step:g} s between volumes, but `seconds` is {seconds:g} s: correct one of them"
        )
    _check_sidecar(run, files, seconds)


def _check_sidecar(run: Run, files: Mapping[str, Path], seconds: float) -> None:
    if run.sidecar is None:
        return
    with parsing(run.sidecar, "a sidecar in JSON"):
        interval = json.loads(files[run.sidecar].read_text(encoding="utf-8")).get(
            "RepetitionTime"
        )
    if (
        isinstance(interval, int | float)
        and interval
        and abs(interval / seconds - 1) > 0.01
    ):
        raise DataError(
            f"{run.sidecar} states {interval:g} s between volumes, but `seconds` is {seconds:g} s: correct one of them"
        )
