"""Load a data set by id: verify its files, run its reader, check the result."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.assembly import check, content_sha256
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import refuse_outside_storage
from neuroledger.data.integrity import verified_files
from neuroledger.data.normalise_input import in_numpy
from neuroledger.data.reader import changed_parameters, reader_parameters
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import (
    DataError,
    UnavailableError,
    about_pair,
)
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.components import Reader
from neuroledger.spec.expectations import Content
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.store.store import open_store, store_at

__all__ = [
    "load_dataset",
    "load_prepared",
    "prepared_content",
    "read_dataset",
    "with_degrees",
]


class DeclaredFiles(dict[str, Path]):
    """The files of a data set by name; the error for any other name lists the declared names."""

    def __missing__(self, name: str) -> Path:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(self))}: correct the field of "
            "the reader, or pin the file"
        )


def read_dataset(
    catalog: Catalog, id: str, files: dict[str, Path], needs: object = None
) -> Dataset:
    """Run the data set's reader on its verified files, in a confined child process; join members, each read in this way.

    ``needs`` are those of a model, by which the parameters of the readers are changed.

    Raises
    ------
    UnavailableError
        The spec declares the data unavailable, or names no reader.
    SpecError
        The reader's parameters or the members are invalid.
    RequestError
        The data set cannot be prepared as the model needs.
    DataError
        The files do not contain what the reader expects.
    """
    spec = catalog.dataset(id)
    component, parameters = reader_parameters(catalog, id)
    if spec.members:
        data: Dataset = component.function(
            _read_members(catalog, spec, files, needs), **parameters
        )
    else:
        parameters |= changed_parameters(catalog, id, needs)
        data = _read_confined(catalog, id, component, files, parameters)
    degrees = spec.degrees if spec.degrees is not None else data.degrees
    stimuli = data.stimuli
    if stimuli is not None:
        stimuli = replace(with_degrees(stimuli, degrees), id=id)
    extra = {
        name: with_degrees(stimulus_set, degrees)
        for name, stimulus_set in data.extra_stimuli.items()
    }
    content = prepared_content(data) if component.prepares else ""
    return replace(
        data,
        id=id,
        stimuli=stimuli,
        degrees=degrees,
        extra_stimuli=extra,
        content=content,
    )


def _read_members(
    catalog: Catalog, spec: DatasetSpec, files: Mapping[str, Path], needs: object
) -> dict[str, Dataset]:
    """The data of each member, which follow the conventions and the member's own pin of its content."""
    members: dict[str, Dataset] = {}
    for member in spec.members:
        begin = f"{member}/"
        own = {
            name.removeprefix(begin): path
            for name, path in files.items()
            if name.startswith(begin)
        }
        members[member] = read_dataset(catalog, member, own, needs)
        _require_conventions(
            catalog.dataset(member), members[member], pinned=needs is None
        )
    return members


def _read_confined(
    catalog: Catalog,
    id: str,
    component: Reader,
    files: Mapping[str, Path],
    parameters: Mapping[str, object],
) -> Dataset:
    """What a reader returns of the files of a data set, in a confined child process."""
    store = open_store(catalog.root)

    def read() -> Dataset:
        for path in files.values():
            refuse_outside_storage(path)
        with store_at(catalog.root):
            dataset: Dataset = component.function(DeclaredFiles(files), **parameters)
            return _in_numpy(dataset)

    store.require_own()  # the child process cannot run git
    with suppress(OSError):  # in a read-only repository, prepared data are not stored
        store.folder.mkdir(parents=True, exist_ok=True)
    found: Dataset = confined(
        read,
        limits_for(files.values(), writable=[store.folder]),
        f"data set {id!r}: reader {component.name!r}",
        mapped=store.use_file,
    )
    return found


def _in_numpy(data: Dataset) -> Dataset:
    """The data set with NumPy arrays in its assemblies, whatever pandas kept a reader's texts in."""
    extras, metadata = (
        {name: in_numpy(each) for name, each in parts.items()}
        for parts in (data.extras, data.metadata)
    )
    assembly = None if data.assembly is None else in_numpy(data.assembly)
    return replace(data, assembly=assembly, extras=extras, metadata=metadata)


def prepared_content(data: Dataset) -> str:
    """SHA-256 of the prepared assembly; computed only if the reader did not store it with the assembly."""
    if data.assembly is None:
        return ""
    stored = data.assembly.encoding.pop("content_sha256", "")
    return str(stored) or content_sha256(data.assembly)


def with_degrees(stimuli: StimulusSet, degrees: float | None) -> StimulusSet:
    """The stimulus set with the degrees of the data set, unless it has its own."""
    if "degrees" in stimuli.table.columns:
        own = stimuli.degrees
    else:
        own = stimuli.degrees or degrees
    return replace(stimuli, degrees=own)


def load_dataset(catalog: Catalog, id: str, *, trust_memory: bool = True) -> Dataset:
    """Verify and read a data set, and check it against the conventions.

    Raises
    ------
    UnavailableError
        The spec declares the data unavailable.
    DataError, IntegrityError, AssemblyError
        The data are missing, changed, or break the conventions.
    """
    closed = catalog.closed(id)
    if closed is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {closed}")
    files = verified_files(catalog, "datasets", id, trust_memory=trust_memory)
    data = read_dataset(catalog, id, files)
    _require_conventions(catalog.dataset(id), data, pinned=True)
    return data


def _require_conventions(spec: DatasetSpec, data: Dataset, *, pinned: bool) -> None:
    """Refuse an assembly that breaks the conventions or, if it is prepared as `pinned`, has another content."""
    if data.assembly is None:
        return
    check(data.assembly, name=f"data set {spec.id!r}")
    if pinned:
        _require_pinned_content(spec, data)


def load_prepared(catalog: Catalog, own: Dataset, needs: object) -> Dataset:
    """A loaded data set, read again with the preparation that a model needs: other values in the same rows.

    Raises
    ------
    RequestError
        The data set cannot be prepared in this way.
    DataError
        The data are missing or changed, or the preparation gives other rows.
    """
    name = f"data set {own.id!r}, prepared as the model needs"
    files = verified_files(catalog, "datasets", own.id)
    try:
        data = read_dataset(catalog, own.id, files, needs)
    except DataError as error:
        if not about_pair(error):
            raise
        raise DataError(f"{name}: {error}") from error
    if data.assembly is not None and own.assembly is not None:
        check(data.assembly, name=name)
        _require_same_rows(own.assembly, data.assembly, name)
    return data


def _require_same_rows(own: xr.DataArray, prepared: xr.DataArray, name: str) -> None:
    """Refuse a preparation whose presentations are not those of the data set, so that splits and targets stay the same."""
    count, wanted = (part.sizes["presentation"] for part in (prepared, own))
    if count != wanted:
        raise DataError(f"{name}: it has {count} presentations instead of {wanted}")
    for coordinate, expected in own.coords.items():
        if expected.dims != ("presentation",):
            continue
        found = prepared.coords.get(coordinate)
        if found is None or not _equal(found.values, expected.values):
            raise DataError(f"{name}: {coordinate!r} of its presentations differs")


def _equal(found: Array, expected: Array) -> bool:
    """Whether two coordinates are equal; missing numbers equal missing numbers."""
    both_numbers = found.dtype.kind == expected.dtype.kind == "f"
    return bool(np.array_equal(found, expected, equal_nan=both_numbers))


def _require_pinned_content(spec: DatasetSpec, data: Dataset) -> None:
    """Refuse an assembly whose content differs from the SHA-256 that the spec pins, if it pins one."""
    pins = [
        expectation.sha256
        for expectation in spec.expectations.assembly
        if isinstance(expectation, Content) and expectation.severity == "error"
    ]
    if not pins or data.assembly is None:
        return
    sha256 = data.content or content_sha256(data.assembly)
    if sha256 != pins[0]:
        raise DataError(
            f"data set {spec.id!r}: its files match their pins, but the assembly prepared from them has the SHA-256 "
            f"{sha256}, and {pins[0]} is pinned: prepare it with the library versions and on the platform that it was "
            "pinned with, or renew the pin (`check: content` under `expectations`) if the difference is intended"
        )
