"""Compile the project's expectations to questions for Great Expectations about tables of facts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from neuroledger.data.gate import gx_queries as ask
from neuroledger.data.gate import gx_tables as gather
from neuroledger.data.gate.gx_queries import Question
from neuroledger.data.gate.gx_tables import Facts
from neuroledger.data.sandbox import Limits, confined
from neuroledger.errors import DataError, about_pair
from neuroledger.spec import expectations as say

if TYPE_CHECKING:
    import xarray as xr

    from neuroledger.data.stimuli import StimulusSet

__all__ = ["Inquiry", "Subject", "UnaskableError", "inquire"]

PATTERN_SECONDS: Final = 10
RATE_TOLERANCE: Final = 1e-6
NO_TABLE: Final = "let the reader return one, or drop the expectation"


class UnaskableError(DataError):
    """An expectation refers to something that the data do not have; ``do`` says what to do about it."""

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what)
        self.do = do


@dataclass(frozen=True)
class Inquiry:
    """A compiled expectation: a table of facts, and the questions about it that decide the expectation."""

    facts: Facts
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Subject:
    """The data to validate: stimuli, an assembly, or both; tables of facts are built at first use."""

    stimulus_set: StimulusSet | None = None
    assembly: xr.DataArray | None = None
    decoded: bool = False
    content: str = ""
    """SHA-256 of the assembly, if known."""

    @cached_property
    def stimuli(self) -> Facts:
        """The stimulus table."""
        if self.stimulus_set is None:
            raise UnaskableError("there is no stimulus table", NO_TABLE)
        return gather.stimuli(self.stimulus_set)

    @cached_property
    def files(self) -> Facts:
        """The stimulus table with facts about each file."""
        if self.stimulus_set is None:
            raise UnaskableError("there are no stimulus files", NO_TABLE)
        try:
            return gather.files(self.stimulus_set, decoded=self.decoded)
        except DataError as error:
            if not about_pair(error):
                raise
            raise UnaskableError(str(error), "replace the damaged files") from error

    @cached_property
    def recording(self) -> xr.DataArray:
        """The assembly."""
        if self.assembly is None:
            raise UnaskableError("there is no assembly", NO_TABLE)
        return self.assembly

    def along(self, coordinate: str) -> Facts:
        """The coordinates along the dimension of ``coordinate``."""
        _require_name(coordinate, self.recording.coords, "coordinate", "the assembly")
        dims = self.recording.coords[coordinate].dims
        if len(dims) != 1:
            what = f"coordinate '{coordinate}' has {len(dims)} dimensions"
            raise UnaskableError(what, "name a coordinate with one dimension")
        return gather.coordinates(self.recording, str(dims[0]))


def inquire(expectation: say.Check, part: str, subject: Subject) -> Inquiry:
    """Compile an expectation about one part of the data, "stimuli" or "assembly".

    Raises
    ------
    UnaskableError
        The expectation names a column, coordinate or dimension that does not exist.
    """
    match expectation:
        case say.RowCheck(where=where):
            facts = _rows(expectation, part, subject)
            for column in (*_columns(expectation), *where):
                _require_name(
                    column, facts.rows.columns, "column", f"the {facts.title}"
                )
            if isinstance(expectation, say.Matches):
                texts = facts.rows[expectation.column].dropna().astype(str).unique()
                _require_fast_pattern(expectation.pattern, texts)
            return Inquiry(
                gather.select(facts, where), tuple(_row_questions(expectation))
            )
        case say.Columns(columns=columns, only=only):
            return Inquiry(subject.stimuli, (ask.has_columns(columns, only=only),))
        case _:
            facts, questions = _assembly_questions(expectation, subject)
            return Inquiry(facts, tuple(questions))


def _require_fast_pattern(pattern: str, texts: Iterable[str]) -> None:
    """Refuse a pattern that does not match all texts within seconds; `re` can take exponential time."""
    try:
        confined(
            lambda: [bool(re.fullmatch(pattern, text)) for text in texts],
            Limits(seconds=PATTERN_SECONDS),
            f"the pattern {pattern!r}",
        )
    except DataError as error:
        raise UnaskableError(
            str(error), "write the pattern without a repetition inside a repetition"
        ) from error


def _columns(expectation: say.RowCheck) -> tuple[str, ...]:
    if isinstance(expectation, say.UniqueTogether):
        return expectation.columns
    if isinstance(expectation, say.ColumnCheck):
        return (expectation.column,)
    return ()


def _rows(expectation: say.RowCheck, part: str, subject: Subject) -> Facts:
    if isinstance(expectation, say.FilesExist | say.FilesDecode | say.FilesMatchSha256):
        return subject.files
    if part == "stimuli":
        return subject.stimuli
    return subject.along((*_columns(expectation), *expectation.where, "stimulus_id")[0])


def _row_questions(expectation: say.RowCheck) -> Iterable[Question]:
    # Great Expectations skips missing values, so that every question about a column also needs this one.
    # Great Expectations skips missing values, so that every question about a column also needs this one.
    yield from (ask.not_null(column) for column in _columns(expectation))
    match expectation:
        case say.Unique(column=column):
            yield ask.each(column, "to_be_unique", {}, "not unique")
        case say.UniqueTogether(columns=columns):
            yield ask.unique_together(columns)
        case say.InSet(column=column, values=values):
            yield ask.in_set(column, values)
        case say.EqualSet(column=column, values=values):
            yield ask.in_set(column, values)
            yield ask.holds_all(column, values)
        case say.Between(column=column, low=low, high=high):
            yield ask.between(column, low, high)
        case say.Matches(column=column, pattern=pattern):
            yield ask.each(
                column,
                "to_match_regex",
                {"regex": rf"\A(?:{pattern})\Z"},
                f"not matching {pattern}",
            )
        case say.Distinct(column=column, count=count):
            yield ask.distinct(column, count)
    yield from _file_questions(expectation)


def _file_questions(expectation: say.RowCheck) -> Iterable[Question]:
    """The questions about the number of rows, and about the files of stimuli."""
    match expectation:
        case say.RowCount(count=count, low=low, high=high):
            if count is not None:
                low = count
                high = count
            yield ask.row_count(low, high)
        case say.FilesExist():
            yield ask.between("@bytes", 1, None, "files missing or empty", quote="rows")
        case say.FilesDecode(mode=mode, size=size):
            yield ask.decodes("@image")
            if mode is not None:
                yield ask.in_set("@mode", (mode,), f"images not of mode {mode}")
            if size is not None:
                pixels = f"{size[0]} x {size[1]}"
                yield ask.in_set("@size", (pixels,), f"images not of {pixels} pixels")
        case say.FilesMatchSha256(column=column):
            yield ask.between("@bytes", 1, None, "files missing or empty", quote="rows")
            words = "files without the SHA-256 that the table gives"
            yield ask.pairs("@sha256", column, words, quote="rows")


def _assembly_questions(
    expectation: say.Check, subject: Subject
) -> tuple[Facts, Sequence[Question]]:
    recording = subject.recording
    match expectation:
        case say.Dims(dims=dims):
            declared = ", ".join(dims)
            words = f"dimensions: ({declared}) declared, found"
            return gather.values(recording), [ask.states("dims", declared, words)]
        case say.Shape(sizes=sizes):
            return _shape_questions(sizes, recording)
        case say.Coords(coords=coords):
            return _coords_questions(coords, recording)
        case say.SamplingRate(hz=hz):
            low = hz * (1 - RATE_TOLERANCE)
            high = hz * (1 + RATE_TOLERANCE)
            words = f"time steps not of {hz:g} Hz"
            question = ask.between("hz", low, high, words, quote="values")
            return gather.time_steps(recording), [question]
        case say.Channels(names=names, coordinate=coordinate):
            subject.along(coordinate)
            words = "sites not named as declared"
            question = ask.pairs("name", "declared", words, quote="values")
            return gather.site_names(recording, coordinate, names), [question]
        case say.Aligned(complete=complete):
            return _alignment_questions(complete, subject)
        case say.Repetitions(count=count, low=low, high=high):
            subject.along("stimulus_id")
            low, high = (low, high) if count is None else (count, count)
            words = f"stimuli not presented {ask.span(low, high)} times"
            question = ask.between("presentations", low, high, words)
            return gather.repetitions(recording), [question]
    return _value_questions(expectation, subject)


def _value_questions(
    expectation: say.Check, subject: Subject
) -> tuple[Facts, Sequence[Question]]:
    """The questions about the values of an assembly."""
    recording = subject.recording
    match expectation:
        case say.Dtype(dtype=dtype):
            words = f"type of the values: {dtype} declared, found"
            return gather.values(recording), [ask.states("dtype", dtype, words)]
        case say.ValuesFinite(missing=missing):
            words = f"missing values (NaN): {missing} declared, found"
            return gather.values(recording), [
                ask.states("missing", missing, words),
                ask.states("infinite", 0, "infinite values: none allowed, found"),
            ]
        case say.ValuesBetween(low=low, high=high):
            words = f"values: {ask.span(low, high)} declared, found"
            questions = [ask.not_null("lowest")]
            if low is not None:
                questions.append(ask.between("lowest", low, None, words, quote="only"))
            if high is not None:
                questions.append(
                    ask.between("highest", None, high, words, quote="only")
                )
            return gather.value_range(recording), questions
        case say.ValuesVary(over=over):
            _require_name(over, recording.dims, "dimension", "the assembly")
            words = f"positions along {over} with a constant value"
            question = ask.in_set("varies", (True,), words, quote="rows")
            return gather.sites(recording, over), [question]
        case say.Content(sha256=sha256):
            words = f"SHA-256 of values and coordinates: {sha256} declared, found"
            question = ask.states("sha256", sha256, words)
            return gather.content(recording, subject.content), [question]
        case say.Units(units=units):
            by_channel = "units" in recording.coords
            facts = subject.along("units") if by_channel else gather.values(recording)
            question = ask.states("units", units, f"units: {units} declared, found")
            return facts, [ask.not_null("units"), question]
    raise UnaskableError(
        f"the check '{type(expectation).__name__}' is not supported",
        "use a check of the vocabulary",
    )


def _shape_questions(
    sizes: Mapping[str, int | tuple[int, int]], recording: xr.DataArray
) -> tuple[Facts, Sequence[Question]]:
    for dim in sizes:
        _require_name(dim, recording.dims, "dimension", "the assembly")
    spans = {
        dim: size if isinstance(size, tuple) else (size, size)
        for dim, size in sizes.items()
    }
    questions = [
        ask.between(
            dim,
            low,
            high,
            f"length of '{dim}': {ask.span(low, high)} declared, found",
            quote="only",
        )
        for dim, (low, high) in spans.items()
    ]
    return gather.lengths(recording), questions


def _coords_questions(
    coords: Mapping[str, Sequence[str]], recording: xr.DataArray
) -> tuple[Facts, Sequence[Question]]:
    for dim in coords:
        _require_name(dim, recording.dims, "dimension", "the assembly")
    declared = [
        f"{name} along {dim}" for dim, names in coords.items() for name in names
    ]
    return gather.coordinate_names(recording, declared), [
        ask.holds_all("place", declared, "coordinates declared but absent"),
        ask.in_set(
            "complete", (True,), "coordinates with missing values", quote="rows"
        ),
    ]


def _alignment_questions(
    complete: bool, subject: Subject
) -> tuple[Facts, Sequence[Question]]:
    ids = sorted(map(str, subject.stimuli.rows["stimulus_id"].dropna().unique()))
    facts = subject.along("stimulus_id")
    joined = _joined_ids(
        subject.recording["stimulus_id"].values.astype(str).tolist(), set(ids)
    )
    words = "presentations of stimuli that the stimulus table does not have"
    questions = [
        ask.not_null("stimulus_id"),
        ask.in_set("stimulus_id", ids + joined, words, quote="values"),
    ]
    if complete:
        questions.append(
            ask.holds_all(
                "stimulus_id", ids, "stimuli of the table that were never presented"
            )
        )
    return facts, questions


def _joined_ids(presented: Sequence[str], ids: set[str]) -> list[str]:
    """Presented ids that join several stimuli of the table with ``|``, as in a choice between three."""
    return sorted(
        {id for id in presented if "|" in id and set(id.split("|")) <= ids} - ids
    )


def _require_name(name: str, names: Iterable[object], noun: str, owner: str) -> None:
    known = list(map(str, names))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, 1, 0.5)
    if near:
        hint = f"did you mean '{near[0]}'?"
    else:
        hint = f"name one of: {', '.join(known) or 'it has none'}"
    raise UnaskableError(f"{owner} has no {noun} '{name}'", hint)
