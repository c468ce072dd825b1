"""The part of the front page above the table: a sentence, forest plots, layer curves, stimuli; and the README's picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from markupsafe import Markup

from neuroledger.engine.compare import Comparison, pairwise
from neuroledger.engine.record import Record
from neuroledger.errors import MetricError
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.report.forest import Line, alone, forest
from neuroledger.report.opening import Opening, opening, untrained_twins
from neuroledger.report.table import board_of
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SuiteSpec
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score, normalise
from neuroledger.stats.stored_score import StoredScore

__all__ = [
    "MAX_COMPARED",
    "Front",
    "Panel",
    "front",
    "front_picture",
    "packed_pairs",
    "panels",
]

MAX_LINES: Final = 30  # models in a forest plot
MAX_PANELS: Final = 12  # forest plots of single benchmarks
MAX_COMPARED: Final = 40  # models whose differences are computed


class Panel(NamedTuple):
    """A forest plot: what it shows, its page (empty for the mean), the drawing for wide and narrow screens, and a note."""

    title: str
    benchmark: str
    wide: Markup
    narrow: Markup
    note: str


@dataclass(frozen=True)
class Front:
    """What a board shows above its table; ``further`` counts scored benchmarks without a panel."""

    opening: Opening
    panels: tuple[Panel, ...]
    further: int


def front(catalog: Catalog, board: Leaderboard, records: Sequence[Record]) -> Front:
    """Return the sentence and the forest plots of a board."""
    drawn = list(panels(catalog, board, records))
    of_benchmarks = sum(bool(panel.benchmark) for panel in drawn)
    return Front(
        opening(catalog, board, records),
        tuple(drawn),
        len(_scored_columns(board)) - of_benchmarks,
    )


def panels(
    catalog: Catalog, board: Leaderboard, records: Sequence[Record]
) -> Iterator[Panel]:
    """Yield the forest plot of the suite mean, if models have one, then that of each scored benchmark."""
    grey = untrained_twins(catalog, [row.model for row in board.rows])
    if _has_means(board):
        yield _of_means(board, grey)
    for i in _scored_columns(board)[:MAX_PANELS]:
        column = board.columns[i]
        cells = sorted(
            ((row, row.cells[i]) for row in board.rows),
            key=lambda line: _order(column, line[1]),
        )
        names = ("ceiling" if column.normalise == "ceiling" else "perfect", "floor")
        is_floor_below = column.direction == "higher" or column.normalise == "floor"
        floor = column.floor if is_floor_below else None
        axis = _Axis(describe(column), _band(column, records), floor, names)
        yield _panel(column.title, column.id, cells, grey, axis)


def _has_means(board: Leaderboard) -> bool:
    """Whether models have a mean over several benchmarks."""
    counted = [column for column in board.columns if column.counts]
    models = [row for row in board.rows if row.role == "model"]
    return len(counted) > 1 and any(row.score.value is not None for row in models)


def _of_means(board: Leaderboard, grey: frozenset[str]) -> Panel:
    """Return the panel of the means over the benchmarks of the suite."""
    counted = [column for column in board.columns if column.counts]
    controls = [row.score.value for row in board.rows if row.role == "negative"]
    floor = max((value for value in controls if value is not None), default=None)
    normalised = {column.normalise for column in counted}
    band = None if "none" in normalised else (1.0, 1.0)
    best = "ceiling" if normalised == {"ceiling"} else "best possible"
    words = f"mean over the {len(counted)} benchmarks of the suite"
    cells = [(row, row.score) for row in board.rows]
    axis = _Axis(words, band, floor, (best, "floor"))
    return _panel(words, "", cells, grey, axis)


def _scored_columns(board: Leaderboard) -> list[int]:
    """Return the indices of the benchmarks with a score of a model."""
    return [
        i
        for i in range(len(board.columns))
        if any(row.role == "model" and _is_drawn(row.cells[i]) for row in board.rows)
    ]


def _is_drawn(cell: Cell) -> bool:
    return cell.status == "scored" and cell.value is not None


def _order(column: Column, cell: Cell) -> float:
    if column.direction == "higher" or column.normalise == "floor":
        sign = -1
    else:
        sign = 1
    return sign * (cell.value or 0.0)


class _Axis(NamedTuple):
    """The axis of a panel: its label, the interval of the ceiling, the floor, and what these two are called."""

    label: str
    band: tuple[float, float] | None
    floor: float | None
    names: tuple[str, str]


def _panel(
    title: str,
    benchmark: str,
    cells: Sequence[tuple[Row, Cell]],
    grey: frozenset[str],
    axis: _Axis,
) -> Panel:
    """Return one panel: models in the given order, then controls; what is not drawn is counted in the note."""
    known = [(row, cell) for row, cell in cells if _is_drawn(cell)]
    models = [line for line in known if line[0].role == "model"]
    controls = [line for line in known if line[0].role != "model"]
    lines = []
    for row, cell in [*models[:MAX_LINES], *controls[:MAX_LINES]]:
        is_grey = row.role != "model" or row.model in grey
        value = cell.value or 0.0
        lines.append(Line(row.model, value, cell.low, cell.high, is_grey))
    without = sum(row.role == "model" for row, cell in cells if not _is_drawn(cell))
    notes = [_key(lines, axis.band, axis.floor, axis.names[0])]
    if len(models) > MAX_LINES:
        notes.append(f"The first {MAX_LINES} of {len(models)} models.")
    if without == 1:
        notes.append("1 model without this value is not drawn.")
    elif without:
        notes.append(f"{without} models without this value are not drawn.")
    wide, narrow = (
        forest(
            lines,
            axis.label,
            ceiling=axis.band,
            floor=axis.floor,
            names=axis.names,
            narrow=narrow,
        )
        for narrow in (False, True)
    )
    return Panel(title, benchmark, wide, narrow, " ".join(notes))


def _key(
    lines: Sequence[Line],
    band: tuple[float, float] | None,
    floor: float | None,
    ceiling: str,
) -> str:
    """Return what the marks of a panel mean; ``ceiling`` is the name of the band."""
    key = ["Dots: scores; bars: 95 % intervals"]
    if floor is not None:
        key.append("dotted line: the best negative control")
    if band is not None:
        mark = "line" if band[0] == band[1] else "band"
        key.append(f"grey {mark}: {ceiling}")
    if any(line.grey for line in lines):
        key.append("grey names: controls and untrained networks")
    return f"{'; '.join(key)}."


def _band(column: Column, records: Sequence[Record]) -> tuple[float, float] | None:
    """Return the interval of the ceiling on the normalised scale; both ends are 1 if it has none.

    A score that equals the ceiling is 1. The ends are what the same raw score would be if the ceiling were at the ends of
    its interval, inverted: the higher the ceiling, the less a raw score is of it.
    """
    if column.normalise == "none":
        return None
    for record in records:
        is_scored = record.benchmark == column.id and record.status == "scored"
        if column.normalise == "ceiling" and is_scored and record.score is not None:
            ends = _ends(record.score)
            if ends is not None:
                return ends
    return 1.0, 1.0


def _ends(score: StoredScore) -> tuple[float, float] | None:
    """Return the ends of the ceiling, or None if its scales, its interval or another formula do not give them."""
    ceiling = score.ceiling
    if not score.raw or ceiling is None or ceiling.interval is None:
        return None
    (low, high), value = ceiling.interval, ceiling.value
    if not 0 < low <= value <= high:
        return None
    raw = Score(score.raw, scale=score.scale)
    try:
        least, middle, most = (
            normalise(raw, Score(end, scale=ceiling.scale)).value
            for end in (low, value, high)
        )
    except MetricError:
        return None
    if not middle or abs(middle - (score.value or 0.0)) > 1e-6 * abs(middle):
        return None
    return middle / least, middle / most


def packed_pairs(
    catalog: Catalog,
    suite: SuiteSpec,
    board: Leaderboard,
    records: Sequence[Record],
    withheld: Mapping[str, str],
) -> dict[str, object]:
    """Return the paired differences of all models of a board as short lists, in the order of the pairs of ``models``.

    A difference is [value, low, high, p, reason]: p is corrected by Holm over the benchmarks, reason an index into
    ``texts``. ``left_out`` counts models beyond :data:`MAX_COMPARED`; ``withheld`` is the result of
    :func:`neuroledger.engine.records.calibrations.refuted`.
    """
    scored = [
        row.model for row in board.rows if any(_is_drawn(cell) for cell in row.cells)
    ]
    models = scored[:MAX_COMPARED]
    texts: dict[str, int] = {}

    def pack(found: Difference) -> list[object] | None:
        if found.value is None:
            return None
        numbers = [
            _short(each)
            for each in (found.value, found.low, found.high, found.p_corrected)
        ]
        return [*numbers, texts.setdefault(found.reason, len(texts))]

    def both(comparison: Comparison) -> dict[str, object]:
        packed = [pack(found) for found in comparison.differences]
        return {"each": packed, "mean": pack(comparison.overall)}

    compared = pairwise(catalog, suite, records, models, withheld)
    pairs = [both(comparison) for comparison in compared]
    return {
        "models": models,
        "pairs": pairs,
        "texts": list(texts),
        "left_out": len(scored) - len(models),
    }


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.5g}")


def front_picture(
    catalog: Catalog, suite: str, records: Sequence[Record]
) -> tuple[str, str]:
    """Return the sentence and the first forest plot of a suite as an SVG file, for a README.

    The same records and specs give the same bytes.

    Raises
    ------
    RequestError
        The suite does not exist.
    """
    board = board_of(catalog, catalog.suite(suite), records)
    shown = front(catalog, board, records)
    return shown.opening.text, alone(shown.panels[0].wide) if shown.panels else ""
