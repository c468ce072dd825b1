"""Between this repository and Brain-Score's files: import them as a pinned data set, export a data set in their layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import xarray as xr

from neuroledger.data.fetch import folder_of
from neuroledger.data.load import load_dataset
from neuroledger.data.package import observed, pin_line, track
from neuroledger.data.pin.yaml_edit import inline
from neuroledger.errors import AssemblyError, RequestError
from neuroledger.families.alignment.readers.brainio import brainio
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import replacing, write_text

__all__ = ["export_brainscore", "import_brainscore"]

ROLES = {".nc": "assembly", ".csv": "stimuli", ".zip": "archive"}


def import_brainscore(catalog: Catalog, id: str, files: list[Path]) -> list[Path]:
    """Make a pinned data set ``id`` of Brain-Score's files (``assy_*.nc``, ``stimulus_*.csv``, ``stimulus_*.zip``).

    The bytes are taken as they are, so that the SHA-1 of Brain-Score's registry still fits them.

    Raises
    ------
    RequestError
        A file is missing, of an unknown kind, or two are of one kind; or the data set exists.
    AssemblyError
        The files are not what they should be.
    """
    if id in catalog.ids("datasets"):
        raise RequestError(f"there is a dataset {id!r} already")
    roles: dict[str, Path] = {}
    for path in files:
        role = ROLES.get(path.suffix)
        if role is None or not path.is_file():
            raise RequestError(f"{path} is no .nc, .csv or .zip file")
        if role in roles:
            raise RequestError(
                f"{path.name} and {roles[role].name} are both {path.suffix} files: give one of each"
            )
        roles[role] = path
    data = brainio({path.name: path for path in files}, **{role: path.name for role, path in roles.items()})  # type: ignore[arg-type]
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in files:
        target = folder / path.name
        shutil.copyfile(path, target)
        written.append(target)
    track(catalog.root, written)
    reader = ", ".join(f"{role}: {path.name}" for role, path in sorted(roles.items()))
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {id}",
        "version: 1",
        f"title: {id}, from Brain-Score's files",
        "license: LicenseRef-unknown   # the SPDX id under which these data may be used",
        "cite: []",
        "files:",
        *(pin_line(path, sha1=True) for path in written),
        f"reader: {{name: brainio, {reader}}}",
        "expectations:",
    ]
    if data.stimuli is not None:
        lines += [
            "  stimuli:",
            f"    - {{check: row_count, count: {len(data.stimuli)}}}",
            "    - {check: unique, column: stimulus_id}",
        ]
    if data.assembly is not None:
        found = observed(data.assembly)
        lines += [
            "  assembly:",
            *(
                f"    - {inline(item)}"
                for item in found
                if data.stimuli is not None or item["check"] != "aligned"
            ),
        ]
    write_text(catalog.root / "specs" / "datasets" / f"{id}.yaml", "\n".join(lines) + "\n")
    return written


def export_brainscore(catalog: Catalog, id: str, out: Path) -> list[Path]:
    """Write a data set as ``assy_<id>.nc``, ``stimulus_<id>.csv`` and ``stimulus_<id>.zip``, dots in the id as ``_``.

    Raises
    ------
    DataError
        The data are not here or not right.
    AssemblyError
        The assembly has a shape that BrainIO has no class for.
    """
    data = load_dataset(catalog, id)
    name = id.replace(".", "_")
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    if data.stimuli is not None:
        write_text(out / f"stimulus_{name}.csv", data.stimuli.table.to_csv(index=False, lineterminator="\n"))
        written.append(out / f"stimulus_{name}.csv")
        if isinstance(data.stimuli.archive, Path):
            shutil.copyfile(data.stimuli.archive, out / f"stimulus_{name}.zip")
            written.append(out / f"stimulus_{name}.zip")
    if data.assembly is not None:
        written.append(_write_assembly(data.assembly, id, out / f"assy_{name}.nc"))
    return written


def _write_assembly(assembly: xr.DataArray, id: str, path: Path) -> Path:
    if "presentation" not in assembly.dims:
        raise AssemblyError(
            f"data set {id!r} has dimensions {assembly.dims}; BrainIO assemblies have presentations"
        )
    plain = assembly.copy()
    plain.name = "data"
    plain.attrs = {"identifier": id, "stimulus_set_identifier": id}
    numeric = plain.dtype.kind in "fiu"
    encoding = {"data": {"zlib": True, "complevel": 9, "shuffle": True}} if numeric else {}
    with replacing(path) as temporary:
        plain.to_dataset(promote_attrs=True).to_netcdf(temporary, engine="netcdf4", encoding=encoding)
    return path
