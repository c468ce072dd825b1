"""Simulated stand-ins of the pinned sets, from their files to scores: ``python -m tools.miniatures [DATASET…]``.

For each pinned set of EEG or MEG of a suite of benchmarks, a few recordings in its published layout are simulated with a
planted effect for each label, in a temporary repository, and pinned, validated and scored there as a user would do it. One
line is printed for each set: its steps, or what refused it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from neuroledger.spec.catalog import open_catalog
from tools.miniatures.place import run
from tools.miniatures.published import pinned_sets, published


def main() -> int:
    """Run the miniatures and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.miniatures", description=__doc__
    )
    parser.add_argument("datasets", nargs="*", help="ids of data sets; default: all")
    parser.add_argument(
        "--suite", default="neuralbench", help="first part of benchmarks' ids"
    )
    parser.add_argument("--model", action="append", default=[], help="further models")
    parser.add_argument("--out", type=Path, help="folder that keeps the repositories")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    catalog = open_catalog()
    ids = options.datasets or pinned_sets(catalog, options.suite)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        for id in ids:
            place = (options.out or Path(temporary)) / id
            place.mkdir(parents=True)
            row = run(
                catalog, published(catalog, id, options.suite), place, options.model
            )
            outcomes[row.outcome] += 1
            print(row, flush=True)
    counts = ", ".join(
        f"{outcomes[name]} {name}" for name in ("runs", "fails", "unread")
    )
    print(f"{len(ids)} sets: {counts}")
    return 1 if outcomes["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
