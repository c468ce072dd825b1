"""Intracranial recordings in a BIDS folder: pinned, validated and scored by commands; types and positions are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.errors import DataError
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.recording_files import edf

RATE, TRIALS, PEOPLE = 100, 40, 2
KINDS = {
    "LA1": "SEEG",
    "LA2": "SEEG",
    "G1": "ECOG",
    "G2": "ECOG",
    "G3": "ECOG",
    "EKG1": "ECG",
}
PLACES = {
    "LA1": (-20, 5, -15),
    "LA2": (-24, 5, -15),
    "G1": (-50, 10, 30),
    "G2": (-50, 20, 30),
    "G3": (-50, 30, 30),
}
SCHEMA = "# yaml-language-server: $schema=../schema/{kind}.json\n"
DATASET = """\
id: Contacts
version: 1
title: Two people with contacts in their brains
license: CC0-1.0
access_steps: ["`neuroledger pin Contacts --from FOLDER`"]
reader:
  name: bids_epochs
  task: reach
  datatype: ieeg
  window: {start: 0.0, duration: 1.0, labels: {left: left, right: right}}
  preprocessing: {pick: [seeg, ecog], notch: [30.0], units: uV}
expectations:
  assembly:
    - {check: dims, dims: [presentation, channel, sample]}
    - {check: values_finite}
    - {check: distinct, column: subject, count: 2}
unavailable: "Not pinned: follow access_steps."
"""
BENCHMARK = """\
id: Contacts-side
version: 1
title: Which side is reached for
parent: ieeg
dataset: Contacts
paradigm: {name: decoding, target: label, objective: classification, splits: {name: blocked, folds: 4}}
metric: balanced_accuracy
floor: {dummy: dummy}
"""


def downloads(root: Path) -> Path:
    """A BIDS folder with depth electrodes and a grid: one side makes the first of each louder."""
    root.mkdir()
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": "Contacts", "BIDSVersion": "1.8.0"})
    )
    (root / "participants.tsv").write_text(
        "participant_id\n" + "".join(f"sub-{n + 1:02d}\n" for n in range(PEOPLE))
    )
    for person in range(PEOPLE):
        rng = np.random.default_rng(person)
        sides = rng.permutation(np.repeat(["left", "right"], TRIALS // 2))
        values = {
            name: rng.standard_normal((2 * TRIALS + 4) * RATE) * 20 for name in KINDS
        }
        rows = ["onset\tduration\ttrial_type"]
        for trial, side in enumerate(sides):
            at = 2.0 + 2 * trial
            rows.append(f"{at}\t1.0\t{side}")
            for name in ("LA1", "G1") if side == "left" else ():
                values[name][int(at * RATE) : int((at + 1) * RATE)] *= 3
        folder = root / f"sub-{person + 1:02d}" / "ieeg"
        stem = folder / f"sub-{person + 1:02d}_task-reach"
        edf(Path(f"{stem}_ieeg.edf"), values, RATE)
        Path(f"{stem}_events.tsv").write_text("\n".join(rows) + "\n")
        said = {
            "TaskName": "reach",
            "PowerLineFrequency": 50,
            "iEEGReference": "LA8",
            "SamplingFrequency": RATE,
        }
        Path(f"{stem}_ieeg.json").write_text(json.dumps(said))
        lines = "".join(
            f"{name}\t{kind}\tuV\tn/a\tn/a\tgood\n" for name, kind in KINDS.items()
        )
        Path(f"{stem}_channels.tsv").write_text(
            "name\ttype\tunits\tlow_cutoff\thigh_cutoff\tstatus\n" + lines
        )
        space = folder / f"sub-{person + 1:02d}_space-MNI152NLin2009bAsym"
        places = "".join(
            f"{name}\t{x}\t{y}\t{z}\t5\n" for name, (x, y, z) in PLACES.items()
        )
        Path(f"{space}_electrodes.tsv").write_text("name\tx\ty\tz\tsize\n" + places)
        system = {
            "iEEGCoordinateSystem": "MNI152NLin2009bAsym",
            "iEEGCoordinateUnits": "mm",
        }
        Path(f"{space}_coordsystem.json").write_text(json.dumps(system))
    return root


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    root = tmp_path / "place"
    wanted = {
        "models": ("dummy", "covariance_logistic"),
        "metrics": ("balanced_accuracy",),
    }
    for kind, ids in {**wanted, "datasets": (), "benchmarks": ()}.items():
        (root / "specs" / kind).mkdir(parents=True)
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    shutil.copy(repository / "specs/references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "specs/datasets/Contacts.yaml").write_text(
        SCHEMA.format(kind="dataset") + DATASET
    )
    (root / "specs/benchmarks/Contacts-side.yaml").write_text(
        SCHEMA.format(kind="benchmark") + BENCHMARK
    )
    return root


def test_contacts_are_pinned_validated_and_scored(place: Path, tmp_path: Path) -> None:
    root = ["--root", str(place)]
    assert (
        main([*root, "pin", "Contacts", "--from", str(downloads(tmp_path / "ds9"))])
        == 0
    )
    names = set(open_catalog(place).dataset("Contacts").files)
    assert "sub-01/ieeg/sub-01_space-MNI152NLin2009bAsym_electrodes.tsv" in names
    assert "sub-02/ieeg/sub-02_space-MNI152NLin2009bAsym_coordsystem.json" in names
    assert main([*root, "validate", "Contacts"]) == 0
    assert (
        main(
            [
                *root,
                "run",
                "--benchmark",
                "Contacts-side",
                "dummy",
                "covariance_logistic",
            ]
        )
        == 0
    )
    found = [
        json.loads(path.read_text())
        for path in (place / "results/records").rglob("*.json")
    ]
    raw = {record["model"]: record["score"]["raw"] for record in found}
    assert raw["covariance_logistic"] > 0.95
    assert raw["dummy"] == pytest.approx(0.5, abs=0.1)
    windows = load_dataset(open_catalog(place), "Contacts").assembly
    assert windows is not None
    assert windows.sizes == {
        "presentation": PEOPLE * TRIALS,
        "channel": 5,
        "sample": RATE,
    }
    assert windows["channel_id"].values.tolist() == list(PLACES)
    assert windows["channel_type"].values.tolist() == [
        "seeg",
        "seeg",
        "ecog",
        "ecog",
        "ecog",
    ]
    found_at = np.stack([windows[axis].values for axis in "xyz"], axis=1)
    np.testing.assert_allclose(found_at, np.array(list(PLACES.values())) / 1000)
    assert windows.attrs["units"] == "uV"
    # The heart's channel was in the recording, and is typed so that it cannot be decoded from by accident.
    assert float(windows.std()) == pytest.approx(
        20 * np.sqrt((3 + 2 * (1 + 9) / 2) / 5), rel=0.1
    )


def test_a_picked_channel_type_must_be_present(place: Path, tmp_path: Path) -> None:
    from neuroledger.data.pin.pin import Downloads, pin

    path = place / "specs/datasets/Contacts.yaml"
    path.write_text(path.read_text().replace("pick: [seeg, ecog]", "pick: [eeg]"))
    with pytest.raises(DataError, match="has no channels of type eeg"):
        pin(
            open_catalog(place),
            "Contacts",
            Downloads(folder=downloads(tmp_path / "ds9")),
        )
