"""Brain-Score's files: a BrainIO assembly, its stimulus table and its zip, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusFiles, StimulusSet, further_sets, read_table, safe_members
from neuroledger.errors import AssemblyError, DataError
from neuroledger.spec.registry import reader

__all__ = ["brainio"]

DATA = ("data", "__xarray_dataarray_variable__")


@reader("brainio", version=1)
def brainio(
    files: Mapping[str, Path],
    *,
    assembly: str | None = None,
    stimuli: str | None = None,
    archive: str | None = None,
    merge: bool = True,
    several: tuple[str, ...] = (),
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
    fitting_stimuli
        Further stimulus sets, those that a readout is fitted to: name → its ``stimuli`` and ``archive``.

    Returns
    -------
    Dataset
        Groups of the netCDF file beside the assembly are in ``extras``.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    AssemblyError
        The file is no assembly, or stimuli of the assembly are not in the table.
    """
    table = read_table(_declared(files, stimuli)) if stimuli is not None else None
    stimulus_set = None
    if table is not None:
        zipped = _declared(files, archive) if archive is not None else None
        if zipped is not None:
            safe_members(zipped)
        stimulus_set = StimulusSet(Path(str(stimuli)).stem, table, zipped)
    further = further_sets(files, fitting_stimuli)
    if assembly is None:
        return Dataset(stimulus_set, None, extra_stimuli=further)
    main, extras = _read(_declared(files, assembly))
    if several:
        main = _joined(main, several)
    elif merge and table is not None and "presentation" in main.dims:
        main = _merged(main, table)
    return Dataset(stimulus_set, main, extras=extras, extra_stimuli=further)


def _declared(files: Mapping[str, Path], name: str) -> Path:
    if name not in files:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    return files[name]


def _read(path: Path) -> tuple[xr.DataArray, dict[str, xr.DataArray]]:
    try:
        with netCDF4.Dataset(path) as opened:
            main = _array(opened, path.name)
            extras = {str(name): _array(group, path.name) for name, group in opened.groups.items()}
    except OSError as error:
        raise AssemblyError(f"{path.name} cannot be read as netCDF ({error}); fetch it again") from error
    return main, extras


def _array(group: Any, name: str) -> xr.DataArray:
    """One assembly of a netCDF group; coordinates in the order of the file's variables."""
    held = [variable for variable in DATA if variable in group.variables]
    if not held:
        raise AssemblyError(f"{name} holds no variable {' or '.join(DATA)}: it is no BrainIO assembly")
    data = group.variables[held[0]]
    data.set_auto_mask(False)
    coords: dict[str, Any] = {}
    for variable, values in group.variables.items():
        if variable == held[0] or len(values.dimensions) != 1 or values.dimensions[0] not in data.dimensions:
            continue
        values.set_auto_mask(False)
        content = np.asarray(values[:])
        coords[variable] = (
            values.dimensions[0],
            content.astype(str) if content.dtype.kind == "O" else content,
        )
    kept = {key: data.getncattr(key) for key in data.ncattrs() if key not in {"coordinates", "_FillValue"}}
    content = np.asarray(data[:])
    content = content.astype(str) if content.dtype.kind == "O" else content
    attrs = {
        key: value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
        for key, value in kept.items()
    }
    return xr.DataArray(content, dims=data.dimensions, coords=coords, attrs=attrs, name="data")


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
    ids = assembly["stimulus_id"].values.astype(str)
    place = {id: row for row, id in enumerate(table["stimulus_id"].astype(str))}
    lost = sorted({id for id in ids if id not in place})
    if lost:
        raise AssemblyError(
            f"{len(lost)} stimuli of the assembly are not in the stimulus table, first {lost[0]!r}"
        )
    rows = [place[id] for id in ids]
    added = {}
    for column in map(str, table.columns):
        if column not in assembly.coords:
            values = table[column].to_numpy()[rows]
            added[column] = ("presentation", values.astype(str) if values.dtype.kind in "OT" else values)
    return assembly.assign_coords(added)
