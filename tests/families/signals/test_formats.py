"""XDF, tables of samples and epochs give the same windows as a continuous FIF recording of the same samples."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError, UnavailableError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.sample_tables import SampleTable
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.xdf_streams import Streams
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place
from tests.families.signals.xdf_files import Marker, Samples, xdf

mne = pytest.importorskip("mne")

__all__ = ["place"]

RATE = 64.0
SECONDS = 20
ONSETS = np.arange(1.0, SECONDS - 1, 2.0)
KINDS = ["go" if number % 2 == 0 else "stop" for number in range(len(ONSETS))]
WINDOW = Window(start=-0.25, duration=0.5, labels={"go": "left", "stop": "right"})
PLAIN = Preprocessing(pick=("eeg",))
CHANNELS = ["Cz", "Pz", "Oz"]


def samples(seed: int = 0) -> np.ndarray:
    """Simulated EEG in µV, (channel, sample)."""
    return np.random.default_rng(seed).normal(0.0, 12.0, (3, int(SECONDS * RATE)))


def continuous(seed: int = 0) -> Any:
    raw = mne.io.RawArray(
        samples(seed) * 1e-6, mne.create_info(CHANNELS, RATE, "eeg"), verbose="ERROR"
    )
    raw.set_annotations(mne.Annotations(ONSETS, 0.0, KINDS))
    return raw


def read(
    path: Path,
    *,
    window: Window = WINDOW,
    preprocessing: Preprocessing = PLAIN,
    **how: Any,
) -> xr.DataArray:
    windows = mne_epochs(
        {path.name: path},
        recordings=(Recording(file=path.name, subject="S1"),),
        window=window,
        preprocessing=preprocessing,
        **how,
    ).assembly
    assert windows is not None
    return windows


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> xr.DataArray:
    path = tmp_path_factory.mktemp("continuous") / "one_raw.fif"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        continuous().save(path, verbose="ERROR")
    return read(path)


def same(found: xr.DataArray, expected: xr.DataArray, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(found.values, expected.values, atol=tolerance)
    for name in ("label", "onset", "time_bin_start"):
        np.testing.assert_array_equal(found[name].values, expected[name].values)
    assert found["channel_id"].values.tolist() == expected["channel_id"].values.tolist()
    assert found.attrs == expected.attrs


# --- XDF -------------------------------------------------------------------------------------------------------------


def stream(units: str = "microvolts", **how: Any) -> Samples:
    scale = {"microvolts": 1.0, "volts": 1e-6, "": 1.0}[units]
    stamps = how.pop("stamps", 100.0 + np.arange(SECONDS * RATE) / RATE)
    told = {} if not units else {"units": [units] * 3}
    return Samples(samples().T * scale, RATE, stamps, labels=CHANNELS, **told, **how)


def cues(**how: Any) -> Marker:
    return Marker(
        [(100.0 + at, kind) for at, kind in zip(ONSETS, KINDS, strict=True)], **how
    )


@pytest.mark.parametrize("units", ["microvolts", "volts"])
def test_xdf_streams_give_the_same_windows(
    tmp_path: Path, expected: xr.DataArray, units: str
) -> None:
    pytest.importorskip("pyxdf")
    same(read(xdf(tmp_path / "a.xdf", stream(units), cues())), expected)


def test_clocks_are_aligned_before_markers_are_placed(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("pyxdf")
    late = Marker([(at + 40.0, kind) for at, kind in cues().marks], offset=-40.0)
    same(read(xdf(tmp_path / "a.xdf", stream(), late)), expected)


def test_jittering_time_stamps_do_not_shift_the_windows(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("pyxdf")
    even = np.arange(SECONDS * RATE) / RATE
    jittered = 100.0 + even + np.random.default_rng(3).uniform(-0.004, 0.004, len(even))
    same(read(xdf(tmp_path / "a.xdf", stream(stamps=jittered), cues())), expected)


def test_markers_follow_the_drift_of_the_amplifier_clock(tmp_path: Path) -> None:
    pytest.importorskip("pyxdf")
    slow = 100.0 + np.arange(SECONDS * RATE) / RATE * 1.01
    windows = read(xdf(tmp_path / "a.xdf", stream(stamps=slow), cues()))
    np.testing.assert_allclose(
        windows["onset"].values * RATE, np.round(ONSETS * RATE / 1.01), atol=1e-6
    )


def test_one_of_several_streams_must_be_selected(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("pyxdf")
    other = Samples(
        samples(1).T,
        RATE,
        100.0 + np.arange(SECONDS * RATE) / RATE,
        name="amp2",
        labels=CHANNELS,
    )
    path = xdf(
        tmp_path / "a.xdf",
        other,
        stream(),
        cues(),
        Marker([(103.0, "noise")], name="keys"),
    )
    with pytest.raises(
        DataError,
        match=r"2 streams of samples: it has 'amp2' \(type EEG, 64 Hz\), 'amp'.*samples: NAME",
    ):
        read(path)
    same(read(path, streams=Streams(samples="amp", markers=("cues",))), expected)
    with pytest.raises(DataError, match="no stream of markers buttons"):
        read(path, streams=Streams(samples="amp", markers=("buttons",)))


def test_values_without_a_unit_are_compared_with_plausible_amplitudes(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("pyxdf")
    path = xdf(tmp_path / "a.xdf", stream(""), cues())
    with pytest.raises(
        DataError, match=r"eeg channels vary by 1.*e\+07 µV .*stated: uV"
    ):
        read(path)
    same(read(path, preprocessing=Preprocessing(stated="uV")), expected)


def test_a_damaged_xdf_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyxdf")
    whole = xdf(tmp_path / "a.xdf", stream(), cues()).read_bytes()
    (tmp_path / "cut.xdf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.xdf"):
        read(tmp_path / "cut.xdf")
    (tmp_path / "none.xdf").write_bytes(b"no XDF at all")
    with pytest.raises(DataError, match=r"none\.xdf cannot be read as XDF"):
        read(tmp_path / "none.xdf")


def test_a_missing_package_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyxdf", None)
    with pytest.raises(UnavailableError, match=r"pip install 'neuroledger\[xdf\]'"):
        read(xdf(tmp_path / "a.xdf", stream(), cues()))


# --- tables ----------------------------------------------------------------------------------------------------------


def table(seed: int = 0) -> pd.DataFrame:
    """What MNE writes of a recording as a table: seconds, and µV; and a column of events beside it."""
    frame = continuous(seed).to_data_frame(picks="eeg", time_format=None)
    events = np.full(len(frame), "", dtype=object)
    for at, kind in zip(ONSETS, KINDS, strict=True):
        events[round(at * RATE) : round(at * RATE) + 5] = kind
    return frame.assign(event=events)


LAYOUT = SampleTable(sampling_rate=RATE, time="time", event="event")
MICROVOLTS = Preprocessing(stated="uV")


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("b.csv", ";")]
)
def test_tables_give_the_same_windows(
    tmp_path: Path, expected: xr.DataArray, name: str, separator: str
) -> None:
    table().to_csv(tmp_path / name, sep=separator, index=False)
    layout = LAYOUT.model_copy(update={"separator": ";"} if separator == ";" else {})
    same(read(tmp_path / name, table=layout, preprocessing=MICROVOLTS), expected)


def test_parquet_gives_the_same_windows_and_damage_is_reported(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("pyarrow")
    table().to_parquet(tmp_path / "a.parquet")
    same(read(tmp_path / "a.parquet", table=LAYOUT, preprocessing=MICROVOLTS), expected)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:500])
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        read(tmp_path / "b.parquet", table=LAYOUT)


def test_event_codes_can_be_numbers_separated_by_missing_values(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    frame = table()
    frame["event"] = frame["event"].map({"": np.nan, "go": 1, "stop": 2})
    frame.to_csv(tmp_path / "a.csv", index=False)
    coded = Window(start=-0.25, duration=0.5, labels={"1": "left", "2": "right"})
    same(
        read(tmp_path / "a.csv", table=LAYOUT, preprocessing=MICROVOLTS, window=coded),
        expected,
    )


def test_tables_that_contradict_their_declaration_are_refused(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        DataError, match=r"does not state its sampling rate: .*sampling_rate: 250"
    ):
        read(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"0\.01562 s apart.*; 128 Hz are declared"):
        read(
            tmp_path / "a.csv", table=LAYOUT.model_copy(update={"sampling_rate": 128.0})
        )
    with pytest.raises(DataError, match="no column Fz; it has time, Cz, Pz, Oz, event"):
        read(
            tmp_path / "a.csv",
            table=LAYOUT.model_copy(update={"channels": ("Cz", "Fz")}),
        )
    with pytest.raises(DataError, match=r"e\+07 µV .*stated: uV"):
        read(tmp_path / "a.csv", table=LAYOUT)
    frame.drop(index=range(500, 600)).to_csv(tmp_path / "gap.csv", index=False)
    with pytest.raises(
        DataError, match=r"gap\.csv: by column 'time' .* 1 gaps, first after 7\.797 s"
    ):
        read(tmp_path / "gap.csv", table=LAYOUT)
    frame.assign(Pz=["x", *frame["Pz"][1:]]).to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(
        DataError,
        match=r"column 'Pz' has 1 values that are not numbers, first 'x' in sample 0 \(line 2",
    ):
        read(tmp_path / "text.csv", table=LAYOUT)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "uneven.csv").write_text(
        "\n".join([*lines[:9], lines[9] + ",7", *lines[10:]])
    )
    with pytest.raises(DataError, match=r"uneven\.csv, line 10"):
        read(tmp_path / "uneven.csv", table=LAYOUT)


def test_a_folder_of_tables_is_pinned_with_a_name_pattern_and_a_table_of_facts(
    place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    for person in range(6):
        table(person).to_csv(folder / f"P{person}.csv", index=False)
    (folder / "participants.tsv").write_text(
        "participant_id\tgroup\n"
        + "".join(f"{person}\t{'ab'[person % 2]}\n" for person in range(6))
    )
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(
        path.read_text()
        .replace("units: uV", "units: uV, stated: uV")
        .replace(
            "  recordings: []",
            "  recordings: []\n  table: {sampling_rate: 64, time: time, event: event}",
        )
    )
    downloads = Downloads(folder=folder, named=("P{subject}.csv",), label="group")
    assert pin(open_catalog(place), "Rest", downloads).subjects == 6
    data = load_dataset(open_catalog(place), "Rest").assembly
    assert data is not None
    assert sorted(set(data["subject"].values.tolist())) == list("012345")


# --- epochs ----------------------------------------------------------------------------------------------------------


def epochs(tmin: float = -0.5, tmax: float = 0.75) -> Any:
    raw = continuous()
    events, ids = mne.events_from_annotations(raw, verbose="ERROR")
    cut = mne.Epochs(
        raw, events, ids, tmin, tmax, baseline=None, preload=True, verbose="ERROR"
    )
    cut.metadata = pd.DataFrame(
        {"speed": np.arange(len(cut)) * 1.5, "hand": ["l", "r", "l"] * 3}
    )
    return cut


def saved(folder: Path, name: str, of: Any = None) -> Path:
    made = epochs() if of is None else of
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name.endswith(".set"):
            mne.export.export_epochs(folder / name, made, fmt="eeglab", verbose="ERROR")
        else:
            made.save(folder / name, verbose="ERROR")
    return folder / name


def test_mne_epochs_give_the_windows_of_their_recording(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    windows = read(
        saved(tmp_path, "a-epo.fif"), epoched=True, event_fields=("speed", "hand")
    )
    same(windows, expected)
    assert windows["speed"].values.tolist() == [1.5 * number for number in range(9)]
    assert windows["hand"].values.tolist() == ["l", "r", "l"] * 3
    assert windows["epoch"].values.tolist() == list(range(9))


def test_eeglab_epochs_are_labelled_by_the_event_at_time_zero(
    tmp_path: Path, expected: xr.DataArray
) -> None:
    pytest.importorskip("eeglabio")
    windows = read(saved(tmp_path, "a.set"), epoched=True)
    np.testing.assert_allclose(windows["onset"].values, np.arange(9) * 81 / RATE)
    same(windows.assign_coords(onset=expected["onset"]), expected, 1e-3)


def test_epochs_are_distinguished_from_continuous_recordings(tmp_path: Path) -> None:
    pytest.importorskip("eeglabio")
    for path in (saved(tmp_path, "a-epo.fif"), saved(tmp_path, "a.set")):
        with pytest.raises(
            DataError,
            match=r"contains epochs, not a continuous recording: set `epoched: true`",
        ):
            read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mne.export.export_raw(
            tmp_path / "b.set", continuous(), fmt="eeglab", verbose="ERROR"
        )
    with pytest.raises(
        DataError, match=r"b\.set contains a continuous recording: remove `epoched`"
    ):
        read(tmp_path / "b.set", epoched=True)


def test_requests_that_epochs_cannot_fulfil_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "a-epo.fif")
    with pytest.raises(
        DataError,
        match=r"the window from 0\.5 to 1\.5 s reaches beyond its epochs, which last from -0\.5 to 0\.765625 s",
    ):
        read(
            path,
            epoched=True,
            window=Window(start=0.5, duration=1.0, labels={"go": "left"}),
        )
    with pytest.raises(DataError, match="too short for filters: remove low_pass"):
        read(path, epoched=True, preprocessing=Preprocessing(low_pass=20.0))
    with pytest.raises(DataError, match="no event stay; it has go, stop"):
        read(
            path,
            epoched=True,
            window=Window(start=0.0, duration=0.5, labels={"stay": "left"}),
        )
    with pytest.raises(DataError, match="no metadata weight; they have speed, hand"):
        read(path, epoched=True, event_fields=("weight",))
    (tmp_path / "b-epo.fif").write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"b-epo\.fif cannot be read as epochs"):
        read(tmp_path / "b-epo.fif", epoched=True)
    weak = epochs()
    weak._data *= 1e-6
    with pytest.raises(DataError, match="eeg channels vary by"):
        read(saved(tmp_path, "c-epo.fif", weak), epoched=True)


def test_epochs_from_arrays_are_consecutive(tmp_path: Path) -> None:
    made = mne.EpochsArray(
        np.random.default_rng(0).normal(0, 1e-5, (4, 3, 64)),
        mne.create_info(CHANNELS, RATE, "eeg"),
        verbose="ERROR",
    )
    window = Window(start=0.0, duration=1.0, labels={"1": "x"})
    assert read(saved(tmp_path, "a-epo.fif", made), epoched=True, window=window)[
        "onset"
    ].values.tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_epochs_are_pinned_if_the_spec_declares_them(
    place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    for person in range(6):
        one = epochs()
        one._data += np.random.default_rng(person).normal(0, 1e-6, one._data.shape)
        saved(folder, f"P{person}-epo.fif", one)
    (folder / "P0_raw.fif").write_bytes(b"not asked for")
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(
        path.read_text()
        .replace("duration: 1.0, stride: 1.0", "duration: 0.5")
        .replace("  recordings: []", "  recordings: []\n  epoched: true")
    )
    with pytest.raises(
        RequestError, match=r"--event DESCRIPTION=LABEL.*has 'go', 'stop'"
    ):
        pin(
            open_catalog(place),
            "Rest",
            Downloads(folder=folder, named=("P{subject}-epo.fif",)),
        )
    downloads = Downloads(
        folder=folder, named=("P{subject}-epo.fif",), events={"go": "a", "stop": "b"}
    )
    assert pin(open_catalog(place), "Rest", downloads).subjects == 6
