"""Tests that recordings in the embedded remote may be redistributed, and that they are the originals."""

from __future__ import annotations

import hashlib
import re
import zipfile

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from neuroledger.data.load import load_dataset
from tools.generate import edge_images

# Licences that allow copies for everybody. GPL data are aggregated with the MIT code, unmodified and with their licence.
REDISTRIBUTABLE = {
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC-BY-4.0",
    "CC-BY-SA-3.0",
    "GPL-3.0-only",
    "MIT",
    "ODC-By-1.0",
}
TEXT_REQUIRED = ("Cowley2023.210325", "Kriegeskorte2008", "Rokem2006.receptor")


def _recorded(catalog):
    """Ids of data sets with files in the embedded remote that are not simulated."""
    specs = (catalog.dataset(id) for id in catalog.ids("datasets"))
    return [
        spec.id
        for spec in specs
        if not spec.simulated and any(pin.dvc for pin in spec.files.values())
    ]


def _attribution(repository, id):
    return (repository / "data" / id / "ATTRIBUTION.md").read_text(encoding="utf-8")


def test_licences_of_embedded_recordings_allow_redistribution(catalog, repository):
    ids = _recorded(catalog)
    assert len(ids) >= 9
    for id in ids:
        spec = catalog.dataset(id)
        assert spec.license in REDISTRIBUTABLE and spec.access == "public", id
        text = _attribution(repository, id)
        assert text.startswith(f"# {id}\n"), id
        for field in ("Authors", "Licence", "Changes", "Cite"):
            assert re.search(rf"^\* {field}: \S", text, re.MULTILINE), (id, field)
        assert (
            spec.license in re.search(r"^\* Licence: (.*)$", text, re.MULTILINE)[1]
        ), id
        assert all(key in text for key in spec.cite), id


def test_attributions_list_every_file_or_every_file_of_an_archive_packed_here(
    catalog, repository, clone
):
    for id in _recorded(catalog):
        listed = set(re.findall(r"\| ([0-9a-f]{64}) \|", _attribution(repository, id)))
        for name, pin in catalog.dataset(id).files.items():
            if pin.sha256 in listed:
                continue
            with zipfile.ZipFile(clone / "data" / id / name) as archive:
                contents = [archive.read(member) for member in archive.namelist()]
            assert {
                hashlib.sha256(content).hexdigest() for content in contents
            } <= listed, (id, name)


@pytest.mark.parametrize("id", TEXT_REQUIRED)
def test_licences_that_must_be_copied_along_are_next_to_the_data(repository, id):
    content = (repository / "data" / id / "LICENSE").read_bytes()
    assert f"| LICENSE | {hashlib.sha256(content).hexdigest()} |" in _attribution(
        repository, id
    )


def test_images_of_edges_are_packed_into_the_same_bytes(clone, repository, tmp_path):
    packed = clone / "data" / "Geirhos2021.edge" / "images.zip"
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "checkout" / "edges")
    listed = edge_images.manifest(_attribution(repository, "Geirhos2021.edge"))
    assert len(listed) == 160
    again = edge_images.build(tmp_path / "checkout", tmp_path / "new", listed)
    assert again.read_bytes() == packed.read_bytes()
    (tmp_path / "checkout" / "edges" / "car3.png").write_bytes(b"another image")
    with pytest.raises(ValueError, match=r"car3\.png is not the image"):
        edge_images.build(tmp_path / "checkout", tmp_path / "new", listed)


@pytest.mark.parametrize(
    ("sound", "least"), [("noise_200hz", 0.4), ("noise_800hz", 0.3)]
)
def test_the_receptor_follows_the_envelope_of_the_past(catalog, sound, least):
    """A ridge regression on the last 100 ms, fitted to 4 of 5 contiguous blocks, predicts the fifth."""
    data = load_dataset(catalog, "Rokem2006.receptor")
    counts = (
        data.assembly.isel(neuroid=0)
        .values[data.assembly["stimulus_id"].values == sound]
        .ravel()
    )
    envelope = data.extras["envelope"]
    amplitude = (
        envelope.isel(neuroid=0).values[envelope["stimulus_id"].values == sound].ravel()
    )
    lags = 20
    past = np.lib.stride_tricks.sliding_window_view(amplitude, lags)
    counts = counts[lags - 1 :]
    blocks = np.arange(len(counts)) * 5 // len(counts)

    def predictivity(features):
        correlations = []
        for block in range(5):
            test = blocks == block
            fitted = Ridge(alpha=1e-2).fit(features[~test], counts[~test])
            correlations.append(
                np.corrcoef(fitted.predict(features[test]), counts[test])[0, 1]
            )
        return np.mean(correlations)

    assert predictivity(past) > least
    # Reversed in time, the same sound says nothing: times of spikes and sound have one origin and one unit.
    assert predictivity(past[::-1]) < 0.1
