"""What each page shows: contexts for the templates, boards for the page's script, and thumbnails of public stimuli."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from neuroledger.data.gate.validation import ValidationReport, read_report, report_path
from neuroledger.data.images import thumbnail
from neuroledger.data.load import load_dataset
from neuroledger.engine.calibrate import calibration_in, calibration_path
from neuroledger.engine.record import Record
from neuroledger.engine.samples import samples_of
from neuroledger.errors import NeuroLedgerError
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.report.drawings import Axis, Point, axis_over, bars, details, scatter
from neuroledger.report.history import Step, history
from neuroledger.report.table import board_of, boards_of
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.bibliography import Reference, joined
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec, SuiteSpec
from neuroledger.spec.load import read_params

__all__ = ["Page", "Picture", "World", "packed", "pages", "thumbnails", "world"]

COSTS = 3  # figures of score against cost on a benchmark's page
CHANGES = 40  # latest changes of scores on a benchmark's page


class Page(NamedTuple):
    """One file of the site: where it goes, which template makes it, and what it shows."""

    path: str
    template: str
    context: dict[str, Any]


class Picture(NamedTuple):
    """An image file of the site."""

    path: str
    content: bytes


@dataclass(frozen=True)
class World:
    """What the pages show: the boards of the suite, its parts and others with scores; one of all benchmarks there are."""

    catalog: Catalog
    main: Leaderboard
    boards: tuple[Leaderboard, ...]
    everything: Leaderboard
    records: tuple[Record, ...]
    reports: Mapping[str, ValidationReport]
    references: Mapping[str, Reference]
    history: Mapping[tuple[str, str], tuple[Step, ...]]


def world(catalog: Catalog, suite: str, records: Sequence[Record]) -> World:
    """Gather what the pages of a suite show: its boards, then those of other suites with a score on recorded data.

    Raises
    ------
    SpecError, RequestError
        A spec is wrong, or the suite does not exist.
    """
    all_benchmarks = [{"id": id} for id in catalog.ids("benchmarks")]
    fields = {"id": "everything", "version": 1, "title": "Every benchmark", "benchmarks": all_benchmarks}
    reports = {id: read_report(report_path(catalog.root, id)) for id in catalog.ids("datasets")}
    boards = boards_of(catalog, suite, records, new=suite == read_params(catalog.root).suite)
    shown = {column.id for board in boards for column in board.columns}
    scored = {record.benchmark for record in records} - shown
    others = [catalog.suite(id) for id in catalog.ids("suites") if id not in {b.suite for b in boards}]
    further = [
        board_of(catalog, other, records)
        for other in others
        if scored & {item.id for item in other.benchmarks}
    ]
    return World(
        catalog=catalog,
        main=boards[0],
        boards=(*boards, *further),
        everything=board_of(catalog, SuiteSpec.model_validate(fields), records),
        records=tuple(records),
        reports={id: report for id, report in reports.items() if report is not None},
        references=joined(catalog.bibliographies).references,
        history=history(catalog.root),
    )


def pages(of: World) -> Iterator[Page | Picture]:
    """Every page of the site, and its images."""
    yield Page("index.html", "index.html.j2", _index(of))
    yield from _benchmark_pages(of)
    yield from _model_pages(of)
    yield from _record_pages(of)
    yield from _dataset_pages(of)
    cited = _cited(of, sorted(of.references))
    yield Page("references.html", "references.html.j2", {"section": "references", "references": cited})


def _index(of: World) -> dict[str, Any]:
    """Suites of recorded data first; the boards as data for the page's script."""
    recorded = [board for board in of.boards if not all(column.simulated for column in board.columns)]
    recorded.sort(key=lambda board: -sum(cell.value is not None for row in board.rows for cell in row.cells))
    simulated = [board for board in of.boards if board not in recorded]
    switch = [("recorded", recorded), ("simulated", simulated)]
    return {
        "section": "index",
        "switch": [(label, held) for label, held in switch if held],
        "boards": [*recorded, *simulated],
        "suites": [board.suite for board in (*recorded, *simulated)],
        "data": [(board, packed(board, _numbers(of, board))) for board in (*recorded, *simulated)],
    }


def _numbers(of: World, board: Leaderboard) -> list[tuple[str, str]]:
    """What stands above a board."""
    ids = {column.id for column in board.columns}
    controls = [c for record in of.records if record.benchmark in ids for c in record.controls.values()]
    states = Counter(cell.status for row in board.rows for cell in row.cells)
    datasets = {column.dataset for column in board.columns if not column.unavailable}
    valid = sum(of.reports[id].success for id in datasets if id in of.reports)
    passed = sum(bool(control["passed"]) for control in controls)
    return [
        ("models", str(sum(row.role == "model" for row in board.rows))),
        ("benchmarks", str(len(board.columns))),
        ("scores", str(states["scored"])),
        ("failed or partial", str(states["failed"] + states["partial"])),
        ("data sets validated", f"{valid} of {len(datasets)}"),
        ("control checks passed", f"{passed} of {len(controls)}"),
    ]


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
            "covers": sorted({cell.covers for _, cell in lines if cell.covers}),
            "notes": _notes(records),
            "drawn": _costs(column, lines, records),
            "calibration": _calibration(of, column.id),
            "history": _changes(of, benchmark=column.id),
            "cited": _cited(of, [*spec.cite, *of.catalog.dataset(column.dataset).cite]),
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
        row = rows.get(id)
        context = {"spec": spec, "blocks": _blocks(of, row), "cited": _cited(of, spec.cite)}
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


def _dataset_pages(of: World) -> Iterator[Page | Picture]:
    items = []
    for id in of.catalog.ids("datasets"):
        spec, report = of.catalog.dataset(id), of.reports.get(id)
        used = [column.id for column in of.everything.columns if column.dataset == id]
        pictures = [
            (Picture(f"thumbnails/{id}/{i}.png", content), name)
            for i, (name, content) in enumerate(thumbnails(of.catalog, id) if _pictured(report) else ())
        ]
        yield from (picture for picture, _ in pictures)
        context = {
            "spec": spec,
            "report": report,
            "benchmarks": used,
            "thumbnails": [(picture.path, name) for picture, name in pictures],
            "stimuli": report.contents["stimuli"].shape[0] if report and pictures else 0,
            "cited": _cited(of, spec.cite),
        }
        yield Page(f"datasets/{id}.html", "dataset.html.j2", context | _source(of, "datasets", id))
        state, tone = _state(spec, report)
        cells = [spec.license, spec.access, str(len(used))]
        items.append(_item(id, spec.title, cells, state, tone, simulated=spec.simulated))
    head = ["data set", "licence", "access", "benchmarks", "state"]
    yield _list("datasets", "Data sets", head, items)


def _state(spec: DatasetSpec, report: ValidationReport | None) -> tuple[str, str]:
    if spec.closed is not None:
        return "unread" if spec.unread else "unavailable", "warn"
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
    return axis_over(held, one=all(column.counts for column in columns))


def _record_pages(of: World) -> Iterator[Page]:
    """One page for each record: the score in detail, and how to compute it again."""
    places = {column.id: i for i, column in enumerate(of.everything.columns)}
    rows = {row.model: row for row in of.everything.rows}
    for record in of.records:
        if record.benchmark not in places or record.model not in rows:
            continue
        row, column = rows[record.model], of.everything.columns[places[record.benchmark]]
        cell, score = row.cells[places[record.benchmark]], record.score or {}
        spec = of.catalog.benchmark(column.id)
        dataset = of.catalog.dataset(column.dataset)
        context = {
            "section": "index",
            "record": record,
            "column": column,
            "cell": cell,
            "role": row.role,
            "score": {"ceiling": None, "notes": []} | score,
            "axis": axis([cell], [column]),
            "controls": sorted(record.controls.items()),
            "drawn": _details(of, record, column),
            "history": of.history.get((column.id, row.model), ()),
            "cited": _cited(of, [*spec.cite, *dataset.cite, *of.catalog.model(row.model).cite]),
        }
        yield Page(f"records/{column.id}/{row.model}.html", "record.html.j2", context)


def _details(of: World, record: Record, column: Column) -> list[tuple[str, Markup]]:
    """What the uncertainty is made of; and every neuroid, subject or stimulus where the data are public and kept here."""
    if record.score is None:
        return []
    drawn = []
    deviations = (record.score.get("spread") or {}).get("deviation") or {}
    if deviations:
        words = f"Standard error of the score from each source ({column.scale.replace('_', ' ')})."
        drawn.append((words, bars(deviations, "standard error")))
    if not column.private:
        samples = samples_of(of.catalog.root, record.id, next(iter(record.scores), ""))
        drawn += details(samples, column.scale) if samples is not None else []
    return drawn


def _costs(
    column: Column, lines: Sequence[tuple[Row, Cell]], records: Sequence[Record]
) -> list[tuple[str, Markup]]:
    """The score against the costs that were measured in the same pass, one figure for each cost."""
    scores = {record.model: record.scores for record in records}
    costs = dict.fromkeys(
        metric
        for record in records
        for metric, plain in list(record.scores.items())[1:]
        if plain["direction"] == "lower" and plain["value"] is not None
    )
    drawn = []
    for cost in list(costs)[:COSTS]:
        points = [
            Point(
                scores[row.model][cost]["value"],
                cell.value,
                f"{row.model}: {cell.value:.3f} at {scores[row.model][cost]['value']:,.4g}",
                row.model,
                cell.low,
                cell.high,
                row.role != "model",
            )
            for row, cell in lines
            if cell.value is not None and cost in scores.get(row.model, {})
        ]
        if len(points) > 1 and len({point.x for point in points}) > 1:
            words = cost.replace("_", " ")
            picture = scatter(points, words, describe(column), logarithmic=True)
            drawn.append((f"Score against {words}: up and to the left is better.", picture))
    return drawn


def _notes(records: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """Each note of the scores once, with the models whose score has it."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in (record.score or {}).get("notes", ()):
            found.setdefault(note, []).append(record.model)
    return list(found.items())


def _changes(of: World, benchmark: str) -> list[Step]:
    """The latest changes of scores of a benchmark, without the first score of each model."""
    steps = [step for (id, _), held in of.history.items() if id == benchmark for step in held[1:]]
    return sorted(steps, key=lambda step: (step.date, step.model))[-CHANGES:]


def _calibration(of: World, benchmark: str) -> dict[str, Any] | None:
    """The simulated experiments of each metric, where there are any that can be read."""
    path = calibration_path(of.catalog.root, benchmark)
    try:
        kept = calibration_in(path.read_bytes())
    except (OSError, ValueError):  # the board says what is wrong with it
        return None
    first = sorted(kept.metrics.items(), key=lambda held: (held[0] != kept.headline, held[0]))
    changed = kept.identity.get("benchmark") != spec_sha256(of.catalog.benchmark(benchmark))
    return {"kept": kept, "metrics": first, "changed": changed}


def _cited(of: World, keys: Sequence[str]) -> list[dict[str, str]]:
    """Each reference once: its key, author, year and title in a line, and its BibTeX entry."""
    found = []
    for key in dict.fromkeys(keys):
        if key in of.references:
            fields = of.references[key].fields
            authors = fields.get("author", "").replace("\n", " ").split(" and ")
            first = authors[0].split(",")[0] if "," in authors[0] else authors[0].split(" ")[-1]
            who = (
                f"{first} et al."
                if len(authors) > 2
                else " and ".join([first, *[a.split(",")[0] for a in authors[1:]]])
            )
            words = f"{who} ({fields.get('year', 'n.d.')}). {' '.join(fields.get('title', key).split())}"
            plain = words.replace("{", "").replace("}", "").replace("\\", "")
            found.append({"key": key, "words": plain, "text": of.references[key].text})
    return found


def _pictured(report: ValidationReport | None) -> bool:
    """Whether a valid data set here has stimuli with files."""
    stimuli = report.contents.get("stimuli") if report is not None and report.success else None
    return stimuli is not None and "filename" in stimuli.columns


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
