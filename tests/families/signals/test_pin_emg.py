"""Downloaded EMG layouts: pinned, validated and scored by commands, on simulated files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.emg_files import (
    pose,
    pose_row,
    write_pose,
    write_table,
    write_typing,
)

POSE, TYPING = "Salter2024Emg2pose", "Sivakumar2024Emg2qwerty"
SPECS = {
    "datasets": (POSE, TYPING),
    "benchmarks": ("neuralbench.emg.pose", "neuralbench.emg.typing"),
    "metrics": ("decoding_mae", "character_error_rate"),
    "models": ("dummy", "covariance_ridge", "shuffled_covariance_ridge"),
}


TYPIST = """
id: small_typist
version: 1
title: The network for typing in small, trained for three epochs
builder:
  name: ctc_decoder
  parameters: {window: 8, hop: 2, features: 8, depths: [4], kernel: 5, time_masks: 1, time_mask: 5, frequency_masks: 0}
  recipe: {name: neuralbench, epochs: 3}
benchmarks: [decoding.sequence]
"""


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    """A repository with the two specs as they are here, their benchmarks, and decoders."""
    root = tmp_path / "place"
    for kind, ids in SPECS.items():
        (root / "specs" / kind).mkdir(parents=True)
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    for id in (
        POSE,
        TYPING,
    ):  # small windows' worth of memory and time; all else as published
        path = root / "specs/datasets" / f"{id}.yaml"
        text = path.read_text(encoding="utf-8")
        kept, rate = (
            ("trajectory: {every: 40, last: 5.0}", 10)
            if id == POSE
            else ("core: 4.0", 40)
        )
        path.write_text(
            text.replace(f"  {kept}\n", f"  {kept}\n  decimate: {rate}\n"),
            encoding="utf-8",
        )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def scored(
    place: Path, id: str, dataset: str, folder: Path, models: list[str]
) -> dict[str, dict]:
    """The records of the models after pin, validate and run."""
    root = ["--root", str(place)]
    assert main([*root, "pin", dataset, "--from", str(folder)]) == 0
    spec = yaml.safe_load(
        (place / "specs/datasets" / f"{dataset}.yaml").read_text(encoding="utf-8")
    )
    assert "unavailable" not in spec and len(spec["files"]) == len(
        list(folder.iterdir())
    )
    assert main([*root, "validate", dataset]) == 0
    assert main([*root, "run", "--benchmark", id, *models]) == 0
    records = [
        json.loads(path.read_text())
        for path in sorted((place / "results").rglob("*.json"))
    ]
    return {
        record["model"]: record for record in records if record.get("benchmark") == id
    }


@pytest.mark.slow
def test_hand_poses_are_pinned_validated_and_scored(
    place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "emg2pose_dataset_mini"
    folder.mkdir()
    users = [f"u{number}" for number in range(1, 10)]
    rows = [
        pose_row(
            f"2022-{user}@1-recording-{n}_left",
            user,
            "train" if user < "u9" else "val",
            "none",
        )
        for user in users
        for n in range(2)
    ]
    rows += [
        pose_row(f"2022-t@1-recording-{n}_left", "t", "test", "user_stage")
        for n in range(4)
    ]
    # People who are trained on too: not what is tested, and the gates would stop it.
    rows += [pose_row("2022-u1@1-recording-9_left", "u1", "test", "stage")]
    write_table(folder, rows)
    for seed, row in enumerate(rows):
        write_pose(folder, row, pose(11.0, seed))
    records = scored(
        place, "neuralbench.emg.pose", POSE, folder, ["dummy", "covariance_ridge"]
    )
    assert {record["status"] for record in records.values()} == {"scored"}
    errors = {model: record["score"]["raw"] for model, record in records.items()}
    assert 0 < errors["covariance_ridge"] < errors["dummy"] / 2
    data = load_dataset(open_catalog(place), POSE)
    assert data.assembly is not None and data.assembly.shape == (44, 16, 1179)
    paths = data.extras["trajectory"]
    assert (
        paths.shape == (44, 20, 250)
        and paths.attrs["sampling_rate"] == 50
        and paths.attrs["units"] == "rad"
    )
    assert (
        paths["stimulus_id"].values.tolist()
        == data.assembly["stimulus_id"].values.tolist()
    )
    assert sorted(set(data.assembly["split"].values.tolist())) == [
        "test",
        "train",
        "val",
    ]


@pytest.mark.slow
def test_typing_is_pinned_validated_and_scored(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "emg2qwerty-data-2021-08"
    folder.mkdir()
    rows = [(f"2020-0{number}-keystrokes", f"{number:04d}") for number in range(1, 7)]
    write_table(folder, [{"user": user, "session": session} for session, user in rows])
    for seed, (session, user) in enumerate(rows):
        keys = [(4.0 + 0.5 * k, key) for k, key in enumerate("the quick brown")]
        write_typing(folder, session, user, keys, seed=seed, stronger=8.0)
    (place / "specs/models/small_typist.yaml").write_text(TYPIST, encoding="utf-8")
    records = scored(
        place, "neuralbench.emg.typing", TYPING, folder, ["dummy", "small_typist"]
    )
    assert records["small_typist"]["status"] == "scored"
    assert (
        records["dummy"]["status"] == "scored"
        and 0.5 < records["dummy"]["score"]["raw"] <= 1
    )
    windows = load_dataset(open_catalog(place), TYPING).assembly
    assert windows is not None and windows.shape == (12, 32, 250)
    assert windows["text"].values.tolist() == ["the quic", "k brown"] * 6
    # The network of the spec needs the published rate; any estimator of one's own can be asked.
    spread = FunctionTransformer(lambda x: x.std(axis=2))
    estimator = make_pipeline(spread, KNeighborsClassifier(n_neighbors=1))
    rule = (
        open_catalog(place)
        .benchmark("neuralbench.emg.typing")
        .paradigm.parameters["splits"]
    )
    score = nl.decode(
        estimator, windows, "text", splits=rule, metric="character_error_rate"
    )
    assert score.value == 0.0 and score.n["windows"] == 4


def test_pin_refuses_a_table_without_a_session_and_writes_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "down"
    folder.mkdir()
    write_table(folder, [{"user": "1", "session": "a"}])
    for name in ("a", "b"):
        write_typing(folder, name, "1", [(5.0, "x")])
    before = (place / "specs/datasets" / f"{TYPING}.yaml").read_bytes()
    assert main(["--root", str(place), "pin", TYPING, "--from", str(folder)]) != 0
    assert "has no line for 1 recordings, first b.hdf5" in capsys.readouterr().err
    assert (place / "specs/datasets" / f"{TYPING}.yaml").read_bytes() == before
    assert not (place / "data").exists()
