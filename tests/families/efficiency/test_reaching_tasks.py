"""Six sessions of reaching, and spoken digits as spikes: from downloads to records, by commands."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.report.table import leaderboard
from neuroledger.spec import shipped
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.task_ranks import published_table
from tests.families.efficiency.matlab73 import write_reaches, write_trains

SUITE = "NeuroBench.primate_reaching"
SESSIONS = (
    "indy_20160622_01",
    "indy_20160630_01",
    "indy_20170131_02",
    "loco_20170210_03",
    "loco_20170215_02",
    "loco_20170301_05",
)
STEP = 0.004


def reaching(path: Path, *, samples: int = 3000, seed: int = 0) -> Path:
    """A session in which thirty channels fire at rates linear in the velocity 80 ms later, and the others never."""
    rng = np.random.default_rng(seed)
    channels = 96 if path.name.startswith("indy") else 192
    slow = np.exp(-0.5 * (np.arange(-120, 121) / 40) ** 2)
    velocity = np.stack(
        [np.convolve(rng.normal(size=samples + 240), slow, "valid") for _ in range(2)],
        axis=1,
    )
    velocity /= velocity.std(axis=0)
    cursor = np.cumsum(velocity, axis=0) * STEP * 100
    target = np.repeat(rng.normal(size=(samples // 60, 2)), 60, axis=0)
    times = 12.0 + STEP * np.arange(samples)
    ahead = np.roll(velocity, -20, axis=0)
    rates = np.clip(0.3 + ahead @ rng.normal(size=(2, 30)) * 0.1, 0, 1)
    fired = rng.random(rates.shape) < rates
    spikes = [
        [times[fired[:, k]] - 0.002 if k < 30 else np.empty(0), np.empty(0)]
        for k in range(channels)
    ]
    names = [f"{'M1' if k < 96 else 'S1'} {k % 96 + 1:03d}" for k in range(channels)]
    return write_reaches(path, times, cursor, target, spikes, names)


def stated(spec: Path, folder: Path) -> None:
    """Replace the sizes and MD5s of the real files in a spec by those of the stand-ins."""
    text = re.sub(r"size: \d+, md5", "md5", spec.read_text())
    for file in folder.iterdir():
        digest = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        text = re.sub(
            rf'({re.escape(file.name)}", md5: )[0-9a-f]{{32}}', rf"\g<1>{digest}", text
        )
    spec.write_text(text)


@pytest.fixture
def place(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the specs of these tasks, those of all metrics, and nothing else."""
    root = tmp_path / "place"
    source = open_catalog(repository)
    wanted = {
        "datasets": [f"{SUITE}.{name}" for name in SESSIONS]
        + ["SpikingHeidelbergDigits"],
        "benchmarks": [f"{SUITE}.{name}-r2" for name in SESSIONS]
        + ["sc-neurocore.shd-accuracy"],
        "metrics": source.ids("metrics"),
        "models": [
            "constant",
            "linear_readout",
            "perceptron.reaching",
            "spiking.reaching",
            "spiking.spoken",
        ],
        "suites": [SUITE],
    }
    for kind, ids in wanted.items():
        (root / "specs" / kind).mkdir(parents=True)
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    for name in (
        "perceptron.reaching",
        "spiking.reaching",
    ):  # three thousand samples need fewer steps
        spec = root / "specs" / "models" / f"{name}.yaml"
        spec.write_text(
            spec.read_text().replace("steps: 4000", "steps: 60, rate: 0.005")
        )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    (root / "params.yaml").write_text(f"suite: {SUITE}\nseed: 0\ndevice: cpu\n")
    (root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(root)
    # The models with fewer steps stand in for the shipped ones, which nothing else may replace.
    monkeypatch.setattr(shipped, "is_checkout", lambda _: True)
    return root


@pytest.mark.slow
def test_six_sessions_become_one_score_for_each_model(place, tmp_path, capsys):
    folder = tmp_path / "downloads"
    folder.mkdir()
    for seed, name in enumerate(SESSIONS):
        reaching(folder / f"{name}.mat", seed=seed)
    for name in SESSIONS:
        spec = place / "specs" / "datasets" / f"{SUITE}.{name}.yaml"
        stated(spec, folder)
        assert main(["pin", f"{SUITE}.{name}", "--from", str(folder)]) == 0
        assert main(["validate", f"{SUITE}.{name}"]) == 0
        held = open_catalog(place).dataset(f"{SUITE}.{name}")
        assert held.unavailable is None and list(held.files) == [f"{name}.mat"]
        assert (
            held.files[f"{name}.mat"].url
            == f"https://zenodo.org/records/583331/files/{name}.mat"
        )
    assert main(["run", "--suite", SUITE]) == 0
    records = [
        json.loads(path.read_text())
        for path in (place / "results" / "records").rglob("*.json")
    ]
    scores = {
        (r["benchmark"], r["model"]): r["scores"]
        for r in records
        if r["status"] == "scored"
    }
    assert len(scores) == 6 * 4
    r2 = {key: result["r2"]["value"] for key, result in scores.items()}
    for name in SESSIONS:
        benchmark = f"{SUITE}.{name}-r2"
        assert r2[benchmark, "linear_readout"] > 0.6
        assert (
            min(r2[benchmark, "perceptron.reaching"], r2[benchmark, "spiking.reaching"])
            > 0.4
        )
        assert r2[benchmark, "constant"] < 0.1
        costs = scores[benchmark, "perceptron.reaching"]
        assert costs["dense_operations"]["value"] == (
            23136 if name.startswith("indy") else 44640
        )
        assert (
            scores[benchmark, "spiking.reaching"]["activation_sparsity"]["value"] > 0.2
        )
    board = (
        leaderboard(suite=SUITE, catalog=open_catalog(place))
        .to_frame()
        .set_index("model")
    )
    for model in ("linear_readout", "spiking.reaching"):
        means = [
            np.mean([r2[f"{SUITE}.{n}-r2", model] for n in SESSIONS if n[:4] == m])
            for m in ("indy", "loco")
        ]
        np.testing.assert_allclose(
            board.loc[model, ["reaching.indy", "reaching.loco"]].astype(float), means
        )
        assert abs(board.loc[model, "score"] - np.mean(means)) < 1e-9
    capsys.readouterr()


def test_files_that_differ_from_the_published_ones_are_refused(place, tmp_path, capsys):
    folder = tmp_path / "downloads"
    folder.mkdir()
    reaching(folder / "indy_20170131_02.mat", samples=300)
    assert main(["pin", f"{SUITE}.indy_20170131_02", "--from", str(folder)]) != 0
    assert "MD5" in capsys.readouterr().err
    assert main(["pin", f"{SUITE}.loco_20170210_03", "--from", str(folder)]) != 0
    assert "loco_20170210_03.mat" in capsys.readouterr().err


def test_published_figures_of_the_sessions_average_to_those_of_the_leaderboard(
    repository,
):
    catalog = open_catalog(repository)
    table = published_table(SUITE, catalog)
    assert len(table) == 6
    suite = {(f.model, f.metric): f.value for f in catalog.suite(SUITE).published}
    for published, model in (("Baseline ANN", "ANN 2D"), ("Baseline SNN", "SNN2")):
        for monkey in ("indy", "loco"):
            rows = [row[model] for id, row in table.items() if monkey in id]
            assert len(rows) == 3
            assert abs(np.mean(rows) - suite[f"{published}, {monkey}", "r2"]) < 1e-3
    every = {id: row["ANN 3D"] for id, row in table.items()}
    assert abs(np.mean(list(every.values())) - 0.6154) < 1e-4


@pytest.mark.slow
def test_spoken_digits_are_classified_from_their_spikes(place, tmp_path):
    folder = tmp_path / "downloads"
    folder.mkdir()
    keys = [f"digit{k}" for k in range(20)]
    rng = np.random.default_rng(0)
    for name, number, people in (("train", 200, 10), ("test", 60, 12)):
        labels = np.arange(number) % 20
        units = [np.sort(rng.integers(35 * k, 35 * k + 35, 40)) for k in labels]
        times = [np.sort(rng.uniform(0, 1.2, 40)) for _ in labels]
        path = write_trains(
            folder / f"shd_{name}.h5",
            times,
            units,
            labels,
            np.arange(number) % people,
            keys,
        )
        path.with_name(f"{path.name}.gz").write_bytes(
            gzip.compress(path.read_bytes(), 1)
        )
        path.unlink()
    spec = place / "specs" / "datasets" / "SpikingHeidelbergDigits.yaml"
    stated(spec, folder)
    spec.write_text(
        spec.read_text().replace("presentation: 10420", "presentation: 260")
    )
    assert main(["pin", "SpikingHeidelbergDigits", "--from", str(folder)]) == 0
    assert main(["validate", "SpikingHeidelbergDigits"]) == 0
    data = load_dataset(open_catalog(place), "SpikingHeidelbergDigits")
    assert data.assembly is not None and data.assembly.shape == (260, 700, 140)
    result = {}
    for model in ("spiking.spoken", "constant"):
        assert main(["score", model, "sc-neurocore.shd-accuracy"]) == 0
        record = (
            place
            / "results"
            / "records"
            / "sc-neurocore.shd-accuracy"
            / f"{model}.json"
        )
        result[model] = json.loads(record.read_text())["scores"]
    assert result["constant"]["accuracy"]["raw"] == 0.05
    assert result["spiking.spoken"]["accuracy"]["raw"] > 0.5
    assert result["spiking.spoken"]["dense_operations"]["value"] == 140 * (
        700 * 128 + 128 * 20
    )
