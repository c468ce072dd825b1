"""MATLAB structures of images and dissimilarities are read as a stimulus set and RDMs of subjects."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from scipy.spatial.distance import squareform

from neuroledger.data.assembly import check
from neuroledger.errors import DataError
from neuroledger.families.alignment.readers.kriegeskorte92 import kriegeskorte92

N = 5


def _rdm(seed: int, n: int = N) -> np.ndarray:
    return squareform(np.random.default_rng(seed).random(n * (n - 1) // 2))


def _files(
    folder: Path, *, stimuli: int = N, monkey: str = "mIT_3neurons"
) -> dict[str, Path]:
    brains = np.empty((1, 2, 2), dtype=[("RDM", "O"), ("name", "O")])
    for person, initials in enumerate(("BE", "KO")):
        for session in range(2):
            name = f"hIT | {initials} | Session: {session + 1}"
            brains[0, person, session] = (_rdm(10 * person + session), name)
    savemat(folder / "brains.mat", {"RDMs": brains})
    fields = ["category", "human", "face", "animal", "natural", "image"]
    pictures = np.empty((1, stimuli), dtype=[(name, "O") for name in fields])
    for i in range(stimuli):
        pixels = np.full((7, 9, 3), i, dtype=np.uint8)
        pictures[0, i] = ("human face", 1, 1, 1, i % 2, pixels)
    other = np.empty((1, 2), dtype=[("name", "O"), ("RDM", "O")])
    other[0, 0] = (monkey, squareform(_rdm(99))[None])
    other[0, 1] = ("hIT", squareform(_rdm(98))[None])
    savemat(
        folder / "more.mat", {"stimuli_92objs": pictures, "RDMs_mIT_hIT_fig1": other}
    )
    return {"brains.mat": folder / "brains.mat", "more.mat": folder / "more.mat"}


def _read(files):
    return kriegeskorte92(files, brains="brains.mat", supplement="more.mat")


def test_subjects_sessions_and_species(tmp_path):
    assembly = check(_read(_files(tmp_path)).assembly)
    assert assembly.sizes == {"subject": 3, "stimulus": N, "stimulus_b": N}
    assert assembly["subject"].values.tolist() == ["BE", "KO", "mIT_3neurons"]
    assert assembly["species"].values.tolist() == ["human", "human", "monkey"]
    np.testing.assert_allclose(
        assembly.values[1], (_rdm(10) + _rdm(11)) / 2, atol=1e-15
    )
    np.testing.assert_allclose(assembly.values[2], _rdm(99), atol=1e-15)


def test_images_are_kept_without_loss(tmp_path):
    stimuli = _read(_files(tmp_path)).stimuli
    assert stimuli.ids == [f"object_0{i}" for i in range(1, N + 1)]
    assert stimuli.table["natural"].tolist() == [0, 1, 0, 1, 0]
    image = np.asarray(Image.open(io.BytesIO(stimuli.bytes("object_03"))))
    assert image.shape == (7, 9, 3)
    assert (image == 2).all()
    assert stimuli.content_sha256 == _read(_files(tmp_path)).stimuli.content_sha256


def test_stimuli_and_rdms_must_agree(tmp_path):
    with pytest.raises(DataError, match=r"RDM of BE is \(5, 5\), for 4 stimuli"):
        _read(_files(tmp_path, stimuli=4))


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(DataError, match="no monkey RDM"):
        _read(_files(tmp_path, monkey="other"))
    files = _files(tmp_path)
    files["brains.mat"] = files["more.mat"]
    with pytest.raises(DataError, match=r"more\.mat has no variable 'RDMs'"):
        _read(files)
    files["brains.mat"] = tmp_path / "text.mat"
    files["brains.mat"].write_text("no MATLAB file")
    with pytest.raises(DataError, match=r"text\.mat cannot be read"):
        _read(files)
