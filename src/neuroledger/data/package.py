"""From a lab's files to a pinned data set: a table and zip of stimuli, an assembly as netCDF, and their spec."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.assembly import check, write
from neuroledger.data.dataset import Dataset
from neuroledger.data.fetch import folder_of
from neuroledger.data.integrity import sha256_of_file
from neuroledger.data.normalise_input import as_text
from neuroledger.data.pin.yaml_edit import inline, with_entries, with_field, without
from neuroledger.data.stimuli import StimulusSet, read_table
from neuroledger.errors import AssemblyError, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.store.files import replacing, write_text

__all__ = [
    "Terms", "expectations_text", "from_long_table", "observed", "package_assembly", "package_stimuli", "package_trials",
    "require_dvc", "track",
]  # fmt: skip

UNTRACKED = (
    "Nobody else can fetch these files yet: `dvc init`, `dvc add` and `dvc: true`, or give their `url`."
)
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
# Every member of a zip gets this time, so that the same files give the same bytes.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Terms:
    """What files cannot state themselves.

    Attributes
    ----------
    reader
        The `reader` field of the spec, from the names of all its files and the field as it is.
    license, access
        An SPDX expression, and who may see values; a spec that is there already states them.
    title, notes, fields
        Of a new spec: its title, its notes, and further fields.
    """

    reader: Callable[[set[str], dict[str, Any] | None], dict[str, Any]]
    license: str | None = None
    access: Literal["public", "private"] | None = None
    title: str = ""
    notes: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


def package_stimuli(
    catalog: Catalog, id: str, table: Path | pd.DataFrame, files: Path | None, terms: Terms
) -> list[Path]:
    """Write ``stimuli.csv`` (and ``stimuli.zip``) of data set ``id``, track them with DVC and pin them in its spec.

    ``table`` has ``stimulus_id``, and ``filename`` relative to the folder ``files``. Returns what was written.

    Raises
    ------
    RequestError
        ``files`` is missing or lacks a file, or the data set is new and ``terms`` lack its licence or access.
    AssemblyError
        The table breaks the conventions.
    """
    _require_terms(catalog, id, terms)
    frame = read_table(table) if isinstance(table, Path) else table
    StimulusSet(id, frame)
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "stimuli.csv"]
    expectations: list[dict[str, Any]] = [
        {"check": "row_count", "count": len(frame)},
        {"check": "unique", "column": "stimulus_id"},
    ]
    if "filename" in frame.columns:
        if files is None or not files.is_dir():
            raise RequestError(
                "the table has a column 'filename': name the folder of the files with --files FOLDER"
            )
        _zip(frame, files, folder / "stimuli.zip")
        written.append(folder / "stimuli.zip")
        images = frame["filename"].astype(str).str.lower().str.endswith(IMAGES)
        expectations += [{"check": "files_exist"}, *([{"check": "files_decode"}] if images.all() else [])]
    write_text(folder / "stimuli.csv", frame.to_csv(index=False, lineterminator="\n"))
    _track_and_pin(catalog, id, written, {"stimuli": expectations}, terms)
    return written


def _zip(frame: pd.DataFrame, files: Path, path: Path) -> None:
    names = frame["filename"].astype(str)
    lost = [name for name in names if not (files / name).is_file()]
    if lost:
        raise RequestError(f"{files} lacks {len(lost)} of {len(names)} files, first {lost[0]!r}")
    outside = [name for name in names if not (files / name).resolve().is_relative_to(files.resolve())]
    if outside:
        raise RequestError(f"file name {outside[0]!r} points outside {files}")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in dict.fromkeys(sorted(names)):
            archive.writestr(zipfile.ZipInfo(name, ZIP_TIME), (files / name).read_bytes())


def package_assembly(catalog: Catalog, id: str, assembly: xr.DataArray, terms: Terms) -> list[Path]:
    """Write ``responses.nc`` of data set ``id``, track it with DVC and pin it in its spec.

    Raises
    ------
    RequestError
        The data set is new and ``terms`` lack its licence or access.
    AssemblyError
        The assembly breaks the conventions.
    """
    _require_terms(catalog, id, terms)
    check(assembly, name=f"responses of {id!r}")
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    write(assembly, folder / "responses.nc")
    _track_and_pin(catalog, id, [folder / "responses.nc"], {"assembly": observed(assembly)}, terms)
    return [folder / "responses.nc"]


def package_trials(catalog: Catalog, id: str, trials: pd.DataFrame, terms: Terms) -> list[Path]:
    """Write ``trials.csv`` of data set ``id``, one row per trial, track it with DVC and pin it in its spec.

    Raises
    ------
    RequestError
        The data set is new and ``terms`` lack its licence or access.
    """
    _require_terms(catalog, id, terms)
    path = folder_of(catalog.root, "datasets", id) / "trials.csv"
    write_text(path, trials.to_csv(index=False, lineterminator="\n"))
    sizes = {"check": "shape", "sizes": {"presentation": len(trials)}}
    _track_and_pin(
        catalog, id, [path], {"assembly": [{"check": "dims", "dims": ["presentation"]}, sizes]}, terms
    )
    return [path]


def from_long_table(frame: pd.DataFrame) -> xr.DataArray:
    """Assembly ``(presentation, neuroid)`` from a table with one row per value.

    Raises
    ------
    AssemblyError
        A column is missing, or a value is given twice.
    """
    needed = {"stimulus_id", "neuroid_id", "value"}
    if not needed <= set(frame.columns):
        raise AssemblyError(
            f"a long table needs the columns {', '.join(sorted(needed))}; missing: {sorted(needed - set(frame.columns))}"
        )
    others = [str(c) for c in frame.columns if c not in needed]
    per_neuroid = [
        c
        for c in others
        if c != "repetition" and (frame.groupby("neuroid_id")[c].nunique(dropna=False) == 1).all()
    ]
    per_presentation = ["stimulus_id", *(c for c in others if c not in per_neuroid)]
    twice = frame.duplicated([*per_presentation, "neuroid_id"])
    if twice.any():
        row = frame[twice].iloc[0]
        raise AssemblyError(
            f"stimulus {row['stimulus_id']!r}, neuroid {row['neuroid_id']!r} has several values; "
            "number them in a column 'repetition'"
        )
    wide = frame.pivot(index=per_presentation, columns="neuroid_id", values="value")
    rows = wide.index.to_frame(index=False)
    neuroids = frame.drop_duplicates("neuroid_id").set_index("neuroid_id").loc[wide.columns]
    coords: dict[str, Any] = {name: ("presentation", rows[name].to_numpy()) for name in per_presentation}
    coords["neuroid_id"] = ("neuroid", wide.columns.to_numpy().astype(str))
    coords |= {name: ("neuroid", neuroids[name].to_numpy()) for name in per_neuroid}
    for name, (dim, values) in coords.items():
        if values.dtype.kind not in "iufb":
            coords[name] = (dim, values.astype(str))
    return xr.DataArray(wide.to_numpy(dtype=float), dims=("presentation", "neuroid"), coords=coords)


def observed(assembly: xr.DataArray) -> list[dict[str, Any]]:
    """What holds of the assembly today, as expectations of tomorrow."""
    found: list[dict[str, Any]] = [
        {"check": "dims", "dims": [str(d) for d in assembly.dims]},
        {"check": "shape", "sizes": {str(d): int(n) for d, n in assembly.sizes.items()}},
        {"check": "aligned"},
    ]
    if "neuroid_id" in assembly.coords:
        found.append({"check": "unique", "column": "neuroid_id"})
    if assembly.dtype.kind == "f":
        missing = int(np.isnan(assembly.values).sum())
        found.append({"check": "values_finite", **({"missing": missing} if missing else {})})
    if "repetition" in assembly.coords:
        counts = np.unique(as_text(assembly["stimulus_id"].values), return_counts=True)[1]
        low, high = int(counts.min()), int(counts.max())
        found.append(
            {"check": "repetitions", "count": low}
            if low == high
            else {"check": "repetitions", "low": low, "high": high}
        )
    return found


def expectations_text(data: Dataset) -> str:
    """What holds of a data set today, as the field `expectations` of its spec."""
    found: dict[str, list[dict[str, Any]]] = {}
    if data.stimuli is not None:
        found["stimuli"] = [
            {"check": "row_count", "count": len(data.stimuli)},
            {"check": "unique", "column": "stimulus_id"},
        ]
        if data.stimuli.archive is not None:
            found["stimuli"].append({"check": "files_exist"})
            if data.stimuli.table["filename"].astype(str).str.lower().str.endswith(IMAGES).all():
                found["stimuli"].append({"check": "files_decode"})
    if data.assembly is not None:
        known = data.stimuli is not None and "stimulus_id" in data.assembly.coords
        found["assembly"] = [item for item in observed(data.assembly) if known or item["check"] != "aligned"]
    lines = [
        line
        for part, items in found.items()
        for line in (f"  {part}:", *(f"    - {inline(item)}" for item in items))
    ]
    return "\n".join(["expectations:", *lines]) + "\n"


def require_dvc(root: Path) -> None:
    """Return if DVC can track files of this repository.

    Raises
    ------
    RequestError
        It was never set up here.
    """
    if not (root / ".dvc").is_dir():
        raise RequestError(
            f"{root} is no DVC repository, so that nobody could pull these files: `dvc init` there first "
            "(--no-scm where it is no git repository, --subdir in a folder of one); nothing was written"
        )


def track(root: Path, written: list[Path]) -> None:
    """Track files with DVC.

    Raises
    ------
    RequestError
        DVC refuses.
    """
    command = [sys.executable, "-P", "-m", "dvc", "add", "--quiet", *map(str, written)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise RequestError(f"`dvc add` failed: {lines[-1] if lines else 'no message'}")


def _require_terms(catalog: Catalog, id: str, terms: Terms) -> None:
    lost = [f"--{name}" for name in ("license", "access") if getattr(terms, name) is None]
    if lost and not catalog.has("datasets", id):
        raise RequestError(
            f"data set {id!r} is new, and nothing states its licence and access: give {' and '.join(lost)} "
            "(--license CC-BY-4.0, or LicenseRef-unstated; --access public or private), or describe it first with "
            f"`neuroledger new dataset {id}`"
        )


def _track_and_pin(
    catalog: Catalog,
    id: str,
    written: list[Path],
    expectations: dict[str, list[dict[str, Any]]],
    terms: Terms,
) -> None:
    """Track files, and write their pins, the reader and expectations that are not declared yet into the spec.

    Private files without a remote of their own (`dvc push` would publish them) and all files where DVC is not set up are not
    tracked, and their spec says how to get them.
    """
    path = catalog.path("datasets", id) or catalog.root / "specs" / "datasets" / f"{id}.yaml"
    head = f"id: {id}\nversion: 1\ntitle: {inline(terms.title or id)}\n"
    if (catalog.root / "specs" / "schema").is_dir():
        head = f"# yaml-language-server: $schema=../schema/dataset.json\n{head}"
    text = path.read_text(encoding="utf-8") if path.is_file() else head
    data = parse(text, catalog.shown(path)).data
    private = (terms.access or data.get("access")) == "private"
    stays = not (written[0].parent / ".dvc").is_dir() and (private or not (catalog.root / ".dvc").is_dir())
    if not stays:
        track(catalog.root, written)
    elif not data.get("access_steps"):
        asked = "Ask the owner of these private data for the files." if private else UNTRACKED
        text = with_field(text, ("access_steps",), [asked])
    said = {
        "license": terms.license,
        "access": terms.access,
        **terms.fields,
        "notes": list(terms.notes) or None,
    }
    for name, value in said.items():
        if value is not None and data.get(name) != value:
            text = with_field(text, (name,), value)
    held: dict[str, Any] = dict(data.get("files") or {})
    pins = {file.name: _pin(file, tracked=not stays) for file in written}
    same = {name: held[name] for name in pins if name in held and pins[name].items() <= held[name].items()}
    text = with_entries(without(text, "unavailable"), ("files",), held | pins | same, before="reader")
    text = with_field(
        text, ("reader",), terms.reader({*held, *pins}, data.get("reader")), before="expectations"
    )
    declared = data.get("expectations") or {}
    for part, found in expectations.items():
        if part in declared:
            continue
        if not declared:
            text = without(text, "expectations") + f"expectations:\n  {part}:\n"
            text += "".join(f"    - {inline(item)}\n" for item in found)
        else:
            text = with_entries(text, ("expectations", part), {str(i): one for i, one in enumerate(found)})
        declared = {**declared, part: found}
    write_text(path, text)


def _pin(path: Path, *, tracked: bool) -> dict[str, Any]:
    return {**({"dvc": True} if tracked else {}), "size": path.stat().st_size, "sha256": sha256_of_file(path)}
