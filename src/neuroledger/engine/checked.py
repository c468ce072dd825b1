"""What a check of a record found, and who stands for its numbers: one typed value for verify, reviews, boards and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from neuroledger.engine.record import Signable, Undefined
from neuroledger.engine.records.evidence import SELF_REPORTED, Evidence, Origin
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
    "evidence_of",
    "in_words",
]


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
