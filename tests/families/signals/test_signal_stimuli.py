"""Events that name stimuli, in the layouts of the published image sets, read by the repository's specs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml
from pydantic import ValidationError

from neuroledger.data import assembly
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import Recording
from neuroledger.families.signals.recordings.signal_stimuli import (
    Cell,
    Events,
    show,
    table_of,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec import registry
from tests.families.signals.recording_files import edf

RATE, CHANNELS = 500, ("C1", "C2", "C3")
TABLES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Gifford2022Large": {
        "sub-01_task-train": (
            "onset\tduration\ttrial_type\ttot_img_number\tcategory_name",
            "5.0\t0.1\timage\t3\t00001_aardvark",
            "5.2\t0.1\ttarget\tn/a\tn/a",
        ),
        "sub-01_task-test": (
            "onset\tduration\ttrial_type\ttot_img_number\tcategory_name",
            "5.0\t0.1\timage\t3\t00003_backscratcher",
        ),
    },
    "Grootswagers2022Human": {
        "sub-01_task-rsvp": (
            "onset\tduration\tobject\tstim\tstimname",
            "5.0\t50\tcarousel\tstimuli\\carousel\\carousel_11s.jpg\tcarousel_11s.jpg",
        ),
        "sub-02_task-rsvp": (
            "onset\tduration\tisteststim\tstim\tstimname",
            "5.0\t50\t0\tstimuli\\zebra\\zebra_01b.jpg\tzebra_01b.jpg",
            "6.1\t50\t1\tstimuli\\vase\\vase_19n.jpg\tvase_19n.jpg",
        ),
    },
    "Xu2024Alljoined": {
        "sub-01_ses-01_task-images": (
            "onset\tduration\ttrial_type\tvalue\tsample\tstim_file",
            "5.0\t0.0\timage/99\t99\t1147\tnsd/8631.png",
            "5.8\t0.0\timage/11\t11\t1561\tnsd/3434.png",
        ),
    },
}
FOUND: Mapping[str, list[tuple[str, str]]] = {
    "Gifford2022Large": [("test/3", "test"), ("train/3", "train")],
    "Grootswagers2022Human": [
        ("carousel_11s.jpg", "train"),
        ("zebra_01b.jpg", "train"),
        ("vase_19n.jpg", "test"),
    ],
    "Xu2024Alljoined": [
        ("nsd/8631.png", "nsd/8631.png"),
        ("nsd/3434.png", "nsd/3434.png"),
    ],
}


def embedded(path: Path, stimuli: Sequence[str]) -> None:
    values = np.random.default_rng(0).standard_normal((len(stimuli), 4))
    table = xr.DataArray(
        values,
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", list(stimuli))},
    )
    assembly.write(table, path)


def bids(root: Path, tables: Mapping[str, Sequence[str]]) -> None:
    root.mkdir()
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": "Seen", "BIDSVersion": "1.8.0"})
    )
    for number, (stem, lines) in enumerate(tables.items()):
        rng = np.random.default_rng(number)
        folder = root.joinpath(
            *(part for part in stem.split("_") if part[:3] in ("sub", "ses")), "eeg"
        )
        edf(
            folder / f"{stem}_eeg.edf",
            {name: rng.standard_normal(20 * RATE) * 10 for name in CHANNELS},
            RATE,
        )
        (folder / f"{stem}_events.tsv").write_text("\n".join(lines) + "\n")
        kinds = "".join(f"{name}\tEEG\tuV\n" for name in CHANNELS)
        (folder / f"{stem}_channels.tsv").write_text("name\ttype\tunits\n" + kinds)
        (folder / f"{stem}_eeg.json").write_text(
            json.dumps({"TaskName": stem.rsplit("-", 1)[1], "PowerLineFrequency": 50})
        )


def reader_of(repository: Path, id: str) -> dict[str, Any]:
    spec = yaml.safe_load((repository / "specs/datasets" / f"{id}.yaml").read_text())
    fields: dict[str, Any] = spec["reader"]
    return fields


def read(root: Path, fields: Mapping[str, Any]) -> Dataset:
    files = {
        path.relative_to(root).as_posix(): path
        for path in root.rglob("*")
        if path.is_file()
    }
    component = registry.get("reader", fields["name"])
    bound = component.bind(
        {name: value for name, value in fields.items() if name != "name"}
    )
    data: Dataset = component.function(files, **bound)
    return data


@pytest.mark.parametrize("id", sorted(TABLES))
def test_specs_of_the_repository_read_published_layouts(
    repository: Path, tmp_path: Path, id: str
) -> None:
    root = tmp_path / "ds"
    bids(root, TABLES[id])
    embedded(root / "embedding.nc", [stimulus for stimulus, _ in FOUND[id]])
    data = read(root, reader_of(repository, id))
    assert data.assembly is not None
    assert data.assembly.sizes == {
        "presentation": len(FOUND[id]),
        "channel": 3,
        "sample": 120,
    }
    assert data.assembly["time_bin_start"].values[0] == pytest.approx(-200)
    told = "filepath" if id == "Xu2024Alljoined" else "split"
    stimuli, said = (
        data.assembly[name].values.astype(str).tolist()
        for name in ("stimulus_id", told)
    )
    assert list(zip(stimuli, said, strict=True)) == FOUND[id]
    assert data.extras["embedding"].shape == (len(FOUND[id]), 4)


def test_image_numbers_are_read_without_catch_trials(
    repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "events.tsv"
    lines = [
        "onset\tduration\ttrial_type\tvalue",
        "2.85\t0.5\texp\t24812.0",
        "20.6\t0.5\tcatch\tN/A",
    ]
    path.write_text("\n".join([*lines, "23.7\t0.5\ttest\t6312.0"]) + "\n")
    events = Events.model_validate(
        reader_of(repository, "Hebart2023ThingsMeg")["events"]
    )
    laid = show(events, table_of(path, "events.tsv"), "a.ds")
    assert (laid.names, laid.onsets) == (["24812", "6312"], [2.85, 23.7])
    assert laid.extra == {"split": ["train", "test"]}


def test_annotations_name_stimuli_in_recordings_outside_bids(tmp_path: Path) -> None:
    import mne

    values = np.random.default_rng(0).standard_normal((2, 64 * 20)) * 1e-5
    raw = mne.io.RawArray(
        values, mne.create_info(["Cz", "Pz"], 64.0, "eeg"), verbose="ERROR"
    )
    raw.set_annotations(
        mne.Annotations([2, 4, 6], 0.0, ["show/cat.png", "answer", "show/dog.png"])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw.save(tmp_path / "one_raw.fif", verbose="ERROR")
    embedded(tmp_path / "e.nc", ["dog.png", "cat.png", "never.png"])
    files = {name: tmp_path / name for name in ("one_raw.fif", "e.nc")}
    data = mne_epochs(
        files,
        recordings=(Recording(file="one_raw.fif", subject="S1"),),
        window=Window(start=0.0, duration=1.0),
        events=Events(
            stimulus=Cell(column="description", pattern="show/{value}"),
            where={"description": ("show/*",)},
        ),
        embeddings={"clip": "e.nc"},
    )
    assert data.assembly is not None
    assert data.assembly["stimulus_id"].values.tolist() == ["cat.png", "dog.png"]
    assert data.assembly["onset"].values.tolist() == [2, 6]
    assert data.extras["clip"]["stimulus_id"].values.tolist() == [
        "dog.png",
        "cat.png",
        "never.png",
    ]


def test_markers_with_the_same_onset_are_refused_or_left_out_and_counted(
    tmp_path: Path,
) -> None:
    import mne

    values = np.random.default_rng(0).standard_normal((2, 64 * 20)) * 1e-5
    raw = mne.io.RawArray(
        values, mne.create_info(["Cz", "Pz"], 64.0, "eeg"), verbose="ERROR"
    )
    # A picture and an answer, and two pictures, at one moment each; two answers at one moment make nothing doubtful.
    said = ["show/a", "answer", "show/b", "show/c", "show/d", "answer", "answer"]
    raw.set_annotations(mne.Annotations([2, 2, 4, 6, 6, 8, 8], 0.0, said))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw.save(tmp_path / "one_raw.fif", verbose="ERROR")
    fields = {"stimulus": "description", "where": {"description": ("show/*",)}}
    reading = {
        "recordings": (Recording(file="one_raw.fif", subject="S1"),),
        "window": Window(start=0.0, duration=1.0),
    }
    files = {"one_raw.fif": tmp_path / "one_raw.fif"}
    with pytest.raises(
        DataError,
        match=r"two selected events begin at 6 s, show/c and show/d: .*`events.ambiguous: drop`",
    ):
        mne_epochs(files, events=Events(**fields), **reading)  # type: ignore[arg-type]
    data = mne_epochs(files, events=Events(**fields, ambiguous="drop"), **reading)  # type: ignore[arg-type]
    assert data.assembly is not None and data.assembly[
        "stimulus_id"
    ].values.tolist() == ["show/b"]
    assert data.notes == (
        "3 events in 1 recordings were left out: another marker shares their moment",
    )
    with pytest.raises(ValidationError, match="'events_left_out' is reserved"):
        Events(**fields, coordinates={"events_left_out": "description"})  # type: ignore[arg-type]


def test_undeclared_values_and_invalid_onsets_are_refused() -> None:
    events = Events(
        stimulus="name",
        coordinates={"split": Cell(column="kind", values={"a": "train"})},
    )
    with pytest.raises(DataError, match="event 1: kind is 'b', not one of a"):
        show(events, [{"onset": "1", "name": "x", "kind": "b"}], "f")
    with pytest.raises(DataError, match="its onset is 'n/a', not a number of seconds"):
        show(events, [{"onset": "n/a", "name": "x", "kind": "a"}], "f")
    with pytest.raises(ValidationError, match=r"a pattern must contain \{value\} once"):
        Cell(column="name", pattern="*")
    with pytest.raises(ValidationError, match="'subject' is reserved"):
        Events(stimulus="name", coordinates={"subject": "name"})
