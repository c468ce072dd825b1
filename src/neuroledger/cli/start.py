"""Turn a folder into a scored benchmark: report what the files contain, ask for what they do not state, guess nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.cli.lab_files import (
    BINS,
    REPETITION,
    SESSION,
    FileContent,
    FolderContent,
    assembly_of,
    candidates,
    choices_of,
    columns_of,
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
from neuroledger.display import choose
from neuroledger.engine.check import check
from neuroledger.engine.plan import lacking, plan
from neuroledger.engine.record import Record
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, RequestError, SpecError, require_package
from neuroledger.families.alignment.session_effects import session_effects
from neuroledger.report.site import build_site
from neuroledger.spec.base import sha256_of as identity_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.load import read_params
from neuroledger.store.files import write_text

__all__ = ["Started", "start"]

REFERENCES = ("gabor", "pixels16", "small_cnn.random")
DECODERS = ("dummy", "shrinkage_lda", "covariance_logistic")
STAMP = "Made by `neuroledger start` from files with SHA-256 "
KINDS_OF_RECORDINGS: tuple[Literal["eeg", "meg", "ieeg", "emg"], ...] = (
    "eeg",
    "emg",
    "ieeg",
    "meg",
)
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
    "events",
    "window",
)
STANDARDISE = "{step: standardise, over: presentation, by: session}"


@dataclass(frozen=True)
class Started:
    """Result of :func:`start`: ids of the specs, notes on the files and decisions, records, and the page."""

    dataset: str
    benchmarks: tuple[str, ...]
    suite: str
    notes: tuple[str, ...]
    records: tuple[Record, ...]
    page: Path
    written: tuple[Path, ...] = ()


@dataclass
class _Answers:
    """Answers that are given in advance, otherwise asked for, otherwise collected as missing."""

    given: Mapping[str, str]
    ask: Callable[[str], str] | None
    missing: list[str] = field(default_factory=list)

    def get(self, flag: str, question: str, options: Sequence[str] = ()) -> str:
        """Return an answer; if it cannot be asked for, return an empty text, which `require` reports."""
        choices = f" ({' | '.join(options)})" if options else ""
        value = self.given.get(flag, "")
        if not value and self.ask is not None:
            value = self.ask(f"{question}{choices}: ").strip()
        if not value:
            self.missing.append(f"--{flag.replace('_', '-')}: {question}{choices}")
        elif options and value not in options:
            raise RequestError(
                f"--{flag.replace('_', '-')} {value!r} is not one of {', '.join(options)}"
            )
        return value

    def require(self, notes: Sequence[str]) -> None:
        """Raise an error that lists the notes and the missing answers, if answers are missing."""
        if self.missing:
            missing = "\n".join(f"  {line}" for line in dict.fromkeys(self.missing))
            known = "\n".join(f"  {line}" for line in notes)
            raise RequestError(
                f"found:\n{known}\nmissing, and not stated by any file:\n{missing}\nnothing was written"
            )

    def agree(self) -> None:
        """Ask for consent to write, if questions can be asked; raise an error if it is refused."""
        if self.ask is not None and self.ask(
            "write and score (y/n): "
        ).strip().lower() not in ("y", "yes"):
            raise RequestError("stopped; nothing was written")


@dataclass
class _Draft:
    """Data to be written, and notes on what the files contain and what was decided."""

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
    **answers: str,
) -> Started:
    """Turn a folder of images with responses, or a BIDS tree, into a data set, benchmarks and a suite, and score models.

    A second call with the same files keeps the specs: it computes missing scores and writes the pages again. After a call
    that was interrupted before all specs were written, it writes them again.

    Parameters
    ----------
    folder
        Folder of images with responses (``npy``, ``mat``, HDF5, CSV or TSV, Parquet, NWB, netCDF) or with a table of
        choices, or a BIDS tree.
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
        Called with each note, and with each question; without ``ask``, a missing answer is an error.
    answers
        ``license``, ``access``, ``region``, ``responses``, ``dims``, ``order``, ``trials``, ``first``, ``time_bins``; for
        BIDS ``task``, ``events``, ``window``.

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
    goal = _Goal(id, title, STAMP + _fingerprint(content), tuple(models), out, tell)
    if _is_made(catalog, goal):
        tell(f"data set {id} was already made from these files; its specs are kept")
        return _score(catalog, goal, notes=catalog.dataset(id).notes, written=())
    catalog = _without_remains(catalog, goal)
    replies = _Answers(answers, ask)
    if content.recordings:
        return _start_bids(catalog, content, replies, goal)
    return _start_images(catalog, content, replies, goal, coordinates, degrees)


@dataclass(frozen=True)
class _Goal:
    """What becomes of a folder: the id and title of its data set, its stamp, the models to score, and the pages."""

    id: str
    title: str | None
    stamp: str
    models: tuple[str, ...]
    out: Path | None
    tell: Callable[[str], None]


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
    if goal.stamp not in catalog.dataset(id).notes:
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
    replies: _Answers,
    goal: _Goal,
    coordinates: Sequence[str],
    degrees: float | None,
) -> Started:
    """Turn images with responses or choices into a data set, benchmarks and a suite, and score models."""
    id, tell = goal.id, goal.tell
    draft = _draft(content, replies, coordinates)
    license = replies.get("license", "licence of the data (SPDX)")
    access = replies.get("access", "who may see data values", ("public", "private"))
    replies.require(draft.notes)
    for note in draft.notes:
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
        goal.title or draft.notes[0],
        (*draft.notes[1:], goal.stamp),
        {"degrees": degrees} if degrees is not None else {},
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
    return _score(open_catalog(catalog.root), goal, notes=terms.notes, written=written)


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
        fresh, known = open_catalog(catalog.root), Terms(reader_of)
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
    return open_catalog(root)


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


@dataclass(frozen=True)
class _Reading:
    """What is known while a folder is read: its content, the ids of its images, the answers, and the draft."""

    content: FolderContent
    ids: Sequence[str]
    answers: _Answers
    draft: _Draft

    def note(self, text: str) -> None:
        """Note a fact or a decision."""
        self.draft.notes.append(text)


def _draft(
    content: FolderContent, answers: _Answers, coordinates: Sequence[str]
) -> _Draft:
    """Return the stimuli and responses of the files in the conventions of this project."""
    draft = _Draft()
    source = _source(content, answers)
    if source is None:
        draft.notes.append(f"{len(content.images)} images")
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
        draft.notes.insert(0, f"{len(reading.ids)} images")
    return draft


def _source(
    content: FolderContent, answers: _Answers
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
    reading.answers.require(reading.draft.notes)
    stimuli = stimuli_of(values, ordered, first, f"{name}: column {columns.stimulus!r}")
    if columns.kind == "choices":
        reading.draft.trials = choices_of(table, columns, stimuli)
        return
    assembly = table_assembly(table, columns, stimuli)
    reading.draft.assembly = assembly
    used = {columns.stimulus, columns.neuroid, columns.value, *columns.wide}
    used |= {*map(str, assembly.coords)}
    dropped = [
        column
        for column in sorted(set(map(str, table)) - used)
        if column.lower() not in (*REPETITION, *SESSION)
    ]
    if dropped:
        reading.note(
            f"columns that differ between presentations of one image are left out: {', '.join(dropped)}"
        )
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
    draft: _Draft, assembly: xr.DataArray, answers: _Answers
) -> None:
    """Name the region of the responses, and note their numbers and their sessions."""
    assert draft.stimuli is not None
    assembly = _with_region(assembly, answers)
    draft.assembly = assembly
    counts = pd.Series(assembly["stimulus_id"].values).value_counts()
    fewest, most = counts.min(), counts.max()
    times = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    draft.notes.insert(
        0,
        f"{len(draft.stimuli)} images, {assembly.sizes['neuroid']} neuroids, {times} presentations of each image",
    )
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
    return (
        ", ".join(names)
        if len(names) < 4
        else f"{names[0]} … {names[-1]}, {len(names)} columns"
    )


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
    ids, answers = reading.ids, reading.answers
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
    by_name, by_number = _ends(sorted(ids)), _ends(natural(ids))
    question = f"order of the images: by name {by_name}; by number {by_number}"
    key = reading.answers.get("order", question, ("name", "number"))
    ordered = natural(ids) if key == "number" else sorted(ids)
    reading.note(f"images are ordered by {key}: {_ends(ordered)}")
    return ordered


def _ends(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (f", …, {ids[-1]}" if len(ids) > 3 else "")


def _array(
    reading: _Reading, name: str, variable: str, file: FileContent
) -> xr.DataArray | None:
    """Return the assembly of an array, whose axes follow from its shape and axis names or from an answer.

    Without a ``variable``, the array is one of counts of spikes. None if an answer is missing.
    """
    answers = reading.answers
    if variable:
        values, bins = file.arrays[variable], answers.given.get("time_bins", "")
        vectors = names_in(file.arrays, reading.ids, values.shape)
    else:
        counted = _counted_spikes(reading, name, file.arrays)
        if counted is None:
            return None
        (values, bins), vectors = counted, ([], [], [])
    images, names, areas = vectors
    rows, trials = _rows(reading, name, variable, values.shape, images)
    dims = _dims(reading, name, variable, file, values.shape, rows, trials)
    if dims is None:
        return None
    if "time_bin" in dims and not BINS.fullmatch(bins):
        bins = answers.get("time_bins", "first and last edge of the time bins in ms")
    if answers.missing:
        return None
    ordered = rows or (list(reading.ids) if trials else _in_order(reading))
    if answers.missing:
        return None
    count = dict(zip(dims, values.shape, strict=False)).get("neuroid")
    return assembly_of(
        values,
        dims,
        ordered,
        trials=trials,
        bins=bins,
        neuroids=_labels(reading, names, count, "names the neuroids"),
        regions=_labels(reading, areas, count, "gives the region of each neuroid"),
    )


# A vector of a file, with its name.
_Vector = tuple[str, Array]


def _counted_spikes(
    reading: _Reading, name: str, arrays: Mapping[str, Array]
) -> tuple[Array, str] | None:
    """Return the counts of spikes in a window of each trial, and the window; None if an answer is missing."""
    answers = reading.answers
    onsets = [column for column in arrays if column.endswith(".start_time")]
    if len(onsets) == 1:
        onset = onsets[0]
    else:
        onset = answers.get("trials", "intervals of the trials", onsets)
    question = "window for counting spikes, in ms from the start of a trial"
    bins = answers.get("time_bins", question)
    if not onset or not bins:
        return None
    values = spike_counts(arrays, onset, bins)
    reading.note(f"{name}: spikes in {bins} ms after {onset}")
    return values, bins


def _rows(
    reading: _Reading,
    name: str,
    variable: str,
    shape: Sequence[int],
    images: Sequence[_Vector],
) -> tuple[list[str] | None, list[str] | None]:
    """Return the image of each row of an array, and the image of each trial; None for what the array does not have."""
    given = reading.answers.given
    stated = given.get("dims", "").split(",")
    ordered = None
    may_be_ordered = "trial" not in stated and (
        "trials" not in given or "stimulus" in stated
    )
    if variable and may_be_ordered:
        ordered = _row_order(reading, images, name, shape)
    if ordered or "stimulus" in stated:
        return ordered, None
    return None, _trials(reading, variable, shape)


def _dims(
    reading: _Reading,
    name: str,
    variable: str,
    file: FileContent,
    shape: Sequence[int],
    rows: list[str] | None,
    trials: list[str] | None,
) -> tuple[str, ...] | None:
    """Return the axes of an array: the only ones that its shape allows, or an answer; None if that is missing."""
    answers, ids = reading.answers, reading.ids
    options: Sequence[tuple[str, ...]] = [("trial", "neuroid")]
    if variable:
        count = len(trials) if trials else None
        axes = file.axes.get(variable, ())
        options = layouts(shape, len(rows or ids), count, axes)
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
        answer = answers.get("dims", f"axes of {name} ({size})", texts)
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
    ordered, first = _numbered(reading, fits[key])
    if reading.answers.missing:
        return None
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
        for key, values in file.arrays.items():
            if values.ndim == 1 and key != variable and not key.endswith("_time"):
                yield f"{path}:{key}", values


def _are_orders(
    reading: _Reading, shape: Sequence[int], vectors: Sequence[Array]
) -> bool:
    """Return whether vectors that name every image once are orders of images, because no answer says otherwise."""
    ids, given = sorted(reading.ids), reading.answers.given
    stated = "trial" in given.get("dims", "").split(",")
    if given.get("trials") or stated or len(ids) not in shape:
        return False
    return all(sorted(map(str, values)) == ids for values in vectors)


def _name_images(values: Array, ids: Sequence[str]) -> bool:
    """Return whether values are ids of images, or can be their numbers."""
    if names_stimuli(values, ids):
        return True
    integers = values.dtype.kind in "iuf" and bool((values == np.round(values)).all())
    return integers and values.min() >= 0 and values.max() <= len(ids)


def _with_region(assembly: xr.DataArray, answers: _Answers) -> xr.DataArray:
    """Return the assembly with a region for every neuroid."""
    if "region" in assembly.coords:
        return assembly
    region = answers.get("region", "brain region of the neuroids")
    return assembly.assign_coords(
        region=("neuroid", np.full(assembly.sizes["neuroid"], region or "?"))
    )


def _divide(draft: _Draft) -> None:
    """Divide the stimuli of a table of choices: every second image of a label fits the readout, the others are tested."""
    trials, stimuli = draft.trials, draft.stimuli
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
    draft.notes.insert(
        0,
        f"{len(stimuli)} images of {stimuli['object_name'].nunique()} labels, choices of {subjects} subjects",
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
    return "ridgecv" if train == 0.9 else {"name": "ridgecv", **splits}


@dataclass(frozen=True)
class _Tree:
    """What the names and tables of files in a BIDS tree say about recordings of tasks."""

    files: Sequence[Path]
    tasks: Sequence[str]
    kind: Literal["eeg", "meg", "ieeg", "emg"]
    subjects: Sequence[str]

    def types_of(self, task: str) -> list[str]:
        """Return the types of events of a task, the most frequent first."""
        names: list[str] = []
        for path in self.files:
            if path.name.endswith("_events.tsv") and f"_task-{task}_" in path.name:
                table = pd.read_csv(path, sep="\t")
                names += map(
                    str, table.get("trial_type", pd.Series(dtype=str)).unique()
                )
        return list(pd.Series(names, dtype=str).value_counts().index)


def _tree(content: FolderContent) -> _Tree:
    """Return what a BIDS tree contains.

    Raises
    ------
    RequestError
        It has no recordings of a task.
    """
    files = [path for path in content.folder.rglob("*_task-*") if path.is_file()]
    names = " ".join(path.name for path in files)
    tasks = sorted(set(re.findall(r"_task-([A-Za-z0-9+]+)_", names)))
    folders = {path.parent.name for path in files}
    kinds = [kind for kind in KINDS_OF_RECORDINGS if kind in folders]
    if not tasks or not kinds:
        raise RequestError(
            f"{content.folder} is a BIDS tree without recordings of a task in eeg, meg, ieeg or emg: nothing can be decoded"
        )
    subjects = sorted({path.name.partition("_")[0] for path in files})
    return _Tree(files, tasks, kinds[0], subjects)


@dataclass(frozen=True)
class _Decoded:
    """What is decoded: labels of events, from windows around them, with the splits that the subjects allow."""

    task: str
    labels: Mapping[str, str]
    window: tuple[float, float]
    protocol: str


def _decoded(tree: _Tree, task: str, events: str, window: str) -> _Decoded:
    """Return what the answers mean.

    Raises
    ------
    RequestError
        The events or the window are not written as they should be.
    """
    labels = dict(part.rpartition("=")[::2] for part in events.split(","))
    edges = BINS.fullmatch(window)
    if edges is None or "" in labels or len(set(labels.values())) < 2:
        raise RequestError(
            "--events must be DESCRIPTION=LABEL,… with at least two labels, and --window START:END in s"
        )
    begin, end = map(float, edges.groups())
    if end <= begin:
        raise RequestError(f"--window {window}: the end must be after the start")
    protocol = "cross_subject" if len(tree.subjects) > 2 else "within_session"
    return _Decoded(task, labels, (begin, end), protocol)


def _start_bids(
    catalog: Catalog, content: FolderContent, answers: _Answers, goal: _Goal
) -> Started:
    """Turn a BIDS tree into a benchmark that decodes the labels of events from windows around them, and score it."""
    tree, id = _tree(content), goal.id
    tasks = ", ".join(tree.tasks)
    notes = [f"{tree.kind} of {len(tree.subjects)} subjects, tasks {tasks}"]
    task = tree.tasks[0]
    if len(tree.tasks) > 1:
        task = answers.get("task", "task to read", tree.tasks)
    types = ", ".join(tree.types_of(task)) or "none found"
    events = answers.get(
        "events", f"events to decode, of {types}, as DESCRIPTION=LABEL,…"
    )
    question = "start and end of a window in s from its event, as 0:1"
    window = answers.get("window", question)
    license = answers.get("license", "licence of the data (SPDX)")
    access = answers.get("access", "who may see data values", ("public", "private"))
    answers.require(notes)
    decoded = _decoded(tree, task, events, window)
    begin, end = decoded.window
    notes.append(
        f"events {events}, windows from {begin:g} to {end:g} s; splits {decoded.protocol}"
    )
    for note in notes:
        goal.tell(note)
    answers.agree()
    fields = {
        "title": goal.title or notes[0],
        "license": license,
        "access": access,
        **_recordings(id, tree, decoded),
        "notes": [*notes[1:], goal.stamp],
        "unavailable": "not pinned yet",
    }
    dataset = _write_spec(catalog, "dataset", id, fields)
    downloads = Downloads(folder=content.folder, bids=True, task=task)
    try:
        pin(open_catalog(catalog.root), id, downloads)
    except Exception:
        dataset.unlink()
        raise
    name = f"{id}-{decoded.protocol}"
    benchmark = _write_spec(catalog, "benchmark", name, _decoding(id, decoded))
    models = list(dict.fromkeys((*DECODERS, *goal.models)))
    suite = {"title": f"Decoding of {id}", "benchmarks": [name], "models": models}
    written = [dataset, benchmark, _write_spec(catalog, "suite", id, suite)]
    return _score(open_catalog(catalog.root), goal, notes=notes, written=written)


def _recordings(id: str, tree: _Tree, decoded: _Decoded) -> dict[str, Any]:
    """Return the fields of the data set that follow from the tree and what is decoded."""
    begin, end = decoded.window
    window = {"start": begin, "duration": end - begin, "labels": dict(decoded.labels)}
    step = f"Ask the owner for the BIDS tree; `neuroledger pin {id} --from FOLDER` copies its files into place."
    subjects = {"check": "distinct", "column": "subject", "count": len(tree.subjects)}
    return {
        "modality": tree.kind,
        "access_steps": [step],
        "reader": {
            "name": "bids_epochs",
            "task": decoded.task,
            "datatype": tree.kind,
            "window": window,
        },
        "expectations": {"assembly": [{"check": "values_finite"}, subjects]},
    }


def _decoding(id: str, decoded: _Decoded) -> dict[str, Any]:
    """Return the fields of the benchmark that decodes the labels."""
    labels = ", ".join(sorted(set(decoded.labels.values())))
    splits = {"name": decoded.protocol}
    return {
        "title": f"Decode {labels} ({decoded.protocol})",
        "parent": "decoding",
        "dataset": id,
        "paradigm": {"name": "decoding", "target": "label", "splits": splits},
        "metric": "balanced_accuracy",
        "floor": {"dummy": "dummy"},
        "tags": ["decoding"],
        "controls": {
            "positive": ["planted_lda"],
            "negative": ["shuffled_lda"],
            "floor_at_most": 0.35,
        },
    }


def _score(
    catalog: Catalog, goal: _Goal, *, notes: Sequence[str], written: Sequence[Path]
) -> Started:
    """Check the specs, validate the data, compute missing scores and write the pages."""
    id, suite = goal.id, catalog.suite(goal.id)
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
    folder = goal.out or catalog.root / f"site-{id}"
    build_site(catalog, id, folder)
    records = tuple(done.record for done in outcomes)
    page = folder / "index.html"
    return Started(id, benchmarks, id, tuple(notes), records, page, tuple(written))


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
