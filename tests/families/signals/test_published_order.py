"""The order of steps of NeuralBench: the recording is scaled as a whole, then the baseline is subtracted, then clamped."""

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.preprocessing import RobustScaler, StandardScaler

from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Notch,
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window

mne = pytest.importorskip("mne")
RATE = 512.0
SECONDS = 30
EVENTS = np.arange(1, SECONDS - 2, 2.0)
ONE = (Recording(file="one_raw.fif", subject="S1"),)
GO = Window(start=-0.2, duration=1.0, labels={"go": "go"})
BEFORE_BASELINE = {"of": "recording", "before": "baseline"}


def signal(seed=0):
    """Two channels of coloured noise with a drift, hum and rare large values."""
    rng = np.random.default_rng(seed)
    count = int(RATE * SECONDS)
    noise = rng.standard_normal((2, count)).cumsum(axis=1) * 0.2
    noise += rng.standard_t(3, (2, count))
    times = np.arange(count) / RATE
    hum = np.sin(2 * np.pi * 50 * times) + np.sin(2 * np.pi * 150 * times)
    return (noise + 3 * hum) * 1e-5


@pytest.fixture
def recorded(tmp_path):
    info = mne.create_info(["Cz", "Pz"], RATE, "eeg")
    raw = mne.io.RawArray(signal(), info, verbose="ERROR")
    raw.set_annotations(mne.Annotations(EVENTS, 0.0, ["go"] * len(EVENTS)))
    path = tmp_path / "one_raw.fif"
    raw.save(path, fmt="double", verbose="ERROR")
    return {"one_raw.fif": path}


def published_windows(path, scaler, clamp):
    """Windows by the published order of steps, with MNE and scikit-learn alone."""
    raw = mne.io.read_raw_fif(path, preload=True, verbose="ERROR")
    hum = [hertz for base in (50, 60) for hertz in range(base, 256, base)]
    raw.notch_filter(hum, phase="zero", verbose="ERROR")
    raw.filter(0.1, 75.0, verbose="ERROR")
    raw.resample(120.0, verbose="ERROR")
    scaled = scaler.fit_transform(raw.get_data().T).T
    windows = []
    for onset in EVENTS:
        first = round(onset * 120) + round(-0.2 * 120)
        window = scaled[:, first : first + 120]
        baseline = window[:, :24].mean(axis=1, keepdims=True)
        windows.append(np.clip(window - baseline, -clamp, clamp))
    return np.stack(windows)


@pytest.mark.parametrize(
    ("how", "scaler"), [("robust", RobustScaler()), ("standard", StandardScaler())]
)
def test_windows_are_those_of_the_published_order(recorded, how, scaler):
    steps = Preprocessing(
        notch=Notch(at=(50.0, 60.0), harmonics=300.0),
        high_pass=0.1,
        low_pass=75.0,
        resample=120.0,
        # The published baseline is the first 24 samples, without the one at the event.
        baseline=(-0.2, -0.004),
        scale={**BEFORE_BASELINE, "how": how},
        clamp=0.3,
    )
    found = mne_epochs(recorded, recordings=ONE, window=GO, preprocessing=steps)
    expected = published_windows(recorded["one_raw.fif"], scaler, 0.3)
    np.testing.assert_allclose(found.assembly.values, expected, atol=1e-5)
    assert (np.abs(expected) == 0.3).any(), "the clamp has nothing to do"


def test_the_order_matters(recorded):
    def read(scale):
        steps = Preprocessing(baseline=(-0.2, 0.0), scale=scale)
        return mne_epochs(
            recorded, recordings=ONE, window=GO, preprocessing=steps
        ).assembly.values

    after, before = read("robust"), read(BEFORE_BASELINE)
    assert np.linalg.norm(after - before) / np.linalg.norm(before) > 0.05


def test_a_channel_that_does_not_vary_is_only_centred(tmp_path):
    info = mne.create_info(["Cz", "Pz"], 64.0, "eeg")
    values = np.stack([np.full(640, 3e-6), np.random.default_rng(0).normal(size=640)])
    values[1] *= 1e-5
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    raw.set_annotations(mne.Annotations([2.0, 4.0], 0.0, ["go", "go"]))
    raw.save(tmp_path / "one_raw.fif", fmt="double", verbose="ERROR")
    found = mne_epochs(
        {"one_raw.fif": tmp_path / "one_raw.fif"},
        recordings=ONE,
        window=GO,
        preprocessing=Preprocessing(scale=BEFORE_BASELINE),
    ).assembly.values
    np.testing.assert_array_equal(found[:, 0], 0.0)


def test_epochs_cannot_be_scaled_by_their_recording(tmp_path):
    info = mne.create_info(["Cz"], 64.0, "eeg")
    values = np.random.default_rng(0).normal(size=(4, 1, 128)) * 1e-5
    events = np.stack([np.arange(4) * 200, np.zeros(4), np.ones(4)], axis=1).astype(int)
    epochs = mne.EpochsArray(
        values, info, events, tmin=-0.5, event_id={"go": 1}, verbose="ERROR"
    )
    epochs.save(tmp_path / "one-epo.fif", verbose="ERROR")
    one = (Recording(file="one-epo.fif", subject="S1"),)
    with pytest.raises(DataError, match="the recording they were cut from"):
        mne_epochs(
            {"one-epo.fif": tmp_path / "one-epo.fif"},
            recordings=one,
            window=GO,
            epoched=True,
            preprocessing=Preprocessing(scale=BEFORE_BASELINE),
        )


def test_windows_can_end_with_their_event(recorded):
    raw = mne.io.read_raw_fif(recorded["one_raw.fif"], preload=True, verbose="ERROR")
    raw.set_annotations(mne.Annotations([2.0, 14.0], [10.0, 9.0], ["film", "film"]))
    raw.save(recorded["one_raw.fif"], fmt="double", overwrite=True, verbose="ERROR")
    last = Window(
        start=-6.0,
        duration=2.0,
        stride=2.0,
        anchor="end",
        labels={"film": "film"},
    )
    found = mne_epochs(recorded, recordings=ONE, window=last).assembly
    begins = found["onset"].values + last.start
    np.testing.assert_allclose(begins, [6.0, 8.0, 10.0, 17.0, 19.0, 21.0])
    single = last.model_copy(update={"stride": None, "start": -1.0, "duration": 1.0})
    found = mne_epochs(recorded, recordings=ONE, window=single).assembly
    np.testing.assert_allclose(found["onset"].values, [12.0, 23.0])
    np.testing.assert_allclose(
        found.values[0], signal()[:, int(11 * RATE) : int(12 * RATE)] * 1e6, rtol=1e-5
    )


def test_a_stride_to_the_end_needs_a_beginning_before_it():
    with pytest.raises(ValidationError, match="negative `start`"):
        Window(start=0.0, duration=2.0, stride=2.0, anchor="end", labels={"a": "a"})


def test_earlier_identities_do_not_contain_the_new_fields():
    assert "anchor" not in GO.model_dump(mode="json")
    assert Preprocessing(notch=(50.0,), scale="robust").model_dump(mode="json") == {
        **Preprocessing().model_dump(mode="json"),
        "notch": [50.0],
        "scale": "robust",
    }
