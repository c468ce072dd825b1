"""Validate a data set: verify its files, read it, check its expectations, and write the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import xarray as xr

from neuroledger.data.assembly import check
from neuroledger.data.dataset import Dataset
from neuroledger.data.fetch import folder_of
from neuroledger.data.gate.run_expectations import examine
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
from neuroledger.data.integrity import remembering, verify_file
from neuroledger.data.load import read_dataset
from neuroledger.errors import AssemblyError, DataError, Finding, RequestError, SpecError, UnavailableError
from neuroledger.spec.base import sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.registry import get

__all__ = ["is_here", "is_valid", "refusal", "refused_here", "trial", "validate"]

NOT_REACHED: Final = "not reached"


def is_here(catalog: Catalog, id: str) -> bool:
    """Whether at least one file of the data set exists on this machine."""
    folder = folder_of(catalog.root, "datasets", id)
    return folder.is_dir() and any((folder / name).exists() for name in catalog.dataset(id).files)


def validate(
    catalog: Catalog, id: str, *, force: bool = False, data_docs: Path | None = None
) -> ValidationReport:
    """Validate one data set and write the report to ``results/validation/<id>.json``.

    There are three stages, and each requires the one before: the files match their pins (hash), the reader's result
    follows the conventions (structure), the expectations are met. If there is a valid report for the same inputs, only
    the first stage is repeated.

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
    DataError
        The report cannot be written.
    """
    spec = catalog.dataset(id)
    if spec.unavailable is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {spec.unavailable}")
    if data_docs is not None and spec.access == "private":
        raise RequestError(
            f"data set {id!r} is private, and Great Expectations' pages quote values: omit the pages"
        )
    force = force or data_docs is not None
    with remembering(None if force else catalog.root / ".cache"):
        mismatches = list(_verify_files(catalog, spec, trust_memory=not force))
    path = report_path(catalog.root, id)
    old = None if force or mismatches else read_report(path)
    if old is not None and old.success and old.identity == identity(spec) and seen_here(catalog, old):
        return old
    report = seal(_report(catalog, spec, mismatches, data_docs))
    write_report(path, report)
    remember_here(catalog, report)
    return report


def refused_here(catalog: Catalog, id: str) -> Finding | None:
    """Why the data set cannot be scored, or None; a report from another machine is first made again on this one."""
    finding = refusal(catalog, id)
    if finding is not None:
        return finding
    report = read_report(report_path(catalog.root, id))
    if report is None or not seen_here(catalog, report):
        validate(catalog, id)
    return refusal(catalog, id)


def trial(
    catalog: Catalog, id: str, files: Mapping[str, Path], data: Dataset | None = None
) -> tuple[Finding, ...]:
    """Findings of the stages after the first for data set ``id``, read from ``files`` unless given as ``data``.

    No report is written.
    """
    data, problems = _read(catalog, catalog.dataset(id), files, data)
    if data is None or problems:
        return tuple(problems)
    return tuple(examine(catalog, catalog.dataset(id), data, None)["findings"])


def _report(
    catalog: Catalog, spec: DatasetSpec, mismatches: list[Finding], data_docs: Path | None
) -> ValidationReport:
    """The report on a data set, given the findings of the first stage."""
    stages = {"hash": "passed", "structure": NOT_REACHED, "expectations": NOT_REACHED}
    result: dict[str, Any] = {
        "findings": tuple(mismatches),
        "checks": (),
        "contents": {},
        "great_expectations": "",
    }
    if mismatches:
        stages["hash"] = "failed"
    else:
        folder = folder_of(catalog.root, "datasets", spec.id)
        data, problems = _read(catalog, spec, {name: folder / name for name in spec.files})
        stages["structure"] = "passed"
        if data is None or problems:
            stages["structure"] = "failed"
            result["findings"] = tuple(problems)
        else:
            result = examine(catalog, spec, data, data_docs / spec.id if data_docs else None)
            result["contents"] = _contents(data)
            texts = data.notes if spec.access != "private" else data.notes and ("withheld: private data",)
            notes = [Finding("data.left-out", "note", f"data set {spec.id}", text) for text in texts]
            result["findings"] = (*result["findings"], *notes)
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
            "identity": identity(spec),
            "spec_sha256": spec_sha256(spec),
            "suite_sha256": sha256_of(spec.expectations.model_dump(mode="json")),
            "reader": {"name": reader, "version": get("reader", reader).version},
            "files": {name: {"sha256": pin.sha256, "size": pin.size} for name, pin in spec.files.items()},
            "stages": stages,
            **result,
        }
    )


def _verify_files(catalog: Catalog, spec: DatasetSpec, *, trust_memory: bool) -> Iterator[Finding]:
    folder = folder_of(catalog.root, "datasets", spec.id)
    memory = catalog.root / ".cache" if trust_memory else None
    for name, pin in sorted(spec.files.items()):
        path = folder / name
        do = f"{'move it away, then ' if path.exists() else ''}run `neuroledger fetch {spec.id}`"
        try:
            verify_file(path, pin, memory=memory)
        except DataError as error:
            what = str(error).removeprefix(f"{path} ")
            yield Finding("data.hash", "error", catalog.shown(path), f"the file {what}", do)


def _read(
    catalog: Catalog, spec: DatasetSpec, files: Mapping[str, Path], data: Dataset | None = None
) -> tuple[Dataset | None, list[Finding]]:
    where = f"data set {spec.id}"
    reader = spec.reader.name if spec.reader is not None else ""
    do = f"correct the files and renew their pins, or correct the fields of reader `{reader}` in the spec"
    try:
        data = read_dataset(catalog, spec.id, dict(files)) if data is None else data
    except (DataError, SpecError) as error:
        return None, [Finding("data.structure", "error", where, _quotable(spec, error), do)]
    if data.stimuli is None and data.assembly is None:
        what = "the reader returned neither stimuli nor an assembly"
        return None, [Finding("data.structure", "error", where, what, do)]
    findings = list[Finding]()
    for name, assembly in _assemblies(data):
        try:
            check(assembly, name=name)
        except AssemblyError as error:
            what = str(error).removeprefix(f"{name}: ")
            findings.append(Finding("data.structure", "error", f"{where}, {name}", what, do))
    return data, findings


def _quotable(spec: DatasetSpec, error: Exception) -> str:
    """The message, unless it could quote private data."""
    if spec.access == "private" and not isinstance(error, SpecError):
        return (
            f"the reader raised {type(error).__name__}; its message is withheld from the report: private data"
        )
    return str(error)


def _assemblies(data: Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    if data.assembly is not None:
        yield "assembly", data.assembly
    yield from ((f"assembly {name}", extra) for name, extra in sorted(data.extras.items()))


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
        contents["stimuli"] = Contents(dims=("stimuli",), shape=(len(data.stimuli),), columns=columns)
    return contents
