"""Channels from the images of a run: voxels of a mask, or vertices of fsaverage that sample the cortex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from neuroledger.data.arrays import Array, Integers, floats
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.fields import AtLeastTwo
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
    "interpolated",
    "by_transforms",
    "image",
    "on_cortex",
    "values_of",
    "vertices_in",
    "voxels_in",
]

Mesh = Literal["fsaverage5", "fsaverage4", "fsaverage3"]

MESHES: Final[Mapping[str, int]] = {
    "fsaverage5": 10242,
    "fsaverage4": 2562,
    "fsaverage3": 642,
}
"""Vertices of one hemisphere; each mesh begins with all vertices of the next coarser one."""
NOWHERE: Final = 9000.0
"""Coordinates above this are invalid: published transforms contain 9999 for no position."""
INSTALL: Final = "pip install 'neuroledger[fmri]'"


class Voxels(Frozen):
    """A channel is a voxel that is in the masks of all runs, in the order of the image (x fastest)."""

    name: Literal["voxels"] = "voxels"


class Surface(Frozen):
    """A channel is a vertex of fsaverage: the mean of `samples` points between the pial and the white surface.

    Between voxels, values are interpolated linearly; points outside the image are ignored. The series must be in an MNI
    space, in which the mean cortex of fsaverage5 (part of nilearn) is in the grey matter.
    """

    name: Literal["surface"] = "surface"
    mesh: Mesh = "fsaverage5"
    samples: AtLeastTwo = 10


class Transforms(Frozen):
    """A channel is a vertex of fsaverage, whose position in each subject's images is read from files.

    Attributes
    ----------
    layers
        Names of the files of each depth. Each contains, for every vertex of the subject's own surface, three coordinates
        in voxels of the series, counted from 1, or 9999 for no position. Depths are averaged; between voxels, values are
        interpolated.
    vertices
        Name of the file that contains, for each vertex of fsaverage, the subject's own vertex, counted from 1.
    """

    name: Literal["transforms"] = "transforms"
    mesh: Mesh = "fsaverage5"
    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    vertices: str

    @field_validator("layers", "vertices")
    @classmethod
    def _check_hemisphere(cls, patterns: Any) -> Any:
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            if "{hemi}" not in checked(pattern):
                raise ValueError(
                    f"{pattern!r} has no placeholder of the hemisphere: write {{hemi}} in its place"
                )
        return patterns


class Vertices(Frozen):
    """A channel is a vertex of fsaverage; the series are already on it, or on a finer mesh (GIFTI, {hemi})."""

    name: Literal["vertices"] = "vertices"
    mesh: Mesh = "fsaverage5"


Space = Annotated[Voxels | Surface | Transforms | Vertices, Field(discriminator="name")]


class Channels(NamedTuple):
    """The voxels of an image that are read, and their weights in each channel.

    `voxels` are flat indices into the image, x fastest. `matrix` is sparse (channel, voxel); None if each voxel is a
    channel.
    """

    voxels: Integers
    matrix: Any

    def of(self, flat: Array) -> Array:
        """Values of the channels (channel, volume) from those of the voxels (voxel, volume)."""
        if self.matrix is None:
            return flat
        return np.asarray(self.matrix @ flat)


def image(path: Path, name: str) -> Any:
    """The image as nibabel opens it, with its values not yet read.

    Raises
    ------
    DataError
        The file is not an image that nibabel reads.
    UnavailableError
        nibabel is not installed.
    """
    try:
        import nibabel
    except ImportError as error:
        raise UnavailableError(
            "reading images of the brain needs nibabel", INSTALL
        ) from error
    with parsing(name, "an image by nibabel"):
        return nibabel.load(path)


def values_of(loaded: Any, name: str, dtype: npt.DTypeLike = np.float32) -> Array:
    """The scaled values of an image, in single precision by default.

    Raises
    ------
    DataError
        The file is truncated or damaged, or contains a surface.
    """
    if not hasattr(loaded, "dataobj"):
        raise DataError(
            f"{name} is not an image of voxels: for surfaces, declare `space: {{name: vertices}}`"
        )
    with parsing(name, "an image of voxels"):
        return np.asarray(loaded.dataobj, dtype=dtype)


def voxels_in(masks: Sequence[tuple[Any, str]]) -> tuple[Channels, Array]:
    """Voxels that are in all masks, and their positions in metres, (voxel, 3).

    Raises
    ------
    DataError
        Masks have different grids, or no voxel is in all of them.
    """
    (first, name), *rest = masks
    inside = values_of(first, name) > 0
    if inside.ndim != 3:
        raise DataError(f"the mask {name} has {inside.ndim} dimensions, not 3")
    for other, other_name in rest:
        if other.shape != first.shape or not np.allclose(
            other.affine, first.affine, atol=1e-3
        ):
            raise DataError(
                f"the masks {name} {first.shape} and {other_name} {other.shape} have different grids, so voxels do not "
                "correspond: select one subject (`subjects`), or use `space: {name: surface}`"
            )
        inside &= values_of(other, other_name) > 0
    voxels = np.flatnonzero(inside.ravel(order="F"))
    if not len(voxels):
        raise DataError(f"no voxel is in all of {len(masks)} masks, first {name}")
    coordinates = np.array(
        np.unravel_index(voxels, inside.shape, order="F"), dtype=float
    )
    millimetres = first.affine[:3, :3] @ coordinates + first.affine[:3, 3:]
    return Channels(voxels.astype(np.int64), None), millimetres.T / 1000.0


def on_cortex(space: Surface, shape: Sequence[int], affine: Array) -> Channels:
    """Vertices of both hemispheres, left first, that sample an image on this grid.

    Equivalent to nilearn's `vol_to_surf` between the pial and the white surface, as one sparse matrix.

    Raises
    ------
    UnavailableError
        nilearn is not installed.
    """
    try:
        from nilearn.datasets import load_fsaverage
    except ImportError as error:
        raise UnavailableError(
            "projecting to the cortex needs nilearn", INSTALL
        ) from error
    meshes = load_fsaverage("fsaverage5")
    count = MESHES[space.mesh]
    sides = [
        [
            floats(meshes[layer].parts[side].coordinates)[:count]
            for side in ("left", "right")
        ]
        for layer in ("pial", "white_matter")
    ]
    pial, white = (np.concatenate(layer) for layer in sides)
    steps = np.linspace(0, 1, space.samples)[:, None, None]
    world = pial + steps * (white - pial)
    inverse = np.linalg.inv(affine)
    points = world @ inverse[:3, :3].T + inverse[:3, 3]
    return interpolated(points, shape)


def interpolated(points: Array, shape: Sequence[int]) -> Channels:
    """Channels that are means of linearly interpolated values at points (sample, channel, 3), in voxels from 0.

    Points before the first voxel, or at least one voxel after the last, are ignored; a channel without a point is 0.
    """
    from scipy.sparse import csr_matrix

    size = np.array(shape[:3])
    if (size < 2).any():
        raise DataError(
            f"an image of {tuple(shape)} has no voxels to interpolate between"
        )
    channels = points.shape[1]
    inside = ((points >= 0) & (points < size)).all(axis=2)
    share = 1.0 / np.maximum(inside.sum(axis=0), 1)
    _, channel = np.nonzero(inside)
    valid = points[inside]
    low = np.clip(np.floor(valid), 0, size - 2).astype(np.int64)
    part = valid - low
    rows = []
    columns = []
    weights = []
    for corner in np.ndindex(2, 2, 2):
        offset = np.array(corner)
        x, y, z = (low + offset).T
        columns.append(x + size[0] * (y + size[1] * z))
        weights.append(
            np.where(offset == 1, part, 1 - part).prod(axis=1) * share[channel]
        )
        rows.append(channel)
    flat = np.concatenate(columns)
    voxels, compact = np.unique(flat, return_inverse=True)
    matrix = csr_matrix(
        (np.concatenate(weights), (np.concatenate(rows), compact)),
        shape=(channels, len(voxels)),
    )
    return Channels(voxels.astype(np.int64), matrix)


def by_transforms(
    space: Transforms,
    layers: Mapping[str, Sequence[Array]],
    vertices: Mapping[str, Array],
    shape: Sequence[int],
) -> Channels:
    """Vertices of fsaverage, left first, from the transforms of one subject, each by hemisphere.

    Raises
    ------
    DataError
        A vertex of the subject's surface does not exist.
    """
    count = MESHES[space.mesh]
    depths = []
    for depth in range(len(space.layers)):
        hemispheres = []
        for side in HEMISPHERES[1]:
            indices = floats(vertices[side]).ravel()[:count].astype(np.int64) - 1
            coordinates = floats(layers[side][depth]).reshape(-1, 3)
            if (
                len(indices) < count
                or indices.min() < 0
                or indices.max() >= len(coordinates)
            ):
                raise DataError(
                    f"{space.vertices} of {side} names {len(indices)} vertices, up to number {indices.max() + 1}; "
                    f"{space.mesh} has {count} and {space.layers[depth]} has {len(coordinates)}"
                )
            hemispheres.append(coordinates[indices])
        depths.append(np.concatenate(hemispheres))
    points = np.array(depths)
    # Coordinates count from 1; points without a position stay outside.
    return interpolated(np.where(points > NOWHERE, -1.0, points - 1.0), shape)


def vertices_in(space: Vertices, sides: Sequence[tuple[Any, str]]) -> Array:
    """Values (channel, volume) of two GIFTI files, left and right, or of two images of FreeSurfer.

    Raises
    ------
    DataError
        A file has fewer vertices than the mesh, or the files differ in length.
    """
    count = MESHES[space.mesh]
    parts = []
    for loaded, name in sides:
        if hasattr(loaded, "darrays"):
            arrays = [np.asarray(array.data, np.float32) for array in loaded.darrays]
            values = (
                arrays[0]
                if len(arrays) == 1 and arrays[0].ndim == 2
                else np.column_stack(arrays)
            )
        else:
            values = values_of(loaded, name)
            values = values.reshape(values.shape[0], -1)
        if len(values) not in (163842, 40962, *MESHES.values()) or len(values) < count:
            raise DataError(
                f"{name} has {len(values)} vertices, which is not an fsaverage mesh of at least {count}"
            )
        parts.append(values[:count])
    if len({part.shape[1] for part in parts}) > 1:
        raise DataError(
            f"{sides[0][1]} has {parts[0].shape[1]} volumes and {sides[1][1]} has {parts[1].shape[1]}: the two must "
            "be of one run"
        )
    return np.concatenate(parts)
