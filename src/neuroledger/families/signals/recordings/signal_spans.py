"""What happened during a recording, and in which file beside it that is written."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from neuroledger.data.file_names import PLACEHOLDER, Pattern, expression, tail
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.wfdb import night_spans
from neuroledger.spec.base import Frozen

__all__ = [
    "AnnotationFile",
    "Span",
    "all_spans",
    "fields_in",
    "annotated_spans",
    "own_spans",
    "stimulus_spans",
    "annotation_file_of",
    "read_annotation_file",
    "touching",
]

DAY = 86400.0


class Span(NamedTuple):
    """One annotation: seconds from the start of the recording, how many it lasts, and what it says."""

    onset: float
    duration: float
    description: str


class AnnotationFile(Frozen):
    """The file beside each recording that holds its annotations: how it is called, and how it is written.

    Attributes
    ----------
    recording, file
        Names of a recording and of its partner in the same folder. `{subject}` stands for any characters and has the same
        value in both, `{subject:2}` for just two; `?` is one character and `*` any number. What is called `subject`,
        `session` or `run` says whose the recording is, `name` nothing; any other placeholder is a fact. Folders in the
        name are held against the last folders of the recording.
    format
        `edf` for annotations of EDF+, `table` for text with one annotation in each line, `wfdb` for PhysioNet's own.
    columns
        Of a table: its columns `onset`, `description`, and `stop` or `duration`, by name, or by position from 0 where the
        table has no header. Lines that begin with # are remarks. Times are seconds.
    split
        What separates several descriptions of one annotation.
    ignore
        Descriptions that mean nothing here, `*` for any characters; one that is neither ignored nor given a meaning is
        refused.
    merge
        Annotations of one description that overlap or touch, on whatever channel, are one.
    aligned
        Whether times count from the `start` of the recording, or by the `clock`: then annotations are moved by the
        difference of the times of day at which two EDF files begin. Unsaid, such a difference is refused.
    beyond
        What happens where an annotation that means something reaches beyond the recording: `refuse` or `cut`.
    """

    recording: Pattern
    file: Pattern
    format: Literal["edf", "table", "wfdb"] = "edf"
    columns: dict[Literal["onset", "stop", "duration", "description"], str | int] = Field(
        default_factory=dict
    )
    split: str | None = Field(default=None, min_length=1)
    ignore: tuple[str, ...] = ()
    merge: bool = False
    aligned: Literal["start", "clock"] | None = None
    beyond: Literal["refuse", "cut"] = "refuse"

    @model_validator(mode="after")
    def _paired(self) -> AnnotationFile:
        known, used = (
            [name for name, _, _ in PLACEHOLDER.findall(pattern) if name]
            for pattern in (self.recording, self.file)
        )
        unknown = sorted(set(used) - set(known))
        if unknown:
            raise ValueError(f"{self.file!r} needs {{{unknown[0]}}}, which {self.recording!r} does not have")
        if not used:
            raise ValueError(
                f"{self.file!r} names no part of the recording's name: every recording would have it"
            )
        wanted = {"onset", "description"}
        if self.format == "table" and not (wanted <= set(self.columns) and len(self.columns) == 3):
            raise ValueError("a table needs `columns`: onset, description, and one of stop and duration")
        if self.format != "table" and self.columns:
            raise ValueError(f"`columns` are those of a table, not of {self.format}")
        if len({type(column) for column in self.columns.values()}) > 1:
            raise ValueError("`columns` are all names, or all positions where the table has no header")
        return self


def fields_in(rule: AnnotationFile, name: str) -> dict[str, str] | None:
    """What the name of a recording says, by placeholder; None for other names."""
    match = expression(rule.recording).fullmatch(tail(rule.recording, name)[1])
    if match is None or expression(rule.file).fullmatch(tail(rule.file, name)[1]):
        return None
    return match.groupdict()


def annotation_file_of(rule: AnnotationFile, name: str, names: Iterable[str]) -> str:
    """The one file that holds the annotations of recording `name`.

    Raises
    ------
    DataError
        The recording is not called as the rule says, there is no such file, or there are several.
    """
    known = fields_in(rule, name)
    if known is None:
        raise DataError(f"recording {name} is not called {rule.recording}, as `annotations` says")
    folder = tail(rule.recording, name)[0]
    fits = expression(rule.file, known=tuple(sorted(known.items())))
    found = [
        other
        for other in names
        if other != name and tail(rule.file, other)[0] == folder and fits.fullmatch(tail(rule.file, other)[1])
    ]
    wanted = "/".join(
        filter(None, [folder, PLACEHOLDER.sub(lambda m: known.get(m[1] or "", m[0]), rule.file)])
    )
    if not found:
        raise DataError(f"{name} has no annotations: no file {wanted} lies beside it")
    if len(found) > 1:
        raise DataError(
            f"{name} has {len(found)} files of annotations, {', '.join(sorted(found)[:3])}: keep one"
        )
    return found[0]


def own_spans(raw: Any) -> list[Span]:
    """The annotations that a recording of MNE's carries itself, in the order in which it has them.

    Without any that mean something, those of MNE about bad data aside, the codes of the stimulus channel follow.
    """
    return annotated_spans(raw) + stimulus_spans(raw)


def annotated_spans(raw: Any) -> list[Span]:
    """The annotations that a recording of MNE's carries itself."""
    # MNE counts them from before the first sample of a FIF file, whether the file has a date or not.
    start = raw.first_samp / raw.info["sfreq"]
    return [
        Span(float(onset) - start, float(duration), str(description))
        for onset, duration, description in zip(
            raw.annotations.onset, raw.annotations.duration, raw.annotations.description, strict=True
        )
    ]


def all_spans(raw: Any) -> list[Span]:
    """The annotations that a recording of MNE's carries itself, and the codes of its stimulus channel."""
    return annotated_spans(raw) + _triggers(raw)


def stimulus_spans(raw: Any, means: Callable[[str], bool] | None = None) -> list[Span]:
    """The codes of the stimulus channel of a recording without annotations that mean something; none of another.

    Without `means`, which tells what means something, all do but those of MNE about bad data.
    """
    said = [str(one) for one in raw.annotations.description]
    said = [one for one in said if not one.upper().startswith(("BAD", "EDGE"))]
    return [] if any(map(means, said) if means is not None else said) else _triggers(raw)


def _triggers(raw: Any) -> list[Span]:
    """The events of the stimulus channels, described by their codes."""
    import mne

    if "stim" not in raw.get_channel_types():
        return []
    source = Path(raw.filenames[0]) if raw.filenames and raw.filenames[0] is not None else Path()
    # BioSemi keeps the state of the amplifier above the 16 bits of the trigger port.
    masked = {"mask": 0xFFFF, "mask_type": "and"} if source.suffix.lower() == ".bdf" else {}
    with parsing(source.name or "the recording", "a recording with a stimulus channel"):
        found = mne.find_events(
            raw, shortest_event=1, uint_cast=source.suffix == ".fif", verbose="ERROR", **masked
        )
    rate = float(raw.info["sfreq"])
    return [Span((int(sample) - raw.first_samp) / rate, 0.0, str(code)) for sample, _, code in found.tolist()]


def read_annotation_file(path: Path, name: str, rule: AnnotationFile, raw: Any) -> list[Span]:
    """The annotations of a partner file in order of time, in seconds from the start of the recording `raw`.

    Raises
    ------
    DataError
        The file cannot be read, a line of it is no annotation, or it begins at another time than the recording.
    """
    if rule.format == "edf":
        spans = _of_edf(path, name, rule, raw)
    elif rule.format == "wfdb":
        spans = [Span(*one) for one in night_spans(path, name, float(raw.info["sfreq"]))]
    else:
        spans = _of_table(path, name, rule)
    if rule.split is not None:
        spans = [
            span._replace(description=part) for span in spans for part in span.description.split(rule.split)
        ]
    spans.sort()
    return _merged(spans) if rule.merge else spans


def _of_edf(path: Path, name: str, rule: AnnotationFile, raw: Any) -> list[Span]:
    import mne

    begins = _begins(path)
    if begins is None:
        raise DataError(f"{name} cannot be read as annotations of EDF+ (no EDF header)")
    with parsing(name, "annotations of EDF+"):
        read = mne.read_annotations(path)
    source = Path(raw.filenames[0]) if raw.filenames and raw.filenames[0] is not None else None
    other = _begins(source) if source is not None and source.suffix.lower() in (".edf", ".bdf") else None
    later = 0.0
    if other is not None and other != begins and rule.aligned != "start":
        later = (begins - other + DAY / 2) % DAY - DAY / 2
        if rule.aligned is None:
            raise DataError(
                f"{name} begins {abs(later):g} s {'after' if later > 0 else 'before'} its recording by the clock: say under "
                "`annotations` whether its times are `aligned: start` or `aligned: clock`"
            )
    return [
        Span(float(onset) + later, float(duration), str(description))
        for onset, duration, description in zip(read.onset, read.duration, read.description, strict=True)
    ]


def _begins(path: Path) -> float | None:
    """Seconds of the day at which an EDF file begins, None for what is no EDF file."""
    with path.open("rb") as opened:
        header = opened.read(256)
    match = re.fullmatch(rb"(\d\d)\.(\d\d)\.(\d\d)", header[176:184])
    if len(header) < 256 or match is None:
        return None
    hours, minutes, seconds = map(int, match.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def _of_table(path: Path, name: str, rule: AnnotationFile) -> list[Span]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name} cannot be read as text ({error})") from error
    said = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    rows = list(csv.reader((line for _, line in said), delimiter=delimiter))
    columns = dict(rule.columns)
    numbers = [number for number, _ in said]
    if any(isinstance(column, str) for column in columns.values()):
        if not rows:
            raise DataError(
                f"{name} has no header; columns {', '.join(map(str, columns.values()))} are declared"
            )
        header = [cell.strip() for cell in rows[0]]
        lost = [str(column) for column in columns.values() if column not in header]
        if lost:
            raise DataError(f"{name} has no column {', '.join(lost)}; it has {', '.join(header)}")
        columns = {role: header.index(str(column)) for role, column in columns.items()}
        rows, numbers = rows[1:], numbers[1:]
    return [_line(row, number, name, columns) for row, number in zip(rows, numbers, strict=True)]


def _line(row: Sequence[str], number: int, name: str, columns: Mapping[Any, Any]) -> Span:
    try:
        cells = {role: row[int(column)].strip() for role, column in columns.items()}
        onset = float(cells["onset"])
        duration = float(cells["duration"]) if "duration" in cells else float(cells["stop"]) - onset
    except (IndexError, ValueError):
        raise DataError(f"{name}:{number}: {','.join(row)[:80]!r} is no annotation with its times") from None
    if not (math.isfinite(onset) and math.isfinite(duration)) or duration < 0:
        raise DataError(f"{name}:{number}: an annotation that begins at {onset:g} s lasts {duration:g} s")
    return Span(onset, duration, cells["description"])


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Overlapping and touching spans of one description as one, in order of time."""
    last: dict[str, Span] = {}
    merged: list[Span] = []
    for span in sorted(spans):
        held = last.get(span.description)
        if held is not None and span.onset <= held.onset + held.duration + 1e-6:
            stop = max(held.onset + held.duration, span.onset + span.duration)
            last[span.description] = held._replace(duration=stop - held.onset)
            continue
        if held is not None:
            merged.append(held)
        last[span.description] = span
    return sorted([*merged, *last.values()])


def touching(span: Span, start: float, stop: float) -> float:
    """How many seconds of a span lie between two times; 0 for one that lies outside, at least a microsecond within."""
    shared = min(span.onset + span.duration, stop) - max(span.onset, start)
    if span.duration <= 1e-6:
        return 1e-6 if start - 1e-6 <= span.onset < stop - 1e-6 else 0.0
    return shared if shared > 1e-6 else 0.0
