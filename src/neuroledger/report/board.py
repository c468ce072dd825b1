"""The leaderboard as plain data: cells, columns, rows, and the board that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from neuroledger.spec.hierarchy import Group

__all__ = ["Cell", "Column", "Leaderboard", "Role", "Row", "Status"]

Status = Literal["scored", "partial", "failed", "stale", "edited", "missing", "unavailable"]
Role = Literal["model", "positive", "negative"]


@dataclass(frozen=True)
class Cell:
    """One model on one benchmark; ``top`` if nothing is clearly better; ``covers`` says what the interval is about."""

    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    raw: float | None = None
    reason: str = ""
    top: bool = False
    covers: str = ""

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval; None where the value has none."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Column:
    """One benchmark of the board.

    ``floor`` is the highest score of a negative control, ``ceiling`` the value that the raw score is set against;
    ``counts`` says whether the benchmark enters the score of the suite.
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
        """The id without the name of the data set in front."""
        return self.id.removeprefix(self.dataset).lstrip(".-") or self.id


@dataclass(frozen=True)
class Row:
    """One model on all benchmarks, with the mean of each group of the suite's hierarchy.

    ``rank`` is the set of ranks that simultaneous paired comparisons with all others leave open.
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
        """The rank as text: ``1``, ``1–3`` for a tie, empty when not ranked."""
        if self.rank is None:
            return ""
        first, last = self.rank
        return str(first) if first == last else f"{first}–{last}"


@dataclass(frozen=True)
class Leaderboard:
    """Models in order of their score, then those that cannot be ranked, then the controls."""

    suite: str
    version: int
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per model: rank, score with interval, the mean of each group, and the score on each benchmark."""
        return pd.DataFrame(
            [
                {
                    "rank": row.place,
                    "model": row.model,
                    "role": row.role,
                    "score": row.score.value,
                    "low": row.score.low,
                    "high": row.score.high,
                    **{group.name: cell.value for group, cell in zip(self.groups, row.groups, strict=True)},
                    **{column.id: cell.value for column, cell in zip(self.columns, row.cells, strict=True)},
                }
                for row in self.rows
            ]
        )

    def __str__(self) -> str:
        from neuroledger.report.text import leaderboard_text

        return leaderboard_text(self)

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(
            index=False, na_rep="–", float_format=lambda value: f"{value:.3f}", escape=True
        )
