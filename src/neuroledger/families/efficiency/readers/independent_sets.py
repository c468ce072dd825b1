"""Graphs whose largest independent sets are sought: a table of sizes, densities, seeds and best known costs."""

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
def independent_sets(files: Mapping[str, Path], *, table: str = "workloads.csv") -> Dataset:
    """Costs of the best known solutions ``(presentation,)``, one for each graph of the table.

    Presentations carry ``nodes``, ``density``, ``seed`` and ``edges``, from which the graph is drawn again; each drawn
    graph is compared with the number of its edges and with the SHA-256 of them as the table states it.

    Parameters
    ----------
    files
        The table.
    table
        Its name; columns are nodes, density, seed, edges, cost and sha256.

    Raises
    ------
    DataError
        A column is missing, a value is not a number, or a graph is not the one that the table states.
    """
    _, rows = table_rows(files[table], *COLUMNS, name=table)
    found: dict[str, list[float]] = {name: [] for name in COLUMNS[:-1]}
    for line, row in rows:
        try:
            values = {name: float(row[name]) for name in found}
        except ValueError as error:
            raise DataError(f"{table}, line {line}: {error}") from error
        work = workload(int(values["nodes"]), values["density"], int(values["seed"]))
        if len(work.edges) != values["edges"] or work.digest != row["sha256"]:
            raise DataError(
                f"{table}, line {line}: the graph drawn here has {len(work.edges)} edges and SHA-256 {work.digest[:12]}, "
                f"not {row['edges']} and {row['sha256'][:12]}: its generator differs"
            )
        for name, value in values.items():
            found[name].append(value)
    if not rows:
        raise DataError(f"{table} has no rows: there is no graph")
    ids = [
        f"{int(n)}_{d:g}_{int(s)}"
        for n, d, s in zip(found["nodes"], found["density"], found["seed"], strict=True)
    ]
    over = "presentation"
    whole = {name: (over, np.array(found[name], dtype=np.int64)) for name in ("nodes", "seed", "edges")}
    return Dataset(
        stimuli=None,
        assembly=xr.DataArray(
            np.array(found["cost"]),
            dims=(over,),
            coords={"stimulus_id": (over, ids), "density": (over, np.array(found["density"])), **whole},
            attrs={"units": "cost"},
        ),
    )
