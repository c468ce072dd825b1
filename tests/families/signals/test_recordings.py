"""Recordings become the declared windows: known samples, units, events and filters, and errors."""

import json
import re
import warnings

import numpy as np
import pytest
import yaml

from neuroledger.data import assembly as store
from neuroledger.errors import AssemblyError, DataError
from neuroledger.families.signals.readers.bids_epochs import bids_epochs
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.readers.prepared_signals import prepared_signals
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.decoding.decoding_cases import windows
from tests.families.signals.bids_files import bids_recording, described

RATE = 64.0


def raw(seconds=20, seed=0):
    """A recording whose channels count samples (in µV) or are noise, with an event every two seconds."""
    import mne

    count = int(seconds * RATE)
    rng = np.random.default_rng(seed)
    values = (
        np.stack(
            [np.arange(count), rng.standard_normal(count), rng.standard_normal(count)]
        )
        * 1e-6
    )
    info = mne.create_info(["Cz", "Pz", "EOG1"], RATE, ["eeg", "eeg", "eog"])
    made = mne.io.RawArray(values, info, verbose="ERROR")
    onsets = np.arange(1, seconds - 1, 2)
    kinds = ["go" if i % 2 == 0 else "stop" for i in range(len(onsets))]
    made.set_annotations(mne.Annotations(onsets, 0.0, kinds))
    return made


@pytest.fixture
def fif(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw().save(tmp_path / "one_raw.fif", verbose="ERROR")
    return {"one_raw.fif": tmp_path / "one_raw.fif"}


ONE = (Recording(file="one_raw.fif", subject="S1"),)
GO = Window(
    start=-0.25,
    duration=0.5,
    labels={"go": "left", "stop": "right"},
    trial_starts_with="go",
)


def test_windows_contain_the_samples_around_each_event_in_the_declared_unit(fif):
    windows = mne_epochs(fif, recordings=ONE, window=GO).assembly
    assert windows.sizes == {"presentation": 9, "channel": 2, "sample": 32}
    np.testing.assert_allclose(windows.values[0, 0], np.arange(48, 80), atol=1e-3)
    np.testing.assert_allclose(windows["onset"].values, np.arange(1, 19, 2))
    assert windows["label"].values.tolist() == ["left", "right"] * 4 + ["left"]
    assert windows["trial"].values.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert windows["time_bin_start"].values[0] == -250
    assert windows.attrs == {"sampling_rate": 64.0, "units": "uV"}
    assert windows["channel_id"].values.tolist() == ["Cz", "Pz"]


def test_preprocessing_steps_run_in_a_fixed_order(fif):
    steps = Preprocessing(baseline=(-0.25, 0.0), clamp=5.0)
    windows = mne_epochs(fif, recordings=ONE, window=GO, preprocessing=steps).assembly
    before = (windows["time_bin_start"].values >= -250) & (
        windows["time_bin_start"].values <= 0
    )
    raw_window = np.arange(48, 80) - np.arange(48, 80)[before].mean()
    np.testing.assert_allclose(
        windows.values[0, 0], np.clip(raw_window, -5, 5), atol=1e-3
    )
    scaled = mne_epochs(
        fif, recordings=ONE, window=GO, preprocessing=Preprocessing(scale="robust")
    ).assembly
    quartiles = np.percentile(scaled.values, [25, 50, 75], axis=(0, 2))
    np.testing.assert_allclose(quartiles[1], 0, atol=1e-6)
    np.testing.assert_allclose(quartiles[2] - quartiles[0], 1, rtol=1e-5)


def test_resampling_and_filters_change_rate_and_spectrum(fif):
    steps = Preprocessing(low_pass=8.0, high_pass=1.0, resample=32.0)
    windows = mne_epochs(fif, recordings=ONE, window=GO, preprocessing=steps).assembly
    assert windows.attrs["sampling_rate"] == 32.0
    assert windows.sizes["sample"] == 16
    assert windows.values[:, 1].std() < 0.7


def test_reaction_time_becomes_a_coordinate(fif):
    window = GO.model_copy(update={"until": {"reaction_time": "stop"}})
    windows = mne_epochs(fif, recordings=ONE, window=window).assembly
    times = windows["reaction_time"].values
    assert times[0] == pytest.approx(2.0)
    assert np.isnan(times[-1])


def test_windows_without_events_cover_the_recording(fif):
    windows = mne_epochs(
        fif, recordings=ONE, window=Window(start=0, duration=2, stride=2)
    ).assembly
    assert windows["onset"].values.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


@pytest.mark.parametrize(
    ("window", "steps", "words"),
    [
        (GO, Preprocessing(drop=("Fz",)), "no channel Fz"),
        (
            GO.model_copy(update={"labels": {"pause": "x"}}),
            Preprocessing(),
            "no event pause",
        ),
        (GO, Preprocessing(pick=("seeg",)), "no channels of type seeg"),
        (GO, Preprocessing(baseline=(3.0, 4.0)), "outside the window"),
        (
            GO.model_copy(update={"duration": 99.0}),
            Preprocessing(),
            "no window of 99 s",
        ),
    ],
)
def test_errors_name_what_the_recording_lacks(fif, window, steps, words):
    with pytest.raises(DataError, match=words):
        mne_epochs(fif, recordings=ONE, window=window, preprocessing=steps)


def test_an_eye_channel_typed_as_brain_signal_is_refused(fif):
    steps = Preprocessing(types={"EOG1": "eeg"})
    with pytest.raises(AssemblyError, match="EOG1 typed as brain signal") as caught:
        mne_epochs(fif, recordings=ONE, window=GO, preprocessing=steps)
    advised = re.search(r"`preprocessing: ({.*?}})`, or `({.*?})`", str(caught.value))
    assert advised is not None
    for text in advised.groups():
        followed = mne_epochs(
            fif,
            recordings=ONE,
            window=GO,
            preprocessing=Preprocessing(**yaml.safe_load(text)),
        )
        assert "EOG1" not in followed.assembly["channel_id"].values


def test_a_file_that_is_not_a_recording_is_refused(tmp_path):
    (tmp_path / "one_raw.fif").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as a recording by MNE"):
        mne_epochs({"one_raw.fif": tmp_path / "one_raw.fif"}, recordings=ONE, window=GO)
    with pytest.raises(DataError, match="not among the files"):
        mne_epochs({}, recordings=ONE, window=GO)


def bids_folder(root):
    """Two people's recordings, laid out by the standard, a go and a stop event every four seconds."""
    described(root, "test")
    events = [(2 * i + 1, "stop" if i % 2 else "go") for i in range(9)]
    for subject in ("01", "02"):
        channels = {"Cz": "EEG", "Pz": "EEG", "EOG1": "EOG"}
        bids_recording(
            root,
            subject,
            "go",
            channels,
            raw(seed=int(subject)).get_data() * 1e6,
            64,
            events,
        )
    return {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}


def test_subjects_and_labels_are_read_from_bids_folders(tmp_path):
    files = bids_folder(tmp_path)
    windows = bids_epochs(files, task="go", window=GO).assembly
    assert set(windows["subject"].values) == {"01", "02"}
    assert windows.sizes == {"presentation": 18, "channel": 2, "sample": 32}
    np.testing.assert_allclose(windows.values[0, 0], np.arange(48, 80), atol=1e-3)
    assert windows["label"].values[:3].tolist() == ["left", "right", "left"]
    assert (
        bids_epochs(files, task="go", window=GO, subjects=("02",)).assembly.sizes[
            "presentation"
        ]
        == 9
    )
    with pytest.raises(DataError, match="no eeg recording of task 'rest'"):
        bids_epochs(files, task="rest", window=GO)
    with pytest.raises(
        DataError,
        match=r"among the files; there are 'go' \(eeg\): state `datatype: eeg` in the reader$",
    ):
        bids_epochs(files, task="go", window=GO, datatype="meg")
    with pytest.raises(DataError, match="not a BIDS folder"):
        bids_epochs({}, task="go", window=GO)


def test_prepared_signals_are_read_with_their_split_file_and_clusters(tmp_path):
    assembly = windows()
    texts = np.tile(
        ["the cat sat", "the cat sat down", "other words here", "stocks fell"], 10
    )
    events = np.array([f"E{i}" for i in range(40)])
    assembly = assembly.assign_coords(
        sentence=("presentation", texts), event=("presentation", events)
    )
    store.write(assembly, tmp_path / "signals.nc")
    lines = ["event,split"] + [
        f"E{i},{'test' if i < 10 else 'train'}" for i in range(40)
    ]
    (tmp_path / "splits.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {name: tmp_path / name for name in ("signals.nc", "splits.csv")}
    found = prepared_signals(
        files, split_file="splits.csv", cluster_by="sentence"
    ).assembly
    assert (found["split"].values == "test").sum() == 10
    clusters = found["sentence_cluster"].values
    assert clusters[0] == clusters[1] != clusters[2]
    (tmp_path / "splits.csv").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="lacks 1 events, first E39"):
        prepared_signals(files, split_file="splits.csv")


def test_the_real_recording_agrees_with_the_counts_of_its_source(mirror):
    expected = json.loads((mirror / "eeglab_sample" / "expected.json").read_text())
    path = mirror / "eeglab_sample" / "eeglab_data.set"
    windows = mne_epochs(
        {"eeglab_data.set": path},
        recordings=(Recording(file="eeglab_data.set", subject="S1"),),
        window=Window(
            start=-0.2,
            duration=1.0,
            labels={"square": "square", "rt": "rt"},
            trial_starts_with="square",
        ),
        preprocessing=Preprocessing(
            types={"EOG1": "eog", "EOG2": "eog"}, high_pass=0.5, low_pass=40.0
        ),
        event_fields=("position",),
    ).assembly
    labels = windows["label"].values
    assert {kind: int((labels == kind).sum()) for kind in ("square", "rt")} == expected[
        "events"
    ]
    positions = windows["position"].values[labels == "square"]
    assert {p: int((positions == p).sum()) for p in ("1", "2")} == expected[
        "square_positions"
    ]
    assert windows.attrs["sampling_rate"] == expected["sfreq"]
    assert windows.sizes["channel"] == expected["n_channels"] - 2
    assert 5 < windows.std() < 40
    with pytest.raises(AssemblyError, match="EOG1, EOG2 typed as brain signal"):
        mne_epochs(
            {"eeglab_data.set": path},
            recordings=(Recording(file="eeglab_data.set", subject="S1"),),
            window=Window(start=-0.2, duration=1.0, labels={"square": "square"}),
        )


def test_windows_outside_the_declared_part_are_left_out(fif):
    window = Window(start=0, duration=2, stride=2, within=(4.0, 10.0))
    assert mne_epochs(fif, recordings=ONE, window=window).assembly[
        "onset"
    ].values.tolist() == [4, 6, 8]


def test_facts_about_a_recording_become_coordinates(fif):
    fif = {**fif, "two_raw.fif": fif["one_raw.fif"]}
    ill = Recording(
        file="one_raw.fif", subject="S1", facts={"label": "ill", "age": 71.0}
    )
    well = Recording(
        file="two_raw.fif", subject="S2", facts={"label": "well", "age": 35.0}
    )
    window = Window(start=0, duration=2, stride=4)
    windows = mne_epochs(fif, recordings=(ill, well), window=window).assembly
    assert windows["label"].values.tolist() == ["ill"] * 5 + ["well"] * 5
    assert windows["age"].values.tolist() == [71.0] * 5 + [35.0] * 5
    with pytest.raises(DataError, match="different facts: age"):
        lacking = Recording(file="two_raw.fif", subject="S2", facts={"label": "well"})
        mne_epochs(fif, recordings=(ill, lacking), window=window)
