"""PhysioNet's WFDB format: headers, signals and annotations of heartbeats and of sleep recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.errors import DataError

__all__ = [
    "Annotations",
    "Header",
    "Lead",
    "night_spans",
    "read_annotations",
    "read_header",
    "read_lead",
    "read_leads",
    "read_night",
]


# Annotation codes and their mnemonics.
SYMBOLS = {
    1: "N", 2: "L", 3: "R", 4: "a", 5: "V", 6: "F", 7: "J", 8: "A", 9: "S", 10: "E", 11: "j", 12: "/", 13: "Q", 14: "~",
    16: "|", 18: "s", 19: "T", 20: "*", 21: "D", 22: '"', 23: "=", 24: "p", 25: "B", 26: "^", 27: "t", 28: "+", 29: "u",
    30: "?", 31: "!", 32: "[", 33: "]", 34: "e", 35: "n", 36: "@", 37: "x", 38: "f", 39: "(", 40: ")", 41: "r",
}  # fmt: skip
SKIP, NUM, SUB, CHN, AUX = 59, 60, 61, 62, 63
RESOLUTION = re.compile(r"## time resolution: ([0-9.]+)")
STORED = re.compile(r"(212|16)(?:\+(\d+))?")
SCALED = re.compile(r"([0-9.eE+-]+)(?:\((-?\d+)\))?(?:/(\S+))?")
VOLTS = {"nV": 1e-9, "uV": 1e-6, "mV": 1e-3, "V": 1.0}


class Lead(NamedTuple):
    """One line of a header: the file of a lead, and how to convert stored numbers to `units`.

    `offset` is the byte at which the samples in the file begin.
    """

    file: str
    format: int
    offset: int
    gain: float
    baseline: int
    units: str
    checksum: int | None
    name: str


class Header(NamedTuple):
    """A record: its sampling rate (Hz), number of samples, and leads."""

    rate: float
    samples: int
    leads: tuple[Lead, ...]


class Annotations(NamedTuple):
    """Annotations in order of time, each ``(annotation,)``: sample numbers, mnemonics, channels, and texts ("" for none).

    ``rate``: samples per second, None if the file does not state it.
    """

    samples: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.str_]
    channels: npt.NDArray[np.int64]
    texts: tuple[str, ...]
    rate: float | None


def read_header(path: Path) -> Header:
    """The header of a record in one segment.

    Raises
    ------
    DataError
        The file is not a header, or uses an unsupported feature; the message quotes the line.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is not a WFDB header ({error}); fetch it again") from error
    lines = [line for line in lines if line and not line.startswith("#")]
    first = lines[0].split() if lines else []
    try:
        if "/" in first[0]:
            raise DataError(f"{path.name} is a record of several segments, which are not supported")
        count, rate, samples = int(first[1]), float(first[2].split("/")[0].split("(")[0]), int(first[3])
        leads = tuple(_lead(line) for line in lines[1 : 1 + count])
    except (IndexError, ValueError) as error:
        raise DataError(
            f"{path.name} is not a WFDB header with number of leads, rate and samples: {' '.join(first)[:60]!r}"
        ) from error
    if len(leads) != count or not count or rate <= 0 or samples <= 0:
        raise DataError(
            f"{path.name} states {count} leads of {samples} samples at {rate} Hz, but describes {len(leads)} leads"
        )
    return Header(rate, samples, leads)


def _lead(line: str) -> Lead:
    # File, format, gain; resolution, zero, first value, checksum, block size, name.
    parts = line.split(maxsplit=8)
    stored = STORED.fullmatch(parts[1])
    if stored is None:
        raise DataError(f"signals of format {parts[1]!r} are not supported, only plain 212 and 16: {line!r}")
    scaled = SCALED.fullmatch(parts[2] if len(parts) > 2 else "200")
    if scaled is None:
        raise ValueError(f"gain {parts[2]!r}")
    zero = int(parts[4]) if len(parts) > 4 else 0
    return Lead(
        file=parts[0],
        format=int(stored[1]),
        offset=int(stored[2] or 0),
        gain=float(scaled[1]) or 200.0,
        baseline=int(scaled[2]) if scaled[2] else zero,
        units=scaled[3] or "mV",
        checksum=int(parts[6]) if len(parts) > 6 else None,
        name=parts[8] if len(parts) > 8 else "",
    )


def read_lead(path: Path, header: Header, number: int) -> npt.NDArray[np.float64]:
    """One lead in its units, ``(sample,)``; NaN for samples marked as missing.

    Raises
    ------
    DataError
        The leads are not in one file of format 212 or 16, the file is too short, or the header's checksum differs.
    """
    return _in_units(_read_numbers(path, header), path, header, number)


def read_leads(path: Path, header: Header) -> npt.NDArray[np.float64]:
    """All leads, ``(lead, sample)``, in volts if their units are voltages, else in their units; NaN for missing samples.

    Raises
    ------
    DataError
        As for `read_lead`.
    """
    numbers = _read_numbers(path, header)
    values = np.empty((len(header.leads), header.samples))
    for number, lead in enumerate(header.leads):
        values[number] = _in_units(numbers, path, header, number)
        values[number] *= VOLTS.get(lead.units, 1.0)
    return values


def _read_numbers(path: Path, header: Header) -> npt.NDArray[np.int16]:
    """The stored numbers of all leads, interleaved by sample."""
    ((_, format, offset), *others) = {(lead.file, lead.format, lead.offset) for lead in header.leads}
    if others:
        stored = ", ".join(f"{lead.file} in format {lead.format}" for lead in header.leads)
        raise DataError(f"{path.name}: all leads must be in one file of one format, not in {stored}")
    total = header.samples * len(header.leads)
    expected = -(-total * 3 // 2) if format == 212 else 2 * total
    try:
        content = np.fromfile(path, dtype=np.uint8, offset=offset)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} cannot be read ({error}); fetch it again") from error
    if len(content) < expected:
        raise DataError(
            f"{path.name} contains {len(content):,} bytes, but its header states {expected:,}; fetch it again"
        )
    return _twelve_bits(content[:expected], total) if format == 212 else content[:expected].view("<i2")


def _in_units(
    numbers: npt.NDArray[np.int16], path: Path, header: Header, number: int
) -> npt.NDArray[np.float64]:
    lead = header.leads[number]
    values = numbers[number :: len(header.leads)].astype(np.int64)
    if lead.checksum is not None and (int(values.sum()) - lead.checksum) % 65536:
        raise DataError(
            f"{path.name}: lead {lead.name or number} does not match the checksum in its header; fetch it again"
        )
    missing = -2048 if lead.format == 212 else -32768
    return np.where(values == missing, np.nan, (values - lead.baseline) / lead.gain)


def _twelve_bits(content: npt.NDArray[np.uint8], total: int) -> npt.NDArray[np.int16]:
    """Unpack pairs of signed 12-bit numbers in three bytes: low byte, both high nibbles (the first's lower), low byte."""
    padded = np.zeros(-(-len(content) // 3) * 3, dtype=np.uint8)
    padded[: len(content)] = content
    first, halves, second = padded.reshape(-1, 3).astype(np.int16).T
    pairs = np.stack([first | ((halves & 0x0F) << 8), second | ((halves & 0xF0) << 4)], axis=1)
    numbers = pairs.reshape(-1)[:total]
    return np.where(numbers > 2047, numbers - 4096, numbers).astype(np.int16)


def read_annotations(path: Path) -> Annotations:
    """Read annotations in PhysioNet's format: words of a 6-bit code and a 10-bit interval since the previous one.

    Channel and text of an annotation follow it; a channel is valid until the next one. A note at sample 0 may state the
    time resolution, by which samples are counted; it is not an annotation.

    Raises
    ------
    DataError
        The file ends before its end mark, or contains an unknown code.
    """
    content = path.read_bytes()
    words = np.frombuffer(content[: len(content) // 2 * 2], dtype="<u2").tolist()
    notes: list[_Note] = []
    time = position = channel = 0
    rate = None
    while True:
        if position >= len(words):
            raise DataError(f"{path.name} ends before its end mark; fetch it again")
        code, interval = words[position] >> 10, words[position] & 0x3FF
        position += 1
        if code == 0 and interval == 0:
            break
        if code == SKIP:
            if position + 1 >= len(words):
                raise DataError(f"{path.name} ends within an annotation; fetch it again")
            interval32 = (words[position] << 16) | words[position + 1]
            time += interval32 - (1 << 32) if interval32 >> 31 else interval32
            position += 2
        elif code in (AUX, CHN) and not notes:
            raise DataError(
                f"{path.name} begins with a text or channel without an annotation; fetch it again"
            )
        elif code == AUX:
            text = content[2 * position : 2 * position + interval].rstrip(b"\0").decode("ascii", "replace")
            position += (interval + 1) // 2
            resolution = RESOLUTION.match(text)
            if resolution and [note.sample for note in notes] == [0]:
                rate = float(resolution[1])
                notes.clear()
            else:
                notes[-1] = notes[-1]._replace(text=text)
        elif code == CHN:
            channel = interval
            notes[-1] = notes[-1]._replace(channel=channel)
        elif code not in (NUM, SUB):
            if code not in SYMBOLS:
                raise DataError(
                    f"{path.name} has the unknown annotation code {code}: check that it is an annotation file"
                )
            time += interval
            notes.append(_Note(time, SYMBOLS[code], channel, ""))
    return Annotations(
        samples=np.array([note.sample for note in notes], dtype=np.int64),
        symbols=np.array([note.symbol for note in notes], dtype=str),
        channels=np.array([note.channel for note in notes], dtype=np.int64),
        texts=tuple(note.text for note in notes),
        rate=rate,
    )


class _Note(NamedTuple):
    sample: int
    symbol: str
    channel: int
    text: str


# Duration (s) of the last sleep stage, which no next stage ends.
EPOCH = 30.0


def read_night(path: Path) -> Any:
    """The recording as MNE's `RawArray`, in volts if its units are voltages; all channels have type `eeg`.

    Samples marked as missing are NaN.

    Raises
    ------
    DataError
        The header or the signals do not follow the format.
    """
    import mne

    header = read_header(path)
    values = read_leads(path.with_name(header.leads[0].file), header)
    names = [lead.name or f"lead{number}" for number, lead in enumerate(header.leads)]
    return mne.io.RawArray(values, mne.create_info(names, header.rate, "eeg"), verbose="ERROR")


def night_spans(path: Path, name: str, rate: float) -> list[tuple[float, float, str]]:
    """Annotations as (onset, duration, text): `(x` to `x)` is one, other texts last until the next one of their channel.

    Onset and duration are in seconds; `rate` is the file's sampling rate in Hz.

    Raises
    ------
    DataError
        The file ends within an annotation, or a span has no beginning or no end.
    """
    marks: dict[int, list[tuple[float, str]]] = {}
    notes = read_annotations(path)
    for sample, channel, text in zip(notes.samples, notes.channels, notes.texts, strict=True):
        if text:
            marks.setdefault(int(channel), []).append((int(sample) / rate, text))
    spans: list[tuple[float, float, str]] = []
    for marks_of_channel in marks.values():
        open_at: dict[str, float] = {}
        states = [
            (at, text) for at, text in marks_of_channel if not text.startswith("(") and not text.endswith(")")
        ]
        ends = [at for at, _ in states[1:]] + [states[-1][0] + EPOCH] if states else []
        spans += [(at, end - at, text) for (at, text), end in zip(states, ends, strict=True)]
        for at, text in marks_of_channel:
            if text.startswith("("):
                open_at[text[1:]] = at
            elif text.endswith(")"):
                if text[:-1] not in open_at:
                    raise DataError(f"{name}: {text[:-1]!r} ends at {at:g} s without a beginning")
                onset = open_at.pop(text[:-1])
                spans.append((onset, at - onset, text[:-1]))
        if open_at:
            unclosed, at = next(iter(open_at.items()))
            raise DataError(
                f"{name}: {unclosed!r} begins at {at:g} s without an end; use the reader `wfdb_beats` for annotations "
                "of heartbeats and rhythms"
            )
    return sorted(spans)
