"""Labelled images in IDX files, plain or gzipped, as the MNIST digits come: every image is one bin of pixels."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import xarray as xr
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array, Singles
from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["Part", "idx_images"]


# Third byte of the magic number: how values are stored, most significant byte first.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIPPED = b"\x1f\x8b"


class _Readable(Protocol):
    """A file, or what a compressed one opens as."""

    def read(self, size: int, /) -> bytes: ...


class Part(BaseModel):
    """The two files of one part: images ``(image, row, column)`` and labels ``(image,)``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: str
    labels: str


MNIST = {
    "train": Part(images="train-images-idx3-ubyte.gz", labels="train-labels-idx1-ubyte.gz"),
    "test": Part(images="t10k-images-idx3-ubyte.gz", labels="t10k-labels-idx1-ubyte.gz"),
}


@reader("idx_images", version=1)
def idx_images(
    files: Mapping[str, Path],
    *,
    parts: Mapping[str, Part] = MNIST,
    pool: Annotated[int, Field(gt=0)] = 1,
    brightest: Annotated[float, Field(gt=0)] = 255.0,
) -> Dataset:
    """Images as an assembly ``(presentation, neuroid, time_bin)`` with one bin; pixels row by row, 1 where brightest.

    Presentations carry ``label`` (the number in the label file, as text) and ``split`` (the name of their part).

    Parameters
    ----------
    files
        Paths by the names that the spec gives them; a gzipped file is known by its first bytes, not by its name.
    parts
        For each part its file of images and its file of labels. The default names are those of MNIST.
    pool
        Means over squares of this many pixels; the remainder at the right and lower edge is dropped.
    brightest
        The stored value that becomes 1.

    Raises
    ------
    DataError
        A file is not declared, is no IDX file, ends early or goes on too long, or parts do not fit together.
    RequestError
        The images do not fit into memory.
    """
    pictures, labels, splits = [], [], []
    for part, names in parts.items():
        images, truth = _array(files, names.images), _array(files, names.labels)
        if images.ndim != 3 or truth.ndim != 1:
            raise DataError(
                f"part {part!r}: {names.images} has {images.ndim} dimensions and {names.labels} {truth.ndim}, not 3 and 1; "
                "were the two exchanged?"
            )
        if len(images) != len(truth):
            raise DataError(f"{names.images} holds {len(images)} images, {names.labels} {len(truth)} labels")
        if truth.dtype.kind == "f":
            raise DataError(f"{names.labels} holds labels of type {truth.dtype}, not whole numbers")
        pictures.append(_pooled(images, pool, names.images))
        pictures[-1] /= np.float32(brightest)
        labels.append(truth.astype(np.int64).astype(str))
        splits.append(np.full(len(images), part))
    shapes = {picture.shape[1:] for picture in pictures}
    if len(shapes) != 1:
        raise DataError(f"the parts hold images of different sizes: {sorted(shapes)}")
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
            "neuroid_id": ("neuroid", [f"y{y:02d}_x{x:02d}" for y, x in zip(rows, columns, strict=True)]),
            "x": ("neuroid", columns),
            "y": ("neuroid", rows),
            "time_bin_start": ("time_bin", [0.0]),
            "time_bin_end": ("time_bin", [1.0]),
        },
    )
    return Dataset(stimuli=None, assembly=assembly)


def _pooled(images: Array, pool: int, name: str) -> Singles:
    """Means over squares of ``pool`` pixels, ``(image, row, column)``."""
    if pool == 1:
        return images.astype(np.float32)
    count, height, width = images.shape
    rows, columns = height // pool, width // pool
    if not rows or not columns:
        raise DataError(f"{name} holds images of {height} x {width} pixels: too few for pool = {pool}")
    blocks = images[:, : rows * pool, : columns * pool].reshape(count, rows, pool, columns, pool)
    return np.asarray(blocks.mean(axis=(2, 4), dtype=np.float32))


def _array(files: Mapping[str, Path], name: str) -> Array:
    """The array of one IDX file, in the order of this machine's bytes."""
    if name not in files:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    path = files[name]
    with parsing(path, "an IDX file"), path.open("rb") as plain:
        zipped = plain.read(2) == GZIPPED
        plain.seek(0)
        if not zipped:
            return _parsed(plain, name)
        with gzip.open(plain) as opened:
            return _parsed(opened, name)


def _parsed(opened: _Readable, name: str) -> Array:
    magic = opened.read(4)
    if len(magic) < 4 or magic[:2] != b"\x00\x00" or magic[2] not in TYPES or not magic[3]:
        raise DataError(
            f"{name} is no IDX file: it begins with {magic.hex(' ') or 'nothing'}, not with 00 00, a type and a number of "
            "dimensions (08 03 for images, 08 01 for labels)"
        )
    stored = np.dtype(TYPES[magic[2]])
    held = opened.read(4 * magic[3])
    if len(held) < 4 * magic[3]:
        raise DataError(f"{name} ends within its header; fetch it again")
    shape = np.frombuffer(held, dtype=">u4").astype(np.int64).tolist()
    expected = math.prod(shape) * stored.itemsize
    require_memory(6 * expected, f"{name} of {' x '.join(map(str, shape))} values", "check its header")
    content = opened.read(expected + 1)
    if len(content) != expected:
        there = f"{len(content):,}" if len(content) < expected else "more"
        raise DataError(
            f"{name} promises {' x '.join(map(str, shape))} values ({expected:,} bytes) and holds {there}; fetch it again"
        )
    return np.frombuffer(content, dtype=stored).astype(stored.newbyteorder("="), copy=False).reshape(shape)
