"""The validation report: what was examined, what was found, and whether it still speaks for the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from neuroledger.data.fetch import absent
from neuroledger.errors import Finding
from neuroledger.spec.base import sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import json_object
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.registry import get
from neuroledger.store.files import write_json

__all__ = [
    "CheckResult", "Contents", "ValidationReport", "identity", "is_valid", "read_report", "refusal",
    "remember_here", "report_path", "seal", "seen_here", "write_report",
]  # fmt: skip

SCHEMA_VERSION: Final = 1
# Rises whenever the gate itself can come to another verdict on the same data.
GATE_VERSION: Final = 1

Outcome = Literal["passed", "failed", "not reached"]


class CheckResult(BaseModel):
    """One expectation and whether it held."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: str
    """stimuli or assembly"""
    check: str
    """Name in the vocabulary."""
    about: str
    """The table it is about, and the column."""
    says: str
    """What is declared, in words."""
    declared: bool
    """False for what holds of every data set without being declared."""
    severity: str
    success: bool


class Contents(BaseModel):
    """How much there is of one part, along what; never values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = ""
    columns: tuple[str, ...] = ()
    sha256: str = ""
    """Of prepared signals, over values and coordinates; it is not written for what has none."""

    @model_serializer(mode="wrap")
    def _plain(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = plain(self)
        return {name: value for name, value in said.items() if name != "sha256" or value}


class ValidationReport(BaseModel):
    """Everything the gate has to say about one data set; the same inputs give the same report, byte for byte."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    dataset: str
    version: int
    title: str
    access: str
    simulated: bool
    identity: str
    """SHA-256 of what the verdict depends on: spec with pins and expectations, reader, gate."""
    spec_sha256: str
    suite_sha256: str
    """SHA-256 of the expectations alone."""
    reader: dict[str, Any]
    """Name and version."""
    files: dict[str, dict[str, Any]]
    """SHA-256 and size in bytes of each file that was verified."""
    great_expectations: str
    """Version; empty when the expectations were not reached."""
    stages: dict[str, Outcome]
    contents: dict[str, Contents]
    """By part: stimuli, assembly, and any further assemblies."""
    checks: tuple[CheckResult, ...]
    findings: tuple[Finding, ...]
    payload_sha256: str = ""

    @property
    def success(self) -> bool:
        """Whether all three stages passed; warnings do not count."""
        return set(self.stages.values()) == {"passed"}

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the data set from being scored on."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def intact(self) -> bool:
        """Whether the report is as it was written, not edited since."""
        return self.payload_sha256 == _payload(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the report's file."""
        plain = self.model_dump(mode="json")
        return {**plain, "findings": [each.to_dict() for each in self.findings], "success": self.success}

    def __str__(self) -> str:
        if self.success:
            held = sum(check.success for check in self.checks)
            head = f"✓ {self.dataset}: {len(self.files)} files verified, {held} of {len(self.checks)} expectations hold"
        else:
            stage = next((name for name, outcome in self.stages.items() if outcome == "failed"), "")
            head = f"✗ {self.dataset}: invalid, {len(self.errors)} found in stage {stage!r}"
        told = [f"  {line}" for finding in self.findings for line in str(finding).splitlines()]
        return "\n".join([head, *told])


def seal(report: ValidationReport) -> ValidationReport:
    """The report with the hash of its own content."""
    return report.model_copy(update={"payload_sha256": _payload(report)})


def identity(spec: DatasetSpec) -> str:
    """SHA-256 of everything that the verdict depends on, given that the files equal their pins."""
    reader = spec.reader
    return sha256_of(
        {
            "gate": GATE_VERSION,
            "spec": spec_sha256(spec),
            "reader": None if reader is None else [reader.name, get("reader", reader.name).version],
        }
    )


def report_path(root: Path, dataset: str) -> Path:
    """Where the report of a data set lies."""
    return root / "results" / "validation" / f"{dataset}.json"


def read_report(path: Path) -> ValidationReport | None:
    """The report at ``path``; None when there is none, or none that can be believed: unreadable, or edited."""
    try:
        plain = json_object(path.read_bytes())
        plain.pop("success", None)
        report = ValidationReport.model_validate(plain)
    except (OSError, ValueError, ValidationError, AttributeError):
        return None
    return report if report.intact else None


def write_report(path: Path, report: ValidationReport) -> bool:
    """Write the report atomically; False when the same report was there.

    Raises
    ------
    DataError
        The disk is full or read-only.
    """
    return write_json(path, report.to_dict())


def _mark(catalog: Catalog, dataset: str) -> Path:
    return catalog.root / ".cache" / "validated" / f"{dataset}.json"


def remember_here(catalog: Catalog, report: ValidationReport) -> None:
    """Note that this machine made the report: the hash in a report finds damage, and anybody can compute it."""
    write_json(_mark(catalog, report.dataset), {"payload_sha256": report.payload_sha256})


def seen_here(catalog: Catalog, report: ValidationReport) -> bool:
    """Whether this machine made the report itself, from the bytes that it had."""
    try:
        mark = json_object(_mark(catalog, report.dataset).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(mark == {"payload_sha256": report.payload_sha256})


def refusal(catalog: Catalog, dataset: str) -> Finding | None:
    """Why nothing may be scored on this data set, or None if the gate has let it pass.

    Looks at the report only: that the files still equal their pins is verified when they are loaded.
    """
    spec = catalog.dataset(dataset)
    path = report_path(catalog.root, dataset)
    where, command = f"data set {dataset!r}", f"run `neuroledger validate {dataset}`"
    if not path.exists():
        away = absent(catalog, "datasets", dataset)
        if away is not None:
            return replace(away, fix=f"{away.fix}, then {command}")
        return Finding("data.not-validated", "error", where, "it has not been validated", command)
    report = read_report(path)
    if report is None:
        what = f"{catalog.shown(path)} cannot be read or was edited by hand"
        return Finding("data.report-edited", "error", where, what, command)
    if report.identity != identity(spec):
        what = "its spec or reader changed since it was validated"
        return Finding("data.report-stale", "error", where, what, command)
    if not report.success:
        first, count = report.errors[0], len(report.errors)
        more = f" and {count - 1} more" if count > 1 else ""
        what = f"it failed validation: {first.where}: {first.what}{more}"
        return Finding("data.invalid", "error", where, what, f"see {catalog.shown(path)}")
    return None


def is_valid(catalog: Catalog, dataset: str) -> bool:
    """Whether the gate has let this data set pass, as its spec and reader are now."""
    return refusal(catalog, dataset) is None


def _payload(report: ValidationReport) -> str:
    return sha256_of(report.model_dump(mode="json", exclude={"payload_sha256"}))
