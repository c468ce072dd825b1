"""PhysioNet's format: headers, signals and annotations, of heartbeats and of nights of sleep."""

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


# Annotation codes and the mnemonics that people know them by.
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
    """One line of a header: where a lead is stored, and how a stored number becomes one in `units`.

    `offset` is the byte on which the leads of the file begin.
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
    """A record: samples per second, their number, and its leads."""

    rate: float
    samples: int
    leads: tuple[Lead, ...]


class Annotations(NamedTuple):
    """What was noted, in time, each ``(annotation,)``: sample numbers, mnemonics, channels, and texts ("" where none).

    ``rate``: samples per second, where the file says so.
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
        It is no header, or says something that is not read here; the line is quoted.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is no header of a record ({error}); fetch it again") from error
    said = [line for line in lines if line and not line.startswith("#")]
    first = said[0].split() if said else []
    try:
        if "/" in first[0]:
            raise DataError(f"{path.name} is a record of several segments, which are not read here")
        count, rate, samples = int(first[1]), float(first[2].split("/")[0].split("(")[0]), int(first[3])
        leads = tuple(_lead(line) for line in said[1 : 1 + count])
    except (IndexError, ValueError) as error:
        raise DataError(
            f"{path.name} is no header of a record with its number of leads, rate and samples: {' '.join(first)[:60]!r}"
        ) from error
    if len(leads) != count or not count or rate <= 0 or samples <= 0:
        raise DataError(
            f"{path.name} promises {count} leads of {samples} samples at {rate} Hz and describes {len(leads)} leads"
        )
    return Header(rate, samples, leads)


def _lead(line: str) -> Lead:
    # File, format, gain; resolution, zero, first value, checksum, block size, name.
    parts = line.split(maxsplit=8)
    stored = STORED.fullmatch(parts[1])
    if stored is None:
        raise DataError(f"signals of format {parts[1]!r} are not read here, only plain 212 and 16: {line!r}")
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
    """One lead in its units, ``(sample,)``; NaN where the recording says that it has no value.

    Raises
    ------
    DataError
        The leads do not lie in one file of format 212 or 16, the file has another size, or the header's checksum differs.
    """
    return _scaled(_stored(path, header), path, header, number)


def read_leads(path: Path, header: Header) -> npt.NDArray[np.float64]:
    """All leads, ``(lead, sample)``, in volts where their units are some, else in their units; NaN as for one.

    Raises
    ------
    DataError
        As for one lead.
    """
    numbers = _stored(path, header)
    values = np.empty((len(header.leads), header.samples))
    for number, lead in enumerate(header.leads):
        values[number] = _scaled(numbers, path, header, number)
        values[number] *= VOLTS.get(lead.units, 1.0)
    return values


def _stored(path: Path, header: Header) -> npt.NDArray[np.int16]:
    """The numbers of all leads, one sample of each after the other."""
    kinds = {(one.file, one.format, one.offset) for one in header.leads}
    ((_, format, offset), *others) = kinds
    if others:
        stored = ", ".join(f"{one.file} in format {one.format}" for one in header.leads)
        raise DataError(f"{path.name}: leads are read from one file in one format, not from {stored}")
    total = header.samples * len(header.leads)
    expected = -(-total * 3 // 2) if format == 212 else 2 * total
    try:
        content = np.fromfile(path, dtype=np.uint8, offset=offset)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} cannot be read ({error}); fetch it again") from error
    if len(content) < expected:
        raise DataError(
            f"{path.name} holds {len(content):,} bytes, {expected:,} are promised by its header; fetch it again"
        )
    return _twelve_bits(content[:expected], total) if format == 212 else content[:expected].view("<i2")


def _scaled(
    numbers: npt.NDArray[np.int16], path: Path, header: Header, number: int
) -> npt.NDArray[np.float64]:
    lead = header.leads[number]
    values = numbers[number :: len(header.leads)].astype(np.int64)
    if lead.checksum is not None and (int(values.sum()) - lead.checksum) % 65536:
        raise DataError(
            f"{path.name}: lead {lead.name or number} is not what its header's checksum says; fetch it again"
        )
    missing = -2048 if lead.format == 212 else -32768
    return np.where(values == missing, np.nan, (values - lead.baseline) / lead.gain)


def _twelve_bits(content: npt.NDArray[np.uint8], total: int) -> npt.NDArray[np.int16]:
    """Pairs of signed 12-bit numbers in three bytes: low byte, both high halves (the first's below), low byte."""
    padded = np.zeros(-(-len(content) // 3) * 3, dtype=np.uint8)
    padded[: len(content)] = content
    first, halves, second = padded.reshape(-1, 3).astype(np.int16).T
    pairs = np.stack([first | ((halves & 0x0F) << 8), second | ((halves & 0xF0) << 4)], axis=1)
    numbers = pairs.reshape(-1)[:total]
    return np.where(numbers > 2047, numbers - 4096, numbers).astype(np.int16)


def read_annotations(path: Path) -> Annotations:
    """Annotations in PhysioNet's own format: words of a code in 6 bits and a time since the last in 10.

    Channel and text of an annotation follow it; a channel holds until another is said. A note at sample 0 that states the
    time resolution says how samples are counted and is no annotation.

    Raises
    ------
    DataError
        The file ends before its mark of the end, or contains an unknown code.
    """
    content = path.read_bytes()
    words = np.frombuffer(content[: len(content) // 2 * 2], dtype="<u2").tolist()
    noted: list[_Note] = []
    time = place = channel = 0
    rate = None
    while True:
        if place >= len(words):
            raise DataError(f"{path.name} ends before its mark of the end; fetch it again")
        code, interval = words[place] >> 10, words[place] & 0x3FF
        place += 1
        if code == 0 and interval == 0:
            break
        if code == SKIP:
            if place + 1 >= len(words):
                raise DataError(f"{path.name} ends within an annotation; fetch it again")
            far = (words[place] << 16) | words[place + 1]
            time += far - (1 << 32) if far >> 31 else far
            place += 2
        elif code in (AUX, CHN) and not noted:
            raise DataError(f"{path.name} begins with a text or channel of no annotation; fetch it again")
        elif code == AUX:
            text = content[2 * place : 2 * place + interval].rstrip(b"\0").decode("ascii", "replace")
            place += (interval + 1) // 2
            stated = RESOLUTION.match(text)
            if stated and [note.sample for note in noted] == [0]:
                rate = float(stated[1])
                noted.clear()
            else:
                noted[-1] = noted[-1]._replace(text=text)
        elif code == CHN:
            channel = interval
            noted[-1] = noted[-1]._replace(channel=channel)
        elif code not in (NUM, SUB):
            if code not in SYMBOLS:
                raise DataError(
                    f"{path.name} has the unknown annotation code {code}: is it an annotation file?"
                )
            time += interval
            noted.append(_Note(time, SYMBOLS[code], channel, ""))
    return Annotations(
        samples=np.array([note.sample for note in noted], dtype=np.int64),
        symbols=np.array([note.symbol for note in noted], dtype=str),
        channels=np.array([note.channel for note in noted], dtype=np.int64),
        texts=tuple(note.text for note in noted),
        rate=rate,
    )


class _Note(NamedTuple):
    sample: int
    symbol: str
    channel: int
    text: str


# The last stage has no next one to end it; an epoch of sleep is 30 s long.
EPOCH = 30.0


def read_night(path: Path) -> Any:
    """The recording as MNE's `RawArray`, in volts where its units say so; all channels are typed `eeg`.

    A sample that is marked as missing is NaN.

    Raises
    ------
    DataError
        The header or the signals are not as the format has them.
    """
    import mne

    header = read_header(path)
    beside = path.with_name(header.leads[0].file)
    values = read_leads(beside, header)
    names = [lead.name or f"lead{number}" for number, lead in enumerate(header.leads)]
    return mne.io.RawArray(values, mne.create_info(names, header.rate, "eeg"), verbose="ERROR")


def night_spans(path: Path, name: str, rate: float) -> list[tuple[float, float, str]]:
    """Annotations as (onset, duration, text): `(x` to `x)` is one, any other text lasts until the next of its channel.

    Onset and duration are in seconds; the file counts samples at `rate` a second.

    Raises
    ------
    DataError
        The file ends within an annotation, or a span ends that never began, or never ends.
    """
    marks: dict[int, list[tuple[float, str]]] = {}
    notes = read_annotations(path)
    for sample, channel, text in zip(notes.samples, notes.channels, notes.texts, strict=True):
        if text:
            marks.setdefault(int(channel), []).append((int(sample) / rate, text))
    spans: list[tuple[float, float, str]] = []
    for found in marks.values():
        open_at: dict[str, float] = {}
        states = [(at, text) for at, text in found if not text.startswith("(") and not text.endswith(")")]
        ends = [at for at, _ in states[1:]] + [states[-1][0] + EPOCH] if states else []
        spans += [(at, end - at, text) for (at, text), end in zip(states, ends, strict=True)]
        for at, text in found:
            if text.startswith("("):
                open_at[text[1:]] = at
            elif text.endswith(")"):
                if text[:-1] not in open_at:
                    raise DataError(f"{name}: {text[:-1]!r} ends at {at:g} s and never began")
                begun = open_at.pop(text[:-1])
                spans.append((begun, at - begun, text[:-1]))
        if open_at:
            lost, at = next(iter(open_at.items()))
            raise DataError(
                f"{name}: {lost!r} begins at {at:g} s and never ends; annotations of heartbeats and rhythms are read by the "
                "reader `wfdb_beats`"
            )
    return sorted(spans)
