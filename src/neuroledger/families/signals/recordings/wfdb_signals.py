"""Samples of PhysioNet's WFDB format: the numbers that signal files store, in the formats of its manual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Integers
from neuroledger.errors import DataError, package_missing

__all__ = ["FORMATS", "MISSING", "Stored", "stored_numbers"]

Bytes = npt.NDArray[np.uint8]
Numbers = Integers

FLAC: Final = frozenset({508, 516, 524})
"""Formats of compressed samples of 8, 16 and 24 bits."""
MISSING: Final[Mapping[int, int]] = {
    16: -32768,
    24: -(1 << 23),
    32: -(1 << 31),
    61: -32768,
    80: -128,
    160: -32768,
    212: -2048,
    310: -512,
    311: -512,
    508: -128,
    516: -32768,
    524: -(1 << 23),
}
"""The number that marks a missing sample, by format; differences (format 8) have none."""
FORMATS: Final = (8, 16, 24, 32, 61, 80, 160, 212, 310, 311, 508, 516, 524)


class Stored(NamedTuple):
    """A signal file as its header describes it: format, first byte, and samples per frame and first value of each signal."""

    format: int
    offset: int
    per_frame: tuple[int, ...]
    initial: tuple[int, ...]


def stored_numbers(path: Path, stored: Stored, frames: int | None) -> list[Numbers]:
    """The numbers of each signal of a file, ``(sample,)``, with all samples of each frame.

    Parameters
    ----------
    path
        The signal file.
    stored
        How its samples are stored.
    frames
        Number of frames that the header states; None to read the whole file.

    Raises
    ------
    DataError
        The file is missing or too short.
    UnavailableError
        The samples are compressed, and soundfile is not installed.
    """
    if stored.format in FLAC:
        return _compressed(path, stored, frames)
    in_frame = sum(stored.per_frame)
    try:
        content = np.fromfile(path, dtype=np.uint8, offset=stored.offset)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path.name} cannot be read ({error}): add the file that the header names"
        ) from error
    numerator, denominator = SIZES[stored.format]
    if frames is None:
        frames = len(content) * denominator // numerator // in_frame
    total = frames * in_frame
    # Groups of samples are stored completely, except at the end of the file.
    expected = -(-total * numerator // denominator)
    if len(content) < expected:
        raise DataError(
            f"{path.name} contains {len(content):,} bytes, but its header states {expected:,}: the file is incomplete"
        )
    numbers = UNPACK[stored.format](content, total).reshape(frames, in_frame)
    edges = np.cumsum([0, *stored.per_frame])
    signals = [
        numbers[:, edges[at] : edges[at + 1]].reshape(-1)
        for at in range(len(stored.per_frame))
    ]
    if stored.format == 8:
        return [
            first + np.cumsum(signal)
            for first, signal in zip(stored.initial, signals, strict=True)
        ]
    return signals


def _compressed(path: Path, stored: Stored, frames: int | None) -> list[Numbers]:
    """The signals of a FLAC file, one in each of its channels; all have the same number of samples in a frame."""
    try:
        import soundfile
    except ImportError as error:
        raise package_missing("soundfile") from error
    try:
        values, _ = soundfile.read(path, dtype="int32", always_2d=True)
        bits = int(soundfile.info(path).subtype.removeprefix("PCM_").removeprefix("S"))
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{path.name} cannot be read as FLAC ({error}): add the file that the header names"
        ) from error
    if frames is None:
        expected = None
    else:
        expected = frames * stored.per_frame[0]
    if values.shape[1] != len(stored.per_frame) or (
        expected is not None and len(values) < expected
    ):
        raise DataError(
            f"{path.name} contains {len(values):,} samples of {values.shape[1]} signals, but its header states "
            f"{expected or 0:,} of {len(stored.per_frame)}: the file is incomplete"
        )
    # soundfile fills the 32 bits of a number from above.
    numbers = values[:expected].astype(np.int64) >> (32 - bits)
    return list(numbers.T)


def _padded(content: Bytes, size: int) -> Bytes:
    """The bytes as rows of `size`; the last row may be incomplete in the file."""
    padded = np.zeros(-(-len(content) // size) * size, dtype=np.uint8)
    padded[: len(content)] = content
    return padded.reshape(-1, size)


def _plain(kind: str, zero: int = 0) -> Callable[[Bytes, int], Numbers]:
    """A function that reads whole bytes as numbers of this type, less `zero`."""
    size = np.dtype(kind).itemsize

    def unpack(content: Bytes, total: int) -> Numbers:
        return content[: total * size].view(kind).astype(np.int64) - zero

    return unpack


def _of_24_bits(content: Bytes, total: int) -> Numbers:
    low, middle, high = content[: 3 * total].reshape(-1, 3).astype(np.int64).T
    return _signed(low | middle << 8 | high << 16, 24)


def _of_12_bits(content: Bytes, total: int) -> Numbers:
    """Pairs in three bytes: low byte, both high nibbles (the first's lower), low byte."""
    first, halves, second = _padded(content, 3).astype(np.int64).T
    pairs = np.stack(
        [first | (halves & 0x0F) << 8, second | (halves & 0xF0) << 4], axis=1
    )
    return _signed(pairs.reshape(-1)[:total], 12)


def _of_10_bits(content: Bytes, total: int) -> Numbers:
    """Format 310: three in two words; bits 1 to 10 of each word, and the high five of both, those of the first lower."""
    first, second = _padded(content, 4).view("<u2").astype(np.int64).T
    third = first >> 11 | second >> 11 << 5
    triples = np.stack([first >> 1 & 0x3FF, second >> 1 & 0x3FF, third], axis=1)
    return _signed(triples.reshape(-1)[:total], 10)


def _of_10_bits_in_turn(content: Bytes, total: int) -> Numbers:
    """Format 311: three in the low 30 bits of 32, one after another."""
    words = _padded(content, 4).view("<u4").astype(np.int64)[:, 0]
    triples = np.stack(
        [words & 0x3FF, words >> 10 & 0x3FF, words >> 20 & 0x3FF], axis=1
    )
    return _signed(triples.reshape(-1)[:total], 10)


def _signed(numbers: Numbers, bits: int) -> Numbers:
    """Numbers of two's complement."""
    return np.where(numbers >> (bits - 1) > 0, numbers - (1 << bits), numbers)


SIZES: Final[Mapping[int, tuple[int, int]]] = {
    8: (1, 1),
    16: (2, 1),
    24: (3, 1),
    32: (4, 1),
    61: (2, 1),
    80: (1, 1),
    160: (2, 1),
    212: (3, 2),
    310: (4, 3),
    311: (4, 3),
}
"""Bytes, and the number of samples that they contain."""
UNPACK: Final[Mapping[int, Callable[[Bytes, int], Numbers]]] = {
    8: _plain("i1"),
    16: _plain("<i2"),
    24: _of_24_bits,
    32: _plain("<i4"),
    61: _plain(">i2"),
    80: _plain("u1", 128),
    160: _plain("<u2", 32768),
    212: _of_12_bits,
    310: _of_10_bits,
    311: _of_10_bits_in_turn,
}
