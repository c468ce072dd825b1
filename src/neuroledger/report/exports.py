"""Records of one benchmark written as another project's files, one for each model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neuroledger.engine.record import Record, read_all
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import write_text

__all__ = ["export_records"]


def export_records(
    catalog: Catalog, benchmark: str, folder: Path, text: Callable[[Record], str]
) -> list[Path]:
    """Write ``folder/<benchmark>/<model>.json`` with the ``text`` of each record that did not fail.

    Raises
    ------
    RequestError
        No such benchmark, or no model was scored on it.
    """
    catalog.benchmark(benchmark)
    written = []
    for record in read_all(catalog.root / "results" / "records"):
        if record.benchmark == benchmark and record.status != "failed":
            path = folder / benchmark / f"{record.model}.json"
            write_text(path, text(record))
            written.append(path)
    if not written:
        raise RequestError(
            f"no model has a score on {benchmark!r}; run `neuroledger run --benchmark {benchmark}`"
        )
    return sorted(written)
