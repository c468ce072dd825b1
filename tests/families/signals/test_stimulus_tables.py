"""Tables of stimuli and their errors, embeddings by embedders, and weights pinned from a download."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml

from neuroledger.cli import main
from neuroledger.data import assembly
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, IntegrityError, ModelError, RequestError
from neuroledger.families.behavior.models.stored_answers import StoredAnswers
from neuroledger.families.signals.embeddings import film_frames
from neuroledger.families.signals.embeddings.embed import embed, write_embeddings
from neuroledger.families.signals.embeddings.stimulus_source import (
    Source,
    listed,
    source_of_dataset,
)
from neuroledger.families.signals.models import image_embedder
from neuroledger.families.signals.models.film_embedder import moments
from neuroledger.families.signals.models.sound_embedder import stretch, waveform
from neuroledger.families.signals.signals import signals
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell, grouped_mean
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.channels import Sense

TEXTS: dict[str, str] = {
    "stimulus_id,words\na,b\n": r"has no column 'text', which a model that takes text needs; it has stimulus_id, words",
    "text\nb\n": "has no column 'stimulus_id'",
    "stimulus_id,text\n": "lists no stimulus",
    "stimulus_id,text\na,x\na,y\n": "lists 1 stimuli twice, first 'a'",
    "stimulus_id,text\na,x\n ,y\n": r"without a `stimulus_id`",
    "stimulus_id,text\na,x\nb, \n": "stimulus 'b': its text is empty",
    "stimulus_id,text,text\na,x,y\n": "two columns named 'text'",
    "": "cannot be read as a CSV table",
}
SOUNDS: dict[str, str] = {
    "stimulus_id,filename,start\na,a.wav,0\n": "has no column 'duration', which a model that takes sound needs",
    "stimulus_id,filename,start,duration\na,a.wav,0,\n": "stimulus 'a': its duration is empty",
    "stimulus_id,filename,start,duration\na,a.wav,soon,1\n": "its start is 'soon', not a number of seconds",
    "stimulus_id,filename,start,duration\na,a.wav,0,nan\n": "its duration is 'nan', not a number of seconds",
    "stimulus_id,filename,start,duration\na,a.wav,0,-1\n": "its duration is -1 s",
    "stimulus_id,filename,start,duration\na,b.wav,0,1\n": r"names 1 files that .* lacks, first b\.wav",
    "stimulus_id,filename,start,duration\na,../a.wav,0,1\n": "not a relative path below a folder",
}


def source(tmp_path: Path, text: str, *, folder: bool = True) -> Source:
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files" / "a.wav").write_bytes(b"")
    (tmp_path / "table.csv").write_text(text)
    return listed(tmp_path / "table.csv", tmp_path / "files" if folder else None)


def lengths(shown: Sense = "text") -> Embedder:
    """How long each text is, and which state was asked for."""

    def embed(
        shown: Sequence[Shown], asked: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        tell(len(shown))
        state = (7,) if asked is None else asked
        rows = np.array(
            [[len(one.text), sum(state)] for one in shown], dtype=np.float32
        )
        return Embedded(rows, ("mind the gap",))

    return Embedder(
        id="lengths",
        shown=shown,
        embed=embed,
        described={"states": [7], "weights": {"w": "00"}},
    )


@pytest.mark.parametrize("text", sorted(TEXTS))
def test_an_invalid_table_of_texts_raises_a_one_line_error(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(RequestError, match=TEXTS[text]) as caught:
        source(tmp_path, text).shown("text")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", sorted(SOUNDS))
def test_an_invalid_table_of_sounds_raises_a_one_line_error(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(RequestError, match=SOUNDS[text]) as caught:
        source(tmp_path, text).shown("sound")
    assert "\n" not in str(caught.value)


def test_words_are_read_unchanged(tmp_path: Path) -> None:
    shown = source(
        tmp_path, "stimulus_id,text,context\n01,null,\n2,NA,to NA\n3,1.50,x\n"
    ).shown("text")
    assert [(one.stimulus_id, one.text, one.context) for one in shown] == [
        ("01", "null", None),
        ("2", "NA", "to NA"),
        ("3", "1.50", "x"),
    ]


def test_a_table_of_files_requires_a_folder(tmp_path: Path) -> None:
    text = "stimulus_id,filename,start,duration\na,a.wav,0.5,2\n"
    (one,) = source(tmp_path, text).shown("sound")
    assert (one.start, one.duration, one.file) == (
        0.5,
        2.0,
        tmp_path / "files" / "a.wav",
    )
    with pytest.raises(
        RequestError, match="give its folder with --images, --sounds or --videos"
    ):
        source(tmp_path, text, folder=False).shown("sound")


def test_a_file_given_by_name_alone_is_found_below_the_folder(tmp_path: Path) -> None:
    texts = source(tmp_path, "stimulus_id,filename\na,cat_01.jpg\n")
    for concept in ("cat", "dog"):
        (tmp_path / "files" / concept).mkdir()
    (tmp_path / "files/cat/cat_01.jpg").write_bytes(b"")
    (one,) = texts.shown("images")
    assert one.path == tmp_path / "files/cat/cat_01.jpg"
    (tmp_path / "files/dog/cat_01.jpg").write_bytes(b"")
    with pytest.raises(
        RequestError,
        match=r"several files are named cat_01\.jpg \(cat/cat_01\.jpg, dog/cat_01",
    ):
        source(tmp_path, "stimulus_id,filename\na,cat_01.jpg\n").shown("images")


def test_the_table_of_embeddings_records_its_settings(
    tmp_path: Path, repository: Path
) -> None:
    session = Session(open_catalog(repository))
    session.models["lengths"] = lengths()
    texts = source(tmp_path, "stimulus_id,text\nb,four\na,no\n")
    made = embed(session, "lengths", texts)
    assert made["stimulus_id"].values.tolist() == ["b", "a"]
    assert made.values.tolist() == [[4, 7], [2, 7]]
    assert made.attrs["layer"] == "7"
    assert json.loads(made.attrs["embedder"]) == {"states": [7], "weights": {"w": "00"}}
    assert made.attrs["notes"] == "mind the gap"
    other = source(tmp_path, "stimulus_id,text\nb,Four\na,no\n")
    assert (
        embed(session, "lengths", other).attrs["stimuli_sha256"]
        != made.attrs["stimuli_sha256"]
    )
    assert embed(session, "lengths", texts, layer="2,3").values[0].tolist() == [4, 5]
    with pytest.raises(RequestError, match="has hidden states by number, from 0"):
        embed(session, "lengths", texts, layer="last")
    with pytest.raises(
        RequestError, match="the spec of model 'lengths' declares what it averages"
    ):
        embed(session, "lengths", texts, mean=[1])
    session.models["other"] = StoredAnswers("other", xr.DataArray([]))
    with pytest.raises(ModelError, match="'other' makes no embeddings"):
        embed(session, "other", texts)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            [],
            "no stimuli are selected: give --table CSV, --dataset ID, or --images FOLDER",
        ),
        (["--sounds", "."], "no stimuli are selected"),
        (
            ["--table", "t.csv", "--dataset", "Brennan2019Hierarchical"],
            "give one of them",
        ),
        (["--table", "t.csv", "--from", "."], "name the data set with --dataset"),
        (["--table", "t.csv", "--names"], "--names needs --images"),
        (
            ["--dataset", "Digits.simulated"],
            "its reader 'netcdf' does not list stimuli",
        ),
        (["--table", "t.csv", "--device", "toaster"], "unknown device 'toaster'"),
    ],
)
def test_incompatible_options_are_refused(
    said: list[str],
    words: str,
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "t.csv").write_text("stimulus_id,text\na,b\n")
    said = [str(tmp_path / "t.csv") if one == "t.csv" else one for one in said]
    assert (
        main(
            [
                "--root",
                str(repository),
                "embed",
                "pixels16",
                *said,
                "--out",
                str(tmp_path / "e.nc"),
            ]
        )
        != 0
    )
    assert words in capsys.readouterr().err


def test_an_unwritable_output_is_refused_before_embedding(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "neuroledger.families.signals.embeddings.embed.model_of",
        lambda *given: pytest.fail("a model was built"),
    )
    said = [
        "--root",
        str(repository),
        "embed",
        "pixels16",
        "--images",
        str(tmp_path),
        "--out",
    ]
    for out in ("e.txt", "gone/e.nc"):
        assert main([*said, str(tmp_path / out)]) != 0
        assert (
            "embeddings are written to a file that ends in .nc, in an existing folder"
            in capsys.readouterr().err
        )

    def refused(**given: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    assert main([*said, str(tmp_path / "e.nc")]) != 0
    assert (
        "cannot be written (Read-only file system): choose a writable folder"
        in capsys.readouterr().err
    )


def test_a_full_disk_raises_an_error_and_keeps_existing_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = xr.DataArray(np.ones((1, 2), np.float32), dims=("stimulus", "feature"))
    write_embeddings(table, tmp_path / "e.nc")
    before = (tmp_path / "e.nc").read_bytes()

    def full(*given: object, **named: object) -> None:
        raise RuntimeError("NetCDF: HDF error")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", full)
    with pytest.raises(
        RequestError,
        match=r"e\.nc cannot be written \(NetCDF: HDF error\); free space .* takes up to 0 MB",
    ):
        write_embeddings(table * 2, tmp_path / "e.nc")
    assert (tmp_path / "e.nc").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["e.nc"]


def test_section_means_equal_a_manual_computation() -> None:
    frames = np.arange(10.0)[:, None] * [1, 10]
    # 10 frames in 4 stretches: 3, 3, 2 and 2 of them.
    assert grouped_mean(frames, 4).tolist() == [1, 10, 4, 40, 6.5, 65, 8.5, 85]
    with pytest.raises(DataError, match="3 frames cannot be divided into 4"):
        grouped_mean(frames[:3], 4)


def test_sections_are_cut_at_whole_samples() -> None:
    frames, path = np.arange(20.0)[:, None], Path("a.wav")
    inside = Shown("a", path=path, start=0.52, duration=0.3)
    with pytest.raises(
        DataError, match=r"stimulus 'a' is 1\.9 to 2\.2 s of a\.wav, which lasts 2 s"
    ):
        stretch(frames, Shown("a", path=path, start=1.9, duration=0.3), 10, "refuse")
    window, whole = stretch(frames, inside, 10, "refuse")
    assert (window[:, 0].tolist(), whole) == ([5, 6, 7], True)
    window, whole = stretch(
        frames, Shown("a", path=path, start=-0.2, duration=0.4), 10, "zeros"
    )
    assert (window[:, 0].tolist(), whole) == ([0, 0, 0, 1], False)


def test_sound_is_converted_to_one_channel_at_the_requested_rate(
    tmp_path: Path,
) -> None:
    import soundfile

    time = np.arange(44_100) / 44_100
    tone = np.sin(2 * np.pi * 440 * time)
    soundfile.write(
        tmp_path / "a.wav", np.stack([tone, 0 * tone], axis=1) * 0.5, 44_100
    )
    heard = waveform(tmp_path / "a.wav", 16_000)
    assert heard.shape == (16_000,)
    wanted = 0.25 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    np.testing.assert_allclose(heard[200:-200], wanted[200:-200], atol=2e-3)
    (tmp_path / "b.wav").write_bytes(b"no sound")
    with pytest.raises(DataError, match="cannot be decoded as sound"):
        waveform(tmp_path / "b.wav", 16_000)
    soundfile.write(tmp_path / "c.wav", np.zeros((0, 1)), 44_100)
    with pytest.raises(DataError, match="contains no samples of sound"):
        waveform(tmp_path / "c.wav", 16_000)


def test_film_clips_end_at_equal_intervals() -> None:
    one = Shown("a", path=Path("a.mp4"))
    taken = moments(1.0, 2.0, clips_per_second=4, span=0.25, frames=64, film=one)
    assert taken.shape == (8, 64)
    np.testing.assert_allclose(taken[:, -1], 1 + 0.25 * np.arange(1, 9))
    np.testing.assert_allclose(taken[0, 0], 1.25 - 63 / 64 / 4)
    early = moments(0.0, 0.1, clips_per_second=4, span=0.25, frames=2, film=one)
    assert early.tolist() == [[0.0, 0.1]]


def test_layers_at_two_thirds_follow_the_published_rule(repository: Path) -> None:
    """Share × number of blocks, rounded down; the same one twice counts once."""
    shares = {
        "dinov2_giant": [0.6667],
        "gpt2": [0.6667],
        "vjepa2_vitg": [2 / 3],
        "wav2vec2_xlsr_53": [0.875, 0.917, 0.958, 1.0],
    }
    blocks = {"dinov2_giant": 40, "gpt2": 12, "vjepa2_vitg": 40, "wav2vec2_xlsr_53": 24}
    for id, wanted in shares.items():
        builder = yaml.safe_load((repository / f"specs/models/{id}.yaml").read_text())[
            "builder"
        ]
        assert builder["states"] == sorted(
            {int(share * blocks[id]) for share in wanted}
        )
        assert builder.get("config", {}).get("num_hidden_layers", 12) == blocks[id]


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    root = tmp_path / "place"
    for kind in ("models", "datasets"):
        (root / "specs" / kind).mkdir(parents=True)
    shutil.copy(repository / "specs/references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def test_prepared_windows_list_their_stimuli(place: Path, tmp_path: Path) -> None:
    spec = {
        "id": "Read",
        "version": 1,
        "title": "Words that are read",
        "license": "CC0-1.0",
        "access_steps": ["by hand"],
        "reader": {
            "name": "prepared_signals",
            "embeddings": {"embedding": "embedding.nc"},
        },
        "unavailable": "by hand",
    }
    (place / "specs/datasets/Read.yaml").write_text(
        "# yaml-language-server: $schema=../schema/dataset.json\n"
        + yaml.safe_dump(spec, sort_keys=False)
    )
    folder = tmp_path / "cut"
    folder.mkdir()
    words = [f"w{number % 3}" for number in range(6)]
    events = {
        "stimulus_id": words,
        "subject": ["1"] * 6,
        "recording": ["r"] * 6,
        "onset": np.arange(6.0),
    }
    windows = signals(
        np.random.default_rng(0).standard_normal((6, 2, 8)),
        channels=["C3", "C4"],
        channel_types="eeg",
        sampling_rate=8,
        start=0.0,
        units="uV",
        events=events,
    )
    assembly.write(windows, folder / "signals.nc")
    found = source_of_dataset(open_catalog(place), "Read", folder)
    assert [one.text for one in found.shown("text")] == ["w0", "w1", "w2"]
    assembly.write(
        windows.assign_coords(text=("presentation", [w.upper() for w in words])),
        folder / "signals.nc",
    )
    found = source_of_dataset(open_catalog(place), "Read", folder)
    assert [one.text for one in found.shown("text")] == ["W0", "W1", "W2"]
    two = windows.assign_coords(
        text=("presentation", [f"t{n}" for n in range(len(words))])
    )
    assembly.write(two, folder / "signals.nc")
    with pytest.raises(DataError, match="stimulus 'w0' has two descriptions"):
        source_of_dataset(open_catalog(place), "Read", folder)
    with pytest.raises(
        RequestError, match="give the folder with the downloads of Read by --from"
    ):
        source_of_dataset(open_catalog(place), "Read")


def test_weights_known_only_by_hash_are_pinned_from_a_download(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = b"tensors"
    spec = {
        "id": "net",
        "version": 1,
        "title": "A network",
        "builder": {"name": "pixels", "size": 4},
        "downloads": {
            "a.bin": {
                "url": "https://example.org/a.bin",
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        },
        "unavailable": "Its size is stated nowhere.",
        "license": "MIT",
    }
    path = place / "specs/models/net.yaml"
    path.write_text(
        "# yaml-language-server: $schema=../schema/model.json\n"
        + yaml.safe_dump(spec, sort_keys=False)
    )
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    monkeypatch.chdir(place)
    assert main(["pin", "net", "--from", str(downloads)]) != 0
    assert (
        "lacks a.bin: download a.bin from https://example.org/a.bin"
        in capsys.readouterr().err
    )
    (downloads / "a.bin").write_bytes(b"others")
    assert main(["pin", "net", "--from", str(downloads)]) != 0
    assert "its publisher states" in capsys.readouterr().err
    assert "unavailable" in path.read_text()
    (downloads / "a.bin").write_bytes(content)
    assert main(["pin", "net", "--from", str(downloads), "--label", "age"]) != 0
    assert (
        "--label only applies to recordings, but net is a model"
        in capsys.readouterr().err
    )
    assert main(["pin", "net", "--from", str(downloads), "--dry-run"]) == 0
    assert "unavailable" in path.read_text()
    assert main(["pin", "net", "--from", str(downloads)]) == 0
    assert "placed 1 of them in data/models/net/" in capsys.readouterr().out
    pinned = open_catalog(place).model("net")
    assert pinned.unavailable is None
    assert (pinned.weights["a.bin"].size, pinned.weights["a.bin"].url) == (
        7,
        "https://example.org/a.bin",
    )
    assert (place / "data/models/net/a.bin").read_bytes() == content
    text = path.read_text()
    assert main(["pin", "net", "--from", str(downloads)]) == 0
    assert path.read_text() == text
    assert "already pinned and in place" in capsys.readouterr().out


def test_pinning_weights_does_not_replace_an_existing_file(
    place: Path, tmp_path: Path
) -> None:
    from neuroledger.data.pin.downloads import Downloads
    from neuroledger.data.pin.pin import pin_weights

    spec = {
        "id": "net",
        "version": 1,
        "title": "A network",
        "builder": {"name": "pixels", "size": 4},
        "downloads": {"a.bin": {"url": "https://example.org/a.bin"}},
        "unavailable": "Not pinned.",
    }
    (place / "specs/models/net.yaml").write_text(
        "# yaml-language-server: $schema=../schema/model.json\n"
        + yaml.safe_dump(spec, sort_keys=False)
    )
    (tmp_path / "a.bin").write_bytes(b"new")
    held = place / "data/models/net/a.bin"
    held.parent.mkdir(parents=True)
    held.write_bytes(b"old")
    with pytest.raises(IntegrityError, match="move it away, then pin again"):
        pin_weights(open_catalog(place), "net", Downloads(folder=tmp_path))
    assert held.read_bytes() == b"old"


@pytest.mark.skipif(sys.platform != "linux", reason="confinement needs Linux")
def test_an_image_or_film_that_crashes_its_decoder_raises_one_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    (tmp_path / "a.png").write_bytes(b"an image")
    monkeypatch.setattr(image_embedder, "decode", crash)
    shown = [Shown("a", path=tmp_path / "a.png")]
    with pytest.raises(
        DataError, match=r"images of model 'net'.* crashed the process .*SIGSEGV"
    ):
        list(image_embedder._batches(shown, None, Preprocessing(resize=8), "net"))
    monkeypatch.setattr(film_frames, "require", lambda *_: None)
    monkeypatch.setattr(film_frames, "_opened", crash)
    with pytest.raises(DataError, match=r"a\.png crashed the process .*SIGSEGV"):
        list(film_frames.clips(tmp_path / "a.png", np.zeros((1, 2)), crash))
    with pytest.raises(DataError, match=r"a\.png crashed the process .*SIGSEGV"):
        film_frames.seconds_of(tmp_path / "a.png")
