"""Score and cost of models, also of different families, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from neuroledger.engine.record import Record, read_all
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["front", "pareto", "pareto_figure"]

Cost = Score | Mapping[str, Any] | float


def pareto(
    benchmark: str,
    cost: str,
    *,
    records: Iterable[Record] | None = None,
    costs: Mapping[str, Cost] | None = None,
    catalog: Catalog | None = None,
) -> pd.DataFrame:
    """Return models with their score on ``benchmark``, their ``cost``, and whether they are on the Pareto front.

    Parameters
    ----------
    benchmark
        Id of a benchmark of any family.
    cost
        Id of a cost metric. Its value is taken from ``costs`` (model id to number or Score), from the model's record on
        the same benchmark, or from its record on another benchmark.
    records
        Default: all records of the repository.

    Returns
    -------
    pd.DataFrame
        model, score, low, high, cost, unit, counted_on, front; cheapest first. Failed and partial costs are
        excluded, because a partial cost is too low.

    Raises
    ------
    RequestError
        The benchmark or metric does not exist, or no model has both a score and a cost.
    """
    catalog = catalog or open_catalog()
    headline = catalog.benchmark(benchmark).all_metrics[0]
    records = list(read_all(catalog.root / "results" / "records") if records is None else records)
    measured: dict[str, tuple[float, str, str]] = {}
    for record in sorted(records, key=lambda record: (record.benchmark != benchmark, record.benchmark)):
        value, unit = _number(record.scores.get(cost))
        if value is not None and record.status != "failed":
            measured.setdefault(record.model, (value, unit, record.benchmark))
    for model, stated_cost in (costs or {}).items():
        value, unit = _number(stated_cost)
        if value is not None:
            measured[model] = (value, unit, "given")
    rows: list[dict[str, Any]] = [
        {
            "model": record.model,
            "score": record.score["value"],
            "low": record.score.get("low"),
            "high": record.score.get("high"),
            **dict(zip(("cost", "unit", "counted_on"), measured[record.model], strict=True)),
        }
        for record in records
        if record.benchmark == benchmark and record.score is not None and record.model in measured
        if record.score.get("value") is not None
    ]
    if not rows:
        if not costs:  # costs passed as an argument may have any name
            catalog.metric(cost)
        metric = headline if isinstance(headline, str) else headline.name
        raise RequestError(
            f"no model has both a score on {benchmark!r} ({metric}) and {cost!r}: score models on a benchmark that "
            "lists this cost, or pass `costs`"
        )
    table = pd.DataFrame(rows).sort_values(["cost", "model"], ignore_index=True)
    lower = next(r.score.get("direction") for r in records if r.benchmark == benchmark and r.score) == "lower"
    table["front"] = front(table["score"].tolist(), table["cost"].tolist(), lower=lower)
    table.attrs = {"benchmark": benchmark, "cost": cost}
    return table


def front(scores: list[float], costs: list[float], *, lower: bool = False) -> list[bool]:
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


def pareto_figure(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the table of :func:`pareto`: cost on a logarithmic axis, intervals as bars, the front as a line.

    If a cost is 0, the axis is linear below the smallest positive cost.
    """
    # Imported here, because the figures import `front` from this module.
    from neuroledger.report.plots.style import ACCENT, INK, SOFT, axes

    ax = ax or axes(width=6, height=4.2)
    for number, row in enumerate(table.sort_values("cost").to_dict("records")):
        colour = ACCENT if row["front"] else SOFT
        if pd.notna(row["low"]) and pd.notna(row["high"]):
            ax.plot([row["cost"]] * 2, [row["low"], row["high"]], color=colour, linewidth=1)
        ax.scatter([row["cost"]], [row["score"]], s=36, color=colour, zorder=3)
        ax.annotate(
            row["model"],
            (row["cost"], row["score"]),
            xytext=(6, 5 if number % 2 else -13),  # labels of neighbours do not overlap
            textcoords="offset points",
            color=INK,
            fontsize=9,
        )
    best = table[table["front"]]
    ax.plot(best["cost"], best["score"], color=ACCENT, linewidth=1.2, zorder=2)
    positive = table["cost"][table["cost"] > 0]
    if len(positive) == len(table):
        ax.set_xscale("log")
    elif len(positive):
        ax.set_xscale("symlog", linthresh=float(positive.min()))
    ax.margins(x=0.2, y=0.08)
    units = ", ".join(sorted(set(table["unit"]) - {""}))
    ax.set_xlabel(
        f"{table.attrs.get('cost', 'cost')} ({units})" if units else table.attrs.get("cost", "cost")
    )
    ax.set_ylabel(str(table.attrs.get("benchmark", "score")))
    return ax


def _number(cost: Cost | None) -> tuple[float | None, str]:
    if cost is None:
        return None, ""
    if isinstance(cost, Score):
        return (cost.value if cost.status == "scored" else None), cost.unit or ""
    if isinstance(cost, Mapping):
        value = cost.get("value") if cost.get("status", "scored") == "scored" else None
        return value, str(cost.get("unit") or "")
    return float(cost), ""
