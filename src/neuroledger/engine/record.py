"""Records of jobs: request, inputs, status, scores and environment; written atomically, hashed and optionally signed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError
from pydantic_core import from_json

from neuroledger.display import card, visible
from neuroledger.engine.control import Control, in_words
from neuroledger.engine.outcome import Pending, Undefined
from neuroledger.engine.records.earlier import in_present_form
from neuroledger.engine.records.environment import Environment
from neuroledger.engine.records.inputs import Inputs, content_of, record_path
from neuroledger.errors import DataError, Finding
from neuroledger.spec.base import sha256_of
from neuroledger.spec.document import json_object
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.score import Score, Status
from neuroledger.stats.stored import Stored
from neuroledger.stats.stored_score import StoredScore
from neuroledger.store.files import json_files, write_json

__all__ = [
    "Failure",
    "Outcome",
    "Record",
    "RecordedRequest",
    "Timing",
    "first_problem",
    "payload_of",
    "read_all",
    "read_record",
    "record_again",
    "record_in",
    "record_of",
    "record_path",
    "relative",
    "say_unreadable",
    "score_in",
    "with_relative_paths",
    "write_record",
]

SCHEMA_VERSION: Final = 1
# The fields that the inputs determine; environment and timing may differ between runs of the same job.
PAYLOAD = (
    "schema_version",
    "id",
    "status",
    "model",
    "benchmark",
    "score",
    "scores",
    "controls",
    "request",
    "inputs",
    "error",
)


Seconds = Annotated[float, Field(ge=0, le=1e12)]


class RecordedRequest(Stored):
    """Seed, limit and device of the run."""

    seed: Annotated[int, Field(strict=True, ge=0, le=1 << 64)] = 0
    """Seed of all random numbers."""
    limit: Annotated[int, Field(strict=True, gt=0)] | None = None
    """Number of stimuli of a limited run; null if all are used."""
    device: Annotated[str, Field(max_length=100)] = "cpu"
    """Device, such as cpu or cuda:1."""


class Failure(Stored):
    """The error that says why a pair has no score."""

    type: str
    """Name of the exception."""
    message: str
    """What is wrong."""


class Timing(Stored):
    """How long the computation took."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"wall_s", "cpu_s"})

    wall_s: Seconds | None = None
    """Seconds that passed."""
    cpu_s: Seconds | None = None
    """Seconds of processor time."""


class Record(Stored):
    """The outcome of a job: what determined it, its score or why there is none, its controls, and how it was computed."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the fields."""
    id: str
    """Identity of the job: the SHA-256 of the inputs."""
    status: Status
    """scored; partial, of a limited run or of a count without some operations; or failed, without a score."""
    model: str
    """Id of the model."""
    benchmark: str
    """Id of the benchmark."""
    score: StoredScore | None
    """The headline score; null of a failed job."""
    scores: dict[str, StoredScore]
    """Every metric's score by metric id, the headline first."""
    controls: dict[str, Control]
    """The controls of the benchmark by name."""
    request: RecordedRequest
    """What was asked for."""
    inputs: Inputs
    """Identities of specs, data, weights and components."""
    error: Failure | None
    """Why the job failed; null otherwise."""
    environment: Environment
    """Where the score was computed; no part of the payload."""
    timing: Timing
    """How long that took; no part of the payload."""
    payload_sha256: str = ""
    """SHA-256 of all fields but environment, timing and this one."""

    def payload(self) -> str:
        """Return the SHA-256 of the fields that the inputs determine."""
        return self._payload

    @cached_property
    def _payload(self) -> str:
        return payload_of(self.model_dump(mode="json"))

    @cached_property
    def signed_sha256(self) -> str:
        """The hash of the payload that a signature covers: in the form that the file has, if the record was read."""
        return self.payload()

    @property
    def intact(self) -> bool:
        """Whether the content matches the stored hash, in the form that the file has or in the present one."""
        stated = self.payload_sha256
        return stated == self.signed_sha256 or stated == self.payload()

    @property
    def has_earlier_form(self) -> bool:
        """Whether the file has the form of an earlier version."""
        return self.signed_sha256 != self.payload()

    @property
    def versions(self) -> list[int]:
        """The versions of the methods of all intervals."""
        headline = [] if self.score is None else [self.score]
        scores = [*self.scores.values(), *headline]
        ceilings = [score.ceiling for score in scores if score.ceiling is not None]
        versions = (estimate.version for estimate in (*scores, *ceilings))
        return [version for version in versions if version is not None]

    @property
    def earlier_version(self) -> int | None:
        """The earliest version of the intervals if it is not the current one, else None."""
        earliest = min(self.versions, default=inference.VERSION)
        return earliest if earliest < inference.VERSION else None

    @property
    def judged_version(self) -> int | None:
        """The version by whose intervals the controls of a refreshed record were judged; None for its own."""
        if self.score is None or self.score.uncertainty is None:
            return None
        return self.score.uncertainty.controls

    @property
    def result(self) -> StoredScore | Undefined:
        """The headline score if it has a value, or the reason why there is none."""
        if self.score is None or self.score.value is None:
            return Undefined(self.reason)
        return self.score

    @property
    def value(self) -> float | None:
        """The value of the headline score; None if it is undefined."""
        if self.score is None:
            return None
        return self.score.value

    @property
    def reason(self) -> str:
        """Why the score is undefined or partial, or its interval withheld; empty if nothing is missing."""
        if self.error is not None:
            return self.error.message
        if self.score is None:
            return ""
        return self.score.reason

    def as_score(self) -> Score:
        """Return the headline score, without samples; its items belong to the population of the data set.

        Raises
        ------
        DataError
            The job failed.
        """
        if self.score is None:
            raise DataError(
                f"{self.model} has no score on {self.benchmark}: {self.reason}"
            )
        return self.score.score(*self.owner)

    @property
    def owner(self) -> tuple[str, str]:
        """What the items of the score belong to, its data set; and what its deviations belong to if they are its own."""
        return self.inputs.dataset.id, f"{self.model} on {self.benchmark}"

    def model_copy(
        self, *, update: Mapping[str, object] | None = None, deep: bool = False
    ) -> Self:
        """Return a copy with some fields changed, whose hash is another one."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("_payload", "signed_sha256"):
            vars(copied).pop(name, None)
        return copied

    def sealed(self) -> Self:
        """Return the record with the hash of its payload in the present form."""
        return self.model_copy(update={"payload_sha256": self.payload()})

    def __repr__(self) -> str:
        found = self.result
        text = found.reason
        if not isinstance(found, Undefined):
            text = f"{self.value:.4g}"
            if found.interval is not None:
                text += " [{:.4g}, {:.4g}]".format(*found.interval)
        return f"<record {self.benchmark} · {self.model}: {text} ({self.status})>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = []
        if not isinstance(self.result, Undefined):
            rows += [("score", f"{self.value:.4g}")]
            if self.result.interval is not None:
                low, high = self.result.interval
                rows += [
                    ("95 % interval", f"{low:.4g} – {high:.4g}"),
                    ("", self.result.covers),
                ]
        if self.error is not None:
            rows += [("error", self.error.message)]
        rows += [
            (name, f"{control.verdict}: {in_words(control)}")
            for name, control in self.controls.items()
        ]
        rows += [
            ("record", self.id[:12]),
            ("intact", "yes" if self.intact else "no: it was edited"),
        ]
        return card(f"{self.model} on {self.benchmark} ({self.status})", rows)


Outcome = Record | Pending
"""The outcome of a job: a record, or what is pending."""


def payload_of(plain: Mapping[str, object]) -> str:
    """Return the SHA-256 of the fields of a record, as plain data, that its inputs determine."""
    return sha256_of({name: plain[name] for name in PAYLOAD if name in plain})


def write_record(path: Path, record: Record) -> bool:
    """Write the record unless the file already has the same payload; return whether it was written."""
    sealed = record.sealed()
    if path.exists() and _is_written(path, sealed):
        return False
    return write_json(path, sealed.model_dump(mode="json"))


def _is_written(path: Path, sealed: Record) -> bool:
    """Whether a file has the payload of a record, undamaged and in the present form."""
    try:
        old = read_record(path)
    except DataError:
        return False
    return (
        old.intact
        and not old.has_earlier_form
        and old.payload_sha256 == sealed.payload_sha256
    )


def record_of(plain: object) -> Record:
    """Parse a record from plain data, also in the form of an earlier version.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, a number is not finite, or fields contradict each other.
    """
    if not isinstance(plain, dict):
        raise ValueError("it is not a mapping")
    record = Record.model_validate(in_present_form(plain))
    if record.score is not None and not any(
        _agree(record.score, score) for score in record.scores.values()
    ):
        raise ValueError("its headline is not among its scores")
    for name, control in record.controls.items():
        _check_control(name, control)
    # Inputs are read as they were written, so that these are the bytes that they are hashed as.
    if record.id != sha256_of(plain["inputs"]):
        raise ValueError("its id is not the hash of its inputs")
    if (record.score is None) != (record.status == "failed"):
        raise ValueError(f"status {record.status!r} contradicts its score")
    vars(record)["signed_sha256"] = payload_of(plain)
    return record


def record_again(content: bytes, signed_sha256: str) -> Record:
    """Return the record that a content is which was read before, when its form and its hashes were examined."""
    record = Record.model_validate(in_present_form(from_json(content)))
    vars(record)["signed_sha256"] = signed_sha256
    return record


def score_in(content: bytes) -> Score:
    """Return the headline score of the content of a record that was read before, as :meth:`Record.as_score` does."""
    plain = in_present_form(from_json(content))
    stored = StoredScore.model_validate(plain["score"])
    name = f"{plain['model']} on {plain['benchmark']}"
    return stored.score(plain["inputs"].get("dataset", {}).get("id", ""), name)


def _check_control(name: str, control: Control) -> None:
    """Require an interval, and a verdict that follows from the numbers."""
    low = control.low
    high = control.high
    if (low is None) != (high is None) or (low or 0.0) > (high or 0.0):
        raise ValueError(f"controls.{name}: {low} to {high} is not an interval")
    if not control.follows:
        words = f"{control.verdict} does not follow for a {control.role} control"
        raise ValueError(f"controls.{name}: {words}: {in_words(control)}")


def _agree(headline: StoredScore, score: StoredScore) -> bool:
    """Whether two scores state the same numbers; the headline may have its deviations by item."""
    return _numbers(headline) == _numbers(score)


def _numbers(score: StoredScore) -> tuple[object, ...]:
    return score.value, score.interval, score.scale, score.direction, score.ceiling


def read_record(path: Path) -> Record:
    """Read a record.

    Raises
    ------
    DataError
        The file is unreadable or is not a record.
    """
    return record_in(content_of(path), path)


def record_in(content: bytes, path: Path) -> Record:
    """Return the record that the content of the file at ``path`` is.

    Raises
    ------
    DataError
        The content is not a record.
    """
    try:
        return record_of(json_object(content))
    except ValueError as error:
        raise _no_record(path, error) from error


def _no_record(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is not a record ({first_problem(error)}); delete it and run again"
    )


def first_problem(error: Exception) -> str:
    """Return the first problem of plain data that is not a record, after the path of the field."""
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[0]
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    if place:
        return f"{place}: {problem['msg']}"
    return problem["msg"]


def read_all(folder: Path) -> Iterator[Record]:
    """Yield every record below ``folder``, sorted by path; invalid files are logged as findings and left out."""
    for path in json_files(folder):
        try:
            yield read_record(path)
        except DataError as error:
            say_unreadable(path, error)


def say_unreadable(path: Path, error: Exception) -> None:
    """Log that a file is not a record."""
    finding = Finding("record.unreadable", "error", path.name, str(error))
    logging.getLogger("neuroledger").warning("%s", visible(str(finding)))


def relative(text: str, root: Path) -> str:
    """Return a text with paths made relative to the repository or to the home folder (``~``)."""
    for folder, instead in ((root, ""), (root.resolve(), ""), (Path.home(), "~/")):
        if folder != folder.parent:
            text = text.replace(f"{folder}{os.sep}", instead)
    return text


def with_relative_paths(score: StoredScore, root: Path) -> StoredScore:
    """Return a score whose texts contain no absolute path of this machine."""
    facts = {
        name: replace(fact, value=relative(fact.value, root))
        if isinstance(fact.value, str)
        else fact
        for name, fact in score.facts.items()
    }
    changed = {
        "reason": relative(score.reason, root),
        "notes": tuple(relative(note, root) for note in score.notes),
        "facts": facts,
    }
    return score.model_copy(update=changed)
