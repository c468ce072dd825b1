"""Images in IDX files: values of valid files, and errors for invalid ones."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.efficiency.readers.idx_images import MNIST, Part, idx_images
from tests.families.signals.recorded_files import idx

RNG = np.random.default_rng(4)
IMAGES = {
    "train": RNG.integers(0, 256, (7, 4, 6)),
    "test": RNG.integers(0, 256, (3, 4, 6)),
}
LABELS = {"train": np.array([0, 1, 2, 3, 9, 9, 5]), "test": np.array([7, 8, 0])}


@pytest.fixture
def files(tmp_path):
    for part, names in MNIST.items():
        (tmp_path / names.images).write_bytes(idx(IMAGES[part]))
        (tmp_path / names.labels).write_bytes(idx(LABELS[part]))
    return {path.name: path for path in tmp_path.iterdir()}


def test_pixels_labels_and_parts_are_those_of_the_files(files):
    assembly = idx_images(files).assembly
    assert assembly.dims == (
        "presentation",
        "neuroid",
        "time_bin",
    ) and assembly.shape == (10, 24, 1)
    np.testing.assert_allclose(
        assembly.values[:7, :, 0], IMAGES["train"].reshape(7, 24) / 255, rtol=1e-6
    )
    np.testing.assert_allclose(
        assembly.values[7:, :, 0], IMAGES["test"].reshape(3, 24) / 255, rtol=1e-6
    )
    assert assembly["label"].values.tolist() == [
        "0",
        "1",
        "2",
        "3",
        "9",
        "9",
        "5",
        "7",
        "8",
        "0",
    ]
    assert assembly["split"].values.tolist() == ["train"] * 7 + ["test"] * 3
    assert (assembly["y"].values[7], assembly["x"].values[7]) == (1, 1)


def test_squares_are_averaged_and_the_rest_dropped(files):
    assembly = idx_images(files, pool=3, brightest=51).assembly
    assert assembly.sizes["neuroid"] == 2
    np.testing.assert_allclose(
        assembly.values[0, :, 0],
        IMAGES["train"][0, :3].reshape(3, 2, 3).mean(axis=(0, 2)) / 51,
        rtol=1e-6,
    )


def test_uncompressed_files_and_other_names_are_read(files, tmp_path):
    (tmp_path / "a").write_bytes(idx(IMAGES["train"], zipped=False))
    (tmp_path / "b").write_bytes(idx(LABELS["train"], zipped=False))
    assembly = idx_images(
        {"a": tmp_path / "a", "b": tmp_path / "b"},
        parts={"all": Part(images="a", labels="b")},
    ).assembly
    assert assembly["split"].values.tolist() == ["all"] * 7


NAME = MNIST["test"].images
LABEL = MNIST["test"].labels


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (NAME, idx(IMAGES["test"])[:-20], "cannot be read as an IDX file"),
        (
            NAME,
            idx(IMAGES["test"], zipped=False)[:-1],
            r"states 3 x 4 x 6 values \(72 bytes\) but contains 71",
        ),
        (NAME, idx(IMAGES["test"], zipped=False) + b"x", "but contains more"),
        (NAME, b"\x89PNG....", "not an IDX file: it begins with 89 50 4e 47"),
        (NAME, b"", "begins with nothing"),
        (NAME, idx(IMAGES["test"], code=7, zipped=False), "not an IDX file"),
        (NAME, bytes([0, 0, 8, 3, 0, 0, 0]), "ends within its header"),
        (
            NAME,
            idx(LABELS["test"]),
            "has 1 dimensions and .* check that the two are not exchanged",
        ),
        (NAME, idx(IMAGES["train"]), "has 7 images, .* 3 labels"),
        (NAME, idx(IMAGES["test"][:, :2]), "images of different sizes"),
        (LABEL, idx(LABELS["train"]), "has 3 images, .* 7 labels"),
    ],
)
def test_invalid_image_files_are_refused(files, name, content, words):
    files[name].write_bytes(content)
    with pytest.raises(DataError, match=words):
        idx_images(files)


def test_a_missing_file_and_too_large_pooling_are_refused(files):
    with pytest.raises(DataError, match="too small for `pool: 5`"):
        idx_images(files, pool=5)
    with pytest.raises(DataError, match=f"needs the file '{LABEL}'"):
        idx_images({name: path for name, path in files.items() if name != LABEL})
