"""Questions to Great Expectations, each with the message for the case that the answer is no."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = [
    "Answer",
    "Question",
    "between",
    "decodes",
    "distinct",
    "each",
    "has_columns",
    "holds_all",
    "in_set",
    "not_null",
    "pairs",
    "row_count",
    "span",
    "states",
    "unique_together",
]

Quote = Literal["values", "rows", "both", "only"]
"""What a breach quotes: values, names of rows, both, or the only value, which then ends the message."""

EXAMPLES: Final = 5


@dataclass(frozen=True)
class Answer:
    """The answer of Great Expectations to one question.

    Attributes
    ----------
    success
        Whether the expectation is met.
    total, breaches
        Numbers of rows examined, and of rows that violate it.
    values, rows
        Some of the values that violate it, and the names of their rows; empty for private data.
    absent
        Expected values that do not occur; empty for private data.
    observed
        The observed count or columns, if the question is about the whole table.
    error
        Why the answer is void: Great Expectations failed internally, or had no rows to examine.
    """

    success: bool
    total: int | None = None
    breaches: int | None = None
    values: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    observed: Any = None
    error: str | None = None


@dataclass(frozen=True)
class Question:
    """An expectation of Great Expectations by name, its arguments, and a function that describes a breach."""

    type: str
    arguments: Mapping[str, Any]
    breach: Callable[[Answer], str] = field(compare=False, repr=False)


def not_null(column: str) -> Question:
    """No value of the column is missing; the other questions skip missing values."""
    return Question(
        "expect_column_values_to_not_be_null",
        {"column": column},
        lambda a: f"'{column}': {share(a)} values missing{named(a, 'rows')}",
    )


def each(
    column: str, verb: str, arguments: Mapping[str, object], breach: str
) -> Question:
    """Every value of the column meets the rule ``expect_column_values_<verb>``."""
    return Question(
        f"expect_column_values_{verb}",
        {"column": column, **arguments},
        lambda a: f"'{column}': {share(a)} values {breach}{named(a, 'values')}",
    )


def in_set(
    column: str,
    values: Iterable[object],
    breach: str | None = None,
    *,
    quote: Quote = "both",
) -> Question:
    """Every value of the column is one of ``values``."""
    allowed = list(values)
    words = breach or f"values of '{column}' not among {listed(allowed)}"
    return Question(
        "expect_column_values_to_be_in_set",
        {"column": column, "value_set": allowed},
        lambda a: f"{share(a)} {words}{named(a, quote)}",
    )


def states(column: str, value: object, breach: str) -> Question:
    """The column has ``value`` in every row; for tables that state one fact."""
    return Question(
        "expect_column_values_to_be_in_set",
        {"column": column, "value_set": [value]},
        lambda a: f"{breach} {listed(dict.fromkeys(a.values)) or 'something else'}",
    )


def holds_all(
    column: str, values: Iterable[object], breach: str | None = None
) -> Question:
    """Each of ``values`` occurs in the column."""
    words = breach or f"'{column}': declared but absent"
    return Question(
        "expect_column_distinct_values_to_contain_set",
        {"column": column, "value_set": list(values)},
        lambda a: f"{words}: {listed(a.absent) or a.breaches}",
    )


def between(
    column: str,
    low: float | None,
    high: float | None,
    breach: str | None = None,
    *,
    quote: Quote = "both",
) -> Question:
    """Every value of the column is between the bounds, inclusive."""
    words = breach or f"values of '{column}' not {span(low, high)}"
    return Question(
        "expect_column_values_to_be_between",
        {"column": column, "min_value": low, "max_value": high},
        lambda a: (
            f"{words} {listed(a.values) or 'something else'}"
            if quote == "only"
            else f"{share(a)} {words}{named(a, quote)}"
        ),
    )


def pairs(column: str, other: str, breach: str, *, quote: Quote = "both") -> Question:
    """Two columns are equal in every row."""
    return Question(
        "expect_column_pair_values_to_be_equal",
        {"column_A": column, "column_B": other, "ignore_row_if": "neither"},
        lambda a: f"{share(a)} {breach}{named(a, quote)}",
    )


def decodes(column: str) -> Question:
    """Every file decodes as an image; the column contains "decodes" or the reason."""
    return Question(
        "expect_column_values_to_be_in_set",
        {"column": column, "value_set": ["decodes"]},
        lambda a: (
            f"{share(a)} images not decodable{named(a, 'rows')}"
            + (f" ({a.values[0]})" if a.values else "")
        ),
    )


def unique_together(columns: Sequence[str]) -> Question:
    """No combination of values occurs twice."""
    return Question(
        "expect_compound_columns_to_be_unique",
        {"column_list": list(columns)},
        lambda a: (
            f"{share(a)} rows share their {' and '.join(columns)}{named(a, 'rows')}"
        ),
    )


def distinct(column: str, count: int) -> Question:
    """The column has exactly ``count`` different values."""
    return Question(
        "expect_column_unique_value_count_to_be_between",
        {"column": column, "min_value": count, "max_value": count},
        lambda a: f"'{column}': {a.observed} different values, {count} declared",
    )


def row_count(low: int | None, high: int | None) -> Question:
    """The number of rows is between the bounds, inclusive."""
    return Question(
        "expect_table_row_count_to_be_between",
        {"min_value": low, "max_value": high},
        lambda a: f"{a.observed} rows, {span(low, high)} declared",
    )


def has_columns(columns: Sequence[str], *, only: bool) -> Question:
    """The table has these columns, and no others if ``only`` is true."""

    def breach(answer: Answer) -> str:
        observed = list(answer.observed or ())
        absent = [name for name in columns if name not in observed]
        if only:
            surplus = [name for name in observed if name not in columns]
        else:
            surplus = []
        if absent:
            parts = [f"columns missing: {listed(absent)}"]
        else:
            parts = []
        if surplus:
            parts += [f"columns that were not declared: {listed(surplus)}"]
        return "; ".join(parts)

    return Question(
        "expect_table_columns_to_match_set",
        {"column_set": list(columns), "exact_match": only},
        breach,
    )


def share(answer: Answer) -> str:
    """The number of rows that break the rule, of all rows, in words."""
    if answer.breaches is None or answer.total is None:
        return "some"
    return f"{answer.breaches} of {answer.total}"


def named(answer: Answer, quote: Quote) -> str:
    """Some of the breaches, or nothing if they may not be quoted."""
    if quote == "both" and answer.rows:
        pairs = zip(answer.values, answer.rows, strict=False)
        examples = [
            value if value == row else f"{value} ({row})" for value, row in pairs
        ]
    else:
        examples = list(answer.rows if quote == "rows" else answer.values)
    if examples:
        return f": {listed(dict.fromkeys(examples))}"
    return ""


def listed(items: Iterable[object]) -> str:
    """The first few of ``items`` in one text, with an ellipsis if there are more."""
    texts = list(map(str, items))
    return ", ".join(texts[:EXAMPLES]) + (", …" if len(texts) > EXAMPLES else "")


def span(low: float | None, high: float | None) -> str:
    """The bounds in words."""
    if low is not None and high is not None:
        if low == high:
            return f"{low:g}"
        return f"{low:g} to {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return f"at most {high:g}"
