"""What a proposal brings, as Markdown for whoever merges it: scores, controls, calibration, bytes and licences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from neuroledger.display import visible
from neuroledger.engine.calibrate import calibration_in
from neuroledger.engine.diff_since import MOST_EMBEDDED, Proposal, Review, record_in
from neuroledger.engine.git_trees import committed
from neuroledger.engine.record import Record
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec

__all__ = ["summary"]

# A comment on GitHub has at most 65,536 characters; names of strangers are cut before that.
MOST: Final = 60_000
MOST_ROWS: Final = 60
LONGEST: Final = 90
KINDS: Final = {"datasets": "data set", "models": "model"}


def summary(root: Path, reviewed: Review) -> str:
    """The last commit of the repository at ``root`` against the commit that ``reviewed`` compares it with, as Markdown.

    Nothing of the proposal is imported, executed or unpickled. Every text of it becomes inline code in which no character
    is Markdown, HTML, a link or a mention. Scores are shown as records report them; of a private data set no file, size or
    message is shown.
    """
    proposal = Proposal(committed(root, reviewed.commit), committed(root, "HEAD"))
    records = [path for path in proposal.changed if re.fullmatch(r"results/records/[^/]+/[^/]+\.json", path)]
    touched = {PurePosixPath(path).parts[2] for path in records}
    touched |= {
        PurePosixPath(path).stem
        for path in proposal.changed
        if re.fullmatch(r"(specs/benchmarks/.*\.yaml|results/calibration/[^/]+\.json)", path)
    }
    benchmarks = {id: proposal.spec("benchmarks", id) for id in sorted(touched)}
    lines = [
        f"## Proposal: {reviewed.verdict}",
        "",
        f"{len(proposal.changed)} files changed since {reviewed.commit[:12]}. Nothing of the proposal was run for this.",
        *_findings(reviewed),
        *_scores(proposal, records, benchmarks),
        *_calibrations(proposal, benchmarks),
        *_licences(proposal, benchmarks),
        *_bytes(proposal),
    ]
    while sum(map(len, lines)) + len(lines) > MOST:
        lines[-2:] = ["(shortened)"]
    return "\n".join(lines) + "\n"


def _findings(reviewed: Review) -> Iterator[str]:
    found = [one for one in reviewed.findings if one.severity in ("error", "warning")]
    rows = [
        (one.severity, one.code, _safe(f"{one.where}:{one.line}" if one.line else one.where), _safe(one.what))
        for one in sorted(found, key=lambda one: one.severity)
    ]
    yield from _table("What a person must look at", ("severity", "code", "where", "what"), rows)


def _scores(proposal: Proposal, paths: Sequence[str], benchmarks: dict[str, Any]) -> Iterator[str]:
    rows = []
    for path in paths:
        id, model = PurePosixPath(path).parts[2], PurePosixPath(path).stem
        old, new = record_in(proposal.base.read(path)), record_in(proposal.now.read(path))
        state: str = proposal.changed[path]
        if new is not None and (not new.intact or (new.benchmark, new.model) != (id, model)):
            state, new = "not a record as it was written", None
        dataset = _dataset(proposal, benchmarks[id])
        kind = "unknown" if dataset is None else "simulated" if dataset.simulated else dataset.access
        before = "–" if old is None else _number((old.score or {}).get("value"))
        rows.append((_safe(id), _safe(model), state, before, *_score(new), _controls(new), kind))
    header = ("benchmark", "model", "record", "before", "score", "95 % interval", "controls", "data")
    yield from _table("Scores, as the records report them", header, rows)
    if rows:
        yield "\nA score is believed after it is recomputed: see the step that recomputes every touched record."


def _dataset(proposal: Proposal, benchmark: object) -> DatasetSpec | None:
    found = proposal.spec("datasets", benchmark.dataset) if isinstance(benchmark, BenchmarkSpec) else None
    return found if isinstance(found, DatasetSpec) else None


def _score(record: Record | None) -> tuple[str, str]:
    if record is None or record.score is None:
        return ("–" if record is None else "failed"), "–"
    low, high = (_number(record.score.get(end)) for end in ("low", "high"))
    value = _number(record.score["value"]) + (" (partial)" if record.status == "partial" else "")
    return value, "none" if "–" in (low, high) else f"{low} to {high}"


def _controls(record: Record | None) -> str:
    """How many controls hold, and each with its value and bound."""
    controls = {} if record is None else record.controls
    said = [
        f"{_safe(name)} {_number(one.get('value'))} {'≥' if one.get('role') == 'positive' else '≤'} "
        f"{_number(one.get('bound'))}{'' if one.get('passed') is True else ' **failed**'}"
        for name, one in list(controls.items())[:6]
    ]
    held = sum(one.get("passed") is True for one in controls.values())
    return "; ".join([f"{held} of {len(controls)} hold", *said]) if controls else "none"


def _calibrations(proposal: Proposal, benchmarks: dict[str, Any]) -> Iterator[str]:
    rows = []
    for id, spec in benchmarks.items():
        content = proposal.now.read(f"results/calibration/{id}.json")
        if content is None:
            continue
        try:
            kept = calibration_in(content)
            stale = spec is None or kept.identity.get("benchmark") != spec_sha256(spec)
        except ValueError:
            rows.append((_safe(id), "not a calibration", *["–"] * 4))
            continue
        found = kept.first
        if found is None:
            rows.append((_safe(id), "none", str(kept.runs), *["–"] * 3))
            continue
        rates = (found.coverage, found.false_positives, found.false_ranks)
        shown = [f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in rates]
        verdict = "of another version" if stale else "passed" if found.passed else "**failed**"
        rows.append((_safe(id), verdict, str(kept.runs), *shown))
    header_row = ("benchmark", "calibration", "runs", "coverage", "equal models differ", "false ranks")
    yield from _table("Calibration, as reported", header_row, rows)


def _licences(proposal: Proposal, benchmarks: dict[str, Any]) -> Iterator[str]:
    """Each data set or model of which a spec or file changed, and each data set that a changed score depends on."""
    used = {("datasets", spec.dataset) for spec in benchmarks.values() if isinstance(spec, BenchmarkSpec)}
    for path in proposal.changed:
        parts = PurePosixPath(path).parts
        if (
            len(parts) > 2
            and parts[0] == "specs"
            and parts[1] in ("datasets", "models")
            and path.endswith(".yaml")
        ):
            used.add((parts[1], PurePosixPath(path).stem))
        elif parts[0] == "data" and len(parts) > 2:
            used.add(
                ("models", parts[2]) if parts[1] == "models" and len(parts) > 3 else ("datasets", parts[1])
            )
    rows = []
    for kind, id in sorted(used):
        spec = proposal.spec(kind, id)
        if isinstance(spec, DatasetSpec | ModelSpec):
            access = spec.access if isinstance(spec, DatasetSpec) else "–"
            simulated = "simulated" if spec.simulated else "–"
            rows.append((KINDS[kind], _safe(id), _safe(spec.license or "none stated"), access, simulated))
    yield from _table("Licences", ("kind", "id", "licence", "access", "simulated"), rows)


def _bytes(proposal: Proposal) -> Iterator[str]:
    held = [(path, one.size) for path, one in proposal.now.entries.items() if path.startswith(".dvcstore/")]
    added = [size for path, size in held if path in proposal.changed]
    yield "\n### Bytes\n"
    yield (
        f"{sum(added):,} bytes in {len(added)} objects are added to the embedded remote, which then holds "
        f"{sum(size for _, size in held) / 1e6:.1f} of {MOST_EMBEDDED / 1e6:.0f} MB."
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"\n### {title}\n"
    for row in (header, ["---"] * len(header), *rows[:MOST_ROWS]):
        yield f"| {' | '.join(row)} |"
    if len(rows) > MOST_ROWS:
        yield f"\n… and {len(rows) - MOST_ROWS} more"


def _number(value: object) -> str:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return f"{value:.4g}" if plain else "–"


def _safe(text: str) -> str:
    """Text of a stranger as inline code: an entity for whatever could be Markdown, HTML, a link or a mention."""
    shown = " ".join(visible(text).split())
    shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
    address = "www" in shown.casefold() or "://" in shown
    # An underscore between letters or digits is no emphasis.
    odd = r"[^\w ]|_" if address else r"[^\w ,/:.+-]|(?<![^\W_])_|_(?![^\W_])"
    return f"<code>{re.sub(odd, lambda found: f'&#{ord(found[0])};', shown)}</code>"
