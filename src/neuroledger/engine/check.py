"""Check all specs at once: schema, references, component parameters, citations, pins, schema files and controls."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pydantic
from pydantic import BaseModel, ValidationError

from neuroledger.data.integrity import folder_of
from neuroledger.data.reader import member_problems
from neuroledger.engine.control import Role, bounded, floor_of, in_words
from neuroledger.engine.outcome import Undefined
from neuroledger.engine.overrides import resolve
from neuroledger.engine.plan import BENCHMARK_ONLY_SAYS
from neuroledger.engine.record import Record, read_record, record_path
from neuroledger.errors import (
    DataError,
    Finding,
    RequestError,
    Severity,
    SpecError,
    UnknownError,
)
from neuroledger.spec import registry
from neuroledger.spec.addresses import said_of, texts
from neuroledger.spec.base import (
    Component,
    Override,
    SourceFile,
    Spec,
    id_of,
    spec_sha256,
)
from neuroledger.spec.bibliography import attribution_problems, joined
from neuroledger.spec.catalog import Catalog, Entry, references
from neuroledger.spec.components import Foreseen, Place
from neuroledger.spec.kinds import (
    KINDS,
    BenchmarkSpec,
    CeilingSpec,
    DatasetSpec,
    MetricSpec,
    ModelSpec,
    NormaliseRule,
    SuiteSpec,
)
from neuroledger.spec.load import explain, read_spec
from neuroledger.spec.shipped import DISTRIBUTION, is_checkout
from neuroledger.spec.suites import suite_problems
from neuroledger.store.derived import derived_at, fact, key_of, remembered
from neuroledger.store.files import write_text

__all__ = [
    "CHOOSES",
    "Problem",
    "benchmark_problems",
    "check",
    "chosen_in",
    "dataset_problems",
    "foreseen",
    "schema_texts",
    "write_schemas",
]


class Choice(NamedTuple):
    """A field of a kind of spec that names a component, or several, and the kind of these components."""

    field: str
    kind: str
    several: bool = False


CHOOSES: Final[Mapping[str, tuple[Choice, ...]]] = {
    "datasets": (
        Choice("reader", "reader"),
        Choice("signatures", "signature", several=True),
    ),
    "metrics": (Choice("compare", "metric"),),
    "ceilings": (Choice("compare", "ceiling"),),
    "benchmarks": (Choice("paradigm", "paradigm"),),
    "models": (Choice("builder", "builder"),),
}

# What a failed control of each role says about its benchmark.
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
FAULTS: Final[Mapping[Role, str]] = {
    "positive": "the benchmark misses a known effect: correct it",
    "negative": "the benchmark rewards noise: correct it",
}


def schema_texts(*, plugins: bool) -> dict[str, str]:
    """Return the text of each kind's JSON Schema by file name, with or without the components of installed plugins.

    The schema of records is one of them.
    """
    schemas = {f"{kind[:-1]}.json": _schema(kind, plugins) for kind in KINDS}
    schemas["record.json"] = Record.model_json_schema() | {
        "$schema": DRAFT,
        "title": "NeuroLedger record",
    }
    return {
        name: json.dumps(schema, indent=1, sort_keys=True) + "\n"
        for name, schema in schemas.items()
    }


def write_schemas(root: Path) -> list[Path]:
    """Write the schemas to specs/schema/ and return the paths of those that changed."""
    folder = root / "specs" / "schema"
    texts = schema_texts(plugins=not is_checkout(root))
    return [
        folder / name for name, text in texts.items() if write_text(folder / name, text)
    ]


def _schema(kind: str, plugins: bool) -> dict[str, object]:
    schema = KINDS[kind].model_json_schema(by_alias=True)
    schema |= {
        "$schema": DRAFT,
        "title": f"NeuroLedger {kind[:-1]}",
    }
    for choice in CHOOSES.get(kind, ()):
        chosen, parts = _choice(choice.kind, plugins)
        schema.setdefault("$defs", {}).update(parts)
        if kind == "models":
            chosen = {"anyOf": [chosen, {"type": "null"}]}
        if choice.several:
            schema["properties"][choice.field]["items"] = chosen
        else:
            schema["properties"][choice.field] = chosen
    return schema


def _choice(kind: str, plugins: bool) -> tuple[dict[str, object], dict[str, object]]:
    """Return the schema of a component of a kind with its parameters, and the definitions that it refers to."""
    options = []
    definitions: dict[str, object] = {}
    for name in registry.names(kind, plugins=plugins):
        registered = registry.get(kind, name)
        doc = registered.function.__doc__
        option, parts = _component(kind, name, registered.parameters, doc)
        options.append(option)
        definitions |= parts
    description = f"A registered {kind} and its parameters"
    return {"oneOf": options, "description": description}, definitions


@cache
def _component(
    kind: str, name: str, parameters: type[BaseModel], doc: str | None
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the schema of a component's parameters and the definitions that it refers to."""
    prefix = f"{kind}.{name}."
    own = parameters.model_json_schema(
        by_alias=True, ref_template="#/$defs/" + prefix + "{model}"
    )
    parts = {
        prefix + model: definition for model, definition in own.pop("$defs", {}).items()
    }
    described = (doc or "").strip().split("\n")[0]
    own["title"] = name
    own["description"] = described
    own["properties"] = {
        "name": {"const": name, "type": "string"},
        **own.get("properties", {}),
    }
    own["required"] = ["name", *own.get("required", [])]
    own["additionalProperties"] = False
    return own, parts


SCHEMA_LINE = re.compile(r"^# yaml-language-server: \$schema=(\S+)\s*$")
BIBLIOGRAPHY = "specs/references.bib"


def check(catalog: Catalog, paths: Sequence[Path] = ()) -> tuple[list[Finding], int]:
    """Return all problems of the specs below ``paths`` and the number of files read.

    Without ``paths``, the specs of the repository and of installed plugins are checked. Shipped definitions are checked
    before a release.

    Raises
    ------
    RequestError
        A path is not a spec file or folder of the catalogue.
    """
    chosen = _chosen(catalog, paths)
    cited = joined(catalog.bibliographies)
    problems: list[Finding] = []
    entries: list[Entry] = []
    stated = cache(partial(_foreseen_once, catalog))
    for kind, id, path in chosen:
        problems += _first_line(catalog, kind, path)
        try:
            entry = _entry(catalog, kind, id, path)
        except SpecError as error:
            problems += error.findings
            continue
        entries.append(entry)
    for entry in entries:
        problems += _references(catalog, entry)
        problems += _components(catalog, entry)
        problems += _overrides(catalog, entry)
        problems += [
            _at(
                entry,
                location,
                words,
                hint,
                code="spec.license" if location == ("license",) else "spec.citation",
            )
            for location, words, hint in attribution_problems(entry.spec, cited)
        ]
        problems += _science(catalog, entry)
        problems += _foreseen(catalog, entry, stated)
        problems += _addresses(entry)
        problems += _copy(catalog, entry)
    if not paths:
        problems += [
            Finding("spec.bibliography", "error", BIBLIOGRAPHY, words, hint, line, 1)
            for line, words, hint in cited.problems
        ]
        problems += _stale_schemas(catalog)
        problems += _strays(catalog)
        problems += _broken_packages()
    return sorted(set(problems)), len(chosen)


def spec_problems(catalog: Catalog, kind: str, id: str) -> list[Finding]:
    """Return the problems of one spec that make a score on it impossible; see :func:`check` for all problems."""
    try:
        entry = catalog.entry(kind, id)
    except SpecError as error:
        return list(error.findings)
    problems = [
        *_references(catalog, entry),
        *_components(catalog, entry),
        *_overrides(catalog, entry),
    ]
    if isinstance(entry.spec, ModelSpec):
        problems += _layers(entry, entry.spec)
    return sorted(set(problems))


def _entry(catalog: Catalog, kind: str, id: str, path: Path) -> Entry:
    if path == catalog.path(kind, id):
        return catalog.entry(kind, id)
    spec, document = read_spec(path, kind, catalog.shown(path))
    return Entry(kind, spec, document, path)


def _chosen(catalog: Catalog, paths: Sequence[Path]) -> list[tuple[str, str, Path]]:
    if not paths:
        return [
            item for item in catalog.files() if catalog.origin(item[2]) != DISTRIBUTION
        ]
    chosen: list[tuple[str, str, Path]] = []
    for requested in paths:
        path = requested.resolve()
        if not path.exists():
            raise RequestError(f"{requested} does not exist")
        inside = [
            item
            for item in catalog.files()
            if item[2].resolve() == path or path in item[2].resolve().parents
        ]
        if not inside and path.is_file() and path.parent.name in KINDS:
            inside = [(path.parent.name, path.stem, path)]
        if not inside:
            raise RequestError(
                f"{requested} contains no spec; specs are specs/<kind>/<id>.yaml, where <kind> is one of {', '.join(KINDS)}"
            )
        chosen += inside
    return chosen


def _first_line(catalog: Catalog, kind: str, path: Path) -> Iterator[Finding]:
    """Report a first line that does not name the schema, in a repository with schema files."""
    if catalog.origin(path) or not (catalog.root / "specs" / "schema").is_dir():
        return
    expected = _schema_line(catalog, kind, path)
    try:
        first = path.read_text(encoding="utf-8-sig").split("\n", 1)[0]
    except (OSError, UnicodeDecodeError):
        return  # reported by the loader
    match = SCHEMA_LINE.match(first)
    if match is None or match.group(1) != expected.split("=", 1)[1]:
        words = "the first line does not name the schema for editors"
        yield Finding(
            "spec.schema-line",
            "note",
            catalog.shown(path),
            words,
            f"write: {expected}",
            1,
            1,
        )


def _schema_line(catalog: Catalog, kind: str, path: Path) -> str:
    specs = catalog.root / "specs"
    if path.is_relative_to(specs):
        depth = len(path.relative_to(specs).parts) - 1
    else:
        depth = 1
    return f"# yaml-language-server: $schema={'../' * depth}schema/{kind[:-1]}.json"


def _at(
    entry: Entry,
    location: tuple[str | int, ...],
    what: str,
    fix: str = "",
    *,
    code: str,
    severity: Severity = "error",
) -> Finding:
    line, column = entry.document.position(location)
    return Finding(code, severity, entry.document.path, what, fix, line, column)


def _references(catalog: Catalog, entry: Entry) -> Iterator[Finding]:
    for kind, id, location in references(entry):
        if not catalog.has(kind, id):
            fix = catalog.suggestion(kind, id)
            yield _at(
                entry, location, f"no {kind[:-1]} {id!r}", fix, code="spec.reference"
            )
    spec = entry.spec
    if isinstance(spec, BenchmarkSpec) and spec.superseded_by is not None:
        yield from _cycle(catalog, entry, spec)


def _cycle(catalog: Catalog, entry: Entry, spec: BenchmarkSpec) -> Iterator[Finding]:
    visited = [spec.id]
    after = spec.superseded_by
    while after is not None and catalog.has("benchmarks", after):
        if after in visited:
            chain = " → ".join([*visited, after])
            yield _at(
                entry,
                ("superseded_by",),
                f"superseded_by is circular: {chain}",
                "remove it from one of these specs",
                code="spec.circle",
            )
            return
        visited.append(after)
        try:
            after = catalog.benchmark(after).superseded_by
        except SpecError:
            return


def _components(catalog: Catalog, entry: Entry) -> Iterator[Finding]:
    for choice in CHOOSES.get(entry.kind, ()):
        for place, component in chosen_in(entry.spec, choice.field):
            yield from _component_problems(
                catalog, entry, choice.kind, place, component
            )


def chosen_in(spec: Spec, field: str) -> Iterator[tuple[Place, Component]]:
    """Yield the components that a field of a spec names, with the place of each."""
    named = getattr(spec, field)
    if isinstance(named, Component):
        yield (field,), named
    elif isinstance(named, tuple):
        yield from (((field, number), each) for number, each in enumerate(named))


def _component_problems(
    catalog: Catalog, entry: Entry, kind: str, place: Place, component: Component
) -> Iterator[Finding]:
    def bound() -> bool:
        registry.get(kind, component.name).bind(component.parameters)
        return True

    try:
        fact(catalog.root, "bound", [kind, component.name, component.parameters], bound)
    except RequestError as error:
        yield _at(entry, (*place, "name"), str(error), code="spec.component")
    except ValidationError as error:
        parameters = registry.get(kind, component.name).parameters
        yield from explain(error, entry.document, parameters, place)


class _OverrideCase(NamedTuple):
    """A change of a metric or ceiling: the override, the compat mode, and the place in the spec."""

    kind: Literal["metrics", "ceilings"]
    override: str | Override
    options: Mapping[str, object]
    place: tuple[str | int, ...]


def _override_cases(catalog: Catalog, entry: Entry) -> list[_OverrideCase]:
    """Return each metric or ceiling that a spec changes: its kind, the override, the compat mode, and the place."""
    spec = entry.spec
    cases: list[_OverrideCase] = []
    if isinstance(spec, BenchmarkSpec):

        def modes(kind: str, override: str | Override) -> dict[str, str | None]:
            """Return the benchmark's compat as an override if this metric or ceiling has that mode."""
            name = id_of(override)
            known = name in catalog._files[kind] and spec.compat in getattr(
                catalog.entry(kind, name).spec, "compat", {}
            )
            return {"compat": spec.compat} if known else {}

        if spec.metric is not None:
            options = modes("metrics", spec.metric)
            cases.append(_OverrideCase("metrics", spec.metric, options, ("metric",)))
        cases += [
            _OverrideCase("metrics", item, modes("metrics", item), ("metrics", i))
            for i, item in enumerate(spec.metrics)
        ]
        if spec.ceiling is not None:
            options = modes("ceilings", spec.ceiling)
            cases.append(_OverrideCase("ceilings", spec.ceiling, options, ("ceiling",)))
    elif isinstance(spec, (MetricSpec, CeilingSpec)):
        kind: Literal["metrics", "ceilings"]
        kind = "metrics" if isinstance(spec, MetricSpec) else "ceilings"
        cases += [
            _OverrideCase(kind, spec.id, {"compat": name}, ("compat", name))
            for name in spec.compat
        ]
    return cases


def _overrides(catalog: Catalog, entry: Entry) -> Iterator[Finding]:
    """Report overrides of a benchmark's metrics and ceiling, and compat modes, that do not resolve."""
    for kind, override, options, location in _override_cases(catalog, entry):
        try:
            _merged(catalog, kind, override, options)
        except UnknownError:
            continue  # reported as a reference
        except RequestError as error:
            yield _at(entry, location, str(error), code="spec.override")
        except SpecError:
            continue  # reported for that spec


def _science(catalog: Catalog, entry: Entry) -> Iterator[Finding]:
    spec = entry.spec
    if isinstance(spec, DatasetSpec) and spec.closed is None:
        yield from _members(catalog, entry, spec)
        if not spec.expectations.stimuli and not spec.expectations.assembly:
            yield _at(
                entry,
                ("expectations",),
                "the data set declares no expectations, so nothing checks its data",
                "add `expectations`",
                code="spec.unguarded",
            )
        yield from _pointers(catalog, entry, "files", spec.files)
        tracked = [name for name, pin in spec.files.items() if pin.dvc]
        if spec.access == "private" and tracked:
            folder = catalog.root / "data" / spec.id
            if not (folder / ".dvc" / "config").is_file():
                words = "the data are private, but would be pushed to the remote of this repository, which may be public"
                fix = f"`dvc init --subdir` in {catalog.shown(folder)} and add a remote (docs/data.md), or pin without `dvc`"
                yield _at(entry, ("files", tracked[0]), words, fix, code="spec.private")
    elif isinstance(spec, ModelSpec):
        yield from _layers(entry, spec)
        yield from _commitment(catalog, entry, spec)
        yield from _pointers(catalog, entry, "weights", spec.weights)
        yield from _untrained(catalog, entry, spec)
    elif isinstance(spec, BenchmarkSpec):
        yield from _normalisation(catalog, entry, spec)
        yield from _controls(catalog, entry, spec)
    elif isinstance(spec, SuiteSpec):
        for location, words, hint in suite_problems(catalog, spec):
            yield _at(entry, location, words, hint, code="spec.suite")


def _commitment(catalog: Catalog, entry: Entry, spec: ModelSpec) -> Iterator[Finding]:
    if spec.commit is None:
        return
    from neuroledger.engine.layer_commitment import commitment_problems

    for location, words, hint in commitment_problems(catalog, spec):
        yield _at(entry, location, words, hint, code="spec.commitment")


def _members(catalog: Catalog, entry: Entry, spec: DatasetSpec) -> Iterator[Finding]:
    """Report members that do not fit; those without a spec are reported as references, other readers as components."""
    if spec.reader is None or not all(
        catalog.has("datasets", id) for id in spec.members
    ):
        return
    with suppress(UnknownError):
        for problem in member_problems(catalog, spec):
            place = (problem.field,)
            yield _at(entry, place, problem.what, problem.fix, code="spec.members")


def _foreseen(
    catalog: Catalog, entry: Entry, stated: Callable[[str], Foreseen | None]
) -> Iterator[Finding]:
    """Report what a pinned data set, or a benchmark on it, can be known to lack without its files."""
    spec = entry.spec
    problems: Iterable[Problem] = ()
    if isinstance(spec, DatasetSpec):
        problems = dataset_problems(stated(spec.id))
    elif isinstance(spec, BenchmarkSpec):
        problems = _benchmark_problems_once(catalog, spec, stated)
    for code, place, words, fix in problems:
        yield _at(entry, place, words, fix, code=code)


class Problem(NamedTuple):
    """A code, the place of the field in the spec, what is wrong, and how to fix it."""

    code: str
    place: Place
    what: str
    fix: str


def foreseen(catalog: Catalog, id: str) -> Foreseen | None:
    """What a data set's pins and its reader's fields state; None if nothing is pinned or read, or its spec is wrong."""
    try:
        spec = catalog.dataset(id)
    except (RequestError, SpecError):
        return None  # reported as a reference, or for that spec
    if spec.reader is None or not spec.files or spec.closed is not None:
        return None
    if spec.unread is not None:
        return None
    try:
        reader = registry.get("reader", spec.reader.name)
        reader.bind(spec.reader.parameters)
    except (RequestError, ValidationError):
        return None  # reported as a component
    if reader.foresees is None:
        return None
    return reader.foresees(spec.files, spec.reader.parameters)


def _foreseen_once(catalog: Catalog, id: str) -> Foreseen | None:
    """Return :func:`foreseen`, remembered for the spec, which has the hashes of its lists, and for this code."""
    path = catalog.path("datasets", id)
    key = ""
    if path is not None and registry.only_shipped():
        key = key_of("foreseen", hashlib.sha256(path.read_bytes()).hexdigest())

    def compute(_: str) -> tuple[Any, ...] | None:
        found = foreseen(catalog, id)
        if found is None:
            return None
        return (sorted(found.coordinates), *found[1:])

    plain = remembered(derived_at(catalog.root), {id: key}, compute)[id]
    if plain is None:
        return None
    coordinates, recordings, problems = plain
    placed = tuple((tuple(place), what, fix) for place, what, fix in problems)
    return Foreseen(frozenset(coordinates), tuple(recordings), placed)


def _benchmark_problems_once(
    catalog: Catalog, spec: BenchmarkSpec, stated: Callable[[str], Foreseen | None]
) -> list[Problem]:
    """Return :func:`benchmark_problems`, remembered for the specs of the benchmark and of its data set."""
    known = stated(spec.dataset)
    path = catalog.path("datasets", spec.dataset)
    if known is None or path is None:
        return []

    def found() -> Sequence[tuple[str, Place, str, str]]:
        return list(benchmark_problems(spec, known))

    data = hashlib.sha256(path.read_bytes()).hexdigest()
    asked = [spec.model_dump(mode="json", by_alias=True), data]
    plain = fact(catalog.root, "lacking", asked, found)
    return [Problem(code, tuple(at), what, fix) for code, at, what, fix in plain]


def dataset_problems(stated: Foreseen | None) -> Iterator[Problem]:
    """What a reader cannot read of the files that are pinned for it."""
    for place, what, fix in stated.problems if stated is not None else ():
        yield Problem("spec.recordings", ("reader", *place), what, fix)


def benchmark_problems(
    spec: BenchmarkSpec, stated: Foreseen | None
) -> Iterator[Problem]:
    """Coordinates that the data of a benchmark will not have, and copies of tested recordings on which it trains."""
    if spec.unavailable is not None or stated is None:
        return
    try:
        paradigm = registry.get("paradigm", spec.paradigm.name)
        paradigm.bind(spec.paradigm.parameters)
    except (RequestError, ValidationError):
        return  # reported as a component
    if paradigm.needs is None:
        return
    needed = paradigm.needs(spec.paradigm.parameters)
    missing = {
        place: name for place, name in needed.items() if name not in stated.coordinates
    }
    known = ", ".join(sorted(stated.coordinates))
    for place, name in missing.items():
        yield Problem(
            "spec.unlabelled",
            ("paradigm", *place),
            f"data set {spec.dataset!r} declares no {name!r} of its windows; it declares {known}",
            "declare it in the reader of the data set (labels of events, facts of names or tables), or name another",
        )
    if missing or paradigm.divides is None or spec.select:
        return
    try:
        folds = paradigm.divides(spec.paradigm.parameters, stated.recordings)
    except (DataError, RequestError):
        return  # depends on more than is known of recordings
    for words in _copied(stated.recordings, folds):
        yield Problem(
            "spec.copied-recording",
            ("paradigm", "splits"),
            words,
            "leave the copies out of the data set, and pin it again (docs/data.md)",
        )


def _copied(
    recordings: Sequence[Mapping[str, str]],
    folds: Sequence[tuple[list[int], list[int]]],
) -> Iterator[str]:
    """A message for each fold of which tested recordings have the bytes of trained ones."""
    for trained, tested in folds:
        first = {
            recordings[row]["sha256"]: recordings[row] for row in reversed(trained)
        }
        pairs = [
            (recordings[row], first[recordings[row]["sha256"]])
            for row in tested
            if recordings[row]["sha256"] in first
        ]
        if pairs:
            one, other = pairs[0]
            yield (
                f"{len(pairs)} of {len(tested)} tested recordings have the same bytes as one on which it trains, first "
                f"{one['file']} of {one['subject']} and {other['file']} of {other['subject']}"
            )


def _untrained(catalog: Catalog, entry: Entry, spec: ModelSpec) -> Iterator[Finding]:
    """Report an untrained twin that has weights, or another builder than the trained model."""
    if spec.untrained is None or not catalog.has("models", spec.untrained):
        return  # an unknown id is reported as a reference
    try:
        twin = catalog.model(spec.untrained)
    except SpecError:
        return  # reported for that spec
    own, other = (
        each.builder.name if each.builder else "none" for each in (spec, twin)
    )
    words = ""
    if not spec.weights:
        words = "the model has no `weights`, so it is untrained itself"
    elif twin.weights:
        words = f"{twin.id!r} has `weights`, so it is not untrained"
    elif own != other:
        words = f"{twin.id!r} has the builder {other!r}, this model {own!r}"
    if words:
        fix = "name a model with the same builder, a `seed` and no weights"
        yield _at(entry, ("untrained",), words, fix, code="spec.untrained")


def _pointers(
    catalog: Catalog, entry: Entry, field: str, pins: Mapping[str, SourceFile]
) -> Iterator[Finding]:
    folder = folder_of(catalog.root, entry.kind, entry.spec.id)
    for name in [name for name, pin in pins.items() if pin.dvc]:
        pointer = folder / f"{name}.dvc"
        if not pointer.is_file():
            words = f"no DVC pointer {catalog.shown(pointer)}"
            fix = f"run `dvc add {catalog.shown(pointer)[:-4]}`"
            yield _at(entry, (field, name), words, fix, code="spec.pointer")


def _addresses(entry: Entry) -> Iterator[Finding]:
    """Report addresses that must not be fetched or that contain secrets."""
    for location, text in texts(entry.document.data):
        for severity, words, fix in said_of(text):
            line, column = entry.document.position(location)
            yield Finding(
                "spec.address", severity, entry.document.path, words, fix, line, column
            )


def _layers(entry: Entry, spec: ModelSpec) -> Iterator[Finding]:
    """Report regions, readouts and logits that refer to layers which the model does not record."""
    if not spec.layers:
        return
    uses = [
        (("regions", region), layer)
        for region, layers in spec.regions.items()
        for layer in ([layers] if isinstance(layers, str) else layers)
    ]
    uses += [
        ((name, ""), layer)
        for name in ("readout", "logits")
        if (layer := getattr(spec, name)) is not None
    ]
    for (field, region), layer in uses:
        if layer not in spec.layers:
            near = difflib.get_close_matches(layer, spec.layers, 1)
            if near:
                hint = f"did you mean {near[0]!r}?"
            else:
                hint = f"layers: {', '.join(spec.layers)}"
            words = f"{field}: {layer!r} is not among `layers`"
            yield _at(entry, (field, region), words, hint, code="spec.layer")


class _Merged(NamedTuple):
    """What a check asks of a metric or ceiling with its overrides."""

    scale: str
    chance_level: float | str


def _merged(
    catalog: Catalog,
    kind: Literal["metrics", "ceilings"],
    override: str | Override,
    options: Mapping[str, object],
) -> _Merged:
    """Return what is asked of a metric or ceiling with its overrides.

    Raises
    ------
    RequestError, SpecError
        They do not resolve, see :func:`neuroledger.engine.overrides.resolve`.
    """

    def merged() -> tuple[str, float | str]:
        spec, _, _ = resolve(kind, override, catalog, options)
        return spec.scale, getattr(spec, "chance_level", 0.0)

    named = catalog.entry(kind, id_of(override)).spec.model_dump(mode="json")
    changes = override.parameters if isinstance(override, Override) else {}
    asked = [kind, named, changes, dict(options)]
    return _Merged(*fact(catalog.root, "merged", asked, merged))


def _normalisation(
    catalog: Catalog, entry: Entry, spec: BenchmarkSpec
) -> Iterator[Finding]:
    from neuroledger.stats.score import FORMULAS

    if spec.ceiling is None or spec.normalised_by in ("none", "floor"):
        return
    if isinstance(spec.normalise, NormaliseRule) and spec.normalise.formula != "scales":
        return
    try:
        metric = _merged(catalog, "metrics", spec.all_metrics[0], {})
        ceiling = _merged(catalog, "ceilings", spec.ceiling, {})
    except (RequestError, SpecError):
        return  # reported elsewhere
    if (metric.scale, ceiling.scale) not in FORMULAS:
        words = f"no formula normalises scale {metric.scale!r} by a ceiling of scale {ceiling.scale!r}"
        fix = "choose a ceiling on a matching scale, or `normalise: none`"
        yield _at(entry, ("ceiling",), words, fix, code="spec.normalisation")


def _controls(catalog: Catalog, entry: Entry, spec: BenchmarkSpec) -> Iterator[Finding]:
    """Report controls that failed or are undecided in their own records, and bounds that chance exceeds."""
    rules = spec.controls
    chance: float | str = 0.0
    try:
        if spec.all_metrics and spec.floor is None and spec.ceiling is None:
            first = _merged(catalog, "metrics", spec.all_metrics[0], {})
            chance = first.chance_level
    except (RequestError, SpecError):
        return  # reported where the metric is checked
    most = math.inf if isinstance(chance, str) else floor_of(rules, chance)
    if not isinstance(chance, str) and most < chance:
        words = f"negative controls may score at most {most:g}, and the chance level of the metric is {chance:g}"
        fix = "raise floor_at_most above chance, remove it, or declare a `floor`"
        yield _at(entry, ("controls", "floor_at_most"), words, fix, code="spec.chance")
    models: tuple[tuple[Role, tuple[str, ...]], ...]
    models = (("positive", rules.positive), ("negative", rules.negative))
    for role, ids in models:
        for i, id in enumerate(ids):
            path = record_path(catalog.root, spec.id, id)
            if not path.exists():
                continue
            try:
                record = read_record(path)
            except DataError as error:
                yield _at(
                    entry, ("controls", role, i), str(error), code="record.unreadable"
                )
                continue
            current = spec_sha256(spec, without=BENCHMARK_ONLY_SAYS)
            recorded = record.inputs.benchmark.spec_sha256
            if isinstance(record.result, Undefined) or recorded != current:
                continue  # the record is of another version of the spec
            control = record.controls.get(id)
            if control is None:  # earlier records of controls do not judge themselves
                bound = rules.ceiling_at_least if role == "positive" else most
                control = bounded(role, record.as_score(), bound)
            words = f"{role} control {id!r}: {in_words(control)}"
            place = ("controls", role, i)
            if control.verdict == "failed":
                yield _at(entry, place, words, FAULTS[role], code="spec.control")
            elif control.verdict == "undecided":
                yield _at(
                    entry, place, words, code="spec.control-undecided", severity="note"
                )


def _stale_schemas(catalog: Catalog) -> Iterator[Finding]:
    """Report schema files that do not match the installed components; a user's repository may have none."""
    checkout = is_checkout(catalog.root)
    if not checkout and not (catalog.root / "specs" / "schema").is_dir():
        return
    for name, text in _present_schemas(catalog, plugins=not checkout).items():
        path = catalog.root / "specs" / "schema" / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            # In a user's repository, the schemas depend on the plugins that each person has installed.
            severity: Severity = "error" if checkout else "warning"
            words = "the JSON Schema does not match the installed components"
            fix = "run `neuroledger check --write-schemas`"
            yield Finding(
                "spec.schema-stale", severity, catalog.shown(path), words, fix
            )


def _present_schemas(catalog: Catalog, *, plugins: bool) -> dict[str, str]:
    """Return :func:`schema_texts`, remembered for this code, if no component is of another package."""
    if not registry.only_shipped():
        return schema_texts(plugins=plugins)
    key = key_of("schemas", pydantic.VERSION, str(plugins))
    texts: dict[str, str] = remembered(
        derived_at(catalog.root),
        {"schemas": key},
        lambda _: _shipped_schema_texts(plugins=plugins),
    )["schemas"]
    return texts


@cache
def _shipped_schema_texts(*, plugins: bool) -> dict[str, str]:
    return schema_texts(plugins=plugins)


def _copy(catalog: Catalog, entry: Entry) -> Iterator[Finding]:
    for path, original in catalog.copies:
        if path == entry.path:
            words = f"this file is a copy of {catalog.shown(original)}, which every repository knows"
            hint = "remove it, or give it another id if it should differ"
            line, column = entry.document.position(())
            yield Finding(
                "spec.copy", "warning", entry.document.path, words, hint, line, column
            )


def _broken_packages() -> Iterator[Finding]:
    for distribution, words in registry.broken().items():
        yield Finding("machine.plugin", "error", distribution, words)


def _strays(catalog: Catalog) -> Iterable[Finding]:
    known = {path for _, _, path in catalog.files()}
    for path in sorted((catalog.root / "specs").rglob("*")):
        if path.suffix in {".yaml", ".yml"} and path not in known:
            folders = ", ".join(f"specs/{kind}/" for kind in KINDS)
            words = "this file is not in a folder for specs"
            yield Finding(
                "spec.stray",
                "error",
                catalog.shown(path),
                words,
                f"specs are <id>.yaml in {folders}",
            )
