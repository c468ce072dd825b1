"""Reader of this project's own format: an assembly as netCDF or Zarr, its stimuli as a CSV table and one zip of files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet, read_table, safe_members
from neuroledger.errors import AssemblyError
from neuroledger.families.alignment.large_assembly import read_large
from neuroledger.spec.registry import reader

__all__ = ["netcdf"]


@reader("netcdf", version=1)
def netcdf(
    files: Mapping[str, Path],
    *,
    assembly: str | None = "responses.nc",
    stimuli: str | None = "stimuli.csv",
    archive: str | None = "stimuli.zip",
    extras: Mapping[str, str] | None = None,
    fitting_stimuli: Mapping[str, str] | None = None,
) -> Dataset:
    """Read a data set from files in this project's own format.

    Parameters
    ----------
    files
        Paths by the file names in the spec.
    assembly, stimuli, archive
        Names of the assembly (netCDF, or a zip of Zarr), of the CSV table and of the zip of files; null if the data set does
        not have one.
    extras
        Additional assemblies: name → file.
    fitting_stimuli
        Additional stimulus sets in the same archive, to which a readout is fitted: name → CSV table.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    AssemblyError
        A file cannot be read, or the archive lacks a file of the table.
    """
    return Dataset(
        stimuli=None if stimuli is None else _read_stimuli(files, stimuli, archive),
        assembly=None if assembly is None else read_large(files[assembly]),
        extras={name: read_large(files[file]) for name, file in (extras or {}).items()},
        extra_stimuli={
            name: _read_stimuli(files, file, archive)
            for name, file in (fitting_stimuli or {}).items()
        },
    )


def _read_stimuli(
    files: Mapping[str, Path], table_name: str, archive_name: str | None
) -> StimulusSet:
    table = files[table_name]
    content = read_table(
        table
    )  # before the archive, so that errors name a damaged table first
    if archive_name is None:
        archive = None
    else:
        archive = files[archive_name]
    stimuli = StimulusSet(table.stem, content, archive)
    if archive is not None:
        if "filename" not in stimuli.table:
            raise AssemblyError(
                f"{table.name} has no column 'filename', so nothing in {archive.name} belongs to it"
            )
        members = {member.filename for member in safe_members(archive)}
        missing = [
            name
            for name in stimuli.table["filename"].astype(str)
            if name not in members
        ]
        if missing:
            raise AssemblyError(
                f"{archive.name} lacks {len(missing)} files of {table.name}, first {missing[0]!r}"
            )
    return stimuli
