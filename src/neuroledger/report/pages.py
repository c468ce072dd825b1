"""Content of the pages: contexts for the templates, boards for the script, and thumbnails of public stimuli."""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import commonprefix
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from neuroledger.data.gate.signatures import are_current
from neuroledger.data.gate.validation import ValidationReport, read_report, report_path
from neuroledger.data.images import thumbnail
from neuroledger.data.integrity import verified_files
from neuroledger.data.load import load_dataset
from neuroledger.display import visible
from neuroledger.engine.claims.looks import read_looks
from neuroledger.engine.claims.standing import standing
from neuroledger.engine.control import Control
from neuroledger.engine.record import Record
from neuroledger.engine.records.calibrations import calibration_in, calibration_path
from neuroledger.engine.records.summary import Known, Summary, known
from neuroledger.engine.samples import samples_of, states_of_samples
from neuroledger.errors import NeuroLedgerError
from neuroledger.report import claims
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.report.curves import Curve, curves_in, figures
from neuroledger.report.drawings import Axis, Point, axis_over, bars, details, scatter
from neuroledger.report.front import front, packed_pairs
from neuroledger.report.history import Step, history
from neuroledger.report.recordings import KnownBy, clock_rows, known_by, timeline
from neuroledger.report.table import board_of, withheld_in
from neuroledger.spec import registry
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.bibliography import Reference, joined
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec, SuiteSpec
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of, to_score
from neuroledger.store.derived import (
    derived_at,
    installed_sha256,
    key_of,
    remembered,
)
from neuroledger.store.store import Store, open_store

__all__ = [
    "Brief",
    "Late",
    "Page",
    "Pages",
    "Picture",
    "World",
    "gather",
    "packed",
    "pages",
    "parts",
    "thumbnails",
]

MAX_COSTS = 3  # figures of score against cost on the page of a benchmark
# States of cells that pages do not show.
ABSENT: Final = frozenset({"missing", "unavailable"})
MAX_CURVES = 4  # layer curves above a board
STRIP = 8  # stimuli of a data set above a board
MAX_CHANGES = 40  # latest changes of scores on the page of a benchmark
FAMILY = r"\{[^{}]*\}$|[^,]+(?=,)|\S*$"  # {Institution}; Family, Given; Given Family


class Late(NamedTuple):
    """Further context of a page, which whole records give: it is made when the page is rendered.

    ``key`` tells what it follows from; it is empty if that is known to this process only.
    """

    key: str
    make: Callable[[], dict[str, object]]


class Page(NamedTuple):
    """One page of the site: its path, its template, and the context of the template."""

    path: str
    template: str
    known: dict[str, object]
    late: Late | None = None

    @property
    def context(self) -> dict[str, object]:
        """The whole context."""
        if self.late is None:
            return self.known
        return self.known | self.late.make()


class Pages(NamedTuple):
    """The pages of a folder, which are made only if what they follow from has changed.

    ``key`` tells what that is; it is empty if it is known to this process only.
    """

    folder: str
    paths: tuple[str, ...]
    key: str
    make: Callable[[], Iterator[Page]]


class Picture(NamedTuple):
    """An image file of the site."""

    path: str
    content: bytes


class Brief(NamedTuple):
    """What the front page says of a board besides its numbers: place, model and mean of each row that is no control."""

    suite: str
    version: int
    title: str
    rows: tuple[tuple[str, str, float | None], ...]

    @classmethod
    def of(cls, board: Leaderboard) -> Brief:
        """Return what is said of a board."""
        rows = [
            (row.place, row.model, row.score.value)
            for row in board.rows
            if row.role == "model"
        ]
        return cls(board.suite, board.version, board.title, tuple(rows))


class Entrant(NamedTuple):
    """A model on the page of a benchmark, which does not show its scores on others."""

    model: str
    role: str


class Shown(NamedTuple):
    """A thumbnail with the id of its stimulus."""

    picture: Picture
    name: str


@dataclass(frozen=True)
class World:
    """Content of a site: the boards of the suite, its parts and other suites with scores; a board of all benchmarks.

    Attributes
    ----------
    own
        The boards of the suite and of its parts, which are the first of ``boards``.
    everything
        The scores on all benchmarks, without means.
    """

    catalog: Catalog
    main: Leaderboard
    own: tuple[Leaderboard, ...]
    boards: tuple[Leaderboard, ...]
    everything: Leaderboard
    records: tuple[Known, ...]
    reports: Mapping[str, ValidationReport]
    references: Mapping[str, Mapping[str, str]]
    """The key, the line and the BibTeX entry of each reference by its key; the texts are escaped."""
    store: Store
    history: Mapping[tuple[str, str], tuple[Step, ...]]
    suites: tuple[SuiteSpec, ...]
    """The suite of each board."""
    withheld: Mapping[str, str]
    """Benchmarks whose intervals failed their calibration, with the reason."""
    curves: tuple[Curve, ...]
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    """The data sets and models that have a page."""


def gather(
    catalog: Catalog,
    suite: str,
    given: Sequence[Record] | Sequence[Known],
    *,
    alone: bool = False,
) -> World:
    """Gather the content of the pages of a suite: its boards, then the boards of other suites that have scores.

    If the suite is ``alone``, only its boards, and the benchmarks, data sets and models on them.

    Raises
    ------
    SpecError, RequestError
        A spec is wrong, or the suite does not exist.
    """
    records = known(given)
    withheld = withheld_in(catalog)
    is_default = suite == read_params(catalog.root).suite and not alone
    suites = (to_score if is_default else suites_of)(catalog, suite)
    boards = tuple(board_of(catalog, spec, records, withheld) for spec in suites)
    further: tuple[SuiteSpec, ...] = ()
    shown = _only(catalog, boards) if alone else _whole(catalog)
    if alone:
        records = [
            item for item in records if item.summary.benchmark in shown.benchmarks
        ]
    else:
        further = _further(catalog, boards, records)
    further_boards = [board_of(catalog, other, records, withheld) for other in further]
    return World(
        catalog=catalog,
        main=boards[0],
        own=boards,
        boards=(*boards, *further_boards),
        everything=_every(catalog, shown.benchmarks, records, withheld),
        records=tuple(records),
        reports=_reports(catalog, shown.datasets),
        references={key: _entry(key, each) for key, each in shown.references.items()},
        store=open_store(catalog.root),
        history=history(catalog.root),
        suites=(*suites, *further),
        withheld=withheld,
        curves=tuple(curves_in(catalog.root)),
        datasets=shown.datasets,
        models=shown.models,
    )


class _Shown(NamedTuple):
    """What has a page: ids, and references by key."""

    benchmarks: tuple[str, ...]
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    references: Mapping[str, Reference]


def _whole(catalog: Catalog) -> _Shown:
    """Return everything in a catalogue."""
    return _Shown(
        tuple(catalog.ids("benchmarks")),
        tuple(catalog.ids("datasets")),
        tuple(catalog.ids("models")),
        joined(catalog.bibliographies).references,
    )


def _only(catalog: Catalog, boards: Sequence[Leaderboard]) -> _Shown:
    """Return what is on boards, and the references that it cites."""
    columns = [column for board in boards for column in board.columns]
    benchmarks = tuple(sorted({column.id for column in columns}))
    datasets = tuple(sorted({column.dataset for column in columns}))
    models = tuple(sorted({row.model for board in boards for row in board.rows}))
    specs = [
        *map(catalog.benchmark, benchmarks),
        *map(catalog.dataset, datasets),
        *map(catalog.model, models),
    ]
    cited = {key for spec in specs for key in spec.cite}
    known = joined(catalog.bibliographies).references
    references = {key: known[key] for key in sorted(cited & set(known))}
    return _Shown(benchmarks, datasets, models, references)


def _reports(catalog: Catalog, datasets: Sequence[str]) -> dict[str, ValidationReport]:
    """Return the validation reports of those data sets that have one."""
    found = {id: read_report(report_path(catalog.root, id)) for id in datasets}
    return {id: report for id, report in found.items() if report is not None}


def _further(
    catalog: Catalog, boards: Sequence[Leaderboard], records: Sequence[Known]
) -> tuple[SuiteSpec, ...]:
    """Return the other suites with a scored benchmark that is on none of the boards."""
    on_boards = {column.id for board in boards for column in board.columns}
    scored = {record.summary.benchmark for record in records} - on_boards
    shown = {board.suite for board in boards}
    others = (catalog.suite(id) for id in catalog.ids("suites") if id not in shown)
    return tuple(
        other for other in others if scored & {item.id for item in other.benchmarks}
    )


def _every(
    catalog: Catalog,
    benchmarks: Sequence[str],
    records: Sequence[Known],
    withheld: Mapping[str, str],
) -> Leaderboard:
    """Return one board of all benchmarks that have a page."""
    fields = {
        "id": "everything",
        "version": 1,
        "title": "Every benchmark",
        "benchmarks": [{"id": id} for id in benchmarks],
    }
    suite = SuiteSpec.model_validate(fields)
    return board_of(catalog, suite, records, withheld, ranked=False)


def pages(world: World) -> Iterator[Page | Picture]:
    """Yield every page and image of the site."""
    for part in parts(world):
        if isinstance(part, Pages):
            yield from part.make()
        else:
            yield part


def parts(world: World) -> Iterator[Page | Pages | Picture]:
    """Yield every page and image of the site; the pages of the records of a benchmark together."""
    pictures = {id: _pictures(world, id) for id in world.datasets}
    yield Page("index.html", "index.html.j2", _index(world, pictures))
    yield from _benchmark_pages(world)
    yield from _model_pages(world)
    yield from _dataset_pages(world, pictures)
    yield from _claim_pages(world)
    cited = _cited(world, sorted(world.references))
    yield Page(
        "references.html",
        "references.html.j2",
        {"section": "references", "references": cited},
    )


def _index(world: World, pictures: Mapping[str, Sequence[Shown]]) -> dict[str, object]:
    """Return the context of the front page, which opens with the main board if it has a score; then recorded data first."""
    recorded = [board for board in world.boards if not _is_simulated(board)]
    recorded.sort(key=_count_of_values, reverse=True)
    simulated = [board for board in world.boards if board not in recorded]
    boards = [*recorded, *simulated]
    if _count_of_values(world.main):
        boards = [world.main, *(board for board in boards if board is not world.main)]
    switch = [("recorded", recorded), ("simulated", simulated)]
    pairs = []
    for board, suite in zip(world.boards, world.suites, strict=True):
        shown = packed_pairs(world.catalog, suite, board, world.records, world.withheld)
        pairs.append((board.suite, shown))
    return {
        "section": "index",
        "switch": [
            (label, list(map(Brief.of, group))) for label, group in switch if group
        ],
        "boards": list(map(Brief.of, boards)),
        "suites": [board.suite for board in boards],
        "data": [
            (board.suite, packed(board, _numbers(world, board))) for board in boards
        ],
        "fronts": [_front(world, board, pictures) for board in boards],
        "pairs": pairs,
    }


def _is_simulated(board: Leaderboard) -> bool:
    return all(column.simulated for column in board.columns)


def _count_of_values(board: Leaderboard) -> int:
    """Return the number of cells of a board that have a value."""
    cells = [cell for row in board.rows for cell in row.cells]
    return sum(cell.value is not None for cell in cells)


def _front(
    world: World, board: Leaderboard, pictures: Mapping[str, Sequence[Shown]]
) -> dict[str, object]:
    """Return what a board shows above its table: the sentence, forest plots, layer curves and some stimuli."""
    columns: dict[str, list[Column]] = {}
    for column in board.columns:
        if pictures.get(column.dataset):
            columns.setdefault(column.dataset, []).append(column)
    strips = []
    for id, of_dataset in columns.items():
        spec = world.catalog.dataset(id)
        shown = pictures[id]
        if len(shown) > STRIP:
            few = [shown[i * len(shown) // STRIP] for i in range(STRIP)]
        else:
            few = list(shown)
        lines = [reference["line"] for reference in _cited(world, spec.cite)]
        strip = {
            "dataset": spec,
            "columns": of_dataset,
            "pictures": few,
            "cited": lines,
        }
        strips.append(strip)
    curves = [
        figure
        for column in board.columns
        for figure in figures(world.curves, column.id)
    ]
    return {
        "suite": board.suite,
        "front": front(world.catalog, board, world.records),
        "strips": strips,
        "curves": curves[:MAX_CURVES],
    }


def _numbers(world: World, board: Leaderboard) -> list[tuple[str, str]]:
    """Return the labels and numbers above a board."""
    ids = {column.id for column in board.columns}
    verdicts = Counter(
        verdict
        for record in world.records
        if record.summary.benchmark in ids
        for verdict in record.summary.verdicts
    )
    states = Counter(cell.status for row in board.rows for cell in row.cells)
    datasets = {column.dataset for column in board.columns if not column.unavailable}
    valid = sum(world.reports[id].success for id in datasets if id in world.reports)
    undecided = f", {verdicts['undecided']} undecided" if verdicts["undecided"] else ""
    return [
        ("models", str(sum(row.role == "model" for row in board.rows))),
        ("benchmarks", str(len(board.columns))),
        ("scores", str(states["scored"])),
        ("failed or partial", str(states["failed"] + states["partial"])),
        ("data sets validated", f"{valid} of {len(datasets)}"),
        (
            "control checks passed",
            f"{verdicts['passed']} of {verdicts.total()}{undecided}",
        ),
    ]


def _known_by(spec: DatasetSpec, report: ValidationReport | None) -> list[KnownBy]:
    """Return figures of the signatures that a spec names, if its data are valid and public, and none has changed since."""
    if spec.access == "private" or report is None or not report.success:
        return []
    if not are_current(spec, report.signatures):
        return []
    return known_by(report.signatures)


class _Whole:
    """Whole records, which are parsed once for the page of their benchmark and for their own, and then in memory.

    Those of the page of another benchmark replace them.
    """

    def __init__(self) -> None:
        self._held: dict[str, Record] = {}

    def of_benchmark(self, known_ones: Sequence[Known]) -> list[Record]:
        """Return the records of a benchmark."""
        records = [each.record() for each in known_ones]
        places = [each.place for each in known_ones]
        self._held = dict(zip(places, records, strict=True))
        return records

    def of(self, known_one: Known) -> Record:
        """Return a record."""
        held = self._held.get(known_one.place) if known_one.place else None
        return known_one.record() if held is None else held


def _benchmark_pages(world: World) -> Iterator[Page | Pages]:
    """Yield the page of each benchmark, then those of its records."""
    whole = _Whole()
    common = _common(world)
    items = []
    by_benchmark: dict[str, list[Known]] = {}
    for record in world.records:
        by_benchmark.setdefault(record.summary.benchmark, []).append(record)
    for i, column in enumerate(world.everything.columns):
        spec = world.catalog.benchmark(column.id)
        dataset = world.catalog.dataset(column.dataset)
        records = by_benchmark.get(column.id, [])
        context = {
            "spec": spec,
            "column": column,
            "dataset": dataset,
            "curves": figures(world.curves, column.id),
            "calibration": _calibration(world, column.id),
            "history": _changes(world, benchmark=column.id),
            "cited": _cited(world, [*spec.cite, *dataset.cite]),
        }
        context |= _source(world, "benchmarks", column.id)
        several = _record_pages(world, i, records, common, whole)
        late = Late(several.key, partial(_of_records, world, i, records, whole))
        yield Page(f"benchmarks/{column.id}.html", "benchmark.html.j2", context, late)
        yield several
        states = [row.cells[i].status for row in world.everything.rows]
        state, tone = _state_of_scores(states.count("scored"), column.unavailable)
        cells = [spec.parent, spec.dataset]
        items.append(
            _item(column.id, spec.title, cells, state, tone, simulated=column.simulated)
        )
    yield _list(
        "benchmarks", "Benchmarks", ["benchmark", "part of", "data set", "state"], items
    )


def _of_records(
    world: World, i: int, known_ones: Sequence[Known], whole: _Whole
) -> dict[str, object]:
    """Return what the page of a benchmark shows of its records."""
    column = world.everything.columns[i]
    lines = []
    for row in world.everything.rows:
        if row.cells[i].status not in ABSENT:
            lines.append((Entrant(row.model, row.role), row.cells[i]))
    lines.sort(key=lambda line: _by_value(line[0], line[1], column))
    records = whole.of_benchmark(known_ones)
    return {
        "lines": lines,
        "axis": axis([cell for _, cell in lines], [column]),
        "covers": sorted({cell.covers for _, cell in lines if cell.covers}),
        "costs": _costs(column, lines, [each.summary for each in known_ones]),
        "controls": sorted(_controls_of(records).items()),
        "records": records,
        "notes": _notes(records),
    }


def _state_of_scores(scored: int, unavailable: object) -> tuple[str, str]:
    """Return the words and the tone of a number of scores."""
    if unavailable:
        return "unavailable", "warn"
    if not scored:
        return "no record", ""
    return f"{scored} score{'s' * (scored > 1)}", "good"


def _controls_of(records: Sequence[Record]) -> dict[str, Control]:
    """Return the controls of a benchmark by name, and the worst of the permuted ones."""
    controls: dict[str, Control] = {}
    for record in records:
        controls |= record.controls
    controls.pop("permuted", None)
    return controls | _worst_permuted(records)


def _worst_permuted(records: Sequence[Record]) -> dict[str, Control]:
    """Return the permuted control that came closest to its bound; each model has its own permutation."""
    controls = [
        record.controls["permuted"]
        for record in records
        if "permuted" in record.controls
    ]
    if not controls:
        return {}
    worse = ("passed", "undecided", "failed")
    return {
        "permuted": max(
            controls, key=lambda item: (worse.index(item.verdict), item.value or 0.0)
        )
    }


def _model_pages(world: World) -> Iterator[Page]:
    rows = {row.model: row for row in world.everything.rows}
    on_pages = {column.id for column in world.everything.columns}
    columns = key_of("columns", repr(world.everything.columns))
    items = []
    own = set(world.catalog.own("models"))
    states: dict[str, list[str]] = {}
    for record in world.records:
        if record.summary.benchmark in on_pages:
            states.setdefault(record.summary.model, []).append(record.summary.status)
    for id in world.models:
        spec = world.catalog.model(id)
        row = rows.get(id)
        context = {"spec": spec, "cited": _cited(world, spec.cite)}
        context |= _source(world, "models", id)
        said = f"{columns} {'' if row is None else row.cells!r}"
        late = Late(said, partial(_scores_of, world, row))
        yield Page(f"models/{id}.html", "model.html.j2", context, late)
        scored = states.get(id, []).count("scored")
        state, tone = _state_of_scores(scored, spec.unavailable)
        role = f"{spec.control} control" if spec.control else "model"
        cells = [spec.builder.name if spec.builder else "", role]
        if id in states or id in own:
            items.append(
                _item(id, spec.title, cells, state, tone, simulated=spec.simulated)
            )
    yield _list("models", "Models", ["model", "builder", "role", "state"], items)


def _scores_of(world: World, row: Row | None) -> dict[str, object]:
    """Return what the page of a model shows of its row."""
    return {"blocks": _blocks(world, row)}


def _blocks(
    world: World, row: Row | None
) -> list[tuple[Axis, Column, list[tuple[Column, Cell]]]]:
    """Return the cells of a model in groups that share an axis: all commensurable scales, and each other scale."""
    groups: dict[str, list[tuple[Column, Cell]]] = {}
    for column, cell in (
        zip(world.everything.columns, row.cells, strict=True) if row else ()
    ):
        if cell.status not in ABSENT:
            key = "" if column.counts else f"{column.scale} {column.unit}"
            groups.setdefault(key, []).append((column, cell))
    return [
        (
            axis([cell for _, cell in group], [column for column, _ in group]),
            group[0][0],
            group,
        )
        for group in groups.values()
    ]


def _pictures(world: World, dataset: str) -> list[Shown]:
    """Return the thumbnails of a valid, public data set."""
    if not _has_files(world.reports.get(dataset)):
        return []
    return [
        Shown(Picture(f"thumbnails/{dataset}/{i}.png", content), name)
        for i, (name, content) in enumerate(thumbnails(world.catalog, dataset))
    ]


def _dataset_pages(
    world: World, thumbnails: Mapping[str, Sequence[Shown]]
) -> Iterator[Page | Picture]:
    items = []
    for id in world.datasets:
        spec = world.catalog.dataset(id)
        report = world.reports.get(id)
        used = [
            column.id for column in world.everything.columns if column.dataset == id
        ]
        pictures = thumbnails[id]
        yield from (picture for picture, _ in pictures)
        context = {
            "spec": spec,
            "report": report,
            "benchmarks": used,
            "thumbnails": [(picture.path, name) for picture, name in pictures],
            "stimuli": report.contents["stimuli"].shape[0]
            if report and pictures
            else 0,
            "cited": _cited(world, spec.cite),
            "timeline": timeline(report.clocks) if report else None,
            "clocks": clock_rows(report.clocks) if report else [],
            "known_by": _known_by(spec, report),
        }
        yield Page(
            f"datasets/{id}.html",
            "dataset.html.j2",
            context | _source(world, "datasets", id),
        )
        state, tone = _state(spec, report)
        cells = [spec.license, spec.access, str(len(used))]
        items.append(
            _item(id, spec.title, cells, state, tone, simulated=spec.simulated)
        )
    head = ["data set", "licence", "access", "benchmarks", "state"]
    yield _list("datasets", "Data sets", head, items)


def _state(spec: DatasetSpec, report: ValidationReport | None) -> tuple[str, str]:
    if spec.closed is not None:
        return "unread" if spec.unread else "unavailable", "warn"
    if report is None:
        return "not validated here", ""
    if report.success:
        return ("valid", "good")
    return ("invalid", "bad")


def _claim_pages(world: World) -> Iterator[Page | Picture]:
    """Yield the page and the badge of each claim, and the list of claims."""
    items = []
    for id in world.catalog.own("claims"):
        found = standing(world.catalog, id)
        status = claims.words_of(found)
        tone = claims.TONES[found.status]
        context = {
            "spec": found.claim,
            "found": found,
            "status": status,
            "tone": tone,
            "since": claims.since(found),
            "over_datasets": claims.over_datasets(found),
            "looks": read_looks(world.catalog.root, id).looks,
            "entry": claims.bibtex(found),
        } | _source(world, "claims", id)
        yield Page(f"claims/{id}.html", "claim.html.j2", context)
        yield Picture(f"claims/{id}.svg", claims.badge(found).encode())
        paths = f"{found.agreeing} of {len(found.paths)}"
        cells = [paths, claims.since(found)]
        title = found.claim.title
        items.append(_item(id, title, cells, status, tone, simulated=False))
    yield _list("claims", "Claims", ["claim", "paths above", "since", "status"], items)


def _item(
    id: str, title: str, cells: list[str], state: str, tone: str, *, simulated: bool
) -> dict[str, object]:
    return {
        "id": id,
        "title": title,
        "cells": cells,
        "state": state,
        "tone": tone,
        "simulated": simulated,
    }


def _list(
    section: str, heading: str, head: list[str], items: list[dict[str, object]]
) -> Page:
    context: dict[str, object] = {
        "section": section,
        "heading": heading,
        "head": head,
        "items": items,
    }
    return Page(f"{section}.html", "list.html.j2", context)


def _source(world: World, kind: str, id: str) -> dict[str, object]:
    path = world.catalog.entry(kind, id).path
    return {
        "section": kind,
        "path": world.catalog.shown(path),
        "source": path.read_text(encoding="utf-8"),
    }


def _by_value(row: Entrant, cell: Cell, column: Column) -> tuple[bool, float, str]:
    sign = -1 if column.direction == "higher" else 1
    return cell.value is None, sign * (cell.value or 0.0), row.model


def axis(cells: Sequence[Cell], columns: Sequence[Column]) -> Axis:
    """Return an axis that contains the cells, their intervals, the floors, and 0 to 1 if the scale has these ends."""
    values = [
        v for cell in cells for v in (cell.value, cell.low, cell.high) if v is not None
    ]
    values += [column.floor for column in columns if column.floor is not None]
    return axis_over(values, one=all(column.counts for column in columns))


class _Common(NamedTuple):
    """What the pages of records share: the row and the citations of each model, the references, and states of samples.

    The samples are those of public data, by the identity of the job.
    """

    rows: Mapping[str, Row]
    cites: Mapping[str, tuple[str, ...]]
    references: str
    samples: Mapping[str, str]


def _common(world: World) -> _Common:
    rows = {row.model: row for row in world.everything.rows}
    private = {column.id for column in world.everything.columns if column.private}
    summaries = [
        record.summary
        for record in world.records
        if record.summary.has_score and record.summary.benchmark not in private
    ]
    wanted = [(summary.id, _headline(summary)) for summary in summaries]
    states = states_of_samples(world.store, wanted)
    return _Common(
        rows,
        {model: tuple(world.catalog.model(model).cite) for model in rows},
        key_of("references", repr(world.references)),
        dict(zip((id for id, _ in wanted), states, strict=True)),
    )


def _record_pages(
    world: World, i: int, every: Sequence[Known], common: _Common, whole: _Whole
) -> Pages:
    """Return one page for each record of a benchmark: the score in detail, and how to reproduce it."""
    column = world.everything.columns[i]
    folder = f"records/{column.id}"
    records = [each for each in every if each.summary.model in common.rows]
    said: list[object] = [column, _cites_of(world, column), common.references]
    for record in every:
        row = common.rows.get(record.summary.model)
        said.append((record.summary.model, _key_with_samples(record, common)))
        if row is not None:
            steps = world.history.get((column.id, row.model), ())
            said.append((row.role, row.cells[i], common.cites[row.model], steps))
    return Pages(
        folder,
        tuple(f"{folder}/{record.summary.model}.html" for record in records),
        repr(said) if all(record.sha256 for record in every) else "",
        partial(_made_for_records, world, i, records, common, whole),
    )


def _cites_of(world: World, column: Column) -> list[str]:
    """Return the keys of the references of a benchmark and its data set."""
    spec = world.catalog.benchmark(column.id)
    return [*spec.cite, *world.catalog.dataset(column.dataset).cite]


def _made_for_records(
    world: World, i: int, records: Sequence[Known], common: _Common, whole: _Whole
) -> Iterator[Page]:
    column = world.everything.columns[i]
    cites = _cites_of(world, column)
    for record in records:
        row = common.rows[record.summary.model]
        cell = row.cells[i]
        context = {
            "section": "index",
            "column": column,
            "cell": cell,
            "role": row.role,
            "axis": axis([cell], [column]),
            "history": world.history.get((column.id, row.model), ()),
            "cited": _cited(world, [*cites, *common.cites[row.model]]),
        }
        late = Late(
            _key_with_samples(record, common),
            partial(_of_record, world, record, column, whole),
        )
        path = f"records/{column.id}/{row.model}.html"
        yield Page(path, "record.html.j2", context, late)


def _key_with_samples(record: Known, common: _Common) -> str:
    """Return what the details of a record follow from: its file, and its samples if they are shown."""
    if not record.sha256:
        return ""
    return f"{record.sha256} {common.samples.get(record.summary.id, '')}"


def _headline(summary: Summary) -> str:
    return summary.measures[0].metric if summary.measures else ""


def _of_record(
    world: World, known_one: Known, column: Column, whole: _Whole
) -> dict[str, object]:
    """Return what the page of a record shows of the whole record."""
    record = whole.of(known_one)
    score = record.score
    return {
        "record": record,
        "ceiling": None if score is None else score.ceiling,
        "facts": {} if score is None else score.facts,
        "notes": () if score is None else score.notes,
        "controls": sorted(record.controls.items()),
        "figures": _details(world, record, column),
    }


def _details(world: World, record: Record, column: Column) -> list[tuple[str, Markup]]:
    """Return figures of the sources of uncertainty, and of every neuroid, subject or stimulus if the data are public."""
    if record.score is None:
        return []
    drawn = []
    deviations = _deviations(record)
    if deviations:
        caption = f"Standard error of the score from each source ({column.scale.replace('_', ' ')})."
        drawn.append((caption, bars(deviations, "standard error")))
    if not column.private:
        samples = samples_of(
            world.catalog.root, record.id, next(iter(record.scores), "")
        )
        if samples is not None:
            drawn += details(samples, column.scale)
    return drawn


def _deviations(record: Record) -> dict[str, float]:
    """Return the standard error of the headline score from each source; what its interval tells if no source is known."""
    stored = None if record.score is None else record.score.uncertainty
    varies = stored or record.as_score().uncertainty
    parts = () if varies is None else varies.parts
    return {" × ".join(part.over): math.sqrt(part.variance) for part in parts}


def _costs(
    column: Column, lines: Sequence[tuple[Entrant, Cell]], summaries: Sequence[Summary]
) -> list[tuple[str, Markup]]:
    """Return one figure for each cost that was measured in the same pass as the score; partial costs are too low."""
    costs: dict[str, dict[str, float]] = {}
    for summary in summaries:
        # The first score is that of the benchmark itself.
        for each in summary.measures[1:]:
            is_cost = each.direction == "lower" and each.status == "scored"
            if is_cost and each.value is not None:
                costs.setdefault(each.metric, {})[summary.model] = each.value
    drawn = []
    for cost, by_model in list(costs.items())[:MAX_COSTS]:
        points = _cost_points(by_model, lines)
        if len({point.x for point in points}) > 1:
            label = cost.replace("_", " ")
            picture = scatter(points, label, describe(column), logarithmic=True)
            drawn.append(
                (f"Score against {label}: up and to the left is better.", picture)
            )
    return drawn


def _cost_points(
    costs: Mapping[str, float], lines: Sequence[tuple[Entrant, Cell]]
) -> list[Point]:
    """Return a point for each model that has a score and a cost."""
    points = []
    for row, cell in lines:
        x = costs.get(row.model)
        y = cell.value
        if x is None or y is None:
            continue
        tooltip = f"{row.model}: {y:.3f} at {x:,.4g}"
        is_control = row.role != "model"
        points.append(Point(x, y, tooltip, row.model, cell.low, cell.high, is_control))
    return points


def _notes(records: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """Return each note of the scores once, with the models that have it."""
    models: dict[str, list[str]] = {}
    for record in records:
        for note in () if record.score is None else record.score.notes:
            models.setdefault(note, []).append(record.model)
    return list(models.items())


def _changes(world: World, benchmark: str) -> list[Step]:
    """Return the latest changes of scores of a benchmark, without the first score of each model."""
    steps = [
        step
        for (id, _), changes in world.history.items()
        if id == benchmark
        for step in changes[1:]
    ]
    return sorted(steps, key=lambda step: (step.date, step.model))[-MAX_CHANGES:]


def _calibration(world: World, benchmark: str) -> dict[str, object] | None:
    """Return the calibration of each metric of a benchmark, or None if there is none or it cannot be read."""
    path = calibration_path(world.catalog.root, benchmark)
    try:
        result = calibration_in(path.read_bytes())
    except (OSError, ValueError):  # the board reports what is wrong with it
        return None
    metrics = sorted(
        result.metrics.items(), key=lambda item: (item[0] != result.headline, item[0])
    )
    changed = result.identity.get("benchmark") != spec_sha256(
        world.catalog.benchmark(benchmark)
    )
    return {"result": result, "metrics": metrics, "changed": changed}


def _cited(world: World, keys: Sequence[str]) -> list[Mapping[str, str]]:
    """Return each reference once."""
    known = world.references
    return [known[key] for key in dict.fromkeys(keys) if key in known]


def _entry(key: str, reference: Reference) -> Mapping[str, str]:
    """Return what pages show of a reference: its key; authors, year and title in a line; and its BibTeX entry."""
    fields = reference.fields
    authors = " ".join(fields.get("author", "").split()).split(" and ")
    families = [re.findall(FAMILY, author)[0] for author in authors]
    several = len(authors) > 2 or authors[-1] == "others"
    names = f"{families[0]} et al." if several else " and ".join(families)
    line = f"{names} ({fields.get('year', 'n.d.')}). {' '.join(fields.get('title', key).split())}"
    line = re.sub(r"[{}\\]", "", line)
    # Once for all pages that cite it.
    return {
        "key": key,
        "line": escape(visible(line)),
        "text": escape(visible(reference.text)),
    }


def _has_files(report: ValidationReport | None) -> bool:
    """Return whether a data set is valid and has stimuli with files."""
    if report is not None and report.success:
        stimuli = report.contents.get("stimuli")
    else:
        stimuli = None
    return stimuli is not None and "filename" in stimuli.columns


STATES: Final = {
    "failed": "f",
    "partial": "p",
    "stale": "s",
    "edited": "e",
    "missing": "m",
    "unavailable": "u",
}


def packed(board: Leaderboard, numbers: list[tuple[str, str]]) -> dict[str, object]:
    """Return the board as short lists: a scored cell is [value, low, high, top, signer], others are state and reason."""
    texts: dict[str, int] = {}

    def pack(cell: Cell) -> list[object] | str:
        if cell.status == "scored" and cell.value is not None:
            return [
                _short(cell.value),
                _short(cell.low),
                _short(cell.high),
                int(cell.top),
                cell.evidence.signer,
            ]
        return (
            f"{STATES.get(cell.status, 'm')}{texts.setdefault(cell.reason, len(texts))}"
        )

    rows = [
        _row(row) | {"cells": [pack(cell) for cell in row.cells]} for row in board.rows
    ]
    return {
        "suite": board.suite,
        "version": board.version,
        "title": board.title,
        "numbers": numbers,
        "groups": [
            {"name": g.name, "part": g.part_of, "size": len(g.shares)}
            for g in board.groups
        ],
        "columns": [
            _column(column) | {"short": name}
            for column, name in zip(board.columns, _names(board), strict=True)
        ],
        "rows": rows,
        "texts": list(texts),
    }


def _row(row: Row) -> dict[str, object]:
    return {
        "model": row.model,
        "title": row.title,
        "role": row.role,
        "place": row.place,
        "score": _mean(row.score),
        "top": row.rank is not None and row.rank[0] == 1,
        "why": row.score.reason,
        "groups": [_mean(cell) for cell in row.groups],
    }


def _column(column: Column) -> dict[str, object]:
    names = ("id", "title", "parent", "dataset", "direction", "normalise", "counts")
    limits = {"floor": _short(column.floor), "ceiling": _short(column.ceiling)}
    return (
        {name: getattr(column, name) for name in names}
        | limits
        | {"describe": describe(column)}
    )


def _names(board: Leaderboard) -> Iterator[str]:
    """Yield the short names of the columns; equal short names are extended until they differ."""
    ids: dict[str, list[str]] = {}
    for column in board.columns:
        ids.setdefault(column.short, []).append(column.id)
    for column in board.columns:
        same = commonprefix(ids[column.short])  # noqa: RUF071 - of names, not of paths
        yield (
            column.id[same.rfind(".") + 1 :]
            if len(ids[column.short]) > 1
            else column.short
        )


def _mean(cell: Cell) -> list[float | None] | None:
    if cell.value is None:
        return None
    return [_short(cell.value), _short(cell.low), _short(cell.high)]


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.5g}")


THUMBNAILS: Final = 24
THUMBNAIL_PIXELS: Final = 96


def thumbnails(catalog: Catalog, dataset: str) -> Iterator[tuple[str, bytes]]:
    """Yield stimulus ids and small PNG images, evenly spaced in the table; none for private or missing data."""
    spec = catalog.dataset(dataset)
    if spec.access != "public" or spec.closed is not None:
        return
    try:
        verified_files(catalog, "datasets", dataset)
    except NeuroLedgerError:  # missing or changed; the validation section reports it
        return
    # The spec pins the content of the files.
    key = key_of("thumbnails", repr(spec), installed_sha256())
    if not registry.only_shipped():
        key = ""
    found = remembered(
        derived_at(catalog.root), {dataset: key}, lambda id: list(_drawn(catalog, id))
    )
    for id, content in found[dataset]:
        yield id, b64decode(content)


def _drawn(catalog: Catalog, dataset: str) -> Iterator[tuple[str, str]]:
    """Yield stimulus ids and images in base64."""
    try:
        stimuli = load_dataset(catalog, dataset).stimuli
        if stimuli is None or "filename" not in stimuli.table.columns:
            return
        ids = stimuli.ids
        count = min(THUMBNAILS, len(ids))
        ids = [ids[i * len(ids) // count] for i in range(count)]
        for id, content in zip(ids, stimuli.read(ids), strict=True):
            yield id, b64encode(thumbnail(content, id, THUMBNAIL_PIXELS)).decode()
    except NeuroLedgerError:  # not images; the validation section reports it
        return
