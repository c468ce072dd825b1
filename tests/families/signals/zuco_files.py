"""Simulated ZuCo files in the layout of the first release: MATLAB files of blocks, eye tracker and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

RATE = 500
LABELS = [f"E{number}" for number in range(1, 129)]
# Folders as the repository of the project writes them.
FOLDERS = {
    "task1-SR": "task1- SR",
    "task2-NR": "task2 - NR",
    "task3-TSR": "task3 - TSR",
}
CODES = {"task1-SR": "SR", "task2-NR": "NR", "task3-TSR": "TSR"}
Read = tuple[
    float, float, bool
]  # onset and duration (s), and whether it is a control sentence


def eeg(
    folder: Path,
    task: str,
    who: str,
    block: int,
    microvolts: NDArray[np.floating],
    read: Sequence[Read],
    *,
    run: str | None = None,
    open_end: bool = False,
    joints: Sequence[float] = (0.3,),
) -> Path:
    """A block as EEGLAB has it; events also have triggers of other things, and a word."""
    events = [("90  ", 0.2), *(("boundary", at) for at in joints)]
    for onset, duration, control in read:
        events += [
            (str(12 if control else 10), onset),
            (str(13 if control else 11), onset + duration),
        ]
        events += [("20  ", onset + duration + 0.1)]
    if open_end:
        events = events[:-2]
    struct = {
        "setname": f"{who}_{block}",
        "nbchan": float(len(LABELS)),
        "srate": float(RATE),
        "data": microvolts.astype(np.float32),
        "chanlocs": np.array(
            [(label, 1.0) for label in LABELS],
            dtype=[("labels", object), ("X", object)],
        ),
        "event": np.array(
            [(kind, at * RATE + 1) for kind, at in events],
            dtype=[("type", object), ("latency", object)],
        ),
    }
    path = (
        folder
        / FOLDERS[task]
        / "Raw data"
        / who
        / f"{who}_{run or CODES[task]}{block}_EEG.mat"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(
        path, {"EEG": struct}, do_compression=block == 1
    )  # both kinds occur, and noise packs slowly
    return path


def gaze(
    folder: Path,
    task: str,
    who: str,
    block: int,
    read: Sequence[Read],
    *,
    rate: float = 1000.4,
) -> Path:
    """The eye tracker's file; its clock began long before, and is not quite the amplifier's."""
    rows = []
    for onset, duration, control in read:
        rows += [
            [4e6 + rate * onset, 12 if control else 10],
            [4e6 + rate * (onset + duration), 13 if control else 11],
        ]
    fixations = {
        "data": np.zeros((2, 7)),
        "colheader": np.array(["latency", "endtime"], dtype=object),
        "eye": "R",
    }
    path = (
        folder / FOLDERS[task] / "Raw data" / who / f"{who}_{CODES[task]}{block}_ET.mat"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(
        path,
        {
            "event": np.round(np.array(rows)),
            "eyeevent": {"fixations": fixations},
            "data": np.zeros((4, 4)),
        },
    )
    return path


def results(folder: Path, task: str, who: str, sentences: Sequence[str | None]) -> Path:
    """The sentences of a task with what was measured at each; a missing one has NaN throughout."""
    fields = ["content", "rawData", "allFixations", "wordbounds", "omissionRate"]
    rows: list[Any] = []
    for text in sentences:
        words = 0 if text is None else len(text.split())
        rows.append(
            (np.nan, np.nan, np.nan, np.nan, np.nan)
            if text is None
            else (
                text,
                np.zeros((105, 9)),
                {"x": np.arange(3.0)},
                np.zeros((words, 4)),
                0.2,
            )
        )
    struct = np.empty((1, len(rows)), dtype=[(field, object) for field in fields])
    for at, row in enumerate(rows):
        struct[0, at] = row
    path = folder / FOLDERS[task] / "Matlab files" / f"results{who}_{CODES[task]}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"sentenceData": struct})
    return path
