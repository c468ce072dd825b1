"""Simulated recordings of typing with their logs, in the published layouts: BrainVision, FIF, and MATLAB structs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.io import savemat

RATE, CHANNELS, WORD = 250, 8, 10
WORDS = (
    "casa",
    "tierra",
    "sol",
    "dice",
    "lento",
    "cinta",
    "rosal",
    "dolor",
    "sendas",
    "cantar",
    "tesoro",
    "ladera",
)
PATTERNS = np.random.default_rng(99).standard_normal((256, CHANNELS))


@dataclass
class Session:
    """What happened: events on the clock of the program, and what the recorder took of them."""

    seed: int
    trials: int = 10
    odd: bool = False
    lost: int = 0
    spare: int = 0
    offset: float = 5321.7
    events: list[tuple[float, int]] = field(default_factory=list)
    keys: list[list[dict[str, float]]] = field(default_factory=list)
    words: list[list[dict[str, object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng, now = np.random.default_rng(self.seed), 3.0
        pool = np.random.default_rng(0)
        sentences = [" ".join(pool.choice(WORDS, 4, replace=False)) for _ in range(40)]
        for _ in range(self.trials):
            sentence = sentences[int(rng.integers(len(sentences)))]
            said = sentence.replace("cantar", "cantár") if self.odd else sentence
            self.words.append([])
            for text in said.split():
                self.words[-1].append({"t": now, "stim": text.capitalize()})
                self.events.append((now, WORD))
                now += 0.4
            now += 1.0
            self.keys.append([])
            typed = [ord(letter.upper()) for letter in sentence]
            if self.odd:  # ñ, left shift, a digit of the pad, a comma, a mistake that is taken back
                typed = [192, 160, 97, 188, 88, 8, *typed]
            for code in [*typed, 13]:
                self.press(code, now)
                now += 0.25 + float(rng.uniform(0, 0.02))
            now += 1.0
        if self.odd:  # a trial in which nobody typed
            self.words.append([{"t": now, "stim": "casa"}])
            self.keys.append([])
            self.events.append((now, WORD))
        self.seconds = int(now + 3)

    def press(self, code: int, now: float) -> None:
        self.keys[-1].append({"Keycode": code, "Pressed": 1, "Time": now})
        if code != 13:  # return is never seen to be let go
            self.keys[-1].append({"Keycode": code, "Pressed": 0, "Time": now + 0.08})
        self.events.append((now, code))

    def triggers(self) -> list[tuple[int, int]]:
        """Sample and code of what the recorder took: a little late, some lost, some from nowhere."""
        rng = np.random.default_rng(self.seed + 1)
        kept = set(range(len(self.events))) - set(
            rng.permutation(len(self.events))[: self.lost].tolist()
        )
        found = [
            (round((at * (1 + 2e-5) + 0.004 * rng.random()) * RATE), code)
            for number, (at, code) in enumerate(self.events)
            if number in kept
        ]
        found += [(RATE // 5 + 10 * number, 77) for number in range(self.spare)]
        return sorted(found)

    def signals(self, *, planted: bool) -> np.ndarray:
        """(channel, sample) in µV, with a wave for each key."""
        values = (
            np.random.default_rng(self.seed + 2).standard_normal(
                (CHANNELS, self.seconds * RATE)
            )
            * 10
        )
        wave = 60 * np.sin(np.pi * np.arange(RATE // 5) / (RATE // 5))
        for at, code in self.events if planted else ():
            first = round(at * RATE)
            if code != WORD:
                values[:, first : first + len(wave)] += PATTERNS[code][:, None] * wave
        return values

    def log(self, path: Path) -> None:
        """`pr_trials`: cells of structs, one for each trial."""

        def cells(
            rows: Sequence[Sequence[Mapping[str, object]]], times: str
        ) -> np.ndarray:
            made = np.empty((1, len(rows)), dtype=object)
            for number, row in enumerate(rows):
                made[0, number] = np.empty((0, 0))
                if row:
                    struct = np.empty(
                        (1, len(row)), dtype=[(name, object) for name in row[0]]
                    )
                    for at, event in enumerate(row):
                        moved = {**event, times: float(event[times]) + self.offset}  # type: ignore[arg-type]
                        struct[0, at] = tuple(moved[name] for name in row[0])
                    made[0, number] = struct
            return made

        sentences = np.empty((1, len(self.words)), dtype=object)
        sentences[0] = [
            " ".join(str(word["stim"]) for word in row) for row in self.words
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        said = {
            "key": cells(self.keys, "Time"),
            "rsvp": cells(self.words, "t"),
            "sequence": sentences,
        }
        savemat(path, {"pr_trials": said, "subject": self.seed})


def brainvision(
    path: Path, session: Session, *, planted: bool = True, port_test: bool = False
) -> None:
    """Header, markers and 16-bit signals, 0.1 µV a step; two channels of the eyes among those of the brain."""
    names = ["Fp1", "VEOG", "Cz", "C3", "C4", "Pz", "HEOG", "O1", "O2", "Oz"]
    values = session.signals(planted=planted)
    eyes = np.zeros((2, values.shape[1]))
    stacked = np.insert(values, [1, 5], eyes, axis=0)
    triggers = session.triggers()
    if port_test:
        triggers = [(5 + number, number + 1) for number in range(255)] + [
            (at, code) for at, code in triggers if at > 300
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        "Brain Vision Data Exchange Header File Version 1.0",
        "[Common Infos]",
        "Codepage=UTF-8",
        f"DataFile={path.stem}.eeg",
        f"MarkerFile={path.stem}.vmrk",
        "DataFormat=BINARY",
        "DataOrientation=MULTIPLEXED",
        f"NumberOfChannels={len(names)}",
        f"SamplingInterval={1_000_000 // RATE}",
        "[Binary Infos]",
        "BinaryFormat=INT_16",
        "[Channel Infos]",
    ]
    lines += [f"Ch{number}={name},,0.1,µV" for number, name in enumerate(names, 1)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    marks = [
        "Brain Vision Data Exchange Marker File, Version 1.0",
        "[Common Infos]",
        "Codepage=UTF-8",
        f"DataFile={path.stem}.eeg",
        "[Marker Infos]",
        "Mk1=New Segment,,1,1,0,20230101120000000000",
    ]
    marks += [
        f"Mk{n}=Stimulus,S{code:>3},{at + 1},1,0"
        for n, (at, code) in enumerate(triggers, 2)
    ]
    path.with_suffix(".vmrk").write_text("\n".join(marks) + "\n", encoding="utf-8")
    np.round(stacked.T / 0.1).astype("<i2").tofile(path.with_suffix(".eeg"))


def fif(
    path: Path, session: Session, *, planted: bool = True, split: bool = False
) -> None:
    """Magnetometers and gradiometers in T, with the trigger channel STI101; long ones go on in a second file."""
    import mne

    values = session.signals(planted=planted) * 1e-14
    stim = np.zeros((1, values.shape[1]))
    for at, code in session.triggers():
        stim[0, at : at + 5] = code
    kinds = ["mag" if number % 3 == 0 else "grad" for number in range(CHANNELS)]
    names = [f"MEG{number // 3:03d}{number % 3 + 1}" for number in range(CHANNELS)] + [
        "STI101"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        info = mne.create_info(names, RATE, [*kinds, "stim"])
        for number, channel in enumerate(info["chs"][:-1]):
            channel["loc"][:3] = (0.1, 0.01 * number, 0.05)
        # What came before the start of the recording is not stored: samples do not count from 0.
        raw = mne.io.RawArray(
            np.vstack([values, stim]), info, first_samp=4321, verbose="ERROR"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        size = {"split_size": "2MB", "fmt": "double"} if split else {}
        raw.save(path, verbose="ERROR", overwrite=True, **size)
