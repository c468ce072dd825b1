"""fetch, validate, audit, package, pin, start: download, check and add data sets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from neuroledger.cli.options import (
    Degrees,
    Json,
    License,
    Root,
    argument,
    flag,
    option,
    pairs_of,
)
from neuroledger.cli.output import FAILED, SUCCESS, Output, plain_record, worst
from neuroledger.display import (
    choose,
    say,
    say_json,
    say_problem,
    say_table,
    visible,
)
from neuroledger.errors import NeuroLedgerError, PendingError, RequestError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from neuroledger.cli.start import Started
    from neuroledger.data.arrays import Array
    from neuroledger.data.pin.pin import Pinned
    from neuroledger.display import Display
    from neuroledger.engine.record import Record
    from neuroledger.spec.base import SourceFile
    from neuroledger.spec.catalog import Catalog
    from neuroledger.spec.kinds import DatasetSpec

SHOWN_CHANGES = 40
# What the parts of the data of a laboratory are called in every verb that takes them.
DIMS = (
    "axes of the array, such as trial,unit or trial,image,unit: image (stimulus) or trial, unit (neuroid), and repetition "
    "or time_bin"
)
REGION = "brain region of the responses, such as V4 or IT"
Access = Literal["public", "private"]
_State = Literal["verified", "pinned", "pending", "failed", "unavailable"]


class _Fetched(NamedTuple):
    """What became of the files of one data set or model."""

    kind: str
    id: str
    state: _State
    message: str
    asked: bool = True
    """Whether the request names it; a suite may contain what is unavailable."""

    @property
    def failed(self) -> bool:
        """Whether the files were asked for and are not here."""
        return self.state == "failed" or (self.state == "unavailable" and self.asked)

    def line(self) -> str:
        """Return the line that reports it."""
        if self.state == "pending":
            return f"pending: {self.id}: {self.message}"
        sign = "✓" if self.state in ("verified", "pinned") else "✗"
        unavailable = "unavailable: " if self.state == "unavailable" else ""
        return f"{sign} {self.id}: {unavailable}{self.message}"

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        plain = self._asdict()
        return {name: plain[name] for name in ("kind", "id", "state", "message")}


def fetch(
    ids: Annotated[
        list[str] | None,
        argument("ID", "ids of data sets or models", ids=("datasets", "models")),
    ] = None,
    suite: Annotated[
        str | None,
        option(
            "--suite",
            "SUITE",
            "fetch everything that this suite needs",
            ids=("suites",),
        ),
    ] = None,
    force: Annotated[
        bool,
        flag("--force", "replace files that were modified after they were fetched"),
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Download the files of data sets and models into data/ and verify them.

    JSON: a list of data sets and models, each with kind, id, state (verified, pinned, pending, failed or unavailable)
    and message.
    """
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    named = ids or []
    found: list[_Fetched] = []
    with choose() as display:
        for kind, id in _selection(catalog, named, suite):
            one = _fetch(catalog, kind, id, display, asked=id in named, force=force)
            if one.message:  # empty for a model without files
                display.line(one.line())
            found.append(one)
    if json:
        say_json([one.to_dict() for one in found])
    pending = any(one.state == "pending" for one in found)
    return worst(failed=any(one.failed for one in found), pending=pending)


def _fetch(
    catalog: Catalog, kind: str, id: str, display: Display, *, asked: bool, force: bool
) -> _Fetched:
    """Fetch and verify the files of one data set or model; pin those that its spec only lists."""
    from neuroledger.data.fetch import fetch_files
    from neuroledger.data.integrity import pinned_files
    from neuroledger.data.pin.pin import alone
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.spec.kinds import DatasetSpec, ModelSpec

    spec = catalog.entry(kind, id).spec
    assert isinstance(spec, DatasetSpec | ModelSpec)
    unpinned = isinstance(spec, DatasetSpec) and _only_listed(spec)
    if isinstance(spec, DatasetSpec) and spec.members:
        closed = catalog.closed(id)
    else:
        closed = spec.unavailable
    if closed and not (unpinned and asked):
        return _Fetched(kind, id, "unavailable", closed, asked)
    if unpinned:
        with alone(catalog.root):
            return _fetch_and_pin(open_catalog(catalog.root), id, display)
    folder, files = pinned_files(catalog, kind, id)
    try:
        fetched = fetch_files(
            catalog.root, folder, files, progress=display.progress, force=force
        )
    except NeuroLedgerError as error:
        state: _State = "pending" if isinstance(error, PendingError) else "failed"
        return _Fetched(kind, id, state, str(error))
    return _Fetched(kind, id, "verified", _verified(files, len(fetched)))


def _only_listed(spec: DatasetSpec) -> bool:
    """Return whether a data set lists the files that can be downloaded, and pins none yet."""
    have_addresses = any(download.url for download in spec.downloads.values())
    return spec.reader is not None and not spec.files and have_addresses


def _verified(files: Mapping[str, SourceFile], fetched: int) -> str:
    """Return how many files were fetched or present, and which packages hold the others."""
    packages = {
        pin.package.requirement for pin in files.values() if pin.package is not None
    }
    own = sum(pin.package is None for pin in files.values())
    parts = []
    if packages:
        names = ", ".join(sorted(packages))
        parts.append(f"installed with the environment ({names}), verified")
    if own:
        present = own - fetched
        parts.append(
            f"{fetched} files fetched, {present} already present, all verified"
        )
    return "; ".join(parts)


def _fetch_and_pin(catalog: Catalog, id: str, display: Display) -> _Fetched:
    """Fetch and pin the files that a spec lists, unless another process did so meanwhile."""
    from neuroledger.data.pin.pin import fetch_and_pin

    if catalog.dataset(id).files:
        words = "another process has fetched and pinned its files"
        return _Fetched("datasets", id, "pinned", words)
    try:
        pinned = fetch_and_pin(catalog, id, progress=display.progress)
    except NeuroLedgerError as error:
        return _Fetched("datasets", id, "failed", str(error))
    place = catalog.shown(pinned.path)
    words = f"{pinned.files} files fetched and pinned in {place}"
    return _Fetched("datasets", id, "pinned", words)


def _selection(
    catalog: Catalog, ids: list[str], suite: str | None
) -> list[tuple[str, str]]:
    """Return the kind and id of each data set and model to fetch."""
    selection: list[tuple[str, str]] = []
    for id in ids:
        kinds = [
            entry.kind
            for entry in catalog.find(id)
            if entry.kind in {"datasets", "models"}
        ]
        if not kinds:
            raise RequestError(
                f"{id!r} is neither a data set nor a model: nothing to fetch"
            )
        selection += [(kind, id) for kind in kinds]
    if suite:
        selection += _needed(catalog, suite)
    if not selection:
        raise RequestError(
            "nothing is selected: give ids of data sets or models, or --suite"
        )
    return list(dict.fromkeys(selection))


def _needed(catalog: Catalog, suite: str) -> list[tuple[str, str]]:
    """Return the data sets and models that a suite and those that it includes need."""
    from neuroledger.spec.suites import suites_of

    needed: list[tuple[str, str]] = []
    for each in suites_of(catalog, suite):
        for item in each.benchmarks:
            benchmark = catalog.benchmark(item.id)
            controls = (*benchmark.controls.positive, *benchmark.controls.negative)
            needed.append(("datasets", benchmark.dataset))
            needed += [("models", id) for id in controls]
        needed += [("models", id) for id in each.models]
    return needed


def validate(
    ids: Annotated[
        list[str] | None,
        argument(
            "DATASET",
            "ids of data sets (default: every data set whose files are on this machine)",
            ids=("datasets",),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        option(
            "--suite", "SUITE", "validate the data sets of this suite", ids=("suites",)
        ),
    ] = None,
    force: Annotated[
        bool, flag("--force", "validate again even if nothing changed")
    ] = False,
    data_docs: Annotated[
        Path | None,
        option("--data-docs", "DIR", "also write the Data Docs of Great Expectations"),
    ] = None,
    allow_invalid: Annotated[
        bool,
        flag("--allow-invalid", "exit 0 even if a data set is invalid"),
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Check hashes, structure and expectations of data sets.

    JSON: a list of validation reports (docs/validation.md); what is unavailable or pending is on standard error.
    """
    from neuroledger.data.gate.validate import validate as validate_dataset
    from neuroledger.spec.catalog import open_catalog

    answer = Output(json)
    catalog = open_catalog(root)
    reports = []
    pending = False
    for id in _to_validate(catalog, ids or [], suite):
        if (reason := catalog.closed(id)) is not None:
            (say_problem if json else say)(f"– {id}: unavailable: {reason}")
            continue
        try:
            report = validate_dataset(catalog, id, force=force, data_docs=data_docs)
        except PendingError as error:
            pending = True
            say_problem(f"pending: {id}: {error}")
        else:
            reports.append(report)
            answer.line(str(report))
    if json:
        say_json([report.to_dict() for report in reports])
    valid = allow_invalid or all(report.success for report in reports)
    return worst(failed=not valid, pending=pending)


def _to_validate(catalog: Catalog, ids: list[str], suite: str | None) -> list[str]:
    """Return the named data sets and those of a suite; if none is named, all whose files are here."""
    from neuroledger.data.gate.validate import is_here
    from neuroledger.spec.suites import suites_of

    selected = list(ids)
    for each in suites_of(catalog, suite) if suite else ():
        selected += [catalog.benchmark(item.id).dataset for item in each.benchmarks]
    if not selected:
        selected = [
            id
            for id in catalog.ids("datasets")
            if catalog.closed(id) is None and is_here(catalog, id)
        ]
    return list(dict.fromkeys(selected))


def audit(
    id: Annotated[
        str,
        argument("DATASET", "id of a data set", ids=("datasets",)),
    ],
    out: Annotated[
        Path | None,
        option("--out", "FILE.md", "also write the report to this file"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Look for copies, wrong counts, wrong units, flat channels and label leaks in recordings.

    JSON: a list of findings, each with code, severity, where, what and fix.
    """
    from neuroledger.families.decoding.audit import audit_dataset, report_of
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.store.files import write_text

    catalog = open_catalog(root)
    findings = audit_dataset(catalog, id)
    page = report_of(catalog.dataset(id), findings)
    if json:
        say_json([finding.to_dict() for finding in findings])
    else:
        say(page)
    if out is not None:
        write_text(out, page)
    found = any(finding.severity == "error" for finding in findings)
    return FAILED if found else SUCCESS


def package(
    part: Annotated[
        Literal["stimuli", "assembly", "model"],
        argument("PART", "what the source file contains"),
    ],
    id: Annotated[
        str,
        argument(
            "ID",
            "id of the data set or model; it is created if there is none",
            ids=("datasets", "models"),
        ),
    ],
    source: Annotated[
        Path,
        argument(
            "SOURCE",
            "stimuli: a CSV table or a folder of images; assembly: netCDF, npy, mat or a table; model: a checkpoint",
        ),
    ],
    files: Annotated[
        Path | None,
        option(
            "--files", "FOLDER", "stimuli: folder that contains the files of the table"
        ),
    ] = None,
    license: License = None,
    access: Annotated[
        Access | None, option("--access", None, "access of a new data set")
    ] = None,
    dims: Annotated[
        str | None,
        option("--dims", "DIMS", f"assembly: {DIMS}"),
    ] = None,
    region: Annotated[
        str | None,
        option("--region", "REGION", f"assembly: {REGION}"),
    ] = None,
    variable: Annotated[
        str | None,
        option("--variable", "NAME", "assembly: variable of a mat file"),
    ] = None,
    trials: Annotated[
        Path | None,
        option("--trials", "CSV", "assembly: table with a stimulus_id for each trial"),
    ] = None,
    time_bins: Annotated[
        str | None,
        option(
            "--time-bins",
            "MS",
            "assembly: first and last edge of the time bins in ms, such as 0:200",
        ),
    ] = None,
    module: Annotated[
        str | None,
        option(
            "--module",
            "package.module:Class",
            "model without a spec: import path of its torch class",
        ),
    ] = None,
    region_layer: Annotated[
        list[str] | None,
        option(
            "--region-layer",
            "REGION=LAYER",
            "model without a spec: layer committed to a region; may be repeated",
        ),
    ] = None,
    readout: Annotated[
        str | None,
        option(
            "--readout",
            "LAYER",
            "model without a spec: layer from which decisions are read",
        ),
    ] = None,
    logits: Annotated[
        str | None,
        option(
            "--logits",
            "LAYER",
            "model without a spec: layer of the class logits, if different from --readout",
        ),
    ] = None,
    arguments: Annotated[
        str | None,
        option("--arguments", "JSON", "model without a spec: arguments of its class"),
    ] = None,
    preprocessing: Annotated[
        str | None,
        option(
            "--preprocessing",
            "JSON",
            "model without a spec: preprocessing of images, see docs/models.md",
        ),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Convert, place, track and pin stimuli, responses or a checkpoint.

    JSON: written (paths), notes, and next (commands that usually follow).
    """
    from neuroledger.spec.catalog import open_catalog

    answer = Output(json)
    catalog = open_catalog(root)
    if part == "model":
        fields = {
            "arguments": _from_json(arguments, "--arguments"),
            "preprocessing": _from_json(preprocessing, "--preprocessing"),
            "readout": readout,
            "logits": logits,
            "regions": _layers_of_regions(region_layer or []),
        }
        _package_model(catalog, id, source, module, fields, answer)
    else:
        given = _Responses(source, dims, region, variable, trials, time_bins)
        if part == "stimuli":
            written = _package_stimuli(catalog, id, source, files, license, access)
        else:
            written = _package_responses(catalog, id, given, license, access, answer)
        for path in written:
            answer.wrote(catalog.shown(path))
        _say_what_follows(open_catalog(root), id, answer)
    answer.end()
    return SUCCESS


def _say_what_follows(catalog: Catalog, id: str, answer: Output) -> None:
    """Say what is left to do after the files of a data set were pinned."""
    answer.then(
        f"neuroledger validate {id}",
        before=f"pinned in specs/datasets/{id}.yaml; next: ",
    )
    spec = catalog.dataset(id)
    if not (catalog.root / ".dvc").is_dir():
        answer.note(
            "the files have no DVC pointers, because the repository does not use DVC: `dvc init`, then `dvc add` each file"
        )
    if spec.access == "private":
        answer.note(
            "the data are private: push them to your own remote (`dvc push -r NAME`), never to the embedded remote"
        )
    if spec.license == "LicenseRef-unstated":
        answer.note(
            "no licence is stated: others may not use the data until the spec has a `license`"
        )


def _from_json(text: str | None, flag: str) -> object:
    """Return the value of an option that is written as JSON.

    Raises
    ------
    RequestError
        The text is not JSON.
    """
    from json import loads

    try:
        return None if text is None else loads(text)
    except ValueError as error:
        raise RequestError(f"{flag} is not JSON: {error}") from error


def _layers_of_regions(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(layer for _, _, layer in pairs):
        raise RequestError("--region-layer must be REGION=LAYER, such as IT=layer4")
    return {region: layer for region, _, layer in pairs}


def _package_model(
    catalog: Catalog,
    id: str,
    checkpoint: Path,
    module: str | None,
    fields: Mapping[str, object],
    answer: Output,
) -> None:
    from neuroledger.cli.own_models import package_model

    given = {name: value for name, value in fields.items() if value}
    for path in package_model(catalog, id, checkpoint, module=module, fields=given):
        answer.wrote(catalog.shown(path))
    answer.then(
        "neuroledger check", f"neuroledger evaluate {id}", f"neuroledger run {id}"
    )


def _package_stimuli(
    catalog: Catalog,
    id: str,
    source: Path,
    files: Path | None,
    license: str | None,
    access: Access | None,
) -> list[Path]:
    """Package a folder of images, or a table and the folder of its files."""
    from neuroledger.cli.lab_files import reader_of
    from neuroledger.data.package import Terms, package_stimuli

    terms = Terms(reader_of, license, access)
    if source.is_dir():
        return package_stimuli(catalog, id, _images(source), source, terms)
    _require_exists(source)
    if not source.is_file():  # a pipe or a device may never end
        raise RequestError(f"{source} is not a file")
    return package_stimuli(catalog, id, source, files, terms)


def _require_exists(source: Path) -> None:
    if not source.exists():
        raise RequestError(f"{source} does not exist")


def _images(folder: Path) -> pd.DataFrame:
    """Return a table with one row per image of a folder."""
    import pandas as pd

    from neuroledger.cli.lab_files import survey

    content = survey(folder, ())
    if not content.images:
        raise RequestError(f"{folder} contains no images (png, jpg, bmp, tif)")
    return pd.DataFrame({"stimulus_id": content.ids, "filename": content.images})


class _Responses(NamedTuple):
    """A file with responses, and what was said about it."""

    source: Path
    dims: str | None
    region: str | None
    variable: str | None
    trials: Path | None
    time_bins: str | None


def _package_responses(
    catalog: Catalog,
    id: str,
    given: _Responses,
    license: str | None,
    access: Access | None,
    answer: Output,
) -> list[Path]:
    """Package the responses of a file; name the region of all neuroids if it is given."""
    from neuroledger.cli.lab_files import reader_of, with_region
    from neuroledger.data.package import Terms, package_assembly

    _require_exists(given.source)
    assembly = _assembly(catalog, id, given)
    if given.region and "neuroid" in assembly.dims:
        assembly = with_region(assembly, given.region)
    named = "region" in assembly.coords
    terms = Terms(reader_of, license, access)
    written = package_assembly(catalog, id, assembly, terms)
    if not named:
        answer.note(
            "the responses have no region, which benchmarks select by: package them again with --region V4 or similar"
        )
    return written


def _assembly(catalog: Catalog, id: str, given: _Responses) -> xr.DataArray:
    """Return the assembly of a file; an array needs its axes, and the packaged stimuli or a list of trials."""
    from neuroledger.cli.lab_files import read_file
    from neuroledger.data.integrity import folder_of
    from neuroledger.data.stimuli import read_table

    file = read_file(given.source)
    if file.assembly is not None:
        return file.assembly
    stimuli = folder_of(catalog.root, "datasets", id) / "stimuli.csv"
    if stimuli.is_file():
        ids = list(map(str, read_table(stimuli)["stimulus_id"]))
    else:
        ids = []
    if file.table is not None:
        return _assembly_of_table(file.table, ids, given.source.name)
    return _assembly_of_array(file.arrays, ids, id, given)


def _assembly_of_table(
    table: pd.DataFrame, ids: list[str], source: str
) -> xr.DataArray:
    """Return the assembly of a table whose rows are presentations of the stimuli ``ids``, if they are known."""
    from neuroledger.cli.lab_files import columns_of, stimuli_of, table_assembly
    from neuroledger.data.package import from_long_table

    columns = columns_of(table, ids)
    if columns is None or columns.kind not in ("long", "wide"):
        return from_long_table(table)
    rows = table[columns.stimulus].astype(str)
    if ids:
        presented = stimuli_of(rows.to_numpy(), ids, None, source)
    else:
        presented = list(rows)
    return table_assembly(table, columns, presented)


def _assembly_of_array(
    arrays: Mapping[str, Array], ids: list[str], id: str, given: _Responses
) -> xr.DataArray:
    """Return the assembly of one array of a file, whose axes are named on the command line."""
    from neuroledger.cli.lab_files import assembly_of, dims_named
    from neuroledger.data.stimuli import read_table

    name = given.source.name
    if not given.dims or (len(arrays) > 1 and given.variable is None):
        raise RequestError(
            f"{name} has arrays without named axes ({', '.join(arrays)}): give --dims stimulus,neuroid "
            "or trial,neuroid[,time_bin], and --variable for a mat file; `neuroledger start FOLDER` asks for them"
        )
    variable = given.variable or next(iter(arrays))
    if variable not in arrays:
        raise RequestError(
            f"{name} has no variable {variable!r}; it has {', '.join(arrays)}"
        )
    trials = None
    if given.trials is not None:
        trials = list(map(str, read_table(given.trials)["stimulus_id"]))
    if not ids and trials is None:
        raise RequestError(
            f"data set {id} has no stimuli, which are the rows of the array: package them first, or give --trials"
        )
    dims = dims_named(given.dims).split(",")
    return assembly_of(arrays[variable], dims, ids, trials=trials, bins=given.time_bins)


def start(
    folder: Annotated[
        Path,
        argument(
            "FOLDER",
            "folder with images and responses, with recordings of signals, or a BIDS tree",
        ),
    ],
    id: Annotated[
        str | None,
        option("--id", "ID", "id of the data set (default: name of the folder)"),
    ] = None,
    title: Annotated[
        str | None,
        option("--title", "TEXT", "title of the data set"),
    ] = None,
    models: Annotated[
        list[str] | None,
        option(
            "--model", "ID", "also score this model; may be repeated", ids=("models",)
        ),
    ] = None,
    coordinates: Annotated[
        list[str] | None,
        option(
            "--coordinate",
            "COLUMN",
            "a numeric column that is not a neuroid; may be repeated",
        ),
    ] = None,
    degrees: Degrees = None,
    out: Annotated[
        Path | None,
        option("--out", "DIR", "output folder of the pages (default: site-ID)"),
    ] = None,
    no_questions: Annotated[
        bool,
        flag("--no-questions", "report missing answers as an error instead of asking"),
    ] = False,
    yes: Annotated[
        bool,
        flag("--yes", "take the suggested answers, ask nothing, write and score"),
    ] = False,
    open_page: Annotated[bool, flag("--open", "open the page in the browser")] = False,
    license: License = None,
    access: Annotated[
        str | None,
        option(
            "--access",
            "ACCESS",
            "public, or private (scores may be shown, data values may not)",
        ),
    ] = None,
    region: Annotated[str | None, option("--region", "REGION", REGION)] = None,
    responses: Annotated[
        str | None,
        option(
            "--responses",
            "FILE",
            "file with the responses if there are several candidates, as FILE or FILE.mat:VARIABLE",
        ),
    ] = None,
    dims: Annotated[str | None, option("--dims", "DIMS", DIMS)] = None,
    order: Annotated[
        str | None,
        option(
            "--order",
            "ORDER",
            "order of the images along the array: name (im1, im10, im2) or number (im1, im2, im10)",
        ),
    ] = None,
    trials: Annotated[
        str | None,
        option(
            "--trials",
            "FILE",
            "stimulus of each trial, as FILE, FILE:COLUMN or FILE.mat:VARIABLE",
        ),
    ] = None,
    first: Annotated[
        str | None,
        option(
            "--first",
            "N",
            "number of the first stimulus (0 or 1) if trials refer to stimuli by number",
        ),
    ] = None,
    time_bins: Annotated[
        str | None,
        option(
            "--time-bins",
            "MS",
            "first and last edge of the time bins, or window for counting spikes, "
            "in ms from stimulus onset: 70:170",
        ),
    ] = None,
    task: Annotated[
        str | None,
        option("--task", "NAME", "BIDS: task to read (NAME of task-NAME)"),
    ] = None,
    events: Annotated[
        str | None,
        option(
            "--events",
            "EVENTS",
            "signals: events to decode, as DESCRIPTION=LABEL,DESCRIPTION=LABEL",
        ),
    ] = None,
    window: Annotated[
        str | None,
        option(
            "--window",
            "S",
            "signals: start and end of a window in s from its event, such as 0:1",
        ),
    ] = None,
    named: Annotated[
        str | None,
        option(
            "--named",
            "PATTERN",
            "signals in a plain folder: pattern of file names, such as 'S{subject}_{session}.edf'",
        ),
    ] = None,
    filter: Annotated[
        str | None,
        option(
            "--filter", "HZ", "signals: band to which they are filtered, such as 1:40"
        ),
    ] = None,
    json: Json = False,
    root: Annotated[
        Path | None,
        option(
            "--root",
            "FOLDER",
            "repository folder; a folder without specs/ is set up as one",
        ),
    ] = None,
) -> int:
    """Turn a folder of images and responses, or of recordings of signals, into a scored benchmark.

    Example: neuroledger start recordings --id MyLab2026 --region V4 --dims trial,image,unit

    JSON: dataset, benchmarks, suite, scores (benchmark, model, state, score, reason), page, file (the one that can be
    mailed), written, notes and next.
    """
    from neuroledger.cli.start import start as start_from

    answers = {
        "license": license,
        "access": access,
        "region": region,
        "responses": responses,
        "dims": dims,
        "order": order,
        "trials": trials,
        "first": first,
        "time_bins": time_bins,
        "task": task,
        "events": events,
        "window": window,
        "named": named,
        "filter": filter,
    }
    answer = Output(json)
    asks = sys.stdin.isatty() and not (no_questions or yes)
    started = start_from(
        folder,
        id=id,
        title=title,
        models=models or (),
        coordinates=coordinates or (),
        degrees=degrees,
        root=root,
        out=out,
        tell=answer.note,
        ask=(lambda question: input(visible(question))) if asks else None,
        yes=yes,
        **{name: value for name, value in answers.items() if value},
    )
    status = _say_started(started, answer)
    if open_page:
        import webbrowser

        webbrowser.open(started.page.resolve().as_uri())
    return status


def _say_started(started: Started, answer: Output) -> int:
    """Report what was written and scored; return the exit status."""
    for path in started.written:
        answer.wrote(path)
    rows = [_cells(record) for record in started.records]
    if not answer.json:
        say_table(("benchmark", "model", "state", "score"), rows)
        if started.by_session is not None:
            _say_sessions(started.by_session)
    # One line for each benchmark: its models mostly fail for the same reason.
    failed = {
        record.benchmark: record
        for record in started.records
        if record.status == "failed"
    }
    for record in failed.values():
        answer.line(f"failed: {record.benchmark} · {record.model}: {record.reason}")
    answer.line(f"page: {started.page}")
    answer.line(f"to mail: {started.file}")
    answer.end(
        dataset=started.dataset,
        benchmarks=started.benchmarks,
        suite=started.suite,
        scores=[plain_record(record) for record in started.records],
        page=str(started.page),
        file=str(started.file),
    )
    return FAILED if failed else SUCCESS


def _say_sessions(scores: pd.DataFrame) -> None:
    """Print a table of subject × session × pipeline for each benchmark."""
    for benchmark, part in scores.groupby("benchmark", sort=False):
        wide = part.pivot_table(
            index=["subject", "session"], columns="pipeline", values="score"
        )
        say(f"\n{benchmark}")
        rows = [
            [*map(str, session), *(f"{value:.3f}" for value in values)]
            for session, values in zip(wide.index, wide.to_numpy(), strict=True)
        ]
        say_table(("subject", "session", *map(str, wide.columns)), rows)


def _cells(record: Record) -> list[str]:
    """Return the row of a record in a table."""
    shown = "–" if record.value is None else f"{record.value:.4f}"
    return [record.benchmark, record.model, record.status, shown]


def pin(
    id: Annotated[
        str,
        argument(
            "ID",
            "id of a data set, or of a model whose weights are not pinned yet",
            ids=("datasets", "models"),
        ),
    ],
    source: Annotated[
        Path,
        option("--from", "FOLDER", "folder that contains the files"),
    ],
    url_prefix: Annotated[
        str | None,
        option(
            "--url-prefix",
            "URL",
            "URL of the same folder, so that others can fetch the files",
        ),
    ] = None,
    label: Annotated[
        str | None,
        option(
            "--label",
            "COLUMN",
            "column of participants.tsv or recordings.tsv to decode",
        ),
    ] = None,
    events: Annotated[
        list[str] | None,
        option(
            "--event", "DESCRIPTION=LABEL", "an event and its label; may be repeated"
        ),
    ] = None,
    named: Annotated[
        list[str] | None,
        option(
            "--named",
            "PATTERN",
            "pattern of the names of recordings in a plain folder, such as 'S{subject}_{run}.edf'; may be repeated",
        ),
    ] = None,
    task: Annotated[
        str | None,
        option("--task", "NAME", "read only this BIDS task"),
    ] = None,
    bids: Annotated[
        bool,
        flag("--bids", "read with mne-bids, which uses events.tsv and channels.tsv"),
    ] = False,
    renew: Annotated[
        bool,
        flag("--renew", "accept files that changed since they were pinned"),
    ] = False,
    no_check: Annotated[
        bool,
        flag(
            "--no-check",
            "do not read the files before pinning, for data too large for this machine",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        flag("--dry-run", "show the changes of the spec, write nothing"),
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Check downloaded files, place them in data/, and pin them in the spec of their data set.

    JSON: spec (its path), changes (lines of a diff), files, placed, subjects, written, notes and next.
    """
    from neuroledger.data.pin.pin import Downloads, pin_weights
    from neuroledger.data.pin.pin import pin as pin_downloads
    from neuroledger.spec.catalog import open_catalog

    form = "DESCRIPTION=LABEL, such as --event 'Stimulus/S  1=left'"
    downloads = Downloads(
        folder=source,
        url_prefix=url_prefix,
        label=label,
        events=pairs_of(events, "--event", form),
        named=tuple(named or ()),
        task=task,
        bids=bids,
        renew=renew,
        check=not no_check,
    )
    catalog = open_catalog(root)
    is_model = id in catalog.ids("models")
    pin_files = pin_weights if is_model else pin_downloads
    pinned = pin_files(catalog, id, downloads, dry_run=dry_run)
    path = catalog.shown(pinned.path)
    changes = _changes(pinned, path)
    answer = Output(json)
    _say_changes(changes, answer, all_of_them=dry_run)
    for remark in pinned.remarks:
        answer.note(remark, label="note: ")
    people = f" of {pinned.subjects} subjects" if pinned.subjects else ""
    files = f"{pinned.files} files{people}"
    if dry_run:
        answer.line(f"{files} would be pinned; nothing was written")
    elif not changes and not pinned.placed:
        answer.line(f"{files}: already pinned and in place")
    else:
        place = f"data/{'models/' * is_model}{id}/"
        answer.written.append(path)
        answer.line(f"pinned {files}, placed {pinned.placed} of them in {place}")
        further = () if is_model else (f"neuroledger validate {id}", "neuroledger run")
        answer.then(f"neuroledger check {path}", *further)
    answer.end(
        spec=path,
        changes=changes,
        files=pinned.files,
        placed=pinned.placed,
        subjects=pinned.subjects,
    )
    return SUCCESS


def _say_changes(changes: list[str], answer: Output, *, all_of_them: bool) -> None:
    limit = len(changes) if all_of_them else SHOWN_CHANGES
    for line in changes[:limit]:
        answer.line(line)
    if changes[limit:]:
        answer.line(f"… and {len(changes) - limit} more changed lines")


def _changes(pinned: Pinned, path: str) -> list[str]:
    """Return the changed lines of a spec as a diff."""
    import difflib

    before = pinned.before.splitlines()
    after = pinned.after.splitlines()
    diff = difflib.unified_diff(
        before, after, path, path, "now", "pinned", n=0, lineterm=""
    )
    return list(diff)
