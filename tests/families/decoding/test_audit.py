"""The audit reports each planted fault, and nothing about clean signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.cli import main
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError
from neuroledger.families.decoding.audit import audit
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.units import require_plausible
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.expectations import Expectations
from tests.data.test_pin import place
from tests.families.signals.recording_files import edf

__all__ = ["place"]

SUBJECTS, TRIALS, CHANNELS, SAMPLES = 4, 24, 5, 64


def clean(units: str = "uV") -> tuple[np.ndarray, dict[str, Any]]:
    """Simulated noise of four subjects, two labels in random order."""
    rng = np.random.default_rng(3)
    values = (
        rng.normal(0, 12, (SUBJECTS * TRIALS, CHANNELS, SAMPLES)).cumsum(axis=2) / 3
    )
    subject_ids = np.repeat([f"s{n}" for n in range(SUBJECTS)], TRIALS)
    label = np.concatenate(
        [rng.permutation(["a", "b"] * (TRIALS // 2)) for _ in range(SUBJECTS)]
    )
    events = {
        "stimulus_id": label.copy(),
        "subject": subject_ids,
        "recording": np.char.add(subject_ids, ".edf"),
        "onset": np.tile(np.arange(TRIALS) * 2.0, SUBJECTS),
        "label": label,
    }
    return values, events


def assembled(
    values: np.ndarray, events: dict[str, Any], units: str = "uV"
) -> xr.DataArray:
    names = [f"C{n}" for n in range(CHANNELS)]
    return signals(
        values,
        channels=names,
        channel_types="eeg",
        sampling_rate=64.0,
        start=0.0,
        units=units,
        events=events,
    )


def codes(
    assembly: xr.DataArray, expected: Expectations | None = None
) -> dict[str, str]:
    return {
        finding.code: finding.what for finding in audit(assembly, expected=expected)
    }


def test_clean_signals_have_no_findings() -> None:
    assert codes(assembled(*clean())) == {}


def test_a_window_copied_to_another_subject_is_found_at_any_gain() -> None:
    values, events = clean()
    values[70] = 3 * values[5] + 1
    problems = codes(assembled(values, events))
    assert set(problems) == {"audit.duplicate"}
    assert "1 pairs" in problems["audit.duplicate"]
    assert "s0.edf at 10 s and s2.edf at 44 s" in problems["audit.duplicate"]


@pytest.mark.parametrize("step", [0.01, 0.05])
def test_rounded_copies_are_found_and_offsets_and_drifts_are_ignored(
    step: float,
) -> None:
    """Signals rounded to steps of an amplifier, on electrodes whose offsets are a thousand times the signal."""
    rng = np.random.default_rng(1)
    values, events = clean()
    values = 10 * values / values.std()
    values[30:40] = 0.7 * values[0:10]
    values = np.round(values / step) * step
    offsets = rng.normal(0, 10_000, (1, values.shape[1], 1))
    values = (
        values
        + offsets
        + rng.normal(0, 500, (1, values.shape[1], 1))
        * np.linspace(-1, 1, values.shape[2])
    )
    problems = [
        finding.what
        for finding in audit(assembled(values, events))
        if finding.code == "audit.duplicate"
    ]
    assert len(problems) == 1 and problems[0].startswith(
        "10 pairs of windows are the same samples up to gain"
    )


def test_one_recording_of_two_subjects_is_found() -> None:
    values, events = clean()
    values[TRIALS : 2 * TRIALS] = values[:TRIALS]
    problems = [
        finding.what
        for finding in audit(assembled(values, events))
        if finding.code == "audit.duplicate"
    ]
    assert any(
        "recordings s0.edf, s1.edf of subjects s0, s1 have the same bytes" in problem
        for problem in problems
    )
    assert any(
        "24 pairs of windows" in problem and "24 of them of two subjects" in problem
        for problem in problems
    )


def evoked(seed: int = 0, trials: int = 40) -> tuple[np.ndarray, dict[str, Any]]:
    """Simulated: six subjects, each with its own mixing of channels, two sessions, and a response 300 ms after events."""
    rng, subject_count, sessions, samples = np.random.default_rng(seed), 6, 2, 64
    time = np.arange(samples) / 64.0
    bump = np.exp(-0.5 * ((time - 0.3) / 0.05) ** 2)
    parts, subject_ids, session_ids = [], [], []
    for subject in range(subject_count):
        mixing = np.eye(CHANNELS) + 0.8 * rng.standard_normal((CHANNELS, CHANNELS))
        for session in range(sessions):
            noise = mixing @ rng.normal(0, 5, (trials, CHANNELS, samples))
            gain = rng.uniform(0.7, 1.4)
            parts.append(
                gain * (noise + 6.0 * bump * np.linspace(0.5, 1.5, CHANNELS)[:, None])
            )
            subject_ids += [f"s{subject}"] * trials
            session_ids += [f"day{session + 1}"] * trials
    count = len(subject_ids)
    events = {
        "stimulus_id": np.full(count, "a"),
        "subject": np.array(subject_ids),
        "session": np.array(session_ids),
        "recording": np.char.add(np.char.add(subject_ids, "_"), session_ids),
        "onset": np.tile(np.arange(trials) * 2.0, subject_count * sessions),
        "label": np.concatenate(
            [
                rng.permutation(["a", "b"] * (trials // 2))
                for _ in range(subject_count * sessions)
            ]
        ),
    }
    return np.concatenate(parts), events


@pytest.mark.parametrize("seed", range(4))
def test_exchanged_sessions_are_found(seed: int) -> None:
    values, events = evoked(seed)
    assert codes(assembled(values, events)) == {}
    first = np.flatnonzero((events["subject"] == "s1") & (events["session"] == "day2"))
    second = np.flatnonzero((events["subject"] == "s4") & (events["session"] == "day2"))
    exchanged = values.copy()
    exchanged[first], exchanged[second] = values[second], values[first]
    problems = codes(assembled(exchanged, events))
    assert set(problems) == {"audit.people"}
    assert "of s1 looks like the others of s4" in problems["audit.people"]
    assert (
        "(12 of 12 then look like their own subject's, now 8)"
        in problems["audit.people"]
    )


@pytest.mark.parametrize("late", [-12, 8])
def test_events_that_are_shifted_in_one_recording_are_found(late: int) -> None:
    values, events = evoked()
    here = events["recording"] == "s2_day1"
    values[here] = np.roll(values[here], late, axis=2)
    problems = codes(assembled(values, events))
    assert set(problems) == {"audit.shifted"}
    assert (
        "1 recordings respond at another time than the others: s2_day1"
        in problems["audit.shifted"]
    )
    assert f"({1000 * late / 64:+.0f} ms)" in problems["audit.shifted"]


def test_events_that_are_shifted_in_a_third_of_the_recordings_are_found() -> None:
    values, events = evoked()
    late = np.isin(events["subject"], ["s2", "s5"])
    values[late] = np.roll(values[late], -10, axis=2)
    problems = codes(assembled(values, events))
    assert set(problems) == {"audit.shifted"}
    assert problems["audit.shifted"].startswith(
        "4 recordings respond at another time than the others: s2_day1 (-156 ms)"
    )


def with_mains(rates: list[float], mains: float = 50.0) -> xr.DataArray:
    """Simulated recordings with mains hum: files state 250 Hz, the true rates are `rates`."""
    rng = np.random.default_rng(6)
    values, events = (
        [],
        {"stimulus_id": [], "subject": [], "recording": [], "onset": [], "label": []},
    )
    for number, rate in enumerate(rates):
        for trial in range(20):
            time = trial * 3.0 + np.arange(250) / rate
            noise = rng.normal(0, 10, (CHANNELS, 250)).cumsum(axis=1) / 5
            values.append(
                noise
                + np.linspace(1, 6, CHANNELS)[:, None]
                * np.sin(2 * np.pi * mains * time)
            )
            row = {
                "stimulus_id": "a",
                "subject": f"s{number}",
                "recording": f"s{number}.edf",
                "onset": trial * 3.0,
            }
            row["label"] = rng.choice(["a", "b"])
            for name, value in row.items():
                events[name].append(value)
    names = [f"C{n}" for n in range(CHANNELS)]
    return signals(
        np.stack(values),
        channels=names,
        channel_types="eeg",
        sampling_rate=250.0,
        start=0.0,
        units="uV",
        events={name: np.array(column) for name, column in events.items()},
    )


@pytest.mark.parametrize(("rate", "hum"), [(500.0, 25.0), (256.0, 48.8), (200.0, 62.5)])
def test_a_recording_of_another_rate_than_its_file_states_is_found(
    rate: float, hum: float
) -> None:
    problem = codes(with_mains([250.0, 250.0, rate, 250.0, 250.0]))["audit.rate"]
    assert (
        "1 recordings have their mains hum at another frequency than the others, 50.0 Hz"
        in problem
    )
    assert float(problem.split("s2.edf (")[1].split(" Hz")[0]) == pytest.approx(
        hum, abs=0.2
    )


def test_laboratories_with_other_mains_and_recordings_without_hum_have_no_findings() -> (
    None
):
    assert "audit.rate" not in codes(with_mains([250.0] * 5))
    both = xr.concat(
        [with_mains([250.0] * 3), with_mains([250.0] * 2, mains=60.0)],
        dim="presentation",
    )
    assert "audit.rate" not in codes(both)
    assert "audit.rate" not in codes(assembled(*clean()))


def test_noise_of_indistinguishable_subjects_have_no_findings() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values, events = evoked(seed, trials=12)
        assert codes(assembled(rng.normal(0, 12, values.shape), events)) == {}


def test_unexpected_counts_and_missing_labels_are_found() -> None:
    values, events = clean()
    expected = Expectations.model_validate(
        {
            "assembly": [
                {"check": "distinct", "column": "subject", "count": 5},
                {"check": "row_count", "where": {"label": "a"}, "low": 47, "high": 48},
            ]
        }
    )
    assert codes(assembled(values, events), expected) == {
        "audit.counts": "subject: 4 different, 5 stated"
    }
    events["label"] = np.where(events["subject"] == "s3", "b", events["label"])
    problems = [
        finding.what
        for finding in audit(assembled(values, events), expected=expected)
        if finding.code == "audit.counts"
    ]
    assert any(
        "label a: 36 windows, 47 to 48 stated" in problem for problem in problems
    )
    assert any(
        "1 subjects lack a label that others have: s3 (a)" in problem
        for problem in problems
    )


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_implausible_units_are_found(factor: float) -> None:
    values, events = clean()
    assert (
        "µV (median standard deviation"
        in codes(assembled(values * factor, events))["audit.units"]
    )
    assert codes(assembled(values * 1e-6, events, units="V")) == {}


def test_one_subject_in_another_unit_is_found() -> None:
    values, events = clean()
    values[TRIALS : 2 * TRIALS] *= 1000
    assert (
        "1 recordings vary at least 100 times more or less"
        in codes(assembled(values, events))["audit.units"]
    )


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_one_channel_in_another_unit_is_found(factor: float) -> None:
    """The median over channels hides it from all checks of whole recordings."""
    values, events = clean()
    values[:, 2] *= factor
    problem = codes(assembled(values, events))["audit.units"]
    assert "1 channels vary by other orders of magnitude" in problem
    assert "C2 (" in problem and "in 4 of 4 recordings" in problem


def test_an_electrode_detached_in_one_recording_is_not_reported_as_a_unit() -> None:
    values, events = clean()
    values[events["recording"] == "s1.edf", 2] *= 1000.0
    assert "orders of magnitude" not in codes(assembled(values, events)).get(
        "audit.units", ""
    )


def test_flat_and_clipped_channels_are_found() -> None:
    values, events = clean()
    values[:TRIALS, 2] = 7.0
    values[TRIALS : 2 * TRIALS, 4] = np.clip(values[TRIALS : 2 * TRIALS, 4], -20, 20)
    problems = codes(assembled(values, events))
    assert problems == {
        "audit.flat": "1 channels are flat: C2 in 1 recordings, first s0.edf",
        "audit.clipped": "1 channels are clipped: C4 in 1 recordings, first s1.edf",
    }


def test_a_channel_that_encodes_the_label_is_found() -> None:
    values, events = clean()
    values[:, 1] = np.where(events["label"] == "a", 3.0, 9.0)[:, None]
    values[:, 1, 0] = 0.0
    assert (
        "channels C1 encodes the label"
        in codes(assembled(values, events))["audit.leak"]
    )


def test_labels_in_blocks_are_found() -> None:
    values, events = clean()
    events["label"] = np.tile(np.repeat(["a", "b"], TRIALS // 2), SUBJECTS)
    assert (
        "4 changes from one window to the next in 4 recordings, 48 by chance"
        in codes(assembled(values, events))["audit.order"]
    )


def test_the_command_audits_the_recorded_not_the_scaled_values(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "download"
    folder.mkdir()
    for subject in range(6):
        channels = {name: rng.normal(0, 10, 64 * 14) for name in ("Cz", "Pz", "Oz")}
        if subject == 4:
            channels["Pz"] = np.full(64 * 14, 5.0)
        edf(folder / f"S{subject}_{'ab'[subject % 2]}.edf", channels, 64)
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(
        path.read_text().replace(
            "units: uV}", "units: uV, high_pass: 1.0, scale: robust}"
        )
    )
    pin(
        open_catalog(place),
        "Rest",
        Downloads(folder=folder, named=("S{subject}_{label}.edf",), check=False),
    )
    assert (
        main(
            ["--root", str(place), "audit", "Rest", "--out", str(tmp_path / "audit.md")]
        )
        == 0
    )
    page = (tmp_path / "audit.md").read_text()
    assert page in capsys.readouterr().out
    assert "# Audit of Rest" in page
    assert (
        "`audit.flat` 1 channels are flat: Pz in 1 recordings, first S4_a.edf" in page
    )


def test_implausible_amplitudes_are_refused_with_the_measured_value() -> None:
    with pytest.raises(
        DataError,
        match=r"x\.edf: eeg channels vary by 0\.005 µV .*0\.05 to 5000 µV.*stated: uV",
    ):
        require_plausible({"eeg": 0.005}, "uV", "x.edf")
    require_plausible({"eeg": 0.005}, "arbitrary", "x.edf")
    require_plausible({"eeg": 1e-5, "misc": 1e9}, "V", "x.edf")
    with pytest.raises(DataError, match="fT"):
        require_plausible({"mag": 1.0}, "T", "x.fif")
