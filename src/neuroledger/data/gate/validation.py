"""The validation report of a data set: its contents, its file, and whether it is still valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from neuroledger.data.clocks import RecordingClocks
from neuroledger.data.gate.signatures import Signature
from neuroledger.data.integrity import absent
from neuroledger.errors import Finding
from neuroledger.spec.base import sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import json_object
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.registry import get
from neuroledger.store.files import write_json

__all__ = [
    "CheckResult",
    "Contents",
    "Repetitions",
    "ValidationReport",
    "identity",
    "mark_path",
    "is_valid",
    "read_report",
    "refusal",
    "remember_here",
    "report_path",
    "seal",
    "seen_here",
    "write_report",
]

SCHEMA_VERSION: Final = 1
# Raise it whenever a change of the gate can change its verdict on the same data.
GATE_VERSION: Final = 2

Outcome = Literal["passed", "failed", "not reached"]


class CheckResult(BaseModel):
    """One expectation and whether it was met."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: str
    """stimuli or assembly"""
    check: str
    """Name in the vocabulary."""
    about: str
    """The table and the column that it is about."""
    says: str
    """The declared fields, in words."""
    declared: bool
    """False for an expectation that applies to every data set without being declared."""
    severity: str
    success: bool


class Contents(BaseModel):
    """Dimensions, sizes and columns of one part; never values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = ""
    columns: tuple[str, ...] = ()
    sha256: str = ""
    """SHA-256 of values and coordinates of prepared signals; not written if empty."""

    @model_serializer(mode="wrap")
    def _plain(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        return {
            name: value for name, value in fields.items() if name != "sha256" or value
        }


class Repetitions(BaseModel):
    """How often stimuli were presented to a subject in a session, or to all; counts only, apart from the two names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: str
    """assembly, or the name of a further one"""
    subject: str = ""
    session: str = ""
    of: str = "stimulus"
    """stimulus; label for windows, each of which has a stimulus of its own."""
    presentations: int
    stimuli: int
    """Different stimuli, or labels."""
    fewest: int
    """Presentations of the stimulus that was presented least often."""
    most: int
    missing: int = 0
    """Missing values in these presentations."""


class ValidationReport(BaseModel):
    """The gate's report on one data set; the same inputs give the same report, byte for byte."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    dataset: str
    version: int
    title: str
    access: str
    simulated: bool
    identity: str
    """SHA-256 of everything that the verdict depends on: spec with pins and expectations, reader, gate."""
    spec_sha256: str
    suite_sha256: str
    """SHA-256 of the expectations alone."""
    reader: dict[str, object]
    """Name and version."""
    files: dict[str, dict[str, object]]
    """SHA-256 and size in bytes of each verified file."""
    great_expectations: str
    """Version; empty if the expectations were not reached."""
    stages: dict[str, Outcome]
    contents: dict[str, Contents]
    """By part: stimuli, assembly, and further assemblies."""
    repetitions: tuple[Repetitions, ...] = ()
    """Of each part: of all presentations, then by subject and session."""
    checks: tuple[CheckResult, ...]
    findings: tuple[Finding, ...]
    clocks: tuple[RecordingClocks, ...] = ()
    """The clocks of each recording and how its windows were cut; not written if the reader states none, or if the data are
    private."""
    signatures: tuple[Signature, ...] = ()
    """What the spec names as `signatures`; not written if there are none, or if the data are private."""
    payload_sha256: str = ""

    @model_serializer(mode="wrap")
    def _plain(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        return {
            name: value
            for name, value in fields.items()
            if name not in ("clocks", "signatures") or value
        }

    @property
    def success(self) -> bool:
        """Whether all three stages passed; warnings do not matter."""
        return set(self.stages.values()) == {"passed"}

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity "error", which prevent scores on the data set."""
        return tuple(
            finding for finding in self.findings if finding.severity == "error"
        )

    @property
    def intact(self) -> bool:
        """Whether the report was not edited after it was written."""
        return self.payload_sha256 == _payload(self)

    def to_dict(self) -> dict[str, object]:
        """Plain data, as in the report's file."""
        plain = self.model_dump(mode="json")
        return {
            **plain,
            "findings": [each.to_dict() for each in self.findings],
            "success": self.success,
        }

    def __str__(self) -> str:
        if self.success:
            met = sum(check.success for check in self.checks)
            head = f"✓ {self.dataset}: {len(self.files)} files verified, {met} of {len(self.checks)} expectations met"
        else:
            stage = next(
                (name for name, outcome in self.stages.items() if outcome == "failed"),
                "",
            )
            count = len(self.errors)
            head = f"✗ {self.dataset}: invalid, {count} error{'s' * (count != 1)} in stage {stage!r}"
        lines = [
            f"  {line}"
            for finding in self.findings
            for line in str(finding).splitlines()
        ]
        return "\n".join([head, *lines])


def seal(report: ValidationReport) -> ValidationReport:
    """The report with the SHA-256 of its own content."""
    return report.model_copy(update={"payload_sha256": _payload(report)})


def identity(spec: DatasetSpec, members: Iterable[DatasetSpec] = ()) -> str:
    """SHA-256 of everything that the verdict depends on, provided that the files match their pins."""
    reader = spec.reader
    parts: dict[str, object] = {
        "gate": GATE_VERSION,
        "spec": spec_sha256(spec),
        "reader": None
        if reader is None
        else [reader.name, get("reader", reader.name).version],
    }
    verdicts = [identity(member) for member in members]
    if verdicts:
        parts["members"] = verdicts
    return sha256_of(parts)


def report_path(root: Path, dataset: str) -> Path:
    """The path of a data set's report."""
    return root / "results" / "validation" / f"{dataset}.json"


def read_report(path: Path) -> ValidationReport | None:
    """The report at ``path``; None if it is missing, unreadable, or was edited."""
    try:
        plain = json_object(path.read_bytes())
        plain.pop("success", None)
        report = ValidationReport.model_validate(plain)
    except (OSError, ValueError, ValidationError, AttributeError):
        return None
    return report if report.intact else None


def write_report(path: Path, report: ValidationReport) -> bool:
    """Write the report atomically; returns False if the file contained the same report already.

    Raises
    ------
    StorageError
        The disk is full or read-only.
    """
    return write_json(path, report.to_dict())


def mark_path(catalog: Catalog, dataset: str) -> Path:
    """The path of the file that says that this machine made a data set's report."""
    return catalog.root / ".cache" / "validated" / f"{dataset}.json"


def remember_here(catalog: Catalog, report: ValidationReport) -> None:
    """Remember that this machine made the report; the hash inside it detects damage, but anybody can compute it."""
    write_json(
        mark_path(catalog, report.dataset), {"payload_sha256": report.payload_sha256}
    )


def seen_here(catalog: Catalog, report: ValidationReport) -> bool:
    """Whether this machine made the report itself, from its own copy of the files."""
    try:
        mark = json_object(mark_path(catalog, report.dataset).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(mark == {"payload_sha256": report.payload_sha256})


def refusal(catalog: Catalog, dataset: str) -> Finding | None:
    """Why this data set cannot be scored, or None if it has a valid report.

    Only the report is checked; the files are verified against their pins when they are loaded.
    """
    spec = catalog.dataset(dataset)
    for member in spec.members:
        problem = refusal(catalog, member)
        if problem is not None:
            return problem
    path = report_path(catalog.root, dataset)
    where = f"data set {dataset!r}"
    command = f"run `neuroledger validate {dataset}`"
    if not path.exists():
        missing = absent(catalog, "datasets", dataset)
        if missing is not None:
            return replace(missing, fix=f"{missing.fix}, then {command}")
        return Finding(
            "data.not-validated", "error", where, "it has not been validated", command
        )
    report = read_report(path)
    if report is None:
        what = f"{catalog.shown(path)} cannot be read or was edited by hand"
        return Finding("data.report-edited", "error", where, what, command)
    if report.identity != identity(spec, map(catalog.dataset, spec.members)):
        what = "its spec or reader changed since it was validated"
        return Finding("data.report-stale", "error", where, what, command)
    if (
        report.stages.get("hash") == "failed"
    ):  # written by earlier versions; it was about a machine's copy of the files
        return Finding(
            "data.not-validated",
            "error",
            where,
            "its files were not validated yet",
            command,
        )
    if not report.success:
        first = report.errors[0]
        count = len(report.errors)
        more = f" and {count - 1} more" if count > 1 else ""
        what = f"it failed validation: {first.where}: {first.what}{more}"
        return Finding(
            "data.invalid", "error", where, what, f"see {catalog.shown(path)}"
        )
    return None


def is_valid(catalog: Catalog, dataset: str) -> bool:
    """Whether this data set has a valid report for its current spec and reader."""
    return refusal(catalog, dataset) is None


def _payload(report: ValidationReport) -> str:
    return sha256_of(report.model_dump(mode="json", exclude={"payload_sha256"}))
