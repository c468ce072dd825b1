"""import, export, embed: exchange of data sets, models and results with other projects, and embeddings."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neuroledger.display import choose, say
from neuroledger.errors import RequestError
from neuroledger.families.signals.embeddings.stimulus_source import (
    Source,
    images_in,
    listed,
    source_of_dataset,
)
from neuroledger.spec.catalog import Catalog, open_catalog


def _open_catalog(options: argparse.Namespace) -> Catalog:
    """Open the catalogue; report its repository if it neither was given nor contains the working directory."""
    catalog = open_catalog(options.root)
    if options.root is None and not Path.cwd().resolve().is_relative_to(
        catalog.root.resolve()
    ):
        say(
            f"repository: {catalog.root} (the working directory is in no repository; choose another with --root)"
        )
    return catalog


def import_(options: argparse.Namespace) -> int:
    """Import a key or files of Brain-Score, a Brain-Score model plugin, or a published tree of recordings."""
    from neuroledger.data.pin.pin import alone

    with alone(_open_catalog(options).root):
        if options.project == "brainscore-model":
            return _import_model_plugin(options)
        return (
            _import_brainscore(options)
            if options.project == "brainscore"
            else _import_tree(options)
        )


def _import_brainscore(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_files import (
        fetch_brainscore,
        import_brainscore,
    )

    if options.source is not None:
        return _import_data_plugin(options)
    catalog = open_catalog(options.root)
    if not options.files:
        if options.sha1 or options.degrees is not None or options.access != "public":
            raise RequestError(
                "--sha1, --degrees and --access describe files: name the files, or omit the options"
            )
        with choose() as display:
            for pinned in fetch_brainscore(
                catalog, options.id, progress=display.progress
            ):
                if isinstance(pinned, str):
                    display.line(f"{pinned}: already pinned and complete")
                    continue
                display.line(
                    f"pinned {pinned.files} files in {catalog.shown(pinned.path)}"
                )
                for remark in pinned.remarks:
                    display.line(f"note: {remark}")
        say("next: `neuroledger validate`, then `neuroledger run`")
        return 0
    sha1 = dict(text.rpartition("=")[::2] for text in options.sha1)
    if "" in sha1:
        raise RequestError(
            "--sha1 must be FILE=SHA1, such as --sha1 assy_x.nc=13d28ca0ce88ee550b54db3004374ae19096e9b9"
        )
    terms = {"sha1": sha1, "access": options.access, "degrees": options.degrees}
    for path in import_brainscore(catalog, options.id, options.files, **terms):
        say(f"wrote {catalog.shown(path)}")
    say(
        f"pinned in specs/datasets/{options.id}.yaml; next: state its licence, then `neuroledger validate {options.id}`"
    )
    return 0


def _import_data_plugin(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_data_plugins import (
        import_data_plugin,
    )

    if (
        options.files
        or options.sha1
        or options.degrees is not None
        or options.access != "public"
    ):
        raise RequestError(
            "--from names a data plugin, which lists its files itself: omit files, --sha1, --degrees and --access"
        )
    catalog = open_catalog(options.root)
    path = import_data_plugin(catalog, options.id, Path(options.source))
    say(f"wrote {catalog.shown(path)}")
    say(
        f"next: `neuroledger import brainscore {options.id}` fetches and pins the files that it lists"
    )
    return 0


def _import_model_plugin(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_plugins import import_plugin

    if options.source is None or len(options.files) > 1:
        raise RequestError(
            "give the folder of the plugin, or its Python file, with --from, and at most one checkpoint of its weights"
        )
    catalog = open_catalog(options.root)
    path, plugin = import_plugin(catalog, options.id, Path(options.source))
    if options.files:
        from neuroledger.cli.own_models import package_model

        try:
            pinned = package_model(
                open_catalog(options.root), options.id, options.files[0]
            )
        except BaseException:
            path.unlink()
            raise
        for target in pinned[:1]:
            say(f"wrote {catalog.shown(target)}")
    say(
        f"wrote {catalog.shown(path)}: {len(plugin.layers)} layers, regions {', '.join(plugin.regions) or 'none'}"
    )
    for name in plugin.unread:
        say(
            f"note: {name} could not be read: the source does not define it by constants"
        )
    package = f"`neuroledger package model {options.id} CHECKPOINT`"
    say(
        f"next: `neuroledger check {catalog.shown(path)}`, {f'`neuroledger run {options.id}`' if options.files else package}"
    )
    return 0


def _import_tree(options: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from neuroledger.families.signals.pinning.import_tree import (
        Stated,
        Wanted,
        import_tree,
    )
    from neuroledger.families.signals.pinning.trees import open_tree

    events = dict(text.rpartition("=")[::2] for text in options.event)
    if "" in events:
        raise RequestError(
            "--event must be TYPE=LABEL, such as --event stimulus/left=left"
        )
    if options.files:
        raise RequestError(
            f"unexpected file {options.files[0]}: give a clone or a listing with --from"
        )
    tree_facts = None
    if options.facts is not None:
        try:
            tree_facts = Stated.model_validate_json(options.facts.read_bytes())
        except (OSError, ValidationError) as error:
            raise RequestError(
                f"{options.facts} cannot be read as facts: {error}"
            ) from error
    start, duration = options.window
    if options.project == "dandi":
        from neuroledger.families.signals.pinning.import_dandi import import_dandi

        catalog = open_catalog(options.root)
        name = options.dataset or f"dandi{options.id}"
        pinned = import_dandi(
            catalog, options.id, name, version=options.version, window=(start, duration)
        )
        say(
            f"wrote {catalog.shown(pinned.path)}: {pinned.files:,} files, {pinned.size / 1e9:.2f} GB"
        )
        return 0
    selection = Wanted(
        task=tuple(options.task),
        events=events,
        window=(start, duration),
        datatype=options.datatype,
        published=tuple(options.published),
    )
    catalog = open_catalog(options.root)
    id = options.dataset or options.id
    with open_tree(options.project, options.id, options.source) as tree:
        imported = import_tree(catalog, tree, id, selection, tree_facts)
    path = catalog.shown(imported.path)
    say(
        f"wrote {path}: {imported.files:,} files, {imported.size / 1e9:.2f} GB, {imported.people} subjects"
    )
    for label, count in imported.trials.items():
        say(f"  {count:,} events {label}")
    for defect in imported.defects:
        say(f"defect: {defect}")
    say(f"next: `neuroledger check {path}`, `neuroledger fetch {id}`")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write a data set or results in the layout of another project."""
    from neuroledger.families.alignment.brainscore_files import export_brainscore
    from neuroledger.families.efficiency.exports import (
        export_neurobench,
        export_sc_neurocore,
    )

    catalog = _open_catalog(options)
    layouts = {
        "brainscore": export_brainscore,
        "neurobench": export_neurobench,
        "sc-neurocore": export_sc_neurocore,
    }
    for path in layouts[options.project](catalog, options.id, options.out):
        say(f"wrote {path}")
    return 0


PROGRESS_SECONDS: Final = 10.0
"""Time between two reports of progress."""


def embed(options: argparse.Namespace) -> int:
    """Write the embeddings of the stimuli of a table, a data set or a folder of images as netCDF."""
    from neuroledger.engine.session import Request, Session
    from neuroledger.families.signals.embeddings.embed import embed as embedded
    from neuroledger.families.signals.embeddings.embed import (
        require_place,
        write_embeddings,
    )

    require_place(options.out)
    catalog = open_catalog(options.root)
    source = _source(catalog, options)
    session = Session(catalog, Request(device=options.device))
    progress = _Progress(len(source.table))
    table = embedded(
        session,
        options.model,
        source,
        layer=options.layer,
        mean=options.mean,
        tell=progress,
    )
    write_embeddings(table, options.out)
    say(
        f"wrote {options.out}: {table.shape[0]} stimuli, {table.shape[1]} features of {table.attrs['layer']}"
    )
    if "notes" in table.attrs:
        say(table.attrs["notes"])
    return 0


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


def _source(catalog: Catalog, options: argparse.Namespace) -> Source:
    """Return the stimuli that the options select."""
    folder = options.images or options.sounds or options.videos
    if options.names and (
        options.table is not None
        or options.dataset is not None
        or options.images is None
    ):
        raise RequestError(
            "--names needs --images without --table and --dataset: omit it, or omit these"
        )
    if options.source is not None and options.dataset is None:
        raise RequestError(
            "--from is the folder of a data set's downloads: name the data set with --dataset"
        )
    if options.dataset is not None:
        if options.table is not None:
            raise RequestError(
                "--dataset and --table both select stimuli: give one of them"
            )
        return source_of_dataset(catalog, options.dataset, options.source, folder)
    if options.table is not None:
        return listed(options.table, folder)
    if options.images is None:
        raise RequestError(
            "no stimuli are selected: give --table CSV, --dataset ID, or --images FOLDER"
        )
    return images_in(options.images, by_name=options.names)
