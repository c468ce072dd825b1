"""embed: images, texts, sounds or films through a model, into the table of embeddings that retrieval needs."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from neuroledger.cli.output import say
from neuroledger.errors import RequestError
from neuroledger.families.signals.embeddings.stimulus_source import (
    Source,
    images_in,
    listed,
    source_of_dataset,
)
from neuroledger.spec.catalog import Catalog, open_catalog

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
