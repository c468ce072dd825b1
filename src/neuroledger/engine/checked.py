"""What a check of a record found, and who stands for its numbers: one typed value for verify, reviews, boards and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroledger.engine.outcome import Undefined
from neuroledger.engine.records.evidence import (
    SELF_REPORTED,
    Evidence,
    Origin,
    Signable,
)
from neuroledger.engine.records.signatures import signer_in
from neuroledger.errors import Finding

__all__ = [
    "Checked",
    "Confirmed",
    "Contradicted",
    "Evidence",
    "NotChecked",
    "Origin",
    "SELF_REPORTED",
    "Undefined",
    "Verified",
    "contradicted",
    "evidence_of",
    "in_words",
    "not_checked",
]

AGAIN: Final = "compute it again: `neuroledger run MODEL --benchmark BENCHMARK --force`"


@dataclass(frozen=True)
class Confirmed:
    """The record is what its inputs give, as far as it was asked."""


@dataclass(frozen=True)
class NotChecked:
    """The machine could not look; ``reason`` says what it lacks, in few words."""

    reason: str


@dataclass(frozen=True)
class Contradicted:
    """The record disagrees with its inputs, its place, its content, or a recomputation."""

    what: str


Checked = Confirmed | NotChecked | Contradicted | Undefined


@dataclass(frozen=True)
class Verified:
    """A record that was verified: the finding in words, what it means, and who stands for its numbers."""

    finding: Finding
    checked: Checked
    evidence: Evidence = SELF_REPORTED


def not_checked(
    code: str, place: str, reason: str, what: str, command: str = ""
) -> Verified:
    """Return that this machine could not look, in few words and at length."""
    if command:
        fix = f"`{command}`"
    else:
        fix = ""
    return Verified(
        Finding(code, "warning", place, f"not checked: {what}", fix),
        NotChecked(reason.rstrip(".")),
    )


def contradicted(code: str, place: str, what: str, fix: str = AGAIN) -> Verified:
    """Return what a record disagrees with."""
    return Verified(Finding(code, "error", place, what, fix), Contradicted(what))


def in_words(verified: Iterable[Verified], *, recomputed: bool) -> str:
    """Return how many records are confirmed, not checked and why, contradicted, and undefined."""
    items = list(verified)
    kinds = Counter(type(item.checked) for item in items)
    why = Counter(
        item.checked.reason for item in items if isinstance(item.checked, NotChecked)
    )
    reasons = f" ({', '.join(sorted(why))})" if why else ""
    noun = "record" if len(items) == 1 else "records"
    return (
        f"{len(items)} {noun}: {kinds[Confirmed]} {'reproduced' if recomputed else 'current'}, "
        f"{kinds[NotChecked]} not checked{reasons}, {kinds[Contradicted]} contradicted, {kinds[Undefined]} undefined"
    )


def evidence_of(root: Path, record: Signable) -> Evidence:
    """Return who stands for the numbers of a stored record."""
    signer = signer_in(root, record).name
    if signer:
        return Evidence(Origin.SIGNED, signer)
    return SELF_REPORTED
