"""Verification of records, optionally by recomputation.

What this machine could not look at is not checked: it is neither confirmed nor contradicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neuroledger.data.integrity import verified_files
from neuroledger.display import Display
from neuroledger.engine.checked import (
    Confirmed,
    Contradicted,
    Evidence,
    Origin,
    Undefined,
    Verified,
    contradicted,
    not_checked,
)
from neuroledger.engine.outcome import Pending, pending_for
from neuroledger.engine.plan import Identities, Job
from neuroledger.engine.records.evidence import signers_of
from neuroledger.engine.records.inputs import Request
from neuroledger.engine.records.signatures import sign, signer_in
from neuroledger.engine.records.summary import Known, Summary, known_now
from neuroledger.errors import (
    CODES,
    DataError,
    Finding,
    MissingError,
    NeuroLedgerError,
    PendingError,
    RequestError,
    SpecError,
    UnavailableError,
    about_pair,
)
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import json_files

if TYPE_CHECKING:
    from neuroledger.engine.record import Record
    from neuroledger.engine.session import Session

__all__ = ["verify"]


def verify(
    catalog: Catalog,
    paths: Sequence[Path],
    *,
    recompute: bool,
    display: Display,
    signers: Path | None = None,
    key: Path | None = None,
) -> list[Verified]:
    """Return what is known of each record at ``paths`` (default: all records).

    A record is edited if its hash does not match its content, and stale if the current specs and components give another
    identity. Its data changed if a file differs from its pin; every file is hashed again. This does not show that the
    numbers are right, because an edited record can be hashed again.

    A record whose data, weights or packages are not on this machine, or whose specs are invalid, is not checked. A failed
    record that nothing contradicts is undefined.

    With ``recompute``, everything that the inputs determine is computed again, without a cache, and compared. Reproduced
    records are signed with the SSH key ``key``. Signatures are verified against ``signers``, a file of allowed signers
    (default: that of the repository, if any).

    Raises
    ------
    RequestError
        A path does not exist.
    """
    signers = signers or signers_of(catalog.root)
    chosen = [path.absolute() for path in paths]
    chosen = chosen or json_files(catalog.root / "results" / "records")
    desk = _Desk(catalog, recompute)
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise RequestError(f"{missing} does not exist")
    results = list[Verified]()
    signs = key is not None and recompute
    found = known_now(catalog.root, chosen)
    for number, (path, known) in enumerate(zip(chosen, found, strict=True)):
        display.progress("verifying", number, len(chosen))
        result = _verified(desk, path, known)
        if not signs:
            result = _with_signer(catalog.root, path, known, result, signers)
        results.append(result)
    display.progress("verifying", len(chosen), len(chosen))
    if key is None or not signs:
        return results
    results = _sign_reproduced(catalog.root, chosen, results, key)
    found = known_now(catalog.root, chosen)
    return [
        _with_signer(catalog.root, path, known, result, signers)
        for path, known, result in zip(chosen, found, results, strict=True)
    ]


def _sign_reproduced(
    root: Path, paths: Sequence[Path], results: list[Verified], key: Path
) -> list[Verified]:
    """Sign all reproduced records together, and return the results with these words."""
    from neuroledger.engine.record import read_record

    reproduced = [result.evidence.origin is Origin.RECOMPUTED for result in results]
    sign(
        root,
        [
            read_record(path)
            for path, good in zip(paths, reproduced, strict=True)
            if good
        ],
        key,
    )
    signed = list[Verified]()
    for result, good in zip(results, reproduced, strict=True):
        if good:
            what = f"{result.finding.what}; signed with {key.name}"
        else:
            what = result.finding.what
        signed.append(replace(result, finding=replace(result.finding, what=what)))
    return signed


def _with_signer(
    root: Path,
    path: Path,
    known: Known | DataError,
    result: Verified,
    signers: Path | None,
) -> Verified:
    """Return the result with the signer of the record.

    A signature says nothing about a record that is contradicted, and states no reason why a pair is undefined.
    """
    if isinstance(known, DataError):  # it could not be read, and so was not checked
        return result
    if isinstance(result.checked, Contradicted | Undefined):
        return result
    signer = signer_in(root, known.summary, signers, path=path)
    if signer.broken and known.summary.judged_version is not None:
        # The record was refreshed: it is another text than the one that was signed, and says why.
        return _stated(result)
    if signer.broken:
        words = "the signature does not match the record, or its signer is not among the allowed signers"
        finding = Finding(
            "record.signature", "error", result.finding.where, words, "sign it again"
        )
        return Verified(finding, Contradicted(words))
    if not signer.name:
        return _stated(result)
    reproduced = result.evidence.origin is Origin.RECOMPUTED
    evidence = Evidence(Origin.RECOMPUTED if reproduced else Origin.SIGNED, signer.name)
    if isinstance(result.checked, Confirmed):
        result = replace(result, finding=replace(result.finding, code="record.signed"))
    return _stated(replace(result, evidence=evidence))


def _stated(result: Verified) -> Verified:
    """Return the result with the evidence in its words."""
    words = f"{result.finding.what}; its numbers are {result.evidence}"
    return replace(result, finding=replace(result.finding, what=words))


@dataclass
class _Desk:
    """What the checks of several records share.

    Attributes
    ----------
    sessions
        A session for each request of a recomputation.
    identities
        What determines the outcome of the jobs of each request.
    hashed
        What is missing or damaged of each data set and model whose files were hashed, or None.
    folders
        How the folders of records are shown.
    """

    catalog: Catalog
    recompute: bool
    sessions: dict[Request, Session] = field(default_factory=dict)
    identities: dict[Request, Identities] = field(default_factory=dict)
    hashed: dict[tuple[str, str], PendingError | None] = field(default_factory=dict)
    folders: dict[Path, str] = field(default_factory=dict)

    def shown(self, folder: Path) -> str:
        """Return how a folder of records is shown."""
        if folder not in self.folders:
            self.folders[folder] = self.catalog.shown(folder.resolve())
        return self.folders[folder]


def _verified(desk: _Desk, path: Path, known: Known | DataError) -> Verified:
    """Return what is known of a record: the first check that ends decides."""
    place = f"{desk.shown(path.parent)}/{path.name}"
    if isinstance(known, DataError):
        return _unreadable(known, place)
    record = known.summary
    problem = _of_content(record, path, place)
    if problem is not None:
        return problem
    job = _current_job(desk, known, place)
    if isinstance(job, Verified):
        return job
    if not desk.recompute and record.status == "failed":
        finding = Finding("record.failed", "note", place, record.reason)
        return Verified(finding, Undefined(record.reason))
    problem = _missing_files(desk, record, place)
    if problem is not None:
        return problem
    if desk.recompute:
        return _recomputed(desk, known.record(), job, place)
    return _current(record, place)


def _unreadable(error: DataError, place: str) -> Verified:
    """Return that a file is no record, or that this machine cannot read it."""
    if about_pair(error):
        return contradicted("record.unreadable", place, str(error))
    words = "the record cannot be read"
    return not_checked("record.not-checked", place, words, str(error))


def _of_content(record: Summary, path: Path, place: str) -> Verified | None:
    """Return what is wrong with a file that is a record: edited, or the record of another pair; None if nothing is."""
    if not record.intact:
        words = "its content does not match its own hash"
        return contradicted("record.edited", place, words)
    if (record.benchmark, record.model) != (path.parent.name, path.stem):
        words = f"the file contains the record of {record.benchmark} · {record.model}"
        return contradicted(
            "record.misplaced", place, words, "restore both records from git"
        )
    return None


def _current_job(desk: _Desk, known: Known, place: str) -> Job | Verified:
    """Return the job of a record if its present inputs are those of the record, or what changed."""
    record = known.summary
    request = Request(record.seed, record.limit, record.device)
    try:
        benchmark = desk.catalog.benchmark(record.benchmark)
        identities = desk.identities.setdefault(
            request, Identities(desk.catalog, request)
        )
        job = identities.job(benchmark, record.model)
    except SpecError as error:
        pending = pending_for(error)
        return not_checked(
            "record.not-checked",
            place,
            "an invalid spec",
            pending.reason,
            pending.command,
        )
    except NeuroLedgerError as error:
        return contradicted("record.stale", place, str(error))
    if job.id == record.id:
        return job
    changed = ", ".join(job.inputs.changed_from(known.record().inputs))
    return contradicted("record.stale", place, f"changed since: {changed}")


def _missing_files(desk: _Desk, record: Summary, place: str) -> Verified | None:
    """Return what is missing or damaged of the data and weights of a record, or None."""
    dataset = desk.catalog.benchmark(record.benchmark).dataset
    for what, kind, id in (
        ("data", "datasets", dataset),
        ("weights", "models", record.model),
    ):
        problem = _hash_once(desk, kind, id)
        if problem is not None:
            missing = isinstance(problem, MissingError | UnavailableError)
            code = "record.data-missing" if missing else "record.data-changed"
            words = f"{what} {'missing' if missing else 'damaged'}"
            return not_checked(code, place, words, problem.message, problem.command)
    return None


def _current(record: Summary, place: str) -> Verified:
    """Return that the inputs of a record are current."""
    earlier = record.earlier_version
    words = "its inputs are current"
    fix = ""
    if earlier is not None:
        from neuroledger.engine.records.reproduced import REFRESH, of_version

        words = f"{words}; {of_version(earlier)}"
        fix = REFRESH
    return Verified(Finding("record.current", "ok", place, words, fix), Confirmed())


def _recomputed(desk: _Desk, record: Record, job: Job, place: str) -> Verified:
    """Compute a record again, and compare."""
    asked = record.request
    request = Request(asked.seed, asked.limit, asked.device)
    from neuroledger.engine.records.reproduced import compared
    from neuroledger.engine.run import run_job
    from neuroledger.engine.session import Session

    session = desk.sessions.setdefault(request, Session(desk.catalog, request))
    again, _ = run_job(session, job)
    if isinstance(again, Pending):
        return not_checked(
            "record.not-checked", place, CODES[again.code], again.reason, again.command
        )
    return compared(place, record, again)


def _hash_once(desk: _Desk, kind: str, id: str) -> PendingError | None:
    """Hash all files of a data set or model once per run; return what is missing or damaged, or None."""
    if (kind, id) not in desk.hashed:
        try:
            verified_files(desk.catalog, kind, id, trust_memory=False)
            desk.hashed[kind, id] = None
        except PendingError as error:
            desk.hashed[kind, id] = error
    return desk.hashed[kind, id]
