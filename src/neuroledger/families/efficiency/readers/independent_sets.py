"""Reader of maximum-independent-set problems: a table of sizes, densities, seeds and best known costs of graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.families.efficiency.system.qubo import workload
from neuroledger.spec.registry import reader

__all__ = ["COLUMNS", "independent_sets"]

COLUMNS = ("nodes", "density", "seed", "edges", "cost", "sha256")


@reader("independent_sets", version=1)
def independent_sets(
    files: Mapping[str, Path], *, table: str = "workloads.csv"
) -> Dataset:
    """Read the costs of the best known solutions ``(presentation,)``, one for each graph of the table.

    Presentations have the coordinates ``nodes``, ``density``, ``seed`` and ``edges``. Each graph is drawn again, and the
    number and SHA-256 of its edges are compared with the table.

    Parameters
    ----------
    files
        The table.
    table
        The table's name; columns are nodes, density, seed, edges, cost and sha256.

    Raises
    ------
    DataError
        A column is missing, a value is not a number, or a graph differs from the table.
    """
    _, rows = table_rows(files[table], *COLUMNS, name=table)
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS[:-1]}
    for line, row in rows:
        try:
            values = {name: float(row[name]) for name in columns}
        except ValueError as error:
            raise DataError(f"{table}, line {line}: {error}") from error
        work = workload(int(values["nodes"]), values["density"], int(values["seed"]))
        if len(work.edges) != values["edges"] or work.digest != row["sha256"]:
            raise DataError(
                f"{table}, line {line}: the graph drawn here has {len(work.edges)} edges and SHA-256 {work.digest[:12]}, "
                f"not {row['edges']} and {row['sha256'][:12]}: its generator differs"
            )
        for name, value in values.items():
            columns[name].append(value)
    if not rows:
        raise DataError(f"{table} has no rows")
    ids = [
        f"{int(n)}_{d:g}_{int(s)}"
        for n, d, s in zip(
            columns["nodes"], columns["density"], columns["seed"], strict=True
        )
    ]
    dim = "presentation"
    integers = {
        name: (dim, np.array(columns[name], dtype=np.int64))
        for name in ("nodes", "seed", "edges")
    }
    return Dataset(
        stimuli=None,
        assembly=xr.DataArray(
            np.array(columns["cost"]),
            dims=(dim,),
            coords={
                "stimulus_id": (dim, ids),
                "density": (dim, np.array(columns["density"])),
                **integers,
            },
            attrs={"units": "cost"},
        ),
    )
