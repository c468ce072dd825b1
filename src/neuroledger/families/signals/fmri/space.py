"""From the images of a run to channels: voxels of a mask, or vertices of fsaverage that sample them along the cortex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.fmri.runs import HEMISPHERES, checked
from neuroledger.spec.base import Frozen

__all__ = [
    "MESHES",
    "Channels",
    "Space",
    "Surface",
    "Transforms",
    "Vertices",
    "Voxels",
    "along",
    "by_transforms",
    "image",
    "on_cortex",
    "values_of",
    "vertices_in",
    "voxels_in",
]

Array = npt.NDArray[Any]
Mesh = Literal["fsaverage5", "fsaverage4", "fsaverage3"]

MESHES: Final[Mapping[str, int]] = {"fsaverage5": 10242, "fsaverage4": 2562, "fsaverage3": 642}
"""Vertices of one hemisphere; each mesh begins with all vertices of the next coarser one."""
NOWHERE: Final = 9000.0
"""Coordinates above this are no place: published transforms say 9999 where there is none."""
INSTALL: Final = "pip install neuroledger[fmri]"


class Voxels(Frozen):
    """A channel is a voxel that lies in the masks of all runs, in the order of the image (x fastest)."""

    name: Literal["voxels"] = "voxels"


class Surface(Frozen):
    """A channel is a vertex of fsaverage: the mean of `samples` places on the way from the pial to the white surface.

    Between voxels, values are interpolated linearly; places outside the image do not count. The series must be in a space
    of MNI, where the mean cortex of fsaverage5, which nilearn brings with it, lies in the grey matter.
    """

    name: Literal["surface"] = "surface"
    mesh: Mesh = "fsaverage5"
    samples: Annotated[int, Field(ge=2)] = 10


class Transforms(Frozen):
    """A channel is a vertex of fsaverage, by files that say where in each person's images it lies.

    Attributes
    ----------
    layers
        How the files of each depth are called: for each vertex of the person's own surface three coordinates in voxels of
        the series, counted from 1, and 9999 for nowhere. Depths are averaged; between voxels, values are interpolated.
    vertices
        How the file is called that gives, for each vertex of fsaverage, the person's own vertex, counted from 1.
    """

    name: Literal["transforms"] = "transforms"
    mesh: Mesh = "fsaverage5"
    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    vertices: str

    @field_validator("layers", "vertices")
    @classmethod
    def _of_hemispheres(cls, said: Any) -> Any:
        for pattern in (said,) if isinstance(said, str) else said:
            if "{hemi}" not in checked(pattern):
                raise ValueError(f"{pattern!r} names no hemisphere: write {{hemi}} in its place")
        return said


class Vertices(Frozen):
    """A channel is a vertex of fsaverage, of series that are on it, or on a finer one, already (GIFTI, {hemi})."""

    name: Literal["vertices"] = "vertices"
    mesh: Mesh = "fsaverage5"


Space = Annotated[Voxels | Surface | Transforms | Vertices, Field(discriminator="name")]


class Channels(NamedTuple):
    """How channels come of the voxels of an image: which voxels are read, and their weights in each channel.

    `matrix` is sparse (channel, voxel read); None where each voxel is a channel. `voxels` are places in the image,
    x fastest.
    """

    voxels: npt.NDArray[np.int64]
    matrix: Any

    def of(self, flat: Array) -> Array:
        """(channel, volume) from (voxel read, volume)."""
        return flat if self.matrix is None else np.asarray(self.matrix @ flat)


def image(path: Path, name: str) -> Any:
    """An image of nibabel; its values are not read yet.

    Raises
    ------
    DataError
        It is none.
    UnavailableError
        nibabel is not installed.
    """
    try:
        import nibabel
    except ImportError as error:
        raise UnavailableError(f"reading images of the brain needs nibabel: {INSTALL}") from error
    with parsing(name, "an image by nibabel"):
        return nibabel.load(path)


def values_of(loaded: Any, name: str, dtype: npt.DTypeLike = np.float32) -> Array:
    """The scaled values of an image, in single precision unless told otherwise.

    Raises
    ------
    DataError
        The file is cut off or damaged, or holds a surface.
    """
    if not hasattr(loaded, "dataobj"):
        raise DataError(f"{name} is no image of voxels: of surfaces, say `space: {{name: vertices}}`")
    with parsing(name, "an image of voxels"):
        return np.asarray(loaded.dataobj, dtype=dtype)


def voxels_in(masks: Sequence[tuple[Any, str]]) -> tuple[Channels, Array]:
    """Voxels that are in all masks, and their places in metres, (voxel, 3).

    Raises
    ------
    DataError
        Masks lie on different grids, or no voxel is in all.
    """
    (first, name), *rest = masks
    inside = values_of(first, name) > 0
    if inside.ndim != 3:
        raise DataError(f"the mask {name} has {inside.ndim} dimensions, not 3")
    for other, called in rest:
        if other.shape != first.shape or not np.allclose(other.affine, first.affine, atol=1e-3):
            raise DataError(
                f"the masks {name} {first.shape} and {called} {other.shape} lie on different grids, so that their voxels "
                "are not the same places: take one person (`subjects`), or `space: {name: surface}`"
            )
        inside &= values_of(other, called) > 0
    places = np.flatnonzero(inside.ravel(order="F"))
    if not len(places):
        raise DataError(f"no voxel is in all of {len(masks)} masks, first {name}")
    at = np.array(np.unravel_index(places, inside.shape, order="F"), dtype=float)
    metres = (first.affine[:3, :3] @ at + first.affine[:3, 3:]).T / 1000.0
    return Channels(places.astype(np.int64), None), metres


def on_cortex(space: Surface, shape: Sequence[int], affine: Array) -> Channels:
    """Vertices of both hemispheres, left first, that sample an image on this grid.

    The same as nilearn's `vol_to_surf` between the pial and the white surface, as one sparse matrix.

    Raises
    ------
    UnavailableError
        nilearn is not installed.
    """
    try:
        from nilearn.datasets import load_fsaverage
    except ImportError as error:
        raise UnavailableError(f"projecting to the cortex needs nilearn: {INSTALL}") from error
    meshes = load_fsaverage("fsaverage5")
    count = MESHES[space.mesh]
    sides = [
        [np.asarray(meshes[layer].parts[side].coordinates, float)[:count] for side in ("left", "right")]
        for layer in ("pial", "white_matter")
    ]
    pial, white = (np.concatenate(layer) for layer in sides)
    steps = np.linspace(0, 1, space.samples)[:, None, None]
    world = pial + steps * (white - pial)
    inverse = np.linalg.inv(affine)
    places = world @ inverse[:3, :3].T + inverse[:3, 3]
    return along(places, shape)


def along(places: Array, shape: Sequence[int]) -> Channels:
    """Channels that are each the mean of linearly interpolated values at places (sample, channel, 3), in voxels from 0.

    Places before the first or at least one voxel behind the last do not count; a channel without a place is 0.
    """
    from scipy.sparse import csr_matrix

    size = np.array(shape[:3])
    if (size < 2).any():
        raise DataError(f"an image of {tuple(shape)} has no voxels to interpolate between")
    channels = places.shape[1]
    inside = ((places >= 0) & (places < size)).all(axis=2)
    share = 1.0 / np.maximum(inside.sum(axis=0), 1)
    _, at = np.nonzero(inside)
    there = places[inside]
    low = np.clip(np.floor(there), 0, size - 2).astype(np.int64)
    part = there - low
    rows, columns, weights = [], [], []
    for corner in np.ndindex(2, 2, 2):
        chosen = np.array(corner)
        x, y, z = (low + chosen).T
        columns.append(x + size[0] * (y + size[1] * z))
        weights.append(np.where(chosen == 1, part, 1 - part).prod(axis=1) * share[at])
        rows.append(at)
    flat = np.concatenate(columns)
    voxels, compact = np.unique(flat, return_inverse=True)
    matrix = csr_matrix(
        (np.concatenate(weights), (np.concatenate(rows), compact)), shape=(channels, len(voxels))
    )
    return Channels(voxels.astype(np.int64), matrix)


def by_transforms(
    space: Transforms,
    layers: Mapping[str, Sequence[Array]],
    vertices: Mapping[str, Array],
    shape: Sequence[int],
) -> Channels:
    """Vertices of fsaverage, left first, by the files of one person, each by hemisphere.

    Raises
    ------
    DataError
        A vertex of the person's surface does not exist.
    """
    count = MESHES[space.mesh]
    depths = []
    for depth in range(len(space.layers)):
        sides = []
        for side in HEMISPHERES[1]:
            own = np.asarray(vertices[side], float).ravel()[:count].astype(np.int64) - 1
            there = np.asarray(layers[side][depth], float).reshape(-1, 3)
            if len(own) < count or own.min() < 0 or own.max() >= len(there):
                raise DataError(
                    f"{space.vertices} of {side} names {len(own)} vertices, up to number {own.max() + 1}; {space.mesh} has "
                    f"{count} and {space.layers[depth]} has {len(there)}"
                )
            sides.append(there[own])
        depths.append(np.concatenate(sides))
    places = np.array(depths)
    # Coordinates count from 1; what is nowhere stays outside.
    return along(np.where(places > NOWHERE, -1.0, places - 1.0), shape)


def vertices_in(space: Vertices, sides: Sequence[tuple[Any, str]]) -> Array:
    """(channel, volume) of two GIFTI files, left and right, or of two images of FreeSurfer.

    Raises
    ------
    DataError
        They have fewer vertices than the mesh, or differ in length.
    """
    count = MESHES[space.mesh]
    parts = []
    for loaded, name in sides:
        if hasattr(loaded, "darrays"):
            arrays = [np.asarray(array.data, np.float32) for array in loaded.darrays]
            values = arrays[0] if len(arrays) == 1 and arrays[0].ndim == 2 else np.column_stack(arrays)
        else:
            values = values_of(loaded, name)
            values = values.reshape(values.shape[0], -1)
        if len(values) not in (163842, 40962, *MESHES.values()) or len(values) < count:
            raise DataError(f"{name} has {len(values)} vertices, which is no fsaverage of at least {count}")
        parts.append(values[:count])
    if len({part.shape[1] for part in parts}) > 1:
        raise DataError(
            f"{sides[0][1]} has {parts[0].shape[1]} volumes and {sides[1][1]} has {parts[1].shape[1]}: they are one run"
        )
    return np.concatenate(parts)
