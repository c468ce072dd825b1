"""What travels to workers that do not see the caller's folder: the specs of the jobs, their pins, and small files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from neuroledger.data.fetch import fetch_each, fetch_files
from neuroledger.data.gate.validation import mark_path, report_path
from neuroledger.data.integrity import pinned_files
from neuroledger.engine.plan import Job, other_models
from neuroledger.spec.base import id_of
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.model_rules import rule_of

__all__ = ["Carried", "carry", "fetch_sources"]

MOST_BYTES: Final = 64 * 1024**2
"""Bytes of data that travel; larger files come from the mirror, the address or the DVC remote of each."""

HAVE_FILES: Final = ("datasets", "models")

Source = tuple[str, str]
"""The kind and the id of a spec."""


@dataclass(frozen=True)
class Carried:
    """Files of a repository by their path in it, from which a worker makes a repository of its own."""

    files: Mapping[str, bytes] = field(repr=False)
    sha256: str

    def repository(self, folder: Path) -> Path:
        """Return the repository below a folder of the worker; it is made once."""
        root = folder / self.sha256[:16]
        if root.is_dir():
            return root
        temporary = folder / f"{uuid4().hex}.tmp"
        for name, content in self.files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            temporary.rename(root)
        except OSError:  # another thread was faster
            if not root.is_dir():
                raise
            shutil.rmtree(temporary, ignore_errors=True)
        return root


def carry(catalog: Catalog, jobs: Iterable[Job]) -> Carried:
    """Collect what workers need for these jobs: specs, pins, validation reports, and the smallest files of data and models.

    Specs of installed packages do not travel: the worker must have the same packages.
    """
    root = catalog.root
    needed = set[Source]()
    for job in jobs:
        needed.update(_specs_of(catalog, job))
    sources = sorted(needed)
    paths = {root / "dvc.yaml", root / ".dvc" / "config"}
    for kind, id in sources:
        paths.update(_files_of_spec(catalog, kind, id))
    content = _small_files(catalog, sources)
    for path in paths:
        if path.is_file():
            content[str(path.relative_to(root))] = path.read_bytes()
    config = content.get(".dvc/config")
    if config is not None:
        content[".dvc/config"] = _without_git(config, root)
    digest = hashlib.sha256()
    for name in sorted(content):
        digest.update(f"{name}\0{len(content[name])}\0".encode())
        digest.update(content[name])
    return Carried(content, digest.hexdigest())


def fetch_sources(catalog: Catalog, job: Job) -> None:
    """Fetch the files of a job's data sets and models that are not here, each verified by its SHA-256.

    Raises
    ------
    UnavailableError
        A file could not be fetched; the message says what was tried.
    """
    kinds: dict[str, str] = {}
    for kind, id in _specs_of(catalog, job):
        if kind in HAVE_FILES:
            kinds[id] = kind

    def fetch(id: str) -> None:
        folder, pins = pinned_files(catalog, kinds[id], id)
        fetch_files(catalog.root, folder, pins)

    fetch_each(sorted(kinds), fetch, what="data sets and models")


def _specs_of(catalog: Catalog, job: Job) -> Iterator[Source]:
    """Yield all specs that a job depends on."""
    waiting: list[Source] = [("benchmarks", job.benchmark), ("models", job.model)]
    seen = set[Source]()
    while waiting:
        source = waiting.pop()
        if source not in seen:
            seen.add(source)
            yield source
            waiting += _next_to(catalog, *source)


def _next_to(catalog: Catalog, kind: str, id: str) -> Iterator[Source]:
    """Yield the specs that a spec itself depends on."""
    if kind == "benchmarks":
        benchmark = catalog.benchmark(id)
        yield "datasets", benchmark.dataset
        for metric in benchmark.all_metrics:
            yield "metrics", id_of(metric)
        if benchmark.ceiling is not None:
            yield "ceilings", id_of(benchmark.ceiling)
        for model in other_models(benchmark):
            yield "models", model
    elif kind == "datasets":
        for member in catalog.dataset(id).members:
            yield "datasets", member
    elif kind == "models":
        rule = rule_of(catalog.model(id))
        if rule is not None:
            for other in rule.on.values():
                yield "benchmarks", other


def _files_of_spec(catalog: Catalog, kind: str, id: str) -> set[Path]:
    """Return the files of a spec of the repository: its text, its tables, its pointers, and the report on its data."""
    entry = catalog.entry(kind, id)
    paths = set[Path]()
    if not catalog.origin(entry.path):
        paths.add(entry.path)
        if isinstance(entry.spec, DatasetSpec):
            for listed in entry.spec.lists.values():
                paths.add(entry.path.with_name(listed.table))
    if kind == "datasets":
        paths.add(report_path(catalog.root, id))
        paths.add(mark_path(catalog, id))
    if kind in HAVE_FILES:
        folder, pins = pinned_files(catalog, kind, id)
        for name, pin in pins.items():
            if pin.dvc:
                paths.add(folder / f"{name}.dvc")
    return paths


def _small_files(catalog: Catalog, sources: Iterable[Source]) -> dict[str, bytes]:
    """Return the smallest pinned files that are here, up to :data:`MOST_BYTES` in all."""
    found: list[tuple[int, Path]] = []
    for kind, id in sources:
        if kind not in HAVE_FILES:
            continue
        folder, pins = pinned_files(catalog, kind, id)
        for name, pin in pins.items():
            if pin.package is None and (folder / name).is_file():
                found.append((pin.size, folder / name))
    content: dict[str, bytes] = {}
    left = MOST_BYTES
    for size, path in sorted(set(found)):
        if size > left:
            break
        left -= size
        content[str(path.relative_to(catalog.root))] = path.read_bytes()
    return content


def _without_git(config: bytes, root: Path) -> bytes:
    """Return DVC's configuration for a folder without git, with remotes in folders at their absolute paths."""
    lines = list[str]()
    for line in config.decode("utf-8").splitlines():
        name, _, value = line.partition("=")
        place = value.strip()
        if (
            name.strip() == "url"
            and "://" not in place
            and not Path(place).is_absolute()
        ):
            line = f"{name}= {(root / '.dvc' / place).resolve()}"
        lines.append(line)
    if "[core]" not in lines:
        lines.append("[core]")
    lines.insert(lines.index("[core]") + 1, "    no_scm = true")
    return "\n".join([*lines, ""]).encode()
