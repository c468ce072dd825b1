"""Sound files become clips of one length and one rate, in integers of 16 bits."""

from __future__ import annotations

import io
import wave
from pathlib import PurePosixPath
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.efficiency.sound.hearing import resampled

__all__ = ["FULL_SCALE", "Clip", "clip_of", "samples_in", "window_of"]

Int16 = npt.NDArray[np.int16]
FULL_SCALE = 32768
"""The integer that stands for 1, the loudest that a file can hold."""


class Clip(BaseModel):
    """What every clip is made to be.

    Attributes
    ----------
    rate
        Samples per second of the files; another one is an error.
    resample
        Samples per second of the clips, by a polyphase filter; those of the files where it is not given.
    seconds
        Length of the clips; shorter files are followed by silence.
    longer
        Whether longer files are refused, or cut at the end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: Annotated[int, Field(gt=0, le=768_000)]
    resample: Annotated[int, Field(gt=0, le=768_000)] | None = None
    seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    longer: Literal["refuse", "cut"] = "refuse"

    @property
    def final_rate(self) -> int:
        """Samples per second of the clips."""
        return self.resample or self.rate

    @property
    def samples(self) -> int:
        """Samples of a clip."""
        return round(self.seconds * self.final_rate)


def clip_of(content: bytes, name: str, clip: Clip) -> Int16:
    """The clip (time_bin,) that a sound file holds.

    Raises
    ------
    DataError
        The file cannot be decoded, is empty, too long, not of one channel, or has another rate.
    UnavailableError
        It is no WAV file, and the package soundfile is not installed.
    """
    return _fitted(_decoded(content, name, clip.rate), name, clip)


def window_of(content: bytes, name: str, clip: Clip, start: int) -> Int16:
    """The clip that begins at sample ``start`` of a longer sound file."""
    length = round(clip.seconds * clip.rate)
    return _fitted(_decoded(content, name, clip.rate)[start : start + length], name, clip)


def samples_in(content: bytes, name: str, rate: int) -> int:
    """Length of a sound file in samples."""
    return len(_decoded(content, name, rate))


def _fitted(sound: Int16, name: str, clip: Clip) -> Int16:
    if not len(sound):
        raise DataError(f"{name} holds no samples")
    longest = round(clip.seconds * clip.rate)
    if len(sound) > longest:
        if clip.longer == "refuse":
            raise DataError(
                f"{name} lasts {len(sound) / clip.rate:.3f} s, longer than {clip.seconds:g} s: "
                "say `longer: cut` in the spec's reader if its beginning is meant"
            )
        sound = sound[:longest]
    if clip.resample is not None and clip.resample != clip.rate:
        sound = _integers(resampled(sound.astype(np.float64), clip.rate, clip.resample) / FULL_SCALE)
    fitted = np.zeros(clip.samples, dtype=np.int16)
    fitted[: len(sound)] = sound[: clip.samples]
    return fitted


def _decoded(content: bytes, name: str, rate: int) -> Int16:
    """Samples of a file of one channel at the rate that was declared."""
    wav = PurePosixPath(name).suffix.lower() == ".wav"
    sound, channels, found = _wav(content, name) if wav else _packed(content, name)
    if channels != 1:
        raise DataError(f"{name} has {channels} channels, not one")
    if found != rate:
        raise DataError(f"{name} has {found} samples per second, the spec's reader says {rate}")
    return sound


def _wav(content: bytes, name: str) -> tuple[Int16, int, int]:
    try:
        with wave.open(io.BytesIO(content)) as opened:
            width, channels, rate = opened.getsampwidth(), opened.getnchannels(), opened.getframerate()
            frames, held = opened.getnframes(), opened.readframes(opened.getnframes())
    except (wave.Error, EOFError) as error:
        raise DataError(f"{name} cannot be read as a WAV file of integers ({error})") from error
    if width != 2:
        raise DataError(f"{name} has samples of {8 * width} bits, not of 16")
    if len(held) != frames * width * channels:
        raise DataError(
            f"{name} is cut off: {len(held)} of {frames * width * channels} bytes of sound are there"
        )
    return np.frombuffer(held, dtype="<i2").astype(np.int16), channels, rate


def _packed(content: bytes, name: str) -> tuple[Int16, int, int]:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"{name} is decoded by the package soundfile: pip install 'neuroledger[sound]' ({error})"
        ) from error
    try:
        sound, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, ValueError, TypeError) as error:
        raise DataError(f"{name} cannot be decoded as sound ({error})") from error
    return _integers(sound[:, 0]), sound.shape[1], int(rate)


def _integers(sound: Array) -> Int16:
    """Numbers between -1 and 1 as integers of 16 bits; what is louder stays at the loudest."""
    whole: Int16 = np.clip(np.rint(sound * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return whole
