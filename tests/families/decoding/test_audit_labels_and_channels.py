"""The audit reports shifted labels, duplicated events, exchanged or silent channels; nothing about clean signals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.families.decoding.audit import audit
from neuroledger.families.signals.signals import signals

SUBJECTS, TRIALS, RATE = 5, 40, 128
NAMES = ["Fp1", "Fz", "C3", "Cz", "C4", "Pz", "O2", "T7"]
PLACES = np.array(
    [
        [-0.3, 0.9],
        [0, 0.5],
        [-0.5, 0],
        [0, 0],
        [0.5, 0],
        [0, -0.5],
        [0.35, -0.9],
        [-0.95, 0],
    ],
    dtype=float,
)
Events = dict[str, Any]
Fault = Callable[[np.ndarray, Events], tuple[np.ndarray, Events]]


def clean(*, amplitude: float = 6.0, hum: float = 1.0) -> tuple[np.ndarray, Events]:
    """Simulated EEG of five subjects in two sessions: neighbours covary, and the power over C3 or C4 shows the label."""
    rng = np.random.default_rng(11)
    distance = np.linalg.norm(PLACES[:, None] - PLACES, axis=2)
    time = np.arange(RATE) / RATE
    values, rows = [], []
    for subject in range(SUBJECTS):
        near = np.exp(-((distance / rng.uniform(0.5, 0.6)) ** 2)) + 0.05 * np.eye(
            len(NAMES)
        )
        mixing = np.linalg.cholesky(near) * rng.uniform(0.9, 1.1, (len(NAMES), 1))
        for session in "12":
            labels = rng.permutation(["left", "right"] * (TRIALS // 2))
            for trial, label in enumerate(labels):
                window = mixing @ rng.normal(0, 8, (len(NAMES), RATE))
                wave = amplitude * np.sin(2 * np.pi * 11 * time + rng.uniform(0, 6))
                window += np.outer(
                    np.exp(-((distance[4 if label == "left" else 2] / 0.4) ** 2)), wave
                )
                window += 4 * np.exp(-((time - 0.3) ** 2) / 0.005)
                values.append(
                    window + hum * np.sin(2 * np.pi * 50 * time + rng.uniform(0, 6))
                )
                rows.append(
                    (
                        f"s{subject}",
                        session,
                        f"s{subject}-{session}",
                        2.0 * trial + rng.uniform(0, 0.3),
                        label,
                    )
                )
    columns = dict(
        zip(
            ("subject", "session", "recording", "onset", "label"),
            zip(*rows, strict=True),
            strict=True,
        )
    )
    events = {name: np.array(column) for name, column in columns.items()}
    return np.array(values), events | {"stimulus_id": events["label"].copy()}


def assembled(values: np.ndarray, events: Events) -> xr.DataArray:
    return signals(
        values.astype(np.float32),
        channels=NAMES,
        channel_types="eeg",
        sampling_rate=RATE,
        start=0.0,
        units="uV",
        events=events,
    )


def rows_of(events: Events, recording: str) -> np.ndarray:
    return np.flatnonzero(np.char.startswith(events["recording"], recording))


def shifted_labels(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s2-1")
    events["label"][rows] = np.roll(events["label"][rows], 1)
    return values, events


def exchanged_labels(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s2-1")
    events["label"][rows] = np.where(events["label"][rows] == "left", "right", "left")
    return values, events


def duplicated_events(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s3-2")
    return np.concatenate([values, values[rows]]), {
        name: np.concatenate([column, column[rows]]) for name, column in events.items()
    }


def late_duplicates(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    values, events = duplicated_events(values, events)
    late = np.arange(len(values)) >= SUBJECTS * 2 * TRIALS
    values[late] = np.roll(values[late], -2, axis=2)
    events["onset"] = events["onset"] + late * 2 / RATE
    return values, events


def milliseconds_for_samples(
    values: np.ndarray, events: Events
) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s1")
    events["onset"][rows] *= RATE / 1000
    return values, events


def exchanged_channels(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s3")
    values[rows] = values[rows][:, [6, 3, 0, 5, 1, 7, 2, 4]]
    return values, events


def stored_twice(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    values[:, 5] = 0.5 * values[:, 1]
    return values, events


def mains_only(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s0-1")
    noise = np.random.default_rng(0).normal(0, 0.5, (len(rows), RATE))
    values[rows, 4] = 20 * np.sin(2 * np.pi * 50 * np.arange(RATE) / RATE) + noise
    return values, events


def volts(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    rows = rows_of(events, "s4")
    values[rows, 2] *= 1e-6
    return values, events


def uneven_labels(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
    odd = np.isin(events["subject"], ["s1", "s3"])
    usual = np.where(odd, "left", "right")
    rows = (events["label"] == usual) | (
        np.random.default_rng(2).random(len(odd)) < 0.15
    )
    return values[rows], {name: column[rows] for name, column in events.items()}


def copied(sign: int, step: int) -> Fault:
    def fault(values: np.ndarray, events: Events) -> tuple[np.ndarray, Events]:
        values[rows_of(events, "s4-2")] = (
            sign * values[rows_of(events, "s1-1")][:, :, ::step]
        )
        return values, events

    return fault


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "shifted labels": (
        shifted_labels,
        "audit.labels",
        r"1 recordings show the label .* s2-1 \(the next one's\)",
    ),
    "exchanged labels": (
        exchanged_labels,
        "audit.labels",
        r"'left' and 'right' were exchanged.* s2-1 \(",
    ),
    "duplicated": (
        duplicated_events,
        "audit.duplicate",
        r"1 recordings have duplicated.* s3-2 \(40 of 80\)",
    ),
    "duplicated, later": (
        late_duplicates,
        "audit.duplicate",
        r"duplicated events.* s3-2 \(40 of 80\)",
    ),
    "milliseconds": (
        milliseconds_for_samples,
        "audit.shifted",
        r"events of 2 recordings .* s1-1 \(every 0.2",
    ),
    "channels": (
        exchanged_channels,
        "audit.channels",
        r"channels of 1 subjects .* s3 \(8 of 8: ",
    ),
    "stored twice": (
        stored_twice,
        "audit.channels",
        "1 pairs of channels have the same signal: Fz and Pz",
    ),
    "mains only": (
        mains_only,
        "audit.channels",
        "except mains hum: C4 in 1 recordings, first s0-1",
    ),
    "volts": (
        volts,
        "audit.units",
        r"1 channels differ in scale .* C3 in 2 recordings, first s4-1 \(1e-06 times\)",
    ),
    "uneven labels": (
        uneven_labels,
        "audit.order",
        r"Cramér's V 0\.\d\d\): 'left' are \d+ % of the windows of s[024] and",
    ),
    "inverted": (
        copied(-1, 1),
        "audit.duplicate",
        "40 pairs of windows .* with the sign inverted, 40 of them of two subjects",
    ),
    "reversed": (
        copied(1, -1),
        "audit.duplicate",
        "40 pairs .* reversed in time, 40 of them of two subjects",
    ),
}


def test_clean_signals_have_no_findings() -> None:
    assert [finding.what for finding in audit(assembled(*clean()))] == []


def test_noise_has_no_findings() -> None:
    values, events = clean()
    noise = np.random.default_rng(1).normal(0, 10, values.shape)
    assert [finding.what for finding in audit(assembled(noise, events))] == []


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_each_fault_is_reported(name: str) -> None:
    fault, code, pattern = FAULTS[name]
    findings = audit(assembled(*fault(*clean())))
    problems = [finding.what for finding in findings if finding.code == code]
    assert any(re.search(pattern, problem) for problem in problems), [
        f.what for f in findings
    ]


def test_blocks_of_one_label_and_sliding_windows_are_not_reported_as_shifted_or_duplicated() -> (
    None
):
    """Labels in blocks hardly change when shifted by one window, and sliding windows overlap by design."""
    values, events = clean(amplitude=9.0)
    events = events | {"onset": np.tile(np.arange(TRIALS) * 0.05, 2 * SUBJECTS)}
    for recording in np.unique(events["recording"]).tolist():
        rows = rows_of(events, recording)
        order = np.argsort(events["label"][rows], kind="stable")
        values[rows], events["label"][rows] = (
            values[rows][order],
            events["label"][rows][order],
        )
    assert {finding.code for finding in audit(assembled(values, events))} == {
        "audit.order"
    }
