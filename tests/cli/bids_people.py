"""Simulated recordings of subjects who react to `go` and `stop`, as a BIDS tree of BrainVision files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.families.signals.bids_files import bids_recording, described

CHANNELS, RATE, EVENTS, STEP = ("Fz", "Cz", "Pz"), 128, 40, 1.0


def people_of_bids(tree: Path, subjects: int = 3) -> None:
    """Write the tree: on `go`, the average of 0 to 0.5 s is 5 µV higher at Cz; noise of 5 µV per sample everywhere."""
    tree.mkdir()
    described(tree, "Simulated reactions")
    for number in range(1, subjects + 1):
        rng = np.random.default_rng(number)
        said = rng.permutation(["go", "stop"] * (EVENTS // 2))
        samples = rng.normal(size=(int((EVENTS * STEP + 2) * RATE), len(CHANNELS))) * 5
        onsets = 1 + STEP * np.arange(EVENTS)
        for onset, what in zip(onsets, said, strict=True):
            if what == "go":
                samples[int(onset * RATE) : int((onset + 0.5) * RATE), 1] += 5
        events = list(zip(onsets.tolist(), said.tolist(), strict=True))
        bids_recording(
            tree,
            f"{number:02}",
            "react",
            dict.fromkeys(CHANNELS, "EEG"),
            samples.T,
            RATE,
            events,
        )
