"""The native form of a data set: an assembly as netCDF, its stimuli as a CSV table and one zip of files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroledger.data import assembly as assemblies
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet, read_table, safe_members
from neuroledger.errors import AssemblyError, DataError
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
    """A data set from files in this project's own formats.

    Parameters
    ----------
    files
        Paths by the names that the spec gives them.
    assembly, stimuli, archive
        Names of the netCDF file, of the CSV table and of the zip; null for what the set does not have.
    extras
        Further assemblies: name → netCDF file.
    fitting_stimuli
        Further stimulus sets over the same archive, those a readout is fitted on: name → CSV table.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    AssemblyError
        A file cannot be read, or the table names a file that the archive lacks.
    """
    zipped = _declared(files, archive) if archive is not None else None
    return Dataset(
        stimuli=None if stimuli is None else _stimuli(_declared(files, stimuli), zipped),
        assembly=None if assembly is None else assemblies.read(_declared(files, assembly)),
        extras={name: assemblies.read(_declared(files, file)) for name, file in (extras or {}).items()},
        extra_stimuli={
            name: _stimuli(_declared(files, file), zipped) for name, file in (fitting_stimuli or {}).items()
        },
    )


def _stimuli(table: Path, archive: Path | None) -> StimulusSet:
    stimuli = StimulusSet(table.stem, read_table(table), archive)
    if archive is not None:
        if "filename" not in stimuli.table:
            raise AssemblyError(
                f"{table.name} has no column 'filename', so nothing in {archive.name} belongs to it"
            )
        held = {member.filename for member in safe_members(archive)}
        lost = [name for name in stimuli.table["filename"].astype(str) if name not in held]
        if lost:
            raise AssemblyError(f"{archive.name} lacks {len(lost)} files of {table.name}, first {lost[0]!r}")
    return stimuli


def _declared(files: Mapping[str, Path], name: str) -> Path:
    if name not in files:
        raise DataError(
            f"the reader needs the file {name!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    return files[name]
