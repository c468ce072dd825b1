"""Windows from an MNE recording.

Annotations mark the events, and the windows become an assembly with subject, label and onset for
each row.
"""

import mne
import numpy as np

import neuroledger as nl

rng = np.random.default_rng(0)
info = mne.create_info(["C3", "Cz", "C4"], 100, "eeg")
raw = mne.io.RawArray(rng.normal(0, 1e-5, (3, 6400)), info, verbose=False)
raw.set_annotations(mne.Annotations(np.arange(30) * 2.0, 0.0, ["left", "right"] * 15))
windows = nl.windows(
    {"anna": raw},
    window={
        "start": 0.0,
        "duration": 1.0,
        "labels": {"left": "left", "right": "right"},
    },
    preprocessing={"high_pass": 1.0, "low_pass": 40.0},
)
print(dict(windows.sizes), windows.attrs["units"])
print(windows["label"].to_series().value_counts().to_string())
