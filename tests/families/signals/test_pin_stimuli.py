"""Recordings whose events name stimuli, with embeddings: pinned, validated, scored by retrieval, refused."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.cli import main
from neuroledger.data import assembly
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.pinning.scan_downloads import recordings_in
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.recording_files import edf

RATE, SHOWN, REPEATED, PEOPLE, FEATURES = 64, 24, 4, 3, 6
SCHEMA = "# yaml-language-server: $schema=../schema/{kind}.json\n"
DATASET = """\
id: Seen
version: 1
title: Images seen by three people
license: CC0-1.0
access_steps: ["`neuroledger pin Seen --from FOLDER`"]
reader:
  name: bids_epochs
  task: [see, look]
  window: {start: 0.0, duration: 1.0}
  preprocessing: {pick: [eeg], units: uV}
  events:
    stimulus: stim_file
    where: {trial_type: ["image*"]}
    coordinates:
      kind: {column: trial_type, pattern: "image/{value}"}
      split: {column: task, values: {see: train, look: test}}
      place: {column: "{task}/{run}/{stim_file}"}
      extra: {column: isteststim, absent: "0"}
  embeddings: {embedding: embedding.nc}
expectations:
  assembly:
    - {check: dims, dims: [presentation, channel, sample]}
    - {check: distinct, column: subject, count: 3}
unavailable: "Not pinned: follow access_steps."
"""
BENCHMARK = """\
id: Seen-image
version: 1
title: Which image was seen
parent: eeg
dataset: Seen
paradigm:
  name: decoding
  target: embedding
  objective: retrieval
  splits: {name: leave_concept_out, by: stimulus_id, folds: 4}
  unseen_classes: true
metric: top1_retrieval
floor: {dummy: dummy}
"""


def table(seed: int = 0) -> xr.DataArray:
    values = np.random.default_rng(seed).standard_normal((SHOWN, FEATURES))
    ids = [f"nsd/{number}.png" for number in range(SHOWN)]
    return xr.DataArray(
        values, dims=("stimulus", "feature"), coords={"stimulus_id": ("stimulus", ids)}
    )


def downloads(root: Path) -> Path:
    """A BIDS folder in which the power of each channel tells one feature of the image that is seen."""
    embeddings = table().values
    root.mkdir()
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": "Seen", "BIDSVersion": "1.8.0"})
    )
    (root / "participants.tsv").write_text(
        "participant_id\n" + "".join(f"sub-{n + 1:02d}\n" for n in range(PEOPLE))
    )
    assembly.write(table(), root / "embedding.nc")
    for person in range(PEOPLE):
        rng = np.random.default_rng(person)
        order = rng.permutation(np.repeat(np.arange(SHOWN), REPEATED))
        seconds = int(1.5 * len(order)) + 4
        values = rng.standard_normal((FEATURES, seconds * RATE)) * 10.0
        rows = ["onset\tduration\ttrial_type\tstim_file"]
        for number, image in enumerate(order):
            at = 1.0 + 1.5 * number
            values[:, int(at * RATE) : int((at + 1.0) * RATE)] *= np.exp(
                embeddings[image] * 0.5
            )[:, None]
            rows.append(f"{at - 0.25}\t0\tfixation\tn/a")
            rows.append(f"{at}\t0.5\timage/{'ab'[image % 2]}\tnsd/{image}.png")
        folder = root / f"sub-{person + 1:02d}" / "eeg"
        name = f"sub-{person + 1:02d}_task-{'look' if person == 2 else 'see'}"
        channels = [f"C{number + 1}" for number in range(FEATURES)]
        edf(folder / f"{name}_eeg.edf", dict(zip(channels, values, strict=True)), RATE)
        (folder / f"{name}_eeg.json").write_text(
            json.dumps({"TaskName": name.rsplit("-", 1)[1], "PowerLineFrequency": 50})
        )
        (folder / f"{name}_events.tsv").write_text("\n".join(rows) + "\n")
        kinds = "".join(f"{channel}\tEEG\tuV\n" for channel in channels)
        (folder / f"{name}_channels.tsv").write_text("name\ttype\tunits\n" + kinds)
    return root


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    root = tmp_path / "place"
    for kind in ("datasets", "benchmarks", "models", "metrics"):
        (root / "specs" / kind).mkdir(parents=True)
    for kind, ids in {
        "models": ("dummy", "covariance_ridge", "shuffled_covariance_ridge"),
        "metrics": ("top1_retrieval",),
    }.items():
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "specs/datasets/Seen.yaml").write_text(
        SCHEMA.format(kind="dataset") + DATASET
    )
    (root / "specs/benchmarks/Seen-image.yaml").write_text(
        SCHEMA.format(kind="benchmark") + BENCHMARK
    )
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return downloads(tmp_path / "ds9")


@pytest.mark.slow
def test_image_retrieval_from_a_bids_folder_works_through_the_command_line(
    place: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    assert main(["pin", "Seen", "--from", str(folder)]) == 0
    assert "of 3 subjects" in capsys.readouterr().out
    spec = open_catalog(place).dataset("Seen")
    assert "embedding.nc" in spec.files
    assert "sub-01/eeg/sub-01_task-see_events.tsv" in spec.files
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate"]) == 0
    models = ["covariance_ridge", "shuffled_covariance_ridge", "dummy"]
    assert main(["run", *models, "--benchmark", "Seen-image"]) == 0
    records = place / "results" / "records" / "Seen-image"
    raw = {
        path.stem: json.loads(path.read_text())["score"]["raw"]
        for path in records.glob("*.json")
    }
    # Six images are tested at a time.
    assert raw["covariance_ridge"] > 0.8
    assert 0 <= raw["shuffled_covariance_ridge"] < 0.45
    again = pin(open_catalog(place), "Seen", Downloads(folder=folder))
    assert again.before == again.after


def test_windows_contain_the_events_of_the_table(place: Path, folder: Path) -> None:
    from neuroledger.data.load import load_dataset

    pin(open_catalog(place), "Seen", Downloads(folder=folder))
    data = load_dataset(open_catalog(place), "Seen")
    assert data.assembly is not None
    assert data.assembly.sizes == {
        "presentation": PEOPLE * SHOWN * REPEATED,
        "channel": FEATURES,
        "sample": RATE,
    }
    stimuli = data.assembly["stimulus_id"].values.astype(str)
    odd = np.array(
        [int(name.removeprefix("nsd/").removesuffix(".png")) % 2 for name in stimuli]
    )
    assert (data.assembly["kind"].values.astype(str) == np.array(["a", "b"])[odd]).all()
    split = data.assembly["split"].values.astype(str)
    assert (
        split
        == np.where(
            data.assembly["subject"].values.astype(str) == "03", "test", "train"
        )
    ).all()
    assert data.assembly["place"].values.astype(str)[-1] == f"look/1/{stimuli[-1]}"
    assert set(data.assembly["extra"].values.astype(str)) == {"0"}
    np.testing.assert_allclose(data.assembly["onset"].values[:3], [1.0, 2.5, 4.0])
    assert data.extras["embedding"].shape == (SHOWN, FEATURES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.isel(stimulus=slice(1, None)),
            r"1 of 24 stimuli of the recordings have no embedding, first nsd/0\.png",
        ),
        (
            lambda t: xr.concat([t, t[:1]], dim="stimulus"),
            r"1 stimuli have several rows, first nsd/0\.png",
        ),
        (
            lambda t: t.where(t["stimulus_id"] != "nsd/3.png"),
            r"missing or infinite, first nsd/3\.png",
        ),
        (lambda t: t.drop_vars("stimulus_id"), "is not a table"),
    ],
)
def test_unsuitable_embeddings_are_refused_and_nothing_is_written(
    place, folder, change, words
) -> None:  # type: ignore[no-untyped-def]
    assembly.write(change(table()), folder / "embedding.nc")
    with pytest.raises(DataError, match=words):
        pin(open_catalog(place), "Seen", Downloads(folder=folder))
    assert "unavailable" in (place / "specs/datasets/Seen.yaml").read_text()


def test_a_missing_embedding_table_is_reported_with_the_command_that_creates_it(
    place: Path, folder: Path
) -> None:
    (folder / "embedding.nc").unlink()
    with pytest.raises(
        RequestError, match=r"lacks embedding\.nc.*neuroledger embed MODEL"
    ):
        pin(open_catalog(place), "Seen", Downloads(folder=folder))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("stimulus: stim_file", "stimulus: picture", "no column picture; it has"),
        ('["image*"]', '["face*"]', "no event for a window: none of 192"),
        (
            'where: {trial_type: ["image*"]}',
            "where: {}",
            r"event 1: stim_file is empty",
        ),
        ('pattern: "image/{value}"', 'pattern: "photo/{value}"', "does not match"),
        ("duration: 1.0}", "duration: 1.0, stride: 1.0}", r"remove `window\.stride`"),
        (
            "{embedding: embedding.nc}",
            "{clip: embedding.nc}",
            "retrieves 'embedding', but Seen has no such",
        ),
    ],
)
def test_errors_name_what_the_events_lack(
    place: Path, folder: Path, old: str, new: str, words: str
) -> None:
    path = place / "specs/datasets/Seen.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises((DataError, RequestError), match=words):
        pin(open_catalog(place), "Seen", Downloads(folder=folder))


def test_two_images_with_the_same_onset_are_refused(place: Path, folder: Path) -> None:
    path = folder / "sub-02/eeg/sub-02_task-see_events.tsv"
    path.write_text(path.read_text() + "1.0\t0.5\timage/a\tnsd/0.png\n")
    with pytest.raises(DataError, match="two selected events begin at 1 s"):
        pin(open_catalog(place), "Seen", Downloads(folder=folder))


def test_all_files_of_a_recording_folder_are_pinned(tmp_path: Path) -> None:
    name = "sub-1/meg/sub-1_task-main_meg.ds"
    names = [
        f"{name}/a.meg4",
        f"{name}/a.res4",
        f"{name}/hz.ds/hz.meg4",
        "sub-1/meg/sub-1_task-main_events.tsv",
    ]
    recordings = recordings_in(tmp_path, names, task="main")
    assert [item.file for item in recordings] == [name]
    assert recordings[0].files == tuple(names[:3])
    assert recordings[0].subject == "1"


def test_embeddings_are_computed_by_a_model_of_the_catalogue(
    place: Path,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from PIL import Image

    shutil.copy(repository / "specs/models/pixels16.yaml", place / "specs/models")
    images = tmp_path / "images"
    for number in range(3):
        path = images / "nsd" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(
            0, 255, (32, 32, 3), dtype=np.uint8
        )
        Image.fromarray(pixels).save(path)
    monkeypatch.chdir(place)
    said = ["embed", "pixels16", "--images", str(images), "--layer", "pixels", "--out"]
    assert main([*said, str(tmp_path / "e.nc")]) == 0
    assert "3 stimuli" in capsys.readouterr().out
    table = assembly.read(tmp_path / "e.nc")
    assert table["stimulus_id"].values.tolist() == [
        "nsd/0.png",
        "nsd/1.png",
        "nsd/2.png",
    ]
    assert table.dims == ("stimulus", "feature")
    assert len(np.unique(table.values, axis=0)) == 3
    assert main([*said, str(tmp_path / "n.nc"), "--names"]) == 0
    assert assembly.read(tmp_path / "n.nc")["stimulus_id"].values.tolist() == [
        "0.png",
        "1.png",
        "2.png",
    ]
    assert main([*said, str(tmp_path / "m.nc"), "--mean", "9"]) != 0
    assert "axes to average are among 1 to" in capsys.readouterr().err
    assert (
        main(
            [
                "embed",
                "pixels16",
                "--images",
                str(place / "specs"),
                "--out",
                str(tmp_path / "x.nc"),
            ]
        )
        != 0
    )
    assert "contains no images" in capsys.readouterr().err


def test_a_data_set_lists_the_images_of_its_embeddings(
    place: Path,
    folder: Path,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from PIL import Image

    shutil.copy(repository / "specs/models/pixels16.yaml", place / "specs/models")
    images = tmp_path / "images"
    (images / "nsd").mkdir(parents=True)
    for number in range(SHOWN + 3):  # three are never shown
        pixels = np.random.default_rng(number).integers(
            0, 255, (32, 32, 3), dtype=np.uint8
        )
        Image.fromarray(pixels).save(images / "nsd" / f"{number}.png")
    (folder / "embedding.nc").unlink()
    monkeypatch.chdir(place)
    made = folder / "embedding.nc"
    said = [
        "embed",
        "pixels16",
        "--dataset",
        "Seen",
        "--from",
        str(folder),
        "--layer",
        "pixels",
    ]
    assert main([*said, "--out", str(made)]) != 0
    assert (
        "give its folder with --images, --sounds or --videos" in capsys.readouterr().err
    )
    assert main([*said, "--images", str(images), "--out", str(made)]) == 0
    assert "24 stimuli" in capsys.readouterr().out
    assert main(["pin", "Seen", "--from", str(folder)]) == 0
    again = tmp_path / "again.nc"
    assert (
        main(
            [
                *said[:4],
                "--layer",
                "pixels",
                "--images",
                str(images),
                "--out",
                str(again),
            ]
        )
        == 0
    )
    assert assembly.read(again).identical(assembly.read(made))
    (images / "nsd" / "3.png").unlink()
    assert main([*said, "--images", str(images), "--out", str(again)]) != 0
    assert "lacks, first nsd/3.png" in capsys.readouterr().err


def test_layer_axes_are_averaged_and_tables_select_images(
    place: Path, tmp_path: Path
) -> None:
    from PIL import Image

    from neuroledger.engine.session import Session
    from neuroledger.families.signals.embeddings.embed import embed
    from neuroledger.families.signals.embeddings.stimulus_source import (
        images_in,
        listed,
    )
    from neuroledger.models.model import LayeredModel

    def maps(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: object
    ) -> dict[str, Any]:
        seen = [
            np.asarray(Image.open(io.BytesIO(content)), dtype=float)
            for content in stimuli.read(ids)
        ]
        return {layer: np.moveaxis(np.stack(seen), 3, 1) for layer in layers}

    (tmp_path / "images").mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(
            0, 255, (64, 64, 3), dtype=np.uint8
        )
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    session, stimuli = Session(open_catalog(place)), images_in(tmp_path / "images")
    session.models["net"] = LayeredModel(
        id="net",
        takes=frozenset({"images"}),
        layers=("maps",),
        extract=maps,
        regions={},
    )
    whole, mean = (
        embed(session, "net", stimuli),
        embed(session, "net", stimuli, mean=[2, 3]),
    )
    assert mean.shape == (2, 3)
    np.testing.assert_allclose(
        whole.values.reshape(2, 3, -1).mean(axis=2), mean.values, rtol=1e-4, atol=1e-6
    )
    assert {name: mean.attrs[name] for name in ("model", "layer", "mean")} == {
        "model": "net",
        "layer": "maps",
        "mean": "2,3",
    }
    assert mean.attrs["stimuli_sha256"] == stimuli.content_sha256
    (tmp_path / "ids.csv").write_text("stimulus_id,filename\ntrain/1,1.png\n")
    named = listed(tmp_path / "ids.csv", tmp_path / "images")
    one = embed(session, "net", named, mean=[2, 3])
    assert one["stimulus_id"].values.tolist() == ["train/1"]
    np.testing.assert_allclose(one.values[0], mean.values[1], rtol=1e-4, atol=1e-6)
    (tmp_path / "ids.csv").write_text("stimulus_id,filename\ntrain/1,9.png\n")
    with pytest.raises(
        RequestError, match=r"names 1 files that .* lacks, first 9\.png"
    ):
        embed(session, "net", listed(tmp_path / "ids.csv", tmp_path / "images"))
