"""Words of a story are matched with recordings by their number, cut into windows, and refused if they disagree."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import DataError, RequestError
from neuroledger.spec.registry import get
from tests.families.signals.alice_files import (
    ELECTRODES,
    RATE,
    Said,
    archive,
    recording,
    story,
    table,
    trials,
)

SOUND = "audio/DownTheRabbitHoleFinal_SoundFile{segment}.wav"
TOLD = {
    "words": "AliceChapterOne-EEG.csv",
    "trials": "proc.zip",
    "recordings": "S??.vhdr",
    "sound": SOUND,
    "window": {"start": -0.5, "duration": 1.0},
    "test_from": 68,
    "leave_out": ["S02"],
    "preprocessing": {"units": "uV"},
}
STARTS = {1: 501, 10: 4001}
TEXT = story(
    [
        (1, 1, ["Alice", "was", "very", "tired", "of", "sitting", "by", "her"]),
        (68, 10, ["First", "however", "she", "waited"]),
    ]
)
PULSE = 60.0


def pulses(said: list[Said], seconds: float = 14.0, quiet: int = 5) -> np.ndarray:
    """Noise, with one sharp pulse on the first electrode at the moment of each word."""
    values = np.random.default_rng(3).standard_normal(
        (len(ELECTRODES), int(seconds * RATE))
    )
    for s in said:
        values[0, STARTS[s.segment] - 1 + int(np.ceil(s.onset * RATE))] += PULSE
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "alice"
    root.mkdir()
    (root / "AliceChapterOne-EEG.csv").write_text(table(TEXT))
    heard = {
        "S01": TEXT,
        "S03": [*TEXT[:2], *TEXT[4:]],
    }  # of S03, two trials are not there
    archive(
        root / "proc.zip",
        {who: trials(said, STARTS, older=who == "S03") for who, said in heard.items()},
    )
    for who in ("S01", "S02", "S03"):
        recording(root, who, pulses(TEXT), STARTS)
    return root


def files(folder: Path) -> dict[str, Path]:
    return {
        p.relative_to(folder).as_posix(): p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".cache" not in p.parts
    }


def read(folder: Path, **changed: Any) -> Any:
    component = get("reader", "heard_words")
    return component.function(
        files(folder), **component.bind({**TOLD, **changed})
    ).assembly


def test_windows_are_placed_at_their_words_even_if_trials_are_missing(
    folder: Path,
) -> None:
    windows = read(folder)
    assert windows.sizes == {"presentation": 12 + 10, "channel": 60, "sample": RATE}
    assert (
        windows.values[:, 0, RATE // 2] > PULSE / 2
    ).all()  # 0.5 s after its start: at the word
    assert (windows.values[:, 0, RATE // 2 + np.array([-1, 1])] < PULSE / 2).all()
    third = windows[windows["subject"].values == "S03"]
    assert third["word"].values.tolist() == [s.word for s in [*TEXT[:2], *TEXT[4:]]]
    assert (
        third["stimulus_id"].values[2]
        == f"segment01/word{TEXT[4].order:04d}"
        == "segment01/word0006"
    )
    assert set(windows["split"].values[windows["sentence_number"].values == "68"]) == {
        "test"
    }
    assert set(windows["split"].values[windows["sentence_number"].values == "1"]) == {
        "train"
    }
    assert windows["sentence"].values[0] == "Alice was very tired of sitting by her"
    assert windows["channel_id"].values.tolist() == ELECTRODES
    assert np.isfinite(windows["x"].values).all()
    assert windows["onset"].values[0] == pytest.approx(
        (STARTS[1] - 1 + np.ceil(0.046 * RATE)) / RATE
    )


def test_each_occurrence_of_a_word_is_a_stimulus_with_its_sound(folder: Path) -> None:
    component = get("stimuli", "heard_words")
    wanted = {name: TOLD[name] for name in ("words", "window", "sound")}
    sounds = component.function(files(folder), **component.bind(wanted))
    assert len(sounds) == len(TEXT) and sounds["stimulus_id"].is_unique
    assert set(read(folder)["stimulus_id"].values) == set(sounds["stimulus_id"])
    first = sounds.iloc[0]
    assert first["filename"] == "audio/DownTheRabbitHoleFinal_SoundFile1.wav"
    assert first["start"] == pytest.approx(0.046 - 0.5) and first["duration"] == 1.0


def test_only_required_files_are_selected(folder: Path) -> None:
    (folder / "embedding.nc").write_bytes(b"")
    for name in (
        "datasets.mat",
        "comprehension-scores.txt",
        "S01-tones.vhdr",
        "audio.zip",
    ):
        (folder / name).write_bytes(b"")
    component = get("reader", "heard_words")
    parameters = component.bind({**TOLD, "embeddings": {"embedding": "embedding.nc"}})
    assert component.reads is not None
    chosen = component.reads(list(files(folder)), parameters)
    people = [
        f"{who}{end}" for who in ("S01", "S03") for end in (".eeg", ".vhdr", ".vmrk")
    ]
    assert chosen == ["AliceChapterOne-EEG.csv", *people, "embedding.nc", "proc.zip"]
    (folder / "embedding.nc").unlink()
    with pytest.raises(
        RequestError, match=r"lacks embedding\.nc.*neuroledger embed MODEL"
    ):
        component.reads(list(files(folder)), parameters)


def _without(column: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "AliceChapterOne-EEG.csv"
        path.write_text(path.read_text().replace(column, "Other", 1))

    return change


def _proc(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        proc = trials(TEXT, STARTS)
        proc["trl"] = changed.pop("trl", lambda t: t)(proc["trl"])
        archive(
            folder / "proc.zip", {"S01": proc | changed, "S03": trials(TEXT, STARTS)}
        )

    return change


def _edited(at: tuple[int, int], by: float) -> Callable[[Any], Any]:
    def edit(trl: Any) -> Any:
        trl = trl.copy()
        trl[at] += by
        return trl

    return edit


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "x").touch()


CASES: list[tuple[Callable[[Path], Any], str]] = [
    (_without("Order"), "AliceChapterOne-EEG.csv has no column Order; it has Word"),
    (lambda f: (f / "proc.zip").unlink(), r"proc\.zip is not among the files"),
    (lambda f: (f / "proc.zip").write_bytes(b"no"), r"proc\.zip is not a ZIP archive"),
    (
        lambda f: archive(f / "proc.zip", {"S03": trials(TEXT, STARTS)}),
        r"no tables of trials S01\.mat.*leave_out",
    ),
    (
        _proc(trl=_edited((4, 7), 900)),
        "1 trials have words that are not in the story, first `Order` 906",
    ),
    (_proc(trl=lambda t: t[[0, 0, 1]], tot_trials=3), "a word has two trials"),
    (_proc(tot_trials=2129), "`trl` has 12 trials, but `tot_trials` is 2129"),
    (
        _proc(trl=_edited((5, 7), -1)),
        "1 trials differ from the word|a word has two trials",
    ),
    (
        _proc(trl=_edited((5, 5), 2.0)),
        r"differ from the word that the story has for their `Order`, first 7 \('sitting'\)",
    ),
    (
        _proc(trl=_edited((0, 4), 3.0)),
        "its segment is 4 in the trials and 1 in the story",
    ),
    (
        _proc(varnames=np.array(["a", "b"], dtype=object)),
        "10 columns and `varnames` 2 names",
    ),
    (_proc(varnames=np.array(list("abcdefg"), dtype=object)), "no column `Order`"),
    (
        _proc(trl=_edited((11, 0), 9000)),
        "but S01.vhdr lasts 14 s: check that the two files belong together",
    ),
    (lambda f: (f / "S01.eeg").unlink(), "cannot be read by MNE"),
    (_emptied, "is not among the files: x"),
]


@pytest.mark.parametrize(("change", "words"), CASES)
def test_inconsistent_downloads_raise_one_error(
    folder: Path, change: Callable[[Path], Any], words: str
) -> None:
    change(folder)
    with pytest.raises(DataError, match=words):
        read(folder)


def test_a_missing_companion_and_an_empty_selection_are_errors(folder: Path) -> None:
    component = get("reader", "heard_words")
    assert component.reads is not None
    names = [name for name in files(folder) if name != "S03.vmrk"]
    with pytest.raises(DataError, match=r"S03\.vhdr lacks S03\.vmrk"):
        component.reads(names, component.bind(TOLD))
    with pytest.raises(
        DataError, match=r"no recording that matches .* except 3 that are left out"
    ):
        read(folder, leave_out=["S01", "S02", "S03"])
    with pytest.raises(DataError, match="no channel of the montage biosemi64"):
        read(folder, montage="biosemi64")


def test_windows_that_exceed_memory_are_stored_and_reused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = read(folder)
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 1
    )
    first = read(folder)
    monkeypatch.setattr(
        "neuroledger.families.signals.readers.heard_words.cut", None
    )  # nothing is cut a second time
    again = read(folder)
    for kept in (first, again):
        np.testing.assert_array_equal(kept.values, windows.values)
        assert set(kept.coords) == set(windows.coords)
