"""Declared filters, notches and references apply to all types of channels, as in MNE with all channels picked."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_windows import Window

WINDOW = Window(start=-0.2, duration=1.0, labels={"a": "a", "b": "b"})


def made(types):
    with quiet_mne() as mne:
        # Volts of an amplifier, or tesla of a magnetometer.
        values = (1e-13 if "mag" in types else 1e-5) * np.random.default_rng(
            2
        ).standard_normal((len(types), 6000))
        names = [f"{kind.upper()}{number}" for number, kind in enumerate(types)]
        raw = mne.io.RawArray(values, mne.create_info(names, 250.0, list(types)))
        onsets = np.arange(2.0, 20.0, 1.5)
        return raw.set_annotations(
            mne.Annotations(onsets, 0.1, ["a", "b"] * (len(onsets) // 2))
        )


@pytest.mark.parametrize(
    "types",
    [
        ("emg",) * 3,
        ("eeg", "eeg", "emg", "eog"),
        ("misc", "ecg"),
        ("mag",) * 2,
        ("seeg", "ecog"),
    ],
)
@pytest.mark.parametrize(
    "steps", [{"high_pass": 20.0}, {"low_pass": 30.0}, {"notch": (50.0,)}]
)
def test_every_type_of_channel_is_filtered(types, steps):
    pick = tuple(dict.fromkeys(types))
    units, scale = ("fT", 1e15) if "mag" in types else ("uV", 1e6)
    windows = windows_of(
        made(types),
        Recording(file="f", subject="s"),
        WINDOW,
        Preprocessing(pick=pick, units=units, **steps),
        sha256="0" * 64,
    )
    raw = made(types)
    with quiet_mne():
        if "notch" in steps:
            raw.notch_filter(list(steps["notch"]), picks="all")
        else:
            raw.filter(steps.get("high_pass"), steps.get("low_pass"), picks="all")
    at = np.round(raw.annotations.onset * 250).astype(int) - 50
    cut = np.stack([raw.get_data()[:, first : first + 250] for first in at]) * scale
    np.testing.assert_array_equal(windows.values, cut.astype(np.float32))


def test_an_unavailable_reference_raises_an_error():
    for steps in (
        Preprocessing(pick=("mag",), reference="average"),
        Preprocessing(reference=("Cz",)),
    ):
        with pytest.raises(DataError, match="f cannot be referenced to"):
            windows_of(
                made(steps.pick * 2),
                Recording(file="f", subject="s"),
                WINDOW,
                steps,
                sha256="0" * 64,
            )
