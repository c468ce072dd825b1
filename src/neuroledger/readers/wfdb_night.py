"""A night of sleep in PhysioNet's format: signals beside their header, and stages and arousals as annotations.

https://physionet.org/physiotools/wag: header(5), signal(5), annot(5). Signals are read from one file in format 16, from the
byte on which the header says that they begin (24 in MATLAB's version 4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuroledger.errors import DataError
from neuroledger.readers.signal_spans import Span

__all__ = ["night_spans", "read_night"]

SKIP, NUM, SUB, CHN, AUX = 59, 60, 61, 62, 63
VOLTS = {"uV": 1e-6, "mV": 1e-3, "V": 1.0, "nV": 1e-9}
SIGNAL = re.compile(r"(\S+)\s+16(?:\+(\d+))?\s+([0-9.eE+-]+)(?:\(([0-9-]+)\))?(?:/(\S+))?\s+(.*)")
# The last stage has no next one to end it; an epoch of sleep is 30 s long.
EPOCH = 30.0


class _Signal(NamedTuple):
    file: str
    offset: int
    gain: float
    baseline: int
    units: str
    name: str


def read_night(header: Path) -> Any:
    """The recording as MNE's `RawArray`, in volts where its units say so; all channels are typed `eeg`.

    Raises
    ------
    DataError
        The header or the signals are not as the format has them.
    """
    import mne

    rate, count, signals = _header(header)
    path = header.with_name(signals[0].file)
    try:
        stored = np.fromfile(path, dtype="<i2", offset=signals[0].offset)
    except OSError as error:
        raise DataError(f"{header.name}: {path.name} beside it cannot be read ({error.strerror})") from error
    if len(stored) != count * len(signals):
        raise DataError(
            f"{path.name} holds {len(stored):,} numbers where {header.name} promises {count:,} of {len(signals)} signals"
        )
    values = stored.reshape(count, len(signals)).T.astype(float)
    for row, signal in zip(values, signals, strict=True):
        row -= signal.baseline
        row *= VOLTS.get(signal.units, 1.0) / signal.gain
    names = [signal.name for signal in signals]
    return mne.io.RawArray(values, mne.create_info(names, rate, "eeg"), verbose="ERROR")


def _header(path: Path) -> tuple[float, int, Sequence[_Signal]]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is no header of a record ({error})") from error
    said = [line for line in lines if line and not line.startswith("#")]
    try:
        first = said[0].split()
        count, rate, samples = int(first[1]), float(first[2].split("/")[0]), int(first[3])
        signals = [_signal(line) for line in said[1 : 1 + count]]
    except (IndexError, ValueError) as error:
        raise DataError(f"{path.name} is no header of a record with signals in format 16 ({error})") from None
    if len(signals) != count or not count or len({(one.file, one.offset) for one in signals}) != 1:
        raise DataError(f"{path.name} promises {count} signals in one file and describes {len(signals)}")
    return rate, samples, signals


def _signal(line: str) -> _Signal:
    match = SIGNAL.fullmatch(line)
    if match is None:
        raise ValueError(f"signal line {line!r}")
    file, offset, gain, baseline, units, rest = match.groups()
    # After the gain: resolution, zero, first value, checksum, block size, name.
    parts = rest.split(maxsplit=5)
    zero = int(parts[1]) if len(parts) > 1 else 0
    name = parts[5] if len(parts) > 5 else file
    return _Signal(
        file,
        int(offset or 0),
        float(gain) or 200.0,
        int(baseline) if baseline is not None else zero,
        units or "mV",
        name,
    )


def night_spans(path: Path, name: str, rate: float) -> list[Span]:
    """Texts of an annotation file as spans: `(x` to `x)` is one, any other text lasts until the next of its channel.

    Times are samples at `rate` a second.

    Raises
    ------
    DataError
        The file ends within an annotation, or a span ends that never began, or never ends.
    """
    marks: dict[int, list[tuple[float, str]]] = {}
    for sample, channel, text in _texts(path, name):
        marks.setdefault(channel, []).append((sample / rate, text))
    spans: list[Span] = []
    for found in marks.values():
        open_at: dict[str, float] = {}
        states = [(at, text) for at, text in found if not text.startswith("(") and not text.endswith(")")]
        ends = [at for at, _ in states[1:]] + [states[-1][0] + EPOCH] if states else []
        spans += [Span(at, end - at, text) for (at, text), end in zip(states, ends, strict=True)]
        for at, text in found:
            if text.startswith("("):
                open_at[text[1:]] = at
            elif text.endswith(")"):
                if text[:-1] not in open_at:
                    raise DataError(f"{name}: {text[:-1]!r} ends at {at:g} s and never began")
                begun = open_at.pop(text[:-1])
                spans.append(Span(begun, at - begun, text[:-1]))
        if open_at:
            lost, at = next(iter(open_at.items()))
            raise DataError(f"{name}: {lost!r} begins at {at:g} s and never ends")
    return sorted(spans)


def _texts(path: Path, name: str) -> list[tuple[int, int, str]]:
    """Sample, channel and text of every annotation that has a text."""
    content = path.read_bytes()
    words = np.frombuffer(content[: len(content) // 2 * 2], dtype="<u2").tolist()
    found: list[tuple[int, int, str]] = []
    texts: list[str] = []
    time = place = channel = 0
    while True:
        if place >= len(words):
            raise DataError(f"{name} ends before its mark of the end; fetch it again")
        code, interval = words[place] >> 10, words[place] & 0x3FF
        place += 1
        if code == SKIP:
            far = (words[place] << 16) | words[place + 1] if place + 1 < len(words) else 0
            found += [(time, channel, text) for text in texts]
            texts = []
            time += far - (1 << 32) if far >> 31 else far
            place += 2
        elif code == CHN:
            channel = interval
        elif code == AUX:
            texts.append(content[2 * place : 2 * place + interval].rstrip(b"\0").decode("ascii", "replace"))
            place += (interval + 1) // 2
        elif code not in (NUM, SUB):
            # Text and channel follow the annotation that they belong to, which the next one ends.
            found += [(time, channel, text) for text in texts]
            if code == 0 and interval == 0:
                return found
            texts = []
            time += interval
