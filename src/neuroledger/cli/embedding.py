"""embed: images through a model, into the table of embeddings that retrieval needs."""

from __future__ import annotations

import argparse

from neuroledger.cli.output import say
from neuroledger.spec.catalog import open_catalog


def embed(options: argparse.Namespace) -> int:
    """Embeddings of the images in a folder, as netCDF."""
    from neuroledger.engine.embed import embed as embedded
    from neuroledger.engine.embed import images_in, write_embeddings
    from neuroledger.engine.session import Session

    stimuli = images_in(options.images, options.table, by_name=options.names)
    session = Session(open_catalog(options.root))
    table = embedded(session, options.model, stimuli, layer=options.layer, mean=options.mean)
    write_embeddings(table, options.out)
    say(f"wrote {options.out}: {table.shape[0]} stimuli, {table.shape[1]} features of {table.attrs['layer']}")
    return 0
