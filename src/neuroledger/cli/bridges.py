"""import, export, embed: exchange of data sets, models and results with other projects, and embeddings."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from neuroledger.cli.options import (
    Degrees,
    Json,
    Root,
    argument,
    flag,
    option,
    pairs_of,
)
from neuroledger.cli.output import SUCCESS, Output
from neuroledger.display import choose
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    from neuroledger.families.signals.embeddings.stimulus_source import Source
    from neuroledger.families.signals.pinning.import_tree import Stated
    from neuroledger.spec.catalog import Catalog

# What is wrong if options describe files, and none is named.
DESCRIBE_FILES = "--sha1, --degrees and --access describe files"


def _open_catalog(root: Path | None, answer: Output) -> Catalog:
    """Open the catalogue; report its repository if it neither was given nor contains the working directory."""
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    inside = Path.cwd().resolve().is_relative_to(catalog.root.resolve())
    if root is None and not inside:
        answer.line(
            f"repository: {catalog.root} (the working directory is in no repository; choose another with --root)"
        )
    return catalog


class _Files(NamedTuple):
    """Files of Brain-Score, and what was said about them."""

    paths: list[Path]
    sha1: list[str]
    access: Literal["public", "private"]
    degrees: float | None

    @property
    def described(self) -> bool:
        """Whether anything was said about files."""
        return bool(self.sha1 or self.degrees is not None or self.access != "public")


def import_(
    project: Annotated[
        Literal["brainscore", "brainscore-model", "openneuro", "nemar", "dandi"],
        argument("PROJECT", "where it comes from"),
    ],
    id: Annotated[
        str,
        argument(
            "KEY",
            "brainscore: a benchmark, data set or stimulus set, or with files the id of a new data set; "
            "openneuro, nemar, dandi: the id there, such as ds004504",
        ),
    ],
    files: Annotated[
        list[Path] | None,
        argument(
            "FILE",
            "brainscore: assy_*.nc, stimulus_*.csv, stimulus_*.zip; "
            "brainscore-model: the checkpoint of its weights",
        ),
    ] = None,
    source: Annotated[
        str | None,
        option(
            "--from",
            "REPOSITORY",
            "a clone, its URL, or a listing (.tsv); brainscore and brainscore-model: the folder of a plugin",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        option(
            "--as",
            "DATASET",
            "id of the data set in this repository (default: KEY; dandi: dandiKEY)",
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        option("--task", "NAME", "read this BIDS task; may be repeated"),
    ] = None,
    events: Annotated[
        list[str] | None,
        option("--event", "TYPE=LABEL", "a trial type and its label; may be repeated"),
    ] = None,
    window: Annotated[
        tuple[float, float],
        option("--window", "START DURATION", "window around an event in s"),
    ] = (0.0, 1.0),
    published: Annotated[
        list[str] | None,
        option(
            "--published",
            "PATTERN",
            "pin these files unchanged although no reader reads them, such as 'sourcedata/*.mat'; may be repeated",
        ),
    ] = None,
    version: Annotated[
        str,
        option("--version", "VERSION", "dandi: version, such as 0.220113.0400"),
    ] = "draft",
    datatype: Annotated[
        Literal["eeg", "meg", "ieeg", "emg"],
        option("--datatype", None, "BIDS data type"),
    ] = "eeg",
    facts: Annotated[
        Path | None,
        option(
            "--facts",
            "JSON",
            "facts about a listing: license, title, authors, doi and trials",
        ),
    ] = None,
    sha1: Annotated[
        list[str] | None,
        option(
            "--sha1",
            "FILE=SHA1",
            "SHA-1 that the registry states for a file; may be repeated",
        ),
    ] = None,
    access: Annotated[
        Literal["public", "private"],
        option("--access", None, "who may have the files"),
    ] = "public",
    degrees: Degrees = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Import a data set or model of another project as a spec.

    JSON: written (paths), notes, and next (commands that usually follow).
    """
    from neuroledger.data.pin.pin import alone
    from neuroledger.spec.catalog import open_catalog

    answer = Output(json)
    given = _Files(files or [], sha1 or [], access, degrees)
    with alone(_open_catalog(root, answer).root):
        catalog = open_catalog(root)
        if project == "brainscore-model":
            _import_model_plugin(catalog, id, source, given.paths, answer)
        elif project == "brainscore" and source is not None:
            _import_data_plugin(catalog, id, Path(source), given, answer)
        elif project == "brainscore":
            _import_brainscore(catalog, id, given, answer)
        else:
            published_tree = _Tree(project, id, dataset, source, version, facts)
            wanted = _Wanted(tasks, events, window, datatype, published)
            _import_recordings(catalog, published_tree, wanted, given.paths, answer)
    answer.end()
    return SUCCESS


def _import_brainscore(
    catalog: Catalog, id: str, given: _Files, answer: Output
) -> None:
    """Import a key of the registry with the files that it lists, or files as a new data set."""
    from neuroledger.families.alignment.brainscore_files import import_brainscore

    if not given.paths:
        if given.described:
            raise RequestError(f"{DESCRIBE_FILES}: name the files, or omit the options")
        _fetch_brainscore(catalog, id, answer)
        return
    form = (
        "FILE=SHA1, such as --sha1 assy_x.nc=13d28ca0ce88ee550b54db3004374ae19096e9b9"
    )
    written = import_brainscore(
        catalog,
        id,
        given.paths,
        sha1=pairs_of(given.sha1, "--sha1", form),
        access=given.access,
        degrees=given.degrees,
    )
    for path in written:
        answer.wrote(catalog.shown(path))
    answer.then(
        f"neuroledger validate {id}",
        before=f"pinned in specs/datasets/{id}.yaml; next: state its licence, then ",
    )


def _fetch_brainscore(catalog: Catalog, id: str, answer: Output) -> None:
    """Fetch and pin the files that a key of the registry lists."""
    from neuroledger.families.alignment.brainscore_files import fetch_brainscore

    with choose() as display:
        for pinned in fetch_brainscore(catalog, id, progress=display.progress):
            if isinstance(pinned, str):
                display.line(f"{pinned}: already pinned and complete")
                continue
            place = catalog.shown(pinned.path)
            answer.written.append(place)
            display.line(f"pinned {pinned.files} files in {place}")
            for remark in pinned.remarks:
                answer.notes.append(remark)
                display.line(f"note: {remark}")
    answer.next += ["neuroledger validate", "neuroledger run"]
    answer.line("next: `neuroledger validate`, then `neuroledger run`")


def _import_data_plugin(
    catalog: Catalog, id: str, folder: Path, given: _Files, answer: Output
) -> None:
    """Import the spec of a data set from the source of a plugin of Brain-Score."""
    from neuroledger.families.alignment.brainscore_data_plugins import (
        import_data_plugin,
    )

    if given.paths or given.described:
        raise RequestError(
            "--from names a data plugin, which lists its files itself: omit files, --sha1, --degrees and --access"
        )
    path = import_data_plugin(catalog, id, folder)
    command = f"neuroledger import brainscore {id}"
    answer.wrote(catalog.shown(path))
    answer.next.append(command)
    answer.line(f"next: `{command}` fetches and pins the files that it lists")


def _import_model_plugin(
    catalog: Catalog, id: str, source: str | None, files: list[Path], answer: Output
) -> None:
    """Import a model from the source of a plugin of Brain-Score, with its weights if a checkpoint is named."""
    from neuroledger.families.alignment.brainscore_plugins import import_plugin

    if source is None or len(files) > 1:
        raise RequestError(
            "give the folder of the plugin, or its Python file, with --from, and at most one checkpoint of its weights"
        )
    path, plugin = import_plugin(catalog, id, Path(source))
    if files:
        _package_weights(catalog, id, path, files[0], answer)
    regions = ", ".join(plugin.regions) or "none"
    shown = catalog.shown(path)
    answer.wrote(shown, f": {len(plugin.layers)} layers, regions {regions}")
    for name in plugin.unread:
        words = "could not be read: the source does not define it by constants"
        answer.note(f"{name} {words}", label="note: ")
    package = f"neuroledger package model {id} CHECKPOINT"
    answer.then(
        f"neuroledger check {shown}", f"neuroledger run {id}" if files else package
    )


def _package_weights(
    catalog: Catalog, id: str, path: Path, checkpoint: Path, answer: Output
) -> None:
    """Pin the weights of a model that was just imported; without them, its spec is removed again."""
    from neuroledger.cli.own_models import package_model
    from neuroledger.spec.catalog import open_catalog

    try:
        pinned = package_model(open_catalog(catalog.root), id, checkpoint)
    except BaseException:
        path.unlink()
        raise
    answer.wrote(catalog.shown(pinned[0]))


class _Tree(NamedTuple):
    """A published tree of recordings: where it is, and the id that it gets here."""

    project: Literal["openneuro", "nemar", "dandi"]
    id: str
    dataset: str | None
    source: str | None
    version: str
    facts: Path | None


class _Wanted(NamedTuple):
    """Which recordings of a tree become a data set."""

    tasks: list[str] | None
    events: list[str] | None
    window: tuple[float, float]
    datatype: Literal["eeg", "meg", "ieeg", "emg"]
    published: list[str] | None


def _import_recordings(
    catalog: Catalog,
    tree: _Tree,
    wanted: _Wanted,
    files: list[Path],
    answer: Output,
) -> None:
    """Import a published tree of recordings."""
    form = "TYPE=LABEL, such as --event stimulus/left=left"
    events = pairs_of(wanted.events, "--event", form)
    if files:
        raise RequestError(
            f"unexpected file {files[0]}: give a clone or a listing with --from"
        )
    stated = _facts(tree.facts)
    if tree.project == "dandi":
        _import_dandi(catalog, tree, wanted.window, answer)
    else:
        _import_tree(catalog, tree, wanted, events, stated, answer)


def _facts(path: Path | None) -> Stated | None:
    """Return what a file states about a listing.

    Raises
    ------
    RequestError
        The file cannot be read.
    """
    from pydantic import ValidationError

    from neuroledger.families.signals.pinning.import_tree import Stated

    if path is None:
        return None
    try:
        return Stated.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise RequestError(f"{path} cannot be read as facts: {error}") from error


def _import_dandi(
    catalog: Catalog, tree: _Tree, window: tuple[float, float], answer: Output
) -> None:
    from neuroledger.families.signals.pinning.import_dandi import import_dandi

    name = tree.dataset or f"dandi{tree.id}"
    pinned = import_dandi(catalog, tree.id, name, version=tree.version, window=window)
    size = f"{pinned.files:,} files, {pinned.size / 1e9:.2f} GB"
    answer.wrote(catalog.shown(pinned.path), f": {size}")


def _import_tree(
    catalog: Catalog,
    tree: _Tree,
    wanted: _Wanted,
    events: dict[str, str],
    stated: Stated | None,
    answer: Output,
) -> None:
    from neuroledger.families.signals.pinning.import_tree import Wanted, import_tree
    from neuroledger.families.signals.pinning.trees import open_tree

    id = tree.dataset or tree.id
    selection = Wanted(
        task=tuple(wanted.tasks or ()),
        events=events,
        window=wanted.window,
        datatype=wanted.datatype,
        published=tuple(wanted.published or ()),
    )
    with open_tree(tree.project, tree.id, tree.source) as opened:
        imported = import_tree(catalog, opened, id, selection, stated)
    path = catalog.shown(imported.path)
    size = f"{imported.files:,} files, {imported.size / 1e9:.2f} GB"
    answer.wrote(path, f": {size}, {imported.people} subjects")
    for label, count in imported.trials.items():
        answer.note(f"{count:,} events {label}", label="  ")
    for defect in imported.defects:
        answer.note(defect, label="defect: ")
    answer.then(f"neuroledger check {path}", f"neuroledger fetch {id}")


def export(
    project: Annotated[
        Literal[
            "brainscore",
            "neurobench",
            "sc-neurocore",
            "mlflow",
            "wandb",
            "dvclive",
            "huggingface",
        ],
        argument("PROJECT", "whose format is written"),
    ],
    id: Annotated[
        str,
        argument(
            "ID",
            "brainscore, huggingface: id of a data set; neurobench, sc-neurocore: id of a benchmark; mlflow, wandb, "
            "dvclive: id of a benchmark or suite",
            ids=("benchmarks", "datasets", "suites"),
        ),
    ],
    out: Annotated[Path, option("--out", "DIR", "output folder")] = Path("export"),
    json: Json = False,
    root: Root = None,
) -> int:
    """Write a data set or results in the format of another project.

    Scores become runs of a tracker: `mlflow` uses MLFLOW_TRACKING_URI, `wandb` is offline unless WANDB_MODE is set.
    `huggingface` writes the card of a data set, without data.

    JSON: written (paths), notes, and next (commands that usually follow).
    """
    answer = Output(json)
    catalog = _open_catalog(root, answer)
    for path in _exported(project, catalog, id, out):
        answer.wrote(path)
    answer.end()
    return SUCCESS


def _exported(project: str, catalog: Catalog, id: str, out: Path) -> Iterable[Path]:
    """Write in the format of a project, and return the paths of the files."""
    if project == "brainscore":
        from neuroledger.families.alignment.brainscore_files import export_brainscore

        return export_brainscore(catalog, id, out)
    if project in ("neurobench", "sc-neurocore"):
        from neuroledger.families.efficiency import exports

        name = f"export_{project.replace('-', '_')}"
        written: Iterable[Path] = getattr(exports, name)(catalog, id, out)
        return written
    from neuroledger.report import trackers

    if project == "huggingface":
        return [trackers.dataset_card(catalog, id, out)]
    log = {
        "mlflow": trackers.to_mlflow,
        "wandb": trackers.to_wandb,
        "dvclive": trackers.to_dvclive,
    }
    return log[project](trackers.records_of(catalog, id), out)


PROGRESS_SECONDS: Final = 10.0
"""Time between two reports of progress."""


def embed(
    model: Annotated[
        str,
        argument(
            "MODEL", "id of a model that embeds, or of one with layers", ids=("models",)
        ),
    ],
    out: Annotated[Path, option("--out", "FILE.nc", "output file")],
    table: Annotated[
        Path | None,
        option(
            "--table",
            "CSV",
            "stimuli: columns stimulus_id, and text, or filename (with start and duration)",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        option(
            "--dataset",
            "ID",
            "use the stimuli that the reader of this data set lists",
            ids=("datasets",),
        ),
    ] = None,
    downloads: Annotated[
        Path | None,
        option("--from", "FOLDER", "folder with the downloads of the data set"),
    ] = None,
    images: Annotated[
        Path | None,
        option(
            "--images", "FOLDER", "folder of the images; without a table: all of them"
        ),
    ] = None,
    sounds: Annotated[
        Path | None,
        option("--sounds", "FOLDER", "folder of the sounds of the table"),
    ] = None,
    videos: Annotated[
        Path | None,
        option("--videos", "FOLDER", "folder of the films of the table"),
    ] = None,
    names: Annotated[
        bool,
        flag("--names", "use file names without folders as the ids of images"),
    ] = False,
    layer: Annotated[
        str | None,
        option(
            "--layer",
            "LAYER",
            "layer of the model, or hidden states by number, such as 8 or 22,24",
        ),
    ] = None,
    mean: Annotated[
        list[int] | None,
        option(
            "--mean", "AXIS", "average over this axis of the layer; may be repeated"
        ),
    ] = None,
    device: Annotated[
        str,
        option("--device", "DEVICE", "cpu, cuda, mps or auto"),
    ] = "cpu",
    json: Json = False,
    root: Root = None,
) -> int:
    """Compute a model's embeddings of stimuli, for retrieval tasks.

    JSON: stimuli and features (their numbers), layer, written, notes and next.
    """
    from neuroledger.engine.session import Request, Session
    from neuroledger.families.signals.embeddings.embed import embed as embedded
    from neuroledger.families.signals.embeddings.embed import (
        require_place,
        write_embeddings,
    )
    from neuroledger.spec.catalog import open_catalog

    require_place(out)
    catalog = open_catalog(root)
    given = [folder for folder in (images, sounds, videos) if folder is not None]
    if len(given) > 1:
        raise RequestError("give one of --images, --sounds and --videos")
    selection = _Stimuli(table, dataset, downloads, images, given[0] if given else None)
    source = _source(catalog, selection, by_name=names)
    session = Session(catalog, Request(device=device))
    values = embedded(
        session,
        model,
        source,
        layer=layer,
        mean=mean or (),
        tell=_Progress(len(source.table)),
    )
    write_embeddings(values, out)
    stimuli, features = values.shape
    used = values.attrs["layer"]
    answer = Output(json)
    answer.wrote(out, f": {stimuli} stimuli, {features} features of {used}")
    if "notes" in values.attrs:
        answer.note(values.attrs["notes"])
    answer.end(stimuli=stimuli, features=features, layer=used)
    return SUCCESS


@dataclass
class _Progress:
    """Reports progress on standard error at regular intervals."""

    total: int
    reported: float = field(default_factory=time.monotonic)

    def __call__(self, done: int) -> None:
        """Report that ``done`` stimuli are embedded, if the last report is old enough."""
        if time.monotonic() - self.reported >= PROGRESS_SECONDS:
            self.reported = time.monotonic()
            sys.stderr.write(f"{done:,} of {self.total:,} stimuli\n")


class _Stimuli(NamedTuple):
    """What the options say about the stimuli; ``folder`` holds their files, ``images`` if they are images."""

    table: Path | None
    dataset: str | None
    downloads: Path | None
    images: Path | None
    folder: Path | None

    def require_one_meaning(self, *, by_name: bool) -> None:
        """Require that the options do not contradict each other.

        Raises
        ------
        RequestError
            They do; the message names two of them.
        """
        listed_otherwise = self.table is not None or self.dataset is not None
        if by_name and (listed_otherwise or self.images is None):
            raise RequestError(
                "--names needs --images without --table and --dataset: omit it, or omit these"
            )
        if self.downloads is not None and self.dataset is None:
            raise RequestError(
                "--from is the folder of a data set's downloads: name the data set with --dataset"
            )
        if self.dataset is not None and self.table is not None:
            raise RequestError(
                "--dataset and --table both select stimuli: give one of them"
            )


def _source(catalog: Catalog, given: _Stimuli, *, by_name: bool) -> Source:
    """Return the stimuli that the options select."""
    from neuroledger.families.signals.embeddings.stimulus_source import (
        images_in,
        listed,
        source_of_dataset,
    )

    given.require_one_meaning(by_name=by_name)
    if given.dataset is not None:
        return source_of_dataset(catalog, given.dataset, given.downloads, given.folder)
    if given.table is not None:
        return listed(given.table, given.folder)
    if given.images is None:
        raise RequestError(
            "no stimuli are selected: give --table CSV, --dataset ID, or --images FOLDER"
        )
    return images_in(given.images, by_name=by_name)
