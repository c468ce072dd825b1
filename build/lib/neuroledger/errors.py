"""Every error raised on purpose.

::

    NeuroLedgerError
    ├── SpecError            a spec file is wrong: every problem, each with file:line:column
    ├── RequestError         what was asked for does not exist or cannot be combined (exit code 2)
    ├── DataError            data are missing, corrupted or not what was declared
    │   ├── IntegrityError   bytes differ from the pinned SHA-256 or size
    │   └── AssemblyError    an assembly or stimulus set breaks the conventions
    ├── ModelError           a model cannot be built, or answers wrongly
    ├── MetricError          a metric cannot be computed on these data
    │   └── CeilingError     the data do not support a ceiling
    └── UnavailableError     data or software cannot be had here
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AssemblyError",
    "CeilingError",
    "DataError",
    "IntegrityError",
    "MetricError",
    "ModelError",
    "NeuroLedgerError",
    "Problem",
    "RequestError",
    "SpecError",
    "UnavailableError",
]


class NeuroLedgerError(Exception):
    """Root of all errors raised on purpose; the message says what, where and what to do."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong in one file."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}\n    hint: {self.hint}" if self.hint else text


class SpecError(NeuroLedgerError):
    """One or more spec files are wrong; ``problems`` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RequestError(NeuroLedgerError):
    """The request names something that does not exist, or combines what cannot be combined."""


class DataError(NeuroLedgerError):
    """Data are missing or not what was declared."""


class IntegrityError(DataError):
    """A file's bytes differ from the SHA-256 or size pinned in its spec."""


class AssemblyError(DataError):
    """An assembly or stimulus set breaks the conventions."""


class ModelError(NeuroLedgerError):
    """A model cannot be built, or its answer is unusable."""


class MetricError(NeuroLedgerError):
    """A metric cannot be computed on these data."""


class CeilingError(MetricError):
    """The data do not support this ceiling."""


class UnavailableError(NeuroLedgerError):
    """Data or software cannot be had here; the message says why and how to get it."""
