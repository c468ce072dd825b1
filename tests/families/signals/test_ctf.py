"""CTF recordings, which are folders, in the layout of THINGS-MEG: the values read are those written."""

from __future__ import annotations

import json
from pathlib import Path

import mne
import numpy as np
import pytest
import xarray as xr
import yaml

from neuroledger.data import assembly
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import Preprocessing
from neuroledger.families.signals.recordings.signal_stimuli import Events
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec import registry
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.ctf_files import (
    CLOCK,
    GAINS,
    GRADIOMETER,
    REFERENCE,
    REFERENCE_GRADIOMETER,
    STIMULUS,
    ctf,
)
from tests.families.signals.published_places import pinned, place_of, scored, spec_of

ID, BENCHMARK, RATE = "Hebart2023ThingsMeg", "neuralbench.meg.image", 1200
CHANNELS = [
    ("SCLK01-177", CLOCK),
    ("BG1-1609", REFERENCE),
    ("BG2-1609", REFERENCE),
    ("G11-1609", REFERENCE_GRADIOMETER),
    ("MLC11-1609", GRADIOMETER),
    ("MLC12-1609", GRADIOMETER),
    ("MRO11-1609", GRADIOMETER),
    ("MZP01-1609", GRADIOMETER),
    ("UPPT001", STIMULUS),
]
OWN = [name for name, kind in CHANNELS if kind == GRADIOMETER]
IMAGES = range(1, 25)


def counts(seed: int, seconds: int = 40) -> np.ndarray:
    """Whole numbers of the converter; the clock runs until shortly before the end."""
    found = np.random.default_rng(seed).integers(
        -400_000, 400_000, (len(CHANNELS), seconds * RATE)
    )
    found[0] = np.arange(1, found.shape[1] + 1)
    found[0, -RATE // 2 :] = 0
    found[-1] = 0
    return found


def bids(
    root: Path,
    *,
    people: int = 4,
    planted: bool = False,
    trials: int = 1,
    order: int = 0,
) -> Path:
    root.mkdir()
    (root / "dataset_description.json").write_text(
        json.dumps({"Name": "THINGS-MEG", "BIDSVersion": "1.7.0"})
    )
    (root / "participants.tsv").write_text(
        "participant_id\n" + "".join(f"sub-BIGMEG{n}\n" for n in range(1, people + 1))
    )
    known = {
        image: np.random.default_rng(image).standard_normal(len(OWN))
        for image in (*IMAGES, 100)
    }
    for person in range(1, people + 1):
        folder = root / f"sub-BIGMEG{person}" / "ses-01" / "meg"
        stem = f"sub-BIGMEG{person}_ses-01_task-main_run-01"
        found = counts(person)
        rows = ["onset\tduration\ttrial_type\tvalue\tsample"]
        for number, image in enumerate(IMAGES):
            at = 1.5 + 1.5 * number
            kind = "test" if image > 16 else "exp"
            rows.append(f"{at}\t0.5\t{kind}\t{image}.0\t{round(at * RATE)}")
            if planted:
                first = round(at * RATE)
                louder = np.exp(0.7 * known[image])[:, None]
                found[4:8, first : first + RATE] = (
                    found[4:8, first : first + RATE] * louder
                ).astype(int)
        rows.append("37.0\t0.5\tcatch\tN/A\t44400")
        rows.append(
            "39.2\t0.5\texp\t100.0\t47040"
        )  # shown when the clock had nearly stopped
        ctf(
            folder / f"{stem}_meg.ds",
            CHANNELS,
            found,
            rate=RATE,
            trials=trials,
            order=order,
        )
        (folder / f"{stem}_events.tsv").write_text("\n".join(rows) + "\n")
        (folder / f"{stem}_meg.json").write_text(
            json.dumps(
                {
                    "TaskName": "main",
                    "SamplingFrequency": RATE,
                    "PowerLineFrequency": 60,
                    "DewarPosition": "n/a",
                    "SoftwareFilters": "n/a",
                    "DigitizedLandmarks": False,
                }
            )
        )
        kinds = {
            GRADIOMETER: "MEGGRADAXIAL",
            REFERENCE: "MEGREFMAG",
            REFERENCE_GRADIOMETER: "MEGREFGRADAXIAL",
            STIMULUS: "TRIG",
            CLOCK: "SYSCLOCK",
        }
        lines = "".join(f"{name}\t{kinds[kind]}\tT\n" for name, kind in CHANNELS)
        (folder / f"{stem}_channels.tsv").write_text("name\ttype\tunits\n" + lines)
    table = xr.DataArray(
        np.stack(list(known.values())),
        dims=("stimulus", "feature"),
        coords={"stimulus_id": ("stimulus", [str(image) for image in known])},
    )
    assembly.write(table, root / "embedding.nc")
    return root


def files_of(root: Path) -> dict[str, Path]:
    return {
        path.relative_to(root).as_posix(): path
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("trials", "order"), [(1, 0), (10, 3)])
def test_windows_contain_the_written_values(
    tmp_path: Path, trials: int, order: int
) -> None:
    root = bids(tmp_path / "ds004212", people=1, trials=trials, order=order)
    data = bids_epochs(
        files_of(root),
        task="main",
        datatype="meg",
        window=Window(start=-0.2, duration=1.0),
        preprocessing=Preprocessing(pick=("mag", "grad"), units="T"),
        events=Events(stimulus="value", where={"trial_type": ("exp", "test")}),
    ).assembly
    assert data is not None
    proper, q = GAINS[GRADIOMETER]
    written = counts(1)[4:8] / (proper * q)
    assert data["channel_id"].values.tolist() == OWN and set(
        data["channel_type"].values.tolist()
    ) == {"mag"}
    # The event for which the clock stopped too early is no window.
    assert data["onset"].values.tolist() == [
        1.5 + 1.5 * number for number in range(len(IMAGES))
    ]
    for window, onset in zip(data.values, data["onset"].values, strict=True):
        first = round((onset - 0.2) * RATE)
        np.testing.assert_allclose(window, written[:, first : first + RATE], rtol=1e-6)
    assert np.isfinite(data["x"].values).all() and data.attrs["sampling_rate"] == RATE


def test_the_shipped_spec_excludes_reference_channels(
    repository: Path, tmp_path: Path
) -> None:
    root = bids(tmp_path / "ds004212")
    fields = yaml.safe_load((repository / "specs/datasets" / f"{ID}.yaml").read_text())[
        "reader"
    ]
    component = registry.get("reader", fields["name"])
    bound = component.bind(
        {name: value for name, value in fields.items() if name != "name"}
    )
    data = component.function(files_of(root), **bound).assembly
    assert data.sizes == {
        "presentation": 4 * len(IMAGES),
        "channel": len(OWN),
        "sample": 120,
    }
    assert data["channel_id"].values.tolist() == OWN


@pytest.mark.slow
def test_image_retrieval_from_ctf_folders_works_through_the_command_line(
    repository: Path, tmp_path: Path
) -> None:
    specs = {
        "datasets": [ID],
        "benchmarks": [BENCHMARK],
        "metrics": ["top5_retrieval"],
        "models": ["dummy", "covariance_ridge"],
    }
    place = place_of(tmp_path / "place", repository, specs)
    files = pinned(place, ID, bids(tmp_path / "ds004212", planted=True))
    stem = "sub-BIGMEG1/ses-01/meg/sub-BIGMEG1_ses-01_task-main_run-01_meg.ds"
    assert {
        f"{stem}/{Path(stem).stem}.{kind}" for kind in ("res4", "meg4", "hc")
    } <= files
    assert "unavailable" not in spec_of(place, ID)
    score = scored(place, BENCHMARK, ID, ["dummy", "covariance_ridge"])[
        "covariance_ridge"
    ]["score"]
    assert score["raw"] > 0.9


def test_a_damaged_folder_raises_one_error(repository: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path / "place", repository, {"datasets": [ID]})
    root = bids(tmp_path / "ds004212")
    signals = next(root.rglob("sub-BIGMEG3*.meg4"))
    signals.write_bytes(signals.read_bytes()[:-100])
    with pytest.raises(
        DataError,
        match=r"sub-BIGMEG3_.*_meg.ds cannot be read as BIDS \(The number of samples is not",
    ):
        pin(open_catalog(place), ID, Downloads(folder=root))
    signals.unlink()
    with pytest.raises(
        DataError,
        match=r"sub-BIGMEG3_.*_meg.ds cannot be read as BIDS \(Could not find any data",
    ):
        pin(open_catalog(place), ID, Downloads(folder=root))


def test_mne_reads_the_simulated_ctf_recording(tmp_path: Path) -> None:
    ctf(tmp_path / "one.ds", CHANNELS, counts(0, 2), rate=RATE, order=3)
    raw = mne.io.read_raw_ctf(tmp_path / "one.ds", verbose="ERROR")
    assert raw.get_channel_types() == ["misc", *["ref_meg"] * 3, *["mag"] * 4, "stim"]
    assert raw.n_times == 2 * RATE - RATE // 2 and raw.compensation_grade == 3


def test_a_plain_folder_can_contain_ctf_recordings(tmp_path: Path) -> None:
    ctf(tmp_path / "anna.ds", CHANNELS, counts(0, 4), rate=RATE)
    files = {f"anna.ds/{path.name}": path for path in (tmp_path / "anna.ds").iterdir()}
    component = registry.get("reader", "mne_epochs")
    told = {
        "recordings": [{"file": "anna.ds", "subject": "anna"}],
        "window": {"start": 0.0, "duration": 0.25, "labels": {"photodiode": "light"}},
        "preprocessing": {"pick": ["meg"], "units": "arbitrary"},
    }
    windows = component.function(files, **component.bind(told)).assembly
    assert set(windows["recording"].values) == {"anna.ds"} and windows[
        "label"
    ].values.tolist() == ["light"]
    moved = tmp_path / "elsewhere" / "anna.res4"
    moved.parent.mkdir()
    files["anna.ds/anna.res4"].rename(moved)
    with pytest.raises(
        DataError, match=r"anna\.ds: its \d+ files are not in one folder with this name"
    ):
        component.function(files | {"anna.ds/anna.res4": moved}, **component.bind(told))
