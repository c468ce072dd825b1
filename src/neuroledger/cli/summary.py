"""Summary of a proposal in Markdown for the maintainer who merges it: scores, controls, calibration, bytes, licences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from neuroledger.display import visible
from neuroledger.engine.diff_since import MOST_EMBEDDED, Proposal, Review, record_in
from neuroledger.engine.record import Record
from neuroledger.engine.records.calibrations import calibration_in
from neuroledger.spec.base import Spec, spec_sha256
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec
from neuroledger.store.git_trees import committed

__all__ = ["summary"]

# A comment on GitHub has at most 65,536 characters.
MAX_CHARACTERS: Final = 60_000
MAX_ROWS: Final = 60
MAX_CELL: Final = 90
VERDICTS: Final = {"passed": "", "undecided": " *undecided*", "failed": " **failed**"}
KINDS: Final = {"datasets": "data set", "models": "model"}


def summary(root: Path, reviewed: Review) -> str:
    """Summarise in Markdown how the last commit of ``root`` differs from the base commit of ``reviewed``.

    Nothing of the proposal is imported, executed or unpickled. Every text of it becomes inline code without active
    Markdown, HTML, links or mentions. Scores are shown as records report them; no file, size or message of a private data
    set is shown.
    """
    proposal = Proposal(committed(root, reviewed.commit), committed(root, "HEAD"))
    records = [
        path
        for path in proposal.changed
        if re.fullmatch(r"results/records/[^/]+/[^/]+\.json", path)
    ]
    changed = {PurePosixPath(path).parts[2] for path in records}
    changed |= {
        PurePosixPath(path).stem
        for path in proposal.changed
        if re.fullmatch(
            r"(specs/benchmarks/.*\.yaml|results/calibration/[^/]+\.json)", path
        )
    }
    benchmarks = {id: proposal.spec("benchmarks", id) for id in sorted(changed)}
    lines = [
        f"## Proposal: {reviewed.verdict}",
        "",
        f"{len(proposal.changed)} files changed since {reviewed.commit[:12]}. No code of the proposal was run.",
        *_findings(reviewed),
        *_scores(proposal, records, benchmarks),
        *_calibrations(proposal, benchmarks),
        *_licences(proposal, benchmarks),
        *_bytes(proposal),
    ]
    while sum(map(len, lines)) + len(lines) > MAX_CHARACTERS:
        lines[-2:] = ["(shortened)"]
    return "\n".join(lines) + "\n"


def _findings(reviewed: Review) -> Iterator[str]:
    findings = [
        finding
        for finding in reviewed.findings
        if finding.severity in ("error", "warning")
    ]
    rows = [
        (
            finding.severity,
            finding.code,
            _safe(f"{finding.where}:{finding.line}" if finding.line else finding.where),
            _safe(finding.what),
        )
        for finding in sorted(findings, key=lambda finding: finding.severity)
    ]
    yield from _table(
        "Findings that need a person", ("severity", "code", "where", "what"), rows
    )


def _scores(
    proposal: Proposal, paths: Sequence[str], benchmarks: Mapping[str, Spec | None]
) -> Iterator[str]:
    rows = []
    for path in paths:
        id = PurePosixPath(path).parts[2]
        model = PurePosixPath(path).stem
        old = record_in(proposal.base.read(path))
        new = record_in(proposal.now.read(path))
        state: str = proposal.changed[path]
        if new is not None and (
            not new.intact or (new.benchmark, new.model) != (id, model)
        ):
            state, new = "not an intact record", None
        dataset = _dataset(proposal, benchmarks[id])
        kind = (
            "unknown"
            if dataset is None
            else "simulated"
            if dataset.simulated
            else dataset.access
        )
        before = _number(None if old is None else old.value)
        rows.append(
            (_safe(id), _safe(model), state, before, *_score(new), _controls(new), kind)
        )
    header = (
        "benchmark",
        "model",
        "record",
        "before",
        "score",
        "95 % interval",
        "controls",
        "data",
    )
    yield from _table("Scores, as the records report them", header, rows)
    if rows:
        yield "\nA reported score counts only after it is recomputed: see the step that recomputes every changed record."


def _dataset(proposal: Proposal, benchmark: object) -> DatasetSpec | None:
    if isinstance(benchmark, BenchmarkSpec):
        spec = proposal.spec("datasets", benchmark.dataset)
    else:
        spec = None
    return spec if isinstance(spec, DatasetSpec) else None


def _score(record: Record | None) -> tuple[str, str]:
    if record is None or record.score is None:
        return ("–" if record is None else "failed"), "–"
    partial = " (partial)" if record.status == "partial" else ""
    value = _number(record.value) + partial
    interval = record.score.interval
    if interval is None:
        return value, "none"
    low, high = interval
    return value, f"{_number(low)} to {_number(high)}"


def _controls(record: Record | None) -> str:
    """Return how many controls passed, and the value, bound and verdict of each."""
    controls = {} if record is None else record.controls
    texts = [
        f"{_safe(name)} {_number(control.value)} {'≥' if control.role == 'positive' else '≤'} "
        f"{_number(control.bound)}{VERDICTS[control.verdict]}"
        for name, control in list(controls.items())[:6]
    ]
    passed = sum(control.verdict == "passed" for control in controls.values())
    if controls:
        return "; ".join([f"{passed} of {len(controls)} passed", *texts])
    return "none"


def _calibrations(
    proposal: Proposal, benchmarks: Mapping[str, Spec | None]
) -> Iterator[str]:
    rows = []
    for id, spec in benchmarks.items():
        content = proposal.now.read(f"results/calibration/{id}.json")
        if content is None:
            continue
        try:
            calibration = calibration_in(content)
            stale = spec is None or calibration.identity.get(
                "benchmark"
            ) != spec_sha256(spec)
        except ValueError:
            rows.append((_safe(id), "not a calibration", *["–"] * 4))
            continue
        runs = str(calibration.runs)
        headline = calibration.first
        if headline is None:
            rows.append((_safe(id), "none", runs, *["–"] * 3))
            continue
        rates = (headline.coverage, headline.false_positives, headline.false_ranks)
        cells = [
            f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]" for rate in rates
        ]
        verdict = (
            "of another version"
            if stale
            else "passed"
            if headline.passed
            else "**failed**"
        )
        rows.append((_safe(id), verdict, runs, *cells))
    header_row = (
        "benchmark",
        "calibration",
        "runs",
        "coverage",
        "equal models differ",
        "false ranks",
    )
    yield from _table("Calibration, as reported", header_row, rows)


def _licences(
    proposal: Proposal, benchmarks: Mapping[str, Spec | None]
) -> Iterator[str]:
    """List each data set or model with a changed spec or file, and each data set of a changed score."""
    used = {
        ("datasets", spec.dataset)
        for spec in benchmarks.values()
        if isinstance(spec, BenchmarkSpec)
    }
    used |= {owner for path in proposal.changed for owner in _owner(path)}
    rows = []
    for kind, id in sorted(used):
        spec = proposal.spec(kind, id)
        if isinstance(spec, DatasetSpec | ModelSpec):
            access = spec.access if isinstance(spec, DatasetSpec) else "–"
            licence = _safe(spec.license or "none stated")
            simulated = "simulated" if spec.simulated else "–"
            rows.append((KINDS[kind], _safe(id), licence, access, simulated))
    header = ("kind", "id", "licence", "access", "simulated")
    yield from _table("Licences", header, rows)


def _owner(path: str) -> list[tuple[str, str]]:
    """Return the kind and id of the data set or model to which a spec or a file in ``data/`` belongs."""
    parts = PurePosixPath(path).parts
    match parts:
        case ("specs", "datasets" | "models", *_, name) if name.endswith(".yaml"):
            return [(parts[1], PurePosixPath(name).stem)]
        case ("data", "models", id, _, *_):
            return [("models", id)]
        case ("data", id, _, *_):
            return [("datasets", id)]
    return []


def _bytes(proposal: Proposal) -> Iterator[str]:
    objects = [
        (path, entry.size)
        for path, entry in proposal.now.entries.items()
        if path.startswith(".dvcstore/")
    ]
    added = [size for path, size in objects if path in proposal.changed]
    yield "\n### Bytes\n"
    yield (
        f"{sum(added):,} bytes in {len(added)} objects are added to the embedded remote, which then contains "
        f"{sum(size for _, size in objects) / 1e6:.1f} of {MOST_EMBEDDED / 1e6:.0f} MB."
    )


def _table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
    if not rows:
        return
    yield f"\n### {title}\n"
    for row in (header, ["---"] * len(header), *rows[:MAX_ROWS]):
        yield f"| {' | '.join(row)} |"
    if len(rows) > MAX_ROWS:
        yield f"\n… and {len(rows) - MAX_ROWS} more"


def _number(value: object) -> str:
    finite = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
    if finite:
        return f"{value:.4g}"
    return "–"


def _safe(text: str) -> str:
    """Return untrusted text as inline code; characters of Markdown, HTML, links or mentions become entities."""
    line = " ".join(visible(text).split())
    line = line if len(line) <= MAX_CELL else f"{line[: MAX_CELL - 1]}…"
    is_address = "www" in line.casefold() or "://" in line
    # An underscore between letters or digits is not emphasis in Markdown.
    active = r"[^\w ]|_" if is_address else r"[^\w ,/:.+-]|(?<![^\W_])_|_(?![^\W_])"
    return f"<code>{re.sub(active, lambda match: f'&#{ord(match[0])};', line)}</code>"
