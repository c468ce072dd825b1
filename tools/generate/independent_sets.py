"""Build workloads of maximum independent sets deterministically: ``python -m tools.generate.independent_sets [FOLDER]``.

The table of NeuroBench's QUBO task: sizes, densities and seeds as published, the best published cost of each graph, and
the SHA-256 of its edges as drawn here. Prints size and SHA-256 of the file in the form of the pins in ``specs/``.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from neuroledger.families.efficiency.readers.independent_sets import COLUMNS
from neuroledger.families.efficiency.system.qubo import (
    DENSITIES,
    NODES,
    SEEDS,
    workload,
)
from tools.generate.pins import build_and_print


def build(folder: Path) -> list[Path]:
    """Write the table into the folder of its data set."""
    path = folder / "NeuroBench.qubo" / "workloads.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(COLUMNS)]
    for nodes, density, seed in product(NODES, DENSITIES, SEEDS):
        work = workload(nodes, density, seed)
        lines.append(
            f"{nodes},{density:g},{seed},{len(work.edges)},{work.target},{work.digest}"
        )
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return [path]


if __name__ == "__main__":
    build_and_print(build)
