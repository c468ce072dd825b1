"""Corpora with separate annotation files go from a folder of downloads to scores with the unmodified specs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.published_places import unpinned
from tests.families.signals.recording_files import edf, edf_annotations, night, texts

PEOPLE = 6


def noise(
    channels: list[str], seconds: int, rate: int, person: int
) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(person)
    return {name: rng.normal(size=seconds * rate) * 10 for name in channels}


def louder(
    signals: dict[str, NDArray[np.float64]],
    spans: list[tuple[float, float]],
    rate: int,
    gain: float,
) -> None:
    """Half of the channels are louder where something happens: what there is to decode."""
    for values in list(signals.values())[: (len(signals) + 1) // 2]:
        for start, stop in spans:
            values[int(start * rate) : int(stop * rate)] *= gain


def sleep_edf(folder: Path) -> None:
    for person in range(PEOPLE):
        signals = noise(
            ["EEG Fpz-Cz", "EEG Pz-Oz", "EOG horizontal", "Event marker"],
            600,
            100,
            person,
        )
        louder(signals, [(240, 480)], 100, 5)
        edf(folder / f"SC4{person:02d}1E0-PSG.edf", signals, 100)
        hypnogram = [
            (0, 240, "Sleep stage W"),
            (240, 240, "Sleep stage 2"),
            (480, 90, "Sleep stage W"),
        ]
        edf_annotations(
            folder / f"SC4{person:02d}1EC-Hypnogram.edf",
            [*hypnogram, (570, 9000, "Sleep stage ?")],
        )
    (folder / "RECORDS").write_text("not data")


def haaglanden(folder: Path) -> None:
    channels = [
        "EEG F4-M1",
        "EEG C4-M1",
        "EEG O2-M1",
        "EEG C3-M2",
        "EMG chin",
        "EOG E1-M2",
        "ECG",
    ]
    for person in range(PEOPLE):
        signals = noise(channels, 420, 256, person)
        louder(signals, [(120, 300)], 256, 5)
        edf(folder / "recordings" / f"SN00{person}.edf", signals, 256)
        stages = [
            (30 * n, 30, f"Sleep stage {'N2' if 4 <= n < 10 else 'W'}")
            for n in range(14)
        ]
        edf_annotations(
            folder / "recordings" / f"SN00{person}_sleepscoring.edf",
            [(0, 0, "Lights off@@EEG F4-A1"), *stages],
        )


def challenge(folder: Path) -> None:
    channels = ["F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1", "E1-M2", "SaO2"]
    for person in range(PEOPLE):
        name = f"tr03-000{person}"
        signals = noise(channels, 300, 200, person)
        louder(signals, [(120, 210)], 200, 5)
        night(folder / "training" / name / f"{name}.hea", signals, 200)
        marks = [
            (0, 0, "W"),
            (24000, 0, "N2"),
            (24000, 1, "(arousal_rera"),
            (42000, 1, "arousal_rera)"),
        ]
        marks += [(42000, 0, "W"), (54000, 0, "R")]
        texts(folder / "training" / name / f"{name}.arousal", marks)
        night(
            folder / "test" / f"te03-000{person}" / f"te03-000{person}.hea",
            signals,
            200,
        )


TEN_TWENTY = ["FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8"]
TEN_TWENTY += ["T3", "T4", "T5", "T6", "FZ", "CZ", "PZ"]


def events(folder: Path) -> None:
    channels = [f"EEG {name}-REF" for name in [*TEN_TWENTY, "A1", "A2", "EKG1"]]
    for person in range(PEOPLE):
        part, name = (
            ("eval", f"00{person}") if person < 2 else ("train", f"aaaaaaa{person}")
        )
        stem = f"bckg_00{person}_a_" if person < 2 else f"{name}_00000001"
        signals = noise(channels, 60, 250, person)
        spans = [(float(at), float(at + 1)) for at in range(10, 50, 8)]
        louder(signals, [(a - 1, b + 1) for a, b in spans], 250, 6)
        edf(folder / "edf" / part / name / f"{stem}.edf", signals, 250)
        lines = [
            f"{channel},{a:.1f},{b:.1f},{1 + i % 5}"
            for i, (a, b) in enumerate(spans)
            for channel in (3, 4)
        ]
        lines += [f"9,{a + 4:.1f},{b + 4:.1f},6" for a, b in spans]
        (folder / "edf" / part / name / f"{stem}.rec").write_text(
            "\n".join(lines) + "\n"
        )


def artefacts(folder: Path) -> None:
    kinds = ["eyem", "chew", "shiv", "elec", "musc", "eyem_musc"]
    for person in range(PEOPLE):
        reference = "LE" if person % 2 else "REF"
        signals = noise(
            [f"EEG {name}-{reference}" for name in [*TEN_TWENTY, "A1"]], 60, 250, person
        )
        spans = [(8.0 * n + 4, 8.0 * n + 7) for n in range(6)]
        louder(signals, spans, 250, 6)
        stem = folder / "edf" / f"0{person % 2 + 1}_tcp" / f"aaaaaaj{person}_s001_t000"
        edf(stem.with_suffix(".edf"), signals, 250)
        said = [
            "# version = csv_v1.0.0",
            "channel,start_time,stop_time,label,confidence",
        ]
        said += [
            f"F7-T3,{a},{b},{kind},1.0"
            for (a, b), kind in zip(spans, kinds, strict=True)
        ]
        stem.with_suffix(".csv").write_text("\n".join(said) + "\n")
        stem.with_name(f"{stem.name}_seiz.csv").write_text("\n".join(said[:2]) + "\n")


def seizures(folder: Path) -> None:
    channels = "FP1-F7 F7-T7 T7-P7 P7-O1 FP1-F3 F3-C3 C3-P3 P3-O1 FP2-F4 F4-C4 C4-P4 P4-O2 FP2-F8 F8-T8 T8-P8 P8-O2"
    for person in range(PEOPLE):
        signals = noise([*channels.split(), "FZ-CZ", "CZ-PZ"], 120, 256, person)
        louder(signals, [(40, 70)], 256, 6)
        stem = f"sub-0{person}_ses-01_task-szMonitoring_run-00"
        where = folder / f"sub-0{person}" / "ses-01" / "eeg"
        edf(where / f"{stem}_eeg.edf", signals, 256)
        said = [
            "onset\tduration\teventType\tconfidence\tchannels\tdateTime\trecordingDuration"
        ]
        said += ["40.0\t30.0\tsz_foc_ia\tn/a\tn/a\t2000-01-01 00:00:00\t120.00"]
        (where / f"{stem}_events.tsv").write_text("\n".join(said) + "\n")


NETWORK = """\
id: network
version: 1
title: A network that learns for two epochs, for several labels at once
builder: {name: network_decoder, architecture: eegnet, recipe: {name: laptop, epochs: 2}}
benchmarks: [decoding]
"""
CORPORA: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "Kemp2000Analysis.sleep_stage": (sleep_edf, "neuralbench.eeg.sleep_stage", 12),
    "Kemp2000Analysis.sleep_onset": (sleep_edf, "neuralbench.eeg.sleep_onset", 12),
    "Alvarez2022Haaglanden.sleep_stage": (
        haaglanden,
        "neuralbench.eeg.sleep_stage.alvarez2022haaglanden",
        12,
    ),
    "Alvarez2022Haaglanden.sleep_onset": (
        haaglanden,
        "neuralbench.eeg.sleep_onset.alvarez2022haaglanden",
        12,
    ),
    "Ghassemi2018You.sleep_stage": (
        challenge,
        "neuralbench.eeg.sleep_stage.ghassemi2018you",
        18,
    ),
    "Ghassemi2018You.sleep_onset": (
        challenge,
        "neuralbench.eeg.sleep_onset.ghassemi2018you",
        18,
    ),
    "Ghassemi2018You.sleep_arousal": (challenge, "neuralbench.eeg.sleep_arousal", 18),
    "Harati2015Tuev": (events, "neuralbench.eeg.clinical_event", 12),
    "Hamid2020Tuar": (artefacts, "neuralbench.eeg.artifact", 12),
    "Dan2023Bids": (seizures, "neuralbench.eeg.seizure", 12),
}


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Callable[[str], Path]:
    """A repository with one data set as it is specified, but for the number of people, and its benchmark."""

    def made(id: str) -> Path:
        root = tmp_path / "place"
        for kind in ("datasets", "benchmarks", "models", "metrics"):
            (root / "specs" / kind).mkdir(parents=True)
        for name in (
            "dummy",
            "covariance_logistic",
            "covariance_ridge",
            "shuffled_covariance",
            "shuffled_covariance_ridge",
        ):
            shutil.copy(
                repository / "specs" / "models" / f"{name}.yaml",
                root / "specs" / "models",
            )
        for name in ("balanced_accuracy", "macro_f1", "binned_mae"):
            shutil.copy(
                repository / "specs" / "metrics" / f"{name}.yaml",
                root / "specs" / "metrics",
            )
        (root / "specs" / "models" / "network.yaml").write_text(NETWORK)
        shutil.copy(repository / "specs" / "references.bib", root / "specs")
        shutil.copy(repository / "params.yaml", root)
        (root / "dvc.yaml").write_text("stages: {}\n")
        benchmark = CORPORA[id][1]
        asked = (repository / "specs" / "benchmarks" / f"{benchmark}.yaml").read_text()
        # Forty windows of two people: permuted labels reach a third of the way by chance.
        asked = asked.replace(
            "negative: [shuffled_covariance]",
            "negative: [shuffled_covariance], floor_at_most: 1.0",
        )
        (root / "specs" / "benchmarks" / f"{benchmark}.yaml").write_text(asked)
        text = unpinned(repository, id)
        lines = [
            line[: line.index("count:")] + f"count: {PEOPLE}}}"
            if "column: subject" in line
            else line
            for line in text.splitlines()
        ]
        (root / "specs" / "datasets" / f"{id}.yaml").write_text("\n".join(lines) + "\n")
        return root

    return made


@pytest.mark.parametrize("id", CORPORA)
@pytest.mark.slow
def test_downloads_are_scored_through_the_command_line(
    id: str,
    place: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, folder = place(id), tmp_path / "download"
    write, benchmark, count = CORPORA[id]
    write(folder)
    monkeypatch.chdir(root)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    assert main(["pin", id, "--from", str(folder)]) == 0
    assert f"pinned {count} files of {PEOPLE} subjects" in (
        said := capsys.readouterr().out
    )
    assert ("6 recordings do not match" in said) == (write is challenge)
    assert main(["pin", id, "--from", str(folder)]) == 0
    assert "already pinned and in place" in capsys.readouterr().out
    assert main(["validate", id]) == 0
    multilabel = write in (events, artefacts)
    model = (
        "network"
        if multilabel
        else "covariance_ridge"
        if "onset" in id
        else "covariance_logistic"
    )
    assert main(["run", model, "dummy", "--benchmark", benchmark]) == 0
    records = root / "results" / "records" / benchmark
    found = {path.stem: json.loads(path.read_text()) for path in records.glob("*.json")}
    assert {record["status"] for record in found.values()} == {"scored"}
    if model == "covariance_logistic":
        assert found[model]["score"]["value"] > 0.4
        assert abs(found["dummy"]["score"]["value"]) < 1e-9


def test_sleep_windows_have_the_published_channels_sessions_and_stages(
    place: Callable[[str], Path], tmp_path: Path
) -> None:
    root = place("Kemp2000Analysis.sleep_stage")
    sleep_edf(tmp_path / "download")
    pin(
        open_catalog(root),
        "Kemp2000Analysis.sleep_stage",
        Downloads(folder=tmp_path / "download"),
    )
    windows = load_dataset(open_catalog(root), "Kemp2000Analysis.sleep_stage").assembly
    assert windows is not None
    assert windows.sizes == {"presentation": 19 * PEOPLE, "channel": 2, "sample": 3600}
    assert windows["channel_id"].values.tolist() == ["Fpz-Cz", "Pz-Oz"]
    assert sorted(set(windows["subject"].values.tolist())) == [
        f"{person:02d}" for person in range(PEOPLE)
    ]
    assert set(windows["session"].values.tolist()) == {"1"}
    assert (windows["label"].values == "N2").sum() == 8 * PEOPLE


def test_splits_and_subjects_are_read_from_folder_names(
    place: Callable[[str], Path], tmp_path: Path
) -> None:
    root = place("Harati2015Tuev")
    events(tmp_path / "download")
    pin(open_catalog(root), "Harati2015Tuev", Downloads(folder=tmp_path / "download"))
    windows = load_dataset(open_catalog(root), "Harati2015Tuev").assembly
    assert windows is not None
    assert windows.sizes == {"presentation": 10 * PEOPLE, "channel": 21, "sample": 360}
    assert (windows["split"].values == "eval").sum() == 20
    assert windows["bckg"].values.sum() == windows["split"].size / 2
    assert windows["spsw"].values.sum() == PEOPLE


def unpair(folder: Path) -> None:
    (folder / "SC4031EC-Hypnogram.edf").unlink()


def double(folder: Path) -> None:
    shutil.copy(folder / "SC4031EC-Hypnogram.edf", folder / "SC4031EH-Hypnogram.edf")


def unknown(folder: Path) -> None:
    edf_annotations(folder / "SC4031EC-Hypnogram.edf", [(0, 60, "Sleep stage N2")])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            unpair,
            DataError,
            r"SC4031E0-PSG\.edf has no annotations: the file SC4031\?\?-Hypnogram\.edf is missing",
        ),
        (double, DataError, r"SC4031E0-PSG\.edf has 2 files of annotations"),
        (unknown, DataError, r"'Sleep stage N2' at 0 s is unknown"),
        (
            lambda folder: (folder / "SC4031E0-PSG.edf").unlink(),
            RequestError,
            r"expects 6 subjects, .* contains 5",
        ),
    ],
)
def test_pin_refuses_invalid_downloads_and_writes_nothing(
    place: Callable[[str], Path],
    tmp_path: Path,
    change: Any,
    error: type[Exception],
    message: str,
) -> None:
    id = "Kemp2000Analysis.sleep_stage"
    root, folder = place(id), tmp_path / "download"
    sleep_edf(folder)
    change(folder)
    with pytest.raises(error, match=message):
        pin(open_catalog(root), id, Downloads(folder=folder))
    assert "unavailable" in (root / "specs" / "datasets" / f"{id}.yaml").read_text()
    assert not (root / "data").exists()


def test_separate_annotations_are_refused_with_bids(
    place: Callable[[str], Path], tmp_path: Path
) -> None:
    root = place("Dan2023Bids")
    seizures(tmp_path / "download")
    with pytest.raises(RequestError, match="omit --bids"):
        pin(
            open_catalog(root),
            "Dan2023Bids",
            Downloads(folder=tmp_path / "download", bids=True, task="szMonitoring"),
        )
