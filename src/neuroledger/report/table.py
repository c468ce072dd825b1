"""Records become a tidy table, and a leaderboard with ties that says who is not ranked and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from neuroledger.engine.plan import fits
from neuroledger.engine.record import Record, read_all
from neuroledger.report.board import Cell, Column, Leaderboard, Role, Row
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.hierarchy import Group, groups_of, weights_of
from neuroledger.spec.kinds import BenchmarkSpec, SuiteSpec
from neuroledger.spec.params import read_params
from neuroledger.spec.suites import suites_of, to_score

__all__ = ["board_of", "boards_of", "leaderboard", "tidy"]

# Scales on which 0 is nothing and 1 is everything, so that a mean over benchmarks means something.
COMMENSURABLE: Final = frozenset(
    {
        "correlation",
        "reliability",
        "explained_variance",
        "similarity",
        "consistency",
        "accuracy",
        "fraction",
        "score",
    }
)
NORMAL_95: Final = 1.959964


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """One row per model, benchmark and metric: status, value with interval, raw value, ceiling, counts, identity."""
    rows = []
    for record in records:
        headline = next(iter(record.scores), "")
        for metric, plain in record.scores.items() or [("", dict[str, Any]())]:
            ceiling = plain.get("ceiling") or {}
            rows.append(
                {
                    "model": record.model,
                    "benchmark": record.benchmark,
                    "metric": metric,
                    "headline": metric == headline,
                    "status": record.status,
                    **{name: plain.get(name) for name in ("value", "low", "high", "error", "raw")},
                    "ceiling": ceiling.get("value"),
                    "scale": plain.get("scale", ""),
                    "direction": plain.get("direction", ""),
                    **{f"n_{name}": count for name, count in plain.get("n", {}).items()},
                    "seed": record.request.get("seed"),
                    "limit": record.request.get("limit"),
                    "reason": _reason(record),
                    "id": record.id,
                }
            )
    return pd.DataFrame(rows)


def leaderboard(
    records: Sequence[Record] | None = None, *, suite: str | None = None, catalog: Catalog | None = None
) -> Leaderboard:
    """The board of a suite (that of ``params.yaml`` when none is named) from records (all that are kept).

    The score of a model is the weighted mean over the benchmarks whose scale runs from nothing to everything, or their
    mean of means where the suite declares a hierarchy; its interval takes the benchmarks as independent. Two models
    tie when the interval of their difference, had from their two 95 % intervals, holds 0. A model that lacks one of
    these benchmarks is shown and not ranked; controls are shown apart.

    Raises
    ------
    RequestError, DataError
        No such suite; a record cannot be read.
    """
    catalog = catalog or open_catalog()
    chosen = catalog.suite(suite or read_params(catalog.root).suite)
    if records is None:
        records = list(read_all(catalog.root / "results" / "records"))
    return board_of(catalog, chosen, records)


def boards_of(
    catalog: Catalog, suite: str, records: Sequence[Record], *, new: bool = False
) -> tuple[Leaderboard, ...]:
    """The boards of a suite and of those it includes, each ranked on its own.

    With ``new`` also one of the benchmarks that no suite lists yet, where there are any.
    """
    suites = to_score(catalog, suite) if new else suites_of(catalog, suite)
    return tuple(board_of(catalog, each, records) for each in suites)


def board_of(catalog: Catalog, suite: SuiteSpec, records: Sequence[Record]) -> Leaderboard:
    """The board of any list of benchmarks and models, in a catalogue or made up."""
    by_benchmark: dict[str, dict[str, Record]] = {}
    for record in records:
        by_benchmark.setdefault(record.benchmark, {})[record.model] = record
    here = {item.id: by_benchmark.get(item.id, {}) for item in suite.benchmarks}
    columns = tuple(_column(catalog, item.id, item.weight, here[item.id]) for item in suite.benchmarks)
    recorded = sorted({model for found in here.values() for model in found})
    known = set(catalog.ids("models"))
    models = [model for model in dict.fromkeys([*suite.models, *recorded]) if model in known]
    counted = {column.id: column.weight for column in columns if column.counts}
    parents = {column.id: column.parent for column in columns}
    groups = tuple(groups_of(counted, parents, suite.hierarchy))
    whole = weights_of(counted, parents, suite.hierarchy)
    rows = [_row(catalog, model, columns, groups, whole, here) for model in models]
    ordered = _ordered(_with_tops(rows, columns))
    return Leaderboard(suite.id, suite.version, suite.title, columns, groups, ordered)


def _column(catalog: Catalog, id: str, weight: float, records: Mapping[str, Record]) -> Column:
    spec = catalog.benchmark(id)
    dataset = catalog.dataset(spec.dataset)
    first = spec.all_metrics[0]
    name = first if isinstance(first, str) else first.name
    unavailable = spec.unavailable or dataset.unavailable or ""
    # A benchmark that cannot be had may be described with a metric that is not here either.
    metric = catalog.metric(name) if not unavailable or name in catalog.ids("metrics") else None
    scored = [record.score for record in records.values() if record.score]
    scale = str(scored[0]["scale"]) if scored else metric.scale if metric else name
    direction = str(scored[0]["direction"]) if scored else metric.direction if metric else "higher"
    ceilings = [plain["ceiling"]["value"] for plain in scored if plain.get("ceiling")]
    return Column(
        id=id,
        title=spec.title,
        parent=spec.parent,
        dataset=spec.dataset,
        weight=weight,
        scale=scale,
        unit=metric.unit if metric else None,
        direction=direction,
        normalise=_normalisation(spec),
        counts=not unavailable
        and (_normalisation(spec) == "floor" or (direction == "higher" and scale in COMMENSURABLE)),
        simulated=dataset.simulated,
        private=dataset.access == "private",
        unavailable=unavailable,
        floor=_floor(records),
        ceiling=ceilings[0] if ceilings else None,
    )


def _normalisation(spec: BenchmarkSpec) -> str:
    return spec.normalise or ("ceiling" if spec.ceiling else "floor" if spec.floor else "none")


def _floor(records: Mapping[str, Record]) -> float | None:
    """The highest score of a negative control, permuted stimuli among them."""
    values = [
        control["value"]
        for record in records.values()
        for control in record.controls.values()
        if control.get("role") == "negative" and control.get("value") is not None
    ]
    return max(values, default=None)


def _row(
    catalog: Catalog,
    model: str,
    columns: Sequence[Column],
    groups: Sequence[Group],
    whole: Mapping[str, float],
    here: Mapping[str, Mapping[str, Record]],
) -> Row:
    spec = catalog.model(model)
    cells = tuple(_cell(catalog, model, here[column.id].get(model), column) for column in columns)
    role: Role = spec.control or "model"
    held = {column.id: cell for column, cell in zip(columns, cells, strict=True)}
    means = tuple(_mean(held, group.shares) for group in groups)
    return Row(model, spec.title, role, spec.simulated, cells, means, _mean(held, whole), None)


def _cell(catalog: Catalog, model: str, record: Record | None, column: Column) -> Cell:
    if column.unavailable:
        return Cell("unavailable", reason=column.unavailable)
    if record is None:
        meant = fits(catalog, model, column.id)
        return Cell("missing", reason="not run yet" if meant else "the model is not meant for this benchmark")
    if not record.intact:
        return Cell("edited", reason="the record was changed after it was written: run it again")
    if record.inputs.get("benchmark", {}).get("version") != catalog.benchmark(column.id).version:
        return Cell("stale", reason="the benchmark has a new version: run it again")
    if record.status == "failed" or record.score is None:
        return Cell("failed", reason=_reason(record))
    plain = record.score
    low, high = plain.get("low"), plain.get("high")
    if low is None and plain.get("error") is not None:
        low, high = (plain["value"] + sign * NORMAL_95 * plain["error"] for sign in (-1, 1))
    return Cell(record.status, plain["value"], low, high, plain.get("raw"), _reason(record))


def _reason(record: Record) -> str:
    if record.error:
        return str(record.error.get("message", ""))
    return str((record.score or {}).get("reason", ""))


def _mean(cells: Mapping[str, Cell], shares: Mapping[str, float]) -> Cell:
    """The mean over benchmarks by their shares (which sum to 1), or why there is none."""
    lacking = [id for id in shares if cells[id].status != "scored" or cells[id].value is None]
    if not shares:
        return Cell("missing", reason="the suite's benchmarks have no common scale")
    if lacking:
        return Cell("partial", reason=f"without {', '.join(lacking)}")
    value = sum(share * (cells[id].value or 0.0) for id, share in shares.items())
    spread = math.hypot(*(share * cells[id].half_width for id, share in shares.items()))
    return Cell("scored", value, value - spread, value + spread)


def _clearly_better(a: Cell, b: Cell, *, higher: bool) -> bool:
    if a.value is None or b.value is None:
        return False
    difference = a.value - b.value if higher else b.value - a.value
    return difference > math.hypot(a.half_width, b.half_width)


def _with_tops(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """Rows with ranks, and with the cells marked that nothing is clearly better than; controls take no part."""
    runners = [row for row in rows if row.role == "model"]
    ranked = [row for row in runners if row.score.status == "scored"]
    marked = []
    for row in rows:
        cells = tuple(
            replace(cell, top=_is_top(cell, [other.cells[i] for other in runners], columns[i]))
            if row.role == "model"
            else cell
            for i, cell in enumerate(row.cells)
        )
        rank = None
        if row.role == "model" and row.score.status == "scored":
            better = sum(_clearly_better(other.score, row.score, higher=True) for other in ranked)
            worse = sum(_clearly_better(row.score, other.score, higher=True) for other in ranked)
            rank = (1 + better, len(ranked) - worse)
        marked.append(replace(row, cells=cells, rank=rank))
    return marked


def _is_top(cell: Cell, others: Sequence[Cell], column: Column) -> bool:
    rivals = [other for other in others if other.status == "scored"]
    higher = column.direction == "higher"
    return cell.status == "scored" and not any(
        _clearly_better(other, cell, higher=higher) for other in rivals
    )


def _ordered(rows: Sequence[Row]) -> tuple[Row, ...]:
    def key(row: Row) -> tuple[int, float, int, str]:
        group = {"model": 0 if row.rank else 1, "positive": 2, "negative": 3}[row.role]
        value = row.score.value if row.score.value is not None else -math.inf
        return group, -value, -sum(cell.status == "scored" for cell in row.cells), row.model

    return tuple(sorted(rows, key=key))
