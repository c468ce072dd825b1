"""Verification of records, optionally by recomputation.

What this machine could not look at is not checked: it is neither confirmed nor contradicted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from neuroledger.data.load import verified_files
from neuroledger.display import Display
from neuroledger.engine.checked import (
    Confirmed,
    Contradicted,
    Evidence,
    NotChecked,
    Origin,
    Undefined,
    Verified,
)
from neuroledger.engine.outcome import Pending, pending_for
from neuroledger.engine.plan import Job, inputs_of
from neuroledger.engine.record import PAYLOAD, Record, read_record, signers_of
from neuroledger.engine.refresh import earlier_version, without_intervals
from neuroledger.engine.run import run_job
from neuroledger.engine.session import Request, Session
from neuroledger.engine.signatures import sign, signer_in
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
from neuroledger.spec.base import sha256_of
from neuroledger.spec.catalog import Catalog
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.packed_deviations import parts_in
from neuroledger.stats.stored_score import judged_in
from neuroledger.stats.uncertainty import Part

__all__ = ["verify"]

# Other processors round differently, which mostly changes numbers by less than TOLERANCE. Iterative fits and models with
# feedback amplify rounding; then a difference below SHARE standard errors of the score counts as reproduced.
TOLERANCE: Final = 1e-8
SHARE: Final = 0.01
# Deviations are recorded with eleven significant bits.
HALF_PRECISION: Final = 4e-3
HALF_WIDTH: Final = (
    1.96  # standard errors from the value to either end of a 95 % interval
)
HASH: Final = re.compile(r"(?<=sha256 )[0-9a-f]{12,64}")
# The difference as text, and its distance in units of rounding, or None if it is not allowed.
Change = tuple[str, float | None]
REFRESH: Final = "`neuroledger refresh`"
AGAIN: Final = "compute it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"


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
    chosen = list(paths) or sorted(
        (catalog.root / "results" / "records").rglob("*.json")
    )
    sessions: dict[Request, Session] = {}
    hashed: dict[tuple[str, str], PendingError | None] = {}
    results = []
    for number, path in enumerate(chosen):
        if not path.is_file():
            raise RequestError(f"{path} does not exist")
        display.progress("verifying", number, len(chosen))
        results.append(_verified(catalog, path, recompute, sessions, hashed))
    display.progress("verifying", len(chosen), len(chosen))
    if key is not None and recompute:
        results = _sign_reproduced(catalog.root, chosen, results, key)
    return [
        _with_signer(catalog.root, path, result, signers)
        for path, result in zip(chosen, results, strict=True)
    ]


def _sign_reproduced(
    root: Path, paths: Sequence[Path], results: list[Verified], key: Path
) -> list[Verified]:
    """Sign all reproduced records together, and return the results with these words."""
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
        what = (
            f"{result.finding.what}; signed with {key.name}"
            if good
            else result.finding.what
        )
        signed.append(replace(result, finding=replace(result.finding, what=what)))
    return signed


def _with_signer(
    root: Path, path: Path, result: Verified, signers: Path | None
) -> Verified:
    """Return the result with the signer of the record.

    A signature says nothing about a record that is contradicted, and states no reason why a pair is undefined.
    """
    if isinstance(result.checked, Contradicted | Undefined):
        return result
    try:
        record = read_record(path)
    except DataError:  # it could not be read, and so was not checked
        return result
    signer = signer_in(root, record, signers, path=path)
    is_refreshed = judged_in(record.score or {}) is not None
    if (
        signer.broken and is_refreshed
    ):  # it is another text than the one that was signed, and says why
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


def _verified(
    catalog: Catalog,
    path: Path,
    recompute: bool,
    sessions: dict[Request, Session],
    hashed: dict[tuple[str, str], PendingError | None],
) -> Verified:
    place = catalog.shown(path.resolve())
    try:
        record = read_record(path)
        request = Request(**record.request)
    except (DataError, TypeError) as error:
        if isinstance(error, DataError) and not about_pair(error):
            return _not_checked(
                "record.not-checked", place, "the record cannot be read", str(error)
            )
        return _contradicted("record.unreadable", place, str(error))
    if not record.intact:
        return _contradicted(
            "record.edited", place, "its content does not match its own hash"
        )
    if (record.benchmark, record.model) != (path.parent.name, path.stem):
        words = f"the file contains the record of {record.benchmark} · {record.model}"
        return _contradicted(
            "record.misplaced", place, words, "restore both records from git"
        )
    try:
        inputs = inputs_of(
            catalog, catalog.benchmark(record.benchmark), record.model, request
        )
    except SpecError as error:
        pending = pending_for(error)
        return _not_checked(
            "record.not-checked",
            place,
            "an invalid spec",
            pending.reason,
            pending.command,
        )
    except NeuroLedgerError as error:
        return _contradicted("record.stale", place, str(error))
    if sha256_of(inputs) != record.id:
        names = sorted({*record.inputs, *inputs})
        changed = [
            name for name in names if record.inputs.get(name) != inputs.get(name)
        ]
        return _contradicted(
            "record.stale", place, f"changed since: {', '.join(changed)}"
        )
    if not recompute and record.status == "failed":
        words = (record.error or {}).get("message", "")
        return Verified(
            Finding("record.failed", "note", place, words), Undefined(words)
        )
    for kind, id in (
        ("datasets", catalog.benchmark(record.benchmark).dataset),
        ("models", record.model),
    ):
        problem = _hash_once(catalog, kind, id, hashed)
        if problem is not None:
            what = "data" if kind == "datasets" else "weights"
            missing = isinstance(problem, MissingError | UnavailableError)
            code = "record.data-missing" if missing else "record.data-changed"
            words = f"{what} {'missing' if missing else 'damaged'}"
            return _not_checked(code, place, words, problem.message, problem.command)
    if not recompute:
        earlier = earlier_version(record)
        words = "its inputs are current" + (
            "" if earlier is None else f"; {_of_version(earlier)}"
        )
        fix = "" if earlier is None else REFRESH
        return Verified(Finding("record.current", "ok", place, words, fix), Confirmed())
    session = sessions.setdefault(request, Session(catalog, request))
    again, _ = run_job(session, Job(record.model, record.benchmark, record.id, inputs))
    if isinstance(again, Pending):
        return _not_checked(
            "record.not-checked", place, CODES[again.code], again.reason, again.command
        )
    return _compared(place, record, again)


def _not_checked(
    code: str, place: str, reason: str, what: str, command: str = ""
) -> Verified:
    fix = f"`{command}`" if command else ""
    return Verified(
        Finding(code, "warning", place, f"not checked: {what}", fix),
        NotChecked(reason.rstrip(".")),
    )


def _contradicted(code: str, place: str, what: str, fix: str = AGAIN) -> Verified:
    return Verified(Finding(code, "error", place, what, fix), Contradicted(what))


def _compared(place: str, record: Record, again: Record) -> Verified:
    """Compare a record with its recomputation: same payload, same numbers within rounding, or a difference."""
    if record.status == again.status == "failed":
        kinds = [(item.error or {}).get("type") for item in (record, again)]
        if kinds[0] == kinds[1]:
            message = (again.error or {}).get("message", "")
            finding = Finding("record.failed", "note", place, f"fails again: {message}")
            return Verified(finding, Undefined(message))
    if again.payload() == record.payload_sha256:
        return _reproduced(place, "same payload")
    was, now = (
        item.environment.get("processor") or "unknown" for item in (record, again)
    )
    recorded, computed = (_plain(item, hashes=was == now) for item in (record, again))
    apart = _apart(record)
    if apart is not None:
        recorded, computed = (
            without_intervals(plain, of_controls_only=apart.of_controls_only)
            for plain in (recorded, computed)
        )
    # Controls without an interval have the tolerance of the score, which has the same units.
    allowed_of_controls = max(TOLERANCE, SHARE * _standard_error(again.score or {}))
    controls = recorded.pop("controls"), computed.pop("controls")
    pairs = [
        *_differences(recorded, computed, ("",), TOLERANCE),
        *_differences(*controls, ("", "controls"), allowed_of_controls),
    ]
    broken = [words for words, share in pairs if share is None]
    if broken:
        more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        where = "" if was == now else f" (computed for the processor {was}, here {now})"
        return _contradicted("record.not-reproduced", place, broken[0] + more + where)
    wide = [words for words, share in pairs if share and share > 1]
    within = (
        f"within {SHARE:g} standard errors: {wide[0]}"
        if wide
        else f"within {TOLERANCE:g}"
    )
    if apart is not None:
        words = f"recomputed: {within}; not checked: {apart.what}"
        if apart.of_controls_only and _verdicts(record) == _verdicts(again):
            return Verified(
                Finding("record.value-reproduced", "ok", place, words), Confirmed()
            )
        return Verified(
            Finding("record.not-checked", "warning", place, words, apart.fix),
            NotChecked(apart.what),
        )
    return _reproduced(place, within)


class _Apart(NamedTuple):
    """What a recomputation cannot compare, because it is of an earlier method; and how to replace it."""

    what: str
    fix: str
    of_controls_only: bool = False


def _apart(record: Record) -> _Apart | None:
    """Return what of a record is of an earlier method than that of a recomputation, or None."""
    if record.score is not None and record.score.get("spread"):
        return _Apart("its interval, which is of earlier methods", AGAIN)
    earlier = earlier_version(record)
    if earlier is not None:
        return _Apart(_of_version(earlier), REFRESH)
    judged = judged_in(record.score or {})
    if judged is not None:
        return _Apart(
            f"the intervals of its controls, which are of version {judged}", AGAIN, True
        )
    return None


def _verdicts(record: Record) -> dict[str, str]:
    return {name: control.verdict for name, control in record.judged.items()}


def _of_version(earlier: int) -> str:
    before = f"version {earlier}" if earlier else "earlier methods"
    return (
        f"its interval is of {before}, the current one is version {inference.VERSION}"
    )


def _reproduced(place: str, how: str) -> Verified:
    finding = Finding("record.reproduced", "ok", place, f"recomputed: {how}")
    return Verified(finding, Confirmed(), Evidence(Origin.RECOMPUTED))


def _plain(record: Record, *, hashes: bool) -> dict[str, Any]:
    """Return the payload; without ``hashes``, notes lack the hashes of prepared data, which depend on the processor."""
    plain = record.model_dump(mode="json")
    for score in (
        [] if hashes else filter(None, (plain["score"], *plain["scores"].values()))
    ):
        score["notes"] = [HASH.sub("", note) for note in score.get("notes", ())]
    return {name: plain[name] for name in PAYLOAD}


def _differences(
    was: Any, now: Any, at: tuple[str, ...], allowed: float
) -> Iterator[Change]:
    """Yield every differing leaf as text, with its distance in units of rounding, or None if the distance is not allowed."""
    if isinstance(was, dict) and isinstance(now, dict):
        if "value" in now and (error := _standard_error(now)):
            # The allowed distance depends on the recomputed score only, never on the record.
            allowed = max(TOLERANCE, SHARE * error)
        numbers = list[Change]()
        if at[-1] == "uncertainty":
            yield from _part_differences(was["parts"], now["parts"], at)
            was, now = (
                {name: part for name, part in s.items() if name != "parts"}
                for s in (was, now)
            )
        for name in sorted({*was, *now}):
            # The raw score has other units, so its allowed distance is scaled.
            limit = allowed * _ratio(now) if name == "raw" else allowed
            differences = list(
                _differences(was.get(name), now.get(name), (*at, str(name)), limit)
            )
            if (
                differences
                and name.endswith("sha256")
                and numbers
                and all(share for _, share in numbers)
            ):
                continue  # rounding also changes the hash of the numbers
            numbers += differences
        yield from numbers
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, pair in enumerate(zip(was, now, strict=True)):
            yield from _differences(*pair, (*at, str(number)), allowed)
    elif was != now:
        words = f"{' '.join(at[2:] or at).strip()} was {was}, is {now}"
        numeric = all(
            isinstance(value, float) and math.isfinite(value) for value in (was, now)
        )
        if not numeric:
            yield words, None
            return
        distance = abs(was - now)
        if distance > max(allowed, TOLERANCE * abs(was)):
            yield words, None
        else:
            yield words, distance / (TOLERANCE * max(1.0, abs(was)))


def _part_differences(
    was: Sequence[Any], now: Sequence[Any], at: tuple[str, ...]
) -> Iterator[Change]:
    """Yield factors whose deviations differ by more than half precision does, relative to the whole standard error.

    Deviations of single items are rounding errors where a factor has none. One group without a name is a sum of squares.
    """
    first, second = (
        {part.over: part for part in parts_in(side)} for side in (was, now)
    )
    where = " ".join(at[2:])
    if first.keys() != second.keys() or len(was) != len(now):
        yield f"{where} has other factors", None
        return
    allowed = HALF_PRECISION * math.sqrt(
        max((part.variance for part in second.values()), default=0.0)
    )
    for over, part in first.items():
        if part.keys != second[over].keys or part.freedom != second[over].freedom:
            yield f"{where} has other groups over {' × '.join(over)}", None
        elif _distance(part, second[over]) > allowed:
            yield f"{where} has other deviations over {' × '.join(over)}", None


def _distance(first: Part, second: Part) -> float:
    """Return the largest difference of two standard errors, or of the deviations of a group, whose sign one group lacks."""
    errors = abs(math.sqrt(first.variance) - math.sqrt(second.variance))
    single = len(first.keys) == 1
    return (
        errors
        if single
        else max(errors, float(np.abs(first.values - second.values).max(initial=0.0)))
    )


def _standard_error(score: Mapping[str, Any]) -> float:
    error, low, high = (score.get(name) for name in ("error", "low", "high"))
    if error is None and low is not None and high is not None:
        error = (high - low) / (2 * HALF_WIDTH)
    return float(error or 0.0)


def _ratio(score: Mapping[str, Any]) -> float:
    raw, value = score.get("raw"), score.get("value")
    return max(1.0, abs(raw / value)) if raw and value else 1.0


def _hash_once(
    catalog: Catalog,
    kind: str,
    id: str,
    hashed: dict[tuple[str, str], PendingError | None],
) -> PendingError | None:
    """Hash all files of a data set or model once per run; return what is missing or damaged, or None."""
    if (kind, id) not in hashed:
        try:
            verified_files(catalog, kind, id, trust_memory=False)
            hashed[kind, id] = None
        except PendingError as error:
            hashed[kind, id] = error
    return hashed[kind, id]
