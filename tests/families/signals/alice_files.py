"""Simulated files in the layout of Alice's second release: words, ZIP of tables of trials, BrainVision recordings."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from tests.families.signals.brainvision_files import brainvision

RATE = 500
# Electrodes of the cap, without 29, which was the reference.
ELECTRODES = [str(number) for number in range(1, 62) if number != 29]
HEADER = (
    "Word,Trigger,Segment,onset,offset,Order,LogFreq,LogFreq_Prev,LogFreq_Next,SndPower,Length,Position,Sentence,"
    "IsLexical,NGRAM,RNN,CFG"
)
EPOCH = (-0.3, 1.0)


class Said(NamedTuple):
    word: str
    segment: int
    onset: float
    order: int
    position: int
    sentence: int


def story(
    sentences: Sequence[tuple[int, int, Sequence[str]]], every: float = 0.4
) -> list[Said]:
    """Words of sentences (number, segment, words), so many seconds apart; as in the story, some numbers are passed over."""
    said: list[Said] = []
    order, at, before = 0, 0.046, None
    for number, segment, words in sentences:
        at = 0.046 if segment != before else at
        before = segment
        for position, word in enumerate(words, 1):
            order += 2 if len(said) in (3, 7) else 1
            said.append(Said(word, segment, round(at, 6), order, position, number))
            at += every
    return said


def table(said: Sequence[Said]) -> str:
    rows = [
        f"{s.word},1,{s.segment},{s.onset},{s.onset + 0.3:.6f},{s.order},8.65,0,14.56,3.62E-07,0.3,{s.position},"
        f"{s.sentence},{'NaN' if s.order % 7 == 0 else 1},3.2,3.1,2.3"
        for s in said
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def trials(
    said: Sequence[Said], starts: dict[int, int], *, older: bool = False
) -> dict[str, Any]:
    """The structure `proc`: trials from 0.3 s before a word; `starts` are the samples, from 1, at which segments begin."""
    rows = []
    for index, s in enumerate(said, 1):
        at = starts[s.segment] + int(np.ceil(s.onset * RATE))
        bounds = [at + EPOCH[0] * RATE, at + EPOCH[1] * RATE, EPOCH[0] * RATE]
        told = [s.segment, s.onset, s.order]
        rows.append(
            [
                *bounds,
                *(
                    told
                    if older
                    else [1, s.segment, s.onset, s.onset + 0.3, s.order, 8.65, index]
                ),
            ]
        )
    names = ["segment", "tmin", "Order"]
    if not older:
        names = [
            "trigger",
            "passage",
            "onset",
            "offset",
            "Order",
            "LogFreq",
            "trial_index",
        ]
    return {
        "trl": np.array(rows, dtype=float),
        "varnames": np.array(names, dtype=object),
        "tot_trials": len(rows),
        "tot_chans": 61,
        "implicitref": "29",
        "impedence": {"bads": np.array(["7"], dtype=object), "imps": np.arange(3.0)},
        "rejections": {"badchans": np.array([], dtype=object), "numtrialrej": 0},
    }


def archive(path: Path, of: dict[str, dict[str, Any]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
        for subject, proc in of.items():
            content: Any = io.BytesIO()
            savemat(content, {"proc": proc})
            held.writestr(f"timelock-preprocessing/{subject}.mat", content.getvalue())
            held.writestr(
                f"__MACOSX/timelock-preprocessing/._{subject}.mat", b"\x00\x05\x16\x07"
            )


def recording(
    folder: Path, subject: str, microvolts: NDArray[np.floating], starts: dict[int, int]
) -> None:
    """60 electrodes, the eye channel, and the channel with the sound, whose name differs between people."""
    rng = np.random.default_rng(int(subject[1:]))
    rest = rng.standard_normal((2, microvolts.shape[1])) * 40.0
    sound = "Aux5" if int(subject[1:]) % 2 else "AUD"
    markers = [(at - 1, f"S{segment:3d}") for segment, at in starts.items()]
    values = np.concatenate([microvolts, rest])
    brainvision(folder, subject, [*ELECTRODES, "VEOG", sound], values, RATE, markers)
