"""Signatures of signals: planted responses are found, with intervals over people that contain the truth."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.signal import periodogram
from scipy.stats import sem, t

from neuroledger.errors import RequestError
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.signatures import (
    band_change,
    evoked_response,
    flicker_spectrum,
    power_spectrum,
)

RATE, START, PEOPLE, EACH = 100.0, -1.0, 12, 20
SECONDS = START + np.arange(300) / RATE


def simulated(shape: np.ndarray, seed: int, people: int = PEOPLE) -> xr.DataArray:
    """Noise, to which `shape` is added in class b, on the first of two channels, with a gain of about 1 for each person."""
    rng = np.random.default_rng(seed)
    subjects = np.repeat([f"S{number}" for number in range(people)], EACH)
    labels = np.tile(["a", "b"], len(subjects) // 2)
    values = rng.standard_normal((len(subjects), 2, len(shape)))
    gains = np.repeat(1 + 0.3 * rng.standard_normal(people), EACH)
    values[:, 0] += ((labels == "b") * gains)[:, None] * shape
    events = {
        "stimulus_id": labels,
        "subject": subjects,
        "recording": subjects,
        "onset": np.tile(4.0 * np.arange(EACH), people),
        "label": labels,
    }
    return signals(
        values,
        channels=["C3", "C4"],
        channel_types="eeg",
        sampling_rate=RATE,
        start=START,
        units="uV",
        events=events,
    )


def test_the_evoked_response_is_the_one_that_was_planted_with_its_interval() -> None:
    inside = []
    for seed in range(80):
        found = evoked_response(simulated(np.ones(2), seed)).sel({"class": "b"})
        first = found.sel(channel="C3").isel(sample=0)
        inside.append(bool(first["low"] <= 1 <= first["high"]))
    assert 0.87 <= np.mean(inside) < 1
    shape = np.exp(-(((SECONDS - 0.3) / 0.05) ** 2))
    whole = evoked_response(simulated(shape, 0), baseline=(-1.0, 0.0))
    np.testing.assert_array_equal(whole["people"], [PEOPLE, PEOPLE])
    before = whole["mean"].sel(sample=slice(-1.0, -0.005)).mean("sample")
    np.testing.assert_allclose(before, 0, atol=1e-12)


def test_the_interval_is_over_people_and_not_over_windows() -> None:
    shape = np.ones_like(SECONDS)
    one = simulated(shape, 1)
    twice = xr.concat([one, one], "presentation")
    once, again = evoked_response(one), evoked_response(twice)
    np.testing.assert_allclose(once["low"], again["low"], atol=1e-12)


def test_power_falls_where_a_rhythm_stops() -> None:
    rhythm = 5 * np.sin(2 * np.pi * 10 * SECONDS) * (SECONDS < 0.5)
    change = band_change(simulated(rhythm, 0), band=(8.0, 12.0), baseline=(-0.8, 0.2))
    late = change.sel(sample=slice(1.0, 1.8)).mean("sample")
    assert float(late["mean"].sel({"class": "b"}).sel(channel="C3")) < -90
    assert abs(float(late["mean"].sel({"class": "a"}).sel(channel="C4"))) < 25


def test_flicker_is_a_peak_at_its_frequency_and_nowhere_else() -> None:
    spectrum = flicker_spectrum(simulated(np.sin(2 * np.pi * 12 * SECONDS), 0))
    b = spectrum.sel({"class": "b"}).sel(channel="C3")
    assert float(b["low"].sel(frequency=12.0, method="nearest")) > 10
    assert float(b["mean"].idxmax("frequency")) == pytest.approx(12.0)
    rest = spectrum["mean"].sel({"class": "a"})
    assert float(np.abs(rest).mean()) < 1


def test_the_interval_of_one_person_is_over_windows() -> None:
    data = simulated(np.zeros_like(SECONDS), 0, people=1)
    found = evoked_response(data)
    windows = data.values[data["label"].values == "a"]
    low, high = t.interval(
        0.95, len(windows) - 1, windows.mean(axis=0), sem(windows, axis=0)
    )
    np.testing.assert_allclose(found["low"].sel({"class": "a"}), low)
    np.testing.assert_allclose(found["high"].sel({"class": "a"}), high)
    assert found["over"].values.tolist() == ["windows", "windows"]
    assert np.isnan(evoked_response(data[:2])["low"]).all()


def test_power_density_is_that_of_scipy() -> None:
    data = simulated(np.sin(2 * np.pi * 12 * SECONDS), 0, people=1)
    found = power_spectrum(data, classes=("b",), channels=("C4",), between=(5, 20))
    windows = data.values[data["label"].values == "b"][:, 1]
    frequencies, power = periodogram(windows, RATE, "hann")
    inside = (frequencies >= 5) & (frequencies <= 20)
    np.testing.assert_allclose(found["frequency"], frequencies[inside])
    decibel = 10 * np.log10(power.mean(axis=0)[inside])
    np.testing.assert_allclose(found["mean"].values[0, 0], decibel)


def test_what_cannot_be_computed_is_said() -> None:
    data = simulated(np.zeros_like(SECONDS), 0)
    with pytest.raises(RequestError, match="no coordinate 'colour'"):
        evoked_response(data, by="colour")
    with pytest.raises(RequestError, match="no sample lies between 5 and 6 s"):
        evoked_response(data, baseline=(5.0, 6.0))
    with pytest.raises(RequestError, match="between 0 and 50 Hz"):
        band_change(data, band=(8.0, 60.0), baseline=(-1.0, 0.0))
    with pytest.raises(RequestError, match="no channel Pz; they have C3, C4"):
        evoked_response(data, channels=("Pz",))
    with pytest.raises(RequestError, match="nothing lies between 5 and 6"):
        evoked_response(data, between=(5.0, 6.0))
    with pytest.raises(RequestError, match="too little for a width"):
        flicker_spectrum(data, width=0.3)
