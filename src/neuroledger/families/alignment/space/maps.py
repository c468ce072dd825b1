"""Maps of one value for each voxel or vertex, as files of NIfTI and GIFTI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import RequestError, naming_extras

__all__ = ["gifti", "nifti"]


@naming_extras()
def nifti(
    values: Floats,
    millimetres: Floats,
    affine: Floats,
    shape: tuple[int, int, int],
    path: Path | str,
) -> Path:
    """Write a value for each voxel to a NIfTI file, with NaN in all other voxels; return its path.

    Parameters
    ----------
    values
        (voxel,).
    millimetres
        Coordinates of the voxels in the space of the affine, mm, (voxel × 3).
    affine
        From indices of voxels to mm, (4 × 4).
    shape
        Number of voxels along each axis.

    Raises
    ------
    RequestError
        A voxel lies outside of the volume or between voxels, or two values lie in one voxel.
    """
    import nibabel

    places = np.c_[floats(millimetres), np.ones(len(values))]
    exact = (places @ np.linalg.inv(affine).T)[:, :3]
    index = exact.round().astype(np.intp)
    if np.abs(exact - index).max() > 1e-3:
        raise RequestError(
            "coordinates lie between voxels of the affine: give the affine of the image that they come from"
        )
    if (index < 0).any() or (index >= np.asarray(shape)).any():
        raise RequestError(f"a voxel lies outside of a volume of {shape}")
    if len(np.unique(index, axis=0)) < len(index):
        raise RequestError("two values lie in one voxel")
    volume = np.full(shape, np.nan, dtype=np.float32)
    volume[tuple(index.T)] = values
    make: Any = nibabel.Nifti1Image
    nibabel.save(make(volume, floats(affine)), str(path))
    return Path(path)


@naming_extras()
def gifti(values: Floats, path: Path | str) -> Path:
    """Write a value for each vertex of a surface (vertex,) to a GIFTI file; return its path."""
    import nibabel

    data = np.asarray(values, dtype=np.float32)
    parts: Any = nibabel.gifti
    array = parts.GiftiDataArray(data, intent="NIFTI_INTENT_SHAPE", datatype="float32")
    nibabel.save(parts.GiftiImage(darrays=[array]), str(path))
    return Path(path)
