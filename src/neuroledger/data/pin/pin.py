"""Pin a folder of downloads as a data set or as weights: hash and place the files, and write them into the spec."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import ValidationError

from neuroledger.data.fetch import Progress, fetch_stated
from neuroledger.data.gate.validate import trial
from neuroledger.data.integrity import compare, folder_of, sha256_of_file
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
from neuroledger.display import choose
from neuroledger.errors import (
    DataError,
    IntegrityError,
    RequestError,
    SpecError,
    StorageError,
)
from neuroledger.spec import registry
from neuroledger.spec.base import Component, SourceFile, Stated, is_pattern
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import Document, parse
from neuroledger.spec.kinds import DatasetSpec, ModelSpec
from neuroledger.spec.load import explain, spec_of
from neuroledger.store.files import write_text

__all__ = ["Downloads", "Pinned", "alone", "fetch_and_pin", "pin", "pin_weights"]

SHOWN = 5
SOURCE = {
    "url",
    "version_id",
    "endpoint",
    "region",
    "sha1",
}  # fields of a statement that a pin keeps


@dataclass(frozen=True)
class Pinned:
    """The result of pinning, or of a dry run: the spec's text before and after, numbers of files, and remarks."""

    path: Path
    before: str
    after: str
    files: int
    placed: int
    subjects: int
    remarks: tuple[str, ...]


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Let no other process pin files of this repository; open the catalogue inside the block.

    Raises
    ------
    DataError
        The repository's folder ``.cache`` cannot be written.
    """
    folder = root / ".cache" / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "pinning.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            with choose() as display:
                display.line(
                    "waiting for another process that is pinning files of this repository"
                )
            lock.acquire()
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror or error}); correct its permissions"
        ) from error
    try:
        yield
    finally:
        lock.release()


def pin(
    catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False
) -> Pinned:
    """Hash the downloads of data set `id`, place them below `data/<id>/` and pin them in its spec.

    The files are those that the spec names below `downloads`, else below `files`, else all files; of recordings, those in
    the folder, whose subjects are written into the reader's fields. The spec keeps its comments and the order of its
    fields, and loses `unavailable`. A second call with the same files changes nothing. Nothing is written before all files
    are present, the reader has read them, and the spec's expectations are met. Files are hard-linked if the file system
    allows it, and copied otherwise.

    Raises
    ------
    RequestError
        The data set has no reader, or files, subjects, or the label to decode are missing.
    SpecError
        The new spec would be invalid.
    IntegrityError
        A file differs from its publisher's statement, or from its pin.
    DataError
        The reader cannot read the files, an expectation is not met, or the disk is full or read-only.
    """
    spec = catalog.dataset(id)
    path = catalog.entry("datasets", id).path
    before = path.read_text(encoding="utf-8")
    recorded = _recorded(catalog, spec, before, downloads)
    stated = spec.downloads.items()
    _compare_all(
        downloads.folder,
        {name: download for name, download in stated if name in recorded.files},
    )
    pinned = _pin_entries(spec, recorded.files, downloads)
    written = write_lists(recorded.text, spec, pinned, recorded.entries)
    text = without(without(written.text, "unavailable"), "unread")
    new, document = _parse_spec(text, path, catalog.shown(path), written.tables)
    places = {place_of(name): downloads.folder / name for name in recorded.files}
    declared = (*spec.expectations.stimuli, *spec.expectations.assembly)
    if downloads.observe and not declared:
        data = read_dataset(
            catalog.with_spec("datasets", id, new, document), id, places
        )
        text = without(text, "expectations") + expectations_text(data)
        new, document = _parse_spec(text, path, catalog.shown(path), written.tables)
    folder = folder_of(catalog.root, "datasets", id)
    stop_on_others(folder, places, pinned)
    if downloads.check:
        _require_valid_data(
            catalog.with_spec("datasets", id, new, document), id, places
        )
    placed = 0
    if not dry_run:
        placed = sum(put(source, folder / name) for name, source in places.items())
        for table, content in written.tables.items():
            write_text(path.with_name(table), content)
        write_text(path, text)
    remarks = (*recorded.remarks, *_unavailable_benchmarks(catalog, id))
    return Pinned(path, before, text, len(pinned), placed, recorded.subjects, remarks)


def _recorded(
    catalog: Catalog, spec: DatasetSpec, text: str, downloads: Downloads
) -> Recorded:
    """The files to pin: those that the reader finds itself, else those that the spec names."""
    if spec.members:
        raise RequestError(
            f"data set {spec.id!r} has no files of its own: pin those of its members, {', '.join(spec.members)}"
        )
    if spec.reader is None:
        path = catalog.entry("datasets", spec.id).path
        raise RequestError(
            f"data set {spec.id!r} has no reader: add to {catalog.shown(path)} the reader of its files, "
            f"`reader: {{name: …}}` (one of {', '.join(registry.names('reader'))})"
        )
    pins = registry.get("reader", spec.reader.name).pins
    if pins is not None:
        recorded: Recorded = pins(catalog, spec, text, downloads)
        return recorded
    found = files_below(downloads.folder)
    names = named(spec, found, downloads, _file_selector(catalog, spec))
    return Recorded(names, text, 0, [], None)


def fetch_and_pin(
    catalog: Catalog, id: str, *, progress: Progress | None = None
) -> Pinned:
    """Fetch the files that a spec names below `downloads`, compare each with its statement, and pin them.

    Nothing below `data/` or in the spec changes before the files are complete, the reader has read them and the
    expectations are met; an interrupted fetch continues. A spec without expectations gets those that the files meet now.

    Raises
    ------
    RequestError
        The spec names no downloads, or patterns, which have no address.
    UnavailableError, IntegrityError, DataError
        See `fetch_stated` and `pin`.
    """
    downloads = catalog.dataset(id).downloads
    patterns = [name for name in downloads if is_pattern(name)]
    if patterns or not downloads:
        if patterns:
            what = f"{patterns[0]!r} matches several files"
        else:
            what = "its spec names no `downloads`"
        raise RequestError(
            f"data set {id!r} cannot be fetched, {what}: download them, then run `neuroledger pin {id} --from FOLDER`"
        )
    folder = catalog.root / ".cache" / "downloads" / id
    fetch_stated(catalog.root, folder, downloads, progress=progress)
    pinned = pin(catalog, id, Downloads(folder=folder, observe=True))
    shutil.rmtree(folder)
    return pinned


def _file_selector(
    catalog: Catalog, spec: DatasetSpec
) -> Callable[[Sequence[str]], list[str]] | None:
    """The reader's function that selects its files from a folder's, or None if it has none."""
    if (
        spec.reader is None
        or (reads := registry.get("reader", spec.reader.name).reads) is None
    ):
        return None
    parameters = _bind(
        spec.reader, "reader", catalog.entry("datasets", spec.id).document
    )
    return lambda names: reads(names, parameters)


def _bind(
    reference: Component, kind: Literal["reader", "builder"], document: Document
) -> dict[str, object]:
    """The validated parameters of a spec's reader or builder."""
    component = registry.get(kind, reference.name)
    try:
        return component.bind(reference.parameters)
    except ValidationError as error:
        raise SpecError(
            explain(error, document, component.parameters, (kind,))
        ) from None


def _require_valid_data(catalog: Catalog, id: str, places: Mapping[str, Path]) -> None:
    """Read the files once where they are now, and require that they meet all expectations of the spec."""
    errors = [
        finding for finding in trial(catalog, id, places) if finding.severity == "error"
    ]
    if errors:
        lines = "\n".join(
            f"  {line}"
            for finding in errors[:SHOWN]
            for line in str(finding).splitlines()
        )
        if errors[SHOWN:]:
            more = f"\n  … and {len(errors) - SHOWN} more"
        else:
            more = ""
        raise DataError(
            f"data set {id!r} was read from the downloads, with {len(errors)} error{'s' * (len(errors) > 1)}; "
            f"nothing was written\n{lines}{more}"
        )


def _unavailable_benchmarks(catalog: Catalog, id: str) -> list[str]:
    """Remarks on benchmarks of this data set that are unavailable for another reason."""
    return [
        f"benchmark {benchmark} stays unavailable: {catalog.benchmark(benchmark).unavailable}"
        for benchmark in catalog.ids("benchmarks")
        if catalog.benchmark(benchmark).dataset == id
        and catalog.benchmark(benchmark).unavailable is not None
    ]


def _pin_entries(
    spec: DatasetSpec, names: Sequence[str], downloads: Downloads
) -> dict[str, dict[str, object]]:
    """Size, hash and source of each file; a file that is pinned with the same bytes already keeps its source."""
    pins: dict[str, dict[str, object]] = {}
    for name in names:
        source = downloads.folder / name
        place = place_of(name)
        if place in pins:
            raise RequestError(
                f"two files would be called {place}: rename one in {downloads.folder}"
            )
        size = source.stat().st_size
        digest = sha256_of_file(source)
        old = spec.files.get(place)
        if old is not None and old.sha256 != digest:
            if not downloads.renew:
                raise IntegrityError(
                    f"{source} has SHA-256 {digest[:12]}…, and {spec.id} pins {place} as {old.sha256[:12]}…: it is another "
                    "file; get the pinned one, or, if the change is intended, pin it with --renew and raise the spec's "
                    "`version`"
                )
            old = None
        origin = _origin(name, old, spec.downloads.get(name), downloads)
        pins[place] = {**origin, "size": size, "sha256": digest}
    return pins


def _origin(
    name: str, old: SourceFile | None, download: Stated | None, downloads: Downloads
) -> dict[str, object]:
    """Where a file comes from: by its pin with the same bytes, the given prefix of addresses, or the spec's statement."""
    url = downloads.url_of(name)
    if old is not None and url in (None, old.url):
        return old.model_dump(exclude_defaults=True, exclude={"size", "sha256"})
    if url is not None:
        return {"url": url}
    if download is not None and download.url is not None:
        return download.model_dump(exclude_none=True, include=SOURCE)
    return {}


def _parse_spec(
    text: str, path: Path, place: str, tables: Mapping[str, str]
) -> tuple[DatasetSpec, Document]:
    """Parse and validate the text of a spec with its tables and its reader's parameters."""
    document = parse(text, place)
    spec = spec_of(
        document, "datasets", stem=path.stem, tables=lambda name: tables[name].encode()
    )
    if not isinstance(spec, DatasetSpec) or spec.reader is None:
        raise RequestError(f"{place} names no reader")
    _bind(spec.reader, "reader", document)
    return spec, document


def _compare_all(folder: Path, stated: Mapping[str, Stated]) -> None:
    """Compare every download with its publisher's statement, then raise one error that names all that differ."""
    different = []
    for name, statement in stated.items():
        try:
            compare(folder / name, statement)
        except IntegrityError as error:
            different.append(str(error))
    if different:
        raise IntegrityError("\n".join(different))


def pin_weights(
    catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False
) -> Pinned:
    """Pin the files in a folder that the spec of model `id` names below `downloads`, and remove `unavailable` from it.

    Raises
    ------
    RequestError
        The spec names no downloads, one is not in the folder, or an option only applies to recordings.
    IntegrityError
        A file differs from its statement, or a different file is in its place already.
    SpecError
        The new spec would be invalid.
    """
    spec = catalog.model(id)
    path = catalog.entry("models", id).path
    _require_weights(spec, downloads)
    _compare_all(downloads.folder, spec.downloads)
    pins = {
        name: _weights_pin(name, download, downloads)
        for name, download in spec.downloads.items()
    }
    before = path.read_text(encoding="utf-8")
    text = without(
        with_entries(before, ("weights",), pins, before="downloads"), "unavailable"
    )
    document = parse(text, catalog.shown(path))
    new = spec_of(document, "models", stem=path.stem)
    if not isinstance(new, ModelSpec) or new.builder is None:
        raise RequestError(f"{catalog.shown(path)} names no builder")
    _bind(new.builder, "builder", document)
    folder = folder_of(catalog.root, "models", id)
    stop_on_others(folder, {name: downloads.folder / name for name in pins}, pins)
    placed = 0
    if not dry_run:
        placed = sum(put(downloads.folder / name, folder / name) for name in pins)
        write_text(path, text)
    return Pinned(path, before, text, len(pins), placed, 0, ())


def _require_weights(spec: ModelSpec, downloads: Downloads) -> None:
    """Refuse options for recordings, a model without `downloads`, and a folder that lacks one of them."""
    if options := downloads.about_recordings:
        raise RequestError(
            f"{options[0]} only applies to recordings, but {spec.id} is a model: omit it"
        )
    if not spec.downloads:
        raise RequestError(
            f"model {spec.id!r} names no `downloads`: its weights are {'pinned already' if spec.weights else 'none'}"
        )
    missing = {
        name: f"download {name} from {download.url}"
        for name, download in spec.downloads.items()
        if not (downloads.folder / name).is_file()
    }
    if missing:
        raise RequestError(
            f"{downloads.folder} lacks {', '.join(missing)}: {'; '.join(missing.values())}"
        )


def _weights_pin(
    name: str, download: Stated, downloads: Downloads
) -> dict[str, object]:
    source = downloads.folder / name
    url = downloads.url_of(name)
    origin = download.model_dump(exclude_none=True, include=SOURCE)
    if url is not None:
        origin = {"url": url}
    size = source.stat().st_size
    return {**origin, "size": size, "sha256": sha256_of_file(source)}
