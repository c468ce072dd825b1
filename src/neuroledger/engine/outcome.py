"""Why a job has no score: it is undefined on any machine, or pending on this one.

A record says something about the pair of model and benchmark: its score, or why it is undefined on any machine. What this
machine lacks at this moment is pending: it is never written or ranked, and names the command that fixes it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass

from neuroledger.display import card, some
from neuroledger.errors import (
    CODES,
    CircleError,
    Finding,
    IntegrityError,
    LimitError,
    MissingError,
    NeuroLedgerError,
    PendingError,
    RequestError,
    SpecError,
    StorageError,
    UnavailableError,
    UncheckedError,
    UnknownError,
    UntrustedError,
    absent_package,
    causes_of,
    is_about_machine,
)

__all__ = ["Pending", "Undefined", "pending_for", "pending_lines"]

DOCTOR = "neuroledger doctor"


@dataclass(frozen=True)
class Pending:
    """What is missing on this machine or at this moment.

    Attributes
    ----------
    reason
        What is missing, in one line.
    command
        The exact command that fixes it.
    code
        A key of ``neuroledger.errors.CODES``.
    findings
        The problems of an invalid spec, each with file, line and column.
    """

    reason: str
    command: str
    code: str
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise KeyError(self.code)

    def __str__(self) -> str:
        return f"{self.reason}: run `{self.command}`"

    def _repr_html_(self) -> str:
        """What is missing, as notebooks show it."""
        return card("pending", [("reason", self.reason), ("run", self.command)])

    def error(self) -> PendingError:
        """Return the exception that says the same."""
        return PendingError(self.reason, self.command)


@dataclass(frozen=True)
class Undefined:
    """The pair of model and benchmark has no score, for a reason that holds on any machine."""

    reason: str


# The code of each kind of error that is not about the pair, and the command that fixes it, which is empty if only the same
# command again can show that it is fixed; the first that matches counts.
_KINDS: tuple[tuple[type[BaseException], str, str], ...] = (
    (SpecError, "spec.value", "neuroledger check"),
    (UnknownError, "spec.reference", "neuroledger check"),
    (CircleError, "spec.circle", "neuroledger check"),
    (RequestError, "spec.override", "neuroledger check"),
    (UntrustedError, "trust.untrusted", "neuroledger check"),
    (MissingError, "data.missing", DOCTOR),
    (IntegrityError, "data.hash", DOCTOR),
    (UncheckedError, "data.not-validated", "neuroledger validate"),
    (StorageError, "machine.disk", DOCTOR),
    (OSError, "machine.disk", DOCTOR),
    (LimitError, "machine.memory", ""),
    (MemoryError, "machine.memory", ""),
    (UnavailableError, "machine.package", DOCTOR),
    (ImportError, "machine.package", DOCTOR),
    (BrokenExecutor, "machine.worker", ""),
    (PendingError, "machine.worker", ""),
)


def pending_for(error: BaseException, *, again: str = "") -> Pending:
    """Return what is pending after an error that says nothing about the pair.

    ``again`` is the command that repeats the work. An unexpected exception is shown with its type and place.
    """
    cause = next((each for each in causes_of(error) if is_about_machine(each)), error)
    if isinstance(cause, ImportError):
        cause = absent_package(cause) or cause
        error = cause
    own = cause.command if isinstance(cause, PendingError) else ""
    for kind, code, command in _KINDS:
        if isinstance(cause, kind):
            findings = cause.findings if isinstance(cause, SpecError) else ()
            if findings:
                code = findings[0].code
            return Pending(
                _reason(error, cause), own or command or again or DOCTOR, code, findings
            )
    if is_about_machine(cause):  # the memory of a graphics card
        return Pending(_reason(error, cause), again or DOCTOR, "machine.memory")
    return _crashed(error, again or DOCTOR)


def _reason(error: BaseException, cause: BaseException) -> str:
    if isinstance(cause, SpecError):
        first = cause.findings[0]
        count = len(cause.findings)
        if first.line:
            place = f"{first.where}:{first.line}:{first.column}"
        else:
            place = first.where
        if count > 1:
            more = f" and {count - 1} more"
        else:
            more = ""
        if first.fix:
            hint = f" ({first.fix})"
        else:
            hint = ""
        return _one_line(f"{place}: {first.what}{hint}{more}")
    if isinstance(error, PendingError):
        return _one_line(error.message)
    text = str(error)
    if not isinstance(error, NeuroLedgerError):
        if text:
            text = f"{type(error).__name__}: {text}"
        else:
            text = _words_of_type(error)
    return _one_line(text)


def _words_of_type(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "memory is exhausted"
    return type(error).__name__


def _crashed(error: BaseException, again: str) -> Pending:
    """Return what is pending after a crash of the program, with type and place."""
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames:
        last = frames[-1]
        place = f" ({last.filename.rsplit('/', 1)[-1]}:{last.lineno} in {last.name})"
    words = f"{type(error).__name__}: {error}{place}: an error of the program; please report it, then try again"
    return Pending(_one_line(words), again, "machine.crash")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def pending_lines(pending: Iterable[tuple[str, Pending]]) -> Iterator[str]:
    """Yield one line per reason, with the names of what waits for it, the reason and the command."""
    waiting: dict[Pending, list[str]] = {}
    for name, what in pending:
        names = waiting.setdefault(what, [])
        if name not in names:
            names.append(name)
    for what, names in waiting.items():
        yield f"pending: {some(sorted(names))}: {what}"
