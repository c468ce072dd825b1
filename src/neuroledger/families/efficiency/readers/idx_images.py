"""Reader of labelled images in IDX files, plain or gzipped, such as MNIST: an image is one bin of pixels."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import xarray as xr
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from neuroledger.data.arrays import Array, Singles
from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["Part", "idx_images"]


# Storage types by the third byte of the magic number, most significant byte first.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIPPED = b"\x1f\x8b"


class _BinaryFile(Protocol):
    """A plain or decompressed binary file."""

    def read(self, size: int, /) -> bytes: ...


class Part(BaseModel):
    """The two files of one part: images ``(image, row, column)`` and labels ``(image,)``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: str
    labels: str


MNIST = {
    "train": Part(
        images="train-images-idx3-ubyte.gz", labels="train-labels-idx1-ubyte.gz"
    ),
    "test": Part(
        images="t10k-images-idx3-ubyte.gz", labels="t10k-labels-idx1-ubyte.gz"
    ),
}


@reader("idx_images", version=1)
def idx_images(
    files: Mapping[str, Path],
    *,
    parts: Mapping[str, Part] = MNIST,
    pool: PositiveInt = 1,
    brightest: PositiveFloat = 255.0,
) -> Dataset:
    """Read images as an assembly ``(presentation, neuroid, time_bin)`` with one bin; pixels row by row, 1 where brightest.

    Presentations have the coordinates ``label`` (the number in the label file, as text) and ``split`` (their part).

    Parameters
    ----------
    files
        Paths by their names in the spec; gzipped files are recognised by their first bytes, not by name.
    parts
        The image file and the label file of each part. The default names are those of MNIST.
    pool
        Side in pixels of the squares that are averaged; the remainder at the right and lower edge is dropped.
    brightest
        The stored value that becomes 1.

    Raises
    ------
    DataError
        A file is not declared, is not an IDX file, is too short or too long, or the parts do not match.
    RequestError
        The images do not fit into memory.
    """
    pictures = []
    labels = []
    splits = []
    for part, names in parts.items():
        images = _array(files, names.images)
        truth = _array(files, names.labels)
        if images.ndim != 3 or truth.ndim != 1:
            raise DataError(
                f"part {part!r}: {names.images} has {images.ndim} dimensions and {names.labels} {truth.ndim}, not 3 and 1; "
                "check that the two are not exchanged"
            )
        if len(images) != len(truth):
            raise DataError(
                f"{names.images} has {len(images)} images, but {names.labels} has {len(truth)} labels"
            )
        if truth.dtype.kind == "f":
            raise DataError(
                f"{names.labels} has labels of type {truth.dtype}, not integers"
            )
        pictures.append(_pooled(images, pool, names.images))
        pictures[-1] /= np.float32(brightest)
        labels.append(truth.astype(np.int64).astype(str))
        splits.append(np.full(len(images), part))
    shapes = {picture.shape[1:] for picture in pictures}
    if len(shapes) != 1:
        raise DataError(f"the parts have images of different sizes: {sorted(shapes)}")
    height, width = shapes.pop()
    values = np.concatenate(pictures).reshape(-1, height * width, 1)
    rows, columns = np.divmod(np.arange(height * width), width)
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                [f"{part[0]}_{n:05d}" for part in splits for n in range(len(part))],
            ),
            "label": ("presentation", np.concatenate(labels)),
            "split": ("presentation", np.concatenate(splits)),
            "neuroid_id": (
                "neuroid",
                [f"y{y:02d}_x{x:02d}" for y, x in zip(rows, columns, strict=True)],
            ),
            "x": ("neuroid", columns),
            "y": ("neuroid", rows),
            "time_bin_start": ("time_bin", [0.0]),
            "time_bin_end": ("time_bin", [1.0]),
        },
    )
    return Dataset(stimuli=None, assembly=assembly)


def _pooled(images: Array, pool: int, name: str) -> Singles:
    """Return means over squares of ``pool`` pixels, ``(image, row, column)``."""
    if pool == 1:
        return images.astype(np.float32)
    count, height, width = images.shape
    rows = height // pool
    columns = width // pool
    if not rows or not columns:
        raise DataError(
            f"{name} has images of {height} x {width} pixels, too small for `pool: {pool}`"
        )
    blocks = images[:, : rows * pool, : columns * pool].reshape(
        count, rows, pool, columns, pool
    )
    return np.asarray(blocks.mean(axis=(2, 4), dtype=np.float32))


def _array(files: Mapping[str, Path], name: str) -> Array:
    """Return the array of one IDX file, in native byte order."""
    if name not in files:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    path = files[name]
    with parsing(path, "an IDX file"), path.open("rb") as file:
        is_gzipped = file.read(2) == GZIPPED
        file.seek(0)
        if not is_gzipped:
            return _parse_idx(file, name)
        with gzip.open(file) as unpacked:
            return _parse_idx(unpacked, name)


def _parse_idx(opened: _BinaryFile, name: str) -> Array:
    magic = opened.read(4)
    if (
        len(magic) < 4
        or magic[:2] != b"\x00\x00"
        or magic[2] not in TYPES
        or not magic[3]
    ):
        raise DataError(
            f"{name} is not an IDX file: it begins with {magic.hex(' ') or 'nothing'}, not with 00 00, a type and a number "
            "of dimensions (08 03 for images, 08 01 for labels)"
        )
    stored = np.dtype(TYPES[magic[2]])
    dimensions = opened.read(4 * magic[3])
    if len(dimensions) < 4 * magic[3]:
        raise DataError(f"{name} ends within its header: it is damaged or incomplete")
    shape = np.frombuffer(dimensions, dtype=">u4").astype(np.int64).tolist()
    expected = math.prod(shape) * stored.itemsize
    require_memory(
        6 * expected,
        f"{name} of {' x '.join(map(str, shape))} values",
        "check its header",
    )
    content = opened.read(expected + 1)
    if len(content) != expected:
        if len(content) < expected:
            size = f"{len(content):,}"
        else:
            size = "more"
        raise DataError(
            f"{name} states {' x '.join(map(str, shape))} values ({expected:,} bytes) but contains {size}: it is incomplete"
        )
    return (
        np.frombuffer(content, dtype=stored)
        .astype(stored.newbyteorder("="), copy=False)
        .reshape(shape)
    )
