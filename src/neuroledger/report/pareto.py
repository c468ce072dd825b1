"""Score and cost of models, also of different families, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pandas as pd

from neuroledger.engine.record import Record
from neuroledger.engine.records.summary import Known, Summary, known, known_records
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import StoredScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DEFAULT_COSTS", "front", "pareto", "pareto_figure", "readable"]

DEFAULT_COSTS: Final = ("synaptic_operations", "energy_45nm")
"""Costs in which spiking and dense networks can be compared: all operations together, and their modelled energy."""

PREFIXES: Final = (
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
    (1e-12, "p"),
)
GAP: Final = 4.0
"""Points between a mark and its label."""

Cost = Score | StoredScore | float


def pareto(
    benchmark: str,
    cost: str = DEFAULT_COSTS[0],
    *,
    records: Iterable[Record | Known] | None = None,
    costs: Mapping[str, Cost] | None = None,
    catalog: Catalog | None = None,
) -> pd.DataFrame:
    """Return models with their score on ``benchmark``, their ``cost``, and whether they are on the Pareto front.

    Parameters
    ----------
    benchmark
        Id of a benchmark of any family.
    cost
        Id of a cost metric; by default synaptic operations, MACs and ACs together: an axis of one of these alone would make
        networks of the other kind free. Its value is taken from ``costs`` (model id to number or Score),
        from the model's record on the same benchmark, or from its record on another benchmark.
    records
        Default: all records of the repository.

    Returns
    -------
    pd.DataFrame
        model, score, low, high, cost, unit, reads (the cost as people read it), counted_on, front; cheapest
        first. Failed and partial costs are excluded, because a partial cost is too low.

    Raises
    ------
    RequestError
        The benchmark or metric does not exist, or no model has both a score and a cost.
    """
    catalog = catalog or open_catalog()
    headline = catalog.benchmark(benchmark).all_metrics[0]
    if records is None:
        records = known_records(catalog.root)
    summaries = [record.summary for record in known(records)]
    measured = _measured(summaries, benchmark, cost, costs or {})
    rows: list[dict[str, object]] = []
    for summary in summaries:
        if summary.benchmark != benchmark or summary.model not in measured:
            continue
        if summary.value is None:
            continue
        value, unit, counted_on = measured[summary.model]
        rows.append(
            {
                "model": summary.model,
                "score": summary.value,
                "low": summary.low,
                "high": summary.high,
                "cost": value,
                "unit": unit,
                "counted_on": counted_on,
            }
        )
    if not rows:
        if not costs:  # costs passed as an argument may have any name
            catalog.metric(cost)
        metric = headline if isinstance(headline, str) else headline.name
        raise RequestError(
            f"no model has both a score on {benchmark!r} ({metric}) and {cost!r}: score models on a benchmark that "
            "lists this cost, or pass `costs`"
        )
    table = pd.DataFrame(rows).sort_values(["cost", "model"], ignore_index=True)
    lower = _direction(summaries, benchmark) == "lower"
    table.insert(
        6,
        "reads",
        [readable(*pair) for pair in zip(table["cost"], table["unit"], strict=True)],
    )
    table["front"] = front(table["score"].tolist(), table["cost"].tolist(), lower=lower)
    table.attrs = {"benchmark": benchmark, "cost": cost}
    return table


def readable(value: float, unit: str = "") -> str:
    """Return a cost as people read it: ``14.7 nJ/sample``, ``12.4 k operations/sample``, ``0 J/sample``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".strip()
    factor, prefix = next(
        ((f, p) for f, p in PREFIXES if abs(value) >= f), PREFIXES[-1]
    )
    if not unit.startswith("J") and (
        factor < 1 or abs(value) < 1e4
    ):  # small counts are written out
        if abs(value) < 1e4:
            return f"{value:,.4g} {unit}".strip()
        return f"{value:,.0f} {unit}".strip()
    if unit.startswith("J"):
        joined = f"{prefix}{unit}"
    else:
        joined = f"{prefix} {unit}".strip()
    return f"{value / factor:.3g} {joined}"


def front(
    scores: list[float], costs: list[float], *, lower: bool = False
) -> list[bool]:
    """Return for each model whether it is on the Pareto front: no other is as good and as cheap, and better on one.

    ``lower``: lower scores are better.
    """
    signed = [-score if lower else score for score in scores]
    return [
        not any(
            other >= score and price <= cost and (other > score or price < cost)
            for other, price in zip(signed, costs, strict=True)
        )
        for score, cost in zip(signed, costs, strict=True)
    ]


def _measured(
    summaries: Sequence[Summary], benchmark: str, cost: str, costs: Mapping[str, Cost]
) -> dict[str, tuple[float, str, str]]:
    """Return the cost of each model, its unit, and where it was counted: given, on the benchmark, or on another one."""

    def nearest_first(summary: Summary) -> tuple[bool, str]:
        return summary.benchmark != benchmark, summary.benchmark

    measured: dict[str, tuple[float, str, str]] = {}
    for summary in sorted(summaries, key=nearest_first):
        found = next((each for each in summary.measures if each.metric == cost), None)
        if found is None or found.value is None or not summary.has_score:
            continue
        if found.status == "scored":
            count = (found.value, found.unit, summary.benchmark)
            measured.setdefault(summary.model, count)
    for model, stated_cost in costs.items():
        value, unit = _number(stated_cost)
        if value is not None:
            measured[model] = (value, unit, "given")
    return measured


def _direction(summaries: Iterable[Summary], benchmark: str) -> str:
    """Return whether higher or lower scores of the benchmark are better."""
    scored = (
        summary.direction
        for summary in summaries
        if summary.benchmark == benchmark and summary.has_score
    )
    return next(scored)


def pareto_figure(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the table of :func:`pareto`: cost on a logarithmic axis, intervals as bars, the front as a line.

    If a cost is 0, the axis is linear below the smallest positive cost.
    """
    # Imported here, because the figures import `front` from this module.
    from neuroledger.report.plots.style import ACCENT, SOFT, axes

    ax = ax or axes(width=6, height=4.2)
    for row in table.to_dict("records"):
        colour = ACCENT if row["front"] else SOFT
        if pd.notna(row["low"]) and pd.notna(row["high"]):
            ax.plot(
                [row["cost"]] * 2, [row["low"], row["high"]], color=colour, linewidth=1
            )
        ax.scatter([row["cost"]], [row["score"]], s=36, color=colour, zorder=3)
    best = table[table["front"]].sort_values("cost")
    # Between two networks of the front, the cheaper one is the best: a staircase.
    ax.step(
        best["cost"], best["score"], where="post", color=ACCENT, linewidth=1.2, zorder=2
    )
    positive = table["cost"][table["cost"] > 0]
    if len(positive) == len(table):
        ax.set_xscale("log")
    elif len(positive):
        ax.set_xscale("symlog", linthresh=float(positive.min()))
    ax.margins(x=0.2, y=0.12)
    units = sorted(set(table["unit"]) - {""})
    unit = units[0] if len(units) == 1 else ""
    ax.xaxis.set_major_formatter(
        lambda value, _: readable(
            value, unit.partition("/")[0] if unit[:1] == "J" else ""
        )
    )
    name = str(table.attrs.get("cost", "cost"))
    ax.set_xlabel(f"{name} ({', '.join(units)})" if units else name)
    ax.set_ylabel(str(table.attrs.get("benchmark", "score")))
    _label(ax, table)
    return ax


def _label(ax: Axes, table: pd.DataFrame) -> None:
    """Write the names of models beside their marks, where they cover neither marks nor each other."""
    from matplotlib.transforms import Bbox

    from neuroledger.report.plots.style import INK

    marks = ax.transData.transform(table[["cost", "score"]].to_numpy(dtype=float))
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in marks]
    for row in table.to_dict("records"):
        label = ax.annotate(
            row["model"],
            (row["cost"], row["score"]),
            xytext=(0, 0),
            textcoords="offset points",
            color=INK,
            fontsize=9,
        )
        for x, y, align in _places():
            label.set(ha=align, position=(x, y))
            box = label.get_window_extent()
            inside = ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(label.get_window_extent())


def _places() -> list[tuple[float, float, str]]:
    """Return places of a label around its mark, in points: nearest first, to the right, to the left, above and below."""
    return [
        (side * GAP * 1.5, step * 11.0 + offset, "left" if side > 0 else "right")
        for step in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5)
        for side, offset in ((1, GAP), (-1, GAP))
    ]


def _number(cost: Cost) -> tuple[float | None, str]:
    if isinstance(cost, Score | StoredScore):
        return (cost.value if cost.status == "scored" else None), cost.unit or ""
    return float(cost), ""
