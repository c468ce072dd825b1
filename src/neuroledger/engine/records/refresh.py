"""Intervals of stored scores, computed again from the deviations that their records store, without data.

A record in the form of an earlier version is written again in the present one.

An interval has a method and a version of its own, which are no part of the identity of a record: a new version makes no
record stale. Values, controls and everything else that was computed stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from neuroledger.display import Display, NoDisplay
from neuroledger.engine.record import Record, read_record, write_record
from neuroledger.engine.records.evidence import signature_path
from neuroledger.engine.records.signatures import Signer, signer_in
from neuroledger.errors import DataError, Finding, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.stored_score import StoredScore

__all__ = ["refresh", "refreshed"]

AGAIN: Final = "compute it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"


def refresh(
    catalog: Catalog, paths: Sequence[Path] = (), *, display: Display | None = None
) -> list[Finding]:
    """Compute the intervals of records again, where they are of an earlier version; return what was done with each.

    A record whose intervals are of the current version keeps its bytes, unless it has the form of an earlier version. One
    that changes loses its signature, which covers the interval. An edited record is not touched.

    Parameters
    ----------
    paths
        Files of records; by default all of the repository.

    Raises
    ------
    RequestError
        A path does not exist.
    DataError
        The disk is full or read-only.
    """
    chosen = list(paths) or sorted(
        (catalog.root / "results" / "records").rglob("*.json")
    )
    missing = next((path for path in chosen if not path.is_file()), None)
    if missing is not None:
        raise RequestError(f"{missing} does not exist")
    display = display or NoDisplay()
    findings = []
    for at, path in enumerate(chosen):
        display.progress("refreshing", at, len(chosen))
        findings.append(_refresh(catalog, path))
    display.progress("refreshing", len(chosen), len(chosen))
    return findings


def _refresh(catalog: Catalog, path: Path) -> Finding:
    place = catalog.shown(path.resolve())
    try:
        record = read_record(path)
    except DataError as error:
        return Finding("record.unreadable", "error", place, str(error), AGAIN)
    if not record.intact:
        words = "its content does not match its own hash"
        return Finding("record.edited", "error", place, words, AGAIN)
    latest = max(record.versions, default=0)
    if latest > inference.VERSION:
        words = f"its interval is of version {latest}, later than {inference.VERSION}, which is installed"
        return Finding(
            "record.interval-kept", "warning", place, words, "update NeuroLedger"
        )
    changes = list(_changes(catalog.root, path, record))
    if not changes:
        return _kept(record, place)
    words = "; ".join(changes)
    signature = signature_path(path)
    if signature.exists():
        # Before the record changes: an interruption may leave a record without a signature, but none with a wrong one.
        signature.unlink()
        words += "; its signature is removed, because it covers the interval: run it again with --force, and sign it"
    write_record(path, refreshed(record))
    return Finding("record.refreshed", "ok", place, words)


def _changes(root: Path, path: Path, record: Record) -> Iterator[str]:
    """Yield what a refresh changes.

    A signed record keeps the form of an earlier version, which its signature covers, until its interval changes.
    """
    earlier = record.earlier_version
    if earlier is not None:
        if earlier:
            before = f"version {earlier}"
        else:
            before = "earlier methods"
        yield f"its interval was of {before}, and is now of version {inference.VERSION}"
    if record.has_earlier_form and (
        earlier is not None or not _is_signed(root, path, record)
    ):
        yield "it had the form of an earlier version, and keeps its values"


def _is_signed(root: Path, path: Path, record: Record) -> bool:
    """Whether a signature covers a record, or claims to."""
    signed = Signer() != signer_in(root, record, path=path)
    return signed or signature_path(path).exists()


def _kept(record: Record, place: str) -> Finding:
    """Return the finding on a record that keeps its bytes."""
    score = record.score
    if score is None or score.interval is None or score.uncertainty is not None:
        words = "nothing to compute again"
        return Finding("record.interval-current", "ok", place, words)
    words = "it stores no deviations, so its interval stays as it is"
    fix = f"compute it again: `neuroledger run {record.model} --benchmark {record.benchmark} --force`"
    return Finding("record.interval-kept", "warning", place, words, fix)


def refreshed(record: Record) -> Record:
    """Return the record with the intervals that the current version gives for the deviations that it stores."""
    if record.score is None:
        return record
    headline = _refreshed_headline(record, record.score)
    scores = {
        name: score.by_current_method().model_copy(
            update={"low": headline.low, "high": headline.high}
        )
        if _is_headline(score, record.score)
        else score.by_current_method()
        for name, score in record.scores.items()
    }
    return record.model_copy(update={"score": headline, "scores": scores})


def _refreshed_headline(record: Record, score: StoredScore) -> StoredScore:
    """Return the headline with its current interval, and with the version by whose intervals the controls were judged."""
    headline = score.by_current_method()
    known = score.uncertainty
    if (
        known is None
        or headline.uncertainty is None
        or known.version >= inference.VERSION
    ):
        return headline
    if all(control.low is None for control in record.controls.values()):
        return headline
    judged = known.version if known.controls is None else known.controls
    uncertainty = headline.uncertainty.model_copy(update={"controls": judged})
    return headline.model_copy(update={"uncertainty": uncertainty})


def _is_headline(score: StoredScore, headline: StoredScore) -> bool:
    """Whether a score is the headline, whose interval is that of its deviations by item."""
    return (score.value, score.raw, score.interval, score.scale, score.direction) == (
        headline.value,
        headline.raw,
        headline.interval,
        headline.scale,
        headline.direction,
    )
