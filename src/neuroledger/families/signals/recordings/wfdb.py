"""PhysioNet's WFDB format: headers, signals and annotations of heartbeats and of sleep recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats, Integers, Strings, floats
from neuroledger.data.facts import Origin
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.channel_rates import note_remark
from neuroledger.families.signals.clocks.timelines import (
    Part,
    Timeline,
    note_rate,
    note_timeline,
)
from neuroledger.families.signals.recordings.beyond_ends import note_markers
from neuroledger.families.signals.recordings.wfdb_signals import (
    FORMATS,
    MISSING,
    Stored,
    stored_numbers,
)

if TYPE_CHECKING:
    from mne.io import BaseRaw, RawArray

__all__ = [
    "Annotations",
    "Header",
    "Lead",
    "files_of",
    "night_spans",
    "read_annotations",
    "read_header",
    "read_lead",
    "read_leads",
    "read_night",
]


# Annotation codes and their mnemonics.
SYMBOLS = {
    1: "N",
    2: "L",
    3: "R",
    4: "a",
    5: "V",
    6: "F",
    7: "J",
    8: "A",
    9: "S",
    10: "E",
    11: "j",
    12: "/",
    13: "Q",
    14: "~",
    16: "|",
    18: "s",
    19: "T",
    20: "*",
    21: "D",
    22: '"',
    23: "=",
    24: "p",
    25: "B",
    26: "^",
    27: "t",
    28: "+",
    29: "u",
    30: "?",
    31: "!",
    32: "[",
    33: "]",
    34: "e",
    35: "n",
    36: "@",
    37: "x",
    38: "f",
    39: "(",
    40: ")",
    41: "r",
}
DEFAULT_RATE: Final = 250.0
SKIP = 59
NUM = 60
SUB = 61
CHN = 62
AUX = 63
RESOLUTION = re.compile(r"## time resolution: ([0-9.]+)")
STORED = re.compile(r"(\d+)(?:x(\d+))?(?::(\d+))?(?:\+(\d+))?")
SCALED = re.compile(r"([0-9.eE+-]+)(?:\((-?\d+)\))?(?:/(\S+))?")
NOTE, RHYTHM, GAP = '"', "+", "~"
VOLTS = {"nV": 1e-9, "uV": 1e-6, "mV": 1e-3, "V": 1.0}


class Lead(NamedTuple):
    """One line of a header: the file of a lead, and how to convert stored numbers to `units`.

    `offset` is the byte at which the samples in the file begin, `per_frame` the number of samples in each frame, `skew` the
    number of frames by which the lead is stored too late, and `initial` its first number.
    """

    file: str
    format: int
    offset: int
    gain: float
    baseline: int
    units: str
    checksum: int | None
    name: str
    per_frame: int = 1
    skew: int = 0
    initial: int = 0


class Header(NamedTuple):
    """A record: its sampling rate (frames per second, Hz), number of frames, leads, and segments.

    A header that states no rate has the default of the format, 250 Hz, and `origin` is "assumed". `segments` are names and
    lengths in frames; a record without them is in one segment. "~" is a gap.
    """

    rate: float
    samples: int
    leads: tuple[Lead, ...]
    segments: tuple[tuple[str, int], ...] = ()
    origin: Origin = "stated"


class Annotations(NamedTuple):
    """Annotations in order of time, each ``(annotation,)``: sample numbers, mnemonics, channels, and texts ("" for none).

    ``rate``: samples per second, None if the file does not state it.
    """

    samples: Integers
    symbols: Strings
    channels: Integers
    texts: tuple[str, ...]
    rate: float | None


def read_header(path: Path) -> Header:
    """The header of a record; of one in several segments, their names and lengths.

    Raises
    ------
    DataError
        The file is not a header, or uses an unsupported feature; the message quotes the line.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path.name} is not a WFDB header ({error}): check that it is a text"
        ) from error
    lines = [line for line in lines if line and not line.startswith("#")]
    first = lines[0].split() if lines else []
    try:
        count = int(first[1])
        origin: Origin = "stated" if len(first) > 2 else "assumed"
        rate = (
            float(first[2].split("/")[0].split("(")[0])
            if len(first) > 2
            else DEFAULT_RATE
        )
        if len(first) > 3:
            samples = int(first[3])
        else:
            samples = 0
        if "/" in first[0]:
            return _of_segments(path, lines, rate, samples)._replace(origin=origin)
        leads = tuple(_lead(line) for line in lines[1 : 1 + count])
    except (IndexError, ValueError) as error:
        raise DataError(
            f"{path.name} is not a WFDB header with number of leads, rate and samples: {' '.join(first)[:60]!r}"
        ) from error
    if len(leads) != count or not count or rate <= 0 or samples < 0:
        raise DataError(
            f"{path.name} states {count} leads of {samples} samples at {rate} Hz, but describes {len(leads)} leads"
        )
    if not samples:
        samples = _counted(path, leads)
    return Header(rate, samples, leads, origin=origin)


def _of_segments(path: Path, lines: list[str], rate: float, samples: int) -> Header:
    """The header of a record in several segments, with the leads of the first that has any."""
    count = int(lines[0].split()[0].split("/")[1])
    listed = [line.split() for line in lines[1 : 1 + count]]
    segments = tuple((parts[0], int(parts[1])) for parts in listed)
    total = sum(length for _, length in segments)
    if len(segments) != count or rate <= 0 or (samples and samples != total):
        raise DataError(
            f"{path.name} states {count} segments of {samples} samples, but lists {len(segments)} of {total}"
        )
    named = [name for name, _ in segments if name != GAP]
    if not named or any(Path(name).name != name for name in named):
        raise DataError(
            f"{path.name}: its segments must be records of the same folder, not {', '.join(named)[:80]!r}"
        )
    return Header(
        rate, total, read_header(path.with_name(f"{named[0]}.hea")).leads, segments
    )


def _counted(path: Path, leads: tuple[Lead, ...]) -> int:
    """Number of frames in the file of the first lead, for a header that does not state it."""
    numbers = stored_numbers(
        path.with_name(leads[0].file), _stored_in(leads, leads[0].file), None
    )
    return len(numbers[0]) // leads[0].per_frame


def _lead(line: str) -> Lead:
    # File, format, gain; resolution, zero, first value, checksum, block size, name.
    parts = line.split(maxsplit=8)
    stored = STORED.fullmatch(parts[1])
    if stored is None or int(stored[1]) not in FORMATS:
        raise DataError(
            f"signals of format {parts[1]!r} are not supported, only {', '.join(map(str, FORMATS))}; convert the record by "
            f"`wfdb.wrsamp`, or to EDF: {line!r}"
        )
    scaled = SCALED.fullmatch(parts[2] if len(parts) > 2 else "200")
    if scaled is None:
        raise ValueError(f"gain {parts[2]!r}")
    if len(parts) > 4:
        zero = int(parts[4])
    else:
        zero = 0
    return Lead(
        file=parts[0],
        format=int(stored[1]),
        offset=int(stored[4] or 0),
        gain=float(scaled[1]) or 200.0,
        baseline=int(scaled[2]) if scaled[2] else zero,
        units=scaled[3] or "mV",
        checksum=int(parts[6]) if len(parts) > 6 else None,
        name=parts[8] if len(parts) > 8 else "",
        per_frame=int(stored[2] or 1),
        skew=int(stored[3] or 0),
        initial=int(parts[5]) if len(parts) > 5 else zero,
    )


def files_of(path: Path) -> list[str]:
    """Names of the files of a record beside its header: signals, segments with theirs, and the annotations `.atr`.

    Raises
    ------
    DataError
        As for `read_header`.
    """
    header = read_header(path)
    names = (
        list(dict.fromkeys(lead.file for lead in header.leads))
        if not header.segments
        else []
    )
    for name in dict.fromkeys(name for name, _ in header.segments if name != GAP):
        names += [f"{name}.hea", *files_of(path.with_name(f"{name}.hea"))]
    if path.with_suffix(".atr").is_file():
        names.append(path.with_suffix(".atr").name)
    return list(dict.fromkeys(name for name in names if name != GAP))


def read_lead(path: Path, header: Header, number: int) -> Floats:
    """One lead in its units, ``(sample,)``; NaN for samples marked as missing.

    Of several samples in a frame, the mean. `path` is the file of the lead.

    Raises
    ------
    DataError
        The file is too short, or the header's checksum differs.
    """
    return _file_leads(path, header)[number]


def _file_leads(path: Path, header: Header) -> dict[int, Floats]:
    """The leads of one file by their number, ``(frame,)``."""
    own = [number for number, lead in enumerate(header.leads) if lead.file == path.name]
    signals = stored_numbers(path, _stored_in(header.leads, path.name), header.samples)
    return {
        number: _in_units(numbers, path, header, number)
        for number, numbers in zip(own, signals, strict=True)
    }


def _in_units(numbers: Integers, path: Path, header: Header, number: int) -> Floats:
    """One lead in its units, ``(frame,)``."""
    lead = header.leads[number]
    if lead.checksum is not None and (int(numbers.sum()) - lead.checksum) % 65536:
        raise DataError(
            f"{path.name}: lead {lead.name or number} does not match the checksum in its header: the file is damaged"
        )
    values = np.where(
        numbers == MISSING.get(lead.format),
        np.nan,
        (numbers - lead.baseline) / lead.gain,
    )
    frames = values.reshape(header.samples, lead.per_frame).mean(axis=1)
    if lead.skew:
        frames = np.concatenate(
            [frames[lead.skew :], np.full(min(lead.skew, len(frames)), np.nan)]
        )
    return floats(frames)


def read_leads(path: Path, header: Header) -> Floats:
    """All leads, ``(lead, sample)``, in volts if their units are voltages, else in their units; NaN for missing samples.

    Parameters
    ----------
    path
        The header's file, beside those of the leads.

    Raises
    ------
    DataError
        As for `read_lead`.
    """
    values = np.full((len(header.leads), header.samples), np.nan)
    if not header.segments:
        for file in dict.fromkeys(lead.file for lead in header.leads):
            for number, signal in _file_leads(path.with_name(file), header).items():
                values[number] = signal * VOLTS.get(header.leads[number].units, 1.0)
        return values
    names = [lead.name for lead in header.leads]
    begin = 0
    for name, length in header.segments:
        if name != GAP and length:
            segment = read_header(path.with_name(f"{name}.hea"))
            part = read_leads(path.with_name(f"{name}.hea"), segment)
            for lead, row in zip(segment.leads, part, strict=True):
                # A layout lists all leads of a record whose segments may lack some.
                if lead.name not in names:
                    raise DataError(
                        f"{name}.hea has the lead {lead.name!r}, which {path.name} does not list"
                    )
                values[names.index(lead.name), begin : begin + length] = row[:length]
        begin += length
    return values


def _stored_in(leads: tuple[Lead, ...], file: str) -> Stored:
    """How the samples of a file are stored, by the lines of all its leads."""
    own = [lead for lead in leads if lead.file == file]
    kinds = {(lead.format, lead.offset) for lead in own}
    if len(kinds) > 1:
        formats = ", ".join(sorted({str(lead.format) for lead in own}))
        raise DataError(
            f"{file}: all leads of a file must have one format and beginning, not {formats}"
        )
    format, offset = kinds.pop()
    return Stored(
        format,
        offset,
        tuple(lead.per_frame for lead in own),
        tuple(lead.initial for lead in own),
    )


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
            raise DataError(
                f"{path.name} ends before its end mark: the file is incomplete or of another format"
            )
        code = words[position] >> 10
        interval = words[position] & 0x3FF
        position += 1
        if code == 0 and interval == 0:
            break
        if code == SKIP:
            if position + 1 >= len(words):
                raise DataError(
                    f"{path.name} ends within an annotation: the file is incomplete or of another format"
                )
            interval32 = (words[position] << 16) | words[position + 1]
            time += interval32 - (1 << 32) if interval32 >> 31 else interval32
            position += 2
        elif code in (AUX, CHN) and not notes:
            raise DataError(
                f"{path.name} begins with a text or channel without an annotation: it is of another format"
            )
        elif code == AUX:
            text = (
                content[2 * position : 2 * position + interval]
                .rstrip(b"\0")
                .decode("ascii", "replace")
            )
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


def read_night(path: Path) -> RawArray:
    """The recording as MNE's `RawArray`, in volts if its units are voltages; all channels have type `eeg`.

    Samples marked as missing are NaN.

    Raises
    ------
    DataError
        The header or the signals do not follow the format.
    """
    import mne

    header = read_header(path)
    values = read_leads(path, header)
    names = [lead.name or f"lead{number}" for number, lead in enumerate(header.leads)]
    raw = mne.io.RawArray(
        values, mne.create_info(names, header.rate, "eeg"), verbose="ERROR"
    )
    _annotate(raw, path)
    note_rate(raw, header.origin)
    parts: list[Part] = []
    begin = 0
    for name, length in header.segments:
        joined = bool(parts) and parts[-1].first + parts[-1].samples == begin
        if name != GAP and length and joined:
            parts[-1] = parts[-1]._replace(samples=parts[-1].samples + length)
        elif name != GAP and length:
            parts.append(Part(begin / header.rate, begin, length))
        begin += length
    if len(parts) > 1:
        note_timeline(raw, Timeline(header.rate, tuple(parts)))
    averaged = [
        name
        for name, lead in zip(names, header.leads, strict=True)
        if lead.per_frame > 1
    ]
    return note_remarks(raw, header, averaged)


def note_remarks(raw: BaseRaw, header: Header, averaged: list[str]) -> BaseRaw:
    """The recording, with a remark on leads of several samples per frame, which are averaged as by wfdb."""
    if averaged:
        listed = ", ".join(
            f"{name} {header.rate * lead.per_frame:g} Hz"
            for name, lead in zip(raw.ch_names, header.leads, strict=True)
            if lead.per_frame > 1
        )
        note_remark(
            raw,
            averaged,
            f"leads recorded at higher rates ({listed}) are averaged to {header.rate:g} Hz",
        )
    return raw


def _annotate(raw: BaseRaw, path: Path) -> None:
    """Set the annotations of the file `.atr` beside a header, if there is one."""
    import mne

    beside = path.with_suffix(".atr")
    if not beside.is_file():
        return
    spans = night_spans(beside, beside.name, float(raw.info["sfreq"]))
    inside = [span for span in spans if 0 <= span[0] <= raw.times[-1]]
    if inside:
        raw.set_annotations(mne.Annotations(*map(list, zip(*inside, strict=True))))
    note_markers(
        raw, [text for onset, _, text in spans if not 0 <= onset <= raw.times[-1]]
    )


def night_spans(path: Path, name: str, rate: float) -> list[tuple[float, float, str]]:
    """Annotations as (onset, duration, text).

    Of notes, `(x` to `x)` is one, and other texts last until the next one of their channel. A change of rhythm, `(AFIB`,
    lasts until the next one, the last of them until the last annotation. Beats and other marks have no duration; their text
    is their mnemonic, such as `N` and `V`.

    Onset and duration are in seconds; `rate` is the record's sampling rate in Hz.

    Raises
    ------
    DataError
        The file ends within an annotation, or a span has no beginning or no end.
    """
    notes = read_annotations(path)
    rate = notes.rate or rate
    marks: dict[int, list[tuple[float, str]]] = {}
    rhythms: list[tuple[float, str]] = []
    spans: list[tuple[float, float, str]] = []
    lasts = int(notes.samples.max(initial=0)) / rate
    for sample, symbol, channel, text in zip(
        notes.samples.tolist(),
        notes.symbols.tolist(),
        notes.channels.tolist(),
        notes.texts,
        strict=True,
    ):
        at = sample / rate
        if symbol == NOTE:
            of_channel = marks.setdefault(channel, [])
            if text:
                of_channel.append((at, text))
        elif symbol == RHYTHM and text:
            rhythms.append((at, text))
        else:
            spans.append((at, 0.0, symbol))
    changes = [at for at, _ in rhythms[1:]] + [lasts]
    spans += [
        (at, end - at, text) for (at, text), end in zip(rhythms, changes, strict=False)
    ]
    for marks_of_channel in marks.values():
        spans += _spans_of_notes(marks_of_channel, name)
    return sorted(spans)


def _spans_of_notes(
    marks: list[tuple[float, str]], name: str
) -> list[tuple[float, float, str]]:
    """The spans of one channel's notes, which begin and end a span or last until the next one."""
    open_at: dict[str, float] = {}
    states = [
        (at, text)
        for at, text in marks
        if not text.startswith("(") and not text.endswith(")")
    ]
    ends = [at for at, _ in states[1:]] + [states[-1][0] + EPOCH] if states else []
    spans = [(at, end - at, text) for (at, text), end in zip(states, ends, strict=True)]
    for at, text in marks:
        if text.startswith("("):
            open_at[text[1:]] = at
        elif text.endswith(")"):
            if text[:-1] not in open_at:
                raise DataError(
                    f"{name}: {text[:-1]!r} ends at {at:g} s without a beginning"
                )
            onset = open_at.pop(text[:-1])
            spans.append((onset, at - onset, text[:-1]))
    if open_at:
        unclosed, at = next(iter(open_at.items()))
        raise DataError(
            f"{name}: the note {unclosed!r} begins at {at:g} s without an end: correct the annotations"
        )
    return spans
