"""Stimuli report their file, an embedder answers the question, and parts are means of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.models.embedder import (
    COLUMNS,
    Embed,
    Embedded,
    Embedder,
    Shown,
    grouped_mean,
)


def test_a_stimulus_reports_its_file_and_names_a_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    file.write_bytes(b"x")
    assert Shown("s", path=file).file == file and Shown("s", path=file).where == "a.wav"
    assert Shown("s").where == "(no file)"
    with pytest.raises(
        DataError, match=r"stimulus 's': the file \(none\) does not exist"
    ):
        _ = Shown("s").file
    with pytest.raises(
        DataError, match=r"stimulus 's': the file .*gone\.wav does not exist"
    ):
        _ = Shown("s", path=tmp_path / "gone.wav").file
    with pytest.raises(DataError):
        _ = Shown("s", path=tmp_path).file


def test_an_embedder_receives_states_and_reports_progress() -> None:
    told: list[int] = []

    def embed(stimuli: Any, states: Any, tell: Any) -> Embedded:
        tell(len(stimuli))
        return Embedded(np.full((len(stimuli), 2), states[0], np.float32), ("a note",))

    made = Embedder(id="e", shown="sound", embed=embed, described={})
    assert (
        made.takes == {"sound"}
        and made.gives == {"embeddings"}
        and Embed.asks == "embeddings"
    )
    answer = made.answer(Embed([Shown("a"), Shown("b")], (3,), told.append))
    assert (
        answer.rows.tolist() == [[3, 3], [3, 3]]
        and answer.notes == ("a note",)
        and told == [2]
    )
    assert "embed=" not in repr(made) and Embedded(answer.rows).notes == ()


def test_columns_of_each_channel() -> None:
    assert dict(COLUMNS) == {
        "images": ("filename",), "text": ("text",), "sound": ("filename", "start", "duration"), "film": ("filename",),
    }  # fmt: skip


def test_the_first_parts_are_longer_by_one_frame() -> None:
    frames = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert grouped_mean(frames, 2).tolist() == [
        2.0,
        3.0,
        7.0,
        8.0,
    ]  # three frames, then two
    assert grouped_mean(frames, 1).tolist() == [4.0, 5.0]
    assert grouped_mean(frames, 5).tolist() == frames.ravel().tolist()
    assert grouped_mean(frames, 2).dtype == np.float64
    words = "5 frames cannot be divided into 6 parts: use a longer window"
    with pytest.raises(DataError, match=words):
        grouped_mean(frames, 6)
