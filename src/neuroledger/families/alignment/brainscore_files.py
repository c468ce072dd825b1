"""Import of Brain-Score's files as a pinned data set, and export of a data set in their layout."""

from __future__ import annotations

import difflib
import hashlib
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.assembly import check
from neuroledger.data.dataset import Dataset
from neuroledger.data.fetch import Progress, fetch_each, fetch_files, fetch_stated
from neuroledger.data.gate.validate import trial
from neuroledger.data.integrity import (
    compare,
    folder_of,
    sha256_of_file,
    verified_files,
)
from neuroledger.data.load import load_dataset, read_dataset
from neuroledger.data.normalise_input import as_text
from neuroledger.data.package import UNTRACKED, ZIP_TIME, expectations_text, track
from neuroledger.data.pin.downloads import place_of
from neuroledger.data.pin.pin import Pinned, fetch_and_pin
from neuroledger.data.pin.yaml_edit import inline, without
from neuroledger.data.stimuli import StimulusSet, safe_members
from neuroledger.errors import AssemblyError, DataError, RequestError
from neuroledger.families.alignment.readers.brainio import read_assembly
from neuroledger.spec.base import Stated
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.document import parse
from neuroledger.spec.load import spec_of
from neuroledger.store.files import replacing, write_text

__all__ = ["export_brainscore", "fetch_brainscore", "import_brainscore"]

ROLES = {".nc": "assembly", ".csv": "stimuli", ".zip": "archive"}
# Coordinates that group neuroids, and coordinates that number them.
OWNERS = ("subject", "animal", "subject_id", "monkey", "region", "roi", "array")
NUMBERS = (
    "neuroid_id",
    "neuroid",
    "neuroid_num",
    "voxels",
    "voxel",
    "channel",
    "number",
)


def import_brainscore(
    catalog: Catalog,
    id: str,
    files: Sequence[Path],
    *,
    sha1: Mapping[str, str] | None = None,
    access: Literal["public", "private"] = "public",
    degrees: float | None = None,
) -> list[Path]:
    """Make a pinned data set ``id`` from Brain-Score's files (``assy_*.nc``, ``stimulus_*.csv``, ``stimulus_*.zip``).

    The files are copied unchanged, so that the SHA-1 of Brain-Score's registry still matches; labels that this project
    needs are written into the spec as preparation steps. Nothing is written before all files were read and validated.

    Parameters
    ----------
    sha1
        SHA-1 from the registry, by file name.
    access
        ``private``: the files are kept out of the repository and of its remotes.
    degrees
        Degrees of visual angle that the stimuli spanned, if known.

    Returns
    -------
    list
        Paths of the files in the repository.

    Raises
    ------
    RequestError
        A file is missing or of an unknown kind, there are two of one kind, or the data set exists.
    IntegrityError
        A file does not have the stated SHA-1.
    DataError
        The files cannot be read, or do not pass the gate.
    """
    if catalog.has("datasets", id):
        raise RequestError(
            f"there is a dataset {id!r} already: choose another id, or remove it first"
        )
    roles = _files_by_role(files)
    paths = {path.name: path for path in files}
    for name, digest in (sha1 or {}).items():
        if name not in paths:
            raise RequestError(
                f"a SHA-1 is given for {name!r}, which is not among the files"
            )
        compare(paths[name], Stated(sha1=digest))
    places = {place_of(path.name): path for path in files}
    reader: dict[str, object] = {"name": "brainio"}
    reader |= {role: place_of(path.name) for role, path in sorted(roles.items())}
    if "assembly" in roles:
        reader |= _reader_options(read_assembly(roles["assembly"], values=False)[0])
    private = access == "private"
    tracked = not private and (catalog.root / ".dvc").is_dir()
    folder = folder_of(catalog.root, "datasets", id)
    pins = {
        name: {
            **({"dvc": True} if tracked else {}),
            "size": path.stat().st_size,
            "sha256": sha256_of_file(path),
        }
        for name, path in places.items()
    }
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {id}",
        "version: 1",
        f"title: {id}, from Brain-Score's files",
        "license: LicenseRef-unknown   # the SPDX id under which these data may be used",
        *(
            ["access: private", "access_steps: [Ask the authors for the files.]"]
            if private
            else []
        ),
        *(
            [f"access_steps: {inline([UNTRACKED])}"]
            if not private and not tracked
            else []
        ),
        "cite: []",
        "files:",
        *(
            f"  {name}: {inline({**pin, 'sha1': hashlib.sha1(places[name].read_bytes()).hexdigest()})}"
            for name, pin in pins.items()
        ),
        f"reader: {inline(reader)}",
        *([f"degrees: {degrees:g}"] if degrees is not None else []),
        "",
    ]
    path = catalog.root / "specs" / "datasets" / f"{id}.yaml"
    text = "\n".join(lines)
    data = read_dataset(_with_dataset(catalog, id, text, path), id, places)
    if data.assembly is not None:
        check(data.assembly, name=id)
    text += expectations_text(data)
    findings = trial(_with_dataset(catalog, id, text, path), id, places, data)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise DataError(f"{id} cannot be imported, nothing was written: {errors[0]}")
    written = [folder / name for name in places]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, source in zip(written, places.values(), strict=True):
            with replacing(target) as temporary:
                shutil.copyfile(source, temporary)
        if tracked:
            track(catalog.root, written)
        write_text(path, text)
    except BaseException:
        for target in written:
            target.unlink(missing_ok=True)
            target.with_name(target.name + ".dvc").unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
        raise
    return written


def _files_by_role(files: Sequence[Path]) -> dict[str, Path]:
    """Assembly, stimulus table and archive among the files, by their suffix."""
    roles: dict[str, Path] = {}
    for path in files:
        role = ROLES.get(path.suffix)
        if role is None or not path.is_file():
            raise RequestError(f"{path} is not a .nc, .csv or .zip file")
        if role in roles:
            raise RequestError(
                f"{path.name} and {roles[role].name} are both {path.suffix} files: give one of each"
            )
        roles[role] = path
    return roles


def _with_dataset(catalog: Catalog, id: str, text: str, path: Path) -> Catalog:
    """Catalogue that includes the data set before its spec is written."""
    document = parse(text, catalog.shown(path))
    return catalog.with_spec(
        "datasets", id, spec_of(document, "datasets", stem=id), document, path
    )


def _reader_options(assembly: xr.DataArray) -> dict[str, object]:
    """Options of the reader ``brainio`` for an assembly of this layout."""
    options: dict[str, object] = {}
    images = sorted(
        str(name) for name in assembly.coords if re.fullmatch(r"image_\d", str(name))
    )
    if len(images) > 2:
        options["several"] = images
    elif "stimulus_id" in assembly.coords and any(
        "|" in str(id) for id in assembly["stimulus_id"].values
    ):
        options["merge"] = False  # joined ids of an earlier export
    steps = _label_steps(assembly)
    return options | ({"prepare": steps} if steps else {})


def _label_steps(assembly: xr.DataArray) -> list[dict[str, object]]:
    """Steps that give an assembly the names of this project: ids of neuroids, repetitions, properties."""
    steps: list[dict[str, object]] = []
    dims = (
        {"neuronal_property": "property"}
        if "neuronal_property" in assembly.dims
        else {}
    )
    if (
        "presentation_b" in assembly.dims
    ):  # similarities of stimuli, one matrix per subject
        dims = {"presentation": "stimulus", "presentation_b": "stimulus_b"}
        dims |= {"neuroid": "subject"} if "neuroid" in assembly.dims else {}
        return [{"step": "rename", "dims": dims}]
    if dims or (
        "repetition_id" in assembly.coords and "repetition" not in assembly.coords
    ):
        coords = {} if dims else {"repetition_id": "repetition"}
        coords |= {old: new for old, new in dims.items() if old in assembly.coords}
        steps.append(
            {"step": "rename", **({"dims": dims} if dims else {}), "coords": coords}
        )
    if "neuroid" not in assembly.dims:
        return steps
    on_neuroids = {
        str(name)
        for name, coord in assembly.coords.items()
        if coord.dims == ("neuroid",)
    }
    owners, numbers = (
        [name for name in names if name in on_neuroids] for names in (OWNERS, NUMBERS)
    )
    columns = {
        name: as_text(assembly[name].values).tolist() for name in (*owners, *numbers)
    }
    if (
        "neuroid_id" in columns
        and len(set(columns["neuroid_id"])) == assembly.sizes["neuroid"]
    ):
        return steps
    label: dict[str, object] = {
        "step": "label",
        "dim": "neuroid",
        "coord": "neuroid_id",
    }
    for count in range(1, len(owners) + 1):
        for number in numbers:
            of = [*owners[:count], number]
            if (
                len(set(zip(*(columns[name] for name in of), strict=True)))
                == assembly.sizes["neuroid"]
            ):
                return [*steps, label | {"of": of}]
    return [*steps, label]


def fetch_brainscore(
    catalog: Catalog, key: str, *, progress: Progress | None = None
) -> list[Pinned | str]:
    """Fetch and pin the data sets of a key of Brain-Score's registry: a benchmark, a data set or a stimulus set.

    Returns the pinned data sets, and the ids of those that were pinned before.

    Raises
    ------
    RequestError
        The catalogue has no spec for the key.
    UnavailableError, IntegrityError, DataError
        A file cannot be fetched, does not have the stated checksum, or cannot be read; nothing of that data set is
        written. The other data sets of the key are fetched and pinned all the same.
    """
    fetched: list[Pinned | str] = []

    def fetch_dataset(id: str) -> None:
        spec = catalog.dataset(id)
        if spec.files:
            fetch_files(
                catalog.root,
                folder_of(catalog.root, "datasets", id),
                spec.files,
                progress=progress,
            )
            fetched.append(id)
        else:
            fetched.append(_fetch_with_labels(catalog, id, progress))

    fetch_each(_datasets_of(catalog, key), fetch_dataset, what="data sets")
    return fetched


def _fetch_with_labels(catalog: Catalog, id: str, progress: Progress | None) -> Pinned:
    """Fetch and pin; a spec without preparation steps gets those that its assembly needs, as in an import of files."""
    spec = catalog.dataset(id)
    path = catalog.entry("datasets", id).path
    options = {} if spec.reader is None else spec.reader.parameters
    name = options.get("assembly")
    if (
        spec.reader is None
        or spec.reader.name != "brainio"
        or not isinstance(name, str)
        or "prepare" in options
    ):
        return fetch_and_pin(catalog, id, progress=progress)
    folder = catalog.root / ".cache" / "downloads" / id
    fetch_stated(catalog.root, folder, spec.downloads, progress=progress)
    detected = _reader_options(read_assembly(folder / name, values=False)[0])
    added = {key: value for key, value in detected.items() if key not in options}
    before = path.read_text(encoding="utf-8")
    if added:
        text = without(before, "reader").rstrip("\n")
        write_text(
            path,
            f"{text}\nreader: {inline({'name': 'brainio'} | dict(options) | added)}\n",
        )
    try:
        return fetch_and_pin(open_catalog(catalog.root), id, progress=progress)
    except BaseException:
        write_text(path, before)
        raise


def _datasets_of(catalog: Catalog, key: str) -> list[str]:
    """Ids of the data sets of a data set, benchmark or stimulus set."""
    if catalog.has("datasets", key):
        return [key]
    if catalog.has("benchmarks", key):
        return [catalog.benchmark(key).dataset]
    stem = key.replace(".", "_")
    names = re.compile(rf"(?:assy_(?:\w+?_)?|stimulus_){re.escape(stem)}\.(?:nc|csv)")
    matches = [
        id
        for id in catalog.ids("datasets")
        if any(
            names.fullmatch(name)
            for name in (*catalog.dataset(id).downloads, *catalog.dataset(id).files)
        )
    ]
    if not matches:
        by_lower = {
            id.lower(): id
            for id in (*catalog.ids("datasets"), *catalog.ids("benchmarks"))
        }
        near = [
            by_lower[id]
            for id in difflib.get_close_matches(key.lower(), list(by_lower), 3, 0.5)
        ]
        hint = (
            f"similar ids: {', '.join(near)}"
            if near
            else "`neuroledger list datasets` lists the known ids"
        )
        raise RequestError(
            f"no benchmark, data set or stimulus set {key!r} has a spec here; {hint}. Import a plugin that registers it "
            f"with `neuroledger import brainscore {key} --from FOLDER`, or files with "
            f"`neuroledger import brainscore {key} assy_….nc stimulus_….csv stimulus_….zip`"
        )
    return matches


def export_brainscore(catalog: Catalog, id: str, out: Path) -> list[Path]:
    """Write a data set as ``assy_<id>.nc``, ``stimulus_<id>.csv`` and ``stimulus_<id>.zip``, with ``_`` for dots in the id.

    The export includes attributes, groups and the degrees of the stimuli (as the column ``degrees``); additional stimulus
    sets are ``stimulus_<id>_<name>``. Importing these files yields the same data. If the reader only renamed or labelled an
    assembly of Brain-Score, the original file is copied.

    Returns
    -------
    list
        Paths of the written files.

    Raises
    ------
    DataError
        The data are missing or do not match their pins.
    AssemblyError
        Files of stimuli in several folders have one name.
    """
    data = load_dataset(catalog, id)
    name = id.replace(".", "_")
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    sets = {name: data.stimuli} | {
        f"{name}_{extra}": set_ for extra, set_ in data.extra_stimuli.items()
    }
    for stem, stimuli in sets.items():
        if stimuli is not None:
            written += _write_stimuli(stimuli, stem, out)
    if data.assembly is None:
        return written
    path = out / f"assy_{name}.nc"
    original = _only_relabelled(catalog, id)
    if original is None:
        return [*written, _write_assembly(data, id, path)]
    with replacing(path) as temporary:
        shutil.copyfile(original, temporary)
    return [*written, path]


def _only_relabelled(catalog: Catalog, id: str) -> Path | None:
    """File of the assembly if the reader only renames or labels it, otherwise None."""
    reader = catalog.dataset(id).reader
    options = {} if reader is None or reader.name != "brainio" else reader.parameters
    steps = {step["step"] for step in options.get("prepare", ())}
    if "assembly" not in options or not steps or steps - {"rename", "label"}:
        return None
    return verified_files(catalog, "datasets", id)[str(options["assembly"])]


def _write_stimuli(stimuli: StimulusSet, stem: str, out: Path) -> list[Path]:
    table = stimuli.table
    if stimuli.degrees is not None and "degrees" not in table:
        table = table.assign(degrees=stimuli.degrees)
    path = out / f"stimulus_{stem}.csv"
    zip_path = out / f"stimulus_{stem}.zip"
    flat_names: dict[str, str] = {}
    if "filename" in table:
        flat_names = {
            name: name.replace("/", "_") for name in table["filename"].astype(str)
        }
        if len(set(flat_names.values())) != len(flat_names):
            raise AssemblyError(
                f"files of {stem} in several folders have one name, and Brain-Score's archives are flat: rename one"
            )
        table = table.assign(
            filename=[flat_names[str(name)] for name in table["filename"]]
        )
    write_text(path, table.to_csv(index=False, lineterminator="\n"))
    if stimuli.archive is None and stimuli.contents is None:
        return [path]
    source = None
    if isinstance(stimuli.archive, Path):
        source = stimuli.archive
    if source is not None and {
        member.filename for member in safe_members(source, repeated=True)
    } == set(flat_names.values()):
        with replacing(zip_path) as temporary:
            shutil.copyfile(source, temporary)
        return [path, zip_path]
    with (
        replacing(zip_path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
    ):
        for file, content in zip(table["filename"], stimuli.read(), strict=True):
            archive.writestr(zipfile.ZipInfo(str(file), ZIP_TIME), content)
    return [path, zip_path]


def _write_assembly(data: Dataset, id: str, path: Path) -> Path:
    if data.assembly is None:
        raise AssemblyError(f"data set {id!r} has no assembly")
    assembly = _with_upstream_ids(_with_upstream_names(data.assembly), data.stimuli)
    assembly.attrs = {"identifier": id, "stimulus_set_identifier": id} | {
        key: value for key, value in data.assembly.attrs.items() if value is not None
    }
    with replacing(path) as temporary:
        _to_netcdf(assembly, temporary)
        for group, array in data.metadata.items():
            _to_netcdf(_with_upstream_names(array), temporary, mode="a", group=group)
    return path


def _with_upstream_ids(
    array: xr.DataArray, stimuli: StimulusSet | None
) -> xr.DataArray:
    """Convert ids to those that the peer reads from the table: integers, and the last one of several joined ids."""
    if stimuli is None or "stimulus_id" not in array.coords:
        return array
    known = set(stimuli.ids)
    old = list(map(str, array["stimulus_id"].values.tolist()))
    ids = [id if id in known else id.rpartition("|")[2] for id in old]
    numbers = (
        all(id.isdecimal() and str(int(id)) == id for id in known) and set(ids) <= known
    )
    if ids == old and not numbers:
        return array
    values = np.asarray(ids, dtype=np.int64 if numbers else object)
    return array.assign_coords(stimulus_id=(array["stimulus_id"].dims, values))


def _to_netcdf(array: xr.DataArray, path: Path, **options: Any) -> None:
    encoding = (
        {"data": {"zlib": True, "complevel": 9, "shuffle": True}}
        if array.dtype.kind in "fiu"
        else {}
    )
    array.to_dataset(name="data", promote_attrs=True).to_netcdf(
        path, engine="netcdf4", encoding=encoding, **options
    )


def _with_upstream_names(assembly: xr.DataArray) -> xr.DataArray:
    """Use the names of the peer's writer: ``neuronal_property``, and ``_`` after a coordinate named as its dimension."""
    if "property" in assembly.dims:
        renamed = {"property": "neuronal_property"}
    else:
        renamed = {}
    coords = {}
    for name, coord in assembly.coords.items():
        label = renamed.get(str(name), str(name))
        coord_dims = tuple(renamed.get(str(dim), str(dim)) for dim in coord.dims)
        coords[f"{label}_" if coord_dims == (label,) else label] = (
            coord_dims,
            coord.values,
        )
    dims = [renamed.get(str(dim), str(dim)) for dim in assembly.dims]
    return xr.DataArray(assembly.values, dims=dims, coords=coords, name="data")
