"""The front page's data: a board as plain lists that the page's script draws, and thumbnails of public stimuli."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import commonprefix
from typing import Any, Final

from neuroledger.data.images import thumbnail
from neuroledger.data.load import load_dataset
from neuroledger.errors import NeuroLedgerError
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.spec.catalog import Catalog

__all__ = ["packed", "thumbnails"]

THUMBNAILS: Final = 24
SIDE: Final = 96
STATES: Final = {
    "failed": "f",
    "partial": "p",
    "stale": "s",
    "edited": "e",
    "missing": "m",
    "unavailable": "u",
}


def packed(board: Leaderboard, numbers: list[tuple[str, str]]) -> dict[str, Any]:
    """The board as short lists: a scored cell is [value, low, high, best, signer], another its state and reason."""
    texts: dict[str, int] = {}

    def cell(one: Cell) -> list[Any] | str:
        if one.status == "scored" and one.value is not None:
            return [_short(one.value), _short(one.low), _short(one.high), int(one.top), one.signed]
        return f"{STATES.get(one.status, 'm')}{texts.setdefault(one.reason, len(texts))}"

    rows = [_row(row) | {"cells": [cell(one) for one in row.cells]} for row in board.rows]
    return {
        "suite": board.suite,
        "version": board.version,
        "title": board.title,
        "numbers": numbers,
        "groups": [{"name": g.name, "part": g.part_of, "size": len(g.shares)} for g in board.groups],
        "columns": [
            _column(column) | {"short": name}
            for column, name in zip(board.columns, _names(board), strict=True)
        ],
        "rows": rows,
        "texts": list(texts),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "model": row.model,
        "title": row.title,
        "role": row.role,
        "place": row.place,
        "score": _mean(row.score),
        "why": row.score.reason,
        "groups": [_mean(one) for one in row.groups],
    }


def _column(column: Column) -> dict[str, Any]:
    names = ("id", "title", "parent", "dataset", "direction", "normalise", "counts")
    limits = {"floor": _short(column.floor), "ceiling": _short(column.ceiling)}
    return {name: getattr(column, name) for name in names} | limits | {"describe": describe(column)}


def _names(board: Leaderboard) -> Iterator[str]:
    """Short names of the columns; those that would be alike keep what tells them apart."""
    alike: dict[str, list[str]] = {}
    for column in board.columns:
        alike.setdefault(column.short, []).append(column.id)
    for column in board.columns:
        same = commonprefix(alike[column.short])  # noqa: RUF071 - of names, not of paths
        whole = len(alike[column.short]) > 1
        yield column.id[same.rfind(".") + 1 :] if whole else column.short


def _mean(cell: Cell) -> list[float | None] | None:
    return None if cell.value is None else [_short(cell.value), _short(cell.low), _short(cell.high)]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def thumbnails(catalog: Catalog, dataset: str) -> Iterator[tuple[str, bytes]]:
    """Stimulus ids with small PNG images, evenly spaced in the table; none where the data are private or not here."""
    spec = catalog.dataset(dataset)
    if spec.access != "public" or spec.unavailable is not None:
        return
    try:
        stimuli = load_dataset(catalog, dataset).stimuli
        if stimuli is None or "filename" not in stimuli.table.columns:
            return
        ids = stimuli.ids
        chosen = [ids[i * len(ids) // min(THUMBNAILS, len(ids))] for i in range(min(THUMBNAILS, len(ids)))]
        for id, content in zip(chosen, stimuli.read(chosen), strict=True):
            yield id, thumbnail(content, id, SIDE)
    except NeuroLedgerError:  # not here, changed, or not images: the page says so elsewhere
        return
