"""Simulated BIDS recordings: BrainVision files of 32-bit floats with their sidecars."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.families.signals.brainvision_files import brainvision


def described(root: Path, name: str) -> None:
    """The description that makes a folder a BIDS data set."""
    about = {"Name": name, "BIDSVersion": "1.8.0", "License": "CC0"}
    (root / "dataset_description.json").write_text(json.dumps(about))


def bids_recording(
    root: Path,
    subject: str,
    task: str,
    channels: Mapping[str, str],
    microvolts: NDArray[np.floating],
    rate: int,
    events: Sequence[tuple[float, str]],
    session: str = "",
) -> None:
    """One person's: ``channels`` by name with their BIDS type, (channel, sample) in µV, events by onset in seconds."""
    entities = [f"sub-{subject}", *([f"ses-{session}"] if session else [])]
    folder = root.joinpath(*entities) / "eeg"
    stem = "_".join([*entities, f"task-{task}"])
    brainvision(folder, f"{stem}_eeg", tuple(channels), microvolts, rate, steps=None)
    about = {"TaskName": task, "SamplingFrequency": rate, "PowerLineFrequency": 50}
    (folder / f"{stem}_eeg.json").write_text(json.dumps(about))
    table = [
        "name\ttype\tunits",
        *(f"{name}\t{kind}\tµV" for name, kind in channels.items()),
    ]
    (folder / f"{stem}_channels.tsv").write_text(
        "\n".join(table) + "\n", encoding="utf-8"
    )
    table = [
        "onset\tduration\ttrial_type",
        *(f"{onset:g}\t0\t{what}" for onset, what in events),
    ]
    (folder / f"{stem}_events.tsv").write_text(
        "\n".join(table) + "\n", encoding="utf-8"
    )
