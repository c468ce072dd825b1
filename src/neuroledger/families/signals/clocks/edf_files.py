"""Headers of EDF and BDF files, and the times at which their records begin, which MNE does not use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.timelines import Part, Timeline

__all__ = ["EdfHeader", "edf_timeline", "read_edf_header"]

ANNOTATIONS: Final = frozenset({"EDF Annotations", "BDF Annotations"})
STAMP: Final = re.compile(rb"([+-]\d+(?:\.\d*)?)(?:\x15[\d.]*)?\x14")
MOST_OFF: Final = 0.01
"""Largest deviation (s) of a record from an even clock; a larger one is a gap. Time stamps may be rounded."""
FIELDS: Final = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
"""Widths of the fields of a signal in the header; the ninth is the number of samples in a record."""


class EdfHeader(NamedTuple):
    """What a header of EDF or BDF states about time: labels and samples per record of each signal, and the records.

    ``kind`` is "EDF+D", "BDF+C" or the like, empty without the extension. ``records`` are counted from the size of the file
    if the header does not state them; ``seconds`` is the duration of a record, ``start`` the byte at which they begin.
    """

    kind: str
    labels: tuple[str, ...]
    samples: tuple[int, ...]
    records: int
    seconds: float
    start: int
    width: int

    @property
    def rates(self) -> tuple[float, ...]:
        """Samples per second of each signal; 0 if the header states no duration of records."""
        return tuple(
            count / self.seconds if self.seconds > 0 else 0.0 for count in self.samples
        )

    @property
    def channels(self) -> tuple[int, ...]:
        """Numbers of the signals that are not annotations."""
        return tuple(
            number
            for number, label in enumerate(self.labels)
            if label not in ANNOTATIONS
        )


def read_edf_header(path: Path) -> EdfHeader | None:
    """The header of an EDF or BDF file; None if it is none, which MNE reports."""
    with path.open("rb") as file:
        head = file.read(256)
        try:
            count = int(head[252:256])
            start = int(head[184:192])
            records = int(head[236:244])
            seconds = float(head[244:252])
            body = file.read(sum(FIELDS) * count)
            labels = [
                body[16 * n : 16 * (n + 1)].decode("latin-1").strip()
                for n in range(count)
            ]
            at = sum(FIELDS[:8]) * count
            samples = tuple(
                int(body[at + 8 * n : at + 8 * (n + 1)]) for n in range(count)
            )
        except ValueError:
            return None
    if head[:1] == b"\xff":
        width = 3
    else:
        width = 2
    size = width * sum(samples)
    whole = (path.stat().st_size - start) // size if size else 0
    return EdfHeader(
        kind=head[192:197].decode("latin-1").strip(),
        labels=tuple(labels),
        samples=samples,
        records=whole if records < 0 else min(records, whole),
        seconds=seconds,
        start=start,
        width=width,
    )


def edf_timeline(path: Path, header: EdfHeader, rate: float) -> Timeline | None:
    """The timeline of a recording by the time stamps of its records; None if it has none.

    Parameters
    ----------
    rate
        Samples per second of the channels as they are read, by which parts are numbered.

    Raises
    ------
    DataError
        A record begins before the end of the previous one.
    """
    numbers = [
        number for number, label in enumerate(header.labels) if label in ANNOTATIONS
    ]
    if not numbers or header.seconds <= 0 or header.kind[3:4] != "+":
        return None
    stamps = _stamps(path, header, numbers[0])
    if stamps is None or not len(stamps):
        return None
    per_record = header.seconds * rate
    begins = stamps - stamps[0]
    # A clock that runs evenly from the record that begins a part.
    parts: list[Part] = []
    first = 0
    for number in range(1, len(begins) + 1):
        even = begins[first] + (number - first) * header.seconds
        if number < len(begins) and abs(begins[number] - even) <= MOST_OFF:
            continue
        if number < len(begins) and begins[number] < even:
            raise DataError(
                f"{path.name}: record {number + 1} begins at {begins[number]:g} s, before the previous one ends at "
                f"{even:g} s: its clock was set back; store the parts as separate files"
            )
        sample = round(first * per_record)
        parts.append(
            Part(float(begins[first]), sample, round(number * per_record) - sample)
        )
        first = number
    return Timeline(rate, tuple(parts))


def _stamps(
    path: Path, header: EdfHeader, number: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Times (s) at which the records begin, by the first annotation signal; None if a record states none."""
    size = header.width * sum(header.samples)
    before = header.start + header.width * sum(header.samples[:number])
    length = header.width * header.samples[number]
    times = np.empty(header.records)
    with path.open("rb") as file:
        for record in range(header.records):
            file.seek(before + record * size)
            match = STAMP.match(file.read(length))
            if match is None:
                return None
            times[record] = float(match[1])
    return times
