"""Validate a data set: verify its files, read it, check its expectations, and write the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import xarray as xr

from neuroledger.data.assembly import check
from neuroledger.data.clocks import RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.clocks import count_empty, judge
from neuroledger.data.gate.repetitions import repetitions_of
from neuroledger.data.gate.rows import row_findings
from neuroledger.data.gate.run_expectations import Examined, examine
from neuroledger.data.gate.signatures import (
    are_current,
    problems_of,
    signatures_of,
)
from neuroledger.data.gate.validation import (
    Contents,
    ValidationReport,
    identity,
    is_valid,
    read_report,
    refusal,
    remember_here,
    report_path,
    seal,
    seen_here,
    write_report,
)
from neuroledger.data.integrity import absent, pinned_files, remembering, verify_file
from neuroledger.data.load import read_dataset
from neuroledger.errors import (
    AssemblyError,
    DataError,
    Finding,
    MissingError,
    RequestError,
    SpecError,
    StorageError,
    UnavailableError,
    UncheckedError,
    about_pair,
)
from neuroledger.spec.base import sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.registry import get

__all__ = [
    "is_here",
    "is_valid",
    "refusal",
    "refused_error",
    "refused_here",
    "trial",
    "validate",
]

NOT_REACHED: Final = "not reached"


def is_here(catalog: Catalog, id: str) -> bool:
    """Whether at least one file of the data set exists on this machine."""
    folder, pins = pinned_files(catalog, "datasets", id)
    return folder.is_dir() and any((folder / name).exists() for name in pins)


def validate(
    catalog: Catalog, id: str, *, force: bool = False, data_docs: Path | None = None
) -> ValidationReport:
    """Validate one data set and write the report to ``results/validation/<id>.json``.

    There are three stages, and each requires the one before: the files match their pins (hash), the reader's result
    follows the conventions (structure), the expectations are met. If there is a valid report for the same inputs, only
    the first stage is repeated, unless the spec names other signatures. The members of a data set are validated before it,
    and must be valid.

    Parameters
    ----------
    catalog
        The repository's specs.
    id
        The data set.
    force
        Run all stages even if nothing changed, and hash every file again.
    data_docs
        Folder for Great Expectations' own pages, which go into a subfolder named after the data set; implies ``force``.

    Raises
    ------
    UnavailableError
        The spec declares the data unavailable.
    RequestError
        ``data_docs`` is given for private data, whose values the pages would quote.
    MissingError, IntegrityError, StorageError
        Files are missing, differ from their pins or cannot be read here; no report is written, since this says nothing
        about the data.
    StorageError
        The report cannot be written.
    SpecError
        The spec is invalid.
    """
    spec = catalog.dataset(id)
    if spec.unavailable is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {spec.unavailable}")
    if data_docs is not None and spec.access == "private":
        raise RequestError(
            f"data set {id!r} is private, and Great Expectations' pages quote values: omit the pages"
        )
    force = force or data_docs is not None
    for member in spec.members:
        validate(catalog, member, force=force)
    with remembering(None if force else catalog.root / ".cache"):
        _require_files(catalog, spec, trust_memory=not force)
    path = report_path(catalog.root, id)
    existing = _valid_report(catalog, spec)
    if existing is None:
        report = seal(_report(catalog, spec, data_docs))
    elif not force and _is_settled(catalog, spec, existing):
        return existing
    else:
        report = seal(_report(catalog, spec, data_docs))
        # A report that is committed stays as it is.
        if _same_verdict(existing, report) and are_current(spec, existing.signatures):
            report = existing
    write_report(path, report)
    remember_here(catalog, report)
    return report


def _valid_report(catalog: Catalog, spec: DatasetSpec) -> ValidationReport | None:
    """The written report, if the data set and its members passed it with the same inputs."""
    if refusal(catalog, spec.id) is not None:
        return None
    return read_report(report_path(catalog.root, spec.id))


def _is_settled(catalog: Catalog, spec: DatasetSpec, report: ValidationReport) -> bool:
    """Whether a valid report was made by this machine, and holds the signatures that the spec names."""
    return seen_here(catalog, report) and are_current(spec, report.signatures)


def _same_verdict(one: ValidationReport, other: ValidationReport) -> bool:
    """Whether two reports differ only in the version of Great Expectations and in what their pages show."""
    without = {"great_expectations", "payload_sha256", "signatures"}
    return one.model_dump(exclude=without) == other.model_dump(exclude=without)


def refused_here(catalog: Catalog, id: str) -> Finding | None:
    """Why the data set cannot be scored, or None; a report from another machine is first made again on this one."""
    for member in catalog.dataset(id).members:
        problem = refused_here(catalog, member)
        if problem is not None:
            return problem
    finding = refusal(catalog, id)
    if finding is not None:
        return finding
    report = read_report(report_path(catalog.root, id))
    if report is None or not seen_here(catalog, report):
        validate(catalog, id)
    return refusal(catalog, id)


def refused_error(catalog: Catalog, id: str, finding: Finding) -> DataError:
    """Return the error for data that cannot be scored: about the data if they are invalid, else about this machine."""
    words = f"{finding.where}: {finding.what}"
    if finding.code == "data.invalid":
        return DataError(f"{words}; {finding.fix}")
    if finding.code == "data.missing":
        fetch = f"neuroledger fetch {id}"
        has_report = read_report(report_path(catalog.root, id)) is not None
        return MissingError(
            words, fetch if has_report else f"{fetch} && neuroledger validate {id}"
        )
    return UncheckedError(words, f"neuroledger validate {id}")


def trial(
    catalog: Catalog, id: str, files: Mapping[str, Path], data: Dataset | None = None
) -> tuple[Finding, ...]:
    """Findings of the stages after the first for data set ``id``, read from ``files`` unless given as ``data``.

    No report is written.
    """
    data, problems = _read(catalog, catalog.dataset(id), files, data)
    if data is None or problems:
        return tuple(problems)
    spec = catalog.dataset(id)
    return (*_row_findings(spec, data), *examine(catalog, spec, data, None)["findings"])


def _report(
    catalog: Catalog, spec: DatasetSpec, data_docs: Path | None
) -> ValidationReport:
    """The report on a data set whose files match their pins."""
    stages = {"hash": "passed", "structure": "passed", "expectations": NOT_REACHED}
    folder, pins = pinned_files(catalog, "datasets", spec.id)
    data, problems = _read(catalog, spec, {name: folder / name for name in pins})
    private = spec.access == "private"
    if data is None or problems:
        stages["structure"] = "failed"
        result: Examined = {
            "findings": tuple(problems),
            "checks": (),
            "contents": {},
            "great_expectations": "",
        }
    else:
        result = _examined(catalog, spec, data, data_docs)
        failed = any(finding.severity == "error" for finding in result["findings"])
        stages["expectations"] = "failed" if failed else "passed"
    reader = spec.reader.name if spec.reader is not None else ""
    return ValidationReport.model_validate(
        {
            "dataset": spec.id,
            "version": spec.version,
            "title": spec.title,
            "access": spec.access,
            "simulated": spec.simulated,
            "identity": identity(spec, map(catalog.dataset, spec.members)),
            "spec_sha256": spec_sha256(spec),
            "suite_sha256": sha256_of(spec.expectations.model_dump(mode="json")),
            "reader": {"name": reader, "version": get("reader", reader).version},
            "files": {
                name: {"sha256": pin.sha256, "size": pin.size}
                for name, pin in pins.items()
            },
            "stages": stages,
            "clocks": () if data is None or private else data.clocks,
            **result,
        }
    )


def _examined(
    catalog: Catalog, spec: DatasetSpec, data: Dataset, data_docs: Path | None
) -> Examined:
    """The fields of a report that describe readable data."""
    private = spec.access == "private"
    result = examine(catalog, spec, data, data_docs / spec.id if data_docs else None)
    result["contents"] = _contents(data)
    result["repetitions"] = tuple(
        line
        for name, assembly in _assemblies(data)
        for line in repetitions_of(assembly, name, named=not private)
    )
    texts = ("withheld: private data",) if private and data.notes else data.notes
    notes = [
        Finding("data.left-out", "note", f"data set {spec.id}", text) for text in texts
    ]
    result["signatures"] = signatures_of(spec, data.assembly)
    result["findings"] = (
        *_row_findings(spec, data),
        *result["findings"],
        *problems_of(spec, result["signatures"]),
        *notes,
    )
    return result


def _require_files(catalog: Catalog, spec: DatasetSpec, *, trust_memory: bool) -> None:
    """Require that every file is here and matches its pin.

    Raises
    ------
    MissingError, IntegrityError, StorageError
        The first problem, with the number of others and the command that fixes it.
    """
    missing = absent(catalog, "datasets", spec.id)
    if missing is not None:
        raise MissingError(
            f"{missing.where}: {missing.what}", f"neuroledger fetch {spec.id}"
        )
    folder, pins = pinned_files(catalog, "datasets", spec.id)
    memory = catalog.root / ".cache" if trust_memory else None
    problems = list[StorageError]()
    for name, pin in sorted(pins.items()):
        try:
            verify_file(folder / name, pin, memory=memory)
        except StorageError as error:
            problems.append(error)
    if not problems:
        return
    first = problems[0]
    count = len(problems)
    more = f" and {count - 1} more" if count > 1 else ""
    text = first.message.removeprefix(f"{catalog.root}/")
    raise type(first)(
        f"data set {spec.id!r}: {text}{more}", f"neuroledger fetch {spec.id} --force"
    )


def _read(
    catalog: Catalog,
    spec: DatasetSpec,
    files: Mapping[str, Path],
    data: Dataset | None = None,
) -> tuple[Dataset | None, list[Finding]]:
    where = f"data set {spec.id}"
    reader = spec.reader.name if spec.reader is not None else ""
    do = f"correct the files and renew their pins, or correct the fields of reader `{reader}` in the spec"

    def finding(what: str, place: str = where) -> Finding:
        return Finding("data.structure", "error", place, what, do)

    refused = [found for member in spec.members if (found := refusal(catalog, member))]
    if refused:
        return None, [finding(found.what, found.where) for found in refused]
    try:
        if data is None:
            data = read_dataset(catalog, spec.id, dict(files))
    except DataError as error:
        if not about_pair(error):
            raise
        return None, [finding(_quotable(spec, error))]
    if data.stimuli is None and data.assembly is None:
        return None, [finding("the reader returned neither stimuli nor an assembly")]
    findings = list[Finding]()
    for name, assembly in _assemblies(data):
        try:
            check(assembly, name=name)
        except AssemblyError as error:
            what = str(error).removeprefix(f"{name}: ")
            findings.append(finding(what, f"{where}, {name}"))
    if findings:
        return data, findings
    data = replace(data, clocks=count_empty(data.assembly, data.clocks))
    return data, _clock_findings(spec, where, data.clocks)


def _clock_findings(
    spec: DatasetSpec, where: str, clocks: Sequence[RecordingClocks]
) -> list[Finding]:
    findings = list(judge(clocks, where))
    if spec.access != "private":
        return findings
    what = "its clocks do not belong together"
    return [replace(one, where=where, what=what) for one in findings]


def _row_findings(spec: DatasetSpec, data: Dataset) -> tuple[Finding, ...]:
    """Errors about rows that are not measurements of their own, of every assembly."""
    return tuple(
        finding
        for name, assembly in _assemblies(data)
        for finding in row_findings(
            assembly, f"data set {spec.id}, {name}", quote=spec.access != "private"
        )
    )


def _quotable(spec: DatasetSpec, error: Exception) -> str:
    """The message, unless it could quote private data."""
    if spec.access == "private" and not isinstance(error, SpecError):
        return f"the reader raised {type(error).__name__}; its message is withheld from the report: private data"
    return str(error)


def _assemblies(data: Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    if data.assembly is not None:
        yield "assembly", data.assembly
    yield from (
        (f"assembly {name}", extra) for name, extra in sorted(data.extras.items())
    )


def _contents(data: Dataset) -> dict[str, Contents]:
    """Sizes, types and columns of each part, which may be shown for private data too."""
    contents = {
        name: Contents(
            dims=tuple(map(str, assembly.dims)),
            shape=tuple(map(int, assembly.shape)),
            dtype=str(assembly.dtype),
            sha256=data.content if assembly is data.assembly else "",
        )
        for name, assembly in _assemblies(data)
    }
    if data.stimuli is not None:
        columns = tuple(sorted(map(str, data.stimuli.table.columns)))
        contents["stimuli"] = Contents(
            dims=("stimuli",), shape=(len(data.stimuli),), columns=columns
        )
    return contents
