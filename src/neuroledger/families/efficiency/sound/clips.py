"""Clips of equal length and rate from sound files, as 16-bit integers."""

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
from neuroledger.families.efficiency.sound.hearing import resample_sound

__all__ = ["FULL_SCALE", "Clip", "clip_of", "samples_in", "window_of"]

Int16 = npt.NDArray[np.int16]
FULL_SCALE = 32768
"""The integer that represents 1, the maximum amplitude."""


class Clip(BaseModel):
    """The format of clips.

    Attributes
    ----------
    rate
        Samples per second of the files; another rate is an error.
    resample
        Samples per second of the clips, converted with a polyphase filter; by default those of the files.
    seconds
        Length of the clips; shorter files are padded with silence.
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
        """Number of samples of a clip."""
        return round(self.seconds * self.final_rate)


def clip_of(content: bytes, name: str, clip: Clip) -> Int16:
    """Return the clip (time_bin,) of a sound file.

    Raises
    ------
    DataError
        The file cannot be decoded, is empty or too long, or has several channels or another rate.
    UnavailableError
        The file is not a WAV file, and the package soundfile is not installed.
    """
    return _fit_length(_decode(content, name, clip.rate), name, clip)


def window_of(content: bytes, name: str, clip: Clip, start: int) -> Int16:
    """Return the clip that begins at sample ``start`` of a longer sound file."""
    length = round(clip.seconds * clip.rate)
    return _fit_length(
        _decode(content, name, clip.rate)[start : start + length], name, clip
    )


def samples_in(content: bytes, name: str, rate: int) -> int:
    """Return the length of a sound file in samples."""
    return len(_decode(content, name, rate))


def _fit_length(sound: Int16, name: str, clip: Clip) -> Int16:
    if not len(sound):
        raise DataError(f"{name} has no samples")
    longest = round(clip.seconds * clip.rate)
    if len(sound) > longest:
        if clip.longer == "refuse":
            raise DataError(
                f"{name} lasts {len(sound) / clip.rate:.3f} s, longer than {clip.seconds:g} s: "
                "set `longer: cut` in the spec's reader to use its beginning"
            )
        sound = sound[:longest]
    if clip.resample is not None and clip.resample != clip.rate:
        sound = _to_int16(
            resample_sound(sound.astype(np.float64), clip.rate, clip.resample)
            / FULL_SCALE
        )
    fitted = np.zeros(clip.samples, dtype=np.int16)
    fitted[: len(sound)] = sound[: clip.samples]
    return fitted


def _decode(content: bytes, name: str, rate: int) -> Int16:
    """Return the samples of a file, which must have one channel and the declared rate."""
    wav = PurePosixPath(name).suffix.lower() == ".wav"
    sound, channels, file_rate = (
        _decode_wav(content, name) if wav else _decode_with_soundfile(content, name)
    )
    if channels != 1:
        raise DataError(f"{name} has {channels} channels, not one")
    if file_rate != rate:
        raise DataError(
            f"{name} has {file_rate} samples per second, but the spec's reader declares {rate}"
        )
    return sound


def _decode_wav(content: bytes, name: str) -> tuple[Int16, int, int]:
    try:
        with wave.open(io.BytesIO(content)) as file:
            width = file.getsampwidth()
            channels = file.getnchannels()
            rate = file.getframerate()
            frames = file.getnframes()
            content_bytes = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise DataError(
            f"{name} cannot be read as a WAV file of integers ({error})"
        ) from error
    if width != 2:
        raise DataError(f"{name} has samples of {8 * width} bits, not of 16")
    if len(content_bytes) != frames * width * channels:
        raise DataError(
            f"{name} is truncated: it has {len(content_bytes)} of {frames * width * channels} bytes of sound"
        )
    return np.frombuffer(content_bytes, dtype="<i2").astype(np.int16), channels, rate


def _decode_with_soundfile(content: bytes, name: str) -> tuple[Int16, int, int]:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"{name} needs the package soundfile, which is not installed ({error})",
            "pip install 'neuroledger[sound]'",
        ) from error
    try:
        sound, rate = soundfile.read(
            io.BytesIO(content), dtype="float32", always_2d=True
        )
    except (soundfile.SoundFileError, ValueError, TypeError) as error:
        raise DataError(f"{name} cannot be decoded as sound ({error})") from error
    return _to_int16(sound[:, 0]), sound.shape[1], int(rate)


def _to_int16(sound: Array) -> Int16:
    """Convert numbers between -1 and 1 to 16-bit integers; larger amplitudes are clipped."""
    integers: Int16 = np.clip(
        np.rint(sound * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1
    ).astype(np.int16)
    return integers
