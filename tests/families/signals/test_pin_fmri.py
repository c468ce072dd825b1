"""Downloaded fMRI layouts: pinned, validated and scored by commands; a planted effect is found only where it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import pytest
import yaml

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.spec.catalog import open_catalog
from tests.families.signals import scans

SETS: dict[str, tuple[str, Callable[..., Any], int]] = {
    "Chang2019Bold5000": ("neuralbench.fmri.image", scans.bold5000, 4),
    "Hebart2023ThingsBold": (
        "neuralbench.fmri.image.Hebart2023ThingsBold",
        scans.things,
        3,
    ),
    "Allen2022MassiveRaw": ("neuralbench.fmri.image.Allen2022MassiveRaw", scans.nsd, 2),
}
MODELS = ("dummy", "amplitude_ridge_search")
CHANCE = 5 / 20


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    """A repository with the three specs as they are here, but for a coarse mesh, and the stand-ins' volumes and people."""
    root = tmp_path / "place"
    wanted = {
        "datasets": SETS,
        "benchmarks": [benchmark for benchmark, _, _ in SETS.values()],
        "metrics": ["top5_retrieval"],
        "models": MODELS,
    }
    for kind, ids in wanted.items():
        (root / "specs" / kind).mkdir(parents=True)
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    small = {
        "Allen2022MassiveRaw": {"volumes: 225": "volumes: 45", "count: 8": "count: 2"}
    }
    for id in SETS:
        path = root / "specs/datasets" / f"{id}.yaml"
        text = path.read_text(encoding="utf-8")
        for old, new in {
            "mesh: fsaverage5": "mesh: fsaverage3",
            **small.get(id, {}),
        }.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    shutil.copy(repository / "specs/references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def scored(place: Path, id: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The scores of the models after pin, validate and run."""
    root = ["--root", str(place)]
    assert main([*root, "pin", id, "--from", str(folder)]) == 0
    assert main([*root, "validate", id]) == 0
    assert main([*root, "run", "--benchmark", SETS[id][0], *MODELS]) == 0
    found = [
        json.loads(path.read_text())
        for path in (place / "results/records").rglob("*.json")
    ]
    records = {record["model"]: record for record in found}
    assert {record["status"] for record in records.values()} == {"scored"}
    return {model: record["score"] for model, record in records.items()}


@pytest.mark.parametrize("id", SETS)
@pytest.mark.slow
def test_planted_responses_are_decoded_in_published_layouts(
    place: Path, tmp_path: Path, id: str
) -> None:
    _, make, people = SETS[id]
    folder = tmp_path / "downloads"
    make(folder)
    if id == "Chang2019Bold5000":  # a run that was stopped before its end
        path = next(folder.rglob("sub-CSI3_ses-01*run-02*preproc_bold.nii.gz"))
        stopped = nibabel.load(path).slicer[..., :40]
        path.unlink()
        nibabel.save(stopped, path)
    scores = scored(place, id, folder)
    assert scores["amplitude_ridge_search"]["raw"] > 0.8
    assert scores["dummy"]["raw"] < 0.5
    lost = "1 windows that do not lie within their run were left out, of 1 runs"
    assert (lost in scores["dummy"]["notes"]) == (id == "Chang2019Bold5000")
    spec = yaml.safe_load(
        (place / "specs/datasets" / f"{id}.yaml").read_text(encoding="utf-8")
    )
    assert "unavailable" not in spec
    names = set(spec["files"])
    # Only what is read is pinned: no raw series, no confounds, no rest, no region of interest.
    assert not [
        name
        for name in names
        if "confounds" in name or "nsdgeneral" in name or "run14" in name
    ]
    assert not [
        name
        for name in names
        if name.endswith("_bold.nii.gz") and "desc-preproc" not in name
    ]
    windows = load_dataset(open_catalog(place), id).assembly
    assert windows is not None
    assert len(set(windows["subject"].values.astype(str))) == people
    # Pinned once more, nothing changes.
    before = (place / "specs/datasets" / f"{id}.yaml").read_bytes()
    assert main(["--root", str(place), "pin", id, "--from", str(folder)]) == 0
    assert (place / "specs/datasets" / f"{id}.yaml").read_bytes() == before


@pytest.mark.parametrize("id", SETS)
@pytest.mark.slow
def test_data_without_planted_responses_are_decoded_at_chance(
    place: Path, tmp_path: Path, id: str
) -> None:
    folder = tmp_path / "downloads"
    SETS[id][1](folder, strength=0.0)
    assert scored(place, id, folder)["amplitude_ridge_search"]["raw"] < CHANCE + 0.2


def test_pin_refuses_a_run_without_a_mask_and_writes_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "downloads"
    scans.bold5000(folder, people=1, runs=1)
    next(folder.rglob("*ses-02*brain_mask.nii.gz")).unlink()
    path = place / "specs/datasets/Chang2019Bold5000.yaml"
    before = path.read_bytes()
    assert (
        main(["--root", str(place), "pin", "Chang2019Bold5000", "--from", str(folder)])
        != 0
    )
    assert "has no mask: sub-CSI1_ses-02" in capsys.readouterr().err
    assert path.read_bytes() == before and not (place / "data").exists()


def test_pin_refuses_fewer_subjects_than_expected(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "downloads"
    scans.bold5000(folder, people=1, runs=1)
    assert (
        main(["--root", str(place), "pin", "Chang2019Bold5000", "--from", str(folder)])
        != 0
    )
    assert "4" in capsys.readouterr().err
