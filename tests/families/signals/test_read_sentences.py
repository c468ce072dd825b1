"""Sentences that were read: EEG, eye tracker and list are matched, cut, clustered, and refused if they disagree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neuroledger.errors import DataError, RequestError
from neuroledger.spec.registry import get
from tests.families.efficiency.matlab73 import HEADER
from tests.families.signals.zuco_files import LABELS, RATE, eeg, gaze, results

TASK = "task1-SR"
# Sentences of 2, 4, 7 and 2 s; after the second, the next one follows soon.
FIRST = [(1.0, 4.0, False), (6.0, 4.0, False), (10.5, 7.0, True)]
SECOND = [(2.0, 2.0, False), (9.0, 3.0, False)]
TEXTS = [
    "The film is  fine.",
    "A fine film, it is!",
    "The Film is fine",
    None,
    "Nothing like it was seen before",
]
TOLD: dict[str, Any] = {
    "tasks": {TASK: 2},
    "window": {"start": 0.0, "duration": 3.0, "stride": 3.0},
    "preprocessing": {"units": "uV"},
    "near": 0.2,
}


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed).standard_normal((len(LABELS), int(seconds * RATE)))
        * 10
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "zuco" / "osfstorage"
    for who in ("ZAB", "ZDN"):
        values = noise(20.0)
        for onset, *_ in FIRST:
            values[0, int(onset * RATE)] += 500.0
        eeg(root, TASK, who, 1, values, FIRST, run="SNR")
        eeg(root, TASK, who, 2, noise(15.0, 1), [*SECOND, (13.0, 1.0, False)])
        gaze(root, TASK, who, 1, FIRST)
        gaze(root, TASK, who, 2, SECOND)
        results(root, TASK, who, TEXTS)
    return root.parent


def files(folder: Path) -> dict[str, Path]:
    return {
        p.relative_to(folder).as_posix(): p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".cache" not in p.parts
    }


def read(folder: Path, **changed: Any) -> Any:
    component = get("reader", "read_sentences")
    return component.function(
        files(folder), **component.bind({**TOLD, **changed})
    ).assembly


def test_sentences_match_the_list_and_windows_end_before_the_next_sentence(
    folder: Path,
) -> None:
    windows = read(folder, leave_out=[f"{TASK}/ZDN"])
    said = list(
        zip(
            windows["onset"].values.tolist(),
            windows["part"].values.tolist(),
            windows["kind"].values,
            strict=True,
        )
    )
    # 1 to 5 s: one window, for the second would last to 7 s; 6 to 10 s: one; 10.5 to 17.5 s: three, the last beyond its end.
    assert said == [
        (1.0, "1", "sentence"),
        (6.0, "1", "sentence"),
        (10.5, "1", "control"),
        (13.5, "2", "control"),
        (16.5, "3", "control"),
        (9.0, "1", "sentence"),
    ]
    texts = windows["sentence"].values.tolist()
    assert texts == [
        "The film is fine.",
        "A fine film, it is!",
        *["The Film is fine"] * 3,
        TEXTS[-1],
    ]
    assert windows["stimulus_id"].values.tolist() == texts
    assert windows.sizes == {"presentation": 6, "channel": 128, "sample": 1500}
    assert (
        windows["channel_id"].values.tolist() == LABELS
        and np.isfinite(windows["z"].values).all()
    )
    assert (windows.values[[0, 1, 2], 0, 0] > 400).all()
    assert windows["session"].values.tolist() == [TASK] * 6 and windows[
        "run"
    ].values.tolist() == [
        *["1"] * 5,
        "2",
    ]
    clusters = windows["sentence_cluster"].values.tolist()
    assert len(set(clusters[:1] + clusters[2:5])) == 1 and len(set(clusters)) == 3


def test_every_sentence_is_one_stimulus(folder: Path) -> None:
    component = get("stimuli", "read_sentences")
    table = component.function(files(folder), **component.bind({"tasks": {TASK: 2}}))
    assert table["stimulus_id"].tolist() == sorted(
        " ".join(text.split()) for text in TEXTS if text
    )
    assert table["text"].tolist() == table["stimulus_id"].tolist()


def test_only_required_files_are_selected(folder: Path) -> None:
    (folder / "embedding.nc").write_bytes(b"")
    (folder / "osfstorage/task1- SR/Preprocessed").mkdir()
    (folder / "osfstorage/task1- SR/Preprocessed/gip_ZAB_SR1_EEG.mat").write_bytes(b"")
    component = get("reader", "read_sentences")
    parameters = component.bind(
        {
            **TOLD,
            "leave_out": [f"{TASK}/ZDN"],
            "embeddings": {"embedding": "embedding.nc"},
        }
    )
    assert component.reads is not None
    chosen = component.reads(list(files(folder)), parameters)
    assert [name.rsplit("/", 1)[-1] for name in chosen] == [
        "embedding.nc",
        "resultsZAB_SR.mat",
        "ZAB_SNR1_EEG.mat",
        "ZAB_SR1_ET.mat",
        "ZAB_SR2_EEG.mat",
        "ZAB_SR2_ET.mat",
    ]
    (folder / "embedding.nc").unlink()
    with pytest.raises(RequestError, match=r"lacks embedding\.nc"):
        component.reads(list(files(folder)), parameters)


def _raw(folder: Path) -> Path:
    return folder / "osfstorage/task1- SR/Raw data/ZAB"


def _newer(folder: Path) -> None:
    """A file of MATLAB 7.3, which is HDF5 behind 512 bytes of text."""
    path = _raw(folder) / "ZAB_SR2_EEG.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["EEG"] = np.zeros(3)
    with path.open("r+b") as opened:
        opened.write(HEADER.ljust(124) + b"\x00\x02IM")


CASES: list[tuple[Callable[[Path], Any], str]] = [
    (
        lambda f: (_raw(f) / "ZAB_SR2_ET.mat").unlink(),
        r"task1-SR/ZAB lacks the _ET\.mat of block 2 of 2",
    ),
    (
        lambda f: (_raw(f) / "ZAB_SNR1_EEG.mat").unlink(),
        r"lacks the _EEG\.mat of block 1 of 2",
    ),
    (
        lambda f: eeg(f / "osfstorage", TASK, "ZAB", 1, noise(5), FIRST),
        "are of the same block",
    ),
    (
        lambda f: eeg(f / "osfstorage", TASK, "ZAB", 3, noise(5), FIRST),
        r"has more than the _EEG\.mat of block 3",
    ),
    (
        lambda f: (f / "osfstorage/task1- SR/Matlab files/resultsZAB_SR.mat").unlink(),
        "task1-SR/ZAB has no list of sentences",
    ),
    (
        lambda f: results(f / "osfstorage", TASK, "ZAB", TEXTS[:4]),
        "the eye tracker has 5 sentences, but .*resultsZAB_SR.mat has 4",
    ),
    (
        lambda f: results(f / "osfstorage", TASK, "ZAB", [None] * 5),
        "no sentence with a text",
    ),
    (
        lambda f: eeg(f / "osfstorage", TASK, "ZAB", 2, noise(15), SECOND[:1]),
        "ZAB_SR2_EEG.mat has 1 sentences and .*ZAB_SR2_ET.mat 2",
    ),
    (
        lambda f: eeg(
            f / "osfstorage", TASK, "ZAB", 2, noise(15), [SECOND[0], (9.0, 3.0, True)]
        ),
        "sentence 2: a control in the recording and a sentence in",
    ),
    (
        lambda f: eeg(
            f / "osfstorage",
            TASK,
            "ZAB",
            1,
            noise(40),
            [FIRST[0], (16.0, 4.0, False), (22.0, 7.0, True)],
            run="SNR",
        ),
        "its onset differs by .* s from that in",
    ),
    (
        lambda f: eeg(
            f / "osfstorage",
            TASK,
            "ZAB",
            2,
            noise(15),
            [(2.0, 8.0, False), (9.0, 3.0, False)],
        ),
        "begins a sentence before the sentence at 2 has ended",
    ),
    (
        lambda f: eeg(f / "osfstorage", TASK, "ZAB", 2, noise(15) * np.nan, SECOND),
        "values of `EEG.data` are missing or infinite",
    ),
    (_newer, r"ZAB_SR2_EEG\.mat cannot be read as a MATLAB file up to version 7\.2"),
    (
        lambda f: (_raw(f) / "ZAB_SR2_EEG.mat").write_bytes(b"MATLAB 5.0"),
        "cannot be read as a MATLAB file",
    ),
    (
        lambda f: (_raw(f) / "ZAB_SR2_ET.mat").write_bytes(
            (_raw(f) / "ZAB_SR2_EEG.mat").read_bytes()
        ),
        "no variable 'event'",
    ),
]


@pytest.mark.parametrize(("change", "words"), CASES)
def test_inconsistent_downloads_raise_one_error(
    folder: Path, change: Callable[[Path], Any], words: str
) -> None:
    change(folder)
    with pytest.raises(DataError, match=words):
        read(folder)


def test_a_task_without_subjects_and_overlapping_windows_are_refused(
    folder: Path,
) -> None:
    with pytest.raises(DataError, match="no file is of task2-NR"):
        read(folder, tasks={TASK: 2, "task2-NR": 6})
    with pytest.raises(DataError, match=r"overlap; raise `window\.stride`"):
        read(folder, window={"start": 0.0, "duration": 3.0, "stride": 1.0})


def test_an_unfinished_last_sentence_is_left_out(folder: Path) -> None:
    open_ended = [*SECOND, (13.0, 1.0, False)]
    eeg(
        folder / "osfstorage", TASK, "ZAB", 2, noise(15.0, 1), open_ended, open_end=True
    )
    windows = read(folder, leave_out=[f"{TASK}/ZDN"])
    assert windows["onset"].values.tolist()[-1] == 9.0


def test_windows_that_exceed_memory_are_stored_and_reused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = read(folder)
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 1
    )
    first = read(folder)
    monkeypatch.setattr(
        "neuroledger.families.signals.readers.read_sentences.cut", None
    )  # nothing is cut a second time
    again = read(folder)
    for kept in (first, again):
        np.testing.assert_array_equal(kept.values, windows.values)
        assert set(kept.coords) == set(windows.coords)
