"""What each page shows: contexts for the templates, made from specs, records and validation reports."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from neuroledger.data.gate.validation import ValidationReport, read_report, report_path
from neuroledger.engine.record import Record
from neuroledger.report.board import Cell, Column, Leaderboard, Row
from neuroledger.report.table import board_of, boards_of
from neuroledger.spec.bibliography import joined
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec, SuiteSpec
from neuroledger.spec.params import read_params

__all__ = ["Axis", "Page", "World", "pages", "world"]


class Page(NamedTuple):
    """One file of the site: where it goes, which template makes it, and what it shows."""

    path: str
    template: str
    context: dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from ``low`` to ``high``, in percent of the width."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> str:
        """Where a value stands, 0 to 100; what lies outside stands at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}"

    def width(self, low: float, high: float) -> str:
        """How wide an interval is, as far as it lies inside."""
        return f"{float(self.place(high)) - float(self.place(low)):.2f}"


@dataclass(frozen=True)
class World:
    """Everything the pages are about: the boards of the suite and its parts, and one of all benchmarks there are."""

    catalog: Catalog
    boards: tuple[Leaderboard, ...]
    everything: Leaderboard
    records: tuple[Record, ...]
    reports: Mapping[str, ValidationReport]


def world(catalog: Catalog, suite: str, records: Sequence[Record]) -> World:
    """Gather what the pages of a suite show.

    Raises
    ------
    SpecError, RequestError
        A spec is wrong, or the suite does not exist.
    """
    all_benchmarks = [{"id": id} for id in catalog.ids("benchmarks")]
    fields = {"id": "everything", "version": 1, "title": "Every benchmark", "benchmarks": all_benchmarks}
    reports = {id: read_report(report_path(catalog.root, id)) for id in catalog.ids("datasets")}
    return World(
        catalog=catalog,
        boards=boards_of(catalog, suite, records, new=suite == read_params(catalog.root).suite),
        everything=board_of(catalog, SuiteSpec.model_validate(fields), records),
        records=tuple(records),
        reports={id: report for id, report in reports.items() if report is not None},
    )


def pages(of: World) -> Iterator[Page]:
    """Every page of the site."""
    yield Page("index.html", "index.html.j2", _index(of))
    yield from _benchmark_pages(of)
    yield from _model_pages(of)
    yield from _dataset_pages(of)
    yield Page(
        "references.html", "references.html.j2", {"section": "references", "references": _references(of)}
    )


def _index(of: World) -> dict[str, Any]:
    columns = [column for board in of.boards for column in board.columns]
    rows = [row for board in of.boards for row in board.rows]
    ids = {column.id for column in columns}
    controls = [c for record in of.records if record.benchmark in ids for c in record.controls.values()]
    states = Counter(cell.status for row in rows for cell in row.cells)
    datasets = {column.dataset for column in columns if not column.unavailable}
    counts = {
        "models": len({row.model for row in rows if row.role == "model"}),
        "benchmarks": len(columns),
        "scored": states["scored"],
        "failed": states["failed"] + states["partial"],
        "datasets": len(datasets),
        "valid": sum(of.reports[id].success for id in datasets if id in of.reports),
        "controls": len(controls),
        "passed": sum(bool(control["passed"]) for control in controls),
        "simulated": sum(column.simulated for column in columns),
    }
    return {"section": "index", "counts": counts, "boards": [(board, _groups(board)) for board in of.boards]}


def _groups(board: Leaderboard) -> list[tuple[str, int]]:
    """Neighbouring columns of one data set, and how many they are."""
    return [(name, len(list(held))) for name, held in itertools.groupby(c.dataset for c in board.columns)]


def _benchmark_pages(of: World) -> Iterator[Page]:
    items = []
    for i, column in enumerate(of.everything.columns):
        spec = of.catalog.benchmark(column.id)
        lines = [
            (row, row.cells[i])
            for row in of.everything.rows
            if row.cells[i].status not in {"missing", "unavailable"}
        ]
        lines.sort(key=lambda line: _by_value(line[0], line[1], column))
        records = [record for record in of.records if record.benchmark == column.id]
        controls = {
            name: c for record in records for name, c in record.controls.items() if name != "permuted"
        }
        controls |= _worst_permuted(records)
        context = {
            "spec": spec,
            "column": column,
            "dataset": of.catalog.dataset(column.dataset),
            "lines": lines,
            "axis": axis([cell for _, cell in lines], [column]),
            "controls": sorted(controls.items()),
            "records": records,
        }
        yield Page(
            f"benchmarks/{column.id}.html",
            "benchmark.html.j2",
            context | _source(of, "benchmarks", column.id),
        )
        scored = sum(cell.status == "scored" for _, cell in lines)
        state, tone = (f"{scored} scores", "good") if scored else ("no record", "")
        state, tone = ("unavailable", "warn") if column.unavailable else (state, tone)
        cells = [spec.parent, spec.dataset]
        items.append(_item(column.id, spec.title, cells, state, tone, simulated=column.simulated))
    yield _list("benchmarks", "Benchmarks", ["benchmark", "part of", "data set", "state"], items)


def _worst_permuted(records: Sequence[Record]) -> dict[str, Any]:
    """Stimuli are permuted anew for every model; the page shows the one that came closest to its bound."""
    found = [record.controls["permuted"] for record in records if "permuted" in record.controls]
    if not found:
        return {}
    return {
        "permuted": max(found, key=lambda c: (not c["passed"], c["value"] if c["value"] is not None else 0.0))
    }


def _model_pages(of: World) -> Iterator[Page]:
    rows = {row.model: row for row in of.everything.rows}
    known = {column.id for column in of.everything.columns}
    items, own = [], set(of.catalog.own("models"))
    for id in of.catalog.ids("models"):
        spec = of.catalog.model(id)
        records = [record for record in of.records if record.model == id and record.benchmark in known]
        context = {"spec": spec, "records": records, "blocks": _blocks(of, rows.get(id))}
        yield Page(f"models/{id}.html", "model.html.j2", context | _source(of, "models", id))
        scored = sum(record.status == "scored" for record in records)
        state, tone = (f"{scored} scores", "good") if scored else ("no record", "")
        state, tone = ("unavailable", "warn") if spec.unavailable else (state, tone)
        cells = [
            spec.builder.name if spec.builder else "",
            f"{spec.control} control" if spec.control else "model",
        ]
        if records or id in own:
            items.append(_item(id, spec.title, cells, state, tone, simulated=spec.simulated))
    yield _list("models", "Models", ["model", "builder", "role", "state"], items)


def _blocks(of: World, row: Row | None) -> list[tuple[Axis, Column, list[tuple[Column, Cell]]]]:
    """A model's cells in groups that can share an axis: one for all commensurable scales, one for each other."""
    groups: dict[str, list[tuple[Column, Cell]]] = {}
    for column, cell in zip(of.everything.columns, row.cells, strict=True) if row else ():
        if cell.status not in {"missing", "unavailable"}:
            key = "" if column.counts else f"{column.scale} {column.unit}"
            groups.setdefault(key, []).append((column, cell))
    return [
        (axis([cell for _, cell in held], [column for column, _ in held]), held[0][0], held)
        for held in groups.values()
    ]


def _dataset_pages(of: World) -> Iterator[Page]:
    items = []
    for id in of.catalog.ids("datasets"):
        spec, report = of.catalog.dataset(id), of.reports.get(id)
        used = [column.id for column in of.everything.columns if column.dataset == id]
        context = {"spec": spec, "report": report, "benchmarks": used}
        yield Page(f"datasets/{id}.html", "dataset.html.j2", context | _source(of, "datasets", id))
        state, tone = _state(spec, report)
        cells = [spec.license, spec.access, str(len(used))]
        items.append(_item(id, spec.title, cells, state, tone, simulated=spec.simulated))
    head = ["data set", "licence", "access", "benchmarks", "state"]
    yield _list("datasets", "Data sets", head, items)


def _state(spec: DatasetSpec, report: ValidationReport | None) -> tuple[str, str]:
    if spec.unavailable is not None:
        return "unavailable", "warn"
    if report is None:
        return "not validated here", ""
    return ("valid", "good") if report.success else ("invalid", "bad")


def _item(id: str, title: str, cells: list[str], state: str, tone: str, *, simulated: bool) -> dict[str, Any]:
    return {"id": id, "title": title, "cells": cells, "state": state, "tone": tone, "simulated": simulated}


def _list(section: str, heading: str, head: list[str], items: list[dict[str, Any]]) -> Page:
    context = {"section": section, "heading": heading, "head": head, "items": items}
    return Page(f"{section}.html", "list.html.j2", context)


def _source(of: World, kind: str, id: str) -> dict[str, Any]:
    path = of.catalog.entry(kind, id).path
    return {"section": kind, "path": of.catalog.shown(path), "source": path.read_text(encoding="utf-8")}


def _by_value(row: Row, cell: Cell, column: Column) -> tuple[bool, float, str]:
    sign = -1 if column.direction == "higher" else 1
    return cell.value is None, sign * (cell.value or 0.0), row.model


def axis(cells: Sequence[Cell], columns: Sequence[Column]) -> Axis:
    """The axis that holds the cells, their intervals, the floors, and 0 to 1 where the scale has these ends."""
    held = [v for cell in cells for v in (cell.value, cell.low, cell.high) if v is not None]
    held += [column.floor for column in columns if column.floor is not None]
    low, high = min([0.0, *held]), max([0.0, *held])
    if all(column.counts for column in columns):
        high = max(1.0, high)
    span = (high - low) or 1.0
    low, high = (low - 0.02 * span if low < 0 else low), high + 0.02 * span
    return Axis(low, high, _ticks(low, high))


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Up to seven round numbers inside the axis."""
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = min((size * factor for factor in (1, 2, 2.5, 5, 10)), key=lambda each: abs(each - raw))
    first = int(low / step) - 1
    return tuple(round(i * step, 10) for i in range(first, first + 12) if low <= i * step <= high)


def _references(of: World) -> list[tuple[str, str]]:
    """Each entry of the bibliography with its key, as it stands."""
    found = joined(of.catalog.bibliographies)
    return sorted((key, one.text) for key, one in found.references.items())
