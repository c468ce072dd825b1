"""From a folder to a scored benchmark: what is found is shown, what cannot be known is asked, nothing is guessed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.cli import ANSWERS
from neuroledger.cli.lab_files import (
    BINS,
    REPETITION,
    Content,
    Held,
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
    spike_counts,
    stimuli_of,
    survey,
    table_assembly,
)
from neuroledger.data.gate.validate import validate
from neuroledger.data.integrity import sha256_of_file
from neuroledger.data.package import Terms, package_assembly, package_stimuli, package_trials
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.data.pin.yaml_edit import inline
from neuroledger.display import choose
from neuroledger.engine.check import check
from neuroledger.engine.plan import lacking, plan
from neuroledger.engine.record import Record
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.report.site import build_site
from neuroledger.spec.base import sha256_of as identity_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.load import read_params
from neuroledger.store.files import write_text

__all__ = ["Started", "start"]

REFERENCES = ("gabor", "pixels16", "small_cnn.random")
DECODERS = ("dummy", "shrinkage_lda", "covariance_logistic")
MADE = "Made by `neuroledger start` from files with SHA-256 "
FEWEST_STIMULI, FEWEST_TEST = 8, 5


@dataclass(frozen=True)
class Started:
    """What a folder became: ids of its specs, records, what was found and decided, and the page."""

    dataset: str
    benchmarks: tuple[str, ...]
    suite: str
    notes: tuple[str, ...]
    records: tuple[Record, ...]
    page: Path
    written: tuple[Path, ...] = ()


@dataclass
class _Answers:
    """Answers given in advance, else asked, else collected as missing."""

    given: Mapping[str, str]
    ask: Callable[[str], str] | None
    missing: list[str] = field(default_factory=list)

    def get(self, flag: str, question: str, options: Sequence[str] = ()) -> str:
        """An answer; empty where nobody can be asked, which `require` then reports."""
        shown = f" ({' | '.join(options)})" if options else ""
        value = self.given.get(flag, "")
        if not value and self.ask is not None:
            value = self.ask(f"{question}{shown}: ").strip()
        if not value:
            self.missing.append(f"--{flag.replace('_', '-')}: {question}{shown}")
        elif options and value not in options:
            raise RequestError(f"--{flag.replace('_', '-')} {value!r} is not one of {', '.join(options)}")
        return value

    def require(self, found: Sequence[str]) -> None:
        """Return if nothing is missing."""
        if self.missing:
            lines = "\n".join(f"  {line}" for line in dict.fromkeys(self.missing))
            seen = "\n".join(f"  {line}" for line in found)
            raise RequestError(
                f"found:\n{seen}\nmissing, and not to be guessed:\n{lines}\nnothing was written"
            )

    def agree(self) -> None:
        """Return when whoever is asked agrees, or nobody is."""
        if self.ask is not None and self.ask("write and score (y/n): ").strip().lower() not in ("y", "yes"):
            raise RequestError("stopped; nothing was written")


@dataclass
class _Draft:
    """What is going to be written: notes say what was found and decided."""

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

    A second call with the same files changes nothing: what is there is scored and shown again.

    Parameters
    ----------
    folder
        Images with responses (``npy``, ``mat``, CSV or TSV, Parquet, NWB, netCDF), or with a table of choices; or BIDS.
    id, title
        Of the data set; the folder's name when no id is given.
    models
        Ids of further models to score, such as one's own.
    coordinates
        Columns of numbers in a wide table that are not neuroids.
    degrees
        Size of the images in degrees of visual angle; not declared when not given.
    root
        The repository; a folder without ``specs/`` becomes one. Found from the working directory when not given.
    out
        Where the pages go: ``site-<id>`` in the repository when not given.
    tell, ask
        Called with what is found, and with each question; without ``ask``, a missing answer is an error.
    answers
        ``license``, ``access``, ``region``, ``responses``, ``dims``, ``order``, ``trials``, ``first``, ``time_bins``; and of
        BIDS ``task``, ``events``, ``window``.

    Raises
    ------
    RequestError
        Answers are missing (all of them are listed), or the data set exists and was made from other files.
    DataError, AssemblyError
        Files cannot be read, or do not fit each other.
    """
    unknown = sorted(set(answers) - set(ANSWERS))
    if unknown:
        raise RequestError(f"nl.start has no argument {unknown[0]!r}; answers are {', '.join(ANSWERS)}")
    folder = Path(folder)
    content = survey(folder, [name.partition(":")[0] for name in (answers.get("responses"), answers.get("trials"))
                              if name] if answers.get("responses") else ())  # fmt: skip
    named = id or re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.") or "mine"
    catalog = _repository(root, named)
    stamp = MADE + _fingerprint(content)
    if catalog.has("datasets", named):
        if stamp not in catalog.dataset(named).notes:
            raise RequestError(
                f"data set {named!r} exists and was made from other files, or not by this command: give another --id, or "
                f"edit specs/datasets/{named}.yaml and use `neuroledger package`"
            )
        tell(f"data set {named} was made from these files already; its specs are kept")
        return _score(catalog, named, models, out, tell, notes=catalog.dataset(named).notes, written=())
    asked = _Answers(answers, ask)
    if content.recordings:
        return _recordings(catalog, content, named, title, asked, stamp, models, out, tell)
    draft = _draft(content, asked, coordinates)
    license = asked.get("license", "licence of the data (SPDX)")
    access = asked.get("access", "who may see values", ("public", "private"))
    asked.require(draft.notes)
    for note in draft.notes:
        tell(note)
    benchmarks = _benchmarks(named, draft, degrees)
    tell(f"writes data set {named}, benchmarks {', '.join(benchmarks)} and suite {named} into {catalog.root}")
    asked.agree()
    extra = {"degrees": degrees} if degrees is not None else {}
    terms = Terms(reader_of, license, access, title or draft.notes[0], (*draft.notes[1:], stamp), extra)  # type: ignore[arg-type]
    written = []
    if draft.assembly is not None:
        written += package_assembly(catalog, named, draft.assembly, terms)
    elif draft.trials is not None:
        written += package_trials(catalog, named, draft.trials, terms)
    catalog = open_catalog(catalog.root)
    if draft.stimuli is not None:
        written += package_stimuli(catalog, named, draft.stimuli, content.folder, Terms(reader_of))
    written += [_spec(catalog, "benchmark", name, fields) for name, fields in benchmarks.items()]
    catalog = open_catalog(catalog.root)
    usable = [one for one in dict.fromkeys((*REFERENCES, *models)) if catalog.has("models", one)
              and not all(lacking(catalog, one, name) for name in benchmarks)]  # fmt: skip
    suite = {"title": f"Benchmarks of {named}", "benchmarks": list(benchmarks), "models": [*usable, "noise"]}
    written.append(_spec(catalog, "suite", named, suite))
    return _score(open_catalog(catalog.root), named, models, out, tell, notes=terms.notes, written=written)


def _repository(root: Path | None, suite: str) -> Catalog:
    """The catalogue of the repository; a folder named as root that has no specs becomes a repository."""
    if root is not None and not (root / "specs").is_dir():
        (root / "specs").mkdir(parents=True)
        write_text(root / "params.yaml", f"suite: {suite}\n")
        write_text(root / "dvc.yaml", "stages: {}\n")
        if not (root / ".dvc").exists():
            inside = any((above / ".git").exists() for above in root.resolve().parents)
            how = [] if (root / ".git").exists() else ["--subdir" if inside else "--no-scm"]
            command = [sys.executable, "-P", "-m", "dvc", "init", "--quiet", *how]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            if done.returncode:
                raise DataError(f"`dvc init` failed in {root}: {done.stderr.strip()[-200:]}")
    return open_catalog(root)


def _fingerprint(content: Content) -> str:
    """One SHA-256 over the names and bytes of all files of a folder."""
    files = (
        path for path in sorted(content.folder.rglob("*")) if path.is_file() and not path.name.startswith(".")
    )
    return identity_of({path.relative_to(content.folder).as_posix(): sha256_of_file(path) for path in files})


def _spec(catalog: Catalog, kind: str, id: str, fields: Mapping[str, Any]) -> Path:
    """Write a spec; the file that is there is kept."""
    path = catalog.root / "specs" / f"{kind}s" / f"{id}.yaml"
    if path.exists():
        raise RequestError(f"there is a {kind} {id!r} already: give another --id")
    head = ""
    if (catalog.root / "specs" / "schema").is_dir():
        head = f"# yaml-language-server: $schema=../schema/{kind}.json\n"
    lines = "".join(
        f"{name}: {inline(value)}\n" for name, value in {"id": id, "version": 1, **fields}.items()
    )
    write_text(path, head + lines)
    return path


def _draft(content: Content, asked: _Answers, coordinates: Sequence[str]) -> _Draft:
    """What the files hold, in the conventions of this project."""
    if not content.images:
        raise RequestError(
            f"{content.folder} holds no images (png, jpg, bmp, tif) and no BIDS tree (dataset_description.json and sub-*): "
            "put the images that were shown beside the responses"
        )
    draft = _Draft()
    found = list(candidates(content))
    wanted = asked.given.get("responses", "")
    if len(found) > 1 or wanted:
        names = [name for name, _, _ in found]
        wanted = asked.get("responses", "which file holds the responses", names)
        found = [one for one in found if one[0] == wanted]
    elif not found:
        seen = "; ".join(map(_seen, content.held)) or "no table or array"
        raise RequestError(
            f"{content.folder} has {len(content.images)} images and no responses (found {seen}): responses are an array of "
            "2 to 4 axes (npy, npz, mat, HDF5, netCDF), or a table with a column that names the images (stimulus_id) "
            "beside columns of numbers"
        )
    if not found:
        draft.notes.append(f"{len(content.images)} images")
        return draft
    ((name, held, variable),) = found
    table, _ = _stimulus_table(content)
    ids = list(table["stimulus_id"])
    if held.assembly is not None:
        draft.assembly = held.assembly
    elif held.table is not None:
        columns = columns_of(held.table, ids, coordinates)
        if columns is None:
            raise DataError(f"{name} has no column that names the images")
        values = held.table[columns.stimulus].to_numpy()
        counted, first = _counted(values, ids, content, asked, draft)
        asked.require(draft.notes)
        shown = stimuli_of(values, counted, first, f"{name}: column {columns.stimulus!r}")
        if columns.kind == "choices":
            draft.trials = choices_of(held.table, columns, shown)
        else:
            draft.assembly = table_assembly(held.table, columns, shown)
            lost = set(map(str, held.table)) - {
                columns.stimulus,
                columns.neuroid,
                columns.value,
                *columns.wide,
            }
            lost -= {*map(str, draft.assembly.coords)} | {name for name in lost if name.lower() in REPETITION}
            if lost:
                draft.notes.append(
                    f"columns that differ between presentations of one image are left out: {', '.join(sorted(lost))}"
                )
            kind = (
                "one row per value"
                if columns.kind == "long"
                else f"one column per neuroid ({_span(columns.wide)})"
            )
            draft.notes.append(f"{name}: {kind}; column {columns.stimulus!r} names the image")
    else:
        draft.assembly = _array(content, name, variable, held, ids, asked, draft)
    if draft.assembly is None and draft.trials is None:
        draft.notes.insert(0, f"{len(ids)} images")
        return draft
    named = draft.trials["stimulus_id"].to_numpy() if draft.trials is not None else _ids(draft.assembly)
    draft.stimuli = _shown(table, {str(one) for one in named}, draft)
    if draft.assembly is not None:
        draft.assembly = _placed(draft.assembly, asked)
        size = draft.assembly.sizes
        counts = pd.Series(draft.assembly["stimulus_id"].values).value_counts()
        times = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        draft.notes.insert(
            0, f"{len(draft.stimuli)} images, {size['neuroid']} neuroids, {times} presentations of each image"
        )
    elif draft.trials is not None:
        _divided(draft)
    return draft


def _seen(held: Held) -> str:
    """A file with what was read in it."""
    if held.table is not None:
        return f"{held.path.name} with columns {_span(list(map(str, held.table)))}"
    sizes = [f"{name} {' × '.join(map(str, one.shape))}" for name, one in held.arrays.items()]
    return f"{held.path.name} with {_ends(sizes) if sizes else 'nothing that is numbers'}"


def _ids(assembly: xr.DataArray | None) -> list[str]:
    return [] if assembly is None else [str(one) for one in assembly["stimulus_id"].values]


def _span(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]}, {len(names)} columns"


def _stimulus_table(content: Content) -> tuple[pd.DataFrame, bool]:
    """One row per image, in the order of a table of the folder that names every image once, and whether there is one."""
    table = pd.DataFrame({"stimulus_id": content.ids, "filename": content.images})
    for one in content.held:
        columns = None if one.table is None else columns_of(one.table, content.ids)
        if one.table is None or columns is None or columns.kind != "stimuli":
            continue
        values = one.table[columns.stimulus]
        if len(values) != len(table) or not names_stimuli(values.to_numpy(), content.ids):
            continue
        named = stimuli_of(values.to_numpy(), content.ids, None, one.path.name)
        if sorted(named) == sorted(content.ids):
            rest = one.table.drop(columns=[columns.stimulus, *({"filename"} & set(one.table))])
            rest.insert(0, "stimulus_id", named)
            return rest.merge(table, on="stimulus_id"), True
    return table, False


def _shown(table: pd.DataFrame, recorded: set[str], draft: _Draft) -> pd.DataFrame:
    """The images that were recorded with; the others are named in a note."""
    lost = sorted(recorded - set(table["stimulus_id"]))
    if lost:
        raise DataError(
            f"{len(lost)} stimuli of the responses have no image, first {lost[0]!r}: add it, or rename it"
        )
    kept = table[table["stimulus_id"].isin(recorded)].reset_index(drop=True)
    if len(kept) < len(table):
        draft.notes.append(f"{len(table) - len(kept)} images have no responses and are left out")
    return kept


def _counted(
    values: np.ndarray[Any, Any], ids: Sequence[str], content: Content, asked: _Answers, draft: _Draft
) -> tuple[list[str], int | None]:
    """The images in the order in which numbers count them, and the first number, where numbers name stimuli."""
    if values.dtype.kind not in "iuf" or {str(one) for one in values.tolist()} <= set(ids):
        return list(ids), None
    ordered = list(ids) if _stimulus_table(content)[1] else _in_order(ids, asked, draft)
    first = first_number(values, len(ids))
    if first is None or "first" in asked.given:
        first = int(asked.get("first", "number of the first stimulus", ("0", "1")) or 0)
    draft.notes.append(f"numbers name images, from {first}")
    return ordered, first


def _in_order(ids: Sequence[str], asked: _Answers, draft: _Draft) -> list[str]:
    """The images in the order that an array, or numbers, refer to."""
    by_name, by_number = _ends(sorted(ids)), _ends(natural(ids))
    question = f"order of the images: by name {by_name}; by number {by_number}"
    how = asked.get("order", question, ("name", "number"))
    ordered = natural(ids) if how == "number" else sorted(ids)
    draft.notes.append(f"images are counted by {how}: {_ends(ordered)}")
    return ordered


def _ends(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (f", …, {ids[-1]}" if len(ids) > 3 else "")


def _array(
    content: Content,
    name: str,
    variable: str,
    held: Held,
    ids: Sequence[str],
    asked: _Answers,
    draft: _Draft,
) -> xr.DataArray | None:
    """The assembly of an array, whose axes are those that its sizes and their names allow, or that are answered."""
    arrays = held.arrays
    bins = asked.given.get("time_bins", "")
    if not variable:
        spoken = [column for column in arrays if column.endswith(".start_time")]
        begin = spoken[0] if len(spoken) == 1 else asked.get("trials", "intervals of the trials", spoken)
        bins = asked.get("time_bins", "window in ms from the start of a trial in which spikes are counted")
        if not begin or not bins:
            return None
        values = spike_counts(arrays, begin, bins)
        draft.notes.append(f"{name}: spikes from {bins} ms after {begin}")
    else:
        values = arrays[variable]
    images, names, places = names_in(arrays, ids, values.shape) if variable else ([], [], [])
    own = (
        stimuli_of(images[0][1], ids, None, name)
        if len(images) == 1 and "trials" not in asked.given
        else None
    )
    if own is not None:
        draft.notes.append(f"{images[0][0]} names the image of each row")
    trials = None if own else _trials(content, name, variable, values.shape, ids, asked, draft)
    options = (
        [("trial", "neuroid")]
        if not variable
        else layouts(
            values.shape, len(own or ids), len(trials) if trials else None, held.axes.get(variable, ())
        )
    )
    size = " × ".join(map(str, values.shape))
    if not options:
        asked.get(
            "trials",
            f"{name} is {size}, and there are {len(ids)} images: which file names the image of each trial",
        )
        return None
    if len(options) == 1 and "dims" not in asked.given:
        dims = options[0]
    else:
        said = asked.get("dims", f"axes of {name} ({size})", [",".join(one) for one in options])
        dims = tuple(said.split(",")) if said else ()
    if not dims:
        return None
    draft.notes.append(f"{name}: {size} is {' × '.join(dims)}")
    if "time_bin" in dims and not BINS.fullmatch(bins):
        bins = asked.get("time_bins", "first and last edge of the time bins in ms")
    if asked.missing:
        return None
    ordered = own or (list(ids) if trials or _stimulus_table(content)[1] else _in_order(ids, asked, draft))
    if asked.missing:
        return None
    count = dict(zip(dims, values.shape, strict=False)).get("neuroid")
    named, placed = ([one for one in lists if len(one[1]) == count] for lists in (names, places))
    for what, lists in (("names the neuroids", named), ("says where each neuroid is", placed)):
        draft.notes += [f"{one} {what}" for one, _ in lists if len(lists) == 1]
    neuroids, regions = (list(map(str, lists[0][1])) if len(lists) == 1 else () for lists in (named, placed))
    return assembly_of(values, dims, ordered, trials=trials, bins=bins, neuroids=neuroids, regions=regions)


def _trials(
    content: Content,
    name: str,
    variable: str,
    shape: Sequence[int],
    ids: Sequence[str],
    asked: _Answers,
    draft: _Draft,
) -> list[str] | None:
    """The stimulus of each trial: a column or a vector as long as an axis of the responses, unless that is one of images."""
    vectors: dict[str, Any] = {}
    for held in content.held:
        file = held.path.relative_to(content.folder).as_posix()
        columns = None if held.table is None else columns_of(held.table, ids)
        if held.table is not None and columns is not None and columns.kind == "stimuli":
            vectors[f"{file}:{columns.stimulus}"] = held.table[columns.stimulus].to_numpy()
        for key, values in held.arrays.items():
            if values.ndim == 1 and key != variable and not key.endswith("_time"):
                vectors[f"{file}:{key}"] = values
    fits = {
        key: values
        for key, values in vectors.items()
        if len(values) in shape and (_numbers(values, ids) or names_stimuli(values, ids))
    }
    chosen = asked.given.get("trials", "")
    keys = [key for key in fits if chosen in (key, key.partition(":")[0])] if chosen else list(fits)
    if chosen and not keys:
        raise RequestError(
            f"--trials {chosen!r} does not name a stimulus for each trial; such are {', '.join(fits) or 'none'}"
        )
    if not keys or (
        len(ids) in shape and not chosen and all(sorted(map(str, fits[k])) == sorted(ids) for k in keys)
    ):
        return None
    key = (
        keys[0]
        if len(keys) == 1
        else asked.get("trials", "which of these names the image of each trial", keys)
    )
    if not key:
        return None
    values = fits[key]
    counted, first = _counted(values, ids, content, asked, draft)
    if asked.missing:
        return None
    draft.notes.append(f"{key} names the image of each of {len(values)} trials")
    return stimuli_of(values, counted, first, key)


def _numbers(values: Any, ids: Sequence[str]) -> bool:
    """Whether values can be numbers of stimuli."""
    whole = values.dtype.kind in "iuf" and bool((values == np.round(values)).all())
    return whole and values.min() >= 0 and values.max() <= len(ids)


def _placed(assembly: xr.DataArray, asked: _Answers) -> xr.DataArray:
    """The assembly with a region for every neuroid."""
    if "region" in assembly.coords:
        return assembly
    region = asked.get("region", "brain region of the neuroids")
    return assembly.assign_coords(region=("neuroid", np.full(assembly.sizes["neuroid"], region or "?")))


def _divided(draft: _Draft) -> None:
    """Stimuli of a table of choices: every second image of a label fits the readout, the others are tested."""
    trials, stimuli = draft.trials, draft.stimuli
    if trials is None or stimuli is None:
        return
    if "truth" not in trials:
        label = next((name for name in ("object_name", "category", "label") if name in stimuli), None)
        if label is None:
            raise RequestError(
                "choices need what is right: a column truth (or category, label) of the trials or the images"
            )
        trials["truth"] = trials["stimulus_id"].map(stimuli.set_index("stimulus_id")[label])
    truth = trials.drop_duplicates("stimulus_id").set_index("stimulus_id")["truth"].astype(str)
    stimuli["object_name"] = stimuli["stimulus_id"].map(truth)
    turn = stimuli.groupby("object_name").cumcount() % 2
    stimuli["split"] = np.where(turn == 0, "train", "test")
    tested = set(stimuli["stimulus_id"][stimuli["split"] == "test"])
    draft.trials = trials[trials["stimulus_id"].isin(tested)].reset_index(drop=True)
    if draft.trials.empty or stimuli["object_name"].nunique() < 2:
        raise RequestError(
            "choices need two labels or more, and two images or more of a label: one half fits a readout"
        )
    people = draft.trials["subject"].nunique()
    draft.notes.insert(
        0, f"{len(stimuli)} images of {stimuli['object_name'].nunique()} labels, named by {people} people"
    )
    draft.notes.append(
        "every second image of each label fits the readout of a model; choices on the others are compared"
    )


def _benchmarks(id: str, draft: _Draft, degrees: float | None) -> dict[str, dict[str, Any]]:
    """The benchmarks that these data allow, by id."""
    size = {"visual_degrees": degrees} if degrees is not None else {}
    if draft.trials is not None:
        people = draft.trials["subject"].nunique() > 1
        paradigm = {
            "name": "task",
            "decide": "probabilities",
            "label_column": "object_name",
            "fitting": {"split": "train"},
        }
        return {f"{id}.naming": {
            "title": "Does a readout of the model err on the images that people err on", "parent": "behavior", "dataset": id,
            "paradigm": {**paradigm, **size}, "metrics": ["error_consistency", "accuracy"],
            **({"ceiling": "error_consistency"} if people else {}),
            "controls": {"negative": ["noise"], "floor_at_most": 0.25},
        }}  # fmt: skip
    assembly = draft.assembly
    if assembly is None:
        return {}
    stimuli = len(np.unique(assembly["stimulus_id"].values))
    if stimuli < FEWEST_STIMULI:
        raise RequestError(
            f"{stimuli} stimuli are too few to predict any from others: {FEWEST_STIMULI} are needed"
        )
    train = next((share for share in (0.9, 0.8, 0.7) if stimuli * (1 - share) >= FEWEST_TEST), 0.5)
    repeated = (pd.Series(assembly["stimulus_id"].values).value_counts() > 1).all()
    found: dict[str, dict[str, Any]] = {}
    for region in dict.fromkeys(map(str, assembly["region"].values)):
        count = int((assembly["region"].values.astype(str) == region).sum())
        common = {
            "parent": region, "dataset": id, "select": {"region": region},
            "paradigm": {"name": "recording", "region": region, **size},
        }  # fmt: skip
        controls = {"controls": {"negative": ["noise"]}}
        place = re.sub(r"[^A-Za-z0-9._-]+", "-", region)
        metric: Any = "ridgecv" if train == 0.9 else {"name": "ridgecv", "splits": {"train": train}}
        ceiling = {"ceiling": "internal_consistency"} if repeated else {}
        if "time_bin" in assembly.dims:
            metric = {"name": "spantime_ridge", "time": "separate", "splits": {"train": train}}
            ceiling = {"ceiling": "internal_consistency_temporal"} if repeated else {}
        title = f"{count} neuroids of {region}, predicted by ridge regression"
        found[f"{id}.{place}-ridge"] = {"title": title, **common, "metric": metric, **ceiling, **controls}
        if count > 1 and "time_bin" not in assembly.dims:
            title = f"{count} neuroids of {region}, compared by their dissimilarities"
            rdm = {"ceiling": "rdm_consistency"} if repeated else {}
            found[f"{id}.{place}-rdm"] = {"title": title, **common, "metric": "rdm", **rdm, **controls}
    return found


def _recordings(
    catalog: Catalog, content: Content, id: str, title: str | None, asked: _Answers, stamp: str,
    models: Sequence[str], out: Path | None, tell: Callable[[str], None],
) -> Started:  # fmt: skip
    """A BIDS tree: its recordings are cut around events, and what an event shows is decoded."""
    files = [path for path in content.folder.rglob("*_task-*") if path.is_file()]
    tasks = sorted({match[1] for path in files if (match := re.search(r"_task-([A-Za-z0-9+]+)_", path.name))})
    kinds = sorted({path.parent.name for path in files} & {"eeg", "meg", "ieeg", "emg"})
    subjects = sorted({path.name.partition("_")[0] for path in files})
    if not tasks or not kinds:
        raise RequestError(
            f"{content.folder} is BIDS without recordings of a task in eeg, meg, ieeg or emg: nothing to decode"
        )
    notes = [f"{kinds[0]} of {len(subjects)} people, tasks {', '.join(tasks)}"]
    task = tasks[0] if len(tasks) == 1 else asked.get("task", "task to read", tasks)
    tables = [
        pd.read_csv(path, sep="\t")
        for path in files
        if path.name.endswith("_events.tsv") and f"_task-{task}_" in path.name
    ]
    types = [str(one) for table in tables if "trial_type" in table for one in table["trial_type"].unique()]
    counted = pd.Series(types, dtype=str).value_counts()
    said = asked.get(
        "events", f"events to decode, of {', '.join(counted.index) or 'none found'}, as DESCRIPTION=LABEL,…"
    )
    window = asked.get("window", "start and end of a window in s from its event, as 0:1")
    license = asked.get("license", "licence of the data (SPDX)")
    access = asked.get("access", "who may see values", ("public", "private"))
    asked.require(notes)
    labels = dict(part.rpartition("=")[::2] for part in said.split(","))
    edges = BINS.fullmatch(window)
    if edges is None or "" in labels or len(set(labels.values())) < 2:
        raise RequestError(
            "--events are DESCRIPTION=LABEL,… with two labels or more, --window is START:END in s"
        )
    begin, end = map(float, edges.groups())
    if end <= begin:
        raise RequestError(f"--window {window}: the end must come after the start")
    protocol = "cross_subject" if len(subjects) > 2 else "within_session"
    notes.append(f"events {said}, windows from {begin:g} to {end:g} s; splits {protocol}")
    for note in notes:
        tell(note)
    asked.agree()
    cut = {"start": begin, "duration": end - begin, "labels": labels}
    again = (
        f"Made from a BIDS tree of its owner; `neuroledger pin {id} --from FOLDER` places the files again."
    )
    people = {"check": "distinct", "column": "subject", "count": len(subjects)}
    fields: dict[str, Any] = {
        "title": title or notes[0], "license": license, "access": access, "modality": kinds[0], "access_steps": [again],
        "reader": {"name": "bids_epochs", "task": task, "datatype": kinds[0], "window": cut},
        "expectations": {"assembly": [{"check": "values_finite"}, people]},
        "notes": [*notes[1:], stamp], "unavailable": "not pinned yet",
    }  # fmt: skip
    written = [_spec(catalog, "dataset", id, fields)]
    try:
        pin(open_catalog(catalog.root), id, Downloads(folder=content.folder, bids=True, task=task))
    except Exception:
        written[0].unlink()
        raise
    name = f"{id}-{protocol}"
    written.append(_spec(catalog, "benchmark", name, {
        "title": f"Decode {', '.join(sorted(set(labels.values())))} ({protocol})", "parent": "decoding", "dataset": id,
        "paradigm": {"name": "decoding", "target": "label", "splits": {"name": protocol}},
        "metric": "balanced_accuracy", "floor": {"dummy": "dummy"}, "tags": ["decoding"],
        "controls": {"positive": ["planted_lda"], "negative": ["shuffled_lda"], "floor_at_most": 0.35},
    }))  # fmt: skip
    fields = {
        "title": f"Decoding of {id}",
        "benchmarks": [name],
        "models": list(dict.fromkeys((*DECODERS, *models))),
    }
    written.append(_spec(catalog, "suite", id, fields))
    return _score(open_catalog(catalog.root), id, models, out, tell, notes=notes, written=written)


def _score(
    catalog: Catalog, id: str, models: Sequence[str], out: Path | None, tell: Callable[[str], None],
    *, notes: Sequence[str], written: Sequence[Path],
) -> Started:  # fmt: skip
    """Check the specs, validate the data, score what is missing and build the pages."""
    suite = catalog.suite(id)
    benchmarks = tuple(item.id for item in suite.benchmarks)
    paths = [catalog.entry(kind, one).path for kind, ids in
             (("datasets", [id]), ("benchmarks", benchmarks), ("suites", [id])) for one in ids]  # fmt: skip
    problems = [one for one in check(catalog, paths)[0] if one.severity == "error"]
    if problems:
        raise SpecError(problems)
    report = validate(catalog, id)
    if not report.success:
        raise DataError(str(report))
    params = read_params(catalog.root)
    request = Request(seed=params.seed, device=params.device)
    asked = list(dict.fromkeys((*suite.models, *models)))
    planned = plan(catalog, models=asked, suites=[suite], request=request)
    for note in planned.notes():
        tell(note)
    with choose() as display:
        outcomes = run_jobs(catalog, planned.jobs, request, display, retry_failed=bool(written))
    folder = out or catalog.root / f"site-{id}"
    build_site(catalog, id, folder)
    records = tuple(outcome.record for outcome in outcomes)
    return Started(id, benchmarks, id, tuple(notes), records, folder / "index.html", tuple(written))
