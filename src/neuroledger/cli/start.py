"""Turn a folder into a scored benchmark: report what the files contain, ask for what they do not state, guess nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
    content = survey(
        folder,
        [
            name.partition(":")[0]
            for name in (answers.get("responses"), answers.get("trials"))
            if name
        ]
        if answers.get("responses")
        else (),
    )
    id = (
        id
        or re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.")
        or "mine"
    )
    catalog = _repository(root, id)
    stamp = STAMP + _fingerprint(content)
    if catalog.has("datasets", id):
        if stamp not in catalog.dataset(id).notes:
            raise RequestError(
                f"data set {id!r} exists and was not made from these files by this command: give another --id, or "
                f"edit specs/datasets/{id}.yaml and use `neuroledger package`"
            )
        if catalog.has("suites", id):
            tell(f"data set {id} was already made from these files; its specs are kept")
            return _score(
                catalog,
                id,
                models,
                out,
                tell,
                notes=catalog.dataset(id).notes,
                written=(),
            )
        # The suite is written last: an earlier call was interrupted, and may have left a data set without its stimuli.
        tell(
            f"data set {id} was made by a call that was interrupted; its specs are written again"
        )
        catalog.entry("datasets", id).path.unlink()
        catalog = open_catalog(catalog.root)
    elif catalog.has("suites", id):
        raise RequestError(f"suite {id!r} already exists: give another --id")
    replies = _Answers(answers, ask)
    if content.recordings:
        return _start_bids(
            catalog, content, id, title, replies, stamp, models, out, tell
        )
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
    extra = {"degrees": degrees} if degrees is not None else {}
    seen: Literal["public", "private"] = "private" if access == "private" else "public"
    terms = Terms(
        reader_of,
        license,
        seen,
        title or draft.notes[0],
        (*draft.notes[1:], stamp),
        extra,
    )
    written = []
    if draft.assembly is not None:
        written += package_assembly(catalog, id, draft.assembly, terms)
    elif draft.trials is not None:
        written += package_trials(catalog, id, draft.trials, terms)
    catalog = open_catalog(catalog.root)
    if draft.stimuli is not None:
        written += package_stimuli(
            catalog, id, draft.stimuli, content.folder, Terms(reader_of)
        )
    written += [
        _write_spec(catalog, "benchmark", name, fields)
        for name, fields in benchmarks.items()
    ]
    catalog = open_catalog(catalog.root)
    usable = [
        model
        for model in dict.fromkeys((*REFERENCES, *models))
        if catalog.has("models", model)
        and not all(lacking(catalog, model, name) for name in benchmarks)
    ]
    suite = {
        "title": f"Benchmarks of {id}",
        "benchmarks": list(benchmarks),
        "models": [*usable, "noise"],
    }
    written.append(_write_spec(catalog, "suite", id, suite))
    return _score(
        open_catalog(catalog.root),
        id,
        models,
        out,
        tell,
        notes=terms.notes,
        written=written,
    )


def _repository(root: Path | None, suite: str) -> Catalog:
    """Open the catalogue of the repository; set up a repository in ``root`` if that has no specs."""
    if root is not None and not (root / "specs").is_dir():
        root.mkdir(parents=True, exist_ok=True)
        write_text(root / "params.yaml", f"suite: {suite}\n")
        write_text(root / "dvc.yaml", "stages: {}\n")
        if not (root / ".dvc").exists():
            inside = any((above / ".git").exists() for above in root.resolve().parents)
            flags = (
                []
                if (root / ".git").exists()
                else ["--subdir" if inside else "--no-scm"]
            )
            require_package("dvc")
            command = [sys.executable, "-P", "-m", "dvc", "init", "--quiet", *flags]
            done = subprocess.run(
                command, cwd=root, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise DataError(
                    f"`dvc init` failed in {root}: {done.stderr.strip()[-200:]}"
                )
        # This is last, so that an interrupted call is not taken for a repository that is set up.
        (root / "specs").mkdir()
    return open_catalog(root)


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


def _draft(
    content: FolderContent, answers: _Answers, coordinates: Sequence[str]
) -> _Draft:
    """Return the stimuli and responses of the files in the conventions of this project."""
    if not content.images:
        raise RequestError(
            f"{content.folder} contains neither images (png, jpg, bmp, tif) nor a BIDS tree (dataset_description.json and "
            "sub-*): add the images that were presented"
        )
    draft = _Draft()
    sources = list(candidates(content))
    address = answers.given.get("responses", "")
    if len(sources) > 1 or address:
        names = [name for name, _, _ in sources]
        address = answers.get("responses", "which file contains the responses", names)
        sources = [source for source in sources if source[0] == address]
    elif not sources:
        files = "; ".join(map(_describe_file, content.files)) or "no table or array"
        raise RequestError(
            f"{content.folder} has {len(content.images)} images and no responses (found {files}): responses are an array of "
            "2 to 4 axes (npy, npz, mat, HDF5, netCDF), or a table with a column that names the images (stimulus_id) "
            "and numeric columns"
        )
    if not sources:
        draft.notes.append(f"{len(content.images)} images")
        return draft
    ((name, file, variable),) = sources
    table, _ = _stimulus_table(content)
    ids = list(table["stimulus_id"])
    if file.assembly is not None:
        draft.assembly = file.assembly
    elif file.table is not None:
        columns = columns_of(file.table, ids, coordinates)
        if columns is None:
            raise DataError(f"{name} has no column that names the images")
        require_own_rows(file.table, columns, name)
        values = file.table[columns.stimulus].to_numpy()
        ordered, first = _numbered(values, ids, content, answers, draft)
        answers.require(draft.notes)
        stimuli = stimuli_of(
            values, ordered, first, f"{name}: column {columns.stimulus!r}"
        )
        if columns.kind == "choices":
            draft.trials = choices_of(file.table, columns, stimuli)
        else:
            draft.assembly = table_assembly(file.table, columns, stimuli)
            dropped = set(map(str, file.table)) - {
                columns.stimulus,
                columns.neuroid,
                columns.value,
                *columns.wide,
            }
            dropped -= {*map(str, draft.assembly.coords)}
            dropped = {
                column
                for column in dropped
                if column.lower() not in (*REPETITION, *SESSION)
            }
            if dropped:
                draft.notes.append(
                    f"columns that differ between presentations of one image are left out: {', '.join(sorted(dropped))}"
                )
            kind = (
                "one row per value"
                if columns.kind == "long"
                else f"one column per neuroid ({_span(columns.wide)})"
            )
            draft.notes.append(
                f"{name}: {kind}; column {columns.stimulus!r} names the image"
            )
    else:
        draft.assembly = _array(content, name, variable, file, ids, answers, draft)
    if draft.assembly is None and draft.trials is None:
        draft.notes.insert(0, f"{len(ids)} images")
        return draft
    rows = draft.trials if draft.trials is not None else draft.assembly
    assert rows is not None
    draft.stimuli = _presented(table, set(map(str, rows["stimulus_id"].values)), draft)
    if draft.assembly is not None:
        draft.assembly = _with_region(draft.assembly, answers)
        size = draft.assembly.sizes
        counts = pd.Series(draft.assembly["stimulus_id"].values).value_counts()
        times = (
            f"{counts.min()}"
            if counts.min() == counts.max()
            else f"{counts.min()} to {counts.max()}"
        )
        draft.notes.insert(
            0,
            f"{len(draft.stimuli)} images, {size['neuroid']} neuroids, {times} presentations of each image",
        )
        draft.notes += _notes_on_sessions(draft.assembly)
    elif draft.trials is not None:
        _divide(draft)
    return draft


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
    for file in content.files:
        columns = None if file.table is None else columns_of(file.table, content.ids)
        if file.table is None or columns is None or columns.kind != "stimuli":
            continue
        values = file.table[columns.stimulus]
        if len(values) != len(table) or not names_stimuli(
            values.to_numpy(), content.ids
        ):
            continue
        stimuli = stimuli_of(values.to_numpy(), content.ids, None, file.path.name)
        if sorted(stimuli) == sorted(content.ids):
            rest = file.table.drop(
                columns=[columns.stimulus, *({"filename"} & set(file.table))]
            )
            rest.insert(0, "stimulus_id", stimuli)
            return rest.merge(table, on="stimulus_id"), True
    return table, False


def _presented(table: pd.DataFrame, recorded: set[str], draft: _Draft) -> pd.DataFrame:
    """Return the images that have responses; a note counts the others."""
    missing = sorted(recorded - set(table["stimulus_id"]))
    if missing:
        raise DataError(
            f"{len(missing)} stimuli of the responses have no image, the first is {missing[0]!r}: add or rename images"
        )
    presented = table[table["stimulus_id"].isin(recorded)].reset_index(drop=True)
    if len(presented) < len(table):
        draft.notes.append(
            f"{len(table) - len(presented)} images have no responses and are left out"
        )
    return presented


def _numbered(
    values: np.ndarray[Any, Any],
    ids: Sequence[str],
    content: FolderContent,
    answers: _Answers,
    draft: _Draft,
) -> tuple[list[str], int | None]:
    """Return the images in the order of their numbers, and the first number; None if stimuli are not numbered."""
    if values.dtype.kind not in "iuf" or set(map(str, values.tolist())) <= set(ids):
        return list(ids), None
    ordered = (
        list(ids) if _stimulus_table(content)[1] else _in_order(ids, answers, draft)
    )
    first = first_number(values, len(ids))
    if first is None or "first" in answers.given:
        first = int(
            answers.get("first", "number of the first stimulus", ("0", "1")) or 0
        )
    draft.notes.append(f"images are numbered from {first}")
    return ordered, first


def _in_order(ids: Sequence[str], answers: _Answers, draft: _Draft) -> list[str]:
    """Return the images in the order that the rows of an array, or numbers, refer to."""
    by_name, by_number = _ends(sorted(ids)), _ends(natural(ids))
    question = f"order of the images: by name {by_name}; by number {by_number}"
    key = answers.get("order", question, ("name", "number"))
    ordered = natural(ids) if key == "number" else sorted(ids)
    draft.notes.append(f"images are ordered by {key}: {_ends(ordered)}")
    return ordered


def _ends(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (f", …, {ids[-1]}" if len(ids) > 3 else "")


def _array(
    content: FolderContent,
    name: str,
    variable: str,
    file: FileContent,
    ids: Sequence[str],
    answers: _Answers,
    draft: _Draft,
) -> xr.DataArray | None:
    """Return the assembly of an array, whose axes follow from its shape and axis names or from an answer."""
    arrays = file.arrays
    bins = answers.given.get("time_bins", "")
    if not variable:
        onsets = [column for column in arrays if column.endswith(".start_time")]
        onset = (
            onsets[0]
            if len(onsets) == 1
            else answers.get("trials", "intervals of the trials", onsets)
        )
        bins = answers.get(
            "time_bins", "window for counting spikes, in ms from the start of a trial"
        )
        if not onset or not bins:
            return None
        values = spike_counts(arrays, onset, bins)
        draft.notes.append(f"{name}: spikes in {bins} ms after {onset}")
    else:
        values = arrays[variable]
    images, names, areas = (
        names_in(arrays, ids, values.shape) if variable else ([], [], [])
    )
    stated = answers.given.get("dims", "").split(",")
    row_ids = None
    if (
        variable
        and "trial" not in stated
        and ("trials" not in answers.given or "stimulus" in stated)
    ):
        row_ids = _row_order(content, images, name, values.shape, ids, answers, draft)
    trials = None
    if not row_ids and "stimulus" not in stated:
        trials = _trials(content, name, variable, values.shape, ids, answers, draft)
    options = (
        [("trial", "neuroid")]
        if not variable
        else layouts(
            values.shape,
            len(row_ids or ids),
            len(trials) if trials else None,
            file.axes.get(variable, ()),
        )
    )
    size = " × ".join(map(str, values.shape))
    if not options:
        answers.get(
            "trials",
            f"{name} has the shape {size}, and there are {len(ids)} images: which file names the image of each trial",
        )
        return None
    if len(options) == 1 and "dims" not in answers.given:
        dims = options[0]
    else:
        answer = answers.get(
            "dims", f"axes of {name} ({size})", [",".join(option) for option in options]
        )
        dims = tuple(answer.split(",")) if answer else ()
    if not dims:
        return None
    draft.notes.append(f"{name}: {size} is {' × '.join(dims)}")
    if "time_bin" in dims and not BINS.fullmatch(bins):
        bins = answers.get("time_bins", "first and last edge of the time bins in ms")
    if answers.missing:
        return None
    ordered = row_ids or (
        list(ids)
        if trials or _stimulus_table(content)[1]
        else _in_order(ids, answers, draft)
    )
    if answers.missing:
        return None
    count = dict(zip(dims, values.shape, strict=False)).get("neuroid")
    names, areas = (
        [(label, items) for label, items in vectors if len(items) == count]
        for vectors in (names, areas)
    )
    for meaning, vectors in (
        ("names the neuroids", names),
        ("gives the region of each neuroid", areas),
    ):
        draft.notes += [
            f"{label} {meaning}" for label, _ in vectors if len(vectors) == 1
        ]
    neuroids, regions = (
        list(map(str, vectors[0][1])) if len(vectors) == 1 else ()
        for vectors in (names, areas)
    )
    return assembly_of(
        values,
        dims,
        ordered,
        trials=trials,
        bins=bins,
        neuroids=neuroids,
        regions=regions,
    )


def _row_order(
    content: FolderContent,
    images: Sequence[tuple[str, np.ndarray[Any, Any]]],
    name: str,
    shape: Sequence[int],
    ids: Sequence[str],
    answers: _Answers,
    draft: _Draft,
) -> list[str] | None:
    """Return the image of each row of an array, from a list that names every image at most once; None without one.

    Such a list is an order of images, whether it is a column of a table or one of ``images``, vectors beside the array. A
    list as long as no axis is left unused, and a note says so.
    """
    lists = {key: stimuli_of(values, ids, None, name) for key, values in images}
    for file in content.files:
        path = file.path.relative_to(content.folder).as_posix()
        columns = None if file.table is None else columns_of(file.table, ids)
        if file.table is None or columns is None or columns.kind != "stimuli":
            continue
        values = file.table[columns.stimulus].to_numpy()
        if values.dtype.kind in "iuf" or not names_stimuli(values, ids):
            continue
        named = stimuli_of(values, ids, None, path)
        if len(named) not in shape and len(named) != len(ids):
            size = " × ".join(map(str, shape))
            draft.notes.append(
                f"{path} names an image in each of {len(named)} rows, and no axis of {name} ({size}) has this length: it is "
                "not used"
            )
        elif len(named) in shape and len(set(named)) == len(named):
            lists[f"{path}:{columns.stimulus}"] = named
    chosen = answers.given.get("trials", "")
    keys = [
        key for key in lists if not chosen or chosen in (key, key.partition(":")[0])
    ]
    if not keys:
        return None
    same = all(lists[key] == lists[keys[0]] for key in keys)
    key = (
        keys[0]
        if same
        else answers.get(
            "trials", "which of these names the images in their order", keys
        )
    )
    if not key:
        return None
    draft.notes.append(f"{key} names the image of each row: {_ends(lists[key])}")
    return lists[key]


def _trials(
    content: FolderContent,
    name: str,
    variable: str,
    shape: Sequence[int],
    ids: Sequence[str],
    answers: _Answers,
    draft: _Draft,
) -> list[str] | None:
    """Return the stimulus of each trial from a column or vector as long as an axis; None if that axis is the images."""
    vectors: dict[str, Any] = {}
    for file in content.files:
        path = file.path.relative_to(content.folder).as_posix()
        columns = None if file.table is None else columns_of(file.table, ids)
        if file.table is not None and columns is not None and columns.kind == "stimuli":
            vectors[f"{path}:{columns.stimulus}"] = file.table[
                columns.stimulus
            ].to_numpy()
        for key, values in file.arrays.items():
            if values.ndim == 1 and key != variable and not key.endswith("_time"):
                vectors[f"{path}:{key}"] = values
    fits = {
        key: values
        for key, values in vectors.items()
        if len(values) in shape
        and (_are_numbers(values, ids) or names_stimuli(values, ids))
    }
    chosen = answers.given.get("trials", "")
    keys = (
        [key for key in fits if chosen in (key, key.partition(":")[0])]
        if chosen
        else list(fits)
    )
    if chosen and not keys:
        raise RequestError(
            f"--trials {chosen!r} does not name a stimulus for each trial; possible values: {', '.join(fits) or 'none'}"
        )
    stated = "trial" in answers.given.get("dims", "").split(",")
    if not keys or (
        len(ids) in shape
        and not (chosen or stated)
        and all(sorted(map(str, fits[k])) == sorted(ids) for k in keys)
    ):
        return None
    key = (
        keys[0]
        if len(keys) == 1
        else answers.get("trials", "which of these names the image of each trial", keys)
    )
    if not key:
        return None
    values = fits[key]
    ordered, first = _numbered(values, ids, content, answers, draft)
    if answers.missing:
        return None
    draft.notes.append(f"{key} names the image of each of {len(values)} trials")
    return stimuli_of(values, ordered, first, key)


def _are_numbers(values: Any, ids: Sequence[str]) -> bool:
    """Return whether values can be numbers of stimuli."""
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
        several_subjects = draft.trials["subject"].nunique() > 1
        paradigm = {
            "name": "task",
            "decide": "probabilities",
            "label_column": "object_name",
            "fitting": {"split": "train"},
        }
        return {
            f"{id}.naming": {
                "title": "Does a readout of the model err on the images that people err on",
                "parent": "behavior",
                "dataset": id,
                "paradigm": {**paradigm, **size},
                "metrics": ["error_consistency", "accuracy"],
                **({"ceiling": "error_consistency"} if several_subjects else {}),
                "controls": {"negative": ["noise"], "floor_at_most": 0.25},
            }
        }
    assembly = draft.assembly
    if assembly is None:
        return {}
    stimuli = len(np.unique(assembly["stimulus_id"].values))
    if stimuli < FEWEST_STIMULI:
        raise RequestError(
            f"{stimuli} stimuli are too few for a cross-validated prediction: at least {FEWEST_STIMULI} are needed"
        )
    train = next(
        (share for share in (0.9, 0.8, 0.7) if stimuli * (1 - share) >= FEWEST_TEST),
        0.5,
    )
    repeated = (pd.Series(assembly["stimulus_id"].values).value_counts() > 1).all()
    benchmarks: dict[str, dict[str, Any]] = {}
    # Presentations are averaged if they differ in nothing except their repetition.
    prepare = (
        {"prepare": [{"step": "drop", "coords": ["session"]}]}
        if _mixes_sessions(assembly)
        else {}
    )
    for region in dict.fromkeys(map(str, assembly["region"].values)):
        count = int((assembly["region"].values.astype(str) == region).sum())
        common = {
            "parent": region,
            "dataset": id,
            "select": {"region": region},
            "paradigm": {"name": "recording", "region": region, **size, **prepare},
        }
        controls = {"controls": {"negative": ["noise"]}}
        place = re.sub(r"[^A-Za-z0-9._-]+", "-", region)
        metric: Any = (
            "ridgecv"
            if train == 0.9
            else {"name": "ridgecv", "splits": {"train": train}}
        )
        ceiling = {"ceiling": "internal_consistency"} if repeated else {}
        if "time_bin" in assembly.dims:
            metric = {
                "name": "spantime_ridge",
                "time": "separate",
                "splits": {"train": train},
            }
            ceiling = {"ceiling": "internal_consistency_temporal"} if repeated else {}
        title = f"{count} neuroids of {region}, predicted by ridge regression"
        benchmarks[f"{id}.{place}-ridge"] = {
            "title": title,
            **common,
            "metric": metric,
            **ceiling,
            **controls,
        }
        if count > 1 and "time_bin" not in assembly.dims:
            title = f"{count} neuroids of {region}, compared by their dissimilarities"
            rdm = {"ceiling": "rdm_consistency"} if repeated else {}
            benchmarks[f"{id}.{place}-rdm"] = {
                "title": title,
                **common,
                "metric": "rdm",
                **rdm,
                **controls,
            }
    return benchmarks


def _start_bids(
    catalog: Catalog,
    content: FolderContent,
    id: str,
    title: str | None,
    answers: _Answers,
    stamp: str,
    models: Sequence[str],
    out: Path | None,
    tell: Callable[[str], None],
) -> Started:
    """Turn a BIDS tree into a benchmark that decodes the labels of events from windows around them, and score it."""
    files = [path for path in content.folder.rglob("*_task-*") if path.is_file()]
    tasks = sorted(
        {
            match[1]
            for path in files
            if (match := re.search(r"_task-([A-Za-z0-9+]+)_", path.name))
        }
    )
    kinds = sorted({path.parent.name for path in files} & {"eeg", "meg", "ieeg", "emg"})
    subjects = sorted({path.name.partition("_")[0] for path in files})
    if not tasks or not kinds:
        raise RequestError(
            f"{content.folder} is a BIDS tree without recordings of a task in eeg, meg, ieeg or emg: nothing can be decoded"
        )
    notes = [f"{kinds[0]} of {len(subjects)} subjects, tasks {', '.join(tasks)}"]
    task = tasks[0] if len(tasks) == 1 else answers.get("task", "task to read", tasks)
    tables = [
        pd.read_csv(path, sep="\t")
        for path in files
        if path.name.endswith("_events.tsv") and f"_task-{task}_" in path.name
    ]
    types = [
        str(name)
        for table in tables
        if "trial_type" in table
        for name in table["trial_type"].unique()
    ]
    counts = pd.Series(types, dtype=str).value_counts()
    events = answers.get(
        "events",
        f"events to decode, of {', '.join(counts.index) or 'none found'}, as DESCRIPTION=LABEL,…",
    )
    window = answers.get(
        "window", "start and end of a window in s from its event, as 0:1"
    )
    license = answers.get("license", "licence of the data (SPDX)")
    access = answers.get("access", "who may see data values", ("public", "private"))
    answers.require(notes)
    labels = dict(part.rpartition("=")[::2] for part in events.split(","))
    edges = BINS.fullmatch(window)
    if edges is None or "" in labels or len(set(labels.values())) < 2:
        raise RequestError(
            "--events must be DESCRIPTION=LABEL,… with at least two labels, and --window START:END in s"
        )
    begin, end = map(float, edges.groups())
    if end <= begin:
        raise RequestError(f"--window {window}: the end must be after the start")
    protocol = "cross_subject" if len(subjects) > 2 else "within_session"
    notes.append(
        f"events {events}, windows from {begin:g} to {end:g} s; splits {protocol}"
    )
    for note in notes:
        tell(note)
    answers.agree()
    window_fields = {"start": begin, "duration": end - begin, "labels": labels}
    access_step = f"Ask the owner for the BIDS tree; `neuroledger pin {id} --from FOLDER` copies its files into place."
    distinct = {"check": "distinct", "column": "subject", "count": len(subjects)}
    fields: dict[str, Any] = {
        "title": title or notes[0],
        "license": license,
        "access": access,
        "modality": kinds[0],
        "access_steps": [access_step],
        "reader": {
            "name": "bids_epochs",
            "task": task,
            "datatype": kinds[0],
            "window": window_fields,
        },
        "expectations": {"assembly": [{"check": "values_finite"}, distinct]},
        "notes": [*notes[1:], stamp],
        "unavailable": "not pinned yet",
    }
    written = [_write_spec(catalog, "dataset", id, fields)]
    try:
        pin(
            open_catalog(catalog.root),
            id,
            Downloads(folder=content.folder, bids=True, task=task),
        )
    except Exception:
        written[0].unlink()
        raise
    name = f"{id}-{protocol}"
    written.append(
        _write_spec(
            catalog,
            "benchmark",
            name,
            {
                "title": f"Decode {', '.join(sorted(set(labels.values())))} ({protocol})",
                "parent": "decoding",
                "dataset": id,
                "paradigm": {
                    "name": "decoding",
                    "target": "label",
                    "splits": {"name": protocol},
                },
                "metric": "balanced_accuracy",
                "floor": {"dummy": "dummy"},
                "tags": ["decoding"],
                "controls": {
                    "positive": ["planted_lda"],
                    "negative": ["shuffled_lda"],
                    "floor_at_most": 0.35,
                },
            },
        )
    )
    fields = {
        "title": f"Decoding of {id}",
        "benchmarks": [name],
        "models": list(dict.fromkeys((*DECODERS, *models))),
    }
    written.append(_write_spec(catalog, "suite", id, fields))
    return _score(
        open_catalog(catalog.root), id, models, out, tell, notes=notes, written=written
    )


def _score(
    catalog: Catalog,
    id: str,
    models: Sequence[str],
    out: Path | None,
    tell: Callable[[str], None],
    *,
    notes: Sequence[str],
    written: Sequence[Path],
) -> Started:
    """Check the specs, validate the data, compute missing scores and write the pages."""
    suite = catalog.suite(id)
    benchmarks = tuple(item.id for item in suite.benchmarks)
    kinds = {"datasets": [id], "benchmarks": benchmarks, "suites": [id]}
    paths = [
        catalog.entry(kind, spec).path
        for kind, specs in kinds.items()
        for spec in specs
    ]
    problems = [
        finding for finding in check(catalog, paths)[0] if finding.severity == "error"
    ]
    if problems:
        raise SpecError(problems)
    report = validate(catalog, id)
    if not report.success:
        raise DataError(str(report))
    params = read_params(catalog.root)
    request = Request(seed=params.seed, device=params.device)
    scored = list(dict.fromkeys((*suite.models, *models)))
    planned = plan(catalog, models=scored, suites=[suite], request=request)
    for note in planned.notes():
        tell(note)
    with choose() as display:
        outcomes = run_jobs(
            catalog, planned.jobs, request, display, retry_failed=bool(written)
        )
    folder = out or catalog.root / f"site-{id}"
    build_site(catalog, id, folder)
    records = tuple(done.record for done in outcomes)
    return Started(
        id, benchmarks, id, tuple(notes), records, folder / "index.html", tuple(written)
    )
