"""An audit reports what a reader would refuse, and goes on: units, orders of channels, altered copies, shifts and leaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.families.decoding.audit import audit, audit_dataset
from neuroledger.families.decoding.audit_altered_windows import altered_windows
from neuroledger.families.decoding.protocols.leakage_checks import telling_channels
from neuroledger.families.signals.signals import signals
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place
from tests.families.signals.recording_files import edf

__all__ = ["place"]

RATE, TRIALS, PEOPLE, CHANNELS = 100, 60, 8, 12
NAMES = [f"E{n}" for n in range(CHANNELS)]
Signals = tuple[np.ndarray[Any, Any], dict[str, Any]]


def pink(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Noise with the spectrum of EEG, 10 µV."""
    spectrum = np.fft.rfft(rng.normal(size=shape))
    spectrum /= np.maximum(np.arange(spectrum.shape[-1]), 1) ** 0.5
    values = np.fft.irfft(spectrum, shape[-1])
    return np.asarray(10 * values / values.std())


def clean(seed: int = 0) -> Signals:
    """Eight people in two runs; every fifth event is a target, which evokes a response at some channels."""
    rng = np.random.default_rng(seed)
    values, rows = [], []
    bump = np.hanning(30)
    for person in range(PEOPLE):
        gain = np.exp(0.3 * rng.normal())
        for run in range(2):
            noise = gain * pink(rng, CHANNELS, TRIALS * RATE)
            for trial in range(TRIALS):
                window = noise[:, trial * RATE : (trial + 1) * RATE].copy()
                label = "target" if trial % 5 == 0 else "standard"
                if label == "target":
                    window[6:10, 30:60] += 20 * gain * bump
                values.append(window)
                rows.append(
                    (f"p{person}", str(run), f"p{person}-{run}", float(trial), label)
                )
    columns = dict(
        zip(
            ("subject", "session", "recording", "onset", "label"),
            map(np.array, zip(*rows, strict=True)),
            strict=True,
        )
    )
    return np.array(values), columns | {
        "stimulus_id": np.array([f"w{n}" for n in range(len(rows))])
    }


def assembled(values: np.ndarray[Any, Any], events: dict[str, Any]) -> xr.DataArray:
    digests = np.array([f"{name:0>64}" for name in events["recording"]])
    return signals(
        values.astype(np.float32), channels=NAMES, channel_types="eeg", sampling_rate=float(RATE), start=0.0, units="uV",
        events=events | {"recording_sha256": digests},
    )  # fmt: skip


def found(values: np.ndarray[Any, Any], events: dict[str, Any]) -> list[str]:
    return [
        f"{finding.code}: {finding.what}"
        for finding in audit(assembled(values, events))
    ]


def of(events: dict[str, Any], person: str) -> np.ndarray[Any, Any]:
    return np.asarray(events["subject"] == person)


@pytest.mark.parametrize("seed", [0, 1])
def test_clean_recordings_have_no_findings(seed: int) -> None:
    assert found(*clean(seed)) == []


def forty(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    values[of(events, "p3")] *= 40
    return values, events


def thousand(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    values[of(events, "p3")] *= 1000
    return values, events


def copied_channel(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    rows = of(events, "p5")
    values[rows, 3] = values[rows, 4]
    return values, events


def late_by_a_trial(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    for run in "01":
        rows = np.flatnonzero(of(events, "p4") & (events["session"] == run))
        values[rows] = np.roll(values[rows], -1, axis=0)
    return values, events


def noisy_copy(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    one, other = of(events, "p1"), of(events, "p2")
    copy = 1.4 * values[one]
    values[other] = copy + 0.5 * copy.std() * np.random.default_rng(9).normal(
        size=copy.shape
    )
    return values, events


def few_noisy_windows(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    for number, (one, other) in enumerate([(40, 700), (310, 130)]):
        noise = np.random.default_rng(number).normal(size=values[one].shape)
        values[other] = 1.7 * values[one] + 0.15 * values[one].std() * noise
    return values, events


def filtered_copy(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    one, other = of(events, "p1"), of(events, "p2")
    spectrum = np.fft.rfft(values[one], axis=2)
    frequencies = np.fft.rfftfreq(RATE, 1 / RATE)
    spectrum[:, :, (frequencies < 4) | (frequencies > 20)] *= 0.01
    values[other] = 1.4 * np.fft.irfft(spectrum, RATE, axis=2)
    return values, events


def written_answer(values: np.ndarray[Any, Any], events: dict[str, Any]) -> Signals:
    answer = 5.0 * (events["label"] == "target")
    values[:, 7] = answer[:, None] + 1e-3 * np.random.default_rng(2).normal(
        size=values[:, 7].shape
    )
    return values, events


FAULTS: dict[str, tuple[Callable[..., Signals], str]] = {
    "a person in another unit, ×40": (forty, "audit.units: 2 recordings vary at least"),
    "a person in millivolts": (thousand, "audit.units: 2 recordings vary at least 100 times more or less"),
    "a channel stored twice in one person": (
        copied_channel, "audit.channels: 1 pairs of channels have the same signal: E3 and E4 (in 2 of 16 recordings"
    ),
    "events of one person late by a trial": (
        late_by_a_trial, "audit.labels: windows of 2 recordings show the label of another window"
    ),
    "a copy with gain and noise": (noisy_copy, "audit.duplicate: 2 pairs of recordings have the same windows up to gain"),
    "two windows copied with gain and noise": (
        few_noisy_windows, "audit.duplicate: 2 pairs of windows are the same signal up to gain and noise, 2 of them of two"
    ),
    "a copy with gain and filter": (filtered_copy, "audit.duplicate: 2 pairs of recordings have the same windows up to"),
    "the answer with a little noise": (written_answer, "audit.leak: one threshold on one value of channels E7 tells"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_reported(name: str) -> None:
    plant, words = FAULTS[name]
    assert any(what.startswith(words) for what in found(*plant(*clean()))), found(
        *plant(*clean())
    )


def beats(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """One form of a heartbeat in every window, of another size."""
    time = np.arange(RATE)
    form = np.exp(-0.5 * ((time - 30) / 3) ** 2) - 0.3 * np.exp(
        -0.5 * ((time - 50) / 9) ** 2
    )
    sizes = 1000 * (1 + 0.15 * rng.normal(size=(200, 1, 1)))
    return np.asarray(
        sizes * form * np.linspace(1, 0.4, CHANNELS)[:, None]
        + 10 * rng.normal(size=(200, CHANNELS, RATE))
    )


def steps(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """The same step at the same moment of three windows, and noise."""
    values = 10 * rng.normal(size=(200, CHANNELS, RATE))
    values[[5, 70, 133], :, 50:] += 500 * np.linspace(1, 0.4, CHANNELS)[:, None]
    return np.asarray(values)


def flicker(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """A response at 12 Hz with the phase of the light, of another size in every window, and noise."""
    wave = np.sin(2 * np.pi * 12 * np.arange(RATE) / RATE)
    sizes = 30 * (1 + 0.2 * rng.normal(size=(200, 1, 1)))
    return np.asarray(sizes * wave + 5 * rng.normal(size=(200, CHANNELS, RATE)))


@pytest.mark.parametrize("made", [beats, steps, flicker])
def test_windows_that_are_alike_for_other_reasons_are_no_copies(
    made: Callable[[np.random.Generator], np.ndarray[Any, Any]],
) -> None:
    values = made(np.random.default_rng(4))
    person = np.repeat(["p0", "p1"], 100)
    events = {
        "subject": person,
        "recording": person,
        "onset": np.tile(np.arange(100.0), 2),
    }
    events |= {"stimulus_id": np.array([f"w{n}" for n in range(200)])}
    assert list(altered_windows(assembled(values, events))) == []


def test_a_threshold_tells_classes_only_where_one_channel_stands_out() -> None:
    values, events = clean()
    plain = assembled(values, events)
    assert telling_channels(plain, events["label"]) == []
    told = assembled(*written_answer(values.copy(), events))
    assert telling_channels(told, events["label"]) == ["E7"]
    assert (
        telling_channels(told.isel(presentation=slice(0, 10)), events["label"][:10])
        == []
    )
    offset = values + 50.0 * (events["label"] == "target")[:, None, None]
    assert telling_channels(assembled(offset, events), events["label"]) == [], (
        "a plain difference is no written answer"
    )
    three = np.array(["a", "b", "c"])[np.arange(len(values)) % 3]
    values[:, 2] = (np.arange(len(values)) % 3)[:, None]
    assert telling_channels(assembled(values, events), three) == ["E2"]


def recordings(
    folder: Path, change: Callable[[int, dict[str, Any]], dict[str, Any]]
) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for person in range(6):
        channels = {name: 10 * rng.normal(size=64 * 14) for name in ("Cz", "Pz", "Oz")}
        edf(folder / f"S{person}_{'ab'[person % 2]}.edf", change(person, channels), 64)


def audited(place: Path, folder: Path) -> list[str]:
    pin(
        open_catalog(place),
        "Rest",
        Downloads(folder=folder, named=("S{subject}_{label}.edf",), check=False),
    )
    return [
        f"{finding.code}: {finding.what}"
        for finding in audit_dataset(open_catalog(place), "Rest")
    ]


def test_a_person_with_implausible_amplitudes_is_a_finding_and_the_audit_goes_on(
    place: Path, tmp_path: Path
) -> None:
    def change(person: int, channels: dict[str, Any]) -> dict[str, Any]:
        if person == 2:
            return {
                name: values / 300 for name, values in channels.items()
            }  # as in another unit
        return channels | {"Pz": np.full(64 * 14, 5.0)} if person == 4 else channels

    recordings(tmp_path / "download", change)
    whats = audited(place, tmp_path / "download")
    assert any(
        what.startswith("audit.units: S2_a.edf: eeg channels vary by 0.03")
        for what in whats
    )
    assert any(
        "1 recordings vary at least 100 times more or less than the others" in what
        for what in whats
    )
    assert any(what.startswith("audit.flat: 1 channels are flat: Pz") for what in whats)


def test_another_order_and_other_channels_are_findings_and_the_audit_goes_on(
    place: Path, tmp_path: Path
) -> None:
    def change(person: int, channels: dict[str, Any]) -> dict[str, Any]:
        if person == 3:
            return {name: channels[name] for name in ("Oz", "Cz", "Pz")}
        return channels | {"Pz": np.full(64 * 14, 5.0)} if person == 4 else channels

    recordings(tmp_path / "download", change)
    whats = audited(place, tmp_path / "download")
    assert any(
        "S3_b.edf and S0_a.edf have the same channels in another order" in what
        for what in whats
    )
    assert any(what.startswith("audit.flat: 1 channels are flat: Pz") for what in whats)


@pytest.mark.parametrize("written", [False, True])
def test_an_answer_that_is_nearly_written_is_a_note_of_the_score(written: bool) -> None:
    rng = np.random.default_rng(4)
    labels = np.tile(["0", "1"], 60)
    x = rng.normal(size=(120, 8, 50))
    if written:
        x[:, 7, :] = 5.0 * (labels == "1")[:, None] + 1e-3 * rng.normal(size=(120, 50))
    score = nl.decode("shrinkage_lda", x, labels, groups=np.repeat(list("abcdef"), 20))
    notes = [
        note for note in score.notes if "the answer is written in the data" in note
    ]
    assert notes == (
        ["the answer is written in the data: channel7 tells it alone"]
        if written
        else []
    )
