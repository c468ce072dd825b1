"""Between this repository and Brain-Score's files: import them as a pinned data set, export a data set in their layout."""

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
from neuroledger.data.fetch import Progress, fetch_files, fetch_stated, folder_of
from neuroledger.data.gate.validate import trial
from neuroledger.data.integrity import compare, sha256_of_file
from neuroledger.data.load import load_dataset, read_dataset, verified_files
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
# Coordinates that say whose neuroids these are, and that number them.
OWNERS = ("subject", "animal", "subject_id", "monkey", "region", "roi", "array")
NUMBERS = ("neuroid_id", "neuroid", "neuroid_num", "voxels", "voxel", "channel", "number")


def import_brainscore(
    catalog: Catalog,
    id: str,
    files: Sequence[Path],
    *,
    sha1: Mapping[str, str] | None = None,
    access: Literal["public", "private"] = "public",
    degrees: float | None = None,
) -> list[Path]:
    """Make a pinned data set ``id`` of Brain-Score's files (``assy_*.nc``, ``stimulus_*.csv``, ``stimulus_*.zip``).

    The bytes are taken as they are, so that the SHA-1 of Brain-Score's registry still fits them; labels that this project
    needs are written into the spec as steps. Nothing is written before everything was read, and its expectations hold.

    Parameters
    ----------
    sha1
        What the registry states, by the name of the file.
    access
        ``private``: the files stay out of the repository and of its remotes.
    degrees
        Degrees of visual angle that the stimuli spanned, where known.

    Raises
    ------
    RequestError
        A file is missing, of an unknown kind, or two are of one kind; or the data set exists.
    IntegrityError
        A file has not the stated SHA-1.
    DataError
        The files are not what they should be.
    """
    if catalog.has("datasets", id):
        raise RequestError(f"there is a dataset {id!r} already: choose another id, or remove it first")
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
    strange = sorted(set(sha1 or {}) - {path.name for path in files})
    if strange:
        raise RequestError(f"a SHA-1 is given for {strange[0]!r}, which is not among the files")
    for path in files:
        if path.name in (sha1 or {}):
            compare(path, Stated(sha1=(sha1 or {})[path.name]))
    places = {place_of(path.name): path for path in files}
    if len(places) != len(files):
        raise RequestError(f"two files would be called {next(iter(places))!r}: rename one")
    reader: dict[str, Any] = {"name": "brainio"} | {
        r: place_of(path.name) for r, path in sorted(roles.items())
    }
    if "assembly" in roles:
        reader |= _reading(read_assembly(roles["assembly"], values=False)[0])
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
        *(["access: private", "access_steps: [Ask the authors for the files.]"] if private else []),
        *([f"access_steps: {inline([UNTRACKED])}"] if not private and not tracked else []),
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
    data = read_dataset(_as_it_would_be(catalog, id, text, path), id, places)
    if data.assembly is not None:
        check(data.assembly, name=id)
    text += expectations_text(data)
    examined = trial(_as_it_would_be(catalog, id, text, path), id, places, data)
    wrong = [one for one in examined if one.severity == "error"]
    if wrong:
        raise DataError(f"{id} cannot be imported, nothing was written: {wrong[0]}")
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


def _as_it_would_be(catalog: Catalog, id: str, text: str, path: Path) -> Catalog:
    """The catalogue with the data set that would be written."""
    document = parse(text, catalog.shown(path))
    return catalog.with_spec("datasets", id, spec_of(document, "datasets", stem=id), document, path)


def _reading(assembly: xr.DataArray) -> dict[str, Any]:
    """How the reader is to read an assembly of this layout."""
    found: dict[str, Any] = {}
    images = sorted(str(name) for name in assembly.coords if re.fullmatch(r"image_\d", str(name)))
    if len(images) > 2:
        found["several"] = images
    elif "stimulus_id" in assembly.coords and any("|" in str(id) for id in assembly["stimulus_id"].values):
        found["merge"] = False  # joined ids of an earlier export
    steps = _labels(assembly)
    return found | ({"prepare": steps} if steps else {})


def _labels(assembly: xr.DataArray) -> list[dict[str, Any]]:
    """The steps that give an assembly the names of this project: ids of neuroids, repetitions, properties."""
    steps: list[dict[str, Any]] = []
    dims = {"neuronal_property": "property"} if "neuronal_property" in assembly.dims else {}
    if "presentation_b" in assembly.dims:  # similarities of stimuli, one matrix for each subject
        dims = {"presentation": "stimulus", "presentation_b": "stimulus_b"}
        dims |= {"neuroid": "subject"} if "neuroid" in assembly.dims else {}
        return [{"step": "rename", "dims": dims}]
    if dims or ("repetition_id" in assembly.coords and "repetition" not in assembly.coords):
        coords = {} if dims else {"repetition_id": "repetition"}
        coords |= {old: new for old, new in dims.items() if old in assembly.coords}
        steps.append({"step": "rename", **({"dims": dims} if dims else {}), "coords": coords})
    if "neuroid" not in assembly.dims:
        return steps
    held = [name for name in OWNERS if name in assembly.coords and assembly[name].dims == ("neuroid",)]
    own = [name for name in NUMBERS if name in assembly.coords and assembly[name].dims == ("neuroid",)]
    columns = {name: as_text(assembly[name].values).tolist() for name in (*held, *own)}
    if "neuroid_id" in columns and len(set(columns["neuroid_id"])) == assembly.sizes["neuroid"]:
        return steps
    label: dict[str, Any] = {"step": "label", "dim": "neuroid", "coord": "neuroid_id"}
    for count in range(1, len(held) + 1):
        for number in own:
            of = [*held[:count], number]
            if len(set(zip(*(columns[name] for name in of), strict=True))) == assembly.sizes["neuroid"]:
                return [*steps, label | {"of": of}]
    return [*steps, label]


def fetch_brainscore(catalog: Catalog, key: str, *, progress: Progress | None = None) -> list[Pinned | str]:
    """Fetch and pin the data sets of a key of Brain-Score's registry: a benchmark, a data set or a stimulus set.

    Returns what was pinned, and the id of each data set that was complete already.

    Raises
    ------
    RequestError
        No spec of the catalogue is about the key.
    UnavailableError, IntegrityError, DataError
        A file cannot be fetched, is not what upstream states, or cannot be read; nothing of that data set is written.
    """
    done: list[Pinned | str] = []
    for id in _datasets_of(catalog, key):
        spec = catalog.dataset(id)
        if spec.files:
            fetch_files(catalog.root, folder_of(catalog.root, "datasets", id), spec.files, progress=progress)
            done.append(id)
        else:
            done.append(_fetched_with_labels(catalog, id, progress))
    return done


def _fetched_with_labels(catalog: Catalog, id: str, progress: Progress | None) -> Pinned:
    """Fetch and pin; a spec without steps gets those that its assembly needs, as an import of files does."""
    spec, path = catalog.dataset(id), catalog.entry("datasets", id).path
    said = {} if spec.reader is None else spec.reader.parameters
    name = said.get("assembly")
    if spec.reader is None or spec.reader.name != "brainio" or not isinstance(name, str) or "prepare" in said:
        return fetch_and_pin(catalog, id, progress=progress)
    folder = catalog.root / ".cache" / "downloads" / id
    fetch_stated(catalog.root, folder, spec.downloads, progress=progress)
    more = {
        key: value
        for key, value in _reading(read_assembly(folder / name, values=False)[0]).items()
        if key not in said
    }
    before = path.read_text(encoding="utf-8")
    if more:
        text = without(before, "reader").rstrip("\n")
        write_text(path, f"{text}\nreader: {inline({'name': 'brainio'} | dict(said) | more)}\n")
    try:
        return fetch_and_pin(open_catalog(catalog.root), id, progress=progress)
    except BaseException:
        write_text(path, before)
        raise


def _datasets_of(catalog: Catalog, key: str) -> list[str]:
    if catalog.has("datasets", key):
        return [key]
    if catalog.has("benchmarks", key):
        return [catalog.benchmark(key).dataset]
    stem = key.replace(".", "_")
    names = re.compile(rf"(?:assy_(?:\w+?_)?|stimulus_){re.escape(stem)}\.(?:nc|csv)")
    found = [
        id
        for id in catalog.ids("datasets")
        if any(names.fullmatch(name) for name in (*catalog.dataset(id).downloads, *catalog.dataset(id).files))
    ]
    if not found:
        known = [*catalog.ids("datasets"), *catalog.ids("benchmarks")]
        by_lower = {one.lower(): one for one in known}
        near = [by_lower[one] for one in difflib.get_close_matches(key.lower(), list(by_lower), 3, 0.5)]
        raise RequestError(
            f"no benchmark, data set or stimulus set {key!r} has a spec here; "
            + (
                f"near it: {', '.join(near)}; "
                if near
                else "`neuroledger list datasets` names what has one; "
            )
            + f"a plugin that registers it is read with `neuroledger import brainscore {key} --from FOLDER`, files that you "
            f"have with their names, `neuroledger import brainscore {key} assy_….nc stimulus_….csv stimulus_….zip`"
        )
    return found


def export_brainscore(catalog: Catalog, id: str, out: Path) -> list[Path]:
    """Write a data set as ``assy_<id>.nc``, ``stimulus_<id>.csv`` and ``stimulus_<id>.zip``, dots in the id as ``_``.

    Attributes, groups and the degrees of the stimuli (as the column ``degrees``) go along; a further stimulus set is
    ``stimulus_<id>_<name>``. What an import of these files reads is what is exported. An assembly of Brain-Score's to which
    the reader gave nothing but other names is the file that it was, with the names that others know.

    Raises
    ------
    DataError
        The data are not here or not right.
    AssemblyError
        Stimuli have files that are not in one zip.
    """
    data = load_dataset(catalog, id)
    name = id.replace(".", "_")
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    sets = {name: data.stimuli} | {f"{name}_{other}": one for other, one in data.extra_stimuli.items()}
    for stem, stimuli in sets.items():
        if stimuli is not None:
            written += _write_stimuli(stimuli, stem, out)
    if data.assembly is None:
        return written
    path = out / f"assy_{name}.nc"
    original = _renamed_alone(catalog, id)
    if original is None:
        return [*written, _write_assembly(data, id, path)]
    with replacing(path) as temporary:
        shutil.copyfile(original, temporary)
    return [*written, path]


def _renamed_alone(catalog: Catalog, id: str) -> Path | None:
    """The file of an assembly that was read under other names, and otherwise as it is."""
    reader = catalog.dataset(id).reader
    said = {} if reader is None or reader.name != "brainio" else reader.parameters
    steps = {step["step"] for step in said.get("prepare", ())}
    if "assembly" not in said or not steps or steps - {"rename", "label"}:
        return None
    return verified_files(catalog, "datasets", id)[str(said["assembly"])]


def _write_stimuli(stimuli: StimulusSet, stem: str, out: Path) -> list[Path]:
    table = stimuli.table
    if stimuli.degrees is not None and "degrees" not in table:
        table = table.assign(degrees=stimuli.degrees)
    path, zipped = out / f"stimulus_{stem}.csv", out / f"stimulus_{stem}.zip"
    named = (
        {}
        if "filename" not in table
        else {old: old.replace("/", "_") for old in table["filename"].astype(str)}
    )
    if len(set(named.values())) != len(named):
        raise AssemblyError(
            f"files of {stem} have one name in several folders, and Brain-Score's archives are flat"
        )
    if named:
        table = table.assign(filename=[named[str(one)] for one in table["filename"]])
    write_text(path, table.to_csv(index=False, lineterminator="\n"))
    if stimuli.archive is None and stimuli.contents is None:
        return [path]
    held = stimuli.archive if isinstance(stimuli.archive, Path) else None
    if held is not None and {one.filename for one in safe_members(held, repeated=True)} == set(
        named.values()
    ):
        with replacing(zipped) as temporary:
            shutil.copyfile(held, temporary)
        return [path, zipped]
    with replacing(zipped) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for file, content in zip(table["filename"], stimuli.read(), strict=True):
            archive.writestr(zipfile.ZipInfo(str(file), ZIP_TIME), content)
    return [path, zipped]


def _write_assembly(data: Dataset, id: str, path: Path) -> Path:
    if data.assembly is None:
        raise AssemblyError(f"data set {id!r} has no assembly")
    plain = _ids_as_in_the_table(_as_upstream(data.assembly), data.stimuli)
    plain.attrs = {"identifier": id, "stimulus_set_identifier": id} | {
        key: value for key, value in data.assembly.attrs.items() if value is not None
    }
    with replacing(path) as temporary:
        _to_netcdf(plain, temporary)
        for group, held in data.metadata.items():
            _to_netcdf(_as_upstream(held), temporary, mode="a", group=group)
    return path


def _ids_as_in_the_table(array: xr.DataArray, stimuli: StimulusSet | None) -> xr.DataArray:
    """The ids as the peer reads them from the table: whole numbers are numbers; of several stimuli the last is named."""
    if stimuli is None or "stimulus_id" not in array.coords:
        return array
    known = set(stimuli.ids)
    old = [str(one) for one in array["stimulus_id"].values.tolist()]
    ids = [one if one in known else one.rpartition("|")[2] for one in old]
    numbers = all(one.isdecimal() and str(int(one)) == one for one in known) and set(ids) <= known
    if ids == old and not numbers:
        return array
    values = np.asarray(ids, dtype=np.int64 if numbers else object)
    return array.assign_coords(stimulus_id=(array["stimulus_id"].dims, values))


def _to_netcdf(array: xr.DataArray, path: Path, **place: Any) -> None:
    encoding = {"data": {"zlib": True, "complevel": 9, "shuffle": True}} if array.dtype.kind in "fiu" else {}
    array.to_dataset(name="data", promote_attrs=True).to_netcdf(
        path, engine="netcdf4", encoding=encoding, **place
    )


def _as_upstream(assembly: xr.DataArray) -> xr.DataArray:
    """Names as the peer's writer gives them: properties, and `_` after the only coordinate of a dimension."""
    dims = {"property": "neuronal_property"} if "property" in assembly.dims else {}
    coords = {}
    for name, held in assembly.coords.items():
        label = dims.get(str(name), str(name))
        place = tuple(dims.get(str(dim), str(dim)) for dim in held.dims)
        coords[f"{label}_" if place == (label,) else label] = (place, held.values)
    values = assembly.values
    return xr.DataArray(
        values, dims=[dims.get(str(d), str(d)) for d in assembly.dims], coords=coords, name="data"
    )
