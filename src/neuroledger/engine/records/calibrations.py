"""Calibrations of benchmarks as they are kept in results/calibration, and the benchmarks whose intervals failed theirs."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from neuroledger.display import visible
from neuroledger.errors import Finding, NeuroLedgerError
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import json_object
from neuroledger.stats.calibration import FEWEST, Calibration

__all__ = ["Kept", "calibration_in", "calibration_path", "refuted"]


@dataclass(frozen=True)
class Kept:
    """The content of a calibration file: identities of spec and code, and for each metric its rates or why it has none."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    benchmark: str
    headline: str
    ceiling: str
    identity: dict[str, str]
    code: dict[str, str | dict[str, int]]
    seed: int
    runs: int
    metrics: dict[str, Calibration | str]
    reason: str = ""

    @property
    def first(self) -> Calibration | None:
        """The calibration of the headline metric; None if it has none."""
        result = self.metrics.get(self.headline)
        return result if isinstance(result, Calibration) else None


KEPT: Final = TypeAdapter(Kept)


def calibration_path(root: Path, benchmark: str) -> Path:
    """Return the path of a benchmark's calibration file."""
    return root / "results" / "calibration" / f"{benchmark}.json"


def calibration_in(text: bytes | None) -> Kept:
    """Parse the content of a file of ``results/calibration``.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, or a rate or verdict contradicts the counts.
    """
    plain = json_object(text)
    metrics = plain.get("metrics")
    parts = metrics.values() if isinstance(metrics, dict) else ()
    verdicts = [part.pop("passed", None) for part in parts if isinstance(part, dict)]
    content = KEPT.validate_json(json.dumps(plain), strict=True)
    results = [
        result for result in content.metrics.values() if isinstance(result, Calibration)
    ]
    for result, verdict in zip(results, verdicts, strict=True):
        for rate in (result.coverage, result.false_positives, result.false_ranks):
            if not FEWEST <= rate.runs <= content.runs or not rate.exact:
                raise ValueError(f"{rate} is not of {content.runs} runs")
        if verdict is not result.passed:
            raise ValueError(f"its rates give passed: {result.passed}")
    return content


def refuted(catalog: Catalog) -> dict[str, str]:
    """Return the benchmarks whose headline intervals failed their calibration, with the reason.

    Calibrations of specs that changed since are ignored. A file that is not a calibration, or whose benchmark does not
    exist, is logged as a finding and left out.
    """
    reasons: dict[str, str] = {}
    for path in sorted(calibration_path(catalog.root, "x").parent.glob("*.json")):
        try:
            calibration = calibration_in(path.read_bytes())
            first = calibration.first
            spec = catalog.benchmark(calibration.benchmark)
            if (
                first is None
                or first.passed
                or calibration.identity["benchmark"] != spec_sha256(spec)
            ):
                continue
            reasons[calibration.benchmark] = (
                f"interval withheld: in {calibration.runs} simulated experiments it contains the truth in "
                f"{first.coverage.value:.0%} (at most {first.coverage.high:.1%}) instead of 95%"
            )
        except (OSError, ValueError, LookupError, NeuroLedgerError) as error:
            words = f"not a calibration ({error})"
            fix = "delete it and run `neuroledger calibrate` again"
            finding = Finding("record.unreadable", "error", path.name, words, fix)
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))
    return reasons
