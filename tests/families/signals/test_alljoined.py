"""Alljoined-1.6M: small simulated files in the layout of NEMAR's version 1.0.3 are pinned, validated, scored and refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuroledger.cli import main
from neuroledger.data import assembly
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError, UnavailableError
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.published_places import pinned, place_of, scored, windows
from tests.families.signals.recording_files import edf

ID, BENCHMARK = "Xu2025Alljoined", "neuralbench.eeg.image.xu2025alljoined"
RATE, PEOPLE, FEATURES = 256, 20, 4
CHANNELS = (
    *(
        "Cz",
        "Fp1",
        "F7",
        "F3",
        "CP5",
        "CP1",
        "P1",
        "P3",
        "P5",
        "P7",
        "PO9",
        "PO7",
        "PO3",
        "O1",
        "O9",
        "Pz",
    ),
    *(
        "POz",
        "Oz",
        "O10",
        "O2",
        "PO4",
        "PO8",
        "PO10",
        "P8",
        "P6",
        "P4",
        "P2",
        "CP2",
        "CP6",
        "F4",
        "F8",
        "Fp2",
    ),
)
HEADER = "onset\tduration\ttrial_type\tvalue\tsample\tmarker_index\tstim_file"
TRAINED, TESTED = range(30), range(16540, 16552)
SPECS = {
    "datasets": [ID],
    "benchmarks": [BENCHMARK],
    "metrics": ["top5_retrieval"],
    "models": ["dummy", "covariance_ridge"],
}


def features() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(5)
    return {image: rng.standard_normal(FEATURES) for image in (*TRAINED, *TESTED)}


def run(
    folder: Path, stem: str, images: list[int], seed: int, *, planted: bool
) -> None:
    """One run as it is published: power that tells each image, an answer, a target of the side task, a `debug` marker."""
    rng = np.random.default_rng(seed)
    known = features()
    values = rng.standard_normal((len(CHANNELS), (len(images) + 5) * RATE)) * 10.0
    kind = "stim_test" if images[0] >= TESTED[0] else "stim_train"
    rows = []
    for number, image in enumerate(images):
        sample = int((1.0 + 1.1 * number) * RATE)
        rows.append((sample, kind, f"{image}", f"{image:05d}.jpg"))
        if planted:
            louder = np.exp(0.7 * np.repeat(known[image], len(CHANNELS) // FEATURES))
            values[:, sample : sample + int(0.8 * RATE)] *= louder[:, None]
    end = int((1.0 + 1.1 * len(images)) * RATE)
    rows += [
        (end, "oddball", "16748", "16748.jpg"),
        (end + 50, "behav", "3", "n/a"),
        (end + 70, "debug", "1", "n/a"),
    ]
    if stem in ("sub-01_ses-01_task-images_run-01", "sub-02_ses-01_task-images_run-05"):
        # The stream of markers stalled: two images, or an image and an answer, with one onset.
        first = rows[0]
        rows += [(first[0], kind, "7", "00007.jpg"), (rows[1][0], "behav", "0", "n/a")]
    rows.sort(key=lambda row: row[0])
    lines = [
        f"{sample / RATE}\t0.0\t{kind}\t{value}\t{sample}\t{number}\t{file}"
        for number, (sample, kind, value, file) in enumerate(rows, 1)
    ]
    channels = [
        "Afz" if name == "Cz" and stem.startswith("sub-03") else name
        for name in CHANNELS
    ]
    channels = ["AFz" if name == "Cz" else name for name in channels]
    edf(folder / f"{stem}_eeg.edf", dict(zip(channels, values, strict=True)), RATE)
    (folder / f"{stem}_events.tsv").write_text(
        "\n".join([HEADER, *lines]) + "\n", encoding="utf-8"
    )
    (folder / f"{stem}_events.json").write_text(
        json.dumps({"stim_file": {"Description": "Image"}})
    )
    (folder / f"{stem}_eeg.json").write_text(
        json.dumps(
            {
                "TaskName": "images",
                "SamplingFrequency": RATE,
                "PowerLineFrequency": "n/a",
            }
        )
    )
    kinds = "".join(f"{name}\tEEG\tµV\n" for name in channels)
    (folder / f"{stem}_channels.tsv").write_text(
        "name\ttype\tunits\n" + kinds, encoding="utf-8"
    )


def downloads(root: Path, *, planted: bool = True) -> Path:
    root.mkdir()
    (root / "dataset_description.json").write_text(
        json.dumps(
            {"Name": "Alljoined-1.6M", "BIDSVersion": "1.9.0", "DatasetType": "raw"}
        )
    )
    (root / "participants.tsv").write_text(
        "participant_id\n" + "".join(f"sub-{n:02d}\n" for n in range(1, PEOPLE + 1))
    )
    (root / "README.md").write_text("Alljoined-1.6M\n")
    for aside in ("sourcedata/sub-01", "code", "stimuli"):
        (root / aside).mkdir(parents=True)
        (root / aside / "00000.jpg").write_bytes(b"not read")
    sessions = [(person, "01") for person in range(1, PEOPLE + 1)] + [(8, "02old")]
    for person, session in sessions:
        rng = np.random.default_rng(person)
        above = root / f"sub-{person:02d}" / f"ses-{session}"
        name = f"sub-{person:02d}_ses-{session}"
        for number, images in (("01", TESTED), ("05", TRAINED)):
            shown = rng.permutation(list(images)).tolist()
            run(
                above / "eeg",
                f"{name}_task-images_run-{number}",
                shown,
                100 * person + int(number),
                planted=planted,
            )
        (above / f"{name}_scans.tsv").write_text(
            "filename\tacq_time\n"
            + "".join(
                f"eeg/{name}_task-images_run-{n}_eeg.edf\tn/a\n" for n in ("01", "05")
            )
        )
    known = features()
    table = xr.DataArray(
        np.stack(list(known.values())),
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", [f"{image:05d}.jpg" for image in known])},
    )
    assembly.write(table, root / "embedding.nc")
    return root


@pytest.mark.slow
def test_image_retrieval_works_through_the_command_line(
    tmp_path: Path, repository: Path
) -> None:
    place = place_of(tmp_path / "place", repository, SPECS)
    files = pinned(place, ID, downloads(tmp_path / "nm000134"))
    assert "embedding.nc" in files and not {
        name for name in files if "02old" in name or "stimuli" in name
    }
    assert sum(name.endswith("_eeg.edf") for name in files) == 2 * PEOPLE
    records = scored(place, BENCHMARK, ID, SPECS["models"])
    assert records["covariance_ridge"]["score"]["raw"] > 0.9
    said = "6 events in 2 recordings were left out: another marker shares their moment"
    assert all(said in record["score"]["notes"] for record in records.values())
    data = windows(place, ID)
    assert data.sizes == {"presentation": 42 * PEOPLE - 4, "channel": 32, "sample": 120}
    assert data["channel_id"].values[0] == "AFz" and set(
        data["session"].values.tolist()
    ) == {"01"}
    tested = data["split"].values == "test"
    assert set(data["stimulus_id"].values[tested].tolist()) == {
        f"{image:05d}.jpg" for image in TESTED
    }
    assert not set(data["stimulus_id"].values[tested]) & set(
        data["stimulus_id"].values[~tested]
    )


@pytest.mark.slow
def test_without_a_planted_response_retrieval_is_at_chance(
    tmp_path: Path, repository: Path
) -> None:
    place = place_of(tmp_path / "place", repository, SPECS)
    pinned(place, ID, downloads(tmp_path / "nm000134", planted=False))
    score = scored(place, BENCHMARK, ID, ["covariance_ridge"])["covariance_ridge"][
        "score"
    ]
    assert abs(score["raw"] - 5 / len(TESTED)) < 0.12


EVENTS = "sub-04/ses-01/eeg/sub-04_ses-01_task-images_run-05_events.tsv"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (EVENTS, "00003.jpg", "n/a", "run-05_eeg.edf, event .*: stim_file is empty"),
        (
            EVENTS,
            "1.0\t0.0",
            "n/a\t0.0",
            "run-05_eeg.edf, event 1: its onset is 'n/a', not a number of seconds",
        ),
        (
            EVENTS,
            "00003.jpg",
            "99999.jpg",
            "1 of 42 stimuli of the recordings have no embedding, first 99999.jpg",
        ),
    ],
)
@pytest.mark.slow
def test_pin_refuses_invalid_downloads_and_writes_nothing(
    tmp_path: Path, repository: Path, name: str, old: str, new: str, words: str
) -> None:
    place = place_of(tmp_path / "place", repository, SPECS)
    folder = downloads(tmp_path / "nm000134")
    path = folder / name
    lines = path.read_text(encoding="utf-8")
    assert old in lines
    path.write_text(lines.replace(old, new, 1), encoding="utf-8")
    before = (place / f"specs/datasets/{ID}.yaml").read_text()
    if words.startswith(
        "1 of 42"
    ):  # another one shows 00003.jpg; this one shows what nobody knows
        words = "1 of 43 stimuli"
    with pytest.raises(DataError, match=words):
        pin(open_catalog(place), ID, Downloads(folder=folder))
    assert (place / f"specs/datasets/{ID}.yaml").read_text() == before and not (
        place / "data"
    ).exists()


def test_a_missing_subject_is_an_error(tmp_path: Path, repository: Path) -> None:
    place = place_of(tmp_path / "place", repository, SPECS)
    folder = downloads(tmp_path / "nm000134")
    for path in (folder / "sub-20").rglob("*_eeg.edf"):
        path.unlink()
    with pytest.raises(
        RequestError, match=r"Xu2025Alljoined expects 20 subjects, .* contains 19"
    ):
        pin(open_catalog(place), ID, Downloads(folder=folder))
    assert main(["--root", str(place), "pin", ID, "--from", str(folder)]) != 0
    with pytest.raises(UnavailableError, match="Xu2025Alljoined"):
        load_dataset(open_catalog(place), ID)


def test_a_release_without_image_names_is_refused(
    tmp_path: Path, repository: Path
) -> None:
    place = place_of(tmp_path / "place", repository, SPECS)
    folder = downloads(tmp_path / "nm000134")
    for path in folder.rglob("*_events.tsv"):
        rows = [
            line.split("\t")
            for line in path.read_text(encoding="utf-8").splitlines()[1:]
        ]
        packed = [
            f"{r[0]}\t{r[1]}\t{r[2]},{r[3]},-1,{r[5]}\t{r[5]}\t{r[4]}" for r in rows
        ]
        text = "\n".join(["onset\tduration\ttrial_type\tvalue\tsample", *packed]) + "\n"
        path.write_text("\ufeff" + text, encoding="utf-8")
    with pytest.raises(
        DataError, match=r"sub-01_.*has no column stim_file; it has .*trial_type"
    ):
        pin(open_catalog(place), ID, Downloads(folder=folder))
