"""Simulated recordings of subjects who react to `go` and `stop`, as a BIDS tree of BrainVision files."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from tests.families.signals.bids_files import bids_recording, described

CHANNELS, RATE, EVENTS, STEP = ("Fz", "Cz", "Pz"), 128, 40, 1.0


def people_of_bids(tree: Path, subjects: int = 3, sessions: int = 1) -> None:
    """Write the tree: on `go`, the average of 0 to 0.5 s is 9 µV higher at Cz; noise of 5 µV per sample everywhere.

    The 40 events of a person are divided between the sessions; names state a session only if there are several.
    """
    tree.mkdir()
    described(tree, "Simulated reactions")
    count = EVENTS // sessions
    for number, session in product(range(1, subjects + 1), range(1, sessions + 1)):
        rng = np.random.default_rng([number, session] if sessions > 1 else number)
        said = rng.permutation(["go", "stop"] * (count // 2))
        samples = rng.normal(size=(int((count * STEP + 2) * RATE), len(CHANNELS))) * 5
        onsets = 1 + STEP * np.arange(count)
        for onset, what in zip(onsets, said, strict=True):
            if what == "go":
                samples[int(onset * RATE) : int((onset + 0.5) * RATE), 1] += 9
        bids_recording(
            tree,
            f"{number:02}",
            "react",
            dict.fromkeys(CHANNELS, "EEG"),
            samples.T,
            RATE,
            list(zip(onsets.tolist(), said.tolist(), strict=True)),
            session=f"{session:02}" if sessions > 1 else "",
        )
