"""The specs/ folder as a read-only catalogue: get, list, near misses, and what refers to what."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

from neuroledger.errors import Problem, RequestError, SpecError
from neuroledger.spec.base import Override, Spec
from neuroledger.spec.document import Document
from neuroledger.spec.kinds import (
    KINDS,
    BenchmarkSpec,
    CeilingSpec,
    DatasetSpec,
    MetricSpec,
    ModelSpec,
    SuiteSpec,
)
from neuroledger.spec.load import read_spec

__all__ = ["Catalog", "find_repository", "open_catalog", "open_definitions"]

T = TypeVar("T", bound=Spec)


@dataclass(frozen=True)
class Entry:
    """One spec with the document it came from."""

    kind: str
    spec: Spec
    document: Document
    path: Path


@dataclass(frozen=True)
class Catalog:
    """All specs of one repository; a file is read when it is first asked for."""

    root: Path
    _files: Mapping[str, Mapping[str, Path]] = field(repr=False)
    _read: dict[tuple[str, str], Entry] = field(default_factory=dict, repr=False)

    def ids(self, kind: str) -> list[str]:
        """Sorted ids of one kind (``datasets``, ``metrics``, ``ceilings``, ``benchmarks``, ``models``, ``suites``)."""
        return sorted(self._files[kind])

    def entry(self, kind: str, id: str) -> Entry:
        """The spec with its document.

        Raises
        ------
        RequestError
            No such id; near misses are named.
        SpecError
            The file is wrong.
        """
        if kind not in KINDS:
            raise RequestError(f"no kind {kind!r}; kinds are {', '.join(KINDS)}")
        if (kind, id) not in self._read:
            path = self._files[kind].get(id)
            if path is None:
                raise RequestError(f"no {kind[:-1]} {id!r}{self._suggestion(kind, id)}")
            spec, document = read_spec(path, kind, self.shown(path))
            self._read[kind, id] = Entry(kind, spec, document, path)
        return self._read[kind, id]

    def dataset(self, id: str) -> DatasetSpec:
        """The dataset spec ``id``."""
        return cast(DatasetSpec, self.entry("datasets", id).spec)

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

    def with_spec(self, kind: str, id: str, spec: Spec, document: Document) -> Catalog:
        """The same catalogue with another spec in the place of one that it has; no file is touched."""
        path = self.entry(kind, id).path
        return Catalog(self.root, self._files, {**self._read, (kind, id): Entry(kind, spec, document, path)})

    def find(self, id: str) -> list[Entry]:
        """Every spec called ``id``, of any kind.

        Raises
        ------
        RequestError
            None is; near misses of all kinds are named.
        """
        found = [self.entry(kind, id) for kind in KINDS if id in self._files[kind]]
        if not found:
            every = sorted({known for kind in KINDS for known in self._files[kind]})
            near = difflib.get_close_matches(id, every, 3, 0.5)
            hint = (
                f"; did you mean {' or '.join(repr(n) for n in near)}?"
                if near
                else "; see `neuroledger list`"
            )
            raise RequestError(f"nothing is called {id!r}{hint}")
        return found

    def files(self) -> Iterator[tuple[str, str, Path]]:
        """Kind, id and path of every spec file."""
        for kind in KINDS:
            for id, path in sorted(self._files[kind].items()):
                yield kind, id, path

    def shown(self, path: Path) -> str:
        """``path`` as messages show it: relative to the repository where it lies inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def _suggestion(self, kind: str, id: str) -> str:
        elsewhere = [other[:-1] for other in KINDS if other != kind and id in self._files[other]]
        if elsewhere:
            return f"; there is a {elsewhere[0]} of that name"
        known = self.ids(kind)
        near = difflib.get_close_matches(id, known, 3, 0.5) or difflib.get_close_matches(
            id.lower(), known, 3, 0.5
        )
        if near:
            return f"; did you mean {' or '.join(repr(n) for n in near)}?"
        return f"; see `neuroledger list {kind}`"


def find_repository(start: Path | None = None) -> Path:
    """The nearest folder, from ``start`` upwards, that has a ``specs`` folder and a ``dvc.yaml``.

    When ``start`` is not given, the search begins at the working directory, then takes the folder that
    ``NEUROLEDGER_ROOT`` names, then the checkout that this package runs from.

    Raises
    ------
    RequestError
        There is none.
    """
    here = (start or Path.cwd()).resolve()
    tried = [here, *here.parents]
    if start is None:
        named = os.environ.get("NEUROLEDGER_ROOT")
        tried += [Path(named).resolve()] if named else [Path(__file__).resolve().parents[3]]
    for folder in tried:
        if (folder / "specs").is_dir() and (folder / "dvc.yaml").is_file():
            return folder
    raise RequestError(
        f"no NeuroLedger repository (a folder with specs/ and dvc.yaml) at or above {here}; "
        "cd into your clone, or name it with --root or NEUROLEDGER_ROOT"
    )


def _yaml_files(folder: Path) -> tuple[str, ...]:
    """The YAML files at and below ``folder``, sorted, as plain text: every call by id lists them."""
    found: list[str] = []
    ahead = [str(folder)] if folder.is_dir() else []
    while ahead:
        with os.scandir(ahead.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".yaml"):
                    found.append(entry.path)
                elif entry.is_dir():
                    ahead.append(entry.path)
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def _by_id(base: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """The path of each id; made once for the same list of files."""
    by_id: dict[str, Path] = {}
    for path in map(Path, names):
        if path.stem in by_id:
            message = f"id {path.stem!r} is already taken by {by_id[path.stem].relative_to(base)}"
            where = str(path.relative_to(base))
            raise SpecError([Problem(where, 1, 1, message, "give one of them another id")])
        by_id[path.stem] = path
    return by_id


def open_catalog(root: Path | None = None) -> Catalog:
    """The catalogue of the repository at ``root`` (found from the working directory when not given)."""
    return _read(find_repository(root))


def open_definitions() -> Catalog:
    """The catalogue here or, where there is no repository, metrics and ceilings alone as they came with the package."""
    try:
        return open_catalog()
    except RequestError:
        shipped = Path(__file__).resolve().parents[1] / "definitions"
        if os.environ.get("NEUROLEDGER_ROOT") or not (shipped / "specs").is_dir():
            raise
    return _read(shipped)


def _read(base: Path) -> Catalog:
    files = {kind: dict(_by_id(base, _yaml_files(base / "specs" / kind))) for kind in KINDS}
    return Catalog(base, files)


def references(entry: Entry) -> list[tuple[str, str, tuple[str | int, ...]]]:
    """What a spec refers to: (kind, id, location in the document)."""
    spec, found = entry.spec, list[tuple[str, str, tuple[str | int, ...]]]()

    def named(value: str | Override | None) -> str | None:
        return value.name if isinstance(value, Override) else value

    if isinstance(spec, BenchmarkSpec):
        found.append(("datasets", spec.dataset, ("dataset",)))
        if spec.metric is not None:
            found.append(("metrics", str(named(spec.metric)), ("metric",)))
        found += [("metrics", str(named(item)), ("metrics", i)) for i, item in enumerate(spec.metrics)]
        if spec.ceiling is not None:
            found.append(("ceilings", str(named(spec.ceiling)), ("ceiling",)))
        if spec.floor is not None and isinstance(spec.floor.dummy, str):
            found.append(("models", spec.floor.dummy, ("floor", "dummy")))
        for sign in ("positive", "negative"):
            for i, id in enumerate(getattr(spec.controls, sign)):
                found.append(("models", id, ("controls", sign, i)))
        if spec.superseded_by is not None:
            found.append(("benchmarks", spec.superseded_by, ("superseded_by",)))
    elif isinstance(spec, SuiteSpec):
        found += [("benchmarks", item.id, ("benchmarks", i)) for i, item in enumerate(spec.benchmarks)]
        found += [("models", id, ("models", i)) for i, id in enumerate(spec.models)]
        found += [("suites", id, ("includes", i)) for i, id in enumerate(spec.includes)]
    elif isinstance(spec, ModelSpec) and spec.commit is not None and isinstance(spec.commit.get("on"), str):
        found.append(("benchmarks", str(spec.commit["on"]), ("commit", "on")))
    return found
