"""list, show, check, summary, new: list, print, check and create specs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroledger.display import say, say_json, say_table
from neuroledger.errors import SIGNS, RequestError, SpecError
from neuroledger.spec.base import Override, Published, Spec, id_of
from neuroledger.spec.catalog import Catalog, Entry, find_repository, open_catalog
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec, SuiteSpec
from neuroledger.spec.load import read_spec
from neuroledger.store.files import write_text

if TYPE_CHECKING:
    from neuroledger.engine.diff_since import Review
    from neuroledger.errors import Finding

SHOWN_FINDINGS = 30
# Longer lists are cut, and their length is shown.
SHOWN_FILES = 100
COLUMNS = {
    "datasets": ("id", "version", "license", "access", "state", "title"),
    "metrics": ("id", "version", "scale", "function", "title"),
    "ceilings": ("id", "version", "scale", "function", "title"),
    "benchmarks": (
        "id",
        "version",
        "parent",
        "dataset",
        "metric",
        "ceiling",
        "state",
        "title",
    ),
    "models": ("id", "version", "builder", "control", "title"),
    "suites": ("id", "version", "benchmarks", "models", "title"),
}


def list(options: argparse.Namespace) -> int:
    """Print a table of all specs of one kind."""
    catalog = open_catalog(options.root)
    about = {"datasets": catalog.about}.get(
        options.kind, lambda id: catalog.entry(options.kind, id).spec
    )
    rows = [_row(catalog, about(id)) for id in catalog.ids(options.kind)]
    if options.filter:
        text = options.filter.lower()
        rows = [row for row in rows if text in " ".join(map(str, row.values())).lower()]
    if options.json:
        say_json(rows)
        return 0
    columns = COLUMNS[options.kind]
    say_table(columns, [[str(row[name]) for name in columns] for row in rows])
    if not rows:
        say(
            f"no {options.kind}"
            + (f" with {options.filter!r}" if options.filter else "")
        )
    return 0


def _id(value: str | Override | None) -> str:
    return id_of(value) if value else "–"


def _row(catalog: Catalog, spec: Spec) -> dict[str, Any]:
    row: dict[str, Any] = {"id": spec.id, "version": spec.version, "title": spec.title}
    if isinstance(spec, DatasetSpec):
        state = (
            "unavailable"
            if spec.unavailable
            else "unread"
            if spec.unread
            else "simulated"
            if spec.simulated
            else "real"
        )
        row |= {"license": spec.license, "access": spec.access, "state": state}
    elif isinstance(spec, BenchmarkSpec):
        row |= {
            "parent": spec.parent,
            "dataset": spec.dataset,
            "metric": ", ".join(_id(item) for item in spec.all_metrics),
            "ceiling": _id(spec.ceiling) if spec.floor is None else "floor",
            "state": "unavailable"
            if spec.unavailable or catalog.about(spec.dataset).closed
            else "ready",
        }
    elif isinstance(spec, ModelSpec):
        row |= {
            "builder": spec.builder.name if spec.builder else "–",
            "control": spec.control or "–",
        }
    elif isinstance(spec, SuiteSpec):
        row |= {"benchmarks": len(spec.benchmarks), "models": len(spec.models)}
    else:
        row |= {"scale": getattr(spec, "scale", "–"), "function": spec.compare.name}  # type: ignore[attr-defined]
    return row


def show(options: argparse.Namespace) -> int:
    """Print everything about one id."""
    catalog = open_catalog(options.root)
    entries = catalog.find(options.id)
    if options.json:
        plain = [
            {
                "kind": entry.kind[:-1],
                **entry.spec.model_dump(mode="json", by_alias=True),
            }
            for entry in entries
        ]
        say_json(plain if len(plain) > 1 else plain[0])
        return 0
    for entry in entries:
        _card(catalog, entry)
    return 0


def _card(catalog: Catalog, entry: Entry) -> None:
    spec = entry.spec
    say(f"{spec.id} · {entry.kind[:-1]}, version {spec.version}")
    say(f"  {spec.title}")
    if isinstance(spec, DatasetSpec) and spec.simulated:
        say("  SIMULATED data")
    if spec.description:
        say(f"  {spec.description}")
    say()
    skipped = {
        "id",
        "version",
        "title",
        "description",
        "expectations",
        "files",
        "published",
        "defects",
        "cite",
    }
    for name, value in spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    ).items():
        if name not in skipped:
            for line in _lines(name, value):
                say(line)
    if isinstance(spec, DatasetSpec):
        for name, pin in islice(spec.files.items(), SHOWN_FILES):
            say(
                f"  {name:<28}{pin.size:>12,} bytes  sha256 {pin.sha256[:16]}…  {'DVC' if pin.dvc else pin.url or 'by hand'}"
            )
        if len(spec.files) > SHOWN_FILES:
            total = sum(pin.size for pin in spec.files.values())
            say(f"  … {len(spec.files):,} files in all, {total / 1e9:,.2f} GB")
        count = len(spec.expectations.stimuli) + len(spec.expectations.assembly)
        say(f"  {count} expectations; `neuroledger validate {spec.id}` checks them")
        _prepared(catalog, spec)
    for defect in getattr(spec, "defects", ()):
        say(f"  defect: {defect}")
    if published := getattr(spec, "published", ()):
        _published(catalog, spec.id, published)
    for key in spec.cite:
        say(f"  cite {_reference(catalog, key)}")
    _recorded_scores(catalog, entry)
    say(f"  {entry.path if catalog.origin(entry.path) else catalog.shown(entry.path)}")


def _published(catalog: Catalog, id: str, figures: Sequence[Published]) -> None:
    """Print published figures, and which models were pretrained on the data of the benchmark."""
    from neuroledger.report.table import pretrained_on

    for figure in figures:
        metric = f", {figure.metric}" if figure.metric else ""
        seen = pretrained_on(catalog, f"published.{figure.model}", [id])
        overlap = "; pretrained on these data" if seen else ""
        say(
            f"  published, not reproduced: {figure.model}{metric} {figure.value:.12g} ({figure.source}{overlap})"
        )


def _prepared(catalog: Catalog, spec: DatasetSpec) -> None:
    """Print the shape and hash of preprocessed signals as found by the last validation."""
    from neuroledger.data.gate.validation import identity, read_report, report_path

    report = read_report(report_path(catalog.root, spec.id))
    assembly = report.contents.get("assembly") if report is not None else None
    if (
        report is None
        or assembly is None
        or not assembly.sha256
        or report.identity != identity(spec)
    ):
        return
    sizes = " × ".join(
        f"{size:,} {dim}s"
        for dim, size in zip(assembly.dims, assembly.shape, strict=True)
    )
    say(f"  prepared: {sizes}, {assembly.dtype}")
    say(f"  prepared content: sha256 {assembly.sha256}")


def _lines(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of a field: one line, or a list of sentences, which is numbered for steps."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if (
        not is_list
        or not all(isinstance(item, str) for item in value)
        or " " not in "".join(value)
    ):
        yield f"  {name:<16}{_inline(value)}"
        return
    for number, sentence in enumerate(value, 1):
        bullet = f"{number}." if name == "access_steps" else "–"
        yield f"  {name if number == 1 else '':<16}{bullet} {sentence}"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, (tuple, type([]))):
        items = [_inline(item) for item in value[:SHOWN_FILES]]
        return ", ".join(
            [*items, f"… {len(value):,} in all"] if value[SHOWN_FILES:] else items
        )
    return str(value)


def _reference(catalog: Catalog, key: str) -> str:
    from neuroledger.spec.bibliography import joined

    reference = joined(catalog.bibliographies).references.get(key)
    if reference is None:
        return key
    fields = {name: " ".join(value.split()) for name, value in reference.fields.items()}
    parts = [
        fields.get("author", "").split(" and ")[0],
        *(fields.get(name, "") for name in ("year", "title", "doi")),
    ]
    return f"{key}: " + ", ".join(re.sub(r"[{}]", "", part) for part in parts if part)


def _recorded_scores(catalog: Catalog, entry: Entry) -> None:
    if entry.kind not in {"benchmarks", "models"}:
        return
    from neuroledger.engine.control import in_words
    from neuroledger.engine.record import read_record

    folder = catalog.root / "results" / "records"
    pattern = (
        f"{entry.spec.id}/*.json"
        if entry.kind == "benchmarks"
        else f"*/{entry.spec.id}.json"
    )
    for path in sorted(folder.glob(pattern)):
        record = read_record(path)
        other = path.stem if entry.kind == "benchmarks" else path.parent.name
        value = record.value
        say(
            f"  scored   {other:<44} {'failed' if value is None else format(value, '.4f')}"
        )
        for name, control in record.controls.items():
            if control.verdict != "passed":
                say(f"    control {name} {control.verdict}: {in_words(control)}")


def new(options: argparse.Namespace) -> int:
    """Create a spec file from a template."""
    catalog = open_catalog(options.root)
    path = scaffold(catalog, options.kind, options.id)
    # Outside the repository, a relative path would be ambiguous.
    inside = Path.cwd().is_relative_to(catalog.root)
    where = catalog.shown(path) if inside else str(path)
    check = (
        "neuroledger check"
        if options.root is None
        else f"neuroledger --root {options.root} check"
    )
    say(f"wrote {where}; edit it, then `{check} {where}`")
    return 0


def check(options: argparse.Namespace) -> int:
    """Check all specs; with a commit, also review what changed since."""
    from neuroledger.store.files import write_json

    root = find_repository(options.root)
    reviewed = None
    if options.since is not None:
        reviewed, count = _review(
            root, options.since, options.paths, schemas=options.write_schemas
        )
        findings: Sequence[Finding] = reviewed.findings
    else:
        findings, count = _check(root, options.paths, schemas=options.write_schemas)
    errors = sum(finding.severity == "error" for finding in findings)
    plain: dict[str, Any] = {
        "files": count,
        "errors": errors,
        "findings": [finding.to_dict() for finding in findings],
    }
    if reviewed is not None:
        plain |= {"since": reviewed.commit, "verdict": reviewed.verdict}
    if options.output:
        write_json(options.output, plain)
    if options.json:
        say_json(plain)
    elif reviewed is not None:
        _say_review(reviewed)
    else:
        for finding in findings:
            say(str(finding))
        noted = sum(finding.severity == "note" for finding in findings)
        wrong = len(findings) - noted
        notes = f", {noted} note{'' if noted == 1 else 's'}" if noted else ""
        say(
            f"{count} spec files: {wrong or 'no'} problem{'' if wrong == 1 else 's'}{notes}"
        )
    if reviewed is not None:
        return {"clean": 0, "needs a person": 1, "refused": 3}[reviewed.verdict]
    return 1 if errors else 0


def _check(
    root: Path, paths: Sequence[Path], *, schemas: bool
) -> tuple[Sequence[Finding], int]:
    """Return every problem of the specs and the number of files; ``schemas``: regenerate the JSON Schemas first."""
    from neuroledger.engine.check import check as check_specs
    from neuroledger.engine.check import write_schemas
    from neuroledger.testing import contract_findings

    catalog = open_catalog(root)
    for path in write_schemas(root) if schemas else ():
        say(f"wrote {catalog.shown(path)}")
    findings, count = check_specs(catalog, paths)
    if not paths:
        findings = sorted({*findings, *contract_findings(catalog)})
    return findings, count


def _review(
    root: Path, since: str, paths: Sequence[Path] = (), *, schemas: bool = False
) -> tuple[Review, int]:
    """Return the review of the changes with the problems of the specs, and the number of specs."""
    from neuroledger.engine.diff_since import review

    reviewed = review(root, since)
    # A refused proposal may contain links or endless files, which the check would follow.
    if reviewed.verdict == "refused":
        return reviewed, 0
    try:
        problems, count = _check(root, paths, schemas=schemas)
    except (
        SpecError
    ) as error:  # the catalogue cannot be opened, such as with a duplicate id
        problems, count = error.findings, 0
    changed = {finding.where for finding in reviewed.findings}
    # The proposal did not cause warnings about files that it does not change.
    relevant = [
        finding
        for finding in problems
        if finding.severity == "error" or finding.where in changed
    ]
    return replace(
        reviewed, findings=tuple(sorted({*reviewed.findings, *relevant}))
    ), count


def summary(options: argparse.Namespace) -> int:
    """Summarise a proposal as Markdown."""
    from neuroledger.cli.summary import summary as summary_of

    root = find_repository(options.root)
    say(summary_of(root, _review(root, options.since)[0]).rstrip("\n"))
    return 0


def _say_review(reviewed: Review) -> None:
    """Print the findings, the most severe first and at most 30 of each severity, then the verdict."""
    say(f"since {reviewed.commit[:12]}:")
    for severity in ("error", "warning", "note"):
        findings = [
            finding for finding in reviewed.findings if finding.severity == severity
        ]
        for finding in findings[:SHOWN_FINDINGS]:
            say(f"{SIGNS[severity]} {finding}")
        if len(findings) > SHOWN_FINDINGS:
            say(f"  … and {len(findings) - SHOWN_FINDINGS} more; `--json` lists all")
    if not reviewed.findings:
        say("nothing changed")
    say(f"verdict: {reviewed.verdict}")


TEMPLATES = {
    "dataset": """\
title: What was recorded, from which subjects, with which stimuli
license: LicenseRef-unstated  # SPDX id of the licence, such as CC-BY-4.0
access: private               # or public; private: scores may be shown, values may not
cite: []                      # keys of specs/references.bib
unavailable: not packaged yet # `neuroledger package` replaces this line by `files`, `reader` and `expectations`
""",
    "metric": """\
title: What the metric compares
compare: {name: regression, estimator: {name: ridge, alpha: 1}}  # a registered metric and its parameters
splits: {name: shuffle, folds: 10, train: 0.9, by: stimulus_id}    # remove if nothing is fitted
aggregate: [{over: neuroid, with: median}, {over: split, with: mean}]
error: {over: split, with: sem}
scale: correlation            # decides how a ceiling normalises the value
direction: higher
cite: []
""",
    "ceiling": """\
title: Which noise limits a score
compare: {name: internal_consistency}    # a registered ceiling and its parameters
splits: {name: shuffle, folds: 10, train: 0.5, by: repetition, unique: true}
aggregate: [{over: neuroid, with: median}, {over: split, with: mean}]
error: {over: split, with: sem}
scale: reliability
direction: higher
cite: []
""",
    "benchmark": """\
title: Which data are compared, and how
parent: V4                    # its place in the hierarchy
dataset: DATASET              # specs/datasets/
select: {region: V4}          # coordinates of the assembly
paradigm: {name: recording, region: V4, visual_degrees: 8}
metric: ridge                 # `neuroledger list metrics`, or {name: ridge, splits: {folds: 5}}
ceiling: internal_consistency # `neuroledger list ceilings`
controls: {negative: [noise]} # models that must stay at the floor; positive: those that must reach the ceiling
cite: []
""",
    "model": """\
title: What the model is
builder: {name: pixels, size: 16}    # a registered builder and its parameters
pretraining: []                      # data sets that the model was trained on
""",
    "suite": """\
title: What these benchmarks have in common
benchmarks: [BENCHMARK]
models: [pixels16, noise]
""",
}

# Modalities of data sets whose benchmarks decode, and the template of such a benchmark.
SIGNALS = ("eeg", "meg", "ieeg", "emg", "fmri")
DECODING = """\
title: What is decoded from which signals
parent: decoding
dataset: DATASET              # specs/datasets/
paradigm: {name: decoding, target: label, splits: {name: cross_subject}}  # docs/decoding.md: what is held out
metric: balanced_accuracy     # `neuroledger list metrics`; decoding_pearson_r for numbers, top5_retrieval for embeddings
floor: {dummy: dummy}         # 0 is the dummy, 1 is perfect
controls: {positive: [planted_lda], negative: [shuffled_lda], floor_at_most: 0.35}
cite: []
tags: [decoding]
"""


def scaffold(catalog: Catalog, kind: str, id: str) -> Path:
    """Write ``specs/<kind>s/<id>.yaml`` and return its path.

    Raises
    ------
    RequestError
        The file exists, the id cannot be a file name, or the repository has no spec yet that a spec of this kind must
        refer to.
    SpecError
        The id is not well formed.
    """
    path = catalog.root / "specs" / f"{kind}s" / f"{id}.yaml"
    existing = catalog.path(f"{kind}s", id)
    if path.exists() or existing is not None:
        raise RequestError(
            f"{kind} {id!r} already exists: {catalog.shown(existing or path)}"
        )
    if "/" in id or id.startswith("."):
        raise RequestError(
            f"{id!r} cannot be a file name: use letters, digits and . _ -"
        )
    head = f"id: {id}\nversion: 1                    # increase it whenever its numbers change\n"
    if (catalog.root / "specs" / "schema").is_dir():
        head = f"# yaml-language-server: $schema=../schema/{kind}.json\n{head}"
    text = TEMPLATES[kind]
    if kind == "benchmark":
        dataset = _default_reference(catalog, "datasets", id, "Digits.simulated")
        text = DECODING if catalog.dataset(dataset).modality in SIGNALS else text
        text = text.replace(f"{'DATASET':<20}", f"{dataset:<20}")
    elif kind == "suite":
        text = text.replace(
            "BENCHMARK",
            _default_reference(catalog, "benchmarks", id, "Digits.simulated.IT-ridge"),
        )
    write_text(path, head + text)
    try:
        read_spec(path, f"{kind}s", catalog.shown(path))
    except Exception:
        path.unlink()
        raise
    return path


def _default_reference(catalog: Catalog, kind: str, id: str, default: str) -> str:
    """Return the id that a new spec refers to: the longest known prefix of its own id, the default, or the first id."""
    ids = catalog.ids(kind)
    prefixes = [known for known in ids if id.startswith((f"{known}.", f"{known}-"))]
    if prefixes:
        return max(prefixes, key=len)
    if default in ids:
        return default
    if not ids:
        raise RequestError(
            f"the repository has no {kind[:-1]} that {id!r} could refer to: create one with `neuroledger new {kind[:-1]} ID`"
        )
    return ids[0]
