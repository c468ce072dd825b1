"""A repository with two recordings of button presses, which models with and without needs decode."""

import warnings

import numpy as np

RATE = 250.0
ONCE = {"name": "laptop", "epochs": 1, "scale": "none", "clamp": 0}
OWN = {"resample": 100.0, "high_pass": 1.0, "scale": "robust", "clamp": 20.0}
LABRAM = {
    "rate": 200,
    "unit": "uV",
    "one": 100,
    "scale": "none",
    "filter": {"high_pass": 0.5, "low_pass": 75.0, "notch": [50.0]},
}


def save_recording(path, seed):
    """40 s of noise of 30 µV on four channels, with two kinds of events, left of which raises the first channel."""
    import mne

    rng = np.random.default_rng(seed)
    count = int(40 * RATE)
    values = 30e-6 * rng.standard_normal((4, count))
    onsets = np.arange(2.0, 38.0, 1.7)
    kinds = ["left" if number % 2 else "right" for number in range(len(onsets))]
    for onset, kind in zip(onsets, kinds, strict=True):
        first = round(onset * RATE)
        values[0, first : first + 200] += 60e-6 * (kind == "left")
    info = mne.create_info(["C3", "Cz", "C4", "Pz"], RATE, "eeg")
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    raw.set_annotations(mne.Annotations(onsets, 0.0, kinds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw.save(path, verbose="ERROR")


def with_recordings(lab):
    """Add recordings of two people, one benchmark, and models with and without needs to a repository."""
    folder = lab.root / "data" / "press"
    folder.mkdir(parents=True)
    for number in (1, 2):
        save_recording(folder / f"s{number}_raw.fif", number)
    dataset(lab)
    lab.spec(
        "benchmarks",
        "press-side",
        parent="decoding",
        dataset="press",
        paradigm={
            "name": "decoding",
            "seeds": [33],
            "splits": {"name": "cross_subject"},
        },
        metric={"name": "balanced_accuracy", "cluster": "recording"},
        floor={"dummy": 0.5},
    )
    network = {"name": "network_decoder", "architecture": "eegnet", "recipe": ONCE}
    lab.spec("models", "plain", builder=network)
    lab.spec("models", "needy", builder={**network, "needs": LABRAM})
    return lab


def dataset(lab, **reader):
    declared = {
        "name": "mne_epochs",
        "recordings": [
            {"file": f"s{number}_raw.fif", "subject": f"S{number}"} for number in (1, 2)
        ],
        "window": {
            "start": -0.2,
            "duration": 1.0,
            "labels": {"left": "left", "right": "right"},
        },
        "preprocessing": OWN,
    }
    lab.spec(
        "datasets",
        "press",
        license="CC0-1.0",
        simulated=True,
        modality="eeg",
        files=lab.pins("press"),
        reader={**declared, **reader},
        expectations={"assembly": [{"check": "values_finite"}]},
    )
