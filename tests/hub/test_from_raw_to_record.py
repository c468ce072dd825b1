"""From downloads in the published layout to a scored record by commands alone, embeddings among them; `make test-hub`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from neuroledger.cli import main
from neuroledger.data import assembly
from tests.engine.lab import build
from tests.families.signals.zuco_files import LABELS, RATE, eeg, gaze, results
from tests.hub.tiny_networks import GPT2, film, published_gpt2, spacy_wheel, wave

pytestmark = pytest.mark.hub

TASK, PEOPLE, SENTENCES = "task1-SR", ("ZAB", "ZJM"), 40
SCHEMA = "# yaml-language-server: $schema=../schema/{kind}.json\n"


def write(root: Path, kind: str, spec: dict[str, Any]) -> None:
    path = root / "specs" / f"{kind}s" / f"{spec['id']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        SCHEMA.format(kind=kind)
        + yaml.safe_dump({"version": 1, "title": "A thing", **spec})
    )


def pinned(root: Path, id: str, files: dict[str, Path]) -> dict[str, Any]:
    """Pins of files, which are put where fetching would put them."""
    import hashlib

    pins = {}
    for name, path in files.items():
        place = root / "data/models" / id / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        content = path.read_bytes()
        pins[name] = {"url": f"https://example.org/{name}", "size": len(content)}
        pins[name]["sha256"] = hashlib.sha256(content).hexdigest()
    return pins


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    root = tmp_path / "place"
    build(root, repository)
    shutil.copy(repository / "specs/models/dummy.yaml", root / "specs/models")
    ridge = {
        "name": "sklearn_decoder",
        "path": "sklearn.linear_model.Ridge",
        "parameters": {"alpha": 1.0},
    }
    write(
        root,
        "model",
        {
            "id": "levels",
            "builder": ridge | {"objective": "retrieval"},
            "benchmarks": ["decoding"],
        },
    )
    return root


def sentences() -> list[str]:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefgh"))
    return [
        " ".join("".join(rng.choice(letters, 4)) for _ in range(3))
        for _ in range(SENTENCES)
    ]


def recordings(root: Path, texts: list[str], module: Any, tokenizer: Path) -> None:
    """Channels whose level, while a sentence is read, tells one feature of its embedding each."""
    import torch
    from tokenizers import Tokenizer

    cut = Tokenizer.from_file(str(tokenizer))
    with torch.no_grad():
        states = [
            module(torch.tensor([cut.encode(text).ids]), output_hidden_states=True)
            .hidden_states[2][0]
            .mean(0)
            for text in texts
        ]
    features = torch.stack(states).numpy()
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    read = [(1.0 + 4 * number, 3.2, False) for number in range(SENTENCES)]
    for number, who in enumerate(PEOPLE):
        values = (
            np.random.default_rng(number).standard_normal(
                (len(LABELS), (4 * SENTENCES + 3) * RATE)
            )
            * 10
        )
        for (onset, duration, _), row in zip(read, features, strict=True):
            values[: len(row), int(onset * RATE) : int((onset + duration) * RATE)] += (
                30 * row[:, None]
            )
        eeg(root, TASK, who, 1, values, read)
        gaze(root, TASK, who, 1, read)
        results(root, TASK, who, texts)


def test_sentences_are_embedded_pinned_validated_and_retrieved_by_commands(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, module = published_gpt2(tmp_path / "published")
    builder = {
        "name": "text_embedder",
        "architecture": "GPT2Model",
        "config": GPT2,
        "states": [2],
        "longest": 32,
    }
    write(
        place,
        "model",
        {"id": "tiny", "builder": builder, "weights": pinned(place, "tiny", files)},
    )
    reader = {
        "name": "read_sentences",
        "tasks": {TASK: 1},
        "window": {"start": 0.0, "duration": 3.0, "stride": 3.0},
        "preprocessing": {"units": "uV", "resample": 10.0},
        "embeddings": {"embedding": "embedding.nc"},
    }
    write(
        place,
        "dataset",
        {
            "id": "Read",
            "license": "CC0-1.0",
            "access_steps": ["pin"],
            "reader": reader,
            "unavailable": "Not pinned.",
            "expectations": {
                "assembly": [{"check": "distinct", "column": "subject", "count": 2}]
            },
        },
    )
    splits = {"name": "leave_concept_out", "by": "stimulus_id", "folds": 4}
    paradigm = {
        "name": "decoding",
        "target": "embedding",
        "objective": "retrieval",
        "splits": splits,
    }
    write(
        place,
        "benchmark",
        {
            "id": "Read-sentence",
            "parent": "eeg",
            "dataset": "Read",
            "paradigm": paradigm | {"unseen_classes": True},
            "metric": "top1_retrieval",
            "floor": {"dummy": "dummy"},
        },
    )
    folder = tmp_path / "downloads"
    recordings(folder, sentences(), module, files["tokenizer.json"])
    monkeypatch.chdir(place)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    made = folder / "embedding.nc"
    assert (
        main(
            [
                "embed",
                "tiny",
                "--dataset",
                "Read",
                "--from",
                str(folder),
                "--out",
                str(made),
            ]
        )
        == 0
    )
    assert (
        f"wrote {made}: {SENTENCES} stimuli, 16 features of 2"
        in capsys.readouterr().out
    )
    told = json.loads(assembly.read(made).attrs["embedder"])
    assert told["states"] == [2] and told["tokens"] == "mean"
    assert (
        told["weights"]["model.safetensors"]
        == pinned(place, "tiny", files)["model.safetensors"]["sha256"]
    )
    assert set(told["packages"]) == {"torch", "transformers", "tokenizers"}
    assert main(["pin", "Read", "--from", str(folder)]) == 0
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate", "Read"]) == 0
    assert main(["run", "levels", "dummy", "--benchmark", "Read-sentence"]) == 0
    records = place / "results/records/Read-sentence"
    raw = {
        path.stem: json.loads(path.read_text())["score"]["raw"]
        for path in records.glob("*.json")
    }
    assert raw["levels"] > 0.8  # of ten sentences that were never read before
    capsys.readouterr()
    assert main(["score", "tiny", "Read-sentence"]) != 0
    said = capsys.readouterr().err
    assert (
        "'tiny' cannot be scored on 'Read-sentence': it takes text and gives embeddings"
        in said
    )


def test_words_sounds_and_films_of_a_table_are_embedded_by_the_same_command(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tests.hub.test_embedders import FILM, SOUND
    from tests.hub.tiny_networks import VJEPA, network, published_wav2vec, save

    networks = {
        "sounds": (
            {"name": "sound_embedder", **SOUND},
            published_wav2vec(tmp_path / "s")[0],
        ),
        "films": (
            {"name": "film_embedder", **FILM},
            save(tmp_path / "f", network("VJEPA2Model", VJEPA).state_dict()),
        ),
        "words": (
            {"name": "word_vectors"},
            spacy_wheel(tmp_path / "w" / "v.whl", {"cat": np.arange(1.0, 5.0)}),
        ),
    }
    for id, (builder, files) in networks.items():
        write(
            place,
            "model",
            {"id": id, "builder": builder, "weights": pinned(place, id, files)},
        )
    wave(tmp_path / "files/a.wav", 2.0)
    film(tmp_path / "files/b.mkv", [10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    (tmp_path / "sounds.csv").write_text(
        "stimulus_id,filename,start,duration\nx,a.wav,0,1\ny,a.wav,1,1\n"
    )
    (tmp_path / "films.csv").write_text("stimulus_id,filename\nz,b.mkv\n")
    (tmp_path / "words.csv").write_text("stimulus_id,text\n1,cat\n2,null\n")
    monkeypatch.chdir(place)
    where = {
        "sounds": ["--sounds", str(tmp_path / "files")],
        "films": ["--videos", str(tmp_path / "files")],
        "words": [],
    }
    sizes = {"sounds": (2, 64), "films": (1, 16), "words": (2, 4)}
    monkeypatch.setattr("neuroledger.cli.bridges.PROGRESS_SECONDS", 0.0)
    for id in networks:
        out = tmp_path / f"{id}.nc"
        told = [
            "embed",
            id,
            "--table",
            str(tmp_path / f"{id}.csv"),
            *where[id],
            "--out",
            str(out),
        ]
        assert main(told) == 0
        table = assembly.read(out)
        assert table.shape == sizes[id]
        assert main([*told[:-1], str(tmp_path / "again.nc")]) == 0
        np.testing.assert_array_equal(
            assembly.read(tmp_path / "again.nc").values, table.values
        )
    said = capsys.readouterr()
    assert "1 texts have no vector and are zeros, first 'null'" in said.out
    assert said.err.splitlines()[:4] == [
        "2 of 2 stimuli",
        "2 of 2 stimuli",
        "1 of 1 stimuli",
        "1 of 1 stimuli",
    ]
    assert (
        main(
            [
                "embed",
                "words",
                "--table",
                str(tmp_path / "films.csv"),
                "--out",
                str(tmp_path / "x.nc"),
            ]
        )
        != 0
    )
    assert (
        "has no column 'text', which a model that takes text needs"
        in capsys.readouterr().err
    )
