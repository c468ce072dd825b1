"""Verification of records, optionally by recomputation; each record gives one finding."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.data.load import verified_files
from neuroledger.display import Display
from neuroledger.engine.plan import Job, inputs_of
from neuroledger.engine.record import (
    PAYLOAD,
    Record,
    read_record,
    sign,
    signature_path,
    signer_of,
    signers_of,
)
from neuroledger.engine.run import run_job
from neuroledger.engine.session import Request, Session
from neuroledger.errors import (
    DataError,
    Finding,
    IntegrityError,
    NeuroLedgerError,
    RequestError,
    Severity,
    UnavailableError,
)
from neuroledger.spec.base import sha256_of
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.spread import unpack

__all__ = ["verify"]

# Other processors round differently, which mostly changes numbers by less than TOLERANCE. Iterative fits and models with
# feedback amplify rounding; then a difference below SHARE standard errors of the score counts as reproduced.
TOLERANCE: Final = 1e-8
SHARE: Final = 0.01
# Draws are recorded with eleven significant bits.
HALF_PRECISION: Final = 4e-3
HALF_WIDTH: Final = 1.96  # standard errors from the value to either end of a 95 % interval
TEXT_TOLERANCE: Final = 2e-3  # texts of controls show three decimals
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
HASH: Final = re.compile(r"(?<=sha256 )[0-9a-f]{12,64}")
# The difference as text, and its distance in units of rounding, or None if it is not allowed.
Change = tuple[str, float | None]
AGAIN: Final = "compute it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"


def verify(
    catalog: Catalog,
    paths: Sequence[Path],
    *,
    recompute: bool,
    display: Display,
    signers: Path | None = None,
    key: Path | None = None,
) -> list[Finding]:
    """Return one finding for each record at ``paths`` (default: all records).

    A record is edited if its hash does not match its content, and stale if the current specs and components give another
    identity. Its data changed if a file differs from its pin; every file is hashed again. This does not show that the
    numbers are right, because an edited record can be hashed again.

    With ``recompute``, everything that the inputs determine is computed again, without a cache, and compared. Reproduced
    records are signed with the SSH key ``key``. Signatures are verified against ``signers``, a file of allowed signers
    (default: that of the repository, if any).

    Raises
    ------
    RequestError
        A path does not exist.
    """
    signers = signers or signers_of(catalog.root)
    chosen = list(paths) or sorted((catalog.root / "results" / "records").rglob("*.json"))
    sessions: dict[Request, Session] = {}
    hashed: dict[tuple[str, str], tuple[str, str]] = {}
    findings = []
    for number, path in enumerate(chosen):
        if not path.is_file():
            raise RequestError(f"{path} does not exist")
        display.progress("verifying", number, len(chosen))
        finding = _verified(catalog, path, recompute, sessions, hashed)
        if finding.code in {"record.current", "record.reproduced"}:
            finding = _signed(path, finding, signers, key if recompute else None)
        findings.append(finding)
    display.progress("verifying", len(chosen), len(chosen))
    return findings


def _signed(path: Path, finding: Finding, signers: Path | None, key: Path | None) -> Finding:
    """Return the finding on a current or reproduced record, extended by its signer."""
    record = read_record(path)
    if key is not None and finding.code == "record.reproduced":
        sign(path, record, key)
        finding = replace(finding, what=f"{finding.what}; signed with {key.name}")
    signer = None if signers is None else signer_of(path, record, signers)
    if signer is not None:
        words = f"recomputed and signed by {signer}; {finding.what}"
        return replace(finding, code="record.signed", what=words)
    if signers is not None and signature_path(path).is_file():
        words = "the signature does not match the record, or its signer is not among the allowed signers"
        return Finding("record.signature", "error", finding.where, words, "remove it and sign again")
    return finding


def _verified(
    catalog: Catalog,
    path: Path,
    recompute: bool,
    sessions: dict[Request, Session],
    hashed: dict[tuple[str, str], tuple[str, str]],
) -> Finding:
    place = catalog.shown(path.resolve())
    try:
        record = read_record(path)
        request = Request(**record.request)
    except (DataError, TypeError) as error:
        return Finding("record.unreadable", "error", place, str(error), AGAIN)
    if not record.intact:
        return Finding("record.edited", "error", place, "its content does not match its own hash", AGAIN)
    if (record.benchmark, record.model) != (path.parent.name, path.stem):
        words = f"the file contains the record of {record.benchmark} · {record.model}"
        return Finding("record.misplaced", "error", place, words, "restore both records from git")
    try:
        inputs = inputs_of(catalog, catalog.benchmark(record.benchmark), record.model, request)
    except NeuroLedgerError as error:
        return Finding("record.stale", "error", place, str(error), AGAIN)
    if sha256_of(inputs) != record.id:
        names = sorted({*record.inputs, *inputs})
        changed = [name for name in names if record.inputs.get(name) != inputs.get(name)]
        return Finding("record.stale", "error", place, f"changed since: {', '.join(changed)}", AGAIN)
    for kind, id in (("datasets", catalog.benchmark(record.benchmark).dataset), ("models", record.model)):
        code, reason = _hash_once(catalog, kind, id, hashed)
        if code and not (record.status == "failed" and code == "record.data-missing"):
            severity: Severity = "error" if code == "record.data-changed" else "note"
            return Finding(code, severity, place, reason, f"`neuroledger fetch {id}`")
    if not recompute:
        if record.status == "failed":
            return Finding("record.failed", "note", place, (record.error or {}).get("message", ""))
        words = "its inputs are current; its numbers are self-reported and were not recomputed"
        return Finding("record.current", "ok", place, words)
    session = sessions.setdefault(request, Session(catalog, request))
    again, _ = run_job(session, Job(record.model, record.benchmark, record.id, inputs))
    return _compared(place, record, again)


def _compared(place: str, record: Record, again: Record) -> Finding:
    """Compare a record with its recomputation: same payload, same numbers within rounding, or a difference."""
    if again.payload() == record.payload_sha256:
        return Finding("record.reproduced", "ok", place, "recomputed: same payload")
    if record.status == again.status == "failed":
        kinds = [(item.error or {}).get("type") for item in (record, again)]
        if kinds[0] == kinds[1]:
            words = f"fails again: {(again.error or {}).get('message', '')}"
            return Finding("record.failed", "note", place, words)
    was, now = (item.environment.get("processor") or "unknown" for item in (record, again))
    recorded, computed = (_plain(item, hashes=was == now) for item in (record, again))
    # Controls have no standard error; that of the score, which has the same units, is used.
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
        return Finding("record.not-reproduced", "error", place, broken[0] + more + where, AGAIN)
    wide = [words for words, share in pairs if share and share > 1]
    within = f"within {SHARE:g} standard errors: {wide[0]}" if wide else f"within {TOLERANCE:g}"
    return Finding("record.reproduced", "ok", place, f"recomputed: {within}")


def _plain(record: Record, *, hashes: bool) -> dict[str, Any]:
    """Return the payload; without ``hashes``, notes lack the hashes of prepared data, which depend on the processor."""
    plain = record.model_dump(mode="json")
    for score in [] if hashes else filter(None, (plain["score"], *plain["scores"].values())):
        score["notes"] = [HASH.sub("", note) for note in score.get("notes", ())]
    return {name: plain[name] for name in PAYLOAD}


def _differences(was: Any, now: Any, at: tuple[str, ...], allowed: float) -> Iterator[Change]:
    """Yield every differing leaf as text, with its distance in units of rounding, or None if the distance is not allowed."""
    if isinstance(was, dict) and isinstance(now, dict):
        if "value" in now and (error := _standard_error(now)):
            # The allowed distance depends on the recomputed score only, never on the record.
            allowed = max(TOLERANCE, SHARE * error)
        numbers = list[Change]()
        if at[-1] == "spread":
            yield from _draw_differences(was, now, at)
            was, now = ({name: part for name, part in s.items() if name != "draws"} for s in (was, now))
        for name in sorted({*was, *now}):
            # The raw score has other units, so its allowed distance is scaled.
            limit = allowed * _ratio(now) if name == "raw" else allowed
            differences = list(_differences(was.get(name), now.get(name), (*at, str(name)), limit))
            if differences and name.endswith("sha256") and numbers and all(share for _, share in numbers):
                continue  # rounding also changes the hash of the numbers
            numbers += differences
        yield from numbers
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, pair in enumerate(zip(was, now, strict=True)):
            yield from _differences(*pair, (*at, str(number)), allowed)
    elif was != now:
        words = f"{' '.join(at[2:] or at).strip()} was {was}, is {now}"
        numeric = all(isinstance(value, float) and math.isfinite(value) for value in (was, now))
        if not numeric:
            alike = at[-1] == "says" and NUMBER.sub("", str(was)) == NUMBER.sub("", str(now))
            pairs = zip(*(map(float, NUMBER.findall(str(text))) for text in (was, now)), strict=True)
            close = alike and all(abs(a - b) <= TEXT_TOLERANCE * max(1.0, abs(b)) for a, b in pairs)
            yield words, 0.0 if close else None
            return
        distance = abs(was - now)
        if distance > max(allowed, TOLERANCE * abs(was)):
            yield words, None
        else:
            yield words, distance / (TOLERANCE * max(1.0, abs(was)))


def _draw_differences(
    was: Mapping[str, Any], now: Mapping[str, Any], at: tuple[str, ...]
) -> Iterator[Change]:
    """Yield joint draws that differ by more than half precision; a part that is rounding errors may have any."""
    first, second = unpack(was), unpack(now)
    if first is None or second is None or set(first.draws) != set(second.draws):
        yield f"{' '.join(at[2:])} has other factors", None
        return
    largest = max((float(np.abs(draws).max()) for draws in second.draws.values()), default=0.0)
    for name, draws in first.draws.items():
        limit = max(HALF_PRECISION * float(np.abs(draws).max()), TOLERANCE * largest)
        if np.abs(draws - second.draws[name]).max() > limit:
            yield f"{' '.join(at[2:])} {name} has other draws", None


def _standard_error(score: Mapping[str, Any]) -> float:
    error, low, high = (score.get(name) for name in ("error", "low", "high"))
    if error is None and low is not None and high is not None:
        error = (high - low) / (2 * HALF_WIDTH)
    return float(error or 0.0)


def _ratio(score: Mapping[str, Any]) -> float:
    raw, value = score.get("raw"), score.get("value")
    return max(1.0, abs(raw / value)) if raw and value else 1.0


def _hash_once(
    catalog: Catalog, kind: str, id: str, hashed: dict[tuple[str, str], tuple[str, str]]
) -> tuple[str, str]:
    """Hash all files of a data set or model once per run; return code and reason of a problem, or empty texts."""
    if (kind, id) not in hashed:
        try:
            verified_files(catalog, kind, id, trust_memory=False)
            hashed[kind, id] = ("", "")
        except IntegrityError as error:
            hashed[kind, id] = ("record.data-changed", str(error))
        except (DataError, UnavailableError) as error:
            hashed[kind, id] = ("record.data-missing", str(error))
    return hashed[kind, id]
