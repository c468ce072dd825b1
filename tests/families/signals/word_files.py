"""Simulated recordings of reading word by word in the layout of the nine laboratories, with archives and workbook."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.families.signals.biosemi_files import bdf
from tests.families.signals.brainvision_files import brainvision

RAW = "Raw and Processed data/Raw data"
WORKBOOK = "Stimuli/Sentence Materials/REPLICATION_ITEMS.xlsx"
SCALP = ["Fp1", "Fz", "Cz", "Pz", "Oz", "C3", "C4", "AF3"]
RATE = 250


class Trial(NamedTuple):
    """A sentence as it was read: its part, item and version, and when it began."""

    kind: str
    item: int
    version: str
    at: float


def prediction(item: int) -> dict[str, list[str]]:
    """The two versions of a sentence about prediction."""
    start = f"Person{item} went out because item{item} said".split()
    return {
        "expected": [*start, "a", f"kite{item}", "flew", "by."],
        "unexpected": [*start, "an", f"airplane{item}", "flew", "by."],
    }


def control(item: int) -> dict[str, list[str]]:
    """The two versions of a control sentence."""
    return {
        "correct": f"Someone{item} else's dog{item} barked loudly.".split(),
        "incorrect": f"Someone{item} else's dog{item} flew loudly.".split(),
    }


def slow(item: int) -> dict[str, list[str]]:
    """Control sentences with marks between their words that are no words, so that windows of 3 s hold one word each."""
    return {
        "correct": [f"someone{item}", "—", "—", f"runs{item}", "—", "—"],
        "incorrect": [f"someone{item}", "—", "—", f"cheese{item}", "—", "—"],
    }


Versions = Callable[[int], dict[str, list[str]]]


def text(kind: str, item: int, version: str, controls: Versions = control) -> list[str]:
    return (prediction if kind == "prediction" else controls)(item)[version]


def workbook(items: Sequence[int], controls: Versions = control) -> bytes:
    """The two sheets, with the headings of the published one, one of which comes twice."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Delong_Replication"
    sheet.append(
        [
            "Item number",
            "Sentence context",
            "Expected",
            "Unexpected",
            "Cloze: a",
            "Expected",
            "Unexpected",
            "Sentence ending",
        ]
    )
    for item in items:
        one, other = prediction(item)["expected"], prediction(item)["unexpected"]
        sheet.append(
            [
                item,
                " ".join(one[:-4]),
                one[-4],
                other[-4],
                0.8,
                one[-3],
                other[-3],
                " ".join(one[-2:]),
            ]
        )
    second = book.create_sheet("Control_experiment")
    second.append(["Item number", "Correct", "Incorrect", "Question"])
    for item in items:
        second.append(
            [item, *(" ".join(words) for words in controls(item).values()), None]
        )
    second.append([None, None, None, None])
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def stimuli(folder: Path, items: Sequence[int], controls: Versions = control) -> None:
    path = folder / "Stimuli/Stimuli.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as held:
        held.writestr(WORKBOOK, workbook(items, controls))


def triggers(
    trials: Sequence[Trial], every: float = 0.5, controls: Versions = control
) -> list[tuple[float, int]]:
    """What was sent: cloze and item before the first word, a code with each word, questions now and then; practice first."""
    sent = [(0.3, 101), *((0.5 + n * every, 255) for n in range(4))]
    for number, trial in enumerate(trials):
        words = text(*trial[:3], controls)
        if trial.kind == "prediction":
            sent.append((trial.at - 0.3, 200 if number % 3 == 0 else 80))
        sent.append((trial.at - 0.2, 100 + trial.item))
        for position, _ in enumerate(words):
            code = 255
            if trial.kind == "prediction":
                late = len(words) - position
                expected = trial.version == "expected"
                code = {
                    4: 201 if expected else 204,
                    3: 205 if expected else 206,
                    1: 207 if expected else 208,
                }.get(late, 255)
            elif position == 3:
                code = 210 if trial.version == "correct" else 211
            sent.append((trial.at + position * every, code))
        if number % 4 == 0:
            sent.append((trial.at + len(words) * every + 1.6, 251))
    return sorted(sent)


def record(
    folder: Path,
    laboratory: str,
    subject: int,
    microvolts: NDArray[np.floating],
    sent: Sequence[tuple[float, int]],
    task: str = "",
) -> None:
    """A recording as the laboratory's amplifier writes it, with its own names of channels, eyes and mastoids."""
    place = folder / RAW / laboratory
    samples = [(round(at * RATE), code) for at, code in sent]
    eyes = np.random.default_rng(subject).standard_normal((2, microvolts.shape[1])) * 50
    if laboratory in ("EDIN", "OXFO"):
        values = np.concatenate([microvolts, eyes, eyes])
        bdf(
            place / f"{laboratory.lower()}{subject}.bdf",
            [*SCALP, "VEOG", "HEOG", "EXG5", "GSR1"],
            values,
            RATE,
            samples,
        )
        return
    names = {
        "BIRM": (
            f"birm{subject:02d}",
            ["P8" if name == "Oz" else name for name in SCALP] + ["EOG", "BIP1"],
        ),
        "BRIS": (f"bris{subject:02d}_{task}", [*SCALP, "TP9", "VEOG"]),
        "KENT": (f"kent{subject:04d}", [*SCALP[:-1], "Af3", "HEOG", "VEOG"]),
        "YORK": (f"YORK{subject}", ["P7", *SCALP[1:], "FP1", "BIP1"]),
    }
    name, channels = names[laboratory]
    values = np.concatenate([microvolts, eyes])
    if laboratory == "YORK":  # another order
        values = values[[8, 1, 2, 3, 4, 5, 6, 7, 0, 9]]
    brainvision(
        place,
        name,
        channels,
        values,
        RATE,
        [(at, f"S{code:3d}") for at, code in samples],
    )


def packed(
    folder: Path, laboratory: str, archives: Mapping[str, tuple[str, Sequence[str]]]
) -> None:
    """Parts of recordings moved into archives: name → (folder in it, parts)."""
    place = folder / RAW / laboratory
    for archive, (inner, parts) in archives.items():
        with zipfile.ZipFile(place / archive, "w") as held:
            for part in parts:
                held.write(place / part, f"{inner}{part}")
                (place / part).unlink()
