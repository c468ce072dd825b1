"""Figures of a leaderboard: bars, controls, heat map, trade-off, ranks, agreement and differences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING

import numpy as np

from neuroledger.engine.compare import Comparison
from neuroledger.errors import RequestError
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe, number
from neuroledger.report.pages import axis as axis_of
from neuroledger.report.pareto import front
from neuroledger.report.plots.style import (
    ACCENT,
    INK,
    LIGHT,
    PALETTE,
    SOFT,
    axes,
    finish,
    legend,
)
from neuroledger.report.table import leaderboard

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from neuroledger.data.arrays import Floats, Places

__all__ = [
    "agreement",
    "bars",
    "controls",
    "differences",
    "heat_map",
    "ranks",
    "tradeoff",
]

STARS = (0.05, 0.01, 0.001)


def _given(board: object) -> Leaderboard | None:
    """Return the board that a caller gave, or None if none was given.

    Raises
    ------
    RequestError
        It is something else, such as scores of ``nl.evaluate``, which may be empty; no other board is drawn in its place.
    """
    if board is None or isinstance(board, Leaderboard):
        return board
    empty = isinstance(board, Sized) and not len(board)
    kind = type(board).__name__
    raise RequestError(
        f"{'an empty ' if empty else ''}{kind} is not a board: pass a board of nl.leaderboard(), or nothing for that of the "
        "recorded scores"
    )


def bars(
    benchmark: str, board: Leaderboard | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the score of every model on one benchmark with its 95 % interval, and the floor and ceiling.

    Controls are grey, the floor is dotted, the ceiling is dashed. A star marks models that no other is clearly better than.

    Raises
    ------
    RequestError
        The benchmark is not on the board.

    Examples
    --------
    >>> import neuroledger as nl
    >>> ax = nl.plot.bars("Kriegeskorte2008.IT-rdm")
    >>> ax.get_xlabel()
    'similarity after the ceiling'
    """
    board = _given(board) or leaderboard(benchmarks=[benchmark])
    i, column = _column(board, benchmark)
    rows = [row for row in board.rows if row.cells[i].value is not None]
    rows.sort(
        key=lambda row: row.cells[i].value or 0.0, reverse=column.direction == "lower"
    )
    ax = ax or axes(height=1.2 + 0.34 * max(1, len(rows)))
    for y, row in enumerate(rows):
        _interval(ax, y, row.cells[i], SOFT if row.role != "model" else ACCENT)
        if row.cells[i].top and row.role == "model":
            if row.cells[i].high is not None:
                end = row.cells[i].high
            else:
                end = row.cells[i].value
            ax.annotate(
                "*",
                (float(end or 0.0), y),
                xytext=(5, -5),
                textcoords="offset points",
                color=INK,
            )
    _limits(ax, column)
    ax.set_yticks(range(len(rows)), list(map(_label, rows)))
    span = axis_of([row.cells[i] for row in rows], [column])
    ax.set_xlim(span.low, span.high)
    ax.set_xlabel(describe(column))
    ax.set_title(column.title, loc="left")
    legend(ax)
    return finish(ax, {row.model: row.cells[i].value for row in rows})


def controls(
    benchmark: str, board: Leaderboard | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the control models of one benchmark: negative ones at the floor, positive ones at the ceiling.

    Raises
    ------
    RequestError
        The benchmark is not on the board, or no control was scored on it.

    Examples
    --------
    >>> import neuroledger as nl
    >>> ax = nl.plot.controls("Kriegeskorte2008.IT-rdm")
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['noise (negative)']
    """
    board = _given(board) or leaderboard(benchmarks=[benchmark])
    i, column = _column(board, benchmark)
    rows = [
        row
        for row in board.rows
        if row.role != "model" and row.cells[i].value is not None
    ]
    if not rows:
        raise RequestError(
            f"no control has a score on {benchmark!r}; run `neuroledger run --benchmark {benchmark}`"
        )
    ax = ax or axes(height=1.2 + 0.4 * len(rows))
    for y, row in enumerate(rows):
        _interval(
            ax, y, row.cells[i], PALETTE[2] if row.role == "positive" else PALETTE[1]
        )
    _limits(ax, column)
    ax.set_yticks(range(len(rows)), [f"{row.model} ({row.role})" for row in rows])
    ax.set_xlabel(describe(column))
    legend(ax)
    return finish(ax, {row.model: row.cells[i].value for row in rows})


def heat_map(board: Leaderboard | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw a heat map of models by benchmarks: best or tied scores bold, failed ones hatched, missing ones blank.

    Examples
    --------
    >>> import neuroledger as nl
    >>> board = nl.leaderboard(benchmarks=["Kriegeskorte2008.IT-rdm", "Kriegeskorte2008.monkeyIT-rdm"])
    >>> ax = nl.plot.heat_map(board)
    >>> len(ax.get_yticklabels()) > 10
    True
    """
    board = _given(board) or leaderboard()
    rows = [row for row in board.rows if row.role == "model"]
    values = _values(rows, board.columns)
    ax = ax or axes(
        width=2.6 + 0.86 * len(board.columns), height=1.9 + 0.36 * max(1, len(rows))
    )
    ax.imshow(
        _shares(values, board.columns), cmap=_colours(), vmin=0, vmax=1, aspect="auto"
    )
    for y, row in enumerate(rows):
        for x, cell in enumerate(row.cells):
            _square(ax, x, y, cell)
    ax.set_xticks(
        range(len(board.columns)),
        [c.id for c in board.columns],
        rotation=40,
        ha="right",
    )
    ax.set_yticks(range(len(rows)), list(map(_label, rows)))
    ax.tick_params(length=0)
    ax.set_title(
        f"{board.title} (suite {board.suite}, version {board.version})", loc="left"
    )
    ids = [column.id for column in board.columns]
    data = {
        row.model: dict(zip(ids, (cell.value for cell in row.cells), strict=True))
        for row in rows
    }
    return finish(ax, data, spines=False)


def tradeoff(
    score: str, cost: str, board: Leaderboard | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the scores on one benchmark against another, ``cost`` on a logarithmic axis; a line joins the Pareto front.

    Raises
    ------
    RequestError
        A benchmark is not on the board, or no model was scored on both.

    Examples
    --------
    >>> import neuroledger as nl
    >>> ax = nl.plot.tradeoff("Kriegeskorte2008.IT-rdm", "Kriegeskorte2008.monkeyIT-rdm")
    >>> ax.get_xscale()
    'log'
    """
    board = _given(board) or leaderboard(benchmarks=[score, cost])
    i, column = _column(board, score)
    j, price = _column(board, cost)
    points: dict[str, tuple[float, float]] = {}
    for row in board.rows:
        x = row.cells[j].value
        y = row.cells[i].value
        if row.role == "model" and x is not None and y is not None:
            points[row.model] = (x, y)
    if not points:
        raise RequestError(f"no model has scores on both {score!r} and {cost!r}")
    ax = ax or axes(width=6, height=4.2)
    for model, (x, y) in points.items():
        ax.scatter([x], [y], s=36, color=ACCENT, zorder=3)
        ax.annotate(
            model,
            (x, y),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )
    costs = [x for x, _ in points.values()]
    scores = [y for _, y in points.values()]
    on_front = front(scores, costs, lower=column.direction == "lower")
    best = sorted(itertools.compress(points.values(), on_front))
    xs = [x for x, _ in best]
    ys = [y for _, y in best]
    ax.plot(xs, ys, color=LIGHT, linewidth=1.4, zorder=2, label="Pareto front")
    if min(costs) > 0:
        ax.set_xscale("log")
    ax.set_xlabel(f"{price.title} ({describe(price)})")
    ax.set_ylabel(describe(column))
    legend(ax)
    return finish(ax, points)


def ranks(board: Leaderboard | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the interval of ranks of each ranked model: the order of overlapping models is not determined.

    Raises
    ------
    RequestError
        No model of the board is ranked.

    Examples
    --------
    >>> import neuroledger as nl
    >>> ax = nl.plot.ranks(nl.leaderboard(suite="core"))
    >>> ax.get_xlabel()
    'rank'
    """
    board = _given(board) or leaderboard()
    rows = [row for row in board.rows if row.rank is not None]
    if not rows:
        raise RequestError(
            f"no model of suite {board.suite!r} is ranked; run `neuroledger run --suite {board.suite}`"
        )
    ax = ax or axes(height=1.2 + 0.34 * len(rows))
    for y, row in enumerate(reversed(rows)):
        first, last = row.rank or (0, 0)
        ax.plot(
            [first, last],
            [y, y],
            color=ACCENT,
            alpha=0.4,
            linewidth=6,
            solid_capstyle="round",
        )
        ax.plot([(first + last) / 2], [y], marker="o", markersize=6.5, color=ACCENT)
    ax.set_yticks(range(len(rows)), [row.model for row in reversed(rows)])
    ax.set_xticks(range(1, len(rows) + 1))
    ax.invert_xaxis()
    ax.set_xlabel("rank")
    ax.set_title(
        f"{board.title} (suite {board.suite}, version {board.version})", loc="left"
    )
    return finish(ax, {row.model: row.rank for row in rows})


def agreement(board: Leaderboard | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw Spearman's correlations of the scores of every two benchmarks over their shared models.

    Benchmarks are ordered by similarity; a pair with fewer than three shared models is blank. Lower-is-better scores
    change their sign, so that 1 always means the same order of models.

    Raises
    ------
    RequestError
        Fewer than two benchmarks have scores.

    Examples
    --------
    >>> import neuroledger as nl
    >>> board = nl.leaderboard(benchmarks=["Kriegeskorte2008.IT-rdm", "Kriegeskorte2008.monkeyIT-rdm"])
    >>> ax = nl.plot.agreement(board)
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['Kriegeskorte2008.IT-rdm', 'Kriegeskorte2008.monkeyIT-rdm']
    """
    board = _given(board) or leaderboard()
    rows = [row for row in board.rows if row.role == "model"]
    signs = [1.0 if column.direction == "higher" else -1.0 for column in board.columns]
    values = _values(rows, board.columns) * np.array(signs)
    counts = np.isfinite(values).sum(axis=0)
    used = [i for i, count in enumerate(counts) if count >= 3]
    if len(used) < 2:
        raise RequestError(
            "agreement needs two benchmarks with three scored models each"
        )
    r = _rank_correlations(values[:, used])
    order = _similar_together(r)
    r = r[np.ix_(order, order)]
    names = [board.columns[used[i]].id for i in order]
    ax = ax or axes(width=3.4 + 0.55 * len(names), height=2.6 + 0.5 * len(names))
    ax.imshow(r, cmap="PuOr_r", vmin=-1, vmax=1)
    _write_values(ax, r)
    ax.set_xticks(range(len(names)), names, rotation=40, ha="right")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    ax.set_title(
        "Do the benchmarks rank models in the same order? (Spearman)", loc="left"
    )
    return finish(ax, {"benchmarks": names, "r": r.tolist()}, spines=False)


def _rank_correlations(values: Floats) -> Floats:
    """Return Spearman's correlations of columns over their shared rows; NaN for fewer than three, or equal values."""
    count = values.shape[1]
    r = np.eye(count)
    for a in range(count):
        for b in range(a):
            r[a, b] = r[b, a] = _rank_correlation(values[:, a], values[:, b])
    return r


def _rank_correlation(first: Floats, second: Floats) -> float:
    from scipy.stats import spearmanr

    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 3:
        return float("nan")
    if np.ptp(first[both]) == 0 or np.ptp(second[both]) == 0:
        return float("nan")
    return float(spearmanr(first[both], second[both]).statistic)


def _similar_together(r: Floats) -> Places:
    """Return an order in which columns of high correlation are neighbours."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = np.where(np.isfinite(r), 1 - r, 1.0)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "average")
    return leaves_list(tree)


def _write_values(ax: Axes, r: Floats) -> None:
    """Write each known correlation into its cell."""
    for y, line in enumerate(r):
        for x, value in enumerate(line):
            if not np.isfinite(value):
                continue
            ax.text(
                x,
                y,
                number(float(value), 2),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if abs(value) > 0.7 else INK,
            )


def differences(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw the paired difference on each benchmark with its 95 % interval; corrected p: * < .05, ** < .01, *** < .001.

    Raises
    ------
    RequestError
        The models share no scored benchmark.

    Examples
    --------
    >>> import neuroledger as nl
    >>> found = nl.compare("efficientnet_lite0", "gabor", benchmark="Kriegeskorte2008.monkeyIT-rdm")
    >>> ax = nl.plot.differences(found)
    >>> ax.get_xlabel()
    'score of efficientnet_lite0 minus score of gabor'
    """
    every = (*comparison.differences, comparison.overall)
    shared = [item for item in every if item.value is not None]
    if not shared:
        raise RequestError(
            f"{comparison.a} and {comparison.b} share no scored benchmark"
        )
    ax = ax or axes(height=1.3 + 0.34 * len(shared))
    for y, item in enumerate(reversed(shared)):
        value = float(item.value or 0.0)
        p = item.p_corrected
        if p is None or p >= STARS[0]:
            colour = SOFT
        else:
            colour = PALETTE[0] if value > 0 else PALETTE[1]
        _interval(ax, y, Cell("scored", value, item.low, item.high), colour)
        reached = 0 if p is None else sum(p < level for level in STARS)
        end = value if item.high is None else item.high
        ax.annotate(
            "*" * reached,
            (end, y),
            xytext=(5, -5),
            textcoords="offset points",
        )
    ax.axvline(0.0, color=SOFT, linewidth=1, linestyle=":")
    ax.set_yticks(range(len(shared)), [item.benchmark for item in reversed(shared)])
    ax.set_xlabel(f"score of {comparison.a} minus score of {comparison.b}")
    return finish(ax, {item.benchmark: item.value for item in shared})


def _values(rows: Sequence[Row], columns: Sequence[Column]) -> Floats:
    values = [
        [np.nan if cell.value is None else cell.value for cell in row.cells]
        for row in rows
    ]
    return np.array(values, dtype=float).reshape(len(rows), len(columns))


def _interval(ax: Axes, y: float, cell: Cell, colour: str) -> None:
    if cell.low is not None and cell.high is not None:
        ax.plot(
            [cell.low, cell.high],
            [y, y],
            color=colour,
            alpha=0.4,
            linewidth=5,
            solid_capstyle="round",
        )
    ax.plot([float(cell.value or 0.0)], [y], marker="o", markersize=6.5, color=colour)


def _limits(ax: Axes, column: Column) -> None:
    if column.normalise in {"ceiling", "floor"}:
        ax.axvline(1.0, color=INK, linewidth=1, linestyle="--", label="ceiling")
    if column.floor is not None:
        ax.axvline(column.floor, color=SOFT, linewidth=1, linestyle=":", label="floor")


def _label(row: Row) -> str:
    if row.place:
        return f"{row.place}  {row.model}"
    return row.model


def _square(ax: Axes, x: int, y: int, cell: Cell) -> None:
    if cell.value is not None:
        weight = "bold" if cell.top else "normal"
        ax.text(
            x,
            y,
            number(cell.value, 2),
            ha="center",
            va="center",
            fontsize=9,
            color=INK,
            weight=weight,
        )
    elif cell.status == "failed":
        from matplotlib.patches import Rectangle

        ax.add_patch(
            Rectangle(
                (x - 0.5, y - 0.5),
                1,
                1,
                fill=False,
                hatch="////",
                edgecolor=PALETTE[1],
                linewidth=0,
            )
        )


def _shares(values: Floats, columns: Sequence[Column]) -> Floats:
    """Return colours from 0 to 1: the value on commensurable scales, its position between worst and best on others."""
    shares = values.copy()
    for i, column in enumerate(columns):
        if not column.counts and np.isfinite(values[:, i]).any():
            low = np.nanmin(values[:, i])
            high = np.nanmax(values[:, i])
            if high > low:
                position = (values[:, i] - low) / (high - low)
            else:
                position = np.where(np.isfinite(values[:, i]), 0.5, np.nan)
            shares[:, i] = 1 - position if column.direction == "lower" else position
    return np.clip(shares, 0, 1)


def _colours() -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "neuroledger", ["#ffffff", "#cfe9e7", "#79c7c2"]
    )


def _column(board: Leaderboard, benchmark: str) -> tuple[int, Column]:
    for i, column in enumerate(board.columns):
        if column.id == benchmark:
            return i, column
    known = ", ".join(column.id for column in board.columns)
    raise RequestError(
        f"benchmark {benchmark!r} is not in suite {board.suite!r}; it contains {known}"
    )
