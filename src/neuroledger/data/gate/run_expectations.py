"""The third stage of the gate: check a data set against its declared expectations and those for every data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.expectations import Inquiry, Subject, UnaskableError, inquire
from neuroledger.data.gate.gx_queries import Answer
from neuroledger.data.gate.signatures import Signature
from neuroledger.data.gate.validation import CheckResult, Contents, Repetitions
from neuroledger.errors import (
    DataError,
    Finding,
    UnavailableError,
    about_pair,
    package_missing,
)
from neuroledger.spec import expectations as say
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.expectations import Check
from neuroledger.spec.kinds import DatasetSpec

__all__ = ["examine", "has_images", "remedy"]

IMAGES: Final = (
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".webp",
    ".ppm",
)
_ABOUT_FILES: Final = {say.FilesExist, say.FilesDecode, say.FilesMatchSha256}


@dataclass(frozen=True)
class _Item:
    """An expectation about one part; ``place`` is its path in the spec, empty if it applies to every data set."""

    part: str
    expectation: say.Check
    place: str

    @property
    def name(self) -> str:
        return str(getattr(self.expectation, "check", ""))


class Examined(TypedDict):
    """Fields of a validation report: those that the expectations state, and those that describe the data."""

    findings: tuple[Finding, ...]
    checks: tuple[CheckResult, ...]
    great_expectations: str
    contents: NotRequired[dict[str, Contents]]
    repetitions: NotRequired[tuple[Repetitions, ...]]
    signatures: NotRequired[tuple[Signature, ...]]


def examine(
    catalog: Catalog, spec: DatasetSpec, data: Dataset, data_docs: Path | None
) -> Examined:
    """``findings``, ``checks`` and the version of ``great_expectations``, for the validation report."""
    items = [*_declared_items(spec), *_default_items(spec, data)]
    decoded = has_images(data) or any(
        isinstance(item.expectation, say.FilesDecode) for item in items
    )
    subject = Subject(
        data.stimuli, data.assembly, decoded=decoded, content=data.content
    )
    compiled = [_compile(item, subject) for item in items]
    inquiries = [inquiry for inquiry in compiled if isinstance(inquiry, Inquiry)]
    answers, version = _ask(inquiries, spec, data_docs)
    remaining = iter(answers)
    findings = [*_undeclared_parts(catalog, spec, data)]
    checks: list[CheckResult] = []
    for item, inquiry in zip(items, compiled, strict=True):
        if isinstance(inquiry, UnaskableError):
            about = item.part
            breaches = [str(inquiry)]
            do = inquiry.do
        else:
            about = inquiry.facts.title
            breaches = _breaches(inquiry, next(remaining))
            do = remedy(item.expectation, _spec_path(catalog, spec))
        where = _where(spec, item, about)
        checks.append(_check_result(item, about, success=not breaches))
        findings += [_finding(item, what, where, do) for what in breaches]
    return {
        "findings": tuple(findings),
        "checks": tuple(checks),
        "great_expectations": version,
    }


def _compile(item: _Item, subject: Subject) -> Inquiry | UnaskableError:
    try:
        return inquire(item.expectation, item.part, subject)
    except UnaskableError as error:
        return error
    except DataError as error:
        if not about_pair(error):
            raise
        return UnaskableError(
            str(error),
            "drop the expectation, or let the reader return what it is about",
        )


def _ask(
    inquiries: list[Inquiry], spec: DatasetSpec, data_docs: Path | None
) -> tuple[list[tuple[Answer, ...]], str]:
    if not inquiries:
        return [], ""
    try:
        from neuroledger.data.gate.gx_suites import answers, great_expectations_version
    except ModuleNotFoundError as error:
        words = f"data set {spec.id!r} has to be validated first, which needs Great Expectations ({error})"
        raise UnavailableError(
            words, package_missing("great_expectations").command
        ) from error
    return answers(
        inquiries, private=spec.access == "private", data_docs=data_docs
    ), great_expectations_version()


def _declared_items(spec: DatasetSpec) -> Iterator[_Item]:
    for part in ("stimuli", "assembly"):
        for i, expectation in enumerate(getattr(spec.expectations, part)):
            yield _Item(part, expectation, f"expectations.{part}[{i}]")


def _default_items(spec: DatasetSpec, data: Dataset) -> Iterator[_Item]:
    """Expectations for every data set, except those that its spec declares itself."""
    declared = set(map(type, (*spec.expectations.stimuli, *spec.expectations.assembly)))
    stimuli = data.stimuli
    assembly = data.assembly
    has_files = (
        stimuli is not None and (stimuli.archive or stimuli.contents) is not None
    )
    if has_files and not declared & _ABOUT_FILES:
        yield _Item("stimuli", say.FilesExist(check="files_exist"), "")
    if assembly is None:
        return
    if say.ValuesFinite not in declared and assembly.dtype.kind == "f":
        yield _Item("assembly", say.ValuesFinite(check="values_finite"), "")
    alignable = stimuli is not None and "stimulus_id" in assembly.coords
    if alignable and say.Aligned not in declared:
        yield _Item("assembly", say.Aligned(check="aligned"), "")


def has_images(data: Dataset) -> bool:
    """Whether any stimulus file has the suffix of an image; images are decoded even if the spec does not declare it."""
    if data.stimuli is None or "filename" not in data.stimuli.table.columns:
        return False
    return bool(
        data.stimuli.table["filename"]
        .astype(str)
        .str.lower()
        .str.endswith(IMAGES)
        .any()
    )


def _undeclared_parts(
    catalog: Catalog, spec: DatasetSpec, data: Dataset
) -> Iterator[Finding]:
    """An error for each part without declared expectations, which would pass with any content."""
    for part, content in (("stimuli", data.stimuli), ("assembly", data.assembly)):
        if content is not None and not getattr(spec.expectations, part):
            do = f"declare what must be true of them, under `expectations: {{{part}: […]}}`"
            where = f"{_spec_path(catalog, spec)}, expectations.{part}"
            yield Finding(
                "data.undeclared",
                "error",
                where,
                f"nothing is declared of the {part}",
                do,
            )


def _breaches(inquiry: Inquiry, answers: tuple[Answer, ...]) -> list[str]:
    pairs = zip(inquiry.questions, answers, strict=True)
    return [
        answer.error or question.breach(answer)
        for question, answer in pairs
        if not answer.success
    ]


def _finding(item: _Item, what: str, where: str, do: str) -> Finding:
    if item.expectation.why:
        why = f" ({item.expectation.why})"
    else:
        why = ""
    return Finding(
        f"expectation.{item.name}", item.expectation.severity, where, what + why, do
    )


def _check_result(item: _Item, about: str, *, success: bool) -> CheckResult:
    return CheckResult(
        part=item.part,
        check=item.name,
        about=about + _column(item),
        says=_declaration(item.expectation),
        declared=bool(item.place),
        severity=item.expectation.severity,
        success=success,
    )


def _column(item: _Item) -> str:
    column = getattr(item.expectation, "column", None)
    if column:
        return f", {column}"
    return ""


def _where(spec: DatasetSpec, item: _Item, about: str) -> str:
    if item.place:
        place = f" ({item.place})"
    else:
        place = ""
    return f"data set {spec.id}, {about}{_column(item)}{place}"


def _spec_path(catalog: Catalog, spec: DatasetSpec) -> str:
    return catalog.shown(catalog.entry("datasets", spec.id).path)


def _declaration(expectation: say.Check) -> str:
    """The declared fields of an expectation in words, without those that the report shows elsewhere."""
    plain = expectation.model_dump(
        mode="json",
        exclude_defaults=True,
        exclude={"check", "column", "severity", "why"},
    )
    return "; ".join(
        f"{name} {_words(value, ranges=name == 'sizes')}"
        for name, value in plain.items()
    )


def _words(value: object, *, ranges: bool) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{name}: {_words(inner, ranges=ranges)}" for name, inner in value.items()
        )
    if isinstance(value, list):
        return (" to " if ranges else ", ").join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


OTHERWISE: Final = "correct the values"
REMEDIES: Final[Mapping[str, str]] = {
    "unique": "give every row a value of its own, or drop the rows that repeat",
    "unique_together": "drop the rows that repeat, or name the column that tells them apart",
    "not_null": "fill in the missing values, or drop their rows",
    "row_count": "add or drop rows until the count is right",
    "columns": "add, rename or drop columns of the stimulus table",
    "files_exist": "add the files to the archive, or drop their rows from the table",
    "files_decode": "replace the damaged files, or convert them to the declared mode and size",
    "files_match_sha256": "put the right files into the archive, or correct the hashes in the table",
    "dims": "transpose or rename the dimensions in the reader",
    "shape": "find out which items are missing or surplus",
    "coords": "let the reader attach the coordinates, complete",
    "dtype": "let the reader convert the values",
    "values_finite": "drop the items with missing or infinite values, or declare the padding with `missing`",
    "values_between": "look for wrong units and artefacts",
    "values_vary": "drop the sites that recorded nothing",
    "content": "prepare the data with the library versions and on the platform that they were pinned with",
    "sampling_rate": "correct time_bin_start, or the attribute sampling_rate",
    "channels": "order and name the recording sites as declared",
    "units": "convert the values, and set the attribute units",
    "aligned": "use the same stimulus_id values in the stimulus table and in the assembly",
    "repetitions": "find out which presentations are missing or surplus",
}


def remedy(expectation: Check, spec_path: str) -> str:
    """Advice for a violated expectation: correct the data, or the declaration if the data are right."""
    name = str(getattr(expectation, "check", ""))
    return f"{REMEDIES.get(name, OTHERWISE)}; if the data are right, correct `{name}` in {spec_path}"
