"""The leaderboard as plain data, and as text, CSV, JSON, Markdown, LaTeX and metrics files of DVC."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from neuroledger.engine.records.evidence import SELF_REPORTED, Evidence, Origin
from neuroledger.spec.suites import Group
from neuroledger.store.files import write_json, write_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cell",
    "Column",
    "FORMATS",
    "Leaderboard",
    "Role",
    "Row",
    "Status",
    "amount",
    "as_csv",
    "as_json",
    "as_latex",
    "as_markdown",
    "as_text",
    "leaderboard_text",
    "number",
    "write_tracked",
]

Status = Literal[
    "scored", "partial", "failed", "stale", "edited", "missing", "unavailable"
]
Role = Literal["model", "positive", "negative"]


@dataclass(frozen=True)
class Cell:
    """One model on one benchmark.

    ``top`` marks a score that no model is clearly better than; ``covers`` says which variation the interval covers.
    ``evidence`` says who stands for the numbers.
    """

    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    raw: float | None = None
    reason: str = ""
    top: bool = False
    covers: str = ""
    evidence: Evidence = SELF_REPORTED

    @property
    def half_width(self) -> float | None:
        """Half of the width of the 95 % interval, or None."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Column:
    """One benchmark of the board.

    ``floor`` is the highest score of a negative control, ``ceiling`` the value that normalises the raw score;
    ``counts`` says whether the benchmark contributes to the score of the suite.
    """

    id: str
    title: str
    parent: str
    dataset: str
    weight: float
    scale: str
    unit: str | None
    direction: str
    normalise: str
    counts: bool
    simulated: bool
    private: bool
    unavailable: str
    floor: float | None
    ceiling: float | None

    @property
    def short(self) -> str:
        """The id without the leading name of the data set."""
        return self.id.removeprefix(self.dataset).lstrip(".-") or self.id


@dataclass(frozen=True)
class Row:
    """One model on all benchmarks, with the mean of each group of the suite's hierarchy.

    ``rank`` is the first and last rank that is compatible with simultaneous paired comparisons of all models.
    """

    model: str
    title: str
    role: Role
    simulated: bool
    cells: tuple[Cell, ...]
    groups: tuple[Cell, ...]
    score: Cell
    rank: tuple[int, int] | None

    @property
    def place(self) -> str:
        """The rank as text: ``1``, ``1–3`` for a tie, empty if not ranked."""
        if self.rank is None:
            return ""
        first, last = self.rank
        if first == last:
            return str(first)
        return f"{first}–{last}"


@dataclass(frozen=True)
class Leaderboard:
    """Models in order of their score, then unranked models, then controls."""

    suite: str
    version: int
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per model: rank, score with interval, mean of each group, and score on each benchmark."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "rank": row.place,
                    "model": row.model,
                    "role": row.role,
                    "score": row.score.value,
                    "low": row.score.low,
                    "high": row.score.high,
                    **{
                        group.name: cell.value
                        for group, cell in zip(self.groups, row.groups, strict=True)
                    },
                    **{
                        column.id: cell.value
                        for column, cell in zip(self.columns, row.cells, strict=True)
                    },
                }
                for row in self.rows
            ]
        )

    def __str__(self) -> str:
        return leaderboard_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(
            index=False,
            na_rep="–",
            float_format=lambda value: f"{value:.3f}",
            escape=True,
        )


FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet computes instead of showing it."""
STATUS_TEXTS: Final = {"missing": "–", "unavailable": "n/a"}
WIDE: Final = 1e4


def number(value: float | None, digits: int = 3, *, counts: bool = True) -> str:
    """Format a value: fixed decimals for scores, thousands separators for large values, four digits for costs."""
    if value is None:
        return "–"
    if abs(value) >= WIDE:
        return f"{value:,.0f}"
    text = f"{value:.{digits}f}" if counts else f"{value:.4g}"
    if float(text) == 0:
        return text.lstrip("-")
    return text


PREFIXES: Final = {
    -15: "f",
    -12: "p",
    -9: "n",
    -6: "µ",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
}


def amount(value: float | None, unit: str | None, *, counts: bool = True) -> str:
    """Format a value of a metric: joules and seconds with a prefix of the SI (``14.72 nJ/sample``), else a number."""
    if value is None or unit is None or unit.partition("/")[0] not in ("J", "s"):
        return number(value, counts=counts)
    if value == 0:
        power = 0
    else:
        power = 3 * math.floor(math.log10(abs(value)) / 3)
    power = min(max(power, min(PREFIXES)), max(PREFIXES))
    return f"{value / 10.0**power:.4g} {PREFIXES[power]}{unit}"


def leaderboard_text(board: Leaderboard, width: int | None = None) -> str:
    """Return the board as text: one numbered column per benchmark, with a legend below.

    Benchmarks that do not fit into ``width`` characters (default: the terminal) go into further tables.
    """
    width = width or shutil.get_terminal_size((160, 24)).columns
    names = [group.name for group in board.groups]
    numbers = [f"[{i}]" for i in range(1, len(board.columns) + 1)]
    head = ["rank", "model", "score", *names, *numbers]
    ranked, unranked, controls = _by_standing(board)
    blocks = [[_line(row, board) for row in rows] for rows in (ranked, unranked)]
    blocks.append([_line(row, board) for row in controls] + _limits(board))
    table = [head, *(line for block in blocks for line in block)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [f"{board.title} · suite {board.suite}, version {board.version}", ""]
    for columns in _tables(widths, width):
        rule = "─" * (sum(widths[i] for i in columns) + 2 * (len(columns) - 1))
        lines.append(_joined(head, widths, columns))
        for block in blocks:
            if block:
                lines += [rule, *(_joined(line, widths, columns) for line in block)]
        lines.append("")
    return "\n".join([*lines, *_legend(board)])


def _by_standing(board: Leaderboard) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the models with a rank, those without, and the controls."""
    models = [row for row in board.rows if row.role == "model"]
    ranked = [row for row in models if row.rank is not None]
    unranked = [row for row in models if row.rank is None]
    return ranked, unranked, [row for row in board.rows if row.role != "model"]


def _tables(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each table: rank and model in each, the score in the first."""
    tables = [[0, 1, 2]]
    for i in range(3, len(widths)):
        columns = [*tables[-1], i]
        if sum(widths[j] for j in columns) + 2 * (len(columns) - 1) > width and i > 3:
            tables.append([0, 1, i])
        else:
            tables[-1].append(i)
    return tables


def _joined(line: Sequence[str], widths: Sequence[int], columns: Sequence[int]) -> str:
    cells = [
        line[i].ljust(widths[i]) if i < 2 else line[i].rjust(widths[i]) for i in columns
    ]
    return "  ".join(cells).rstrip()


def _line(row: Row, board: Leaderboard) -> list[str]:
    if row.role == "model":
        name = row.model
    else:
        name = f"{row.model} ({row.role} control)"
    values = [
        _value(cell, column)
        for cell, column in zip(row.cells, board.columns, strict=True)
    ]
    return [row.place, name, _interval(row.score), *map(_mean, row.groups), *values]


def _mean(cell: Cell) -> str:
    if cell.value is not None:
        return number(cell.value)
    return STATUS_TEXTS.get(cell.status, cell.status)


def _limits(board: Leaderboard) -> list[list[str]]:
    floors = [number(column.floor, counts=column.counts) for column in board.columns]
    ceilings = [number(column.ceiling) for column in board.columns]
    blank = [""] * (1 + len(board.groups))
    return [
        ["", "floor: best negative control", *blank, *floors],
        ["", "ceiling, as measured", *blank, *ceilings],
    ]


def _interval(cell: Cell) -> str:
    if cell.value is None:
        return STATUS_TEXTS.get(cell.status, cell.status)
    if cell.low is None:
        return number(cell.value)
    return f"{number(cell.value)} ±{number(cell.half_width)}"


def _value(cell: Cell, column: Column) -> str:
    if cell.value is None or cell.status != "scored":
        return STATUS_TEXTS.get(cell.status, cell.status)
    return f"{'*' if cell.top else ''}{number(cell.value, counts=column.counts)}"


def _legend(board: Leaderboard) -> list[str]:
    """Return what the columns are, how to read the ranks, and why values are missing."""
    lines = []
    for i, column in enumerate(board.columns, 1):
        lines.append(f"[{i}] {column.id}: {describe(column)}")
    lines += _groups(board)
    lines.append(
        "* no model is clearly better. Ranks hold jointly for all models (95 %), from differences paired over shared items."
    )
    cells = [cell for row in board.rows for cell in row.cells]
    scored = [cell for cell in cells if cell.status == "scored"]
    signed = sum(cell.evidence.origin is Origin.SIGNED for cell in scored)
    lines.append(
        f"{signed} of {len(scored)} scores are recomputed and signed; the others are self-reported."
    )
    _, unranked, _ = _by_standing(board)
    lines += [f"{row.model}: not ranked, {row.score.reason}" for row in unranked]
    return [*lines, *_failures(board), *_absences(board)]


def _groups(board: Leaderboard) -> Iterator[str]:
    """Yield of what each group is the mean: groups inside it, and benchmarks by number."""
    for group in board.groups:
        inside = [other.name for other in board.groups if other.part_of == group.name]
        for i, column in enumerate(board.columns, 1):
            if column.parent == group.name and column.counts:
                inside.append(f"[{i}]")
        yield f"{group.name}: mean of {', '.join(inside)}"


def _failures(board: Leaderboard) -> Iterator[str]:
    """Yield why values are not compared."""
    for row in board.rows:
        for column, cell in zip(board.columns, row.cells, strict=True):
            if cell.status in {"failed", "partial", "stale", "edited"}:
                yield f"{row.model} on {column.id}: {cell.status}: {cell.reason}"


def _absences(board: Leaderboard) -> Iterator[str]:
    """Yield why benchmarks are unavailable."""
    for column in board.columns:
        if column.unavailable:
            yield f"{column.id}: unavailable: {column.unavailable}"


def describe(column: Column) -> str:
    """Return a description of the numbers of a column."""
    text = column.scale.replace("_", " ")
    text += {"ceiling": " after the ceiling", "floor": " above the dummy"}.get(
        column.normalise, ""
    )
    text += "" if column.direction == "higher" else ", lower is better"
    text += "" if column.counts else ", not part of the score"
    if column.simulated:
        return f"{text} (simulated data)"
    return text


def as_csv(board: Leaderboard) -> str:
    """Return the board as comma-separated values with full precision; no name is a formula of a spreadsheet."""
    frame = board.to_frame()
    names = {name: f"'{name}" for name in frame.columns if name.startswith(FORMULA)}
    text: str = frame.rename(columns=names).to_csv(index=False, lineterminator="\n")
    return text


def as_json(board: Leaderboard) -> str:
    """Return the whole board as JSON with sorted keys."""
    text = json.dumps(
        board,
        default=vars,
        indent=2,
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
    )
    return f"{text}\n"


def _names(board: Leaderboard) -> list[str]:
    return [
        *[group.name for group in board.groups],
        *[column.id for column in board.columns],
    ]


def as_markdown(board: Leaderboard) -> str:
    """Return the board as a Markdown table, for a README or a pull request."""
    head = ["rank", "model", "score", *_names(board)]
    lines = [head, ["---"] * len(head), *[_line(row, board) for row in board.rows]]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
            for line in lines
        )
        + "\n"
    )


def as_latex(board: Leaderboard) -> str:
    """Return the board as a ``booktabs`` table; the caption states the suite and its version."""
    head = ["Rank", "Model", "Score", *_names(board)]
    body = [
        " & ".join(_escaped(cell) for cell in _line(row, board)) + r" \\"
        for row in board.rows
    ]
    caption = _escaped(f"{board.title} (suite {board.suite}, version {board.version})")
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}",
            r"\toprule",
            " & ".join(_escaped(cell) for cell in head) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    special = {c: rf"\{c}" for c in "&%$#_{}"} | {
        "±": r"$\pm$",
        "–": "--",
        "~": r"\textasciitilde{}",
    }
    special["^"] = r"\textasciicircum{}"  # TeX reads ^^5c as a backslash
    return "".join(special.get(c, c) for c in text.replace("\\", "/"))


FORMATS: Final[dict[str, Callable[[Leaderboard], str]]] = {
    "text": leaderboard_text,
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}


def as_text(kind: str, boards: Sequence[Leaderboard]) -> str:
    """Return several boards in one of :data:`FORMATS`; JSON is a list."""
    texts = [FORMATS[kind](board).rstrip("\n") for board in boards]
    if kind == "json":
        return _list_of(texts)
    return "\n\n".join(texts) + "\n"


def _list_of(texts: Sequence[str]) -> str:
    """Return JSON texts as a list in JSON."""
    return "[\n" + ",\n".join(text.rstrip("\n") for text in texts) + "\n]\n"


def write_tracked(
    root: Path, boards: Sequence[Leaderboard], texts: Sequence[str]
) -> None:
    """Write ``results/metrics/<benchmark>.json`` (model: score) and ``results/leaderboard.json``.

    Files of benchmarks that are no longer in the suite are removed.

    Parameters
    ----------
    texts
        Each board as JSON.
    """
    folder = root / "results" / "metrics"
    written = set()
    for board in boards:
        for i, column in enumerate(board.columns):
            values = {row.model: row.cells[i].value for row in board.rows}
            path = folder / f"{column.id}.json"
            write_json(
                path,
                {model: value for model, value in values.items() if value is not None},
            )
            written.add(path)
    for path in set(folder.glob("*.json")) - written:
        path.unlink()
    write_text(root / "results" / "leaderboard.json", _list_of(texts))
