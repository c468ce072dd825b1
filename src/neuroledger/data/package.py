"""From a lab's files to a pinned data set: a table and zip of stimuli, an assembly as netCDF, and their spec."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.assembly import check, read, write
from neuroledger.data.fetch import folder_of
from neuroledger.data.integrity import sha256_of_file
from neuroledger.data.stimuli import StimulusSet, read_table
from neuroledger.errors import AssemblyError, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import replacing, write_text

__all__ = ["flow", "observed", "package_assembly", "package_stimuli", "pin_line", "track"]

# Every member of a zip gets this time, so that the same files give the same bytes.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def package_stimuli(catalog: Catalog, id: str, table: Path, files: Path | None) -> list[Path]:
    """Write ``stimuli.csv`` (and ``stimuli.zip``) of data set ``id``, track them with DVC and pin them in its spec.

    ``table`` is a CSV with ``stimulus_id``, and ``filename`` relative to the folder ``files``. Returns what was written.

    Raises
    ------
    RequestError
        ``files`` is missing or lacks a file.
    AssemblyError
        The table breaks the conventions.
    """
    frame = read_table(table)
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
                "the table has a column 'filename': say where the files lie with --files FOLDER"
            )
        _zip(frame, files, folder / "stimuli.zip")
        written.append(folder / "stimuli.zip")
        images = (
            frame["filename"]
            .astype(str)
            .str.lower()
            .str.endswith((".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"))
        )
        expectations += [{"check": "files_exist"}, *([{"check": "files_decode"}] if images.all() else [])]
    write_text(folder / "stimuli.csv", frame.to_csv(index=False, lineterminator="\n"))
    _track_and_pin(catalog, id, written, {"stimuli": expectations})
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


def package_assembly(catalog: Catalog, id: str, source: Path) -> list[Path]:
    """Write ``responses.nc`` of data set ``id``, track it with DVC and pin it in its spec.

    ``source`` is netCDF in this project's conventions, or a CSV in long form: one row per value, with the columns
    ``stimulus_id``, ``neuroid_id``, ``value`` and, where there are any, ``repetition`` and others. A column that is
    constant for each neuroid becomes a coordinate of neuroids, any other one of presentations.

    Raises
    ------
    RequestError
        The file is neither.
    AssemblyError
        It breaks the conventions.
    """
    if source.suffix == ".nc":
        assembly = read(source)
    elif source.suffix == ".csv":
        assembly = from_long_table(pd.read_csv(source, dtype={"stimulus_id": str, "neuroid_id": str}))
    else:
        raise RequestError(f"{source} is neither .nc nor .csv")
    check(assembly, name=source.name)
    folder = folder_of(catalog.root, "datasets", id)
    folder.mkdir(parents=True, exist_ok=True)
    write(assembly, folder / "responses.nc")
    _track_and_pin(catalog, id, [folder / "responses.nc"], {"assembly": observed(assembly)})
    return [folder / "responses.nc"]


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
        counts = np.unique(assembly["stimulus_id"].values.astype(str), return_counts=True)[1]
        low, high = int(counts.min()), int(counts.max())
        found.append(
            {"check": "repetitions", "count": low}
            if low == high
            else {"check": "repetitions", "low": low, "high": high}
        )
    return found


def track(root: Path, written: list[Path]) -> None:
    """Track files with DVC, where the repository has it.

    Raises
    ------
    RequestError
        DVC refuses.
    """
    if not (root / ".dvc").is_dir():
        return
    command = [sys.executable, "-m", "dvc", "add", "--quiet", *map(str, written)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise RequestError(f"`dvc add` failed: {lines[-1] if lines else 'no message'}")


def pin_line(path: Path, *, sha1: bool = False) -> str:
    """The line of a spec's ``files`` that pins a file tracked by DVC."""
    older = f", sha1: {hashlib.sha1(path.read_bytes()).hexdigest()}" if sha1 else ""
    return f"  {path.name}: {{dvc: true, size: {path.stat().st_size}, sha256: {sha256_of_file(path)}{older}}}"


def _track_and_pin(
    catalog: Catalog, id: str, written: list[Path], expectations: dict[str, list[dict[str, Any]]]
) -> None:
    track(catalog.root, written)
    pins = {path.name: pin_line(path) for path in written}
    path = catalog.root / "specs" / "datasets" / f"{id}.yaml"
    if path.is_file():
        write_text(path, _repinned(path.read_text(encoding="utf-8"), pins, expectations))
    else:
        write_text(path, _spec_text(id, pins, expectations))


def _repinned(text: str, pins: dict[str, str], expectations: dict[str, list[dict[str, Any]]]) -> str:
    """The spec's text with new pins, comments and all else kept; expectations are added only where there are none."""
    for name, line in pins.items():
        pattern = re.compile(rf"^  {re.escape(name)}:.*(?:\n    .*)*$", re.MULTILINE)
        text = (
            pattern.sub(line, text, count=1)
            if pattern.search(text)
            else re.sub(r"^files:\s*$", f"files:\n{line}", text, count=1, flags=re.MULTILINE)
        )
    for part, found in expectations.items():
        if not re.search(rf"^  {part}:", text, re.MULTILINE):
            lines = "\n".join(f"    - {flow(item)}" for item in found)
            text = re.sub(
                r"^expectations:\s*$", f"expectations:\n  {part}:\n{lines}", text, count=1, flags=re.MULTILINE
            )
    names = set(re.findall(r"^  (stimuli\.csv|stimuli\.zip|responses\.nc):", text, re.MULTILINE))
    return re.sub(r"^reader: .*$", f"reader: {_reader(names)}", text, count=1, flags=re.MULTILINE)


def _spec_text(id: str, pins: dict[str, str], expectations: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {id}",
        "version: 1",
        f"title: {id}   # what was recorded, from whom, of what",
        "license: CC-BY-4.0   # the SPDX id under which these data may be used",
        "cite: []   # keys of specs/references.bib",
        "files:",
        *pins.values(),
        f"reader: {_reader(set(pins))}",
        "expectations:",
    ]
    for part, found in expectations.items():
        lines += [f"  {part}:", *(f"    - {flow(item)}" for item in found)]
    return "\n".join(lines) + "\n"


def _reader(names: set[str]) -> str:
    absent = {"assembly": "responses.nc", "stimuli": "stimuli.csv", "archive": "stimuli.zip"}
    missing = "".join(f", {field}: null" for field, name in absent.items() if name not in names)
    return f"{{name: netcdf{missing}}}"


def flow(value: Any) -> str:
    """Plain data in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return str(value)
