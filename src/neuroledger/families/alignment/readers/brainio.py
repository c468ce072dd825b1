"""Reader of Brain-Score's files: a BrainIO assembly, its stimulus table and its archive."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
import pandas as pd
import xarray as xr
from pydantic import BaseModel, ConfigDict

from neuroledger.data.arrays import Strings
from neuroledger.data.dataset import Dataset
from neuroledger.data.normalise_input import as_text
from neuroledger.data.parsing import note_opened
from neuroledger.data.stimuli import (
    StimulusFiles,
    StimulusSet,
    read_table,
    safe_members,
)
from neuroledger.errors import AssemblyError, DataError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.spec.registry import reader

__all__ = ["brainio", "read_assembly"]

KEYS = ("neuroid_id", "stimulus_id", "time_bin_start")
DATA = ("data", "__xarray_dataarray_variable__")


class Part(BaseModel):
    """One of the joined assemblies: file names of the assembly and, if it has its own stimuli, of these."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    assembly: str | None = None
    stimuli: str | None = None
    archive: str | None = None


@reader("brainio", version=1)
def brainio(
    files: Mapping[str, Path],
    *,
    assembly: str | None = None,
    stimuli: str | None = None,
    archive: str | None = None,
    merge: bool = True,
    several: tuple[str, ...] = (),
    columns: Mapping[str, str] | None = None,
    tables: tuple[str, ...] = (),
    parts: Mapping[str, Part] | None = None,
    part: str = "part",
    along: Literal["presentation", "neuroid", "subject"] = "presentation",
    texts: str | None = None,
    prepare: tuple[Step, ...] = (),
    fitting_stimuli: Mapping[str, StimulusFiles] | None = None,
) -> Dataset:
    """Read a data set in the layout that Brain-Score packages.

    Parameters
    ----------
    files
        Paths by the file names in the spec.
    assembly, stimuli, archive
        Names of the ``assy_*.nc``, ``stimulus_*.csv`` and ``stimulus_*.zip``; null if the data set does not have one.
    merge
        Add the columns of the stimulus table to the presentations, as Brain-Score's loader does: they are appended in the
        order of the table, and existing coordinates of the assembly are kept. The row order after averaging, and
        therefore the splits, depend on that order.
    several
        Coordinates that name the stimuli of one presentation, such as the three images of an odd-one-out trial; joined by
        ``|`` they become its ``stimulus_id``. No columns are merged in this case.
    columns
        New names for columns of the stimulus tables.
    tables
        Additional CSV tables with ``stimulus_id``, whose columns are added to the stimulus table; for example, a published
        division into train and test stimuli.
    parts, part, along
        Several assemblies that are joined along a dimension, either each with its own stimuli or all with ``stimuli``. The
        coordinate ``part`` contains the name of the part of each item. Along ``neuroid``, presentations are matched by
        ``stimulus_id`` (and ``repetition``); responses of a part to stimuli that it was not shown are missing.
    texts
        Coordinate of the assembly with the text of each presentation. The stimuli are then these texts, each id once and
        in the order of the presentations, with those coordinates that are constant for each text.
    prepare
        Steps that give the assembly the names and labels of this project; see docs/preparation.md. They are applied before
        the columns of the stimuli are merged.
    fitting_stimuli
        Additional stimulus sets to which a readout is fitted: name → its ``stimuli`` and ``archive``.

    Returns
    -------
    Dataset
        Additional groups of the netCDF file are in ``metadata``.

    Raises
    ------
    DataError
        A file is not declared under ``files``, or options contradict each other.
    AssemblyError
        The file is not a BrainIO assembly, or stimuli of the assembly are missing from the table.
    """
    if parts and assembly is not None:
        raise DataError(
            "the reader joins `parts`, or reads one `assembly`: give only one of them"
        )
    parts = parts or {}
    columns = columns or {}
    stimulus_set = (
        None if stimuli is None else _read_stimuli(files, stimuli, archive, columns)
    )
    stimuli_of_parts = {
        name: _read_stimuli(files, source.stimuli, source.archive, columns)
        for name, source in parts.items()
        if source.stimuli is not None
    }
    if stimuli_of_parts:
        if stimulus_set is not None or len(stimuli_of_parts) != len(parts):
            raise DataError(
                "give `stimuli` either for each of the `parts`, or once for the data set"
            )
        stimulus_set = _join_stimuli(stimuli_of_parts, part)
    for name in tables:
        if stimulus_set is None:
            raise DataError(
                f"the table {name!r} adds columns to stimuli, and there are none: give `stimuli`"
            )
        stimulus_set = _add_columns(stimulus_set, read_table(files[name]), name)
    sets = {
        name: _read_stimuli(files, source.stimuli, source.archive, columns)
        for name, source in (fitting_stimuli or {}).items()
    }
    assemblies = {
        name: read_assembly(files[source.assembly])
        for name, source in parts.items()
        if source.assembly
    }
    if assembly is not None:
        main, extras = read_assembly(files[assembly])
        main = prepared(main, prepare, name=assembly)
    elif assemblies:
        extras = {
            f"{name}.{group}": array
            for name, (_, groups) in assemblies.items()
            for group, array in groups.items()
        }
        main = _join_parts(
            {
                name: prepared(array, prepare, name=name)
                for name, (array, _) in assemblies.items()
            },
            part,
            along,
        )
    else:
        return Dataset(stimulus_set, None, extra_stimuli=sets)
    if texts is not None:
        if stimulus_set is not None:
            raise DataError(
                "stimuli come from `stimuli` or from the assembly's `texts`: give one of them"
            )
        stimulus_set = _texts_of_assembly(main, texts, Path(str(assembly)).stem)
        return Dataset(stimulus_set, main, extras=extras, extra_stimuli=sets)
    if several:
        main = _join_ids(main, several)
    elif merge and stimulus_set is not None and "presentation" in main.dims:
        main = _merge_columns(main, stimulus_set.table)
    return Dataset(stimulus_set, main, metadata=extras, extra_stimuli=sets)


def _texts_of_assembly(assembly: xr.DataArray, name: str, id: str) -> StimulusSet:
    """Stimulus set of the texts in a coordinate of an assembly."""
    missing = [coord for coord in (name, "stimulus_id") if coord not in assembly.coords]
    if missing:
        raise AssemblyError(
            f"the assembly has no coordinate {missing[0]!r} to take texts from: correct `texts`"
        )
    ids = as_text(assembly["stimulus_id"].values)
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    order = np.sort(first)
    columns = {
        str(key): coord.values[order]
        for key, coord in assembly.coords.items()
        if coord.dims == ("presentation",)
        and key not in {"stimulus_id", name}
        and (coord.values[first][codes] == coord.values).all()
    }
    texts = {"stimulus_id": ids[order], "text": as_text(assembly[name].values[order])}
    return StimulusSet(id, pd.DataFrame(texts | columns))


def _read_stimuli(
    files: Mapping[str, Path],
    name: str,
    archive: str | None,
    renamed: Mapping[str, str],
) -> StimulusSet:
    table = read_table(files[name])
    if (
        "stimulus_id" not in table and "image_id" in table
    ):  # the older name; its column is kept as well
        table.insert(0, "stimulus_id", table["image_id"].astype(str))
    clashes = [
        column for column in renamed if column in table and renamed[column] in table
    ]
    if clashes:
        raise AssemblyError(
            f"{name} has a column {renamed[clashes[0]]!r} already: {clashes[0]!r} cannot be renamed to it"
        )
    table = table.rename(columns=dict(renamed))
    repeated = (
        table["stimulus_id"].astype(str).duplicated()
        if "stimulus_id" in table
        else None
    )
    if repeated is not None and repeated.any():
        if len(table.drop_duplicates()) != int((~repeated).sum()):
            first = str(table.loc[repeated, "stimulus_id"].iloc[0])
            raise AssemblyError(
                f"{name}: stimulus {first!r} has several rows that differ; each stimulus must have one row"
            )
        table = table[~repeated].reset_index(drop=True)
    _require_unique_numbers(table, name)
    archive_path = None
    if archive is not None:
        archive_path = files[archive]
    if archive_path is not None:
        _require_same_files(table, archive_path, name)
    return StimulusSet(Path(name).stem, table, archive_path)


def _require_unique_numbers(table: pd.DataFrame, name: str) -> None:
    """Raise AssemblyError if two ids are the same number, such as ``1`` and ``1.0``, in a column of numbers."""
    numbers = (
        pd.to_numeric(table["stimulus_id"], errors="coerce")
        if "stimulus_id" in table
        else None
    )
    if numbers is None or numbers.isna().any() or not numbers.duplicated().any():
        return
    same = (
        table.loc[numbers == numbers[numbers.duplicated()].iloc[0], "stimulus_id"]
        .astype(str)
        .tolist()
    )
    raise AssemblyError(
        f"{name}: the ids {same[0]!r} and {same[1]!r} are one number: write each id in one way"
    )


def _require_same_files(table: pd.DataFrame, archive: Path, name: str) -> None:
    """Raise AssemblyError unless the archive contains exactly the files of the table."""
    members = {member.filename for member in safe_members(archive, repeated=True)}
    if "filename" not in table:
        raise AssemblyError(
            f"{name} has no column 'filename', so nothing in {archive.name} belongs to it"
        )
    filenames = list(dict.fromkeys(table["filename"].astype(str)))
    missing = [file for file in filenames if file not in members]
    if missing:
        raise AssemblyError(
            f"{archive.name} lacks {len(missing)} of {len(filenames)} files of {name}, first {missing[0]!r}"
        )
    extra = sorted(members - set(filenames))
    if extra:
        raise AssemblyError(
            f"{archive.name} contains {len(extra)} files that {name} does not name, first {extra[0]!r}: the two belong to "
            "different sets, or the archive was changed; get both again"
        )


def _join_stimuli(sets: Mapping[str, StimulusSet], part: str) -> StimulusSet:
    """Join the stimulus sets of all parts; file names are prefixed by the part whose archive contains them."""
    tables = []
    for name, stimuli in sets.items():
        table = stimuli.table.assign(**{part: name})
        if "filename" in table:
            table["filename"] = name + "/" + table["filename"].astype(str)
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    repeated = table["stimulus_id"].astype(str).duplicated()
    if repeated.any():
        raise AssemblyError(
            f"stimulus {table.loc[repeated, 'stimulus_id'].iloc[0]!r} is in several of the parts"
        )
    archives = {
        name: stimuli.archive
        for name, stimuli in sets.items()
        if isinstance(stimuli.archive, Path)
    }
    if archives and len(archives) != len(sets):
        raise AssemblyError("some of the parts have an `archive` and some have none")
    return StimulusSet("+".join(sets), table, archives or None)


def _add_columns(stimuli: StimulusSet, table: pd.DataFrame, name: str) -> StimulusSet:
    """Add the columns of a table that has one row for each stimulus."""
    if "stimulus_id" not in table:
        raise AssemblyError(f"{name} has no column 'stimulus_id'")
    by_id = table.assign(stimulus_id=as_text(table["stimulus_id"])).set_index(
        "stimulus_id"
    )
    missing = [id for id in stimuli.ids if id not in by_id.index]
    if missing or not by_id.index.is_unique:
        raise AssemblyError(
            f"{name} has no row for stimulus {missing[0]!r}"
            if missing
            else f"{name} has several rows for a stimulus"
        )
    new = [column for column in by_id.columns if column not in stimuli.table]
    added = {column: by_id.loc[stimuli.ids, column].to_numpy() for column in new}
    return replace(stimuli, table=stimuli.table.assign(**added))


def _join_parts(
    parts: Mapping[str, xr.DataArray], part: str, along: str
) -> xr.DataArray:
    """Concatenate the parts along a dimension, with the coordinate ``part``; other dimensions must be the same."""
    first = next(iter(parts.values()))
    for name, array in parts.items():
        if set(array.dims) - {along} != set(first.dims) - {along}:
            raise AssemblyError(
                f"part {name!r} has dimensions {tuple(array.dims)}, the first has {tuple(first.dims)}"
            )
    if along == "neuroid":
        parts = _match_presentations(parts)
    elif along == "subject":
        parts = {
            name: array if along in array.dims else array.expand_dims(along)
            for name, array in parts.items()
        }
    labelled = {}
    for name, array in parts.items():
        labels = [name] * array.sizes[along]
        named = array.assign_coords({part: (along, labels)})
        labelled[name] = named.transpose(along, ...)
    reference = next(iter(labelled.values()))
    _require_same_items(labelled, reference, along)
    coords = _joined_coordinates(list(labelled.values()), along)
    values = np.concatenate(
        [array.transpose(*reference.dims).values for array in labelled.values()]
    )
    attrs = dict(reference.attrs)
    attrs.pop("identifier", None)
    joined = xr.DataArray(
        values, dims=reference.dims, coords=coords, attrs=attrs, name="data"
    )
    if along in first.dims:
        return joined.transpose(*first.dims)
    return joined


def _require_same_items(
    parts: Mapping[str, xr.DataArray], reference: xr.DataArray, along: str
) -> None:
    """Refuse parts whose items differ from those of the first along another dimension."""
    for name, array in parts.items():
        for dim in array.dims:
            if dim == along:
                continue
            keys = [key for key in KEYS if key in reference.coords]
            keys = [key for key in keys if reference[key].dims == (dim,)]
            labels = _labels(array, dim, keys)
            if not np.array_equal(labels, _labels(reference, dim, keys)):
                raise AssemblyError(
                    f"part {name!r} and the first part differ along {dim!r}: select the same items in both"
                )


def _labels(array: xr.DataArray, dim: Hashable, keys: Sequence[str]) -> Strings:
    """The items along a dimension, by the first of the keys, else by their number."""
    if keys:
        return as_text(array[keys[0]].values)
    return as_text(np.arange(array.sizes[dim]))


def _joined_coordinates(arrays: Sequence[xr.DataArray], along: str) -> dict[str, Any]:
    """The coordinates of all parts; those along the joined dimension follow one another."""
    coords: dict[str, Any] = {}
    every = dict.fromkeys(str(coord) for array in arrays for coord in array.coords)
    for coord in every:
        owner = next(array[coord] for array in arrays if coord in array.coords)
        if owner.dims != (along,):
            coords[coord] = (owner.dims, owner.values)
            continue
        columns = []
        for array in arrays:
            if coord in array.coords:
                columns.append(array[coord].values)
            else:
                missing = _missing_value(owner.dtype)
                columns.append(np.full(array.sizes[along], missing))
        coords[coord] = (along, np.concatenate(columns))
    return coords


def _missing_value(dtype: np.dtype[Any]) -> str | float:
    """Value of a coordinate in parts that do not have it."""
    if dtype.kind in "UO":
        return ""
    if dtype.kind == "f":
        return np.nan
    return -1


def _match_presentations(parts: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Extend each part to the presentations of all parts, matched by stimulus and repetition; missing ones are NaN."""
    rows: dict[tuple[str, str], int] = {}
    keys_of_parts: dict[str, list[tuple[str, str]]] = {}
    for name, array in parts.items():
        if "stimulus_id" not in array.coords:
            raise AssemblyError(
                f"part {name!r} has no coordinate 'stimulus_id' to match presentations by"
            )
        ids = as_text(array["stimulus_id"].values)
        repetitions = (
            array["repetition"].values
            if "repetition" in array.coords
            else np.zeros(len(ids))
        )
        keys = list(zip(ids.tolist(), as_text(repetitions).tolist(), strict=True))
        if len(set(keys)) != len(keys):
            raise AssemblyError(
                f"part {name!r} has several presentations of one stimulus: number them in a coordinate `repetition`"
            )
        for key in keys:
            rows.setdefault(key, len(rows))
        keys_of_parts[name] = keys
    matched = {}
    for name, array in parts.items():
        array = array.transpose("presentation", ...)
        values = np.full(
            (len(rows), *array.shape[1:]),
            np.nan,
            np.result_type(array.dtype, np.float32),
        )
        values[[rows[key] for key in keys_of_parts[name]]] = array.values
        coords: dict[Hashable, object] = {
            coord: content
            for coord, content in array.coords.items()
            if "presentation" not in content.dims
        }
        coords["stimulus_id"] = ("presentation", [id for id, _ in rows])
        if any("repetition" in other.coords for other in parts.values()):
            coords["repetition"] = (
                "presentation",
                [repetition for _, repetition in rows],
            )
        matched[name] = xr.DataArray(
            values, dims=array.dims, coords=coords, attrs=array.attrs
        )
    return matched


def read_assembly(
    path: Path, *, values: bool = True
) -> tuple[xr.DataArray, dict[str, xr.DataArray]]:
    """Read the unchanged assembly of a file, and its groups by name; without ``values`` all responses are zero.

    Raises
    ------
    AssemblyError
        The file is not netCDF, or not a BrainIO assembly.
    """
    note_opened(path)
    try:
        with netCDF4.Dataset(path) as file:
            main = _read_array(file, path.name, values)
            extras = {
                str(name): _read_array(group, f"{path.name}, group {str(name)!r},")
                for name, group in file.groups.items()
            }
    except OSError as error:
        raise AssemblyError(
            f"{path.name} cannot be read as netCDF ({error}): it is damaged or incomplete"
        ) from error
    return main, extras


def _read_array(
    group: netCDF4.Dataset | netCDF4.Group, name: str, with_values: bool = True
) -> xr.DataArray:
    """Assembly of a netCDF group, with coordinates in the order of the file's variables."""
    data_name = next(
        (variable for variable in DATA if variable in group.variables), None
    )
    if data_name is None:
        raise AssemblyError(
            f"{name} has no variable {' or '.join(DATA)}: it is not a BrainIO assembly"
        )
    data = group.variables[data_name]
    data.set_auto_mask(False)
    # A dimension that occurs twice, as in a matrix of stimuli by stimuli, gets the suffix `_b` the second time.
    dims = [
        f"{dim}_b" if dim in data.dimensions[:at] else dim
        for at, dim in enumerate(data.dimensions)
    ]
    if len(set(dims)) != len(dims):
        raise AssemblyError(
            f"{name} repeats a dimension more than once: {', '.join(data.dimensions)}"
        )
    coords: dict[str, object] = {}
    for variable, values in group.variables.items():
        if (
            variable == data_name
            or len(values.dimensions) != 1
            or values.dimensions[0] not in data.dimensions
        ):
            continue
        values.set_auto_mask(False)
        content = np.asarray(values[:])
        if content.dtype.kind == "O":
            content = content.astype(str)
        dim = values.dimensions[0]
        if (
            variable == dim
            and content.dtype.kind == "i"
            and np.array_equal(content, np.arange(len(content)))
        ):
            continue  # a running number is not a label
        # BrainIO writes a coordinate that is named as its dimension with a trailing `_`.
        label = (
            variable.removesuffix("_")
            if variable.removesuffix("_") == dim
            else variable
        )
        coords[label] = (dim, content)
        if f"{dim}_b" in dims:
            coords[f"{label}_b"] = (f"{dim}_b", content)
    content = (
        np.asarray(data[:])
        if with_values
        else np.broadcast_to(np.float32(0), data.shape)
    )
    if content.dtype.kind == "O":
        content = content.astype(str)
    attributes = {key: data.getncattr(key) for key in data.ncattrs()}
    attrs = {
        key: value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
        for key, value in attributes.items()
        if key not in {"coordinates", "_FillValue"}
    }
    return xr.DataArray(content, dims=dims, coords=coords, attrs=attrs, name="data")


def _join_ids(assembly: xr.DataArray, names: tuple[str, ...]) -> xr.DataArray:
    """Join the ids in several coordinates to one ``stimulus_id``, separated by ``|``."""
    missing = [name for name in names if name not in assembly.coords]
    if missing:
        raise AssemblyError(
            f"the assembly has no coordinate {missing[0]!r}; it has {', '.join(map(str, assembly.coords))}"
        )
    rows = zip(*(assembly[name].values.astype(str) for name in names), strict=True)
    return assembly.assign_coords(
        stimulus_id=("presentation", ["|".join(row) for row in rows])
    )


def _merge_columns(assembly: xr.DataArray, table: pd.DataFrame) -> xr.DataArray:
    """Add the columns of the stimulus table to the presentations."""
    if "stimulus_id" not in assembly.coords and "image_id" in assembly.coords:
        assembly = assembly.assign_coords(
            stimulus_id=("presentation", assembly["image_id"].values)
        )
    if "stimulus_id" not in assembly.coords:
        raise AssemblyError(
            "the assembly has no coordinate 'stimulus_id' to merge the stimulus table by; if several coordinates name "
            "the stimuli of a presentation, give them as `several`"
        )
    values = assembly["stimulus_id"].values
    ids = as_text(values)
    # Whole numbers stay numbers (0.0 is stimulus 0), because averaging sorts by them.
    if values.dtype.kind == "f" and (values == np.floor(values)).all():
        assembly = assembly.assign_coords(
            stimulus_id=("presentation", values.astype(np.int64))
        )
    known = as_text(table["stimulus_id"].to_numpy()).tolist()
    row_of = {id: row for row, id in enumerate(known)}
    if values.dtype.kind in "iuf" and not set(ids.tolist()) <= set(known):
        # The peer reads such a column as numbers: 007 in the table is 7 in the assembly.
        padded = {str(int(id)): id for id in known if id.isdecimal()}
        if len(padded) == len(known) and set(ids.tolist()) <= set(padded):
            ids = np.asarray([padded[id] for id in ids.tolist()])
            assembly = assembly.assign_coords(stimulus_id=("presentation", ids))
    missing = sorted({id for id in ids.tolist() if id not in row_of})
    if missing:
        examples = ", ".join(repr(id) for id in known[:3])
        raise AssemblyError(
            f"{len(missing)} stimuli of the assembly are not in the stimulus table, first {missing[0]!r}; the table has "
            f"{examples}"
        )
    rows = [row_of[id] for id in ids.tolist()]
    added = {}
    for column in map(str, table.columns):
        if column not in assembly.coords:
            values = table[column].to_numpy()[rows]
            added[column] = (
                "presentation",
                values.astype(str) if values.dtype.kind in "OT" else values,
            )
    return assembly.assign_coords(added)
