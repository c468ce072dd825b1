"""SEED-DV in its published layout, with small simulated arrays: pinned, validated, scored by retrieval, refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuroledger.data import assembly
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.readers.scheduled_arrays import (
    Schedule,
    scheduled_arrays,
)
from neuroledger.families.signals.recordings.signal_preprocessing import Preprocessing
from neuroledger.families.signals.recordings.signal_stimuli import Cell, Events
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.published_places import (
    pinned,
    place_of,
    scored,
    spec_of,
    windows,
)

ID, BENCHMARK = "Liu2024Eeg2video", "neuralbench.eeg.video"
RATE, BLOCKS, GROUPS, CLIPS, CHANNELS, FEATURES = 200, 1, 12, 5, 62, 3
SPECS = {
    "datasets": [ID],
    "benchmarks": [BENCHMARK],
    "metrics": ["top5_retrieval"],
    "models": ["dummy"],
}
QUICK = """\
# yaml-language-server: $schema=../schema/model.json
id: quick
version: 1
title: Ridge regression on amplitudes, asked for embeddings
builder: {name: sklearn_decoder, path: sklearn.linear_model.Ridge, parameters: {alpha: 1000.0}, objective: retrieval}
benchmarks: [decoding.retrieval]
"""
NAMES = [
    *("FP1", "FPZ", "FP2", "AF3", "AF4", "F7", "F5", "F3", "F1", "FZ", "F2", "F4", "F6", "F8", "FT7", "FC5", "FC3"),
    *("FC1", "FCZ", "FC2", "FC4", "FC6", "FT8", "T7", "C5", "C3", "C1", "CZ", "C2", "C4", "C6", "T8", "TP7", "CP5"),
    *("CP3", "CP1", "CPZ", "CP2", "CP4", "CP6", "TP8", "P7", "P5", "P3", "P1", "PZ", "P2", "P4", "P6", "P8", "PO7"),
    *("PO5", "PO3", "POZ", "PO4", "PO6", "PO8", "CB1", "O1", "OZ", "O2", "CB2"),
]  # fmt: skip


def positions(path: Path, names: list[str] = NAMES) -> None:
    """Number, angle, radius and name of each electrode, as EEGLAB writes them."""
    lines = [
        f"{n}\t{7.0 * n - 180:.3f}\t{0.1 + 0.006 * n:.5f}\t{name}"
        for n, name in enumerate(names, 1)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def called(block: int, group: int, clip: int) -> str:
    return f"block-{block + 1}_subblock-{group + 1:02d}_clip-{clip + 1}"


def clips(blocks: int, groups: int) -> np.ndarray:
    """Features of every clip, (block, group, clip, feature)."""
    return np.random.default_rng(1).standard_normal((blocks, groups, CLIPS, FEATURES))


def array(path: Path, seed: int, shown: np.ndarray, *, planted: bool) -> None:
    """One session, float64 (block, channel, sample): a wave in the channels tells each clip, just while it lasts."""
    blocks, groups = shown.shape[:2]
    rng, wave = (
        np.random.default_rng(seed),
        np.sin(2 * np.pi * 10 * np.arange(2 * RATE) / RATE),
    )
    values = rng.standard_normal((blocks, CHANNELS, groups * 13 * RATE))
    for block, group, clip in np.ndindex(blocks, groups, CLIPS if planted else 0):
        at = (3 + 13 * group + 2 * clip) * RATE
        values[block, : 20 * FEATURES, at : at + 2 * RATE] += (
            np.repeat(shown[block, group, clip], 20)[:, None] * wave
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def downloads(root: Path, *, planted: bool = True, people: int = 20) -> Path:
    positions(root / "channel_62_pos.locs")
    rng, shown = np.random.default_rng(3), clips(BLOCKS, GROUPS)
    labels = np.stack([rng.permutation(GROUPS) + 1.0 for _ in range(BLOCKS)])
    (root / "Video" / "meta-info").mkdir(parents=True)
    for name in ("All_video_label", "All_video_obj_number"):
        np.save(root / f"Video/meta-info/{name}.npy", labels)
    (root / "Video" / "1st_10min.mp4").write_bytes(b"not read")
    for seed, name in enumerate(
        [f"sub{n}" for n in range(1, people + 1)] + ["sub1_session2"]
    ):
        array(root / "EEG" / f"{name}.npy", seed, shown, planted=planted)
    ids = [called(*place) for place in np.ndindex(BLOCKS, GROUPS, CLIPS)]
    table = xr.DataArray(
        shown.reshape(-1, FEATURES),
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", ids)},
    )
    assembly.write(table, root / "embedding.nc")
    return root


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    """The specs of the repository; only the number of concepts in a block is smaller, and so is a block."""
    root = place_of(tmp_path / "place", repository, SPECS)
    path = root / "specs/datasets" / f"{ID}.yaml"
    text = path.read_text(encoding="utf-8")
    assert text.count("groups: 40") == text.count("concept, count: 40") == 1
    text = text.replace("groups: 40", f"groups: {GROUPS}").replace(
        "concept, count: 40", f"concept, count: {GROUPS}"
    )
    path.write_text(text, encoding="utf-8")
    (root / "specs/models/quick.yaml").write_text(QUICK)
    return root


@pytest.mark.slow
def test_clip_retrieval_works_through_the_command_line(
    place: Path, tmp_path: Path
) -> None:
    files = pinned(place, ID, downloads(tmp_path / "SEED-DV"))
    assert files == {
        *(f"EEG/sub{n}.npy" for n in range(1, 21)),
        "EEG/sub1_session2.npy",
        "channel_62_pos.locs",
        "Video/meta-info/All_video_label.npy",
        "embedding.nc",
    }
    again = pin(
        open_catalog(place), ID, Downloads(folder=tmp_path / "SEED-DV", check=False)
    )
    assert again.before == again.after and again.placed == 0
    records = scored(place, BENCHMARK, ID, ["dummy", "quick"])
    assert records["quick"]["score"]["raw"] > 0.9
    data = windows(place, ID)
    assert data.sizes == {
        "presentation": 21 * BLOCKS * GROUPS * CLIPS,
        "channel": 62,
        "sample": 240,
    }
    assert (
        data["channel_id"].values.tolist() == NAMES
        and np.isfinite(data["x"].values).all()
    )
    first = data.isel(presentation=data["recording"].values == "EEG/sub1.npy, block 1")
    assert first["onset"].values[:6].tolist() == [3, 5, 7, 9, 11, 16]
    assert first["stimulus_id"].values[5] == "block-1_subblock-02_clip-1"
    again = data.isel(presentation=data["session"].values == "2")
    assert (
        set(again["subject"].values.tolist()) == {"1"}
        and len(again) == BLOCKS * GROUPS * CLIPS
    )
    whole = spec_of(place, ID)["reader"]["events"]["coordinates"]
    numbers = np.load(tmp_path / "SEED-DV/Video/meta-info/All_video_label.npy")
    assert (
        first["concept"].values[0]
        == whole["concept"]["values"][str(int(numbers[0, 0]))]
    )
    assert (
        first["category"].values[0]
        == whole["category"]["values"][str(int(numbers[0, 0]))]
    )


@pytest.mark.slow
def test_without_planted_clips_retrieval_is_at_chance(
    place: Path, tmp_path: Path
) -> None:
    pinned(place, ID, downloads(tmp_path / "SEED-DV", planted=False))
    score = scored(place, BENCHMARK, ID, ["quick"])["quick"]["score"]
    assert abs(score["raw"] - 5 / score["n"]["stimuli"]) < 0.12


SCHEDULE = Schedule(
    first=3.0, every=13.0, groups=40, clips=5, clip_seconds=2.0, labels="labels.npy"
)
EVENTS = Events(stimulus=Cell(column="block-{block}_subblock-{group}_clip-{clip}"))


def read(folder: Path, **fields: object) -> xr.DataArray:
    files: Mapping[str, Path] = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
    }
    said = {
        "recordings": ("EEG/sub{subject}.npy",),
        "sampling_rate": 200.0,
        "positions": "e.locs",
        "schedule": SCHEDULE,
        "window": Window(start=0.0, duration=2.0),
        "events": EVENTS,
        "preprocessing": Preprocessing(units="arbitrary"),
    }
    data = scheduled_arrays(files, **{**said, **fields}).assembly  # type: ignore[arg-type]
    assert data is not None
    return data


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """One block of the published length, 520 s at 200 Hz, with as few channels as a test needs."""
    positions(tmp_path / "e.locs", ["CZ", "PZ"])
    np.save(tmp_path / "labels.npy", np.arange(1.0, 41.0)[None])
    (tmp_path / "EEG").mkdir()
    np.save(
        tmp_path / "EEG/sub1.npy",
        np.arange(104_000.0)[None, None] + np.zeros((1, 2, 1)),
    )
    return tmp_path


def test_clips_start_at_the_published_times_and_the_last_ends_with_the_block(
    block: Path,
) -> None:
    values = read(block).values[:, 0]
    starts = values[:, 0].round().astype(int)
    authors = [
        3 * RATE + 13 * RATE * group + 2 * RATE * clip
        for group in range(40)
        for clip in range(5)
    ]
    # Samples count up, so that a window says where it begins; the units of the files are left as they are.
    assert starts.tolist() == authors and values[-1, -1].round() == 104_000 - 1


def test_only_one_block_is_in_memory(
    block: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(block / "labels.npy", np.tile(np.arange(1.0, 41.0), (3, 1)))
    np.save(
        block / "EEG/sub1.npy",
        np.random.default_rng(0).standard_normal((3, 2, 104_000)),
    )
    opened = np.load
    seen = []
    monkeypatch.setattr(
        np,
        "load",
        lambda path, **said: (
            (
                Path(path).parent in (block, block / "EEG")
                and seen.append(said.get("mmap_mode"))
            )
            or opened(path, **said)
        ),
    )
    assert read(block).sizes["presentation"] == 600
    assert set(seen) == {"r"}


def spoilt(block: Path, what: str) -> dict[str, object]:
    path = block / "EEG/sub1.npy"
    values = np.load(path)
    if what == "short":
        np.save(path, values[:, :, :-1])
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-5000])
    elif what == "blocks":
        np.save(path, np.concatenate([values, values]))
    elif what == "channels":
        positions(block / "e.locs", ["CZ", "PZ", "OZ"])
    elif what == "twice":
        positions(block / "e.locs", ["CZ", "CZ"])
    elif what == "nan":
        values[0, 1, 77] = np.nan
        np.save(path, values)
    elif what == "complex":
        np.save(path, values + 1j)
    elif what == "pickle":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif what == "labels":
        np.save(block / "labels.npy", np.arange(1.0, 40.0)[None])
    elif what == "half":
        np.save(block / "labels.npy", np.full((1, 40), 1.5))
    elif what == "gone":
        (block / "labels.npy").unlink()
    elif what == "electrodes":
        (block / "e.locs").write_text("no table" + chr(10))
    elif what == "named":
        path.rename(block / "EEG/person1.npy")
    elif what == "unknown":
        cell = Cell(column="label", values={"1": "cat"})
        return {
            "events": Events(stimulus=EVENTS.stimulus, coordinates={"concept": cell})
        }
    return {}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "short",
            r"EEG/sub1.npy, block 1 lasts 519.995 s, but its last window would end at 520 s",
        ),
        ("cut", r"EEG/sub1.npy cannot be read as a NumPy array"),
        (
            "blocks",
            r"EEG/sub1.npy has shape \(2, 2, 104000\); labels and electrodes need \(1 blocks, 2 channels",
        ),
        (
            "channels",
            r"EEG/sub1.npy has shape \(1, 2, 104000\); labels and electrodes need \(1 blocks, 3 channels",
        ),
        ("twice", r"e.locs has 2 lines for 1 electrodes: a name occurs twice"),
        (
            "nan",
            r"EEG/sub1.npy, block 1: channel PZ has values that are missing or infinite",
        ),
        ("complex", r"EEG/sub1.npy contains complex128, not real numbers"),
        ("pickle", r"EEG/sub1.npy cannot be read as a NumPy array"),
        (
            "labels",
            r"labels.npy has shape \(1, 39\); the schedule needs \(block, 40 groups\)",
        ),
        ("half", r"labels.npy: labels must be whole numbers"),
        ("gone", r"labels.npy is not among the files"),
        ("electrodes", r"e.locs cannot be read as positions of electrodes"),
        ("named", r"no array matches EEG/sub\{subject\}.npy: EEG/person1.npy"),
        ("unknown", r"EEG/sub1.npy, block 1, event 6: label is '2', not one of 1"),
    ],
)
def test_invalid_downloads_raise_one_error(block: Path, what: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(block, **spoilt(block, what))


def test_files_named_in_the_spec_must_be_present(place: Path, tmp_path: Path) -> None:
    folder = downloads(tmp_path / "SEED-DV", people=1)
    (folder / "channel_62_pos.locs").unlink()
    with pytest.raises(
        RequestError, match=r"lacks 1 files that the spec names: channel_62_pos.locs"
    ):
        pin(open_catalog(place), ID, Downloads(folder=folder))
    positions(folder / "channel_62_pos.locs")
    with pytest.raises(DataError, match=r"subject.* 20"):
        pin(open_catalog(place), ID, Downloads(folder=folder))
