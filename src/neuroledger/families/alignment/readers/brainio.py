"""Brain-Score's files: a BrainIO assembly, its stimulus table and its zip, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
import pandas as pd
import xarray as xr
from pydantic import BaseModel, ConfigDict

from neuroledger.data.dataset import Dataset
from neuroledger.data.normalise_input import as_text
from neuroledger.data.stimuli import StimulusFiles, StimulusSet, read_table, safe_members
from neuroledger.errors import AssemblyError, DataError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.spec.registry import reader

__all__ = ["brainio", "read_assembly"]

KEYS = ("neuroid_id", "stimulus_id", "time_bin_start")
DATA = ("data", "__xarray_dataarray_variable__")


class Part(BaseModel):
    """Names, among the files of the spec, of one of the assemblies that are joined, and of its own stimuli if it has any."""

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
    """A data set in the layout that Brain-Score packages.

    Parameters
    ----------
    files
        Paths by the names that the spec gives them.
    assembly, stimuli, archive
        Names of the ``assy_*.nc``, ``stimulus_*.csv`` and ``stimulus_*.zip``; null for what the set does not have.
    merge
        Give every presentation the columns of its stimulus, as Brain-Score's loader does: appended in the order of
        the table, those that the assembly has already left as they are. Row order after averaging, and with it
        the splits, follows from that order.
    several
        Coordinates that name the stimuli of one presentation, as the three images of an odd-one-out trial: joined by
        ``|`` they are its ``stimulus_id``. Nothing is merged then.
    columns
        New names of columns of the stimulus tables.
    tables
        Further CSV tables with ``stimulus_id``, whose columns are added to the stimulus table: a published division into
        train and test stimuli, for example.
    parts, part, along
        Several assemblies joined into one, along a dimension, each with stimuli of its own or all with ``stimuli``. The
        coordinate ``part`` holds the name of the part that an item is from. Along ``neuroid``, presentations are matched by
        ``stimulus_id`` (and ``repetition``); what was not shown to a part is missing.
    texts
        Coordinate of the assembly that holds the text of each presentation: the stimuli are then texts, each id once and in
        the order of the presentations, with the assembly's coordinates that are equal wherever a text is shown.
    prepare
        Steps that give the assembly the names and labels of this project; see docs/alignment.md. They come before the
        columns of the stimuli are merged.
    fitting_stimuli
        Further stimulus sets, those that a readout is fitted to: name → its ``stimuli`` and ``archive``.

    Returns
    -------
    Dataset
        Groups of the netCDF file beside the assembly are in ``metadata``.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    AssemblyError
        The file is no assembly, or stimuli of the assembly are not in the table.
    """
    if parts and assembly is not None:
        raise DataError("the reader joins `parts`, or reads one `assembly`: give one of them")
    renamed = dict(columns or {})
    stimulus_set = None if stimuli is None else _stimuli(files, stimuli, archive, renamed)
    own = {name: one for name, one in (parts or {}).items() if one.stimuli is not None}
    if own:
        if stimulus_set is not None or len(own) != len(parts or {}):
            raise DataError("either each of the `parts` has `stimuli`, or the data set has them: not both")
        stimulus_set = _together(
            {n: _stimuli(files, str(o.stimuli), o.archive, renamed) for n, o in own.items()}, part
        )
    for name in tables:
        if stimulus_set is None:
            raise DataError(f"the table {name!r} adds columns to stimuli, and there are none: give `stimuli`")
        stimulus_set = _widened(stimulus_set, read_table(_declared(files, name)), name)
    sets = {
        name: _stimuli(files, one.stimuli, one.archive, renamed)
        for name, one in (fitting_stimuli or {}).items()
    }
    read = {
        name: read_assembly(_declared(files, one.assembly))
        for name, one in (parts or {}).items()
        if one.assembly
    }
    if assembly is not None:
        main, extras = read_assembly(_declared(files, assembly))
        main = prepared(main, prepare, name=assembly)
    elif read:
        extras = {f"{name}.{extra}": held for name, (_, more) in read.items() for extra, held in more.items()}
        main = _joined_parts(
            {name: prepared(one, prepare, name=name) for name, (one, _) in read.items()}, part, along
        )
    else:
        return Dataset(stimulus_set, None, extra_stimuli=sets)
    if texts is not None:
        if stimulus_set is not None:
            raise DataError("stimuli come from `stimuli` or from the assembly's `texts`: give one of them")
        return Dataset(_texts(main, texts, Path(str(assembly)).stem), main, extras=extras, extra_stimuli=sets)
    if several:
        main = _joined(main, several)
    elif merge and stimulus_set is not None and "presentation" in main.dims:
        main = _merged(main, stimulus_set.table)
    return Dataset(stimulus_set, main, metadata=extras, extra_stimuli=sets)


def _texts(assembly: xr.DataArray, name: str, id: str) -> StimulusSet:
    """The texts that an assembly carries as a coordinate."""
    lost = [one for one in (name, "stimulus_id") if one not in assembly.coords]
    if lost:
        raise AssemblyError(f"the assembly has no coordinate {lost[0]!r} to take texts from: correct `texts`")
    ids = as_text(assembly["stimulus_id"].values)
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    order = np.sort(first)
    columns = {
        str(key): held.values[order]
        for key, held in assembly.coords.items()
        if held.dims == ("presentation",) and key not in {"stimulus_id", name}
        and (held.values[first][codes] == held.values).all()
    }  # fmt: skip
    own = {"stimulus_id": ids[order], "text": as_text(assembly[name].values[order])}
    return StimulusSet(id, pd.DataFrame(own | columns))


def _stimuli(
    files: Mapping[str, Path], name: str, archive: str | None, renamed: Mapping[str, str]
) -> StimulusSet:
    table = read_table(_declared(files, name))
    if "stimulus_id" not in table and "image_id" in table:  # the older name, which stays beside the new one
        table.insert(0, "stimulus_id", table["image_id"].astype(str))
    lost = [column for column in renamed if column in table and renamed[column] in table]
    if lost:
        raise AssemblyError(
            f"{name} has a column {renamed[lost[0]]!r} already: {lost[0]!r} cannot get that name"
        )
    table = table.rename(columns=dict(renamed))
    again = table["stimulus_id"].astype(str).duplicated() if "stimulus_id" in table else None
    if again is not None and again.any():
        if len(table.drop_duplicates()) != int((~again).sum()):
            first = str(table.loc[again, "stimulus_id"].iloc[0])
            raise AssemblyError(
                f"{name}: stimulus {first!r} has several rows that differ; each stimulus has one"
            )
        table = table[~again].reset_index(drop=True)
    _require_numbers_once(table, name)
    zipped = _declared(files, archive) if archive is not None else None
    if zipped is not None:
        _require_files(table, zipped, name)
    return StimulusSet(Path(name).stem, table, zipped)


def _require_numbers_once(table: pd.DataFrame, name: str) -> None:
    """Return if no two ids are one number, as ``1`` and ``1.0`` are to those who read the column as numbers."""
    numbers = pd.to_numeric(table["stimulus_id"], errors="coerce") if "stimulus_id" in table else None
    if numbers is None or numbers.isna().any() or not numbers.duplicated().any():
        return
    same = table.loc[numbers == numbers[numbers.duplicated()].iloc[0], "stimulus_id"].astype(str).tolist()
    raise AssemblyError(
        f"{name}: the ids {same[0]!r} and {same[1]!r} are one number: write each id in one way"
    )


def _require_files(table: pd.DataFrame, archive: Path, name: str) -> None:
    """Return if the archive holds the files of the table, and no others."""
    held = {member.filename for member in safe_members(archive, repeated=True)}
    if "filename" not in table:
        raise AssemblyError(f"{name} has no column 'filename', so nothing in {archive.name} belongs to it")
    wanted = list(dict.fromkeys(table["filename"].astype(str)))
    lost = [file for file in wanted if file not in held]
    if lost:
        raise AssemblyError(
            f"{archive.name} lacks {len(lost)} of {len(wanted)} files of {name}, first {lost[0]!r}"
        )
    extra = sorted(held - set(wanted))
    if extra:
        raise AssemblyError(
            f"{archive.name} holds {len(extra)} files that {name} does not name, first {extra[0]!r}: the two belong to "
            "different sets, or the archive was changed; get both anew"
        )


def _together(sets: Mapping[str, StimulusSet], part: str) -> StimulusSet:
    """One set of all; file names begin with the part whose archive holds them."""
    tables = []
    for name, one in sets.items():
        table = one.table.assign(**{part: name})
        if "filename" in table:
            table["filename"] = name + "/" + table["filename"].astype(str)
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    twice = table["stimulus_id"].astype(str).duplicated()
    if twice.any():
        raise AssemblyError(
            f"stimulus {table.loc[twice, 'stimulus_id'].iloc[0]!r} is in several of the parts"
        )
    archives = {name: one.archive for name, one in sets.items() if isinstance(one.archive, Path)}
    if archives and len(archives) != len(sets):
        raise AssemblyError("some of the parts have an `archive` and some have none")
    return StimulusSet("+".join(sets), table, archives or None)


def _widened(stimuli: StimulusSet, table: pd.DataFrame, name: str) -> StimulusSet:
    """The set with the further columns of a table that has a row for each stimulus."""
    if "stimulus_id" not in table:
        raise AssemblyError(f"{name} has no column 'stimulus_id'")
    more = table.assign(stimulus_id=as_text(table["stimulus_id"])).set_index("stimulus_id")
    lost = [id for id in stimuli.ids if id not in more.index]
    if lost or not more.index.is_unique:
        raise AssemblyError(
            f"{name} has no row for stimulus {lost[0]!r}" if lost else f"{name} names a stimulus twice"
        )
    new = [column for column in more.columns if column not in stimuli.table]
    added = {column: more.loc[stimuli.ids, column].to_numpy() for column in new}
    return replace(stimuli, table=stimuli.table.assign(**added))


def _joined_parts(parts: Mapping[str, xr.DataArray], part: str, along: str) -> xr.DataArray:
    first = next(iter(parts.values()))
    for name, one in parts.items():
        if set(one.dims) - {along} != set(first.dims) - {along}:
            raise AssemblyError(
                f"part {name!r} has dimensions {tuple(one.dims)}, the first has {tuple(first.dims)}"
            )
    if along == "neuroid":
        parts = _same_rows(parts)
    elif along == "subject":
        parts = {name: one if along in one.dims else one.expand_dims(along) for name, one in parts.items()}
    labelled = {
        name: one.assign_coords({part: (along, [name] * one.sizes[along])}).transpose(along, ...)
        for name, one in parts.items()
    }
    reference = next(iter(labelled.values()))
    for name, one in labelled.items():
        for dim in (dim for dim in one.dims if dim != along):
            key = next(
                (key for key in KEYS if key in reference.coords and reference[key].dims == (dim,)), None
            )
            mine, other = (
                as_text(each[key].values if key else np.arange(each.sizes[dim])) for each in (one, reference)
            )
            if not np.array_equal(mine, other):
                raise AssemblyError(
                    f"part {name!r} and the first part differ along {dim!r}: select the same on both"
                )
    coords: dict[str, Any] = {}
    names = dict.fromkeys(str(coord) for one in labelled.values() for coord in one.coords)
    for coord in names:
        owner = next(one for one in labelled.values() if coord in one.coords)
        if owner[coord].dims != (along,):
            coords[coord] = (owner[coord].dims, owner[coord].values)
            continue
        columns = [
            one[coord].values
            if coord in one.coords
            else np.full(one.sizes[along], _nothing(owner[coord].dtype))
            for one in labelled.values()
        ]
        coords[coord] = (along, np.concatenate(columns))
    values = np.concatenate([one.transpose(*reference.dims).values for one in labelled.values()])
    attrs = {key: value for key, value in reference.attrs.items() if key not in {"identifier"}}
    joined = xr.DataArray(values, dims=reference.dims, coords=coords, attrs=attrs, name="data")
    return joined.transpose(*first.dims) if along in first.dims else joined


def _nothing(dtype: np.dtype[Any]) -> Any:
    """What a part holds in a coordinate that only others have."""
    return "" if dtype.kind in "UO" else (np.nan if dtype.kind == "f" else -1)


def _same_rows(parts: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """The parts over all presentations of any, matched by stimulus and repetition; what one was not shown is missing."""
    keys: dict[tuple[str, str], int] = {}
    own: dict[str, list[tuple[str, str]]] = {}
    for name, one in parts.items():
        if "stimulus_id" not in one.coords:
            raise AssemblyError(f"part {name!r} has no coordinate 'stimulus_id' to match presentations by")
        again = (
            one["repetition"].values if "repetition" in one.coords else np.zeros(one.sizes["presentation"])
        )
        own[name] = list(
            zip(as_text(one["stimulus_id"].values).tolist(), as_text(again).tolist(), strict=True)
        )
        if len(set(own[name])) != len(own[name]):
            raise AssemblyError(
                f"part {name!r} has presentations of one stimulus that no `repetition` numbers"
            )
        for key in own[name]:
            keys.setdefault(key, len(keys))
    found = {}
    for name, one in parts.items():
        one = one.transpose("presentation", ...)
        values = np.full((len(keys), *one.shape[1:]), np.nan, np.result_type(one.dtype, np.float32))
        values[[keys[key] for key in own[name]]] = one.values
        coords: dict[Any, Any] = {
            n: held for n, held in one.coords.items() if "presentation" not in held.dims
        }
        coords["stimulus_id"] = ("presentation", [id for id, _ in keys])
        if any("repetition" in each.coords for each in parts.values()):
            coords["repetition"] = ("presentation", [again for _, again in keys])
        found[name] = xr.DataArray(values, dims=one.dims, coords=coords, attrs=one.attrs)
    return found


def _declared(files: Mapping[str, Path], name: str) -> Path:
    if name not in files:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    return files[name]


def read_assembly(path: Path, *, values: bool = True) -> tuple[xr.DataArray, dict[str, xr.DataArray]]:
    """The assembly of a file as it is, and its groups by name; without ``values`` zeros stand for the responses."""
    try:
        with netCDF4.Dataset(path) as opened:
            main = _array(opened, path.name, values)
            extras = {
                str(name): _array(group, f"{path.name}, group {str(name)!r},")
                for name, group in opened.groups.items()
            }
    except OSError as error:
        raise AssemblyError(f"{path.name} cannot be read as netCDF ({error}); fetch it again") from error
    return main, extras


def _array(group: Any, name: str, filled: bool = True) -> xr.DataArray:
    """One assembly of a netCDF group; coordinates in the order of the file's variables."""
    held = [variable for variable in DATA if variable in group.variables]
    if not held:
        raise AssemblyError(f"{name} holds no variable {' or '.join(DATA)}: it is no BrainIO assembly")
    data = group.variables[held[0]]
    data.set_auto_mask(False)
    # A dimension that occurs twice, as in a matrix of stimuli by stimuli, gets the suffix `_b` the second time.
    dims = [f"{dim}_b" if dim in data.dimensions[:at] else dim for at, dim in enumerate(data.dimensions)]
    if len(set(dims)) != len(dims):
        raise AssemblyError(f"{name} repeats a dimension more than once: {', '.join(data.dimensions)}")
    coords: dict[str, Any] = {}
    for variable, values in group.variables.items():
        if variable == held[0] or len(values.dimensions) != 1 or values.dimensions[0] not in data.dimensions:
            continue
        values.set_auto_mask(False)
        content = np.asarray(values[:])
        content = content.astype(str) if content.dtype.kind == "O" else content
        dim = values.dimensions[0]
        if variable == dim and content.dtype.kind == "i" and np.array_equal(content, np.arange(len(content))):
            continue  # a running number, no label
        # The only coordinate of a dimension is written with a trailing `_`.
        label = variable.removesuffix("_") if variable.removesuffix("_") == dim else variable
        coords[label] = (dim, content)
        if f"{dim}_b" in dims:
            coords[f"{label}_b"] = (f"{dim}_b", content)
    kept = {key: data.getncattr(key) for key in data.ncattrs() if key not in {"coordinates", "_FillValue"}}
    content = np.asarray(data[:]) if filled else np.broadcast_to(np.float32(0), data.shape)
    content = content.astype(str) if content.dtype.kind == "O" else content
    attrs = {
        key: value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
        for key, value in kept.items()
    }
    return xr.DataArray(content, dims=dims, coords=coords, attrs=attrs, name="data")


def _joined(assembly: xr.DataArray, names: tuple[str, ...]) -> xr.DataArray:
    lost = [name for name in names if name not in assembly.coords]
    if lost:
        raise AssemblyError(
            f"the assembly has no coordinate {lost[0]!r}; it has {', '.join(map(str, assembly.coords))}"
        )
    rows = zip(*(assembly[name].values.astype(str) for name in names), strict=True)
    return assembly.assign_coords(stimulus_id=("presentation", ["|".join(row) for row in rows]))


def _merged(assembly: xr.DataArray, table: pd.DataFrame) -> xr.DataArray:
    if "stimulus_id" not in assembly.coords and "image_id" in assembly.coords:
        assembly = assembly.assign_coords(stimulus_id=("presentation", assembly["image_id"].values))
    if "stimulus_id" not in assembly.coords:
        raise AssemblyError(
            "the assembly has no coordinate 'stimulus_id' to merge the stimulus table by; if several coordinates name "
            "the stimuli of a presentation, give them as `several`"
        )
    values = assembly["stimulus_id"].values
    ids = as_text(values)
    if (
        values.dtype.kind == "f" and (values == np.floor(values)).all()
    ):  # 0.0 is stimulus 0; their order stays
        assembly = assembly.assign_coords(stimulus_id=("presentation", values.astype(np.int64)))
    known = as_text(table["stimulus_id"].to_numpy()).tolist()
    place = {id: row for row, id in enumerate(known)}
    if values.dtype.kind in "iuf" and not set(ids.tolist()) <= set(known):
        # The peer reads such a column as numbers: 007 in the table is 7 in the assembly.
        padded = {str(int(id)): id for id in known if id.isdecimal()}
        if len(padded) == len(known) and set(ids.tolist()) <= set(padded):
            ids = np.asarray([padded[id] for id in ids.tolist()])
            assembly = assembly.assign_coords(stimulus_id=("presentation", ids))
    lost = sorted({id for id in ids.tolist() if id not in place})
    if lost:
        few = ", ".join(repr(id) for id in known[:3])
        raise AssemblyError(
            f"{len(lost)} stimuli of the assembly are not in the stimulus table, first {lost[0]!r}; the table names {few}"
        )
    rows = [place[id] for id in ids.tolist()]
    added = {}
    for column in map(str, table.columns):
        if column not in assembly.coords:
            values = table[column].to_numpy()[rows]
            added[column] = ("presentation", values.astype(str) if values.dtype.kind in "OT" else values)
    return assembly.assign_coords(added)
