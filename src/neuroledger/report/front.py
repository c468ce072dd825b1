"""The part of the front page above the table: a sentence, forest plots, layer curves, stimuli; and the README's picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple, TypedDict

from markupsafe import Markup

from neuroledger.engine.compare import Comparison, pairwise
from neuroledger.engine.record import Record
from neuroledger.engine.records.summary import Known, Summary, known
from neuroledger.errors import MetricError
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.report.forest import Line, alone, forest
from neuroledger.report.opening import Opening, opening, untrained_twins
from neuroledger.report.table import board_of
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SuiteSpec
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score, normalise
from neuroledger.store.derived import derived_at, key_of

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


Records = Sequence[Record] | Sequence[Known]


def front(catalog: Catalog, board: Leaderboard, records: Records) -> Front:
    """Return the sentence and the forest plots of a board."""
    drawn = list(panels(catalog, board, records))
    of_benchmarks = sum(bool(panel.benchmark) for panel in drawn)
    return Front(
        opening(catalog, board, records),
        tuple(drawn),
        len(_scored_columns(board)) - of_benchmarks,
    )


def panels(catalog: Catalog, board: Leaderboard, records: Records) -> Iterator[Panel]:
    """Yield the forest plot of the suite mean, if models have one, then that of each scored benchmark."""
    grey = untrained_twins(catalog, [row.model for row in board.rows])
    summaries = [record.summary for record in known(records)]
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
        axis = _Axis(describe(column), _band(column, summaries), floor, names)
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


def _band(column: Column, records: Sequence[Summary]) -> tuple[float, float] | None:
    """Return the interval of the ceiling on the normalised scale; both ends are 1 if it has none.

    A score that equals the ceiling is 1. The ends are what the same raw score would be if the ceiling were at the ends of
    its interval, inverted: the higher the ceiling, the less a raw score is of it.
    """
    if column.normalise == "none":
        return None
    for record in records:
        is_scored = record.benchmark == column.id and record.status == "scored"
        if column.normalise == "ceiling" and is_scored:
            ends = _ends(record)
            if ends is not None:
                return ends
    return 1.0, 1.0


def _ends(found: Summary) -> tuple[float, float] | None:
    """Return the ends of the ceiling, or None if its scales, its interval or another formula do not give them."""
    low, value, high = found.ceiling_low, found.ceiling, found.ceiling_high
    if not found.raw or low is None or value is None or high is None:
        return None
    if not 0 < low <= value <= high:
        return None
    raw = Score(found.raw, scale=found.scale)
    try:
        least, middle, most = (
            normalise(raw, Score(end, scale=found.ceiling_scale)).value
            for end in (low, value, high)
        )
    except MetricError:
        return None
    if not middle or abs(middle - (found.value or 0.0)) > 1e-6 * abs(middle):
        return None
    return middle / least, middle / most


def packed_pairs(
    catalog: Catalog,
    suite: SuiteSpec,
    board: Leaderboard,
    records: Records,
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
    held = known(records)
    keys = _keys_of_pairs(catalog, suite, held, models, withheld)
    is_stored = any(keys.values())
    derived = derived_at(catalog.root) if is_stored else None
    recalled = derived.recall(keys.values()) if derived else {}
    new = [pair for pair, key in keys.items() if key not in recalled]
    compared = pairwise(catalog, suite, held, models, withheld, pairs=new)
    found = {pair: _both(each) for pair, each in zip(new, compared, strict=True)}
    if derived:
        derived.remember({keys[pair]: each for pair, each in found.items()})
    texts: dict[str, int] = {}

    def pack(difference: Short | None) -> list[object] | None:
        if difference is None:
            return None
        *numbers, reason = difference
        return [*numbers, texts.setdefault(str(reason), len(texts))]

    pairs = []
    for pair, key in keys.items():
        both = found.get(pair) or recalled[key]
        each = [pack(difference) for difference in both["each"]]
        pairs.append({"each": each, "mean": pack(both["mean"])})
    return {
        "models": models,
        "pairs": pairs,
        "texts": list(texts),
        "left_out": len(scored) - len(models),
    }


Short = Sequence[float | str | None]
"""A difference: value, low, high, p corrected by Holm over the benchmarks, reason."""


class Both(TypedDict):
    """The differences of two models on each benchmark, and of their means."""

    each: list[Short | None]
    mean: Short | None


def _keys_of_pairs(
    catalog: Catalog,
    suite: SuiteSpec,
    records: Sequence[Known],
    models: Sequence[str],
    withheld: Mapping[str, str],
) -> dict[tuple[str, str], str]:
    """Return the key of the differences of each pair of models; empty of records in memory."""
    ids = [item.id for item in suite.benchmarks]
    specs = map(catalog.benchmark, ids)
    common = repr(
        (
            suite,
            [(spec.unavailable, spec.parent, withheld.get(spec.id)) for spec in specs],
        )
    )
    hashes: dict[str, dict[str, str]] = {model: {} for model in models}
    columns = set(ids)
    for record in records:
        if record.summary.model in hashes and record.summary.benchmark in columns:
            hashes[record.summary.model][record.summary.benchmark] = record.sha256
    stored = {
        model: "" if "" in own.values() else repr([own.get(id) for id in ids])
        for model, own in hashes.items()
    }
    return {
        (a, b): key_of("pair", common, a, b, stored[a], stored[b])
        if stored[a] and stored[b]
        else ""
        for a, b in combinations(models, 2)
    }


def _both(comparison: Comparison) -> Both:
    each = [_numbers(found) for found in comparison.differences]
    return {"each": each, "mean": _numbers(comparison.overall)}


def _numbers(found: Difference) -> Short | None:
    if found.value is None:
        return None
    numbers = (found.value, found.low, found.high, found.p_corrected)
    return [*map(_short, numbers), found.reason]


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
