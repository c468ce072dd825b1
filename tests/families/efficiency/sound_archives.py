"""Stand-ins for published sets of spoken words: real layout and encodings, with tones in noise as words."""

from __future__ import annotations

import gzip
import io
import tarfile
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.families.efficiency.readers.keyword_sessions import keyword_sessions
from neuroledger.families.efficiency.readers.word_folders import Keywords, word_folders
from neuroledger.families.efficiency.sound.clips import Clip

WORDS = ("bed", "go", "no", "stop", "yes")
LANGUAGES = ("fa", "eo", "pt")
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
BASE = {
    "train": "base_train.csv",
    "validation": "base_val.csv",
    "test": "base_test.csv",
}


def tone(pitch: float, rate: int, seconds: float, seed: int) -> np.ndarray:
    """A tone of a pitch in Hz, with harmonics and noise, between -1 and 1."""
    time = np.arange(round(rate * seconds)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.05, len(time))
    return (
        0.3 * np.sin(2 * np.pi * pitch * time)
        + 0.1 * np.sin(4 * np.pi * pitch * time)
        + noise
    )


def wav(
    sound: np.ndarray, rate: int = 16000, channels: int = 1, width: int = 2
) -> bytes:
    """A WAV file of integers."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        kind = "<i2" if width == 2 else "u1"
        scaled = (
            np.clip(sound * 32767, -32768, 32767) if width == 2 else sound * 127 + 128
        )
        file.writeframes(np.repeat(scaled, channels).astype(kind).tobytes())
    return buffer.getvalue()


def opus(sound: np.ndarray, rate: int = 48000) -> bytes:
    """An Ogg file with Opus, as in Common Voice."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, sound, rate, format="OGG", subtype="OPUS")
    return buffer.getvalue()


def tar(
    path: Path, members: Mapping[str, bytes], links: Mapping[str, str] | None = None
) -> Path:
    """Write a .tar.gz (or .tar) of members, and of links."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    whole = buffer.getvalue()
    path.write_bytes(
        gzip.compress(whole, 1, mtime=0) if path.suffix == ".gz" else whole
    )
    return path


def commands(
    words: Sequence[str] = WORDS, each: Sequence[int] = (12, 3, 4), rate: int = 16000
) -> dict[str, bytes]:
    """Members like those of Speech Commands: words with clips for training, validation and tests, lists and noises."""
    members: dict[str, bytes] = {
        "./README.md": b"About the set.\n",
        "./LICENSE": b"CC-BY-4.0\n",
    }
    lists: dict[str, list[str]] = {"validation": [], "testing": []}
    for place, word in enumerate(words):
        for number in range(sum(each)):
            seed = 1000 * place + number
            seconds = 1.0 if number % 3 else 0.83
            name = f"{word}/{seed:08x}_nohash_{number % 2}.wav"
            members[f"./{name}"] = wav(
                tone(300 + 220 * place, rate, seconds, seed), rate
            )
            if number >= each[0]:
                lists["validation" if number < each[0] + each[1] else "testing"].append(
                    name
                )
    for place, noise in enumerate(("pink_noise", "running_tap")):
        sound = np.random.default_rng(place).normal(0, 0.1, 12 * rate)
        members[f"./_background_noise_/{noise}.wav"] = wav(sound, rate)
    members["./_background_noise_/README.md"] = b"Noises.\n"
    for part, names in lists.items():
        members[f"./{part}_list.txt"] = ("\n".join(names) + "\n").encode()
    return members


def keywords(
    base: int = 4,
    each: Sequence[int] = (12, 2, 4),
    languages: Sequence[str] = LANGUAGES,
    evaluation: int = 14,
) -> dict[str, bytes]:
    """Members like those of NeuroBench's MSWC subset: a base in three lists, then a folder for each language."""
    members: dict[str, bytes] = {
        "MSWC/._base_train.csv": b"\x00\x05\x16\x07 what macOS adds"
    }
    rows: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    pitch = 200.0
    for place in range(base):
        word, language = ("l’été", "fr") if place == 0 else (f"word{place}", "en")
        pitch += 150
        for number in range(sum(each)):
            part = (
                "train"
                if number < each[0]
                else "val"
                if number < each[0] + each[1]
                else "test"
            )
            link = f"{word}/common_voice_{language}_{1000 * place + number}.opus"
            members[f"MSWC/{language}/clips/{link}"] = opus(
                tone(pitch, 48000, 0.9, 1000 * place + number)
            )
            rows[part].append(f"{link},{word},{language}")
    for part, lines in rows.items():
        members[f"MSWC/base_{part}.csv"] = "\n".join(
            ["LINK,WORD,LANGUAGE", *lines, ""]
        ).encode()
    for place, language in enumerate(languages):
        lines = ["LINK,WORD,LANGUAGE"]
        for word in (f"{language}-one", f"{language}-two"):
            pitch += 150
            for number in range(evaluation):
                link = f"{word}/common_voice_{language}_{number}.opus"
                sound = opus(tone(pitch, 48000, 1.0, 10_000 * (place + 1) + number))
                members[f"MSWC/{language}/clips/{link}"] = sound
                lines.append(f"{link},{word},{language}")
        members[f"MSWC/{language}/evaluation.csv"] = "\n".join([*lines, ""]).encode()
    return members


def read_words(
    path: Path, clip: Clip | None = None, keywords: Keywords | None = None
) -> xr.DataArray:
    """The assembly of an archive of words."""
    clip = clip or Clip(rate=16000)
    return word_folders(
        {"archive": path}, archive="archive", clip=clip, lists=LISTS, keywords=keywords
    ).assembly


def read_sessions(
    path: Path, clip: Clip | None = None, support: int = 7
) -> xr.DataArray:
    """The assembly of an archive of sessions."""
    clip = clip or Clip(rate=48000)
    return keyword_sessions(
        {"archive": path},
        archive="archive",
        clip=clip,
        base=BASE,
        sessions=LANGUAGES,
        support=support,
    ).assembly
