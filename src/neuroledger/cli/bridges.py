"""import, export: what other projects' files hold, here, and what is here, in their files."""

from __future__ import annotations

import argparse

from neuroledger.cli.output import say
from neuroledger.spec.catalog import open_catalog


def bring_in(options: argparse.Namespace) -> int:
    """`import`: other projects' files as a data set."""
    from neuroledger.families.alignment.brainscore_files import import_brainscore

    catalog = open_catalog(options.root)
    for path in import_brainscore(catalog, options.id, options.files):
        say(f"wrote {catalog.shown(path)}")
    say(
        f"pinned in specs/datasets/{options.id}.yaml; next: its licence, then `neuroledger validate {options.id}`"
    )
    return 0


def export(options: argparse.Namespace) -> int:
    """What is here, in other projects' layout."""
    from neuroledger.families.alignment.brainscore_files import export_brainscore
    from neuroledger.families.efficiency.exports import export_neurobench, export_sc_neurocore

    catalog = open_catalog(options.root)
    layouts = {
        "brainscore": export_brainscore,
        "neurobench": export_neurobench,
        "sc-neurocore": export_sc_neurocore,
    }
    for path in layouts[options.project](catalog, options.id, options.out):
        say(f"wrote {path}")
    return 0
