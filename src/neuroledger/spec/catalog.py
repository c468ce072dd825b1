"""The read-only catalogue of all specs: shipped definitions, those of plugins, and those of the repository."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from neuroledger.errors import Finding, RequestError, SpecError, UnknownError
from neuroledger.spec import registry, shipped
from neuroledger.spec.base import Spec, id_of
from neuroledger.spec.document import Document, Location
from neuroledger.spec.kinds import (
    KINDS,
    BenchmarkSpec,
    CeilingSpec,
    ClaimSpec,
    DatasetSpec,
    MetricSpec,
    ModelSpec,
    SuiteSpec,
)
from neuroledger.spec.load import read_spec

__all__ = [
    "Catalog",
    "Entry",
    "find_repository",
    "open_catalog",
    "open_catalog_with",
    "open_definitions",
    "references",
]

T = TypeVar("T", bound=Spec)
ENTER = "cd into your clone, or give it with --root or NEUROLEDGER_ROOT"
# Kind and id of a spec that another refers to, and the location of the reference.
Reference = tuple[str, str, Location]


@dataclass(frozen=True, eq=False)
class Entry:
    """A spec and the document that it was read from."""

    kind: str
    spec: Spec
    document: Document
    path: Path


class Layer(NamedTuple):
    """A folder of specs, and the distribution that contains it (empty for the repository)."""

    distribution: str
    folder: Path


@dataclass(frozen=True)
class Catalog:
    """All specs that are known in one repository; each file is read at its first use.

    Attributes
    ----------
    root
        The repository, which contains data, records and settings.
    layers
        Folders of specs: shipped definitions first, then plugins, then the repository.
    copies
        Files that repeat a definition of another layer byte for byte, each with the original.
    outside
        Whether no repository was found, so that the catalogue has only what is part of installed packages.
    """

    root: Path
    layers: tuple[Layer, ...]
    _files: Mapping[str, Mapping[str, Path]] = field(repr=False)
    copies: tuple[tuple[Path, Path], ...] = ()
    outside: bool = False
    _read: dict[tuple[str, str], Entry] = field(default_factory=dict, repr=False)
    _about: dict[tuple[str, str], DatasetSpec] = field(default_factory=dict, repr=False)

    def ids(self, kind: str) -> list[str]:
        """Sorted ids of one kind, which is a name in ``KINDS`` such as ``datasets``."""
        return sorted(self._files[kind])

    def own(self, kind: str) -> list[str]:
        """Sorted ids of the repository's own specs of one kind."""
        return sorted(
            id for id, path in self._files[kind].items() if not self.origin(path)
        )

    def has(self, kind: str, id: str) -> bool:
        """Whether there is a spec ``id`` of ``kind``."""
        return id in self._files[kind]

    def path(self, kind: str, id: str) -> Path | None:
        """The file of a spec; None if there is no such spec."""
        return self._files[kind].get(id)

    def origin(self, path: Path) -> str:
        """The distribution that contains a spec file; empty for files of the repository."""
        layer = _layer_of(path, self.layers)
        return "" if layer is None else layer.distribution

    def entry(self, kind: str, id: str) -> Entry:
        """The spec ``id`` of ``kind`` with its document.

        Raises
        ------
        RequestError
            There is no such id; the message suggests similar ids.
        SpecError
            The file is invalid.
        """
        if kind not in KINDS:
            raise RequestError(f"no kind {kind!r}; kinds are {', '.join(KINDS)}")
        if (kind, id) not in self._read:
            path = self._files[kind].get(id)
            if path is None:
                raise UnknownError(
                    f"no {kind[:-1]} {id!r}; {self.suggestion(kind, id)}"
                )
            spec, document = read_spec(path, kind, self.shown(path))
            self._read[kind, id] = Entry(kind, spec, document, path)
        return self._read[kind, id]

    def dataset(self, id: str) -> DatasetSpec:
        """The dataset spec ``id``."""
        return cast(DatasetSpec, self.entry("datasets", id).spec)

    def about(self, id: str) -> DatasetSpec:
        """The dataset spec ``id`` without the files and recordings in its tables, which are not read."""
        key = ("datasets", id)
        if key not in self._read and key not in self._about:
            path = self._files["datasets"].get(id)
            if path is None:
                return self.dataset(id)
            self._about[key] = cast(
                DatasetSpec,
                read_spec(path, "datasets", self.shown(path), whole=False)[0],
            )
        if key in self._about:
            return self._about[key]
        return self.dataset(id)

    def closed(self, id: str) -> str | None:
        """Why a data set cannot be scored, by its own spec or by that of a member; None if it can."""
        spec = self.about(id)
        if spec.closed is not None:
            return spec.closed
        for member in spec.members:
            if not self.has("datasets", member):
                return f"there is no data set {member!r}, which is a member of it"
            reason = self.about(member).closed
            if reason is not None:
                return f"its member {member} is unavailable: {reason}"
        return None

    def metric(self, id: str) -> MetricSpec:
        """The metric spec ``id``."""
        return cast(MetricSpec, self.entry("metrics", id).spec)

    def ceiling(self, id: str) -> CeilingSpec:
        """The ceiling spec ``id``."""
        return cast(CeilingSpec, self.entry("ceilings", id).spec)

    def benchmark(self, id: str) -> BenchmarkSpec:
        """The benchmark spec ``id``."""
        return cast(BenchmarkSpec, self.entry("benchmarks", id).spec)

    def model(self, id: str) -> ModelSpec:
        """The model spec ``id``."""
        return cast(ModelSpec, self.entry("models", id).spec)

    def suite(self, id: str) -> SuiteSpec:
        """The suite spec ``id``."""
        return cast(SuiteSpec, self.entry("suites", id).spec)

    def claim(self, id: str) -> ClaimSpec:
        """The claim spec ``id``."""
        return cast(ClaimSpec, self.entry("claims", id).spec)

    def with_spec(
        self,
        kind: str,
        id: str,
        spec: Spec,
        document: Document,
        path: Path | None = None,
    ) -> Catalog:
        """A copy of the catalogue in which a spec is replaced or added; no file is changed."""
        path = path or self.entry(kind, id).path
        read = {**self._read, (kind, id): Entry(kind, spec, document, path)}
        files = {**self._files, kind: {**self._files[kind], id: path}}
        return replace(self, _files=files, _read=read, _about={})

    def find(self, id: str) -> list[Entry]:
        """The specs of all kinds with this id.

        Raises
        ------
        RequestError
            There is none; the message suggests similar ids of all kinds.
        """
        entries = [self.entry(kind, id) for kind in KINDS if id in self._files[kind]]
        if not entries:
            known = sorted({other for kind in KINDS for other in self._files[kind]})
            near = _near(id, known)
            hint = "see `neuroledger list`"
            if near:
                hint = f"did you mean {' or '.join(map(repr, near))}?"
            raise UnknownError(f"nothing is called {id!r}; {hint}")
        return entries

    def files(self) -> Iterator[tuple[str, str, Path]]:
        """Yield kind, id and path of every spec file."""
        for kind in KINDS:
            for id, path in sorted(self._files[kind].items()):
                yield kind, id, path

    @property
    def bibliographies(self) -> list[Path]:
        """The BibTeX files of all layers, the repository's own first."""
        return [layer.folder / "references.bib" for layer in reversed(self.layers)]

    def shown(self, path: Path) -> str:
        """``path`` for messages: relative to the repository, or to the distribution that contains it."""
        return _shown(path, self.root, self.layers)

    def suggestion(self, kind: str, id: str) -> str:
        """Advice for the case that there is no spec ``id`` of ``kind``."""
        other_kinds = [
            other[:-1] for other in KINDS if other != kind and id in self._files[other]
        ]
        if other_kinds:
            return f"there is a {other_kinds[0]} of that name"
        if kind in ("metrics", "ceilings") and id in registry.names(kind[:-1]):
            return (
                f"a function {id!r} is registered, but its scale, splits and aggregation are not declared: "
                f"write specs/{kind}/<id>.yaml with `compare: {{name: {id}}}`"
            )
        known = self.ids(kind)
        near = _near(id, known) or _near(id.lower(), known)
        if near:
            return f"did you mean {' or '.join(map(repr, near))}?"
        advice = f"see `neuroledger list {kind}`"
        if self.outside:
            return f"{advice}; for those of a repository, {ENTER}"
        return advice


def _near(id: str, known: Sequence[str]) -> list[str]:
    """Return up to three known ids that may be meant; of short ones, more letters must agree."""
    return difflib.get_close_matches(id, known, 3, 0.5 if len(id) > 5 else 0.65)


def find_repository(start: Path | None = None) -> Path:
    """The nearest folder, from ``start`` upwards, that has a ``specs`` folder and a ``dvc.yaml``.

    By default the search begins at the working directory, then tries the folder that ``NEUROLEDGER_ROOT`` names, or else
    the checkout that this package runs from.

    Raises
    ------
    RequestError
        There is no such folder.
    """
    first = (start or Path.cwd()).resolve()
    candidates = [first, *first.parents]
    if start is None:
        root = os.environ.get("NEUROLEDGER_ROOT")
        candidates.append(
            Path(root).resolve() if root else Path(__file__).resolve().parents[3]
        )
    for folder in candidates:
        if (folder / "specs").is_dir() and (folder / "dvc.yaml").is_file():
            return folder
    raise RequestError(
        f"no NeuroLedger repository (a folder with specs/ and dvc.yaml) at or above {first}; {ENTER}"
    )


def _yaml_files(folder: Path) -> tuple[str, ...]:
    """The sorted YAML files at and below ``folder``, as text, because every look-up by id lists them."""
    paths: list[str] = []
    pending = [str(folder)] if folder.is_dir() else []
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".yaml"):
                    paths.append(entry.path)
                elif entry.is_dir():
                    pending.append(entry.path)
    return tuple(sorted(paths))


def open_catalog(root: Path | None = None) -> Catalog:
    """Open the catalogue of the repository at ``root``, by default searched from the working directory.

    Raises
    ------
    RequestError
        There is no repository.
    SpecError
        Two specs of one kind have the same id.
    """
    return _compose(find_repository(root))


def open_definitions(root: Path | None = None) -> Catalog:
    """Open the repository's catalogue or, outside a repository, that of installed definitions, plugins and the sample."""
    try:
        return open_catalog(root)
    except RequestError:
        if root is not None or os.environ.get("NEUROLEDGER_ROOT"):
            raise
    return _compose(shipped.sample_repository(), outside=True)


def open_catalog_with(kind: str, id: str) -> Catalog:
    """Open the catalogue at hand or, if only the sample has the spec ``id`` of ``kind``, that of the sample."""
    catalog = open_definitions()
    if catalog.has(kind, id) or catalog.outside:
        return catalog
    sample = _compose(shipped.sample_repository())
    return sample if sample.has(kind, id) else catalog


def _compose(root: Path, *, outside: bool = False) -> Catalog:
    """Compose shipped definitions, plugins and the repository; an id may be declared in one layer only."""
    layers = [*starmap(Layer, registry.plugin_specs()), Layer("", root / "specs")]
    # A checkout of this package contains the shipped definitions itself, even if another copy of the package reads it.
    if not shipped.is_checkout(root):
        layers.insert(0, Layer(shipped.DISTRIBUTION, shipped.folder()))
    files: dict[str, Mapping[str, Path]] = {}
    copies = []
    problems = []
    for kind in KINDS:
        files[kind], duplicates = _by_id(
            tuple((layer.folder, _spec_files(layer, kind)) for layer in layers)
        )
        for first, second, may_be_copy in duplicates:
            if may_be_copy and first.samefile(second):
                continue
            if may_be_copy and first.read_bytes() == second.read_bytes():
                copies.append((second, first))
            else:
                problems.append(_duplicate_finding(kind, first, second, root, layers))
    if problems:
        raise SpecError(problems)
    return Catalog(root, tuple(layers), files, tuple(copies), outside)


def _duplicate_finding(
    kind: str, first: Path, second: Path, root: Path, layers: Sequence[Layer]
) -> Finding:
    layer = _layer_of(first, layers)
    message = f"id {second.stem!r} is already taken by {_shown(first, root, layers)}"
    hint = "give one of them another id"
    if layer is not None and layer.distribution:
        message += f" (installed: {first})"
        hint = f"give this {kind[:-1]} another id, or remove this file to use the {kind[:-1]} of {layer.distribution}"
    return Finding(
        "spec.duplicate-id", "error", _shown(second, root, layers), message, hint, 1, 1
    )


def _spec_files(layer: Layer, kind: str) -> tuple[str, ...]:
    names = _yaml_files(layer.folder / kind)
    if layer.distribution == shipped.DISTRIBUTION:
        return _shipped_files(kind, names)
    return names


@lru_cache(maxsize=16)
def _shipped_files(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if shipped.is_shipped(kind, Path(name)))


Duplicate = tuple[Path, Path, bool]


@lru_cache(maxsize=64)
def _by_id(
    layers: tuple[tuple[Path, tuple[str, ...]], ...],
) -> tuple[dict[str, Path], tuple[Duplicate, ...]]:
    """The path of each id, and for each repeated id both paths and whether they are in different layers.

    Cached by the lists of files.
    """
    by_id: dict[str, tuple[Path, int]] = {}
    duplicates: list[Duplicate] = []
    for number, (_, names) in enumerate(layers):
        for path in map(Path, names):
            first = by_id.get(path.stem)
            if first is not None:
                duplicates.append((first[0], path, first[1] != number))
            by_id[path.stem] = (path, number)
    return {id: path for id, (path, _) in by_id.items()}, tuple(duplicates)


def _layer_of(path: Path, layers: Sequence[Layer]) -> Layer | None:
    return next((layer for layer in layers if path.is_relative_to(layer.folder)), None)


def _shown(path: Path, root: Path, layers: Sequence[Layer]) -> str:
    layer = _layer_of(path, layers)
    if layer is not None and layer.distribution:
        return f"{layer.distribution}:{path.relative_to(layer.folder)}"
    if path.is_relative_to(root):
        return str(path.relative_to(root))
    return str(path)


def references(entry: Entry) -> list[Reference]:
    """The specs that a spec refers to, each as kind, id and location in the document."""
    spec = entry.spec
    if isinstance(spec, BenchmarkSpec):
        return list(_of_benchmark(spec))
    if isinstance(spec, DatasetSpec):
        return list(_all_of("datasets", spec.members, "members"))
    if isinstance(spec, SuiteSpec):
        return [
            *_all_of("benchmarks", [item.id for item in spec.benchmarks], "benchmarks"),
            *_all_of("models", spec.models, "models"),
            *_all_of("suites", spec.includes, "includes"),
        ]
    if isinstance(spec, ClaimSpec):
        return list(_of_claim(spec))
    if isinstance(spec, ModelSpec):
        return list(_of_model(spec))
    return []


def _of_benchmark(spec: BenchmarkSpec) -> Iterator[Reference]:
    yield "datasets", spec.dataset, ("dataset",)
    if spec.metric is not None:
        yield "metrics", id_of(spec.metric), ("metric",)
    yield from _all_of("metrics", map(id_of, spec.metrics), "metrics")
    if spec.ceiling is not None:
        yield "ceilings", id_of(spec.ceiling), ("ceiling",)
    if spec.floor is not None and isinstance(spec.floor.dummy, str):
        yield "models", spec.floor.dummy, ("floor", "dummy")
    yield from _all_of("models", spec.controls.positive, "controls", "positive")
    yield from _all_of("models", spec.controls.negative, "controls", "negative")
    if spec.superseded_by is not None:
        yield "benchmarks", spec.superseded_by, ("superseded_by",)


def _of_model(spec: ModelSpec) -> Iterator[Reference]:
    if spec.commit is not None and isinstance(spec.commit.get("on"), str):
        yield "benchmarks", str(spec.commit["on"]), ("commit", "on")
    if spec.untrained is not None:
        yield "models", spec.untrained, ("untrained",)


def _of_claim(spec: ClaimSpec) -> Iterator[Reference]:
    yield from _all_of("benchmarks", spec.benchmarks, "benchmarks")
    for number, pair in enumerate(spec.pairs):
        yield "models", pair.above, ("pairs", number, "above")
        yield "models", pair.below, ("pairs", number, "below")


def _all_of(kind: str, ids: Iterable[str], *place: str) -> Iterator[Reference]:
    for number, id in enumerate(ids):
        yield kind, id, (*place, number)
