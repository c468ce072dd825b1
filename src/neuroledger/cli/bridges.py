"""import, export, embed: what other projects' files and networks hold, here, and what is here, in their files."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neuroledger.cli.output import alone, say
from neuroledger.display import choose
from neuroledger.errors import RequestError
from neuroledger.families.signals.embeddings.stimulus_source import (
    Source,
    images_in,
    listed,
    source_of_dataset,
)
from neuroledger.spec.catalog import Catalog, open_catalog


def _opened(options: argparse.Namespace) -> Catalog:
    """The catalogue; where its repository is neither named nor around this folder, a line that says where it is."""
    catalog = open_catalog(options.root)
    if options.root is None and not Path.cwd().resolve().is_relative_to(catalog.root.resolve()):
        say(f"repository: {catalog.root} (there is none here: choose another with --root)")
    return catalog


def bring_in(options: argparse.Namespace) -> int:
    """`import`: a key of Brain-Score's registry, its files, or published trees of recordings, as a data set."""
    with alone(_opened(options).root):
        if options.project == "brainscore-model":
            return _plugin(options)
        return _brainscore(options) if options.project == "brainscore" else _tree(options)


def _brainscore(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_files import fetch_brainscore, import_brainscore

    if options.source is not None:
        return _data_plugin(options)
    catalog = open_catalog(options.root)
    if not options.files:
        if options.sha1 or options.degrees is not None or options.access != "public":
            raise RequestError(
                "--sha1, --degrees and --access are about files: name them, or leave the options out"
            )
        with choose() as display:
            for done in fetch_brainscore(catalog, options.id, progress=display.progress):
                if isinstance(done, str):
                    display.line(f"{done}: pinned already, and complete")
                    continue
                display.line(f"pinned {done.files} files in {catalog.shown(done.path)}")
                for remark in done.remarks:
                    display.line(f"note: {remark}")
        say("next: `neuroledger validate`, then `neuroledger run`")
        return 0
    sha1 = dict(text.rpartition("=")[::2] for text in options.sha1)
    if "" in sha1:
        raise RequestError(
            "--sha1 is FILE=SHA1, such as --sha1 assy_x.nc=13d28ca0ce88ee550b54db3004374ae19096e9b9"
        )
    given = {"sha1": sha1, "access": options.access, "degrees": options.degrees}
    for path in import_brainscore(catalog, options.id, options.files, **given):
        say(f"wrote {catalog.shown(path)}")
    say(
        f"pinned in specs/datasets/{options.id}.yaml; next: its licence, then `neuroledger validate {options.id}`"
    )
    return 0


def _data_plugin(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_data_plugins import import_data_plugin

    if options.files or options.sha1 or options.degrees is not None or options.access != "public":
        raise RequestError("--from names a data plugin, which states its files itself: leave the others out")
    catalog = open_catalog(options.root)
    path = import_data_plugin(catalog, options.id, Path(options.source))
    say(f"wrote {catalog.shown(path)}")
    say(f"next: `neuroledger import brainscore {options.id}` fetches what it names, and pins it")
    return 0


def _plugin(options: argparse.Namespace) -> int:
    from neuroledger.families.alignment.brainscore_plugins import import_plugin

    if options.source is None or len(options.files) > 1:
        raise RequestError(
            "name the folder of the plugin, or its Python file, with --from, and at most one checkpoint of its weights"
        )
    catalog = open_catalog(options.root)
    path, plugin = import_plugin(catalog, options.id, Path(options.source))
    if options.files:
        from neuroledger.cli.own_models import package_model

        try:
            pinned = package_model(open_catalog(options.root), options.id, options.files[0])
        except BaseException:
            path.unlink()
            raise
        for target in pinned[:1]:
            say(f"wrote {catalog.shown(target)}")
    say(
        f"wrote {catalog.shown(path)}: {len(plugin.layers)} layers, regions {', '.join(plugin.regions) or 'none'}"
    )
    for name in plugin.unread:
        say(f"note: the source does not state {name} in constants")
    package = f"`neuroledger package model {options.id} CHECKPOINT`"
    say(
        f"next: `neuroledger check {catalog.shown(path)}`, {f'`neuroledger run {options.id}`' if options.files else package}"
    )
    return 0


def _tree(options: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from neuroledger.families.signals.pinning.import_tree import Stated, Wanted, import_tree
    from neuroledger.families.signals.pinning.trees import open_tree

    events = dict(text.rpartition("=")[::2] for text in options.event)
    if "" in events:
        raise RequestError("--event is TYPE=LABEL, such as --event stimulus/left=left")
    if options.files:
        raise RequestError(f"{options.files[0]}: name a clone or listing with --from")
    stated = None
    if options.facts is not None:
        try:
            stated = Stated.model_validate_json(options.facts.read_bytes())
        except (OSError, ValidationError) as error:
            raise RequestError(f"{options.facts} cannot be read as facts: {error}") from error
    start, duration = options.window
    if options.project == "dandi":
        from neuroledger.families.signals.pinning.import_dandi import import_dandi

        catalog = open_catalog(options.root)
        name = options.dataset or f"dandi{options.id}"
        pinned = import_dandi(catalog, options.id, name, version=options.version, window=(start, duration))
        say(f"wrote {catalog.shown(pinned.path)}: {pinned.files:,} files, {pinned.size / 1e9:.2f} GB")
        return 0
    wanted = Wanted(
        task=tuple(options.task),
        events=events,
        window=(start, duration),
        datatype=options.datatype,
        published=tuple(options.published),
    )
    catalog = open_catalog(options.root)
    id = options.dataset or options.id
    with open_tree(options.project, options.id, options.source) as tree:
        done = import_tree(catalog, tree, id, wanted, stated)
    say(
        f"wrote {catalog.shown(done.path)}: {done.files:,} files, {done.size / 1e9:.2f} GB, {done.people} people"
    )
    for label, count in done.trials.items():
        say(f"  {count:,} events {label}")
    for defect in done.defects:
        say(f"defect: {defect}")
    say(f"next: `neuroledger check {catalog.shown(done.path)}`, `neuroledger fetch {id}`")
    return 0


def export(options: argparse.Namespace) -> int:
    """What is here, in other projects' layout."""
    from neuroledger.families.alignment.brainscore_files import export_brainscore
    from neuroledger.families.efficiency.exports import export_neurobench, export_sc_neurocore

    catalog = _opened(options)
    layouts = {
        "brainscore": export_brainscore,
        "neurobench": export_neurobench,
        "sc-neurocore": export_sc_neurocore,
    }
    for path in layouts[options.project](catalog, options.id, options.out):
        say(f"wrote {path}")
    return 0


EVERY: Final = 10.0
"""Seconds between two words on how far it is."""


def embed(options: argparse.Namespace) -> int:
    """Embeddings of what a table, a data set or a folder of images names, as netCDF."""
    from neuroledger.engine.session import Request, Session
    from neuroledger.families.signals.embeddings.embed import embed as embedded
    from neuroledger.families.signals.embeddings.embed import require_place, write_embeddings

    require_place(options.out)
    catalog = open_catalog(options.root)
    source = _source(catalog, options)
    session = Session(catalog, Request(device=options.device))
    tell = _Progress(len(source.table))
    table = embedded(session, options.model, source, layer=options.layer, mean=options.mean, tell=tell)
    write_embeddings(table, options.out)
    say(f"wrote {options.out}: {table.shape[0]} stimuli, {table.shape[1]} features of {table.attrs['layer']}")
    if "notes" in table.attrs:
        say(table.attrs["notes"])
    return 0


@dataclass
class _Progress:
    """Says on standard error, now and then, how far it is."""

    of: int
    said: float = field(default_factory=time.monotonic)

    def __call__(self, done: int) -> None:
        """``done`` stimuli are embedded."""
        if time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            sys.stderr.write(f"{done:,} of {self.of:,} stimuli\n")


def _source(catalog: Catalog, options: argparse.Namespace) -> Source:
    """What the options say is to be shown."""
    folder = options.images or options.sounds or options.videos
    if options.names and (options.table is not None or options.dataset is not None or options.images is None):
        raise RequestError(
            "--names is about a folder of images alone: leave it out, or --table and --dataset"
        )
    if options.source is not None and options.dataset is None:
        raise RequestError("--from says where a data set's downloads lie: name it with --dataset")
    if options.dataset is not None:
        if options.table is not None:
            raise RequestError("a data set lists its stimuli itself: give --dataset or --table, not both")
        return source_of_dataset(catalog, options.dataset, options.source, folder)
    if options.table is not None:
        return listed(options.table, folder)
    if options.images is None:
        raise RequestError("say what is shown: --table CSV, --dataset ID, or --images FOLDER")
    return images_in(options.images, by_name=options.names)
