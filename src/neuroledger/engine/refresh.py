"""Intervals of stored scores, computed again from the deviations that their records store, without data.

An interval has a method and a version of its own, which are no part of the identity of a record: a new version makes no
record stale. Values, controls and everything else that was computed stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from neuroledger.display import Display, NoDisplay
from neuroledger.engine.record import Record, read_record, signature_path, write_record
from neuroledger.errors import DataError, Finding, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.score import number
from neuroledger.stats.stored_score import JUDGED, limits_in, uncertainty_in, version_in

__all__ = ["earlier_version", "refresh", "refreshed", "without_intervals"]

AGAIN: Final = "compute it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"
# What an interval determines in a stored score, and in a control.
OF_INTERVALS: Final = ("low", "high", "uncertainty", "spread", "covers")
# The value of a control is a mean over as many shuffles as its interval took.
OF_CONTROLS: Final = ("value", "low", "high", "verdict", "shuffles")


def refresh(
    catalog: Catalog, paths: Sequence[Path] = (), *, display: Display | None = None
) -> list[Finding]:
    """Compute the intervals of records again, where they are of an earlier version; return what was done with each.

    A record whose intervals are of the current version keeps its bytes. One that changes loses its signature, which covers
    the interval. An edited record is not touched.

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
        findings.append(_refresh(path, catalog.shown(path.resolve())))
    display.progress("refreshing", len(chosen), len(chosen))
    return findings


def _refresh(path: Path, place: str) -> Finding:
    try:
        record = read_record(path)
    except DataError as error:
        return Finding("record.unreadable", "error", place, str(error), AGAIN)
    if not record.intact:
        words = "its content does not match its own hash"
        return Finding("record.edited", "error", place, words, AGAIN)
    headline = record.score or {}
    latest = max(
        (
            version
            for version in map(version_in, _stored(record))
            if version is not None
        ),
        default=0,
    )
    if latest > inference.VERSION:
        words = f"its interval is of version {latest}, later than {inference.VERSION}, which is installed"
        return Finding(
            "record.interval-kept", "warning", place, words, "update NeuroLedger"
        )
    if version_in(headline) is None and headline.get("low") is not None:
        words = "it stores no deviations, so its interval stays as it is"
        fix = f"compute it again: `neuroledger run {record.model} --benchmark {record.benchmark} --force`"
        return Finding("record.interval-kept", "warning", place, words, fix)
    earlier = earlier_version(record)
    if earlier is None:
        return Finding(
            "record.interval-current", "ok", place, "nothing to compute again"
        )
    before = f"version {earlier}" if earlier else "earlier methods"
    words = f"its interval was of {before}, and is now of version {inference.VERSION}"
    signature = signature_path(path)
    if signature.exists():
        # Before the record changes: an interruption may leave a record without a signature, but none with a wrong one.
        signature.unlink()
        words += "; its signature is removed, because it covers the interval: run it again with --force, and sign it"
    write_record(path, refreshed(record))
    return Finding("record.refreshed", "ok", place, words)


def refreshed(record: Record) -> Record:
    """Return the record with the intervals that the current version gives for the deviations that it stores."""
    if record.score is None:
        return record
    headline = _with_interval(record.score)
    version, known = version_in(record.score), record.score.get("uncertainty")
    is_judged = any(
        control.get("low") is not None for control in record.controls.values()
    )
    if (
        known is not None
        and version is not None
        and version < inference.VERSION
        and is_judged
    ):
        headline["uncertainty"] = {
            JUDGED: version,
            **known,
            "version": inference.VERSION,
        }
    scores = {name: _with_interval(plain) for name, plain in record.scores.items()}
    for name, plain in record.scores.items():
        if _numbers(plain) == _numbers(
            record.score
        ):  # the headline, whose interval is that of its deviations by item
            scores[name] |= {
                part: headline[part] for part in ("low", "high") if part in plain
            }
    return record.model_copy(update={"score": headline, "scores": scores})


def earlier_version(record: Record) -> int | None:
    """Return the earliest version of the intervals of a record if it is not the current one, else None."""
    versions = [
        version for version in map(version_in, _stored(record)) if version is not None
    ]
    earliest = min(versions, default=inference.VERSION)
    return earliest if earliest < inference.VERSION else None


def without_intervals(
    plain: Mapping[str, Any], *, of_controls_only: bool = False
) -> dict[str, Any]:
    """Return a record's plain payload without what the intervals of its controls, and of its scores, determine."""
    controls = {
        name: _without(control, OF_CONTROLS)
        for name, control in plain["controls"].items()
    }
    headline, scores = plain["score"], plain["scores"]
    if of_controls_only:
        known = {
            name: part
            for name, part in headline["uncertainty"].items()
            if name != JUDGED
        }
        return {
            **plain,
            "score": headline | {"uncertainty": known},
            "controls": controls,
        }
    scores = {name: _without(score, OF_INTERVALS) for name, score in scores.items()}
    headline = None if headline is None else _without(headline, OF_INTERVALS)
    return {**plain, "score": headline, "scores": scores, "controls": controls}


def _without(plain: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    kept = {name: content for name, content in plain.items() if name not in names}
    if isinstance(kept.get("ceiling"), dict):
        kept["ceiling"] = _without(kept["ceiling"], names)
    return kept


def _stored(record: Record) -> list[Mapping[str, Any]]:
    """Return all scores and ceilings of a record."""
    scores = [
        score for score in (record.score, *record.scores.values()) if score is not None
    ]
    return [
        *scores,
        *(score["ceiling"] for score in scores if score.get("ceiling") is not None),
    ]


def _numbers(plain: Mapping[str, Any]) -> list[Any]:
    return [
        plain.get(name)
        for name in ("value", "raw", "low", "high", "scale", "direction")
    ]


def _with_interval(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored score with the interval of the current version, that of its ceiling included."""
    new = dict(plain)
    if new.get("ceiling") is not None:
        new["ceiling"] = _with_interval(new["ceiling"])
    version, value = version_in(plain), plain.get("value")
    if version is None or version >= inference.VERSION or value is None:
        return new
    known = uncertainty_in(plain, "")
    if known is None:
        return new
    low, high = (number(end) for end in known.interval(value, limits_in(plain)))
    kept = "uncertainty" if plain.get("uncertainty") is not None else "spread"
    return new | {
        "low": low,
        "high": high,
        kept: plain[kept] | {"version": inference.VERSION},
    }
