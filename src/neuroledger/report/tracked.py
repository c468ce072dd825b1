"""Scores in the layout that `dvc metrics show` reads: a file for each benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuroledger.report.board import Leaderboard, as_text
from neuroledger.store.files import write_json, write_text

__all__ = ["write_tracked"]


def write_tracked(root: Path, boards: Sequence[Leaderboard]) -> None:
    """Write ``results/metrics/<benchmark>.json`` (model: score) and ``results/leaderboard.json``.

    Files of benchmarks that are no longer in the suite are removed: what is shown is what there is.
    """
    folder = root / "results" / "metrics"
    kept = set()
    for board in boards:
        for place, column in enumerate(board.columns):
            values = {row.model: row.cells[place].value for row in board.rows}
            path = folder / f"{column.id}.json"
            write_json(path, {model: value for model, value in values.items() if value is not None})
            kept.add(path)
    for path in set(folder.glob("*.json")) - kept:
        path.unlink()
    write_text(root / "results" / "leaderboard.json", as_text("json", boards))
