"""NWB: spikes, series and behaviour of simulated files are read as written; co-smoothing has its closed form."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from neuroledger.errors import DataError, MetricError
from neuroledger.families.decoding.metrics.decoding_measures import Rows, bits_per_spike
from neuroledger.families.signals.readers.nwb_trials import NwbWindow, nwb_trials

pynwb = pytest.importorskip("pynwb")

UNITS, TRIALS = 4, 6
RATE = 100.0


def written(
    path: Path, *, subject: str | None = "monkey", seed: int = 0
) -> list[np.ndarray]:
    """A simulated session; returns the spike times of each unit."""
    rng = np.random.default_rng(seed)
    content = pynwb.NWBFile("simulated", f"id{seed}", datetime(2026, 1, 1, tzinfo=UTC))
    if subject is not None:
        content.subject = pynwb.file.Subject(subject_id=subject)
    spikes = [np.sort(rng.uniform(0, 2.0 * TRIALS, 200)) for _ in range(UNITS)]
    for times in spikes:
        content.add_unit(spike_times=times)
    content.add_trial_column("direction", "where to")
    for trial in range(TRIALS):
        content.add_trial(
            start_time=2.0 * trial,
            stop_time=2.0 * trial + 1.5,
            direction="lr"[trial % 2],
        )
    samples = int(2.0 * TRIALS * RATE)
    device = content.create_device("d")
    group = content.create_electrode_group("g", "d", "l", device)
    for _ in range(2):
        content.add_electrode(group=group, location="l")
    region = content.create_electrode_table_region([0, 1], "all")
    content.add_acquisition(
        pynwb.ecephys.ElectricalSeries(
            "lfp",
            np.arange(2 * samples).reshape(samples, 2) * 1.0,
            region,
            rate=RATE,
            conversion=1e-6,
        )
    )
    module = content.create_processing_module("behavior", "b")
    module.add(pynwb.TimeSeries("hand", np.arange(samples) * 1.0, "m", rate=RATE))
    with pynwb.NWBHDF5IO(str(path), "w") as opened:
        opened.write(content)
    return spikes


def read(path: Path, **options: object) -> xr.DataArray:
    windows = nwb_trials({path.name: path}, **options).assembly  # type: ignore[arg-type]
    assert windows is not None
    return windows


def test_spikes_are_counted_in_bins_from_trial_onset(tmp_path: Path) -> None:
    spikes = written(tmp_path / "a.nwb")
    windows = read(
        tmp_path / "a.nwb",
        window=NwbWindow(start=0.1, duration=1.0, bin=0.25),
        facts={"label": "direction"},
    )
    assert windows.shape == (TRIALS, UNITS, 4)
    for trial in range(TRIALS):
        for unit in range(UNITS):
            edges = 2.0 * trial + 0.1 + 0.25 * np.arange(5)
            np.testing.assert_array_equal(
                windows[trial, unit], np.histogram(spikes[unit], edges)[0]
            )
    assert windows["label"].values.tolist() == list("lr" * 3)
    assert set(windows["subject"].values) == {"monkey"}
    assert set(windows["channel_type"].values) == {"spikes"}


def test_held_out_units_become_targets(tmp_path: Path) -> None:
    spikes = written(tmp_path / "a.nwb")
    window = NwbWindow(duration=0.5, stride=0.5, bin=0.1)
    windows = read(tmp_path / "a.nwb", window=window, held_out=4)
    assert windows["channel_id"].values.tolist() == ["unit_0", "unit_1", "unit_2"]
    assert windows.sizes["presentation"] == 3 * TRIALS
    onset = windows["onset"].values
    counts = [int(((spikes[3] >= at) & (spikes[3] < at + 0.5)).sum()) for at in onset]
    assert windows["unit_3"].values.tolist() == counts


def test_series_are_in_microvolts_and_behaviour_is_averaged(tmp_path: Path) -> None:
    written(tmp_path / "a.nwb")
    window = NwbWindow(duration=1.0)
    windows = read(
        tmp_path / "a.nwb",
        window=window,
        series="lfp",
        behavior={"hand": "behavior/hand"},
    )
    assert windows.shape == (TRIALS, 2, 100)
    assert windows.attrs["units"] == "uV"
    np.testing.assert_allclose(windows[1, 1, :3], [401.0, 403.0, 405.0])
    np.testing.assert_allclose(
        windows["hand"], [200.0 * trial + 49.5 for trial in range(TRIALS)]
    )


def test_channel_gains_and_offset_are_applied(tmp_path: Path) -> None:
    content = pynwb.NWBFile("simulated", "id", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="monkey")
    content.add_trial(start_time=0.0, stop_time=1.0)
    group = content.create_electrode_group("g", "d", "l", content.create_device("d"))
    for _ in range(2):
        content.add_electrode(group=group, location="l")
    region = content.create_electrode_table_region([0, 1], "all")
    counts = np.arange(200, dtype=np.int16).reshape(100, 2)
    series = pynwb.ecephys.ElectricalSeries(
        "lfp",
        counts,
        region,
        rate=RATE,
        conversion=1e-6,
        channel_conversion=[1.0, 2.0],
        offset=5e-6,
    )
    content.add_acquisition(series)
    with pynwb.NWBHDF5IO(str(tmp_path / "a.nwb"), "w") as io:
        io.write(content)
    windows = read(tmp_path / "a.nwb", window=NwbWindow(duration=1.0), series="lfp")
    np.testing.assert_allclose(windows[0], counts.T * [[1.0], [2.0]] + 5.0)


def test_a_series_in_another_unit_is_refused_with_its_unit(tmp_path: Path) -> None:
    path = tmp_path / "a.nwb"
    written(path)
    with h5py.File(path, "r+") as file:
        file["acquisition/lfp/data"].attrs["conversion"] = 1.0
    with pytest.raises(
        DataError,
        match=r"a\.nwb: ieeg channels vary by .* µV .*Correct `conversion` of lfp in the file",
    ):
        read(path, window=NwbWindow(duration=1.0), series="lfp")


def test_files_without_a_subject_or_column_and_damaged_ones_are_refused(
    tmp_path: Path,
) -> None:
    written(tmp_path / "a.nwb", subject=None)
    with pytest.raises(DataError, match="states no subject"):
        read(tmp_path / "a.nwb", window=NwbWindow(duration=1.0))
    written(tmp_path / "b.nwb")
    with pytest.raises(
        DataError, match="no column cue; they have start_time, stop_time, direction"
    ):
        read(tmp_path / "b.nwb", window=NwbWindow(duration=1.0), facts={"label": "cue"})
    with pytest.raises(
        DataError,
        match="no 'eeg': its acquisition and processing contains behavior, lfp, but not 'eeg'",
    ):
        read(tmp_path / "b.nwb", window=NwbWindow(duration=1.0), series="eeg")
    (tmp_path / "c.nwb").write_bytes((tmp_path / "b.nwb").read_bytes()[:2000])
    with pytest.raises(DataError, match=r"c\.nwb"):
        read(tmp_path / "c.nwb", window=NwbWindow(duration=1.0))


@pytest.mark.parametrize("stamped", [False, True])
def test_series_of_a_processing_module_are_read_with_a_rate_or_even_time_stamps(
    tmp_path: Path, stamped: bool
) -> None:
    content = pynwb.NWBFile("simulated", "id", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="mouse")
    content.add_trial(start_time=0.7, stop_time=1.0)
    group = content.create_electrode_group("g", "d", "l", content.create_device("d"))
    for _ in range(2):
        content.add_electrode(group=group, location="l")
    region = content.create_electrode_table_region([0, 1], "all")
    counts = np.random.default_rng(0).normal(0, 20, (300, 2))
    stamps = 0.5 + np.arange(300) / RATE
    clock = (
        {"timestamps": stamps}
        if stamped
        else {"rate": float(RATE), "starting_time": 0.5}
    )
    series = pynwb.ecephys.ElectricalSeries(
        "field", counts, region, conversion=1e-6, **clock
    )
    fields = pynwb.ecephys.LFP()
    content.create_processing_module("ecephys", "e").add(fields)
    fields.add_electrical_series(series)
    with pynwb.NWBHDF5IO(str(tmp_path / "a.nwb"), "w") as io:
        io.write(content)
    for place in ("ecephys/LFP/field", "processing/ecephys/LFP/field"):
        windows = read(tmp_path / "a.nwb", window=NwbWindow(duration=1.0), series=place)
        np.testing.assert_allclose(windows[0], counts[20 : 20 + int(RATE)].T, rtol=1e-5)
        assert windows["channel_id"].values.tolist() == ["field_0", "field_1"]
        assert windows.attrs["sampling_rate"] == RATE
    with pytest.raises(
        DataError,
        match="'ecephys/LFP' is not a series; it contains field: choose one by `ecephys/LFP/NAME`",
    ):
        read(tmp_path / "a.nwb", window=NwbWindow(duration=1.0), series="ecephys/LFP")


def rows(truth: np.ndarray, answer: np.ndarray) -> Rows:
    names = np.array(["x"] * len(truth))
    return Rows(truth, answer, None, names, names)


def test_bits_per_spike_equal_the_closed_form() -> None:
    truth = np.array([[0.0, 2.0], [4.0, 2.0]])
    one = np.ones(2)
    assert bits_per_spike(rows(truth, np.array([[2.0, 2.0], [2.0, 2.0]])))(
        one
    ) == pytest.approx(0.0, abs=1e-12)
    # The true counts as rates: the first neuron gains 4 ln 2, the second nothing, over eight spikes.
    assert bits_per_spike(rows(truth, truth))(one) == pytest.approx(
        4 * np.log(2) / (8 * np.log(2)), abs=1e-7
    )
    # Twice the mean rate: each spike gains one bit, each unit of rate costs 1 / ln 2.
    assert bits_per_spike(rows(truth, np.full((2, 2), 4.0)))(one) == pytest.approx(
        1 - 1 / np.log(2)
    )
    assert np.isnan(bits_per_spike(rows(np.zeros((2, 2)), truth))(one))
    with pytest.raises(MetricError, match="cannot be negative"):
        bits_per_spike(rows(-truth, truth))
