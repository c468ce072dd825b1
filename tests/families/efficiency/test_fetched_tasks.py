"""Tasks with data to be fetched: stand-ins in the real layouts are pinned, validated and scored by commands.

The specs are the repository's own, but for how much data there is and for checksums of the real files.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from neuroledger.cli import main
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.recorded_files import (
    aedat,
    boxes,
    idx,
    labels,
    record,
    tar_gz,
    tensor,
)


@pytest.fixture
def place(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository with all metrics, in which commands run."""
    root = tmp_path / "place"
    (root / "specs").mkdir(parents=True)
    shutil.copytree(repository / "specs" / "metrics", root / "specs" / "metrics")
    for name in ("specs/references.bib", "params.yaml"):
        shutil.copy(repository / name, root / name)
    (root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(root)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    return root


Scores = dict[tuple[str, str], dict[str, Any]]


def smaller(path: Path, presentations: int | None, people: int | None) -> None:
    """Adapt a spec to less data: other numbers of presentations and subjects, no checksums of the real files."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    spec = yaml.safe_load(rest)
    for stated in (spec.get("downloads") or {}).values():
        stated.clear()
    spec.pop("files", None)
    for check in spec["expectations"]["assembly"]:
        if check["check"] == "shape" and presentations is not None:
            check["sizes"]["presentation"] = presentations
        elif check.get("column") == "subject" and people is not None:
            check["count"] = people
    spec = {"unavailable": "not fetched", "access_steps": ["get them"], **spec}
    path.write_text(
        f"{first}\n{yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)}",
        encoding="utf-8",
    )


def scores(
    place: Path,
    repository: Path,
    folder: Path,
    dataset: str,
    tasks: dict[str, str],
    *,
    presentations: int | None = None,
    people: int | None = None,
) -> Scores:
    """Return scores of each benchmark's model and of the constant model, after pin, check, validate and run."""
    copied = {
        "datasets": [dataset],
        "benchmarks": list(tasks),
        "models": ["constant", *tasks.values()],
    }
    for kind, ids in copied.items():
        (place / "specs" / kind).mkdir()
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", place / "specs" / kind
            )
    smaller(place / "specs" / "datasets" / f"{dataset}.yaml", presentations, people)
    assert main(["pin", dataset, "--from", str(folder)]) == 0
    assert open_catalog(place).dataset(dataset).unavailable is None
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate", dataset]) == 0
    result = {}
    for benchmark, model in tasks.items():
        assert main(["run", model, "constant", "--benchmark", benchmark]) == 0
        for id in (model, "constant"):
            text = (place / "results" / "records" / benchmark / f"{id}.json").read_text(
                encoding="utf-8"
            )
            result[benchmark, id] = json.loads(text)["score"]
    return result


@pytest.mark.slow
def test_digits_in_idx_files(place, repository, tmp_path):
    folder, rng = tmp_path / "mnist", np.random.default_rng(0)
    folder.mkdir()
    shapes = rng.integers(0, 200, (10, 28, 28))
    for part, count in (("train", 300), ("t10k", 100)):
        truth = np.arange(count) % 10
        images = np.clip(shapes[truth] + rng.integers(0, 55, (count, 28, 28)), 0, 255)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(truth))
    task = "sc-neurocore.mnist-accuracy"
    result = scores(
        place,
        repository,
        folder,
        "MNIST",
        {task: "perceptron.fitted"},
        presentations=400,
    )
    assert result[task, "perceptron.fitted"]["value"] > 0.9
    assert result[task, "constant"]["value"] == 0


@pytest.mark.slow
def test_heartbeats_of_forty_eight_records(place, repository, tmp_path):
    folder, rng = tmp_path / "mitdb", np.random.default_rng(1)
    spec = yaml.safe_load(
        (repository / "specs/datasets/MITBIH.beats.yaml").read_text(encoding="utf-8")
    )
    records = [record for part in spec["reader"]["parts"].values() for record in part]
    assert len(records) == len(set(records)) == 48
    total = 0
    for name in records:
        at = np.cumsum(rng.integers(270, 330, 20))
        kinds = np.where(
            np.arange(20) % 4 == 2, "V", np.where(np.arange(20) % 7 == 3, "A", "N")
        )
        values = np.full(at[-1] + 200, 1024)
        for k, kind in zip(at, kinds, strict=True):
            width = 40 if kind == "V" else 8
            values[k - 8 : k] += 300 * np.arange(8) // 8
            values[k : k + width] += 300 * (width - np.arange(width)) // width
            if kind != "N":
                values[k + 60 : k + 90] -= 120
        lead = values.tolist()
        first = "V5" if name in ("102", "104") else "MLII"
        record(
            folder,
            name,
            {first: lead, "V2": [1000] * len(lead)},
            [(int(k), str(s)) for k, s in zip(at, kinds, strict=True)],
        )
        total += len(at) - 1
    task = "sc-neurocore.heartbeat_anomaly-balanced_accuracy"
    result = scores(
        place,
        repository,
        folder,
        "MITBIH.beats",
        {task: "line.fitted"},
        presentations=total,
    )
    assert result[task, "line.fitted"]["value"] > 0.8
    assert result[task, "constant"]["value"] == 0


@pytest.mark.slow
def test_gestures_from_the_archive(place, repository, tmp_path):
    folder, rng = tmp_path / "dvs", np.random.default_rng(2)
    folder.mkdir()
    members, lists = {}, {"train": [], "test": []}
    for number, part in ((1, "train"), (2, "train"), (3, "train"), (24, "test")):
        name, clock, some, rows = (
            f"user{number:02d}_{'led' if number % 2 else 'lab'}",
            10_000,
            [],
            [],
        )
        for kind in (*range(1, 12), 8):
            end = clock + int(rng.integers(600_000, 900_000))
            times = np.sort(rng.integers(clock, end, 300))
            # Each gesture moves in a place of its own, two neighbouring pixels at a time, so that nothing is noise.
            x, y = 10 * kind + rng.integers(0, 6, 300), 60 + rng.integers(0, 6, 300)
            for t, a, b, p in zip(times, x, y, rng.integers(0, 2, 300), strict=True):
                some += [
                    (int(t), int(a), int(b), int(p)),
                    (int(t), int(a) + 1, int(b), int(p)),
                ]
            rows.append((kind, clock, end))
            clock = end + 5000
        members |= {
            f"{name}.aedat": aedat(some),
            f"{name}_labels.csv": labels(rows).encode(),
        }
        lists[part].append(f"{name}.aedat")
    members |= {
        f"trials_to_{part}.txt": "\n".join(names).encode()
        for part, names in lists.items()
    }
    tar_gz(folder / "DvsGesture.tar.gz", members)
    own, other = "NeuroBench.dvs_gesture-accuracy", "sc-neurocore.dvs_gesture-accuracy"
    tasks = {own: "spiking.fitted", other: "perceptron.fitted"}
    result = scores(
        place, repository, folder, "DVSGesture", tasks, presentations=44, people=4
    )
    assert result[own, "constant"]["value"] == result[other, "constant"]["value"] == 0
    assert result[own, "spiking.fitted"]["value"] > 0.3
    assert result[other, "perceptron.fitted"]["value"] > 0.3


@pytest.mark.slow
def test_pre_segmented_gestures(place, repository, tmp_path):
    folder, rng = tmp_path / "cut", np.random.default_rng(4)
    folder.mkdir()
    for part, people in (("Train", (1, 2, 3)), ("Test", (24,))):
        members = {}
        for person in people:
            for kind in range(11):
                times = np.sort(rng.integers(0, 800, 300))
                x, y = 10 * kind + rng.integers(0, 6, 300), 60 + rng.integers(0, 6, 300)
                twice = [
                    np.column_stack([x + step, y, rng.integers(0, 2, 300), times])
                    for step in (0, 1)
                ]
                buffer = io.BytesIO()
                np.save(buffer, np.concatenate(twice).astype(np.float64))
                members[f"ibmGesture{part}/user{person:02d}_lab/{kind}.npy"] = (
                    buffer.getvalue()
                )
        tar_gz(folder / f"ibmGesture{part}.tar.gz", members)
    task = "NeuroBench.dvs_gesture.cut-accuracy"
    tasks = {task: "perceptron.fitted"}
    result = scores(
        place, repository, folder, "DVSGesture.cut", tasks, presentations=44, people=4
    )
    assert result[task, "perceptron.fitted"]["value"] > 0.3
    assert result[task, "constant"]["value"] == 0


@pytest.mark.slow
def test_road_users_in_precomputed_histograms(place, repository, tmp_path):
    folder, rng = tmp_path / "gen4", np.random.default_rng(3)
    sizes = {
        0: (40, 120),
        1: (100, 100),
        2: (240, 120),
    }  # in pixels of the camera, by class
    for part, recordings in (("train", 3), ("val", 1), ("test", 2)):
        (folder / part).mkdir(parents=True)
        for number in range(recordings):
            frames, rows = {}, []
            for k in (40, 80):
                frame = np.zeros((2, 360, 640), np.uint8)
                for kind, (width, height) in sizes.items():
                    x, y = (
                        40 + 400 * kind + int(rng.integers(0, 100)),
                        int(rng.integers(60, 500)),
                    )
                    rows.append(
                        (
                            k * 50_000 + 20_000 + kind,
                            x,
                            y,
                            width,
                            height,
                            kind,
                            10 * k + kind,
                        )
                    )
                    frame[:, y // 2 : (y + height) // 2, x // 2 : (x + width) // 2] = (
                        120
                    )
                frames[k] = frame
            stem = folder / part / f"moorea_2019-06-{number:02d}_{part}_000_0_60000000"
            tensor(stem.with_suffix(".h5"), frames, 100)
            stem.with_name(f"{stem.name}_bbox.npy").write_bytes(boxes(rows))
    task = "NeuroBench.event_detection-coco_map"
    result = scores(
        place,
        repository,
        folder,
        "NeuroBench.event_detection",
        {task: "event_detector.automotive"},
    )
    assert result[task, "event_detector.automotive"]["value"] > 0.3
    assert result[task, "constant"]["value"] == 0


def test_the_real_record_is_scored(place, repository, tmp_path, mirror):
    folder = tmp_path / "100"
    folder.mkdir()
    for name in ("100.hea", "100.dat", "100.atr"):
        shutil.copyfile(mirror / "mitdb_100" / name, folder / name)
    task = "MITBIH.100-balanced_accuracy"
    result = scores(place, repository, folder, "MITBIH.100", {task: "line.fitted"})
    assert result[task, "line.fitted"]["raw"] > 0.9
    assert result[task, "constant"]["raw"] == 0.5
