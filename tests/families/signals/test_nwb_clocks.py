"""NWB: spikes, trials and series that do not belong to one clock are refused, and what was not observed is left out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.clocks import LeftOut
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.clocks import count_empty, judge
from neuroledger.errors import DataError, Finding
from neuroledger.families.signals.readers.nwb_trials import NwbWindow, nwb_trials

pynwb = pytest.importorskip("pynwb")

UNITS, TRIALS, SPIKES = 5, 40, 800
HALF = NwbWindow(start=0.0, duration=0.5, bin=0.1)


def session(
    path: Path,
    *,
    spikes: float = 1.0,
    shift: float = 0.0,
    by_trial: bool = False,
    missing: tuple[int, ...] = (),
    observed: list[list[list[float]]] | None = None,
    seed: int = 0,
) -> None:
    """40 trials of 1 s every 2 s from 1 s on, and 5 units of 800 spikes; a clock fault if one is planted.

    Parameters
    ----------
    spikes, shift
        Factor and shift (s) of the spike times.
    by_trial
        Whether spikes are relative to the start of their trial.
    missing
        Trials whose start is not a number.
    observed
        Intervals in which each unit was observed.
    """
    rng = np.random.default_rng(seed)
    content = pynwb.NWBFile("simulated", f"id{seed}", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="monkey")
    content.add_trial_column("direction", "where to")
    for trial in range(TRIALS):
        start = 1.0 + 2.0 * trial
        content.add_trial(
            start_time=np.nan if trial in missing else start,
            stop_time=start + 1.0,
            direction="lr"[trial % 2],
        )
    for unit in range(UNITS):
        times = (
            np.sort(rng.uniform(0, 1.0 if by_trial else 2.0 * TRIALS + 2.0, SPIKES))
            * spikes
            + shift
        )
        stated = {} if observed is None else {"obs_intervals": observed[unit]}
        content.add_unit(spike_times=times, **stated)
    with pynwb.NWBHDF5IO(str(path), "w") as opened:
        opened.write(content)


def read(path: Path, window: NwbWindow = HALF, **fields: Any) -> Dataset:
    return nwb_trials(
        {path.name: path}, window=window, facts={"label": "direction"}, **fields
    )


def judged(data: Dataset) -> list[Finding]:
    return list(judge(count_empty(data.assembly, data.clocks), "data set X"))


def test_spikes_and_trials_of_one_clock_are_accepted(tmp_path: Path) -> None:
    session(tmp_path / "good.nwb")
    data = read(tmp_path / "good.nwb")
    assert judged(data) == []
    spikes, trials = data.clocks[0].clocks
    assert (spikes.of, trials.of, trials.start, trials.stop, trials.count) == (
        "spikes",
        "trials",
        1.0,
        80.0,
        TRIALS,
    )
    assert data.notes == ()


def test_spikes_in_milliseconds_are_refused(tmp_path: Path) -> None:
    session(tmp_path / "ms.nwb", spikes=1000.0)
    (finding,) = judged(read(tmp_path / "ms.nwb"))
    assert finding.code == "data.clocks"
    assert finding.severity == "error"
    assert "trials last from 1 to 80 s" in finding.what
    assert (
        "of 40 windows hold no event in any channel: times in another unit"
        in finding.what
    )


def test_spikes_relative_to_trials_are_refused(tmp_path: Path) -> None:
    session(tmp_path / "trialized.nwb", by_trial=True)
    (finding,) = judged(read(tmp_path / "trialized.nwb"))
    assert "40 of 40 windows hold no event" in finding.what


def test_spikes_of_a_clock_that_began_later_are_refused(tmp_path: Path) -> None:
    session(tmp_path / "shifted.nwb", shift=15.0)
    (finding,) = judged(read(tmp_path / "shifted.nwb"))
    assert "of 40 windows are before the first or after the last event" in finding.what


@given(st.sampled_from([1e-3, 1 / 60, 60.0, 1000.0, 1e6]), st.integers(0, 2**16))
@settings(max_examples=8, deadline=None)
def test_every_wrong_unit_of_time_is_refused(
    tmp_path_factory: pytest.TempPathFactory, factor: float, seed: int
) -> None:
    path = tmp_path_factory.mktemp("unit") / "wrong.nwb"
    session(path, spikes=factor, seed=seed)
    assert [finding.code for finding in judged(read(path))] == ["data.clocks"]


def test_a_declaration_lets_silent_windows_pass(tmp_path: Path) -> None:
    session(tmp_path / "ms.nwb", spikes=1000.0)
    assert (
        judged(
            read(
                tmp_path / "ms.nwb",
                HALF.model_copy(update={"empty": 1.0, "beyond": 1.0}),
            )
        )
        == []
    )


def test_a_trial_without_a_time_is_counted_by_label(tmp_path: Path) -> None:
    session(tmp_path / "nantrial.nwb", missing=(7, 8))
    data = read(tmp_path / "nantrial.nwb")
    assert data.assembly is not None
    assert data.assembly.sizes["presentation"] == TRIALS - 2
    assert data.clocks[0].left_out == (
        LeftOut(reason="without a time", label="l", windows=1),
        LeftOut(reason="without a time", label="r", windows=1),
    )
    assert data.notes == (
        "2 windows have no time and are left out: nantrial.nwb (l 1, r 1)",
    )


def test_a_trial_outside_the_observed_intervals_is_missing_not_zero(
    tmp_path: Path,
) -> None:
    all_of_it = [[0.0, 82.0]]
    observed = [
        all_of_it,
        all_of_it,
        [[0.0, 20.0], [20.0, 40.0], [50.2, 82.0]],
        all_of_it,
        all_of_it,
    ]
    session(tmp_path / "observed.nwb", observed=observed)
    data = read(tmp_path / "observed.nwb")
    assert data.assembly is not None
    kept = data.assembly["onset"].values.tolist()
    # Unit 2 was not observed from 40 to 50.2 s, in which five windows of half a second begin; 51 s is inside again.
    assert kept == [
        onset for onset in 1.0 + 2.0 * np.arange(TRIALS) if not 39.5 < onset < 50.2
    ]
    assert sum(one.windows for one in data.clocks[0].left_out) == 5
    assert "outside the intervals in which all units were observed" in data.notes[0]


def test_a_file_of_which_nothing_was_observed_is_refused(tmp_path: Path) -> None:
    session(tmp_path / "none.nwb", observed=[[[0.0, 0.5]]] * UNITS)
    with pytest.raises(
        DataError, match=r"none of 40 windows can be cut \(40 not observed\)"
    ):
        read(tmp_path / "none.nwb")


def series(path: Path, stamps: np.ndarray[Any, Any], starts: list[float]) -> None:
    """A series whose values in µV are the numbers of its samples, with time stamps."""
    content = pynwb.NWBFile("simulated", "id", datetime(2026, 1, 1, tzinfo=UTC))
    content.subject = pynwb.file.Subject(subject_id="monkey")
    content.add_trial_column("direction", "where to")
    for start in starts:
        content.add_trial(start_time=start, stop_time=start + 1.0, direction="l")
    group = content.create_electrode_group("g", "d", "l", content.create_device("d"))
    content.add_electrode(group=group, location="l")
    region = content.create_electrode_table_region([0], "all")
    values = np.arange(len(stamps))[:, None] * 1.0
    content.add_acquisition(
        pynwb.ecephys.ElectricalSeries(
            "lfp", values, region, timestamps=stamps, conversion=1e-6
        )
    )
    with pynwb.NWBHDF5IO(str(path), "w") as opened:
        opened.write(content)


def test_windows_of_a_series_after_a_gap_are_cut_by_its_time_stamps(
    tmp_path: Path,
) -> None:
    stamps = np.concatenate([np.arange(1000) / 100, 15 + np.arange(1000) / 100])
    series(tmp_path / "gap.nwb", stamps, [2.0, 9.8, 12.0, 16.0, 20.0])
    data = read(tmp_path / "gap.nwb", series="lfp")
    assert data.assembly is not None
    assert data.assembly.values[:, 0, 0].tolist() == [200.0, 1100.0, 1500.0]
    assert data.clocks[0].left_out == (
        LeftOut(reason="across a gap", label="l", windows=2),
    )
    assert [(gap.begin, gap.seconds) for gap in data.clocks[0].gaps] == [(10.0, 5.0)]


def test_windows_beyond_a_series_are_counted_and_refused_if_many(
    tmp_path: Path,
) -> None:
    stamps = np.arange(2000) / 100
    series(tmp_path / "few.nwb", stamps, [*np.arange(0.0, 19.0), 19.8])
    data = read(tmp_path / "few.nwb", series="lfp")
    assert data.notes == (
        "1 windows reach beyond the ends of 1 recordings and are left out: few.nwb (1 of 20)",
    )
    series(tmp_path / "many.nwb", stamps, list(np.arange(0.0, 40.0)))
    with pytest.raises(DataError, match="20 of 40 windows reach beyond the recording"):
        read(tmp_path / "many.nwb", series="lfp")
