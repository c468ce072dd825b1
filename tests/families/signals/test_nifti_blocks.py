"""Blocks of an fMRI series become patterns relative to the rest of their run; damaged images are refused by name."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.readers.nifti_blocks import nifti_blocks

LABELS = [
    "rest",
    "face",
    "face",
    "rest",
    "cat",
    "cat",
    "rest",
    "cat",
    "cat",
    "face",
    "face",
    "rest",
]
RUNS = [0] * 6 + [1] * 6


def _image(
    values: np.ndarray,
    code: int,
    *,
    slope: float = 0.0,
    intercept: float = 0.0,
    order: str = "<",
) -> bytes:
    header = bytearray(352)
    struct.pack_into(f"{order}i", header, 0, 348)
    sizes = [values.ndim, *values.shape] + [1] * (7 - values.ndim)
    struct.pack_into(f"{order}8h", header, 40, *sizes)
    struct.pack_into(f"{order}h", header, 70, code)
    struct.pack_into(f"{order}3f", header, 108, 352.0, slope, intercept)
    header[344:348] = b"n+1\0"
    return bytes(header) + values.tobytes(order="F")


def _files(
    folder: Path, series: np.ndarray, mask: np.ndarray, **options
) -> dict[str, Path]:
    code = {"i2": 4, "f4": 16}[series.dtype.str[1:]]
    (folder / "bold.nii.gz").write_bytes(gzip.compress(_image(series, code, **options)))
    (folder / "mask.nii").write_bytes(_image(mask.astype("<i2"), 4))
    lines = [f"{label} {run}" for label, run in zip(LABELS, RUNS, strict=True)]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n")
    return {path.name: path for path in folder.iterdir()}


def _read(files):
    return nifti_blocks(
        files, bold="bold.nii.gz", mask="mask.nii", labels="labels.txt", seconds=2.5
    ).assembly


def _series(dtype: str = "<i2") -> tuple[np.ndarray, np.ndarray]:
    values = (
        np.random.default_rng(0)
        .integers(100, 900, size=(3, 2, 2, len(LABELS)))
        .astype(dtype)
    )
    mask = np.zeros((3, 2, 2))
    mask[0, 1, 0] = mask[2, 0, 1] = 1
    return values, mask


def test_block_means_are_relative_to_the_rest_of_their_run(tmp_path):
    series, mask = _series()
    windows = _read(_files(tmp_path, series, mask))
    assert windows["label"].values.tolist() == ["face", "cat", "cat", "face"]
    assert windows["run"].values.tolist() == [0, 0, 1, 1]
    assert windows["onset"].values.tolist() == [2.5, 10.0, 2.5, 7.5]
    voxel = series[0, 1, 0].astype(float)
    expected = voxel[[1, 2]].mean() - voxel[[0, 3]].mean()
    assert windows.values[0, 0, 0] == pytest.approx(expected)
    other = series[2, 0, 1].astype(float)
    assert windows.values[3, 1, 0] == pytest.approx(
        other[[9, 10]].mean() - other[[6, 11]].mean()
    )


@pytest.mark.parametrize(("dtype", "order"), [("<f4", "<"), (">i2", ">")])
def test_data_types_scaling_and_byte_orders_are_read(tmp_path, dtype, order):
    series, mask = _series(dtype)
    plain = _read(_files(tmp_path, series, mask, order=order))
    scaled = _read(
        _files(tmp_path, series, mask, order=order, slope=2.0, intercept=5.0)
    )
    np.testing.assert_allclose(scaled.values, 2 * plain.values)


def test_errors_name_the_damaged_file(tmp_path):
    series, mask = _series()
    files = _files(tmp_path, series, mask)
    whole = gzip.decompress(files["bold.nii.gz"].read_bytes())
    files["bold.nii.gz"].write_bytes(gzip.compress(whole[:-10]))
    with pytest.raises(
        DataError, match=r"bold\.nii\.gz cannot be read as an image of voxels"
    ):
        _read(files)
    files["bold.nii.gz"].write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(DataError, match=r"bold\.nii\.gz cannot be read as an image"):
        _read(files)
    files["bold.nii.gz"].write_bytes(b"something else")
    with pytest.raises(
        DataError, match=r"bold\.nii\.gz cannot be read as an image by nibabel"
    ):
        _read(files)


def test_inconsistent_files_are_refused(tmp_path):
    series, mask = _series()
    files = _files(tmp_path, series, mask[:2])
    with pytest.raises(DataError, match="a series and a mask of the same size"):
        _read(files)
    files = _files(tmp_path, series, mask)
    files["labels.txt"].write_text("face 0\n" * 3)
    with pytest.raises(DataError, match="3 lines for 12 volumes"):
        _read(files)
    files["labels.txt"].write_text(
        "\n".join(
            f"{label} {run}"
            for label, run in zip(LABELS, [0] * 6 + [1] * 6, strict=True)
        ).replace("rest 1", "cat 1")
    )
    with pytest.raises(DataError, match="run 1 has no volumes labelled 'rest'"):
        _read(files)
