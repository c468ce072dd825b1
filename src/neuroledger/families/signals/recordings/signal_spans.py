"""Annotations of recordings: their own, codes of stimulus channels, and those in separate files."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, model_validator

from neuroledger.data.file_names import PLACEHOLDER, Pattern, expression, tail
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.timelines import noted_at, timeline_of
from neuroledger.families.signals.recordings.wfdb import night_spans
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = [
    "AnnotationFile",
    "Span",
    "all_spans",
    "fields_in",
    "note_spans",
    "annotated_spans",
    "own_spans",
    "stimulus_spans",
    "annotation_file_of",
    "read_annotation_file",
    "touching",
]

DAY = 86400.0
SPANS = "spans"


class Span(NamedTuple):
    """One annotation: onset in seconds from the start of the recording, duration in seconds, and description."""

    onset: float
    duration: float
    description: str


# What a column of a table of annotations states.
Role = Literal["onset", "stop", "duration", "description"]


class AnnotationFile(Frozen):
    """The separate file of each recording that contains its annotations: the pattern of its name, and its format.

    Attributes
    ----------
    recording, file
        Names of a recording and of its annotations in the same folder. `{subject}` matches any characters and has the same
        value in both, `{subject:2}` exactly two; `?` is one character and `*` any number. `subject`, `session` and `run`
        identify the recording, `name` is ignored; any other placeholder is a fact. Folders in the pattern are compared
        with the last folders of the recording.
    format
        `edf` for annotations of EDF+, `table` for text with one annotation per line, `wfdb` for PhysioNet's format.
    columns
        Of a table: its columns `onset`, `description`, and `stop` or `duration`, by name, or by position from 0 if the
        table has no header. Lines that begin with # are comments. Times are in seconds.
    split
        Separator of several descriptions of one annotation.
    ignore
        Descriptions to ignore, `*` for any characters; one that is neither ignored nor used by the window is refused.
    merge
        Merge annotations with the same description that overlap or touch, on all channels.
    aligned
        Whether times count from the `start` of the recording, or by the `clock`: then annotations are shifted by the
        difference of the times of day at which two EDF files begin. By default, such a difference is refused.
    beyond
        Treatment of an annotation in use that reaches beyond the recording: `refuse` or `cut`.
    """

    recording: Pattern
    file: Pattern
    format: Literal["edf", "table", "wfdb"] = "edf"
    columns: dict[Role, str | int] = Field(default_factory=dict)
    split: str | None = Field(default=None, min_length=1)
    ignore: tuple[str, ...] = ()
    merge: bool = False
    aligned: Literal["start", "clock"] | None = None
    beyond: Literal["refuse", "cut"] = "refuse"

    @model_validator(mode="after")
    def _check_fields(self) -> AnnotationFile:
        known, used = (
            [name for name, _, _ in PLACEHOLDER.findall(pattern) if name]
            for pattern in (self.recording, self.file)
        )
        unknown = sorted(set(used) - set(known))
        if unknown:
            raise ValueError(
                f"{self.file!r} needs {{{unknown[0]}}}, which {self.recording!r} does not have"
            )
        if not used:
            raise ValueError(
                f"{self.file!r} has no placeholder of the recording's name: all recordings would share one file"
            )
        required = {"onset", "description"}
        if self.format == "table" and not (
            required <= set(self.columns) and len(self.columns) == 3
        ):
            raise ValueError(
                "a table needs `columns`: onset, description, and one of stop and duration"
            )
        if self.format != "table" and self.columns:
            raise ValueError(
                f"`columns` apply to `format: table`, not to {self.format}"
            )
        if len({type(column) for column in self.columns.values()}) > 1:
            raise ValueError(
                "`columns` must be all names, or all positions if the table has no header"
            )
        return self


def fields_in(rule: AnnotationFile, name: str) -> dict[str, str] | None:
    """The values of the placeholders in the name of a recording; None if the name does not match."""
    match = expression(rule.recording).fullmatch(tail(rule.recording, name)[1])
    if match is None or expression(rule.file).fullmatch(tail(rule.file, name)[1]):
        return None
    return match.groupdict()


def annotation_file_of(rule: AnnotationFile, name: str, names: Iterable[str]) -> str:
    """The file with the annotations of recording `name`.

    Raises
    ------
    DataError
        The recording's name does not match the rule, or there is not exactly one such file.
    """
    known = fields_in(rule, name)
    if known is None:
        raise DataError(
            f"the name of recording {name} does not match {rule.recording} in `annotations`"
        )
    folder = tail(rule.recording, name)[0]
    regex = expression(rule.file, known=tuple(sorted(known.items())))
    matches = [
        other
        for other in names
        if other != name
        and tail(rule.file, other)[0] == folder
        and regex.fullmatch(tail(rule.file, other)[1])
    ]
    expected = "/".join(
        filter(
            None,
            [folder, PLACEHOLDER.sub(lambda m: known.get(m[1] or "", m[0]), rule.file)],
        )
    )
    if not matches:
        raise DataError(f"{name} has no annotations: the file {expected} is missing")
    if len(matches) > 1:
        raise DataError(
            f"{name} has {len(matches)} files of annotations, {', '.join(sorted(matches)[:3])}: keep one"
        )
    return matches[0]


def own_spans(raw: BaseRaw) -> list[Span]:
    """The annotations within a recording of MNE, in their order.

    If it has only annotations of MNE about bad data, or none, the codes of the stimulus channel follow.
    """
    return annotated_spans(raw) + stimulus_spans(raw)


def annotated_spans(raw: BaseRaw) -> list[Span]:
    """The annotations within a recording of MNE, or those that its reader noted because MNE has no clock for gaps."""
    noted: list[Span] | None = noted_at(raw).get(SPANS)
    if noted is not None:
        return list(noted)
    # In FIF files, MNE counts onsets from a time before the first sample, with or without a measurement date.
    start = raw.first_samp / raw.info["sfreq"]
    return [
        Span(float(onset) - start, float(duration), str(description))
        for onset, duration, description in zip(
            raw.annotations.onset,
            raw.annotations.duration,
            raw.annotations.description,
            strict=True,
        )
    ]


def note_spans(raw: BaseRaw, spans: Sequence[Span]) -> None:
    """Note the annotations of a recording by its own clock at MNE's `Raw`."""
    raw.info["temp"] = {**noted_at(raw), SPANS: list(spans)}


def all_spans(raw: BaseRaw) -> list[Span]:
    """The annotations within a recording of MNE, and the codes of its stimulus channel."""
    return annotated_spans(raw) + _triggers(raw)


def stimulus_spans(
    raw: BaseRaw, means: Callable[[str], bool] | None = None
) -> list[Span]:
    """The codes of the stimulus channel, if the recording has no meaningful annotations; otherwise none.

    `means` decides which annotations are meaningful; by default, all except those of MNE about bad data are.
    """
    texts = [span.description for span in annotated_spans(raw)]
    descriptions = [
        text for text in texts if not text.upper().startswith(("BAD", "EDGE"))
    ]
    if any(descriptions if means is None else map(means, descriptions)):
        return []
    return _triggers(raw)


def _triggers(raw: BaseRaw) -> list[Span]:
    """The events of the stimulus channels, described by their codes."""
    import mne

    if "stim" not in raw.get_channel_types():
        return []
    source = (
        Path(raw.filenames[0])
        if raw.filenames and raw.filenames[0] is not None
        else Path()
    )
    # BioSemi keeps the state of the amplifier above the 16 bits of the trigger port.
    masked = (
        {"mask": 0xFFFF, "mask_type": "and"} if source.suffix.lower() == ".bdf" else {}
    )
    with parsing(source.name or "the recording", "a recording with a stimulus channel"):
        events = mne.find_events(
            raw,
            shortest_event=1,
            uint_cast=source.suffix == ".fif",
            verbose="ERROR",
            **masked,
        )
    timeline = timeline_of(raw)
    return [
        Span(timeline.time_of(int(sample) - raw.first_samp), 0.0, str(code))
        for sample, _, code in events.tolist()
    ]


def read_annotation_file(
    path: Path, name: str, rule: AnnotationFile, raw: BaseRaw
) -> list[Span]:
    """The annotations of a separate file in order of time, in seconds from the start of the recording `raw`.

    Raises
    ------
    DataError
        The file cannot be read, a line is not an annotation, or the file begins at another time than the recording.
    """
    if rule.format == "edf":
        spans = _read_edf(path, name, rule, raw)
    elif rule.format == "wfdb":
        spans = [
            Span(*fields)
            for fields in night_spans(path, name, float(raw.info["sfreq"]))
        ]
    else:
        spans = _read_table(path, name, rule)
    if rule.split is not None:
        spans = [
            span._replace(description=part)
            for span in spans
            for part in span.description.split(rule.split)
        ]
    spans.sort()
    if rule.merge:
        return _merged(spans)
    return spans


def _read_edf(path: Path, name: str, rule: AnnotationFile, raw: BaseRaw) -> list[Span]:
    import mne

    start = _start_of_day(path)
    if start is None:
        raise DataError(f"{name} cannot be read as annotations of EDF+ (no EDF header)")
    with parsing(name, "annotations of EDF+"):
        annotations = mne.read_annotations(path)
    source = (
        Path(raw.filenames[0])
        if raw.filenames and raw.filenames[0] is not None
        else None
    )
    recording_start = (
        _start_of_day(source)
        if source is not None and source.suffix.lower() in (".edf", ".bdf")
        else None
    )
    shift = 0.0
    if (
        recording_start is not None
        and recording_start != start
        and rule.aligned != "start"
    ):
        shift = (start - recording_start + DAY / 2) % DAY - DAY / 2
        if rule.aligned is None:
            raise DataError(
                f"{name} begins {abs(shift):g} s {'after' if shift > 0 else 'before'} its recording by the clock: declare "
                "under `annotations` whether its times are `aligned: start` or `aligned: clock`"
            )
    return [
        Span(float(onset) + shift, float(duration), str(description))
        for onset, duration, description in zip(
            annotations.onset,
            annotations.duration,
            annotations.description,
            strict=True,
        )
    ]


def _start_of_day(path: Path) -> float | None:
    """Time of day at which an EDF file begins, in seconds; None for other files."""
    with path.open("rb") as file:
        header = file.read(256)
    match = re.fullmatch(rb"(\d\d)\.(\d\d)\.(\d\d)", header[176:184])
    if len(header) < 256 or match is None:
        return None
    hours, minutes, seconds = map(int, match.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def _read_table(path: Path, name: str, rule: AnnotationFile) -> list[Span]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name} cannot be read as text ({error})") from error
    numbered = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and line[0] != "#"
    ]
    rows = list(csv.reader((line for _, line in numbered), delimiter=delimiter))
    columns = dict(rule.columns)
    numbers = [number for number, _ in numbered]
    if any(isinstance(column, str) for column in columns.values()):
        if not rows:
            raise DataError(
                f"{name} is empty; a header with columns {', '.join(map(str, columns.values()))} is expected"
            )
        header = [cell.strip() for cell in rows[0]]
        missing = [str(column) for column in columns.values() if column not in header]
        if missing:
            raise DataError(
                f"{name} has no column {', '.join(missing)}; it has {', '.join(header)}"
            )
        columns = {role: header.index(str(column)) for role, column in columns.items()}
        rows = rows[1:]
        numbers = numbers[1:]
    return [
        _line(row, number, name, columns)
        for row, number in zip(rows, numbers, strict=True)
    ]


def _line(
    row: Sequence[str], number: int, name: str, columns: Mapping[Role, str | int]
) -> Span:
    try:
        cells = {role: row[int(column)].strip() for role, column in columns.items()}
        onset = float(cells["onset"])
        duration = (
            float(cells["duration"])
            if "duration" in cells
            else float(cells["stop"]) - onset
        )
    except (IndexError, ValueError):
        raise DataError(
            f"{name}:{number}: {','.join(row)[:80]!r} is not an annotation with times"
        ) from None
    if not (math.isfinite(onset) and math.isfinite(duration)) or duration < 0:
        raise DataError(
            f"{name}:{number}: an annotation that begins at {onset:g} s lasts {duration:g} s"
        )
    return Span(onset, duration, cells["description"])


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Merge overlapping and touching spans with the same description; returns them in order of time."""
    last: dict[str, Span] = {}
    merged: list[Span] = []
    for span in sorted(spans):
        previous = last.get(span.description)
        if (
            previous is not None
            and span.onset <= previous.onset + previous.duration + 1e-6
        ):
            stop = max(previous.onset + previous.duration, span.onset + span.duration)
            last[span.description] = previous._replace(duration=stop - previous.onset)
            continue
        if previous is not None:
            merged.append(previous)
        last[span.description] = span
    return sorted([*merged, *last.values()])


def touching(span: Span, start: float, stop: float) -> float:
    """Overlap of a span with an interval in seconds; an event without duration inside it counts as a microsecond."""
    overlap = min(span.onset + span.duration, stop) - max(span.onset, start)
    if span.duration <= 1e-6:
        if start - 1e-6 <= span.onset < stop - 1e-6:
            return 1e-6
        return 0.0
    if overlap > 1e-6:
        return overlap
    return 0.0
