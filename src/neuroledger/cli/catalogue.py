"""list, show, check, summary, new: list, print, check and create specs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from neuroledger.cli.options import Json, Root, argument, flag, option
from neuroledger.cli.output import FAILED, REFUSED, SUCCESS, Output
from neuroledger.display import say, say_json, say_problem, say_table
from neuroledger.errors import SIGNS, RequestError, SpecError

if TYPE_CHECKING:
    from neuroledger.engine.diff_since import Review
    from neuroledger.errors import Finding
    from neuroledger.spec.base import Override, Published, Spec
    from neuroledger.spec.catalog import Catalog, Entry
    from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec
    from neuroledger.store.files import Seen

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
    "claims": ("id", "version", "pairs", "benchmarks", "title"),
}


def list_(
    kind: Annotated[
        Literal[
            "datasets",
            "metrics",
            "ceilings",
            "benchmarks",
            "models",
            "suites",
            "claims",
        ],
        argument("KIND", "what to list"),
    ] = "benchmarks",
    filter: Annotated[
        str | None,
        option("--filter", "TEXT", "show only rows that contain TEXT"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """List data sets, metrics, ceilings, benchmarks, models, suites or claims.

    JSON: a list of specs, each with id, version, title and the other columns of its kind.
    """
    from neuroledger.spec.catalog import open_definitions

    catalog = open_definitions(root)
    text = (filter or "").lower()
    rows = [_row(catalog, _spec(catalog, kind, id)) for id in catalog.ids(kind)]
    rows = [row for row in rows if text in " ".join(map(str, row.values())).lower()]
    if json:
        say_json(rows)
        return SUCCESS
    columns = COLUMNS[kind]
    say_table(columns, [[str(row[name]) for name in columns] for row in rows])
    if not rows:
        say(f"no {kind}" + (f" with {filter!r}" if filter else ""))
    return SUCCESS


def _spec(catalog: Catalog, kind: str, id: str) -> Spec:
    """Return a spec; that of a data set without its long lists."""
    if kind == "datasets":
        return catalog.about(id)
    return catalog.entry(kind, id).spec


def _id(value: str | Override | None) -> str:
    from neuroledger.spec.base import id_of

    return id_of(value) if value else "–"


def _row(catalog: Catalog, spec: Spec) -> dict[str, object]:
    """Return the columns of one spec in a list of its kind."""
    from neuroledger.spec import kinds

    row: dict[str, object] = {
        "id": spec.id,
        "version": spec.version,
        "title": spec.title,
    }
    match spec:
        case kinds.DatasetSpec():
            row["license"], row["access"] = spec.license, spec.access
            row["state"] = _state(catalog, spec)
        case kinds.BenchmarkSpec():
            row |= _columns_of_benchmark(catalog, spec)
        case kinds.ModelSpec():
            row["builder"] = spec.builder.name if spec.builder else "–"
            row["control"] = spec.control or "–"
        case kinds.SuiteSpec():
            row["benchmarks"], row["models"] = len(spec.benchmarks), len(spec.models)
        case kinds.ClaimSpec():
            row["pairs"], row["benchmarks"] = len(spec.pairs), len(spec.benchmarks)
        case kinds.MetricSpec() | kinds.CeilingSpec():
            row["scale"], row["function"] = spec.scale, spec.compare.name
    return row


def _columns_of_benchmark(catalog: Catalog, spec: BenchmarkSpec) -> dict[str, str]:
    closed = spec.unavailable or catalog.closed(spec.dataset)
    return {
        "parent": spec.parent,
        "dataset": spec.dataset,
        "metric": ", ".join(_id(item) for item in spec.all_metrics),
        "ceiling": _id(spec.ceiling) if spec.floor is None else "floor",
        "state": "unavailable" if closed else "ready",
    }


def _state(catalog: Catalog, spec: DatasetSpec) -> str:
    """Return whether the data set is available, and whether it is simulated."""
    if spec.unread:
        return "unread"
    if catalog.closed(spec.id):
        return "unavailable"
    return "simulated" if spec.simulated else "real"


def show(
    id: Annotated[
        str,
        argument(
            "ID",
            "id of a data set, metric, ceiling, benchmark, model, suite or claim",
            ids=tuple(COLUMNS),
        ),
    ],
    json: Json = False,
    root: Root = None,
) -> int:
    """Show one spec: definition, licence, citation, controls and recorded scores.

    JSON: the fields of the spec, with its kind; a list of these if several kinds have the id.
    """
    from neuroledger.spec.catalog import open_definitions

    catalog = open_definitions(root)
    entries = catalog.find(id)
    if json:
        plain = [
            {
                "kind": entry.kind[:-1],
                **entry.spec.model_dump(mode="json", by_alias=True),
            }
            for entry in entries
        ]
        say_json(plain if len(plain) > 1 else plain[0])
        return SUCCESS
    for entry in entries:
        _card(catalog, entry)
    return SUCCESS


# Fields that the card of a spec shows in its own way, or not at all.
SHOWN_OTHERWISE = frozenset(
    {
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
)


def _card(catalog: Catalog, entry: Entry) -> None:
    """Print one spec with its citations and recorded scores."""
    from neuroledger.spec.kinds import DatasetSpec

    spec = entry.spec
    say(f"{spec.id} · {entry.kind[:-1]}, version {spec.version}")
    say(f"  {spec.title}")
    if isinstance(spec, DatasetSpec) and spec.simulated:
        say("  SIMULATED data")
    if spec.description:
        say(f"  {spec.description}")
    say()
    plain = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name, value in plain.items():
        if name not in SHOWN_OTHERWISE:
            for line in _lines(name, value):
                say(line)
    if isinstance(spec, DatasetSpec):
        _files(catalog, spec)
    _published(catalog, spec)
    for key in spec.cite:
        say(f"  cite {_reference(catalog, key)}")
    _recorded_scores(catalog, entry)
    say(f"  {entry.path if catalog.origin(entry.path) else catalog.shown(entry.path)}")


def _files(catalog: Catalog, spec: DatasetSpec) -> None:
    """Print the pinned files of a data set, its expectations and its prepared signals."""
    from neuroledger.data.integrity import pinned_files

    _, pins = pinned_files(catalog, "datasets", spec.id)
    for name, pin in islice(pins.items(), SHOWN_FILES):
        source = "DVC" if pin.dvc else pin.url or "by hand"
        say(f"  {name:<28}{pin.size:>12,} bytes  sha256 {pin.sha256[:16]}…  {source}")
    if len(pins) > SHOWN_FILES:
        total = sum(pin.size for pin in pins.values())
        say(f"  … {len(pins):,} files in all, {total / 1e9:,.2f} GB")
    count = len(spec.expectations.stimuli) + len(spec.expectations.assembly)
    say(f"  {count} expectations; `neuroledger validate {spec.id}` checks them")
    _prepared(catalog, spec)


def _published(catalog: Catalog, spec: Spec) -> None:
    """Print the known defects of a spec and the figures that others published."""
    for defect in getattr(spec, "defects", ()):
        say(f"  defect: {defect}")
    if published := getattr(spec, "published", ()):
        _figures(catalog, spec.id, published)


def _figures(catalog: Catalog, id: str, figures: Sequence[Published]) -> None:
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
        or report.identity != identity(spec, map(catalog.dataset, spec.members))
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


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, tuple | list):
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
    if entry.kind == "benchmarks":
        pattern = f"{entry.spec.id}/*.json"
    else:
        pattern = f"*/{entry.spec.id}.json"
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


def new(
    kind: Annotated[
        Literal["dataset", "metric", "ceiling", "benchmark", "model", "suite"],
        argument("KIND", "kind of the spec"),
    ],
    id: Annotated[
        str,
        argument("ID", "id of the new spec; also the name of its file"),
    ],
    json: Json = False,
    root: Root = None,
) -> int:
    """Create a spec file from a template that passes `check`.

    JSON: written (paths), notes, and next (commands that usually follow).
    """
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    path = scaffold(catalog, kind, id)
    # Outside the repository, a relative path would be ambiguous.
    inside = Path.cwd().is_relative_to(catalog.root)
    where = catalog.shown(path) if inside else str(path)
    place = "" if root is None else f" --root {root}"
    answer = Output(json)
    command = f"neuroledger{place} check {where}"
    answer.wrote(where, f"; edit it, then `{command}`")
    answer.next.append(command)
    answer.end()
    return SUCCESS


class _Checked(NamedTuple):
    """What `check` found: the problems, the number of spec files, and the review where a commit is given."""

    findings: Sequence[Finding]
    files: int
    review: Review | None = None

    @property
    def errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        plain: dict[str, object] = {
            "files": self.files,
            "errors": self.errors,
            "findings": [finding.to_dict() for finding in self.findings],
        }
        if self.review is not None:
            plain["since"] = self.review.commit
            plain["verdict"] = self.review.verdict
        return plain

    def say(self) -> None:
        if self.review is not None:
            _say_review(self.review)
            return
        for finding in self.findings:
            say(str(finding))
        noted = sum(finding.severity == "note" for finding in self.findings)
        wrong = len(self.findings) - noted
        notes = f", {noted} note{'' if noted == 1 else 's'}" if noted else ""
        problems = f"{wrong or 'no'} problem{'' if wrong == 1 else 's'}"
        say(f"{self.files} spec files: {problems}{notes}")

    def status(self) -> int:
        if self.review is not None:
            return VERDICTS[self.review.verdict]
        return FAILED if self.errors else SUCCESS


# The exit status of each verdict of a review.
VERDICTS: Mapping[str, int] = {
    "clean": SUCCESS,
    "needs a person": FAILED,
    "refused": REFUSED,
}


def check(
    paths: Annotated[
        list[Path] | None,
        argument("PATH", "spec files or folders (default: all specs)"),
    ] = None,
    output: Annotated[
        Path | None,
        option("--output", "FILE", "also write the findings as JSON to this file"),
    ] = None,
    since: Annotated[
        str | None,
        option(
            "--since",
            "COMMIT",
            "also review what changed since this commit: specs, pins, scores, code",
        ),
    ] = None,
    write_schemas: Annotated[
        bool,
        flag("--write-schemas", "regenerate specs/schema/ before checking"),
    ] = False,
    json: Json = False,
    root: Annotated[
        Path | None,
        option(
            "--root",
            "FOLDER",
            "repository to check, such as an untrusted proposal; none of its code is run",
        ),
    ] = None,
) -> int:
    """Check specs, schemas, references, citations and pins; report every problem.

    JSON: files (their number), errors (their number), findings (code, severity, where, what, fix), and with --since also
    since and verdict.
    """
    from neuroledger.spec.catalog import find_repository
    from neuroledger.store.files import write_json

    repository = find_repository(root)
    schemas = (say_problem if json else say) if write_schemas else None
    if since is None:
        again = schemas is not None
        checked = _Checked(*_check(repository, paths or (), schemas, again=again))
    else:
        review, files = _review(repository, since, paths or (), schemas)
        checked = _Checked(review.findings, files, review)
    if output is not None:
        write_json(output, checked.to_dict())
    if json:
        say_json(checked.to_dict())
    else:
        checked.say()
    return checked.status()


def _check(
    root: Path,
    paths: Sequence[Path],
    schemas: Callable[[str], None] | None = None,
    *,
    again: bool = True,
) -> tuple[Sequence[Finding], int]:
    """Return every problem of the specs and the number of files.

    With ``schemas``, regenerate the JSON Schemas first, and call it with a line for each. What was found without an error
    is remembered until a file changes, unless ``again``: an error may be one of the machine.
    """
    from neuroledger.errors import Finding
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.store.derived import derived_at

    catalog = open_catalog(root)
    key = "" if again else _key_of_check(catalog, paths)
    if key:
        known = derived_at(root).recall([key]).get(key)
        if known is not None:
            return [Finding(*fields) for fields in known[0]], known[1]
    findings, count = _check_all(catalog, paths, schemas)
    wrong = any(finding.severity == "error" for finding in findings)
    if key and not wrong and key == _key_of_check(catalog, paths):
        plain = [astuple(finding) for finding in findings]
        derived_at(root).remember({key: [plain, count]})
    return findings, count


def _check_all(
    catalog: Catalog, paths: Sequence[Path], schemas: Callable[[str], None] | None
) -> tuple[Sequence[Finding], int]:
    from neuroledger.engine.check import check as check_specs
    from neuroledger.engine.check import write_schemas
    from neuroledger.spec import registry

    if schemas is not None:
        for path in write_schemas(catalog.root):
            schemas(f"wrote {catalog.shown(path)}")
    findings, count = check_specs(catalog, paths)
    if not paths and not registry.only_shipped():
        from neuroledger.testing import contract_findings

        findings = sorted({*findings, *contract_findings(catalog)})
    return findings, count


def _key_of_check(catalog: Catalog, paths: Sequence[Path]) -> str:
    """Return the key of what a check finds; empty if that follows from more than files and this package."""
    from neuroledger.spec import registry
    from neuroledger.spec.shipped import marker_of
    from neuroledger.store.derived import key_of_files
    from neuroledger.store.files import files_below, look_at

    folders = [layer.folder for layer in catalog.layers]
    chosen = [path.resolve() for path in paths]
    inside = all(
        any(path.is_relative_to(folder.resolve()) for folder in folders)
        for path in chosen
    )
    if not inside or not registry.only_shipped():
        return ""
    root = catalog.root

    def files() -> Iterator[Seen]:
        for folder in (*folders, root / "results" / "records"):
            yield from files_below(folder)
        for file in files_below(root / "data"):
            # Pointers of DVC, and whether private data have a remote of their own.
            if file.path.endswith(".dvc") or Path(file.path).match(".dvc/config"):
                yield file
        yield look_at(marker_of(root))

    return key_of_files("check", files(), str(root), *map(str, chosen))


def _review(
    root: Path,
    since: str,
    paths: Sequence[Path] = (),
    schemas: Callable[[str], None] | None = None,
) -> tuple[Review, int]:
    """Return the review of the changes with the problems of the specs, and the number of specs."""
    from neuroledger.engine.diff_since import review

    reviewed = review(root, since)
    # A refused proposal may contain links or endless files, which the check would follow.
    if reviewed.verdict == "refused":
        return reviewed, 0
    try:
        problems, count = _check(root, paths, schemas)
    except SpecError as error:  # the catalogue cannot be opened: a duplicate id
        problems = error.findings
        count = 0
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


def summary(
    since: Annotated[
        str,
        option(
            "--since",
            "COMMIT",
            "branch or commit that the proposal would be merged into",
        ),
    ],
    json: Json = False,
    root: Annotated[
        Path | None,
        option(
            "--root",
            "FOLDER",
            "repository to summarise, such as an untrusted proposal; none of its code is run",
        ),
    ] = None,
) -> int:
    """Summarise a proposal as Markdown: scores, controls, bytes, licences.

    JSON: since, verdict, findings (code, severity, where, what, fix) and markdown.
    """
    from neuroledger.cli.summary import summary as summary_of
    from neuroledger.spec.catalog import find_repository

    repository = find_repository(root)
    reviewed, _ = _review(repository, since)
    text = summary_of(repository, reviewed).rstrip("\n")
    if json:
        findings = [finding.to_dict() for finding in reviewed.findings]
        facts = {"since": reviewed.commit, "verdict": reviewed.verdict}
        say_json({**facts, "findings": findings, "markdown": text})
    else:
        say(text)
    return SUCCESS


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
    from neuroledger.spec.load import read_spec
    from neuroledger.store.files import write_text

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
    write_text(path, _filled_template(catalog, kind, id))
    try:
        read_spec(path, f"{kind}s", catalog.shown(path))
    except Exception:
        path.unlink()
        raise
    return path


def _filled_template(catalog: Catalog, kind: str, id: str) -> str:
    """Return the text of a new spec, which refers to specs of the repository."""
    head = f"id: {id}\nversion: 1                    # increase it whenever its numbers change\n"
    if (catalog.root / "specs" / "schema").is_dir():
        head = f"# yaml-language-server: $schema=../schema/{kind}.json\n{head}"
    text = TEMPLATES[kind]
    if kind == "benchmark":
        dataset = _default_reference(catalog, "datasets", id, "Digits.simulated")
        if catalog.dataset(dataset).modality in SIGNALS:
            text = DECODING
        text = text.replace(f"{'DATASET':<20}", f"{dataset:<20}")
    elif kind == "suite":
        default = "Digits.simulated.IT-ridge"
        benchmark = _default_reference(catalog, "benchmarks", id, default)
        text = text.replace("BENCHMARK", benchmark)
    elif kind in COMPONENTS:
        text = _naming_component(text, kind, id)
    return head + text


# The kinds of component that specs name, with the field and the fields that fit only the component of the template.
COMPONENTS = {
    "metric": ("metric", "compare", ("splits", "aggregate", "error")),
    "ceiling": ("ceiling", "compare", ("splits", "aggregate", "error")),
    "model": ("builder", "builder", ()),
}


def _naming_component(text: str, kind: str, id: str) -> str:
    """Return a template that names the registered component of the same name as the spec, if there is one."""
    from neuroledger.spec import registry

    component, field, others = COMPONENTS[kind]
    if id not in registry.names(component):
        return text
    kept = [line for line in text.splitlines() if not line.startswith(others)]
    named = (
        f"{field}: {{name: {id}}}    # the registered {component}; add its parameters"
    )
    return "".join(f"{named if line.startswith(field) else line}\n" for line in kept)


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
