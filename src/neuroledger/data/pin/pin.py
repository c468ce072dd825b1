"""From a folder of downloads to a data set or weights that are accepted: hashed, placed, and written into the spec."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from neuroledger.data.fetch import Progress, fetch_stated, folder_of
from neuroledger.data.gate.validate import trial
from neuroledger.data.integrity import compare, sha256_of_file
from neuroledger.data.load import read_dataset
from neuroledger.data.package import expectations_text
from neuroledger.data.pin.downloads import (
    Downloads,
    Recorded,
    files_below,
    named,
    place_of,
    put,
    stop_on_others,
)
from neuroledger.data.pin.yaml_edit import with_entries, without, write_lists
from neuroledger.errors import DataError, IntegrityError, RequestError, SpecError
from neuroledger.spec import registry
from neuroledger.spec.base import SourceFile, is_pattern
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import Document, parse
from neuroledger.spec.kinds import DatasetSpec, ModelSpec
from neuroledger.spec.load import explain, spec_of
from neuroledger.store.files import write_text

__all__ = ["Downloads", "Pinned", "fetch_and_pin", "pin", "pin_weights"]

SHOWN = 5


@dataclass(frozen=True)
class Pinned:
    """What pinning did, or would do: the spec's text before and after, the files, and remarks."""

    path: Path
    before: str
    after: str
    files: int
    placed: int
    subjects: int
    remarks: tuple[str, ...]


def pin(catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False) -> Pinned:
    """Hash the downloads of data set `id`, put them below `data/<id>/` and pin them in its spec.

    The files are those that the spec names below `downloads`, or below `files`, or all that there are; of recordings,
    those that are in the folder, and the reader's fields state their subjects. The spec keeps its comments and the order
    of its fields; `unavailable` goes. A second call with the same files changes nothing. Nothing is written before
    everything is found to be there, and the reader has read it, and the spec's expectations hold. Files are linked where
    the disk can, and copied where it cannot.

    Raises
    ------
    RequestError
        The data set has no reader, or something is missing: files, people, what is to be decoded.
    SpecError
        The spec would not be valid.
    IntegrityError
        A file is not what its publisher states, or not what is pinned already.
    DataError
        The reader cannot read the files, an expectation does not hold, or the disk refuses.
    """
    spec = catalog.dataset(id)
    path = catalog.entry("datasets", id).path
    if spec.reader is None:
        raise RequestError(
            f"data set {id!r} has no reader: say in {catalog.shown(path)} how its files are read, "
            f"`reader: {{name: …}}` (one of {', '.join(registry.names('reader'))})"
        )
    before = path.read_text(encoding="utf-8")
    pins = registry.get("reader", spec.reader.name).pins
    if pins is not None:
        found: Recorded = pins(catalog, spec, before, downloads)
    else:
        names = named(spec, files_below(downloads.folder), downloads, _reads(catalog, spec))
        found = Recorded(names, before, 0, [], None)
    wanted = found.files
    for name in wanted:
        if name in spec.downloads:
            compare(downloads.folder / name, spec.downloads[name])
    pinned = _pins(spec, wanted, downloads)
    written = write_lists(found.text, spec, pinned, found.entries)
    text = without(without(written.text, "unavailable"), "unread")
    new, document = _valid(text, path, catalog.shown(path), written.tables)
    places = {place_of(name): downloads.folder / name for name in wanted}
    if downloads.observe and not (spec.expectations.stimuli or spec.expectations.assembly):
        data = read_dataset(catalog.with_spec("datasets", id, new, document), id, places)
        text = without(text, "expectations") + expectations_text(data)
        new, document = _valid(text, path, catalog.shown(path), written.tables)
    folder = folder_of(catalog.root, "datasets", id)
    stop_on_others(folder, places, pinned)
    if downloads.check:
        _try(catalog.with_spec("datasets", id, new, document), id, places)
    placed = 0
    if not dry_run:
        placed = sum(put(source, folder / name) for name, source in places.items())
        for table, content in written.tables.items():
            write_text(path.with_name(table), content)
        write_text(path, text)
    remarks = (*found.remarks, *_closed(catalog, id))
    return Pinned(path, before, text, len(pinned), placed, found.subjects, remarks)


def fetch_and_pin(catalog: Catalog, id: str, *, progress: Progress | None = None) -> Pinned:
    """Fetch the files that a spec names below `downloads`, compare each with what is stated of it, and pin them.

    Nothing below `data/` or in the spec changes before the files are complete, the reader has read them and the
    expectations hold; a fetch that was interrupted goes on. A spec without expectations gets those that hold today.

    Raises
    ------
    RequestError
        The spec names patterns, from which no address follows.
    UnavailableError, IntegrityError, DataError
        As `fetch_stated` and `pin`.
    """
    stated = catalog.dataset(id).downloads
    several = [name for name in stated if is_pattern(name)]
    if several or not stated:
        what = f"{several[0]!r} stands for many files" if several else "its spec names no `downloads`"
        raise RequestError(
            f"data set {id!r} cannot be fetched, {what}: download them, then `neuroledger pin {id} --from FOLDER`"
        )
    folder = catalog.root / ".cache" / "downloads" / id
    fetch_stated(catalog.root, folder, stated, progress=progress)
    done = pin(catalog, id, Downloads(folder=folder, observe=True))
    shutil.rmtree(folder)
    return done


def _reads(catalog: Catalog, spec: DatasetSpec) -> Callable[[Sequence[str]], list[str]] | None:
    """Which of a folder's files the reader reads, if it says so."""
    if spec.reader is None or (reads := registry.get("reader", spec.reader.name).reads) is None:
        return None
    told = _bound(spec, catalog.entry("datasets", spec.id).document)
    return lambda names: reads(names, told)


def _bound(spec: DatasetSpec, document: Document) -> dict[str, Any]:
    """The reader's parameters, validated."""
    if spec.reader is None:
        return {}
    component = registry.get("reader", spec.reader.name)
    try:
        return component.bind(spec.reader.parameters)
    except ValidationError as error:
        raise SpecError(explain(error, document, component.parameters, ("reader",))) from None


def _try(catalog: Catalog, id: str, places: Mapping[str, Path]) -> None:
    """The files are read once from where they are, and everything that the spec expects of them holds."""
    wrong = [finding for finding in trial(catalog, id, places) if finding.severity == "error"]
    if wrong:
        said = "\n".join(f"  {line}" for finding in wrong[:SHOWN] for line in str(finding).splitlines())
        more = f"\n  … and {len(wrong) - SHOWN} more" if wrong[SHOWN:] else ""
        raise DataError(
            f"data set {id!r} was read from the downloads, with {len(wrong)} error{'s' * (len(wrong) > 1)}; "
            f"nothing was written\n{said}{more}"
        )


def _closed(catalog: Catalog, id: str) -> list[str]:
    """Benchmarks on these data that have another reason not to be run."""
    return [
        f"benchmark {one} stays unavailable: {catalog.benchmark(one).unavailable}"
        for one in catalog.ids("benchmarks")
        if catalog.benchmark(one).dataset == id and catalog.benchmark(one).unavailable is not None
    ]


def _pins(spec: DatasetSpec, wanted: Sequence[str], downloads: Downloads) -> dict[str, dict[str, Any]]:
    """Size, hash and source of each file; a file that is pinned with these bytes already keeps its source."""
    pins: dict[str, dict[str, Any]] = {}
    for name in wanted:
        source, place = downloads.folder / name, place_of(name)
        size, digest = source.stat().st_size, sha256_of_file(source)
        if place in pins:
            raise RequestError(f"two files would be called {place}: rename one in {downloads.folder}")
        pin: dict[str, Any] = {"size": size, "sha256": digest}
        held, stated = spec.files.get(place), spec.downloads.get(name)
        if held is not None and held.sha256 != digest and not downloads.renew:
            raise IntegrityError(
                f"{source} has SHA-256 {digest[:12]}…, and {spec.id} pins {place} as {held.sha256[:12]}…: it is another "
                "file; get the pinned one, or, if the change is meant, pin it with --renew and raise the spec's `version`"
            )
        if downloads.url_prefix is not None:
            pin = {"url": f"{downloads.url_prefix.rstrip('/')}/{quote(name)}", **pin}
            if held is not None and held.url == pin["url"] and held.sha256 == digest and held.version_id:
                pin["version_id"] = held.version_id
        elif held is not None and held.sha256 == digest:
            pin = _source(held) | pin
        elif stated is not None and stated.url is not None:
            said = stated.model_dump(
                exclude_none=True, include={"url", "version_id", "endpoint", "region", "sha1"}
            )
            pin = {**said, **pin}
        pins[place] = pin
    return pins


def _source(held: SourceFile) -> dict[str, Any]:
    said = held.model_dump(exclude_defaults=True)
    return {name: value for name, value in said.items() if name not in ("size", "sha256")}


def _valid(text: str, path: Path, shown: str, tables: Mapping[str, str]) -> tuple[DatasetSpec, Document]:
    """The text as a valid spec, with its tables, whose reader takes its parameters."""
    document = parse(text, shown)
    spec = spec_of(document, "datasets", stem=path.stem, tables=lambda name: tables[name].encode())
    if not isinstance(spec, DatasetSpec) or spec.reader is None:
        raise RequestError(f"{shown} names no reader")
    _bound(spec, document)
    return spec, document


def pin_weights(catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False) -> Pinned:
    """Pin the files that the spec of model `id` names below `downloads`, from a folder; `unavailable` goes.

    Raises
    ------
    RequestError
        The spec names no downloads, one is not in the folder, or something was said that only recordings need.
    IntegrityError
        A file is not what is stated of it, or another one lies where it is to go.
    SpecError
        The spec would not be valid.
    """
    spec, path = catalog.model(id), catalog.entry("models", id).path
    if given := downloads.about_recordings:
        raise RequestError(f"{given[0]} is about recordings; {id} is a model")
    if not spec.downloads:
        raise RequestError(
            f"model {id!r} names no `downloads`: its weights are {'pinned already' if spec.weights else 'none'}"
        )
    pins: dict[str, dict[str, Any]] = {}
    for name, stated in spec.downloads.items():
        source = downloads.folder / name
        if not source.is_file():
            raise RequestError(f"{downloads.folder} lacks {name}; download it from {stated.url}")
        compare(source, stated)
        where = (
            {"url": stated.url}
            if downloads.url_prefix is None
            else {"url": f"{downloads.url_prefix.rstrip('/')}/{name}"}
        )
        pins[name] = {**where, "size": source.stat().st_size, "sha256": sha256_of_file(source)}
    before = path.read_text(encoding="utf-8")
    text = without(with_entries(before, ("weights",), pins, before="downloads"), "unavailable")
    document = parse(text, catalog.shown(path))
    new = spec_of(document, "models", stem=path.stem)
    if not isinstance(new, ModelSpec) or new.builder is None:
        raise RequestError(f"{catalog.shown(path)} names no builder")
    component = registry.get("builder", new.builder.name)
    try:
        component.bind(new.builder.parameters)
    except ValidationError as error:
        raise SpecError(explain(error, document, component.parameters, ("builder",))) from None
    folder = folder_of(catalog.root, "models", id)
    stop_on_others(folder, {name: downloads.folder / name for name in pins}, pins)
    placed = 0
    if not dry_run:
        placed = sum(put(downloads.folder / name, folder / name) for name in pins)
        write_text(path, text)
    return Pinned(path, before, text, len(pins), placed, 0, ())
