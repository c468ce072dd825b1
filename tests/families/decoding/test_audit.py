"""An audit finds each planted fault, names it, and is silent about clean signals."""

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

PEOPLE, TRIALS, CHANNELS, SAMPLES = 4, 24, 5, 64


def clean(units: str = "uV") -> tuple[np.ndarray, dict[str, Any]]:
    """Simulated noise of four people, two labels in random order."""
    rng = np.random.default_rng(3)
    values = rng.normal(0, 12, (PEOPLE * TRIALS, CHANNELS, SAMPLES)).cumsum(axis=2) / 3
    people = np.repeat([f"s{n}" for n in range(PEOPLE)], TRIALS)
    label = np.concatenate([rng.permutation(["a", "b"] * (TRIALS // 2)) for _ in range(PEOPLE)])
    events = {
        "stimulus_id": label.copy(),
        "subject": people,
        "recording": np.char.add(people, ".edf"),
        "onset": np.tile(np.arange(TRIALS) * 2.0, PEOPLE),
        "label": label,
    }
    return values, events


def made(values: np.ndarray, events: dict[str, Any], units: str = "uV") -> xr.DataArray:
    names = [f"C{n}" for n in range(CHANNELS)]
    return signals(
        values, channels=names, channel_types="eeg", sampling_rate=64.0, start=0.0, units=units, events=events
    )


def codes(assembly: xr.DataArray, expected: Expectations | None = None) -> dict[str, str]:
    return {finding.code: finding.what for finding in audit(assembly, expected=expected)}


def test_clean_signals_raise_no_suspicion() -> None:
    assert codes(made(*clean())) == {}


def test_a_window_copied_to_another_person_is_found_whatever_its_gain() -> None:
    values, events = clean()
    values[70] = 3 * values[5] + 1
    found = codes(made(values, events))
    assert set(found) == {"audit.duplicate"}
    assert "1 pairs" in found["audit.duplicate"]
    assert "s0.edf at 10 s and s2.edf at 44 s" in found["audit.duplicate"]


@pytest.mark.parametrize("step", [0.01, 0.05])
def test_copies_that_were_rounded_are_found_and_offsets_and_drifts_are_none(step: float) -> None:
    """Whole numbers of an amplifier's steps, on electrodes whose offsets are a thousand times the signal."""
    rng = np.random.default_rng(1)
    values, events = clean()
    values = 10 * values / values.std()
    values[30:40] = 0.7 * values[0:10]
    values = np.round(values / step) * step
    offsets = rng.normal(0, 10_000, (1, values.shape[1], 1))
    values = (
        values + offsets + rng.normal(0, 500, (1, values.shape[1], 1)) * np.linspace(-1, 1, values.shape[2])
    )
    what = [one.what for one in audit(made(values, events)) if one.code == "audit.duplicate"]
    assert len(what) == 1 and what[0].startswith("10 pairs of windows are the same samples up to gain")


def test_one_recording_under_two_people_is_found() -> None:
    values, events = clean()
    values[TRIALS : 2 * TRIALS] = values[:TRIALS]
    what = [f.what for f in audit(made(values, events)) if f.code == "audit.duplicate"]
    assert any("recordings s0.edf, s1.edf of people s0, s1 hold the same bytes" in one for one in what)
    assert any("24 pairs of windows" in one and "24 of them of two people" in one for one in what)


def responding(seed: int = 0, trials: int = 40) -> tuple[np.ndarray, dict[str, Any]]:
    """Simulated: six people with channels of their own mixture, two sessions each, and one response 300 ms after events."""
    rng, people, sessions, samples = np.random.default_rng(seed), 6, 2, 64
    time = np.arange(samples) / 64.0
    bump = np.exp(-0.5 * ((time - 0.3) / 0.05) ** 2)
    parts, whose, which = [], [], []
    for person in range(people):
        mixing = np.eye(CHANNELS) + 0.8 * rng.standard_normal((CHANNELS, CHANNELS))
        for session in range(sessions):
            noise = mixing @ rng.normal(0, 5, (trials, CHANNELS, samples))
            gain = rng.uniform(0.7, 1.4)
            parts.append(gain * (noise + 6.0 * bump * np.linspace(0.5, 1.5, CHANNELS)[:, None]))
            whose += [f"s{person}"] * trials
            which += [f"day{session + 1}"] * trials
    count = len(whose)
    events = {
        "stimulus_id": np.full(count, "a"),
        "subject": np.array(whose),
        "session": np.array(which),
        "recording": np.char.add(np.char.add(whose, "_"), which),
        "onset": np.tile(np.arange(trials) * 2.0, people * sessions),
        "label": np.concatenate(
            [rng.permutation(["a", "b"] * (trials // 2)) for _ in range(people * sessions)]
        ),
    }
    return np.concatenate(parts), events


@pytest.mark.parametrize("seed", range(4))
def test_sessions_of_two_people_that_changed_places_are_found(seed: int) -> None:
    values, events = responding(seed)
    assert codes(made(values, events)) == {}
    first = np.flatnonzero((events["subject"] == "s1") & (events["session"] == "day2"))
    second = np.flatnonzero((events["subject"] == "s4") & (events["session"] == "day2"))
    exchanged = values.copy()
    exchanged[first], exchanged[second] = values[second], values[first]
    found = codes(made(exchanged, events))
    assert set(found) == {"audit.people"}
    assert "of s1 looks like the others of s4" in found["audit.people"]
    assert "(12 of 12 then look like their own person's, now 8)" in found["audit.people"]


@pytest.mark.parametrize("late", [-12, 8])
def test_events_that_are_shifted_in_one_recording_are_found(late: int) -> None:
    values, events = responding()
    here = events["recording"] == "s2_day1"
    values[here] = np.roll(values[here], late, axis=2)
    found = codes(made(values, events))
    assert set(found) == {"audit.shifted"}
    assert "1 recordings respond at another time than the others: s2_day1" in found["audit.shifted"]
    assert f"({1000 * late / 64:+.0f} ms)" in found["audit.shifted"]


def test_events_that_are_shifted_in_a_third_of_the_recordings_are_found() -> None:
    values, events = responding()
    late = np.isin(events["subject"], ["s2", "s5"])
    values[late] = np.roll(values[late], -10, axis=2)
    found = codes(made(values, events))
    assert set(found) == {"audit.shifted"}
    assert found["audit.shifted"].startswith(
        "4 recordings respond at another time than the others: s2_day1 (-156 ms)"
    )


def humming(rates: list[float], mains: float = 50.0) -> xr.DataArray:
    """Simulated recordings of 250 Hz by their files, of these rates in truth, with mains in some channels."""
    rng = np.random.default_rng(6)
    values, events = [], {"stimulus_id": [], "subject": [], "recording": [], "onset": [], "label": []}
    for number, rate in enumerate(rates):
        for trial in range(20):
            time = trial * 3.0 + np.arange(250) / rate
            noise = rng.normal(0, 10, (CHANNELS, 250)).cumsum(axis=1) / 5
            values.append(noise + np.linspace(1, 6, CHANNELS)[:, None] * np.sin(2 * np.pi * mains * time))
            told = {
                "stimulus_id": "a",
                "subject": f"s{number}",
                "recording": f"s{number}.edf",
                "onset": trial * 3.0,
            }
            told["label"] = rng.choice(["a", "b"])
            for name, value in told.items():
                events[name].append(value)
    names = [f"C{n}" for n in range(CHANNELS)]
    return signals(
        np.stack(values), channels=names, channel_types="eeg", sampling_rate=250.0, start=0.0, units="uV",
        events={name: np.array(column) for name, column in events.items()},
    )  # fmt: skip


@pytest.mark.parametrize(("rate", "hum"), [(500.0, 25.0), (256.0, 48.8), (200.0, 62.5)])
def test_a_recording_of_another_rate_than_its_file_states_is_found(rate: float, hum: float) -> None:
    said = codes(humming([250.0, 250.0, rate, 250.0, 250.0]))["audit.rate"]
    assert "1 recordings have their mains hum elsewhere than the others, at 50.0 Hz" in said
    assert float(said.split("s2.edf (")[1].split(" Hz")[0]) == pytest.approx(hum, abs=0.2)


def test_laboratories_with_other_mains_and_recordings_without_hum_raise_no_suspicion() -> None:
    assert "audit.rate" not in codes(humming([250.0] * 5))
    both = xr.concat([humming([250.0] * 3), humming([250.0] * 2, mains=60.0)], dim="presentation")
    assert "audit.rate" not in codes(both)
    assert "audit.rate" not in codes(made(*clean()))


def test_noise_and_people_who_cannot_be_told_apart_raise_no_suspicion() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values, events = responding(seed, trials=12)
        assert codes(made(rng.normal(0, 12, values.shape), events)) == {}


def test_other_counts_than_stated_and_missing_labels_are_found() -> None:
    values, events = clean()
    expected = Expectations.model_validate(
        {
            "assembly": [
                {"check": "distinct", "column": "subject", "count": 5},
                {"check": "row_count", "where": {"label": "a"}, "low": 47, "high": 48},
            ]
        }
    )
    assert codes(made(values, events), expected) == {"audit.counts": "subject: 4 different, 5 stated"}
    events["label"] = np.where(events["subject"] == "s3", "b", events["label"])
    what = [f.what for f in audit(made(values, events), expected=expected) if f.code == "audit.counts"]
    assert any("label a: 36 windows, 47 to 48 stated" in one for one in what)
    assert any("1 people lack a label that others have: s3 (a)" in one for one in what)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_absurd_units_are_found(factor: float) -> None:
    values, events = clean()
    assert "µV (median standard deviation" in codes(made(values * factor, events))["audit.units"]
    assert codes(made(values * 1e-6, events, units="V")) == {}


def test_one_person_in_another_unit_is_found() -> None:
    values, events = clean()
    values[TRIALS : 2 * TRIALS] *= 1000
    assert "1 recordings vary at least 100 times more or less" in codes(made(values, events))["audit.units"]


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_one_channel_in_another_unit_is_found(factor: float) -> None:
    """The median over channels hides it from every test of whole recordings."""
    values, events = clean()
    values[:, 2] *= factor
    said = codes(made(values, events))["audit.units"]
    assert "1 channels vary by other orders of magnitude" in said
    assert "C2 (" in said and "in 4 of 4 recordings" in said


def test_an_electrode_that_comes_off_in_one_recording_is_no_unit() -> None:
    values, events = clean()
    values[events["recording"] == "s1.edf", 2] *= 1000.0
    assert "orders of magnitude" not in codes(made(values, events)).get("audit.units", "")


def test_flat_and_clipped_channels_are_found() -> None:
    values, events = clean()
    values[:TRIALS, 2] = 7.0
    values[TRIALS : 2 * TRIALS, 4] = np.clip(values[TRIALS : 2 * TRIALS, 4], -20, 20)
    found = codes(made(values, events))
    assert found == {
        "audit.flat": "1 channels are flat: C2 in 1 recordings, first s0.edf",
        "audit.clipped": "1 channels are clipped: C4 in 1 recordings, first s1.edf",
    }


def test_a_channel_that_codes_the_label_is_found() -> None:
    values, events = clean()
    values[:, 1] = np.where(events["label"] == "a", 3.0, 9.0)[:, None]
    values[:, 1, 0] = 0.0
    assert "channels C1 is a code of the label" in codes(made(values, events))["audit.leak"]


def test_labels_in_blocks_are_found() -> None:
    values, events = clean()
    events["label"] = np.tile(np.repeat(["a", "b"], TRIALS // 2), PEOPLE)
    assert (
        "4 changes from one window to the next in 4 recordings, 48 by chance"
        in codes(made(values, events))["audit.order"]
    )


def test_the_command_audits_what_was_recorded_not_what_was_scaled(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "download"
    folder.mkdir()
    for person in range(6):
        channels = {name: rng.normal(0, 10, 64 * 14) for name in ("Cz", "Pz", "Oz")}
        if person == 4:
            channels["Pz"] = np.full(64 * 14, 5.0)
        edf(folder / f"S{person}_{'ab'[person % 2]}.edf", channels, 64)
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(path.read_text().replace("units: uV}", "units: uV, high_pass: 1.0, scale: robust}"))
    pin(open_catalog(place), "Rest", Downloads(folder=folder, named=("S{subject}_{label}.edf",), check=False))
    assert main(["--root", str(place), "audit", "Rest", "--out", str(tmp_path / "audit.md")]) == 0
    page = (tmp_path / "audit.md").read_text()
    assert page in capsys.readouterr().out
    assert "# Audit of Rest" in page
    assert "`audit.flat` 1 channels are flat: Pz in 1 recordings, first S4_a.edf" in page


def test_implausible_amplitudes_are_refused_with_what_was_seen() -> None:
    with pytest.raises(
        DataError, match=r"x\.edf: eeg channels vary by 0\.005 µV .*0\.05 to 5000 µV.*stated: uV"
    ):
        require_plausible({"eeg": 0.005}, "uV", "x.edf")
    require_plausible({"eeg": 0.005}, "arbitrary", "x.edf")
    require_plausible({"eeg": 1e-5, "misc": 1e9}, "V", "x.edf")
    with pytest.raises(DataError, match="fT"):
        require_plausible({"mag": 1.0}, "T", "x.fif")
