"""Folders of simulated recordings in many formats, and the same files opened by MNE and other peers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pandas as pd
import pytest
import yaml

from tests.families.signals.biosemi_files import bdf
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.ctf_files import GRADIOMETER, STIMULUS, ctf
from tests.families.signals.maker_files import cnt, gdf, kit
from tests.families.signals.plus_files import plus
from tests.families.signals.xdf_files import Marker, Samples, xdf

CHANNELS = ["C3", "Cz", "C4", "P3", "Pz", "P4"]
RATE = 128
KINDS = ("left", "right")


def as_raw(microvolts: np.ndarray, events: list[tuple[int, int]]) -> Any:
    raw = mne.io.RawArray(
        microvolts * 1e-6, mne.create_info(CHANNELS, RATE, "eeg"), verbose="ERROR"
    )
    onsets, kinds = [at / RATE for at, _ in events], [KINDS[kind] for _, kind in events]
    raw.set_annotations(mne.Annotations(onsets, 0.0, kinds))
    return raw


def coded(events: list[tuple[int, int]], first: int = 1) -> list[tuple[int, int]]:
    return [(at, first + kind) for at, kind in events]


# --- how each format is written ------------------------------------------------------------------------------------------


def write_gdf(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    gdf(path, CHANNELS, x, RATE, coded(events, 769))


def write_cnt(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    cnt(path, CHANNELS, x, RATE, coded(events))


def write_kit(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    kit(path, len(CHANNELS), 20 * x, RATE, coded(events))


def write_ctf(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    codes = np.zeros((1, x.shape[1]))
    for at, code in coded(events):
        codes[0, at : at + 4] = code
    # A count of a sensor is 1 / (1.8e9 × 1048576) T.
    counts = np.concatenate([20e-15 * x * 1.8e9 * 1048576, codes]).round().astype(int)
    named = [*((f"M{one}", GRADIOMETER) for one in CHANNELS), ("UPPT001", STIMULUS)]
    ctf(path, named, counts, rate=RATE)


def write_epochs(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    raw = as_raw(x, events)
    epochs, ids = mne.events_from_annotations(raw, verbose="ERROR")
    cut = mne.Epochs(
        raw, epochs, ids, -0.25, 1.0, baseline=None, preload=True, verbose="ERROR"
    )
    if path.suffix == ".set":
        pytest.importorskip("eeglabio")
        # EEGLAB counts samples over epochs that follow each other, and the annotations are those of the recording.
        cut = cut.set_annotations(None)
        cut.events[:, 0] = np.arange(len(cut)) * len(cut.times) + round(0.25 * RATE)
        mne.export.export_epochs(path, cut, fmt="eeglab", verbose="ERROR")
    else:
        cut.save(path, verbose="ERROR")


def write_plus(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    plus(
        path, CHANNELS, x, RATE, [(at / RATE, 0.0, KINDS[kind]) for at, kind in events]
    )


def write_bdf(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    bdf(path, CHANNELS, x, RATE, coded(events))


def write_dat(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    """A BrainVision recording whose samples are in a `.dat` file, as older recorders write it."""
    marks = [(at, f"S{code:3d}") for at, code in coded(events)]
    brainvision(path.parent, path.stem, CHANNELS, x, RATE, marks)
    path.with_suffix(".eeg").rename(path.with_suffix(".dat"))
    for one in (path, path.with_suffix(".vmrk")):
        one.write_text(
            one.read_text("utf-8").replace(f"{path.stem}.eeg", f"{path.stem}.dat"),
            "utf-8",
        )


def write_xdf(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    pytest.importorskip("pyxdf")
    stamps = 100.0 + np.arange(x.shape[1]) / RATE
    amplifier = Samples(
        x.T, RATE, stamps, labels=CHANNELS, units=["microvolts"] * len(CHANNELS)
    )
    xdf(
        path,
        amplifier,
        Marker([(100.0 + at / RATE, KINDS[kind]) for at, kind in events]),
    )


def write_table(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    said = np.full(x.shape[1], "", dtype=object)
    for at, kind in events:
        said[at : at + 3] = KINDS[kind]
    table = pd.DataFrame(x.T, columns=CHANNELS).assign(event=said)
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)


def write_nwb(path: Path, x: np.ndarray, events: list[tuple[int, int]]) -> None:
    """Whole numbers of 0.1 µV, as amplifiers write them, with a gain for each channel and an offset."""
    pynwb = pytest.importorskip("pynwb")
    person, session = path.stem.split("_")
    nwb_file = pynwb.NWBFile(
        "simulated", path.stem, datetime(2026, 1, 1, tzinfo=UTC), session_id=session
    )
    nwb_file.subject = pynwb.file.Subject(subject_id=person)
    nwb_file.add_trial_column("side", "which")
    for at, kind in events:
        nwb_file.add_trial(
            start_time=at / RATE, stop_time=at / RATE + 1.0, side=KINDS[kind]
        )
    device = nwb_file.create_device("amplifier")
    group = nwb_file.create_electrode_group("all", "all", "scalp", device)
    for _ in CHANNELS:
        nwb_file.add_electrode(group=group, location="scalp")
    region = nwb_file.create_electrode_table_region(list(range(len(CHANNELS))), "all")
    gains = np.linspace(0.5, 1.5, len(CHANNELS))
    nwb_file.add_acquisition(
        pynwb.ecephys.ElectricalSeries(
            "eeg",
            np.round(x.T * 10 / gains).astype(np.int16),
            region,
            rate=float(RATE),
            conversion=1e-7,
            channel_conversion=gains,
            offset=2e-6,
        )
    )
    with pynwb.NWBHDF5IO(str(path), "w") as io:
        io.write(nwb_file)


# --- how the peer opens it -----------------------------------------------------------------------------------------------


def by_annotations(
    read: Callable[..., Any], names: tuple[str, str] = KINDS
) -> Callable[[Path], Any]:
    def opened(path: Path) -> Any:
        raw = read(path, preload=True, verbose="ERROR")
        ids = {name: number for number, name in enumerate(names)}
        return _cut(
            raw, mne.events_from_annotations(raw, ids, verbose="ERROR")[0], "eeg"
        )

    return opened


def by_codes(
    read: Callable[..., Any], kind: str, mask: int | None = None
) -> Callable[[Path], Any]:
    def opened(path: Path) -> Any:
        raw = read(path, preload=True, verbose="ERROR")
        masked = {} if mask is None else {"mask": mask, "mask_type": "and"}
        events = mne.find_events(raw, shortest_event=1, verbose="ERROR", **masked)
        events[:, 2] -= 1
        return _cut(raw, events, kind)

    return opened


def by_hand(
    read: Callable[[Path], tuple[np.ndarray, list[tuple[int, int]]]],
) -> Callable[[Path], Any]:
    def opened(path: Path) -> Any:
        x, events = read(path)
        raw = mne.io.RawArray(
            x * 1e-6, mne.create_info(len(x), RATE, "eeg"), verbose="ERROR"
        )
        return _cut(raw, np.array([(at, 0, kind) for at, kind in events]), "eeg")

    return opened


def _cut(raw: Any, events: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    raw.pick(kind).filter(4.0, 40.0, picks="all", verbose="ERROR")
    cut = mne.Epochs(
        raw,
        events,
        tmin=0,
        tmax=1 - 1 / RATE,
        baseline=None,
        preload=True,
        verbose="ERROR",
    )
    return cut.get_data(copy=True) * (1e6 if kind == "eeg" else 1e15), cut.events[:, 2]


def peer_epochs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if path.suffix == ".set":
        cut = mne.read_epochs_eeglab(path, verbose="ERROR")
    else:
        cut = mne.read_epochs(path, verbose="ERROR")
    names = {code: KINDS.index(name) for name, code in cut.event_id.items()}
    zero = round(0.25 * RATE)
    x = cut.get_data(copy=True)[:, :, zero : zero + RATE] * 1e6
    return x, np.array([names[code] for code in cut.events[:, 2]])


def peer_xdf(path: Path) -> tuple[np.ndarray, list[tuple[int, int]]]:
    import pyxdf

    streams = {one["info"]["type"][0]: one for one in pyxdf.load_xdf(path)[0]}
    begin = streams["EEG"]["time_stamps"][0]
    marks = zip(
        streams["Markers"]["time_stamps"],
        streams["Markers"]["time_series"],
        strict=True,
    )
    events = [
        (round((time - begin) * RATE), KINDS.index(said[0])) for time, said in marks
    ]
    return streams["EEG"]["time_series"].T.astype(float), events


def peer_table(path: Path) -> tuple[np.ndarray, list[tuple[int, int]]]:
    table = (
        pd.read_parquet(path)
        if path.suffix == ".parquet"
        else pd.read_csv(path, keep_default_na=False)
    )
    said = table["event"].tolist()
    starts = [at for at in range(1, len(said)) if said[at] and said[at] != said[at - 1]]
    return table[CHANNELS].to_numpy().T, [(at, KINDS.index(said[at])) for at in starts]


def peer_nwb(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import pynwb

    with pynwb.NWBHDF5IO(str(path), "r") as io:
        nwb_file = io.read()
        x = nwb_file.acquisition["eeg"].get_data_in_units().T * 1e6
        trials = nwb_file.trials.to_dataframe()
    at = (trials["start_time"] * RATE).round().astype(int)
    return np.stack([x[:, one : one + RATE] for one in at]), np.array(
        [*map(KINDS.index, trials["side"])]
    )


# --- formats -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A format: its writer, the peer's reader, and the fields of the spec."""

    ending: str
    write: Callable[[Path, np.ndarray, list[tuple[int, int]]], None]
    peer: Callable[[Path], tuple[np.ndarray, np.ndarray]]
    labels: tuple[str, str] = KINDS
    reader: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, Any] = field(
        default_factory=lambda: {"high_pass": 4.0, "low_pass": 40.0}
    )
    modality: str = "eeg"


MEG = {"pick": ["meg"], "units": "fT", "high_pass": 4.0, "low_pass": 40.0}
IN_MICROVOLTS = {"stated": "uV", "high_pass": 4.0, "low_pass": 40.0}
TABLE = {"table": {"sampling_rate": RATE, "event": "event"}}
FORMATS = {
    "gdf": Format(
        "{}.gdf",
        write_gdf,
        by_annotations(mne.io.read_raw_gdf, ("769", "770")),
        ("769", "770"),
    ),
    "cnt": Format(
        "{}.cnt", write_cnt, by_annotations(mne.io.read_raw_cnt, ("1", "2")), ("1", "2")
    ),
    "kit": Format(
        "{}.con",
        write_kit,
        by_codes(mne.io.read_raw_kit, "meg"),
        ("1", "2"),
        steps=MEG,
        modality="meg",
    ),
    "ctf": Format(
        "{}.ds",
        write_ctf,
        by_codes(mne.io.read_raw_ctf, "meg"),
        ("1", "2"),
        steps=MEG,
        modality="meg",
    ),
    "epochs-set": Format(
        "{}.set", write_epochs, peer_epochs, reader={"epoched": True}, steps={}
    ),
    "epochs-fif": Format(
        "{}-epo.fif", write_epochs, peer_epochs, reader={"epoched": True}, steps={}
    ),
    "edf-annotations": Format(
        "{}.edf", write_plus, by_annotations(mne.io.read_raw_edf)
    ),
    "bdf-annotations": Format(
        "{}.bdf", write_plus, by_annotations(mne.io.read_raw_bdf)
    ),
    "bdf-status": Format(
        "{}.bdf", write_bdf, by_codes(mne.io.read_raw_bdf, "eeg", 0xFFFF), ("1", "2")
    ),
    "brainvision-dat": Format(
        "{}.vhdr",
        write_dat,
        by_annotations(mne.io.read_raw_brainvision, ("Stimulus/S  1", "Stimulus/S  2")),
        ("Stimulus/S  1", "Stimulus/S  2"),
    ),
    "xdf": Format("{}.xdf", write_xdf, by_hand(peer_xdf)),
    "csv": Format(
        "{}.csv", write_table, by_hand(peer_table), reader=TABLE, steps=IN_MICROVOLTS
    ),
    "parquet": Format(
        "{}.parquet",
        write_table,
        by_hand(peer_table),
        reader=TABLE,
        steps=IN_MICROVOLTS,
    ),
    "nwb": Format("{}.nwb", write_nwb, peer_nwb, modality="ieeg"),
}


def reader_of(one: Format) -> dict[str, Any]:
    if one.ending == "{}.nwb":
        told = {
            "window": {"duration": 1.0},
            "series": "eeg",
            "facts": {"label": "side"},
        }
        return {"name": "nwb_trials", **told}
    window = {
        "start": 0.0,
        "duration": 1.0,
        "labels": dict(zip(one.labels, KINDS, strict=True)),
    }
    return {
        "name": "mne_epochs",
        "recordings": [],
        "named": {one.ending.format("{subject}_{session}"): {}},
        "window": window,
        "preprocessing": one.steps,
        **one.reader,
    }


def place_of(
    root: Path,
    one: Format,
    *,
    people: int,
    files: Sequence[Path] = (),
    benchmarks: Sequence[str] = (),
) -> Path:
    """A repository with the spec of a data set of this format that is not pinned, and with these files below `specs`.

    Each benchmark is the name of its rule and its paradigm, `within: {name: decoding, …}`.
    """
    for path in files:
        inside = (
            path.name
            if path.parent.name == "specs"
            else f"{path.parent.name}/{path.name}"
        )
        target = root / "specs" / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for kind in ("datasets", "benchmarks"):
        (root / "specs" / kind).mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    spec = {
        "id": "Mine",
        "version": 1,
        "title": "Simulated recordings",
        "license": "CC0-1.0",
        "modality": one.modality,
        "access_steps": ["Written by a test."],
        "reader": reader_of(one),
        "expectations": {
            "assembly": [{"check": "distinct", "column": "subject", "count": people}]
        },
        "unavailable": "not pinned yet",
    }
    text = "# yaml-language-server: $schema=../schema/{}.json\n"
    (root / "specs/datasets/Mine.yaml").write_text(
        text.format("dataset") + yaml.safe_dump(spec, sort_keys=False)
    )
    for said in benchmarks:
        name, paradigm = said.split(": ", 1)
        (root / f"specs/benchmarks/Mine-{name}.yaml").write_text(
            text.format("benchmark")
            + f"id: Mine-{name}\nversion: 1\ntitle: Which hand\nparent: {one.modality}\ndataset: Mine\n"
            + f"paradigm: {paradigm}\nmetrics: [auroc]\nfloor: {{dummy: dummy}}\n"
        )
    return root
