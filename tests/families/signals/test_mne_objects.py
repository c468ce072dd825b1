"""Objects of MNE give the same windows as their files, and can be decoded directly."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import neuroledger as nl
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.mne_objects import is_mne
from neuroledger.families.signals.recordings.signal_preprocessing import Recording
from neuroledger.families.signals.recordings.signal_windows import Window

mne = pytest.importorskip("mne")

RATE = 64.0
TRIALS = 24
WINDOW = {"start": 0.0, "duration": 1.0, "labels": {"left": "left", "right": "right"}}


def raw(seed: int = 0) -> Any:
    """A simulated recording in which the first channel is stronger after `left`, with an event every two seconds."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(["left", "right"] * (TRIALS // 2))
    values = rng.normal(0.0, 1e-5, (3, int(2 * (TRIALS + 1) * RATE)))
    for trial, kind in enumerate(kinds):
        begin = int((2 * trial + 1) * RATE)
        values[0, begin : begin + int(RATE)] *= 3.0 if kind == "left" else 1.0
    made = mne.io.RawArray(
        values, mne.create_info(["C3", "Cz", "C4"], RATE, "eeg"), verbose="ERROR"
    )
    made.set_annotations(mne.Annotations(2.0 * np.arange(TRIALS) + 1.0, 0.0, kinds))
    return made


def epochs(of: Any, metadata: pd.DataFrame | None = None) -> Any:
    events, ids = mne.events_from_annotations(of, verbose="ERROR")
    return mne.Epochs(
        of,
        events,
        ids,
        0.0,
        1.0 - 1 / RATE,
        baseline=None,
        preload=True,
        metadata=metadata,
        verbose="ERROR",
    )


def test_raw_and_epochs_give_the_same_windows_as_their_file(tmp_path: Path) -> None:
    one = raw()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one.save(tmp_path / "a_raw.fif", fmt="double", verbose="ERROR")
    read = mne_epochs(
        {"a_raw.fif": tmp_path / "a_raw.fif"},
        recordings=(Recording(file="a_raw.fif", subject="1"),),
        window=Window.model_validate(WINDOW),
    ).assembly
    assert read is not None
    before = one.get_data().copy()
    for found in (nl.windows(one, window=WINDOW), nl.windows(epochs(one))):
        np.testing.assert_allclose(found.values, read.values, rtol=1e-6)
        np.testing.assert_array_equal(found["label"].values, read["label"].values)
        np.testing.assert_allclose(found["onset"].values, read["onset"].values)
        assert found.attrs == read.attrs
    np.testing.assert_array_equal(one.get_data(), before)


def test_subjects_come_from_the_mapping_or_from_metadata() -> None:
    windows = nl.windows(
        {"anna": {"1": raw(0), "2": [raw(1), raw(2)]}, "ben": raw(3)}, window=WINDOW
    )
    told = zip(
        *(windows[name].values.tolist() for name in ("subject", "session", "run")),
        strict=True,
    )
    assert sorted(set(told)) == [
        ("anna", "1", "1"),
        ("anna", "2", "1"),
        ("anna", "2", "2"),
        ("ben", "1", "1"),
    ]
    people = ["a"] * 12 + ["b"] * 12
    metadata = pd.DataFrame({"subject": people, "onset": -1.0, "speed": np.arange(24)})
    windows = nl.windows(epochs(raw(), metadata))
    assert windows["subject"].values.tolist() == people
    assert windows["speed"].values.tolist() == list(range(24))
    assert len(set(windows["recording"].values.tolist())) == 2
    assert (windows["onset"].values > 0).all()


def test_epochs_and_the_equal_array_are_decoded_alike() -> None:
    people = {"a": epochs(raw(0)), "b": epochs(raw(1)), "c": epochs(raw(2))}
    score = nl.decode("covariance_logistic", people, "label", splits="cross_subject")
    assert score.value > 0.9
    values = np.concatenate([one.get_data() * 1e6 for one in people.values()])
    names = {code: name for name, code in people["a"].event_id.items()}
    labels = np.concatenate(
        [[names[code] for code in one.events[:, 2]] for one in people.values()]
    )
    plain = nl.decode(
        "covariance_logistic",
        values.astype(np.float32),
        labels,
        splits="cross_subject",
        groups=np.repeat(list("abc"), TRIALS),
        sampling_rate=RATE,
    )
    np.testing.assert_allclose(score.samples.values, plain.samples.values)
    alone = nl.decode(
        "covariance_logistic",
        people["a"],
        "label",
        splits={"name": "blocked", "folds": 3},
    )
    assert alone.value > 0.7


def test_objects_with_missing_or_contradictory_information_are_refused() -> None:
    with pytest.raises(
        RequestError, match=r"is continuous: declare its windows, `neuroledger\.windows"
    ):
        nl.decode("dummy", raw(), "label")
    with pytest.raises(
        RequestError, match="recordings is list: give a Raw or Epochs of MNE"
    ):
        nl.windows([raw()], window=WINDOW)
    with pytest.raises(
        RequestError, match="subject 'a' has ndarray, not a Raw or Epochs"
    ):
        nl.windows({"a": np.zeros((2, 3))})
    with pytest.raises(RequestError, match=r"window: .*no such field"):
        nl.windows(raw(), window={**WINDOW, "lenght": 1.0})
    volts = raw()
    volts._data *= 1e6
    with pytest.raises(DataError, match=r"eeg channels vary by 9\.\d+e\+06 µV"):
        nl.windows(volts, window=WINDOW)
    assert (
        nl.windows(volts, window=WINDOW, preprocessing={"units": "arbitrary"}).attrs[
            "units"
        ]
        == "arbitrary"
    )


def test_magnetic_channels_are_in_femtotesla_and_implausible_ones_are_refused() -> None:
    one = epochs(raw())
    one.set_channel_types({"C3": "mag", "Cz": "mag", "C4": "mag"}, verbose="ERROR")
    one._data *= 1e-8
    assert nl.windows(one).attrs["units"] == "fT"
    one._data *= 1e9
    with pytest.raises(DataError, match=r"mag channels vary by .* fT"):
        nl.windows(one)


def test_only_mne_objects_are_recognised_as_recordings() -> None:
    assert is_mne(raw())
    assert is_mne(epochs(raw()))
    assert not is_mne(raw().info)
    assert not is_mne(np.zeros(3))


def test_nan_in_a_recording_is_reported_with_its_channel_and_not_as_a_wrong_unit() -> (
    None
):
    values = np.random.default_rng(0).normal(0, 1e-5, (3, 1000))
    values[1, 330:360] = np.nan
    raw = mne.io.RawArray(
        values, mne.create_info(["C3", "Cz", "C4"], 100, "eeg"), verbose="ERROR"
    )
    raw.set_annotations(
        mne.Annotations([1.0, 3.0, 5.0, 7.0], 0.0, ["left", "right"] * 2)
    )
    window = {
        "start": 0.0,
        "duration": 1.0,
        "labels": {"left": "left", "right": "right"},
    }
    with pytest.raises(
        DataError,
        match=r"1 of 4 windows have missing or infinite values, in channels Cz .*`drop` these",
    ):
        nl.windows({"anna": raw}, window=window)
    assert (
        nl.windows({"anna": raw}, window=window, preprocessing={"drop": ["Cz"]}).sizes[
            "channel"
        ]
        == 2
    )
