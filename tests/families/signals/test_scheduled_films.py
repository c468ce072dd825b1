"""The clips of a schedule are listed with film, start and duration before embeddings exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.registry import get

LABELS = "Video/meta-info/All_video_label.npy"
FILMS = ["1st", "2nd", "3rd", "4th", "5th", "6th", "7th"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    np.save(tmp_path / "labels.npy", np.tile(np.arange(1.0, 41.0), (7, 1)))
    return {LABELS: tmp_path / "labels.npy"} | {
        f"Video/{name}_10min.mp4": tmp_path / name for name in FILMS
    }


def listed(files: dict[str, Path], told: dict[str, Any]) -> list[tuple[Any, ...]]:
    component = get("stimuli", "scheduled_arrays")
    parameters = component.bind({name: told[name] for name in ("schedule", "events")})
    return list(
        component.function(files, **parameters).itertuples(index=False, name=None)
    )


def test_clips_of_the_published_films_are_listed_by_the_spec(
    files: dict[str, Path], repository: Path
) -> None:
    reader = open_catalog(repository).dataset("Liu2024Eeg2video").reader
    assert reader is not None
    rows = listed(files, reader.parameters)
    assert len(rows) == 1400 and len({name for name, *_ in rows}) == 1400
    assert rows[0] == ("block-1_subblock-01_clip-1", "Video/1st_10min.mp4", 3.0, 2.0)
    assert rows[6] == ("block-1_subblock-02_clip-2", "Video/1st_10min.mp4", 18.0, 2.0)
    # The last clip ends with the recording: 8 minutes and 40 seconds.
    assert rows[-1] == ("block-7_subblock-40_clip-5", "Video/7th_10min.mp4", 518.0, 2.0)
    schedule = {**reader.parameters["schedule"]}
    with pytest.raises(
        DataError, match=r"block 3: 0 films match Video/3\?\?_10min\.mp4"
    ):
        listed(
            {name: path for name, path in files.items() if "3rd" not in name},
            reader.parameters,
        )
    with pytest.raises(DataError, match=r"`schedule\.films`, which is empty"):
        listed(files, reader.parameters | {"schedule": schedule | {"films": ""}})
    with pytest.raises(DataError, match=r"All_video_label\.npy is not among the files"):
        listed({}, reader.parameters)
