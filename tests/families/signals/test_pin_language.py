"""Language that is heard or read, as downloaded: pinned, validated and scored by commands, in the published layouts.

The specs are the repository's own, but for how many people there are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

from neuroledger.cli import main
from neuroledger.data import assembly
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.families.signals.embeddings.stimulus_source import source_of_dataset
from neuroledger.families.signals.language.word_triggers import cleaned
from neuroledger.spec.catalog import open_catalog
from tests.families.signals import alice_files, word_files, zuco_files
from tests.families.signals.published_places import unpinned

LATENT = 3
MODELS = ("dummy", "covariance_ridge", "shuffled_covariance_ridge")


@pytest.fixture
def place(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the metrics and decoders that retrieval needs."""
    root = tmp_path / "place"
    for kind in ("datasets", "benchmarks", "models", "metrics"):
        (root / "specs" / kind).mkdir(parents=True)
    for kind, ids in {"models": MODELS, "metrics": ("top5_retrieval",)}.items():
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    for name in ("specs/references.bib", "params.yaml"):
        shutil.copy(repository / name, root / name)
    (root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(root)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    return root


def with_people(
    place: Path, repository: Path, dataset: str, benchmark: str, people: int
) -> None:
    """The two specs, with another number of people."""
    shutil.copy(
        repository / "specs/benchmarks" / f"{benchmark}.yaml",
        place / "specs/benchmarks",
    )
    text = unpinned(repository, dataset)
    counts = [line for line in text.splitlines() if "column: subject" in line]
    assert len(counts) == 1
    text = text.replace(
        counts[0], f"    - {{check: distinct, column: subject, count: {people}}}"
    )
    (place / "specs/datasets" / f"{dataset}.yaml").write_text(text, encoding="utf-8")


def latent(stimuli: Sequence[str]) -> dict[str, np.ndarray]:
    """Few numbers for each stimulus."""
    rng = np.random.default_rng(11)
    return {stimulus: rng.standard_normal(LATENT) for stimulus in sorted(set(stimuli))}


def embed(path: Path, of: dict[str, np.ndarray], width: int) -> None:
    """A table of embeddings of the published width that the few numbers make."""
    mixed = np.stack(list(of.values())) @ np.random.default_rng(12).standard_normal(
        (LATENT, width)
    )
    coords = {"stimulus_id": ("stimulus", list(of))}
    assembly.write(
        xr.DataArray(
            mixed.astype(np.float32), dims=("stimulus", "feature"), coords=coords
        ),
        path,
    )


def planted(
    values: np.ndarray, at: int, samples: int, numbers: np.ndarray, strength: float
) -> None:
    """The power of the channels, from sample `at` on, tells the numbers."""
    power = np.exp(strength * np.resize(numbers, len(values)))
    values[:, at : at + samples] *= power[:, None]


def listed(place: Path, dataset: str, folder: Path) -> list[str]:
    """What is to be embedded, as `neuroledger embed --dataset` is told it, before anything is pinned."""
    return sorted(
        source_of_dataset(open_catalog(place), dataset, folder).table["stimulus_id"]
    )


def scored(place: Path, dataset: str, benchmark: str, folder: Path) -> dict[str, float]:
    """Raw scores of the models after pin, check, validate and run."""
    assert main(["pin", dataset, "--from", str(folder)]) == 0
    spec = yaml.safe_load(
        (place / "specs/datasets" / f"{dataset}.yaml").read_text(encoding="utf-8")
    )
    assert "unavailable" not in spec
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate", dataset]) == 0
    assert main(["run", "--benchmark", benchmark, *MODELS]) == 0
    records = [
        json.loads(path.read_text())
        for path in (place / "results/records" / benchmark).glob("*.json")
    ]
    assert {record["status"] for record in records} == {"scored"}, records
    return {record["model"]: record["score"]["raw"] for record in records}


PEOPLE = ("S01", "S03")
SEGMENTS = {9: 1001, 10: 41_501}


def alice(folder: Path, *, strength: float) -> list[str]:
    """Slow words, so that what is planted at one is not planted at the next; at the border of the parts, fast ones."""
    words = [f"word{number}" for number in range(24)]
    said = alice_files.story(
        [(60 + n, 9, words[6 * n : 6 * n + 6]) for n in range(4)], every=3.2
    )
    late = alice_files.story(
        [(67, 10, words[:4]), (68, 10, words[4:14]), (69, 10, words[14:])], every=3.2
    )
    late = [
        one._replace(order=100 + one.order, onset=round(one.onset - 2.0 * (n > 3), 3))
        for n, one in enumerate(late)
    ]
    said += late
    folder.mkdir()
    (folder / "AliceChapterOne-EEG.csv").write_text(alice_files.table(said))
    named = {one.order: f"segment{one.segment:02d}/word{one.order:04d}" for one in said}
    of = latent(list(named.values()))
    embed(folder / "embedding.nc", of, 4096)
    heard = {who: said if who != "S03" else said[1:] for who in PEOPLE}
    alice_files.archive(
        folder / "proc.zip",
        {who: alice_files.trials(some, SEGMENTS) for who, some in heard.items()},
    )
    for seed, who in enumerate((*PEOPLE, "S02")):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal((60, 170 * alice_files.RATE)) * 10.0
        for one in said:
            at = SEGMENTS[one.segment] + int(one.onset * alice_files.RATE)
            planted(values, at, 1100, of[named[one.order]], strength)
        alice_files.recording(folder, who, values, SEGMENTS)
    return sorted(of)


@pytest.mark.slow
def test_story_words_are_retrieved_from_published_layouts(
    place: Path, tmp_path: Path, repository: Path
) -> None:
    dataset, benchmark = "Brennan2019Hierarchical", "neuralbench.eeg.speech"
    with_people(place, repository, dataset, benchmark, len(PEOPLE))
    shown = alice(tmp_path / "alice", strength=0.6)
    assert listed(place, dataset, tmp_path / "alice") == shown
    raw = scored(place, dataset, benchmark, tmp_path / "alice")
    spec = open_catalog(place).dataset(dataset)
    assert set(spec.files) == {
        "AliceChapterOne-EEG.csv",
        "proc.zip",
        "embedding.nc",
        *(f"{who}.{end}" for who in PEOPLE for end in ("vhdr", "vmrk", "eeg")),
    }
    again = pin(
        open_catalog(place), dataset, Downloads(folder=tmp_path / "alice", check=False)
    )
    assert again.before == again.after and not again.placed
    data = load_dataset(open_catalog(place), dataset)
    assert data.assembly is not None
    assert data.assembly.sizes == {
        "presentation": 2 * 48 - 1,
        "channel": 60,
        "sample": 360,
    }
    assert data.extras["embedding"].shape == (48, 4096)
    # Twenty words are tested; five of them are a quarter.
    assert raw["covariance_ridge"] > 0.6
    assert raw["shuffled_covariance_ridge"] < 0.45 and raw["dummy"] < 0.45


@pytest.mark.slow
def test_a_story_without_planted_responses_is_decoded_at_chance(
    place: Path, tmp_path: Path, repository: Path
) -> None:
    dataset, benchmark = "Brennan2019Hierarchical", "neuralbench.eeg.speech"
    with_people(place, repository, dataset, benchmark, len(PEOPLE))
    alice(tmp_path / "alice", strength=0.0)
    raw = scored(place, dataset, benchmark, tmp_path / "alice")
    assert abs(raw["covariance_ridge"] - 0.25) < 0.2


ZUCO = ("ZAB", "ZPH")
BLOCKS = {"task1-SR": 8, "task2-NR": 6, "task3-TSR": 9}


def zuco(folder: Path, *, strength: float) -> list[str]:
    """Two people, three tasks, all blocks, three sentences in each; some are read in two tasks."""
    texts = [
        f"subject{number} met object{number + 100} in place{number + 200}"
        for number in range(60)
    ]
    of = latent(texts)
    folder.mkdir()
    embed(folder / "embedding.nc", of, 768)
    for seed, who in enumerate(ZUCO):
        rng = np.random.default_rng(seed)
        at = 0
        for task, blocks in BLOCKS.items():
            read: list[str] = []
            for block in range(1, blocks + 1):
                mine = [texts[(at + n) % len(texts)] for n in range(3)]
                at += 3
                shown = [(0.5, 3.4, block == 2), (4.0, 3.0, False), (7.5, 2.5, False)]
                values = rng.standard_normal((128, 11 * zuco_files.RATE)) * 10.0
                for (onset, seconds, _), text in zip(shown, mine, strict=True):
                    start = int(onset * zuco_files.RATE)
                    planted(
                        values,
                        start,
                        int(seconds * zuco_files.RATE),
                        of[text],
                        strength,
                    )
                run = "SNR" if task == "task1-SR" and who == "ZPH" else None
                zuco_files.eeg(folder, task, who, block, values, shown, run=run)
                zuco_files.gaze(folder, task, who, block, shown)
                read += mine
            # As in the published folder, there are files of people whose task is left out.
            zuco_files.results(folder, task, who, read)
    return sorted(of)


@pytest.mark.slow
def test_sentences_are_retrieved_from_published_layouts(
    place: Path, tmp_path: Path, repository: Path
) -> None:
    dataset, benchmark = "Hollenstein2018Zuco", "neuralbench.eeg.sentence"
    with_people(place, repository, dataset, benchmark, len(ZUCO))
    shown = zuco(tmp_path / "zuco", strength=1.0)
    assert listed(place, dataset, tmp_path / "zuco") == shown
    raw = scored(place, dataset, benchmark, tmp_path / "zuco")
    spec = open_catalog(place).dataset(dataset)
    # One person in three tasks, the other in the first only; two files a block, a list a task, the embeddings.
    assert len(spec.files) == 2 * (8 + 6 + 9) + 2 * 8 + 3 + 1 + 1
    assert "task1-_SR/Raw_data/ZPH/ZPH_SNR1_EEG.mat" in spec.files
    # Twelve sentences are tested, five of them are 42 %.
    assert raw["covariance_ridge"] > 0.75
    assert raw["covariance_ridge"] > raw["shuffled_covariance_ridge"] + 0.1


READERS = (
    ("BIRM", 1),
    ("BIRM", 9),
    ("BIRM", 19),
    ("BRIS", 1),
    ("EDIN", 2),
    ("KENT", 3),
    ("OXFO", 4),
    ("YORK", 5),
)
EVERY = 1.4


def laboratories(folder: Path, *, strength: float) -> list[str]:
    """Eight people in six laboratories, the files of each amplifier; the power tells the word of the moment."""
    items = range(1, 61)
    word_files.stimuli(folder, items, word_files.slow)
    trials = [
        word_files.Trial(
            "control", item, "correct" if item % 2 else "incorrect", 6.0 + 12.5 * number
        )
        for number, item in enumerate(items)
    ]
    every = [
        *(
            word
            for item in items
            for words in word_files.slow(item).values()
            for word in words
        ),
        *(
            word
            for item in items
            for words in word_files.prediction(item).values()
            for word in words
        ),
    ]
    of = latent([cleaned(word) for word in every if cleaned(word)])
    embed(folder / "embedding.nc", of, 300)
    for seed, (laboratory, subject) in enumerate(READERS):
        rng = np.random.default_rng(seed)
        tasks = (
            {"main": trials[:30], "control": trials[30:]}
            if laboratory == "BRIS"
            else {"": trials}
        )
        for task, mine in tasks.items():
            samples = round((mine[-1].at + 14.0) * word_files.RATE)
            values = rng.standard_normal((len(word_files.SCALP), samples)) * 10.0
            for trial in mine:
                for position, word in enumerate(
                    word_files.text(*trial[:3], word_files.slow)
                ):
                    if cleaned(word):
                        at = round((trial.at + EVERY * position) * word_files.RATE)
                        planted(
                            values, at, 2 * word_files.RATE, of[cleaned(word)], strength
                        )
            sent = word_files.triggers(mine, EVERY, word_files.slow)
            word_files.record(folder, laboratory, subject, values, sent, task)
    heads = [f"birm{n:02d}.{part}" for n in (1, 9) for part in ("vhdr", "vmrk")]
    extra = [f"birm19.{part}" for part in ("vhdr", "vmrk", "eeg")]
    word_files.packed(
        folder,
        "BIRM",
        {"VHDR+VMRK.zip": ("VHDR+VMRK/", heads), "Extra.zip": ("Extra/", extra)},
    )
    parts = {"P1_to_P13_vmrk_vhdr.zip": ("", ["YORK5.vmrk", "YORK5.vhdr"])}
    parts |= {
        f"{name}_vmrk_vhdr.zip": ("", []) for name in ("P14_to_P38", "P39_to_P41")
    }
    word_files.packed(folder, "YORK", parts)
    return sorted(of)


@pytest.mark.slow
def test_words_of_six_laboratories_are_retrieved_from_published_layouts(
    place: Path, tmp_path: Path, repository: Path
) -> None:
    dataset, benchmark = "Nieuwland2018Large", "neuralbench.eeg.word"
    with_people(place, repository, dataset, benchmark, len(READERS) - 1)
    shown = laboratories(tmp_path / "osf", strength=0.6)
    assert listed(place, dataset, tmp_path / "osf") == shown
    raw = scored(place, dataset, benchmark, tmp_path / "osf")
    spec = open_catalog(place).dataset(dataset)
    assert "Raw_and_Processed_data/Raw_data/BIRM/VHDR+VMRK.zip" in spec.files
    assert not any(
        "birm09" in name for name in spec.files
    )  # whose triggers are damaged
    data = load_dataset(open_catalog(place), dataset)
    assert data.assembly is not None
    # Of the first ten sequences, questions among them, those without a cloze marker are taken for practice.
    assert data.assembly.sizes == {
        "presentation": 6 * 2 * (60 - 8) + 2 * (60 - 15),
        "channel": 7,
        "sample": 360,
    }
    assert data.extras["embedding"].shape[1] == 300
    # The words of six sentences are tested, twelve; five of them are 42 %.
    assert raw["covariance_ridge"] > 0.8
    assert raw["shuffled_covariance_ridge"] < 0.7
