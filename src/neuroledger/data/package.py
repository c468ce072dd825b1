"""Package a lab's files as a pinned data set: a table and zip of stimuli, an assembly as netCDF, and their spec."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.assembly import check, write
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.rows import require_measurements
from neuroledger.data.integrity import folder_of, sha256_of_file
from neuroledger.data.normalise_input import as_text
from neuroledger.data.pin.yaml_edit import inline, with_entries, with_field, without
from neuroledger.data.stimuli import StimulusSet, read_table
from neuroledger.errors import AssemblyError, RequestError, require_package
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.store.files import replacing, write_text

__all__ = [
    "Terms",
    "expectations_text",
    "from_long_table",
    "observed",
    "package_assembly",
    "package_stimuli",
    "package_trials",
    "require_dvc",
    "track",
]

PRIVATE = "Ask the owner of these private data for the files."
UNTRACKED = "Others cannot fetch these files yet: run `dvc init` and `dvc add` and set `dvc: true`, or give their `url`."
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
# A fixed time for every member of a zip, so that the same files give the same bytes.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Terms:
    """Fields of the spec that do not follow from the files.

    Attributes
    ----------
    reader
        Returns the `reader` field of the spec, given the names of all its files and the current field.
    license, access
        An SPDX expression, and who may see values; not needed if the spec exists and states them.
    title, notes, fields
        Title, notes and further fields of a new spec.
    """

    reader: Callable[[set[str], dict[str, object] | None], dict[str, object]]
    license: str | None = None
    access: Literal["public", "private"] | None = None
    title: str = ""
    notes: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)


def package_stimuli(
    catalog: Catalog,
    id: str,
    table: Path | pd.DataFrame,
    files: Path | None,
    terms: Terms,
) -> list[Path]:
    """Write ``stimuli.csv`` (and ``stimuli.zip``) of data set ``id``, track them with DVC and pin them in its spec.

    ``table`` has ``stimulus_id``, and ``filename`` relative to the folder ``files``. Returns the files written.

    Raises
    ------
    RequestError
        ``files`` is missing or lacks a file, or the data set is new and ``terms`` do not state its licence and access.
    AssemblyError
        The table breaks the conventions.
    """
    _require_terms(catalog, id, terms)
    frame = read_table(table) if isinstance(table, Path) else table
    StimulusSet(id, frame)
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "stimuli.csv"]
    has_files = "filename" in frame.columns
    if has_files:
        if files is None or not files.is_dir():
            raise RequestError(
                "the table has a column 'filename': give the folder of the files with --files FOLDER"
            )
        _zip(frame, files, folder / "stimuli.zip")
        written.append(folder / "stimuli.zip")
    write_text(folder / "stimuli.csv", frame.to_csv(index=False, lineterminator="\n"))
    _track_and_pin(
        catalog,
        id,
        written,
        {"stimuli": _of_stimuli(frame, has_files=has_files)},
        terms,
    )
    return written


def _zip(frame: pd.DataFrame, files: Path, path: Path) -> None:
    names = frame["filename"].astype(str)
    missing = [name for name in names if not (files / name).is_file()]
    if missing:
        raise RequestError(
            f"{files} lacks {len(missing)} of {len(names)} files, first {missing[0]!r}"
        )
    outside = [
        name
        for name in names
        if not (files / name).resolve().is_relative_to(files.resolve())
    ]
    if outside:
        raise RequestError(f"file name {outside[0]!r} points outside {files}")
    with (
        replacing(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name in dict.fromkeys(sorted(names)):
            archive.writestr(
                zipfile.ZipInfo(name, ZIP_TIME), (files / name).read_bytes()
            )


def package_assembly(
    catalog: Catalog, id: str, assembly: xr.DataArray, terms: Terms
) -> list[Path]:
    """Write ``responses.nc`` of data set ``id``, track it with DVC and pin it in its spec.

    Raises
    ------
    RequestError
        The data set is new and ``terms`` do not state its licence and access.
    AssemblyError
        The assembly breaks the conventions.
    """
    _require_terms(catalog, id, terms)
    check(assembly, name=f"responses of {id!r}")
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    write(assembly, folder / "responses.nc")
    _track_and_pin(
        catalog, id, [folder / "responses.nc"], {"assembly": observed(assembly)}, terms
    )
    return [folder / "responses.nc"]


def package_trials(
    catalog: Catalog, id: str, trials: pd.DataFrame, terms: Terms
) -> list[Path]:
    """Write ``trials.csv`` of data set ``id``, one row per trial, track it with DVC and pin it in its spec.

    Raises
    ------
    RequestError
        The data set is new and ``terms`` do not state its licence and access.
    """
    _require_terms(catalog, id, terms)
    path = folder_of(catalog.root, "datasets", id) / "trials.csv"
    write_text(path, trials.to_csv(index=False, lineterminator="\n"))
    sizes = {"check": "shape", "sizes": {"presentation": len(trials)}}
    _track_and_pin(
        catalog,
        id,
        [path],
        {"assembly": [{"check": "dims", "dims": ["presentation"]}, sizes]},
        terms,
    )
    return [path]


def from_long_table(frame: pd.DataFrame) -> xr.DataArray:
    """Convert a table with one row per value to an assembly ``(presentation, neuroid)``.

    Raises
    ------
    AssemblyError
        A column is missing, or a presentation of a neuroid has two values.
    DataError
        Rows occur more than once, or have the same key and different values.
    """
    needed = {"stimulus_id", "neuroid_id", "value"}
    if not needed <= set(frame.columns):
        raise AssemblyError(
            f"a long table needs the columns {', '.join(sorted(needed))}; missing: {sorted(needed - set(frame.columns))}"
        )
    others = list(map(str, frame.columns.drop([*needed])))
    by_neuroid = frame.groupby("neuroid_id")
    per_neuroid = [
        c
        for c in others
        if c != "repetition" and (by_neuroid[c].nunique(dropna=False) == 1).all()
    ]
    per_presentation = ["stimulus_id", *(c for c in others if c not in per_neuroid)]
    keys = {c: frame[c].to_numpy() for c in (*others, "stimulus_id", "neuroid_id")}
    require_measurements(keys, frame["value"].to_numpy(), "the table")
    twice = frame.duplicated([*per_presentation, "neuroid_id"])
    if twice.any():
        row = frame[twice].iloc[0]
        raise AssemblyError(
            f"stimulus {row['stimulus_id']!r}, neuroid {row['neuroid_id']!r} has several values; "
            "number them in a column 'repetition'"
        )
    wide = frame.pivot(index=per_presentation, columns="neuroid_id", values="value")
    rows = wide.index.to_frame(index=False)
    neuroids = (
        frame.drop_duplicates("neuroid_id").set_index("neuroid_id").loc[wide.columns]
    )
    return xr.DataArray(
        wide.to_numpy(dtype=float),
        dims=("presentation", "neuroid"),
        coords={
            **_coordinates(rows, per_presentation, "presentation"),
            "neuroid_id": ("neuroid", wide.columns.to_numpy().astype(str)),
            **_coordinates(neuroids, per_neuroid, "neuroid"),
        },
    )


def _coordinates(
    table: pd.DataFrame, names: Sequence[str], dim: str
) -> dict[str, tuple[str, Array]]:
    """Columns of a table as coordinates; what is not a number becomes text."""
    columns = {name: table[name].to_numpy() for name in names}
    return {
        name: (dim, values if values.dtype.kind in "iufb" else values.astype(str))
        for name, values in columns.items()
    }


def observed(assembly: xr.DataArray) -> list[dict[str, object]]:
    """Expectations that the assembly meets now: dimensions, shape, alignment, missing values, repetitions."""
    expectations: list[dict[str, object]] = [
        {"check": "dims", "dims": list(map(str, assembly.dims))},
        {
            "check": "shape",
            "sizes": {str(d): int(n) for d, n in assembly.sizes.items()},
        },
        {"check": "aligned"},
    ]
    if "neuroid_id" in assembly.coords:
        expectations.append({"check": "unique", "column": "neuroid_id"})
    if assembly.dtype.kind == "f":
        missing = int(np.isnan(assembly.values).sum())
        expectations.append(
            {"check": "values_finite", **({"missing": missing} if missing else {})}
        )
    if "repetition" in assembly.coords:
        counts = np.unique(as_text(assembly["stimulus_id"].values), return_counts=True)[
            1
        ]
        low = int(counts.min())
        high = int(counts.max())
        expectations.append(
            {"check": "repetitions", "count": low}
            if low == high
            else {"check": "repetitions", "low": low, "high": high}
        )
    return expectations


def _of_stimuli(table: pd.DataFrame, *, has_files: bool) -> list[dict[str, object]]:
    """Expectations that a table of stimuli meets now."""
    expectations: list[dict[str, object]] = [
        {"check": "row_count", "count": len(table)},
        {"check": "unique", "column": "stimulus_id"},
    ]
    if has_files:
        expectations.append({"check": "files_exist"})
        if table["filename"].astype(str).str.lower().str.endswith(IMAGES).all():
            expectations.append({"check": "files_decode"})
    return expectations


def expectations_text(data: Dataset) -> str:
    """YAML text of the spec's field `expectations`, with the expectations that a data set meets now."""
    expectations: dict[str, list[dict[str, object]]] = {}
    if data.stimuli is not None:
        has_files = data.stimuli.archive is not None
        expectations["stimuli"] = _of_stimuli(data.stimuli.table, has_files=has_files)
    if data.assembly is not None:
        alignable = data.stimuli is not None and "stimulus_id" in data.assembly.coords
        expectations["assembly"] = [
            item
            for item in observed(data.assembly)
            if alignable or item["check"] != "aligned"
        ]
    lines = [
        line
        for part, items in expectations.items()
        for line in (f"  {part}:", *(f"    - {inline(item)}" for item in items))
    ]
    return "\n".join(["expectations:", *lines]) + "\n"


def require_dvc(root: Path) -> None:
    """Refuse a repository in which DVC is not set up.

    Raises
    ------
    RequestError
        The folder has no ``.dvc``.
    """
    if not (root / ".dvc").is_dir():
        raise RequestError(
            f"{root} is not a DVC repository, so that others could not pull these files: run `dvc init` there first "
            "(with --no-scm outside git, with --subdir in a subfolder of a git repository); nothing was written"
        )


def track(root: Path, written: list[Path]) -> None:
    """Track files with DVC.

    Raises
    ------
    RequestError
        `dvc add` failed.
    """
    require_package("dvc")
    command = [sys.executable, "-P", "-m", "dvc", "add", "--quiet", *map(str, written)]
    process = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines()
        raise RequestError(f"`dvc add` failed: {lines[-1] if lines else 'no message'}")


def _require_terms(catalog: Catalog, id: str, terms: Terms) -> None:
    missing = [
        f"--{name}" for name in ("license", "access") if getattr(terms, name) is None
    ]
    if missing and not catalog.has("datasets", id):
        raise RequestError(
            f"data set {id!r} is new, and its licence and access are not stated: give {' and '.join(missing)} "
            "(--license CC-BY-4.0, or LicenseRef-unstated; --access public or private), or describe it first with "
            f"`neuroledger new dataset {id}`"
        )


def _track_and_pin(
    catalog: Catalog,
    id: str,
    written: list[Path],
    expectations: Mapping[str, Sequence[Mapping[str, object]]],
    terms: Terms,
) -> None:
    """Track files with DVC, and write their pins, the reader, and missing expectations into the spec.

    Files are not tracked if they are private without their own remote (`dvc push` would publish them), or if DVC is not
    set up; the spec then says how to get them.
    """
    path = (
        catalog.path("datasets", id)
        or catalog.root / "specs" / "datasets" / f"{id}.yaml"
    )
    if path.is_file():
        text = path.read_text(encoding="utf-8")
    else:
        text = _head(catalog, id, terms)
    data = parse(text, catalog.shown(path)).data
    private = (terms.access or data.get("access")) == "private"
    has_own_remote = (written[0].parent / ".dvc").is_dir()
    tracked = has_own_remote or ((catalog.root / ".dvc").is_dir() and not private)
    if tracked:
        track(catalog.root, written)
    elif not data.get("access_steps"):
        text = with_field(text, ("access_steps",), [PRIVATE if private else UNTRACKED])
    text = _with_terms(text, data, terms)
    old: dict[str, dict[str, object]] = dict(data.get("files") or {})
    new = {file.name: _pin(file, tracked=tracked) for file in written}
    text = _with_pins(text, old, new)
    reader = terms.reader({*old, *new}, data.get("reader"))
    text = with_field(text, ("reader",), reader, before="expectations")
    write_text(path, _with_expectations(text, data.get("expectations"), expectations))


def _with_expectations(
    text: str,
    declared: Mapping[str, object] | None,
    expectations: Mapping[str, Sequence[Mapping[str, object]]],
) -> str:
    for part, items in expectations.items():
        if part not in (declared or {}):
            text = with_entries(text, ("expectations", part), items)
    return text


def _head(catalog: Catalog, id: str, terms: Terms) -> str:
    """The text of a new spec."""
    head = f"id: {id}\nversion: 1\ntitle: {inline(terms.title or id)}\n"
    if (catalog.root / "specs" / "schema").is_dir():
        return f"# yaml-language-server: $schema=../schema/dataset.json\n{head}"
    return head


def _with_terms(text: str, data: Mapping[str, object], terms: Terms) -> str:
    fields = {
        "license": terms.license,
        "access": terms.access,
        **terms.fields,
        "notes": list(terms.notes) or None,
    }
    for name, value in fields.items():
        if value is not None and data.get(name) != value:
            text = with_field(text, (name,), value)
    return text


def _with_pins(
    text: str, old: dict[str, dict[str, object]], new: dict[str, dict[str, object]]
) -> str:
    """The text with the new pins; an old pin that says the same and more is kept."""
    kept = {
        name: old[name]
        for name in new
        if name in old and new[name].items() <= old[name].items()
    }
    text = without(text, "unavailable")
    return with_entries(text, ("files",), old | new | kept, before="reader")


def _pin(path: Path, *, tracked: bool) -> dict[str, object]:
    return {
        **({"dvc": True} if tracked else {}),
        "size": path.stat().st_size,
        "sha256": sha256_of_file(path),
    }
