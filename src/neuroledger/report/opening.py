"""The first sentence of a board in words: the best model of its first benchmark, and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neuroledger.engine.record import Record
from neuroledger.engine.records.summary import Known, Summary, known
from neuroledger.report.board import Cell, Column, Leaderboard, Row, describe
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec

__all__ = ["Opening", "opening", "short", "untrained_twins"]

MAX_NAMES: Final = 2  # models that are named as not clearly worse
DECODING: Final = "decoding"  # the group of benchmarks whose models read signals
# Scales of a ceiling by which a score becomes the share of the explainable variance; other ratios are no such share.
EXPLAINED: Final = frozenset({"reliability", "explained_variance"})


@dataclass(frozen=True)
class Opening:
    """The name of the best model, the text that follows it, the model's id, and the benchmark.

    ``model`` is empty if no model has a score.
    """

    name: str
    rest: str
    model: str
    benchmark: str
    title: str

    @property
    def text(self) -> str:
        """The whole text."""
        return f"{self.name}{self.rest}"


def opening(
    catalog: Catalog,
    board: Leaderboard,
    records: Sequence[Record] | Sequence[Known],
) -> Opening:
    """Return what the first benchmark of a board shows, in words.

    The sentence names the best model that is not a control, with its value and interval, and its untrained twin or, if its
    spec declares none, the best negative control. It says if no model is clearly best, if the value has no interval, if
    runs are partial, and if the data are simulated.
    """
    i = _first(board)
    if i is None:
        return Opening("", "No model has a score on this board yet.", "", "", "")
    column = board.columns[i]
    spec = catalog.benchmark(board.columns[i].id)
    models = [
        row
        for row in board.rows
        if row.role == "model" and row.cells[i].value is not None
    ]
    scored = [row for row in models if row.cells[i].status == "scored"]
    if column.direction == "higher" or column.normalise == "floor":
        sign = 1
    else:
        sign = -1
    best = max(scored or models, key=lambda row: sign * (row.cells[i].value or 0.0))
    name, rest = _named(best)
    summaries = [record.summary for record in known(records)]
    kept = {each.model: each for each in summaries if each.benchmark == column.id}
    says = _achievement(spec, column, best.cells[i], kept.get(best.model), len(scored))
    twin = catalog.model(best.model).untrained
    rest = f"{rest} {says}{_compared(board, i, twin)}."
    rest += _doubts(best, i, scored, twin) + _partial(best, i, models)
    if column.simulated:
        rest += " The data are simulated."
    return Opening(name, rest, best.model, column.id, column.title)


def untrained_twins(catalog: Catalog, models: Sequence[str]) -> frozenset[str]:
    """Return the ids of the networks that a model declares as its untrained twin."""
    return frozenset(
        twin for id in models if (twin := catalog.model(id).untrained) is not None
    )


def short(value: float | None) -> str:
    """Return a score with two decimals and without the zero before the point: ``.36``, ``−.02``, ``1.10``."""
    if value is None:
        return "–"
    text = f"{abs(value):.2f}"
    sign = "−" if value < 0 and float(text) != 0 else ""
    return sign + (text[1:] if text.startswith("0") else text)


def _first(board: Leaderboard) -> int | None:
    """Return the index of the first benchmark with a score of a model."""
    models = [row for row in board.rows if row.role == "model"]
    for i in range(len(board.columns)):
        if any(row.cells[i].value is not None for row in models):
            return i
    return None


def _named(row: Row) -> tuple[str, str]:
    """Return the name of a model in a sentence: its title up to a colon; with the comma that closes a first comma."""
    name = row.title.partition(": ")[0].strip() or row.model
    return name, "," if ", " in name else ""


def _value(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return short(cell.value)
    return f"{short(cell.value)} [{short(cell.low)}, {short(cell.high)}]"


def _achievement(
    spec: BenchmarkSpec, column: Column, cell: Cell, record: Summary | None, models: int
) -> str:
    """Return verb, value and reference of a score, in the words of its benchmark."""
    value = _value(cell)
    scale = column.scale.replace("_", " ")
    place = _region(spec)
    within = f" in {place}" if place else ""
    if column.normalise == "ceiling" and column.scale == "consistency":
        return f"errs on the same images as people to {value} of the consistency of people with each other"
    if column.normalise == "ceiling" and column.direction == "higher":
        if record is not None and record.ceiling_scale in EXPLAINED and place:
            return f"explains {value} of what can be explained{within}"
        return (
            f"reaches {value} of the {scale} that the noise of the data allows{within}"
        )
    if column.normalise == "floor" and column.unit is None and spec.parent == DECODING:
        return f"decodes {value} above chance{within}, where 0 is the dummy, which ignores the data, and 1 is perfect"
    if column.normalise == "floor" and column.unit is None:
        return f"scores {value}, where 0 is the dummy, which ignores the data, and 1 is perfect"
    return f"has the best value of {models} models, {value} ({describe(column)})"


def _region(spec: BenchmarkSpec) -> str:
    """Return the recorded region, after the species if the benchmark selects one."""
    fields: Mapping[str, object] = spec.paradigm.model_extra or {}
    region = fields.get("region") or spec.select.get("region")
    species = spec.select.get("species")
    words = [word for word in (species, region) if isinstance(word, str)]
    if isinstance(region, str):
        return " ".join(words)
    return ""


def _compared(board: Leaderboard, i: int, twin: str | None) -> str:
    """Return the score of the untrained twin, or of the best negative control."""
    if twin is not None:
        row = next((row for row in board.rows if row.model == twin), None)
        if row is None or row.cells[i].value is None:
            return "; its untrained twin has no score"
        if row.cells[i].status == "scored":
            partial = ""
        else:
            partial = f" ({row.cells[i].status})"
        return f"; untrained, {_value(row.cells[i])}{partial}"
    floor = board.columns[i].floor
    if floor is None:
        return "; no negative control has a score"
    return f"; the best negative control, {short(floor)}"


def _doubts(best: Row, i: int, scored: Sequence[Row], twin: str | None) -> str:
    """Return whether the first place is clear, and why there is no interval."""
    cell = best.cells[i]
    if cell.low is None:
        reason = f" ({cell.reason})" if cell.reason else ""
        return f" This value has no interval{reason}, so no model is clearly better than another."
    others = [row for row in scored if row is not best]
    # A twin that is not clearly worse is named first: it is what the sentence compares with.
    rivals = sorted(
        (row for row in others if row.cells[i].top), key=lambda row: row.model != twin
    )
    if not others:
        return " No other model has a score."
    if not rivals:
        return ""
    return f" It is not clearly better than {_first_of(rivals, i)}."


def _first_of(rows: Sequence[Row], i: int) -> str:
    """Return the first rows with their values, and how many others there are."""
    names = [
        f"{_named(row)[0]} ({short(row.cells[i].value)})" for row in rows[:MAX_NAMES]
    ]
    more = len(rows) - MAX_NAMES
    if more > 0:
        names += [f"{more} other{'s' * (more > 1)}"]
    *first, last = names
    if first:
        return f"{', '.join(first)} and {last}"
    return last


def _partial(best: Row, i: int, models: Sequence[Row]) -> str:
    """Return which runs are partial; only complete ones are compared."""
    if best.cells[i].status != "scored":
        return f" The run is {best.cells[i].status}{f': {r}' if (r := best.cells[i].reason) else ''}."
    names = [_named(row)[0] for row in models if row.cells[i].status != "scored"]
    if names:
        return f" Not compared, because the run is partial: {', '.join(names)}."
    return ""
