"""Events from stimulus channels with a typical declaration: only EEG is picked, filtered and resampled."""

from __future__ import annotations

import warnings
from pathlib import Path

import mne
import numpy as np
import pytest

from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import RequestError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.mne_objects import windows
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place
from tests.families.signals.biosemi_files import bdf
from tests.families.signals.brainvision_files import brainvision

__all__ = ["place"]

RATE = 256
CHANNELS = ["Fz", "C3", "Cz", "C4"]
EVENTS = [(RATE * (3 + 2 * number), 1 + number % 2) for number in range(20)]
WINDOW = Window(start=-0.1, duration=1.0, labels={"1": "left", "2": "right"})
STEPS = Preprocessing(high_pass=1.0, low_pass=40.0, resample=100.0)


def noise() -> np.ndarray:
    """Simulated EEG in µV."""
    return np.random.default_rng(2).normal(0, 20, (len(CHANNELS), RATE * 45))


def of_biosemi(folder: Path) -> Path:
    bdf(folder / "one.bdf", CHANNELS, noise(), RATE, EVENTS)
    return folder / "one.bdf"


def of_neuromag(folder: Path) -> Path:
    codes = np.zeros((1, RATE * 45))
    for at, code in EVENTS:
        codes[0, at : at + 3] = code
    info = mne.create_info(
        [*CHANNELS, "STI 014"], RATE, ["eeg"] * len(CHANNELS) + ["stim"]
    )
    raw = mne.io.RawArray(
        np.concatenate([noise() * 1e-6, codes]), info, first_samp=1000, verbose="ERROR"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw.save(folder / "one_raw.fif", verbose="ERROR")
    return folder / "one_raw.fif"


@pytest.mark.parametrize("write", [of_biosemi, of_neuromag])
@pytest.mark.parametrize(
    "steps", [Preprocessing(), STEPS, STEPS.model_copy(update={"drop": ("Fz",)})]
)
def test_windows_around_codes_match_mne(
    tmp_path: Path, write: object, steps: Preprocessing
) -> None:
    path: Path = write(tmp_path)  # type: ignore[operator]
    windows = mne_epochs(
        {path.name: path},
        recordings=(Recording(file=path.name, subject="1"),),
        window=WINDOW,
        preprocessing=steps,
    ).assembly
    assert windows is not None
    assert windows["label"].values.tolist() == ["left", "right"] * 10
    np.testing.assert_allclose(windows["onset"].values, [at / RATE for at, _ in EVENTS])
    raw = mne.io.read_raw(path, preload=True, verbose="ERROR")
    events = mne.find_events(
        raw, mask=0xFFFF, mask_type="and", shortest_event=1, verbose="ERROR"
    )
    raw.pick("eeg")
    if steps.drop:
        raw.drop_channels(list(steps.drop))
    if steps.high_pass:
        raw.filter(1.0, 40.0, verbose="ERROR")
        raw, events = raw.resample(100.0, events=events, verbose="ERROR")
    rate = raw.info["sfreq"]
    epochs = mne.Epochs(
        raw,
        events,
        {"left": 1, "right": 2},
        tmin=round(-0.1 * rate) / rate,
        tmax=round(-0.1 * rate) / rate + 1 - 1 / rate,
        baseline=None,
        preload=True,
        verbose="ERROR",
    )
    np.testing.assert_allclose(windows.values, epochs.get_data() * 1e6, atol=1e-3)


def test_mne_objects_give_the_same_windows(tmp_path: Path) -> None:
    raw = mne.io.read_raw(of_neuromag(tmp_path), preload=True, verbose="ERROR")
    found = windows({"anna": raw}, window=WINDOW, preprocessing=STEPS)
    assert found["label"].values.tolist() == ["left", "right"] * 10


def test_annotations_take_precedence_over_codes_unless_they_mark_bad_data(
    tmp_path: Path,
) -> None:
    raw = mne.io.read_raw(of_neuromag(tmp_path), preload=True, verbose="ERROR")
    raw.set_annotations(
        mne.Annotations(
            [5.0, 9.0], 0.0, ["1", "2"], orig_time=raw.annotations.orig_time
        )
    )
    found = windows({"anna": raw}, window=WINDOW, preprocessing=STEPS)
    assert found.sizes["presentation"] == 2
    raw.set_annotations(
        mne.Annotations([5.0], 1.0, ["BAD_blink"], orig_time=raw.annotations.orig_time)
    )
    assert (
        windows({"anna": raw}, window=WINDOW, preprocessing=STEPS).sizes["presentation"]
        == 20
    )


def test_events_of_a_bids_folder_are_listed_by_the_names_in_its_tables(
    place: Path, tmp_path: Path
) -> None:
    """mne-bids reads the table: what the recording itself calls its markers is not what `--event` must say."""
    mne_bids = pytest.importorskip("mne_bids")
    brainvision(
        tmp_path,
        "one",
        CHANNELS,
        noise(),
        RATE,
        [(at, f"S  {code}") for at, code in EVENTS],
    )
    raw = mne.io.read_raw_brainvision(tmp_path / "one.vhdr", verbose="ERROR")
    raw.annotations.rename({"Stimulus/S  1": "go left", "Stimulus/S  2": "go right"})
    root = mne_bids.BIDSPath(
        subject="01", task="rest", root=tmp_path / "tree", datatype="eeg"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mne_bids.write_raw_bids(raw, root, verbose="ERROR")
    path = place / "specs" / "datasets" / "Rest.yaml"
    path.write_text(
        path.read_text().replace("duration: 1.0, stride: 1.0", "duration: 0.5")
    )
    with pytest.raises(RequestError, match=r"_events\.tsv has .*'go left', 'go right'"):
        pin(
            open_catalog(place),
            "Rest",
            Downloads(folder=tmp_path / "tree", bids=True, task="rest"),
        )


def test_codes_are_used_if_no_annotation_is_a_declared_event(tmp_path: Path) -> None:
    path = of_neuromag(tmp_path)
    raw = mne.io.read_raw(path, preload=True, verbose="ERROR")
    raw.set_annotations(
        mne.Annotations(
            [1.0, 2.0], 0.0, ["photodiode", "BAD jump"], raw.info["meas_date"]
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw.save(path, overwrite=True, verbose="ERROR")
    asked = {
        "recordings": (Recording(file=path.name, subject="1"),),
        "preprocessing": Preprocessing(),
    }
    windows = mne_epochs({path.name: path}, window=WINDOW, **asked).assembly
    assert windows is not None
    assert windows["label"].values.tolist() == ["left", "right"] * 10
    of_light = WINDOW.model_copy(update={"labels": {"photodiode": "light"}})
    windows = mne_epochs({path.name: path}, window=of_light, **asked).assembly
    assert windows is not None and windows["onset"].values.tolist() == [1.0]
