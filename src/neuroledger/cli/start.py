"""Turn a folder into a scored benchmark: report what the files contain, ask for what they do not state, guess nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.cli.lab_files import (
    AXES,
    BINS,
    REGION,
    REPETITION,
    SESSION,
    Columns,
    FileContent,
    FolderContent,
    assembly_of,
    candidates,
    choices_of,
    columns_of,
    dims_named,
    first_number,
    layouts,
    names_in,
    names_stimuli,
    natural,
    reader_of,
    require_own_rows,
    spike_counts,
    stimuli_of,
    survey,
    table_assembly,
    with_region,
)
from neuroledger.cli.options import Answers
from neuroledger.cli.start_signals import (
    benchmarks_of,
    dataset_of,
    decoded,
    decoders_of,
    license_in,
    protocols_of,
    recordings_of,
)
from neuroledger.data.arrays import Array
from neuroledger.data.gate.validate import validate
from neuroledger.data.integrity import sha256_of_file
from neuroledger.data.package import (
    Terms,
    package_assembly,
    package_stimuli,
    package_trials,
)
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.data.pin.yaml_edit import spec_text
from neuroledger.display import card, choose
from neuroledger.engine.check import check
from neuroledger.engine.plan import lacking, plan
from neuroledger.engine.record import Record
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, RequestError, SpecError, require_package
from neuroledger.families.alignment.session_effects import session_effects
from neuroledger.families.decoding.results import recorded
from neuroledger.report.kept import folder_of, one_file_of
from neuroledger.report.site import build_site
from neuroledger.spec.base import sha256_of as identity_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.load import read_params
from neuroledger.store.files import write_text

__all__ = ["Started", "start"]

REFERENCES = ("gabor", "pixels16", "small_cnn.random")
FEWEST_STIMULI, FEWEST_TEST = 8, 5
# What `nl.start` and the options of the same names answer.
ANSWERS = (
    "license",
    "access",
    "region",
    "responses",
    "dims",
    "order",
    "trials",
    "first",
    "time_bins",
    "task",
    "named",
    "events",
    "window",
    "filter",
)
REGION_QUESTION = "brain region of the neuroids"
STANDARDISE = "{step: standardise, over: presentation, by: session}"


@dataclass(frozen=True)
class Started:
    """Result of :func:`start`: ids of the specs, notes, records, the first page, and the file that has all pages."""

    dataset: str
    benchmarks: tuple[str, ...]
    suite: str
    notes: tuple[str, ...]
    records: tuple[Record, ...]
    page: Path
    file: Path
    written: tuple[Path, ...] = ()
    by_session: pd.DataFrame | None = None
    """What was decoded in each session: benchmark, subject, session, pipeline, score and further columns."""

    def _rows(self) -> list[tuple[str, str]]:
        """Return what was scored and to which value, and the pages, as names and texts."""
        rows = []
        for record in self.records:
            text = record.reason if record.value is None else f"{record.value:.4g}"
            rows.append((f"{record.benchmark} · {record.model}", text))
        return [*rows, ("page", str(self.page)), ("to mail", str(self.file))]

    def __repr__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._rows()]
        return "\n".join([f"suite {self.suite}", *lines])

    def _repr_html_(self) -> str:
        return card(f"suite {self.suite}", self._rows())


@dataclass
class _Draft:
    """Data to be written, what they are in a few words, and notes on what the files contain and what was decided."""

    summary: str = ""
    notes: list[str] = field(default_factory=list)
    stimuli: pd.DataFrame | None = None
    assembly: xr.DataArray | None = None
    trials: pd.DataFrame | None = None


def start(
    folder: Path | str,
    *,
    id: str | None = None,
    title: str | None = None,
    models: Sequence[str] = (),
    coordinates: Sequence[str] = (),
    degrees: float | None = None,
    root: Path | None = None,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
    ask: Callable[[str], str] | None = None,
    yes: bool = False,
    **answers: str,
) -> Started:
    """Turn a folder of images with responses, or of signals, into a data set, benchmarks and a suite, and score models.

    A second call with the same files keeps the specs: it computes missing scores and writes the pages again. After a call
    that was interrupted before all specs were written, it writes them again.

    Parameters
    ----------
    folder
        Folder of images with responses (``npy``, ``mat``, HDF5, CSV or TSV, Parquet, NWB, netCDF) or with a table of
        choices; or a BIDS tree, or recordings of signals (EDF, BDF, FIF, EEGLAB, BrainVision).
    id, title
        Id and title of the data set; the default id is the name of the folder.
    models
        Ids of further models to score.
    coordinates
        Numeric columns of a wide table that are not neuroids.
    degrees
        Size of the images in degrees of visual angle; not declared by default.
    root
        Folder of the repository; a folder without ``specs/`` is set up as one. The default is the repository that contains
        the working directory.
    out
        Output folder of the pages; the default is ``site-<id>`` in the repository.
    tell, ask
        Called with each note, and with each question; without ``ask``, a missing answer is an error. A wrong answer is
        asked for again.
    yes
        Take every answer that is suggested with a question, and write without asking.
    answers
        ``license``, ``access``, ``region``, ``responses``, ``dims``, ``order``, ``trials``, ``first``, ``time_bins``; for
        recordings of signals ``task``, ``named``, ``events``, ``window``, ``filter``.

    Raises
    ------
    RequestError
        Answers are missing (the message lists all of them), or the data set exists and was made from other files.
    DataError, AssemblyError
        A file cannot be read, or the files contradict each other.
    """
    unknown = sorted(set(answers) - set(ANSWERS))
    if unknown:
        raise RequestError(
            f"nl.start has no argument {unknown[0]!r}; the answers are {', '.join(ANSWERS)}"
        )
    folder = Path(folder)
    content = survey(folder, _named_files(answers))
    id = id or _id_of(folder)
    catalog = _repository(root, id)
    is_signals = content.recordings or bool(content.signals and not content.images)
    made_from = _fingerprint(content)
    goal = _Goal(id, title, made_from, tuple(models), out, tell, is_signals)
    if _is_made(catalog, goal):
        tell(f"data set {id} was already made from these files; its specs are kept")
        return _score(catalog, goal, notes=catalog.dataset(id).notes, written=())
    catalog = _without_remains(catalog, goal)
    replies = Answers({key: text for key, text in answers.items() if text}, ask, yes)
    if is_signals:
        return _start_signals(catalog, content, replies, goal)
    return _start_images(catalog, content, replies, goal, coordinates, degrees)


@dataclass(frozen=True)
class _Goal:
    """What becomes of a folder: id and title of its data set, SHA-256 of its files, models to score, and the pages.

    ``signals`` is whether labels are decoded from signals.
    """

    id: str
    title: str | None
    made_from: str
    models: tuple[str, ...]
    out: Path | None
    tell: Callable[[str], None]
    signals: bool


def _named_files(answers: Mapping[str, str]) -> list[str]:
    """Return the files that the answers name, which are then the only ones read."""
    if not answers.get("responses"):
        return []
    named = (answers.get("responses"), answers.get("trials"))
    return [name.partition(":")[0] for name in named if name]


def _id_of(folder: Path) -> str:
    """Return the id that follows from the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.") or "mine"


def _is_made(catalog: Catalog, goal: _Goal) -> bool:
    """Return whether an earlier call wrote all specs from the same files.

    Raises
    ------
    RequestError
        The data set or the suite exists and is another one.
    """
    id = goal.id
    if not catalog.has("datasets", id):
        if catalog.has("suites", id):
            raise RequestError(f"suite {id!r} already exists: give another --id")
        return False
    if catalog.dataset(id).made_from != goal.made_from:
        raise RequestError(
            f"data set {id!r} exists and was not made from these files by this command: give another --id, or "
            f"edit specs/datasets/{id}.yaml and use `neuroledger package`"
        )
    # The suite is written last.
    return catalog.has("suites", id)


def _without_remains(catalog: Catalog, goal: _Goal) -> Catalog:
    """Remove the data set of an earlier call that was interrupted, which may lack its stimuli."""
    if not catalog.has("datasets", goal.id):
        return catalog
    goal.tell(
        f"data set {goal.id} was made by a call that was interrupted; its specs are written again"
    )
    catalog.entry("datasets", goal.id).path.unlink()
    return open_catalog(catalog.root)


def _start_images(
    catalog: Catalog,
    content: FolderContent,
    replies: Answers,
    goal: _Goal,
    coordinates: Sequence[str],
    degrees: float | None,
) -> Started:
    """Turn images with responses or choices into a data set, benchmarks and a suite, and score models."""
    id = goal.id
    tell = goal.tell
    draft = _draft(content, replies, coordinates)
    license, access = _terms(replies)
    found = [draft.summary, *draft.notes]
    replies.require(found)
    for note in found:
        tell(note)
    benchmarks = _benchmarks(id, draft, degrees)
    tell(
        f"writes data set {id}, benchmarks {', '.join(benchmarks)} and suite {id} into {catalog.root}"
    )
    replies.agree()
    seen: Literal["public", "private"] = "private" if access == "private" else "public"
    terms = Terms(
        reader_of,
        license,
        seen,
        goal.title or draft.summary,
        tuple(draft.notes),
        {"made_from": goal.made_from}
        | ({"degrees": degrees} if degrees is not None else {}),
    )
    written = _package(catalog, id, content.folder, draft, terms)
    written += [
        _write_spec(catalog, "benchmark", name, fields)
        for name, fields in benchmarks.items()
    ]
    suite = {
        "title": f"Benchmarks of {id}",
        "benchmarks": list(benchmarks),
        "models": [*_usable(open_catalog(catalog.root), goal, benchmarks), "noise"],
    }
    written.append(_write_spec(catalog, "suite", id, suite))
    return _score(open_catalog(catalog.root), goal, notes=found, written=written)


def _terms(replies: Answers, stated: str = "") -> tuple[str, str]:
    """Return the licence of the data, and who may see them; the suggestions permit no more than is stated."""
    suggestion = stated or "LicenseRef-unstated"
    question = "licence of the data (SPDX)"
    license = replies.get("license", question, suggestion=suggestion)
    who = ("public", "private")
    access = replies.get("access", "who may see data values", who, suggestion="private")
    return license, access


def _package(
    catalog: Catalog, id: str, folder: Path, draft: _Draft, terms: Terms
) -> list[Path]:
    """Write the data set: responses or choices, then the stimuli."""
    written: list[Path] = []
    if draft.assembly is not None:
        written += package_assembly(catalog, id, draft.assembly, terms)
    elif draft.trials is not None:
        written += package_trials(catalog, id, draft.trials, terms)
    if draft.stimuli is not None:
        fresh = open_catalog(catalog.root)
        known = Terms(reader_of)
        written += package_stimuli(fresh, id, draft.stimuli, folder, known)
    return written


def _usable(catalog: Catalog, goal: _Goal, benchmarks: Iterable[str]) -> list[str]:
    """Return the reference models and those asked for that answer at least one of the benchmarks."""
    return [
        model
        for model in dict.fromkeys((*REFERENCES, *goal.models))
        if catalog.has("models", model)
        and not all(lacking(catalog, model, name) for name in benchmarks)
    ]


def _repository(root: Path | None, suite: str) -> Catalog:
    """Open the catalogue of the repository; set up a repository in ``root`` if that has no specs."""
    if root is not None and not (root / "specs").is_dir():
        root.mkdir(parents=True, exist_ok=True)
        write_text(root / "params.yaml", f"suite: {suite}\n")
        write_text(root / "dvc.yaml", "stages: {}\n")
        if not (root / ".dvc").exists():
            _init_dvc(root)
        # This is last, so that an interrupted call is not taken for a repository that is set up.
        (root / "specs").mkdir()
    try:
        return open_catalog(root)
    except RequestError as error:
        raise RequestError(f"{error}; --root . makes one of this folder") from error


def _init_dvc(root: Path) -> None:
    """Set up DVC in a folder, which may be in a repository of git."""
    require_package("dvc")
    flags: list[str] = []
    if not (root / ".git").exists():
        inside = any((above / ".git").exists() for above in root.resolve().parents)
        flags.append("--subdir" if inside else "--no-scm")
    command = [sys.executable, "-P", "-m", "dvc", "init", "--quiet", *flags]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DataError(f"`dvc init` failed in {root}: {done.stderr.strip()[-200:]}")


def _fingerprint(content: FolderContent) -> str:
    """Return one SHA-256 of the names and bytes of all files of a folder."""
    files = (
        path
        for path in sorted(content.folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    )
    return identity_of(
        {
            path.relative_to(content.folder).as_posix(): sha256_of_file(path)
            for path in files
        }
    )


def _write_spec(
    catalog: Catalog, kind: str, id: str, fields: Mapping[str, Any]
) -> Path:
    """Write a new spec file and return its path; an existing file with another text is an error."""
    path = catalog.root / "specs" / f"{kind}s" / f"{id}.yaml"
    has_schemas = (catalog.root / "specs" / "schema").is_dir()
    text = spec_text(kind, {"id": id, "version": 1, **fields}, schema=has_schemas)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise RequestError(f"{kind} {id!r} already exists: give another --id")
    write_text(path, text)
    return path


# A vector of a file, with its name.
_Vector = tuple[str, Array]


@dataclass(frozen=True)
class _Reading:
    """What is known while a folder is read: its content, the ids of its images, the answers, and the draft."""

    content: FolderContent
    ids: Sequence[str]
    answers: Answers
    draft: _Draft

    def note(self, text: str) -> None:
        """Note a fact or a decision."""
        self.draft.notes.append(text)


def _draft(
    content: FolderContent, answers: Answers, coordinates: Sequence[str]
) -> _Draft:
    """Return the stimuli and responses of the files in the conventions of this project."""
    draft = _Draft()
    source = _source(content, answers)
    if source is None:
        draft.summary = f"{len(content.images)} images"
        return draft
    name, file, variable = source
    table, _ = _stimulus_table(content)
    reading = _Reading(content, list(table["stimulus_id"]), answers, draft)
    if file.assembly is not None:
        draft.assembly = file.assembly
    elif file.table is not None:
        _read_table(reading, name, file.table, coordinates)
    else:
        draft.assembly = _array(reading, name, variable, file)
    if draft.trials is not None:
        _add_stimuli(draft, table, draft.trials["stimulus_id"].to_numpy())
        _divide(draft)
    elif draft.assembly is not None:
        _add_stimuli(draft, table, draft.assembly["stimulus_id"].values)
        _describe_responses(draft, draft.assembly, answers)
    else:
        draft.summary = f"{len(reading.ids)} images"
    return draft


def _source(
    content: FolderContent, answers: Answers
) -> tuple[str, FileContent, str] | None:
    """Return what contains the responses: its address, file and variable; None if it is not known.

    Raises
    ------
    RequestError
        The folder has no images, or no responses.
    """
    if not content.images:
        raise RequestError(
            f"{content.folder} contains neither images (png, jpg, bmp, tif) nor a BIDS tree (dataset_description.json and "
            "sub-*): add the images that were presented"
        )
    sources = {name: (name, file, part) for name, file, part in candidates(content)}
    if len(sources) > 1 or answers.given.get("responses", ""):
        question = "which file contains the responses"
        return sources.get(answers.get("responses", question, list(sources)))
    if not sources:
        files = "; ".join(map(_describe_file, content.files)) or "no table or array"
        raise RequestError(
            f"{content.folder} has {len(content.images)} images and no responses (found {files}): responses are an array of "
            "2 to 4 axes (npy, npz, mat, HDF5, netCDF), or a table with a column that names the images (stimulus_id) "
            "and numeric columns"
        )
    return next(iter(sources.values()))


def _read_table(
    reading: _Reading, name: str, table: pd.DataFrame, coordinates: Sequence[str]
) -> None:
    """Read the choices or the responses of a table into the draft."""
    columns = columns_of(table, reading.ids, coordinates)
    if columns is None:
        raise DataError(f"{name} has no column that names the images")
    require_own_rows(table, columns, name)
    values = table[columns.stimulus].to_numpy()
    ordered, first = _numbered(reading, values)
    if reading.answers.missing:
        named = {str(column).lower() for column in table}
        if columns.kind != "choices" and not named & set(REGION):
            reading.answers.get("region", REGION_QUESTION)
        return
    stimuli = stimuli_of(values, ordered, first, f"{name}: column {columns.stimulus!r}")
    if columns.kind == "choices":
        reading.draft.trials = choices_of(table, columns, stimuli)
        return
    assembly = table_assembly(table, columns, stimuli)
    reading.draft.assembly = assembly
    _note_columns(reading, name, table, columns, assembly)


def _note_columns(
    reading: _Reading,
    name: str,
    table: pd.DataFrame,
    columns: Columns,
    assembly: xr.DataArray,
) -> None:
    """Note what the columns of a table mean, and which of them are left out."""
    used = {columns.stimulus, columns.neuroid, columns.value, *columns.wide}
    used |= {*map(str, assembly.coords)}
    renamed = {*REPETITION, *SESSION}
    renamed |= set(REGION) if "region" in assembly.coords else set()
    rest = sorted(set(map(str, table)) - used)
    dropped = [column for column in rest if column.lower() not in renamed]
    if dropped:
        reading.note(
            f"columns that differ between presentations of one image are left out: {', '.join(dropped)}"
        )
    if "region" in assembly.coords and "region" not in table:
        reading.note(f"{name}: a column states the region of each neuroid")
    kind = f"one column per neuroid ({_span(columns.wide)})"
    kind = "one row per value" if columns.kind == "long" else kind
    reading.note(f"{name}: {kind}; column {columns.stimulus!r} names the image")


def _add_stimuli(draft: _Draft, table: pd.DataFrame, recorded: Array) -> None:
    """Add the images that have responses to the draft; a note counts the others."""
    named = set(map(str, recorded))
    missing = sorted(named - set(table["stimulus_id"]))
    if missing:
        raise DataError(
            f"{len(missing)} stimuli of the responses have no image, the first is {missing[0]!r}: add or rename images"
        )
    presented = table[table["stimulus_id"].isin(named)].reset_index(drop=True)
    if len(presented) < len(table):
        draft.notes.append(
            f"{len(table) - len(presented)} images have no responses and are left out"
        )
    draft.stimuli = presented


def _describe_responses(
    draft: _Draft, assembly: xr.DataArray, answers: Answers
) -> None:
    """Name the region of the responses, and note their numbers and their sessions."""
    assert draft.stimuli is not None
    region = answers.given.get("region", "")
    if "region" not in assembly.coords:
        region = answers.get("region", REGION_QUESTION)
    assembly = with_region(assembly, region)
    draft.assembly = assembly
    counts = pd.Series(assembly["stimulus_id"].values).value_counts()
    fewest = counts.min()
    most = counts.max()
    times = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    draft.summary = f"{len(draft.stimuli)} images, {assembly.sizes['neuroid']} neuroids, {times} presentations of each image"
    draft.notes += _notes_on_sessions(assembly)


def _mixes_sessions(assembly: xr.DataArray) -> bool:
    """Return whether presentations of one stimulus are from several sessions."""
    if "session" not in assembly.coords or assembly["session"].dims != (
        "presentation",
    ):
        return False
    sessions = (
        pd.Series(assembly["session"].values)
        .groupby(assembly["stimulus_id"].values)
        .nunique()
    )
    return bool((sessions > 1).any())


def _notes_on_sessions(assembly: xr.DataArray) -> list[str]:
    """Return what the sessions of repeated presentations do to the responses, and which step removes it."""
    if not _mixes_sessions(assembly):
        return []
    effects = session_effects(assembly)
    if effects is None or not effects.differ:
        return [
            "repetitions of an image are from several sessions, which do not differ by more than chance"
        ]
    return [
        f"responses differ between the {effects.sessions} sessions by more than chance: the mean of {effects.means} and the "
        f"spread of {effects.spreads} of {effects.neuroids} neuroids. To remove this, write `{STANDARDISE}` as the first "
        "step under `prepare` of each benchmark, if sessions do not differ in what was shown"
    ]


def _describe_file(file: FileContent) -> str:
    """Return the name of a file with its columns, or with its arrays and their shapes."""
    if file.table is not None:
        return f"{file.path.name} with columns {_span(list(map(str, file.table)))}"
    shapes = [
        f"{name} {' × '.join(map(str, values.shape))}"
        for name, values in file.arrays.items()
    ]
    return f"{file.path.name} with {_ends(shapes) if shapes else 'no numeric array'}"


def _span(names: Sequence[str]) -> str:
    if len(names) < 4:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]}, {len(names)} columns"


def _stimulus_table(content: FolderContent) -> tuple[pd.DataFrame, bool]:
    """Return one row per image, in the order of a table that names every image once, and whether there is such a table."""
    table = pd.DataFrame({"stimulus_id": content.ids, "filename": content.images})
    for path, column, file_table in _tables_of_stimuli(content, content.ids):
        values = file_table[column].to_numpy()
        if len(values) != len(table) or not names_stimuli(values, content.ids):
            continue
        stimuli = stimuli_of(values, content.ids, None, path)
        if sorted(stimuli) == sorted(content.ids):
            others = {"filename"} & set(file_table)
            rest = file_table.drop(columns=[column, *others])
            rest.insert(0, "stimulus_id", stimuli)
            return rest.merge(table, on="stimulus_id"), True
    return table, False


def _tables_of_stimuli(
    content: FolderContent, ids: Sequence[str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each table with a row per image: its path in the folder, the column that names the image, and the table."""
    for file in content.files:
        columns = None if file.table is None else columns_of(file.table, ids)
        if file.table is not None and columns is not None and columns.kind == "stimuli":
            path = file.path.relative_to(content.folder).as_posix()
            yield path, columns.stimulus, file.table


def _numbered(reading: _Reading, values: Array) -> tuple[list[str], int | None]:
    """Return the images in the order of their numbers, and the first number; None if stimuli are not numbered."""
    ids = reading.ids
    answers = reading.answers
    if values.dtype.kind not in "iuf" or set(map(str, values.tolist())) <= set(ids):
        return list(ids), None
    ordered = _in_order(reading)
    first = first_number(values, len(ids))
    if first is None or "first" in answers.given:
        first = int(
            answers.get("first", "number of the first stimulus", ("0", "1")) or 0
        )
    reading.note(f"images are numbered from {first}")
    return ordered, first


def _in_order(reading: _Reading) -> list[str]:
    """Return the images in the order that the rows of an array, or numbers, refer to: that of a table, or an answer."""
    ids = reading.ids
    if _stimulus_table(reading.content)[1]:
        return list(ids)
    if sorted(ids) == natural(ids) and "order" not in reading.answers.given:
        return sorted(ids)
    by_name = _ends(sorted(ids))
    by_number = _ends(natural(ids))
    question = f"order of the images: by name {by_name}; by number {by_number}"
    key = reading.answers.get(
        "order", question, ("name", "number"), suggestion="number"
    )
    ordered = natural(ids) if key == "number" else sorted(ids)
    if key:
        reading.note(f"images are ordered by {key}: {_ends(ordered)}")
    return ordered


def _ends(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (f", …, {ids[-1]}" if len(ids) > 3 else "")


def _array(
    reading: _Reading, name: str, variable: str, file: FileContent
) -> xr.DataArray | None:
    """Return the assembly of an array, whose axes follow from its shape and axis names or from an answer.

    Without a ``variable``, the array is one of counts of spikes. None if an answer is missing; all are asked for first.
    """
    answers = reading.answers
    bins = ""
    onset = ""
    if variable:
        shape = file.arrays[variable].shape
        images, names, areas = names_in(file.arrays, reading.ids, shape)
    else:
        onset, bins = _spike_window(reading, file.arrays)
        shape = (len(file.arrays.get(onset, ())), len(file.arrays["ends"]))
        _, names, areas = names_in(_of_units(file), (), shape)
        images = []
    rows, trials = _rows(reading, name, variable, shape, images)
    neuroids = _described(reading, [*areas, *filter(_names_neuroids, names)])
    dims = _dims(reading, name, variable, file, shape, rows, trials, neuroids)
    if "time_bin" in (dims or ()):
        question = "first and last edge of the time bins in ms"
        bins = answers.get("time_bins", question, read=_two_ends)
    ordered = rows or (list(reading.ids) if trials else _in_order(reading))
    if len(areas) != 1:
        answers.get("region", REGION_QUESTION)
    if answers.missing or dims is None:
        return None
    if variable:
        values = file.arrays[variable]
    else:
        values = spike_counts(file.arrays, onset, bins)
        reading.note(f"{name}: spikes in {bins} ms after {onset}")
    count = dict(zip(dims, shape, strict=True)).get("neuroid")
    return assembly_of(
        values,
        dims,
        ordered,
        trials=trials,
        bins=bins,
        neuroids=_labels(reading, names, count, "names the neuroids"),
        regions=_labels(reading, areas, count, "gives the region of each neuroid"),
    )


def _names_neuroids(vector: _Vector) -> bool:
    """Return whether the name of a vector says that it is about neuroids, such as ``data.unit_id``."""
    return AXES.get(vector[0].rpartition(".")[2].lower()) == "neuroid"


def _described(reading: _Reading, vectors: Sequence[_Vector]) -> int | None:
    """Return the number of neuroids that vectors about neuroids describe; None if it may as well be that of the images."""
    lengths = {len(values) for _, values in vectors}
    is_clear = len(lengths) == 1 and len(reading.ids) not in lengths
    return lengths.pop() if is_clear else None


def _of_units(file: FileContent) -> dict[str, Array]:
    """Return the columns of a file's table of units."""
    return {
        name: values
        for name, values in file.arrays.items()
        if name.startswith("units.")
    }


def _two_ends(text: str) -> str:
    """Return a text that names two ends, such as ``70:170``.

    Raises
    ------
    RequestError
        It is another text.
    """
    ends = BINS.fullmatch(text)
    if ends is None or float(ends[2]) <= float(ends[1]):
        raise RequestError("give two ends, the later one second, such as 70:170")
    return text


def _spike_window(reading: _Reading, arrays: Mapping[str, Array]) -> tuple[str, str]:
    """Return the column with the starts of trials, and the window after them in which spikes are counted."""
    onsets = [column for column in arrays if column.endswith(".start_time")]
    onset = onsets[0] if len(onsets) == 1 else ""
    if not onset:
        onset = reading.answers.get("trials", "intervals of the trials", onsets)
        # The answer names a table of intervals, not the stimulus of each trial.
        reading.answers.given.pop("trials", None)
    question = "window for counting spikes, in ms from the start of a trial"
    return onset, reading.answers.get("time_bins", question, read=_two_ends)


def _rows(
    reading: _Reading,
    name: str,
    variable: str,
    shape: Sequence[int],
    images: Sequence[_Vector],
) -> tuple[list[str] | None, list[str] | None]:
    """Return the image of each row of an array, and the image of each trial; None for what the array does not have."""
    given = reading.answers.given
    stated = _stated_dims(reading.answers)
    ordered = None
    may_be_ordered = "trial" not in stated and (
        "trials" not in given or "stimulus" in stated
    )
    if variable and may_be_ordered:
        ordered = _row_order(reading, images, name, shape)
    if ordered or "stimulus" in stated:
        return ordered, None
    return None, _trials(reading, variable, shape)


def _stated_dims(answers: Answers) -> list[str]:
    """Return the axes that were stated in advance, in the words of assemblies."""
    text = answers.given.get("dims", "")
    return dims_named(text).split(",") if text else []


def _dims(
    reading: _Reading,
    name: str,
    variable: str,
    file: FileContent,
    shape: Sequence[int],
    rows: list[str] | None,
    trials: list[str] | None,
    neuroids: int | None,
) -> tuple[str, ...] | None:
    """Return the axes of an array: the only ones that its shape allows, or an answer; None if that is missing."""
    answers = reading.answers
    ids = reading.ids
    options: Sequence[tuple[str, ...]] = [("trial", "neuroid")]
    if variable:
        count = len(trials) if trials else None
        axes = file.axes.get(variable, ())
        options = layouts(shape, len(rows or ids), count, axes, neuroids)
    size = " × ".join(map(str, shape))
    if not options:
        answers.get(
            "trials",
            f"{name} has the shape {size}, and there are {len(ids)} images: which file names the image of each trial",
        )
        return None
    dims = options[0]
    if len(options) > 1 or "dims" in answers.given:
        texts = [",".join(option) for option in options]
        question = f"axes of {name} ({size})"
        answer = answers.get("dims", question, texts, read=dims_named)
        if not answer:
            return None
        dims = tuple(answer.split(","))
    reading.note(f"{name}: {size} is {' × '.join(dims)}")
    return dims


def _labels(
    reading: _Reading, vectors: Sequence[_Vector], count: int | None, meaning: str
) -> list[str]:
    """Return the one vector that has a label for each neuroid, and note it; no labels if there are none or several."""
    fitting = [(name, values) for name, values in vectors if len(values) == count]
    if len(fitting) != 1:
        return []
    ((name, values),) = fitting
    reading.note(f"{name} {meaning}")
    return list(map(str, values))


def _row_order(
    reading: _Reading, images: Sequence[_Vector], name: str, shape: Sequence[int]
) -> list[str] | None:
    """Return the image of each row of an array, from a list that names every image at most once; None without one.

    Such a list is an order of images, whether it is a column of a table or one of ``images``, vectors beside the array. A
    list as long as no axis is left unused, and a note says so.
    """
    lists = {key: stimuli_of(values, reading.ids, None, name) for key, values in images}
    lists |= dict(_listed_orders(reading, name, shape))
    chosen = reading.answers.given.get("trials", "")
    keys = [key for key in lists if not chosen or _is_address(chosen, key)]
    if not keys:
        return None
    key = keys[0]
    if any(lists[other] != lists[key] for other in keys):
        question = "which of these names the images in their order"
        key = reading.answers.get("trials", question, keys)
    if not key:
        return None
    reading.note(f"{key} names the image of each row: {_ends(lists[key])}")
    return lists[key]


def _is_address(chosen: str, key: str) -> bool:
    """Return whether an answer means a column or vector ``FILE:NAME``, or the file that contains it."""
    return chosen in (key, key.partition(":")[0])


def _listed_orders(
    reading: _Reading, name: str, shape: Sequence[int]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each column of a table that names every image at most once and is as long as an axis of the array."""
    ids = reading.ids
    for path, column, table in _tables_of_stimuli(reading.content, ids):
        values = table[column].to_numpy()
        if values.dtype.kind in "iuf" or not names_stimuli(values, ids):
            continue
        named = stimuli_of(values, ids, None, path)
        if len(named) not in shape and len(named) != len(ids):
            size = " × ".join(map(str, shape))
            reading.note(
                f"{path} names an image in each of {len(named)} rows, and no axis of {name} ({size}) has this length: it is "
                "not used"
            )
        elif len(named) in shape and len(set(named)) == len(named):
            yield f"{path}:{column}", named


def _trials(reading: _Reading, variable: str, shape: Sequence[int]) -> list[str] | None:
    """Return the stimulus of each trial from a column or vector as long as an axis; None if that axis is the images."""
    fits = {
        key: values
        for key, values in _vectors(reading, variable)
        if len(values) in shape and _name_images(values, reading.ids)
    }
    keys = _chosen(fits, reading.answers.given.get("trials", ""))
    if not keys or _are_orders(reading, shape, [fits[key] for key in keys]):
        return None
    key = keys[0]
    if len(keys) > 1:
        question = "which of these names the image of each trial"
        key = reading.answers.get("trials", question, keys)
    if not key:
        return None
    open_questions = len(reading.answers.missing)
    ordered, first = _numbered(reading, fits[key])
    if len(reading.answers.missing) > open_questions:
        # Nothing is assembled without the answer, but the number of trials is known.
        return [str(value) for value in fits[key]]
    reading.note(f"{key} names the image of each of {len(fits[key])} trials")
    return stimuli_of(fits[key], ordered, first, key)


def _chosen(fits: Mapping[str, Array], chosen: str) -> list[str]:
    """Return the addresses that an answer means, or all without an answer.

    Raises
    ------
    RequestError
        The answer means none.
    """
    keys = [key for key in fits if not chosen or _is_address(chosen, key)]
    if chosen and not keys:
        raise RequestError(
            f"--trials {chosen!r} does not name a stimulus for each trial; possible values: {', '.join(fits) or 'none'}"
        )
    return keys


def _vectors(reading: _Reading, variable: str) -> Iterator[tuple[str, Array]]:
    """Yield each column and vector that may name the stimulus of each trial, with its address."""
    content = reading.content
    for path, column, table in _tables_of_stimuli(content, reading.ids):
        yield f"{path}:{column}", table[column].to_numpy()
    for file in content.files:
        path = file.path.relative_to(content.folder).as_posix()
        of_units = {*_of_units(file), "spike_times", "ends"}
        for key, values in file.arrays.items():
            is_named = values.ndim == 1 and key != variable
            if is_named and not key.endswith("_time") and key not in of_units:
                yield f"{path}:{key}", values


def _are_orders(
    reading: _Reading, shape: Sequence[int], vectors: Sequence[Array]
) -> bool:
    """Return whether vectors that name every image once are orders of images, because no answer says otherwise."""
    ids = sorted(reading.ids)
    given = reading.answers.given
    stated = "trial" in _stated_dims(reading.answers)
    if given.get("trials") or stated or len(ids) not in shape:
        return False
    return all(sorted(map(str, values)) == ids for values in vectors)


def _name_images(values: Array, ids: Sequence[str]) -> bool:
    """Return whether values are ids of images, or can be their numbers."""
    if names_stimuli(values, ids):
        return True
    integers = values.dtype.kind in "iuf" and bool((values == np.round(values)).all())
    return integers and values.min() >= 0 and values.max() <= len(ids)


def _divide(draft: _Draft) -> None:
    """Divide the stimuli of a table of choices: every second image of a label fits the readout, the others are tested."""
    trials = draft.trials
    stimuli = draft.stimuli
    if trials is None or stimuli is None:
        return
    if "truth" not in trials:
        label = next(
            (name for name in ("object_name", "category", "label") if name in stimuli),
            None,
        )
        if label is None:
            raise RequestError(
                "choices have no correct answers: add a column truth (or category, label) to the trials or the images"
            )
        trials["truth"] = trials["stimulus_id"].map(
            stimuli.set_index("stimulus_id")[label]
        )
    truth = (
        trials.drop_duplicates("stimulus_id")
        .set_index("stimulus_id")["truth"]
        .astype(str)
    )
    stimuli["object_name"] = stimuli["stimulus_id"].map(truth)
    parity = stimuli.groupby("object_name").cumcount() % 2
    stimuli["split"] = np.where(parity == 0, "train", "test")
    tested = set(stimuli["stimulus_id"][stimuli["split"] == "test"])
    draft.trials = trials[trials["stimulus_id"].isin(tested)].reset_index(drop=True)
    if draft.trials.empty or stimuli["object_name"].nunique() < 2:
        raise RequestError(
            "choices need at least two labels, and at least two images of a label: one half of the images fits a readout"
        )
    subjects = draft.trials["subject"].nunique()
    labels = stimuli["object_name"].nunique()
    draft.summary = (
        f"{len(stimuli)} images of {labels} labels, choices of {subjects} subjects"
    )
    draft.notes.append(
        "every second image of each label fits the readout of a model; choices on the other images are compared"
    )


def _benchmarks(
    id: str, draft: _Draft, degrees: float | None
) -> dict[str, dict[str, Any]]:
    """Return the fields of the benchmarks that these data allow, by id."""
    size = {"visual_degrees": degrees} if degrees is not None else {}
    if draft.trials is not None:
        several = draft.trials["subject"].nunique() > 1
        return {f"{id}.naming": _naming(id, size, several_subjects=several)}
    if draft.assembly is None:
        return {}
    return dict(_predictions(id, draft.assembly, size))


def _naming(
    id: str, size: Mapping[str, float], *, several_subjects: bool
) -> dict[str, Any]:
    """Return the benchmark of choices: errors of a readout, compared with those of people."""
    paradigm = {
        "name": "task",
        "decide": "probabilities",
        "label_column": "object_name",
        "fitting": {"split": "train"},
    }
    return {
        "title": "Does a readout of the model err on the images that people err on",
        "parent": "behavior",
        "dataset": id,
        "paradigm": {**paradigm, **size},
        "metrics": ["error_consistency", "accuracy"],
        **({"ceiling": "error_consistency"} if several_subjects else {}),
        "controls": {"negative": ["noise"], "floor_at_most": 0.25},
    }


def _predictions(
    id: str, assembly: xr.DataArray, size: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the benchmarks of responses: for each region a prediction, and dissimilarities if these can be computed."""
    in_time = "time_bin" in assembly.dims
    train = _training_share(len(np.unique(assembly["stimulus_id"].values)))
    repeated = (pd.Series(assembly["stimulus_id"].values).value_counts() > 1).all()
    # Presentations are averaged if they differ in nothing except their repetition.
    drop = {"prepare": [{"step": "drop", "coords": ["session"]}]}
    prepare = drop if _mixes_sessions(assembly) else {}
    controls = {"controls": {"negative": ["noise"]}}
    regions = assembly["region"].values.astype(str)
    for region in dict.fromkeys(map(str, regions)):
        count = int((regions == region).sum())
        common = {
            "parent": region,
            "dataset": id,
            "select": {"region": region},
            "paradigm": {"name": "recording", "region": region, **size, **prepare},
        }
        place = f"{id}.{re.sub(r'[^A-Za-z0-9._-]+', '-', region)}"
        title = f"{count} neuroids of {region}, predicted by ridge regression"
        suffix = "_temporal" if in_time else ""
        ceiling = {"ceiling": f"internal_consistency{suffix}"} if repeated else {}
        metric = _ridge(train, in_time=in_time)
        fields = {"title": title, **common, "metric": metric}
        yield f"{place}-ridge", {**fields, **ceiling, **controls}
        if count > 1 and not in_time:
            title = f"{count} neuroids of {region}, compared by their dissimilarities"
            ceiling = {"ceiling": "rdm_consistency"} if repeated else {}
            fields = {"title": title, **common, "metric": "rdm"}
            yield f"{place}-rdm", {**fields, **ceiling, **controls}


def _training_share(stimuli: int) -> float:
    """Return the share of stimuli that a regression is fitted to, so that enough are left to test it.

    Raises
    ------
    RequestError
        There are too few stimuli.
    """
    if stimuli < FEWEST_STIMULI:
        raise RequestError(
            f"{stimuli} stimuli are too few for a cross-validated prediction: at least {FEWEST_STIMULI} are needed"
        )
    for share in (0.9, 0.8, 0.7):
        if stimuli * (1 - share) >= FEWEST_TEST:
            return share
    return 0.5


def _ridge(train: float, *, in_time: bool) -> str | dict[str, Any]:
    """Return the metric that predicts responses, fitted to this share of the stimuli."""
    splits = {"splits": {"train": train}}
    if in_time:
        return {"name": "spantime_ridge", "time": "separate", **splits}
    if train == 0.9:
        return "ridgecv"
    return {"name": "ridgecv", **splits}


def _start_signals(
    catalog: Catalog, content: FolderContent, answers: Answers, goal: _Goal
) -> Started:
    """Turn recordings of signals into benchmarks that decode the labels of events from windows around them; score them."""
    id = goal.id
    recordings = recordings_of(content, answers)
    what = None if recordings is None else decoded(recordings, answers)
    license, access = _terms(answers, license_in(content))
    files = [f"{len(content.signals)} recordings"] if content.signals else []
    answers.require(files if recordings is None else recordings.notes)
    assert recordings is not None and what is not None
    begin, end = what.window
    said = f"events {answers.given['events']}, windows from {begin:g} to {end:g} s"
    band = "not filtered"
    if what.band is not None:
        band = f"filtered to {what.band[0]:g} to {what.band[1]:g} Hz"
    splits = ", ".join(protocols_of(recordings))
    notes = [*recordings.notes, f"{said}, signals {band}; splits {splits}"]
    for note in notes:
        goal.tell(note)
    answers.agree()
    fields = {
        "title": goal.title or notes[0],
        "license": license,
        "access": access,
        **dataset_of(id, recordings, what),
        "notes": notes[1:],
        "made_from": goal.made_from,
        "unavailable": "not pinned yet",
    }
    dataset = _write_spec(catalog, "dataset", id, fields)
    downloads = Downloads(
        folder=content.folder,
        bids=content.recordings,
        task=answers.given.get("task"),
        named=tuple(recordings.reader.get("named", ())),
    )
    try:
        pin(open_catalog(catalog.root), id, downloads)
    except Exception:
        dataset.unlink()
        raise
    benchmarks = benchmarks_of(id, recordings, what)
    written = [dataset]
    written += [
        _write_spec(catalog, "benchmark", name, fields)
        for name, fields in benchmarks.items()
    ]
    suite = {
        "title": f"Decoding of {id}",
        "benchmarks": list(benchmarks),
        "models": decoders_of(catalog, goal.models),
    }
    written.append(_write_spec(catalog, "suite", id, suite))
    return _score(open_catalog(catalog.root), goal, notes=notes, written=written)


def _score(
    catalog: Catalog, goal: _Goal, *, notes: Sequence[str], written: Sequence[Path]
) -> Started:
    """Check the specs, validate the data, compute missing scores and write the pages."""
    id = goal.id
    suite = catalog.suite(goal.id)
    benchmarks = tuple(item.id for item in suite.benchmarks)
    _require_valid(catalog, id, benchmarks)
    params = read_params(catalog.root)
    request = Request(seed=params.seed, device=params.device)
    scored = list(dict.fromkeys((*suite.models, *goal.models)))
    planned = plan(catalog, models=scored, suites=[suite], request=request)
    for note in planned.notes():
        goal.tell(note)
    with choose() as display:
        outcomes = run_jobs(
            catalog, planned.jobs, request, display, retry_failed=bool(written)
        )
    folder = goal.out or catalog.root / folder_of(id)
    build_site(catalog, id, folder, alone=True)
    records = tuple(done.record for done in outcomes)
    page = folder / "index.html"
    file = folder / one_file_of(id)
    sessions = _by_session(catalog.root, benchmarks) if goal.signals else None
    return Started(
        id, benchmarks, id, tuple(notes), records, page, file, tuple(written), sessions
    )


def _by_session(root: Path, benchmarks: Sequence[str]) -> pd.DataFrame | None:
    """Return the scores within each session; None if no predictions are stored."""
    parts = []
    for benchmark in benchmarks:
        # Predictions are stored with a score, and can be removed to make room.
        with suppress(RequestError):
            parts.append(recorded(benchmark, root=root).assign(benchmark=benchmark))
    if parts:
        return pd.concat(parts, ignore_index=True)
    return None


def _require_valid(catalog: Catalog, id: str, benchmarks: Sequence[str]) -> None:
    """Require that the specs have no errors and that the data set is valid.

    Raises
    ------
    SpecError
        The specs are wrong.
    DataError
        The data set is invalid.
    """
    paths = [catalog.entry("benchmarks", name).path for name in benchmarks]
    paths += [catalog.entry(kind, id).path for kind in ("datasets", "suites")]
    findings, _ = check(catalog, paths)
    problems = [finding for finding in findings if finding.severity == "error"]
    if problems:
        raise SpecError(problems)
    report = validate(catalog, id)
    if not report.success:
        raise DataError(str(report))
