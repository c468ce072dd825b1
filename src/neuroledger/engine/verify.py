"""Is a record still what its inputs give? Every record becomes one finding, with recomputation if asked for."""

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
from neuroledger.errors import DataError, Finding, IntegrityError, NeuroLedgerError, RequestError, Severity
from neuroledger.spec.base import sha256_of
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.spread import unpack

__all__ = ["verify"]

# Another processor rounds differently: mostly, numbers move by less than this. What is fitted step by step, or runs on from
# its own answers, amplifies rounding; then a hundredth of the score's standard error says that it is the same score.
TOLERANCE: Final = 1e-8
SHARE: Final = 0.01
# Draws are recorded with eleven significant bits.
HALF_PRECISION: Final = 4e-3
HALF_WIDTH: Final = 1.96  # standard errors from the value to either end of a 95 % interval
SAID: Final = 2e-3  # words of controls give three decimals
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
HASH: Final = re.compile(r"(?<=sha256 )[0-9a-f]{12,64}")
AGAIN: Final = "run it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"


def verify(
    catalog: Catalog,
    paths: Sequence[Path],
    *,
    recompute: bool,
    display: Display,
    signers: Path | None = None,
    key: Path | None = None,
) -> list[Finding]:
    """One finding for each record at ``paths`` (all of them when none are given).

    A record was edited when its own hash does not match its content, is stale when today's specs and components give
    another identity, and its data changed when a file's bytes differ from the pin; every file is hashed anew. None of
    this shows that the numbers are right, for whoever edits a record can hash it again. With ``recompute`` everything
    that the inputs determine is computed from scratch, without a cache, and compared number by number. With ``key``, an SSH
    key, what was reproduced is signed. Signatures are verified against ``signers``, a file of allowed signers; without it,
    against the repository's own, if it has one.

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
    """The finding on a good record, with who signed it."""
    record = read_record(path)
    if key is not None and finding.code == "record.reproduced":
        sign(path, record, key)
        finding = replace(finding, what=f"{finding.what}; signed with {key.name}")
    who = None if signers is None else signer_of(path, record, signers)
    if who is not None:
        return replace(finding, code="record.signed", what=f"recomputed and signed by {who}; {finding.what}")
    if signers is not None and signature_path(path).is_file():
        words = "the signature is of other numbers, or of nobody in the file of allowed signers"
        return Finding("record.signature", "error", finding.where, words, "remove it, and sign again")
    return finding


def _verified(
    catalog: Catalog,
    path: Path,
    recompute: bool,
    sessions: dict[Request, Session],
    hashed: dict[tuple[str, str], tuple[str, str]],
) -> Finding:
    shown = catalog.shown(path.resolve())
    try:
        record = read_record(path)
        request = Request(**record.request)
    except (DataError, TypeError) as error:
        return Finding("record.unreadable", "error", shown, str(error), AGAIN)
    if not record.intact:
        return Finding("record.edited", "error", shown, "its content does not match its own hash", AGAIN)
    if (record.benchmark, record.model) != (path.parent.name, path.stem):
        words = f"the file holds the record of {record.benchmark} · {record.model}"
        return Finding("record.misplaced", "error", shown, words, "restore both records from git")
    try:
        inputs = inputs_of(catalog, catalog.benchmark(record.benchmark), record.model, request)
    except NeuroLedgerError as error:
        return Finding("record.stale", "error", shown, str(error), AGAIN)
    if sha256_of(inputs) != record.id:
        names = sorted({*record.inputs, *inputs})
        moved = [name for name in names if record.inputs.get(name) != inputs.get(name)]
        return Finding("record.stale", "error", shown, f"{', '.join(moved)} changed since", AGAIN)
    for kind, id in (("datasets", catalog.benchmark(record.benchmark).dataset), ("models", record.model)):
        code, reason = _hash_once(catalog, kind, id, hashed)
        if code and not (record.status == "failed" and code == "record.data-missing"):
            severity: Severity = "error" if code == "record.data-changed" else "note"
            return Finding(code, severity, shown, reason, f"`neuroledger fetch {id}`")
    if not recompute:
        if record.status == "failed":
            return Finding("record.failed", "note", shown, (record.error or {}).get("message", ""))
        words = "its inputs are current; its numbers are self-reported, and were not recomputed"
        return Finding("record.current", "ok", shown, words)
    session = sessions.setdefault(request, Session(catalog, request))
    again, _ = run_job(session, Job(record.model, record.benchmark, record.id, inputs))
    return _compared(shown, record, again)


def _compared(shown: str, record: Record, again: Record) -> Finding:
    """What recomputing found: the same payload, the same numbers within rounding, or a difference."""
    if again.payload() == record.payload_sha256:
        return Finding("record.reproduced", "ok", shown, "recomputed: same payload")
    if record.status == again.status == "failed":
        kinds = [(one.error or {}).get("type") for one in (record, again)]
        if kinds[0] == kinds[1]:
            words = f"fails again: {(again.error or {}).get('message', '')}"
            return Finding("record.failed", "note", shown, words)
    was, now = (one.environment.get("processor") or "unknown" for one in (record, again))
    held, found = (_plain(one, hashes=was == now) for one in (record, again))
    # Controls have no standard error of their own: they vary as the score does that they are held against.
    wide_of_controls = max(TOLERANCE, SHARE * _standard_error(again.score or {}))
    controls = held.pop("controls"), found.pop("controls")
    pairs = [*_leaves(held, found, ("",), TOLERANCE), *_leaves(*controls, ("", "controls"), wide_of_controls)]
    broken = [words for words, share in pairs if share is None]
    if broken:
        more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        where = "" if was == now else f" (computed for the processor {was}, here {now})"
        return Finding("record.not-reproduced", "error", shown, broken[0] + more + where, AGAIN)
    wide = [words for words, share in pairs if share and share > 1]
    within = f"within {SHARE:g} standard errors: {wide[0]}" if wide else f"within {TOLERANCE:g}"
    return Finding("record.reproduced", "ok", shown, f"recomputed: {within}")


def _plain(record: Record, *, hashes: bool) -> dict[str, Any]:
    """The payload; without ``hashes``, notes do not say which bits were prepared: other processors round otherwise."""
    whole = record.model_dump(mode="json")
    for one in [] if hashes else filter(None, (whole["score"], *whole["scores"].values())):
        one["notes"] = [HASH.sub("", note) for note in one.get("notes", ())]
    return {name: whole[name] for name in PAYLOAD}


def _leaves(was: Any, now: Any, at: tuple[str, ...], allowed: float) -> Iterator[tuple[str, float | None]]:
    """Every leaf that differs, in words, with its distance in units of rounding; None where it may not differ so."""
    if isinstance(was, dict) and isinstance(now, dict):
        if "value" in now and (error := _standard_error(now)):
            # What is allowed follows from what was computed here, never from what is claimed.
            allowed = max(TOLERANCE, SHARE * error)
        numbers = list[tuple[str, float | None]]()
        if at[-1] == "spread":
            yield from _of_draws(was, now, at)
            was, now = ({name: part for name, part in one.items() if name != "draws"} for one in (was, now))
        for name in sorted({*was, *now}):
            # The raw score has other units: what is allowed of the value is allowed of it in proportion.
            wide = allowed * _ratio(now) if name == "raw" else allowed
            found = list(_leaves(was.get(name), now.get(name), (*at, str(name)), wide))
            if found and name.endswith("sha256") and numbers and all(share for _, share in numbers):
                continue  # a hash of numbers that moved by rounding moves as well
            numbers += found
        yield from numbers
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, pair in enumerate(zip(was, now, strict=True)):
            yield from _leaves(*pair, (*at, str(number)), allowed)
    elif was != now:
        words = f"{' '.join(at[2:] or at).strip()} was {was}, is {now}"
        numeric = all(isinstance(one, float) and math.isfinite(one) for one in (was, now))
        if not numeric:
            alike = at[-1] == "says" and NUMBER.sub("", str(was)) == NUMBER.sub("", str(now))
            pairs = zip(*(map(float, NUMBER.findall(str(one))) for one in (was, now)), strict=True)
            yield (
                words,
                0.0 if alike and all(abs(a - b) <= SAID * max(1.0, abs(b)) for a, b in pairs) else None,
            )
            return
        distance = abs(was - now)
        if distance > max(allowed, TOLERANCE * abs(was)):
            yield words, None
        else:
            yield words, distance / (TOLERANCE * max(1.0, abs(was)))


def _of_draws(
    was: Mapping[str, Any], now: Mapping[str, Any], at: tuple[str, ...]
) -> Iterator[tuple[str, float | None]]:
    """Joint draws that differ by more than their half precision."""
    first, second = unpack(was), unpack(now)
    if first is None or second is None or set(first.draws) != set(second.draws):
        yield f"{' '.join(at[2:])} has other factors", None
        return
    for name, draws in first.draws.items():
        if np.abs(draws - second.draws[name]).max() > HALF_PRECISION * np.abs(draws).max():
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
    """Code and reason of what is wrong with the files of a data set or model, every byte read again, once per run."""
    if (kind, id) not in hashed:
        try:
            verified_files(catalog, kind, id, trust_memory=False)
            hashed[kind, id] = ("", "")
        except IntegrityError as error:
            hashed[kind, id] = ("record.data-changed", str(error))
        except DataError as error:
            hashed[kind, id] = ("record.data-missing", str(error))
    return hashed[kind, id]
