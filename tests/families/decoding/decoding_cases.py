"""Small signals with known content, for the tests of decoding."""

import numpy as np
import xarray as xr

from neuroledger.families.signals.signals import signals


def windows(
    subjects=4,
    trials=10,
    channels=3,
    samples=16,
    rate=16.0,
    gap=2.0,
    seed=0,
    strength=0.0,
    sessions=1,
) -> xr.DataArray:
    """Noise of several subjects; on channel 0, class `b` is higher than `a` by `strength`."""
    rng = np.random.default_rng(seed)
    count = subjects * sessions * trials
    label = np.tile(["a", "b"], count // 2)
    values = rng.standard_normal((count, channels, samples))
    values[:, 0] += strength * (label == "b")[:, None]
    subject = np.repeat([f"S{i}" for i in range(subjects)], sessions * trials)
    session = np.tile(np.repeat([str(i) for i in range(sessions)], trials), subjects)
    events = {
        "stimulus_id": label,
        "label": label,
        "number": np.where(label == "b", 1.0, 0.0) + 0.01 * np.arange(count),
        "subject": subject,
        "session": session,
        "recording": np.char.add(subject, session),
        "onset": np.tile(gap * np.arange(trials), subjects * sessions),
        "trial": np.tile(np.arange(trials) // 2, subjects * sessions),
    }
    return signals(
        values,
        channels=[f"C{i}" for i in range(channels)],
        channel_types="eeg",
        sampling_rate=rate,
        start=0.0,
        units="uV",
        events=events,
    )
