"""A dataset id to verified, checked stimuli and assembly."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from neuroledger.data.assembly import check, content_sha256
from neuroledger.data.dataset import Dataset
from neuroledger.data.fetch import folder_of
from neuroledger.data.hdf5 import refuse_outside_storage
from neuroledger.data.integrity import remembering, verify_file
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, SpecError, UnavailableError
from neuroledger.spec import registry
from neuroledger.spec.base import SourceFile
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.expectations import Content
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain
from neuroledger.store.files import sweep
from neuroledger.store.store import open_store, store_at

__all__ = ["damaged_file", "load_dataset", "read_dataset", "verified_files"]


def verified_files(catalog: Catalog, kind: str, id: str, *, trust_memory: bool = True) -> dict[str, Path]:
    """Paths of a data set's or model's files, each verified against its pin.

    Raises
    ------
    DataError, IntegrityError
        A file is missing or differs; the message names the command that fixes it.
    """
    pins = _pins(catalog, kind, id)
    folder = folder_of(catalog.root, kind, id)
    memory = catalog.root / ".cache" if trust_memory else None
    for parent in {(folder / name).parent for name in pins}:
        sweep(parent)
    with remembering(memory):
        for name, pin in sorted(pins.items()):
            fix = f"bring it with `neuroledger fetch {id}`"
            if (folder / name).exists():
                fix = f"move it away, then `neuroledger fetch {id}`"
            verify_file(folder / name, pin, memory=memory, fix=fix)
    return {name: folder / name for name in pins}


def _pins(catalog: Catalog, kind: str, id: str) -> dict[str, SourceFile]:
    return dict(catalog.dataset(id).files if kind == "datasets" else catalog.model(id).weights)


def damaged_file(catalog: Catalog, kind: str, id: str) -> Path | None:
    """The first file of a data set or model that is here and differs from its pin, or None."""
    pins = _pins(catalog, kind, id)
    folder = folder_of(catalog.root, kind, id)
    for name, pin in sorted(pins.items()):
        if (folder / name).exists():
            try:
                verify_file(folder / name, pin, memory=catalog.root / ".cache")
            except DataError:
                return folder / name
    return None


class _Declared(dict[str, Path]):
    """The files of a data set by their names; the error for any other name says which there are."""

    def __missing__(self, name: str) -> Path:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(self))}: correct the field of "
            "the reader, or pin the file"
        )


def read_dataset(catalog: Catalog, id: str, files: dict[str, Path]) -> Dataset:
    """Run the data set's reader on its verified files.

    Raises
    ------
    DataError
        The files do not hold what the reader expects.
    """
    entry = catalog.entry("datasets", id)
    spec = catalog.dataset(id)
    if spec.reader is None or spec.closed is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {spec.closed}")
    component = registry.get("reader", spec.reader.name)
    try:
        parameters = component.bind(spec.reader.parameters)
    except ValidationError as error:
        raise SpecError(explain(error, entry.document, component.parameters, ("reader",))) from None
    store = open_store(catalog.root)

    def read() -> Dataset:
        for path in files.values():
            refuse_outside_storage(path)
        with store_at(catalog.root):
            read_by: Dataset = component.function(_Declared(files), **parameters)
            return read_by

    store.require_own()  # the child can run no git
    with suppress(OSError):  # where it may only be read, little is kept
        store.folder.mkdir(parents=True, exist_ok=True)
    data = confined(
        read,
        limits_for(files.values(), writable=[store.folder]),
        f"data set {id!r}: reader {spec.reader.name!r}",
        mapped=store.use_file,
    )
    degrees = spec.degrees if spec.degrees is not None else data.degrees
    stimuli = data.stimuli
    if stimuli is not None:
        stimuli = replace(_spanning(stimuli, degrees), id=id)
    further = {name: _spanning(one, degrees) for name, one in data.extra_stimuli.items()}
    content = _content(data) if component.prepares else ""
    return replace(data, id=id, stimuli=stimuli, degrees=degrees, extra_stimuli=further, content=content)


def _content(data: Dataset) -> str:
    """SHA-256 of an assembly as it was prepared; a reader that keeps it knows it."""
    if data.assembly is None:
        return ""
    known = data.assembly.encoding.pop("content_sha256", "")
    return str(known) or content_sha256(data.assembly)


def _spanning(stimuli: StimulusSet, degrees: float | None) -> StimulusSet:
    """The set with the degrees of the data set, where it does not say its own."""
    own = stimuli.degrees if "degrees" in stimuli.table.columns else (stimuli.degrees or degrees)
    return replace(stimuli, degrees=own)


def load_dataset(catalog: Catalog, id: str, *, trust_memory: bool = True) -> Dataset:
    """Verified, read, and checked against the conventions.

    Raises
    ------
    UnavailableError
        The data are not available here.
    DataError, IntegrityError, AssemblyError
        They are missing, changed or break the conventions.
    """
    spec = catalog.dataset(id)
    if spec.closed is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {spec.closed}")
    files = verified_files(catalog, "datasets", id, trust_memory=trust_memory)
    data = read_dataset(catalog, id, files)
    if data.assembly is not None:
        check(data.assembly, name=f"data set {id!r}")
        _as_pinned(spec, data)
    return data


def _as_pinned(spec: DatasetSpec, data: Dataset) -> None:
    """Return if the assembly has the content that the spec pins, where it pins one."""
    pins = [
        one.sha256
        for one in spec.expectations.assembly
        if isinstance(one, Content) and one.severity == "error"
    ]
    if not pins or data.assembly is None:
        return
    found = data.content or content_sha256(data.assembly)
    if found != pins[0]:
        raise DataError(
            f"data set {spec.id!r}: its files are what is pinned, but what was read and prepared from them has the SHA-256 "
            f"{found}, and {pins[0]} is pinned: prepare it with the library versions and on the platform that it was "
            "pinned with, or renew the pin (`check: content` under `expectations`) if the difference is meant"
        )
