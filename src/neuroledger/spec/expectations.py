"""The small vocabulary in which a data set says what must be true of it before anything is scored on it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from neuroledger.spec.base import Frozen, Sha256

__all__ = ["AssemblyExpectation", "Check", "Expectation", "Expectations", "RowCheck", "StimuliExpectation"]

Value = bool | int | float | str
"""A single value in YAML; `true`, `1`, `1.0` and `"1"` stay four different things."""

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
C = TypeVar("C", bound="Check")


class Check(Frozen):
    """What every expectation has: how grave a breach is, and why the expectation is there."""

    severity: Literal["error", "warning"] = Field(
        "error", description="A warning is reported but blocks nothing."
    )
    why: str = Field("", description="The reason, shown beside a breach.")


class RowCheck(Check):
    """An expectation about the rows of the stimulus table, or about the coordinates along one dimension."""

    where: dict[Name, Value | tuple[Value, ...]] = Field(
        default_factory=dict,
        description="Only rows where each column has this value (or one of these); no such row is a breach.",
    )


class ColumnCheck(RowCheck):
    """An expectation about one column of the stimulus table, or one coordinate of the assembly."""

    column: Name = Field(description="Column of the stimulus table, or coordinate of the assembly.")


class Unique(ColumnCheck):
    """No value occurs twice, none is missing."""

    check: Literal["unique"]


class UniqueTogether(RowCheck):
    """No combination of values occurs twice, none is missing."""

    check: Literal["unique_together"]
    columns: tuple[Name, ...] = Field(min_length=2)


class NotNull(ColumnCheck):
    """No value is missing: neither NaN, nor None, nor an empty text."""

    check: Literal["not_null"]


class InSet(ColumnCheck):
    """Every value is one of these; none is missing."""

    check: Literal["in_set"]
    values: tuple[Value, ...] = Field(min_length=1)


class EqualSet(ColumnCheck):
    """The values that occur are exactly these: no other, each at least once, none missing."""

    check: Literal["equal_set"]
    values: tuple[Value, ...] = Field(min_length=1)


class Between(ColumnCheck):
    """Every value lies between `low` and `high`, both included; none is missing."""

    check: Literal["between"]
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_bounds(self, self.low, self.high)


class Matches(ColumnCheck):
    """Every value, as a whole, matches the regular expression; none is missing."""

    check: Literal["matches"]
    pattern: str = Field(min_length=1, description="Anchored at both ends: the whole value must match.")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern


class Distinct(ColumnCheck):
    """So many different values occur; none is missing."""

    check: Literal["distinct"]
    count: Size


class RowCount(RowCheck):
    """So many rows, or presentations of an assembly: exactly `count`, or between `low` and `high`."""

    check: Literal["row_count"]
    count: Count | None = None
    low: Count | None = None
    high: Count | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_count(self, self.count, self.low, self.high)


class Columns(Check):
    """The table has these columns; with `only`, no others."""

    check: Literal["columns"]
    columns: tuple[Name, ...] = Field(min_length=1)
    only: bool = False


class FilesExist(RowCheck):
    """Every stimulus has a file that is there and not empty."""

    check: Literal["files_exist"]


class FilesDecode(RowCheck):
    """Every stimulus file decodes completely as an image, of this mode and size if they are given."""

    check: Literal["files_decode"]
    mode: str | None = Field(None, description="Pillow's mode: L, RGB, RGBA, …")
    size: tuple[Size, Size] | None = Field(None, description="Width and height in pixels.")


class FilesMatchSha256(ColumnCheck):
    """Every stimulus file has the SHA-256 that the table gives for it."""

    check: Literal["files_match_sha256"]
    column: Name = "sha256"


class Dims(Check):
    """The assembly has exactly these dimensions, in this order."""

    check: Literal["dims"]
    dims: tuple[Name, ...] = Field(min_length=1)


class Shape(Check):
    """The dimensions have these lengths: a number, or [lowest, highest]."""

    check: Literal["shape"]
    sizes: dict[Name, Count | tuple[Count, Count]] = Field(min_length=1)

    @field_validator("sizes")
    @classmethod
    def _ordered(cls, sizes: dict[str, int | tuple[int, int]]) -> dict[str, int | tuple[int, int]]:
        for dim, size in sizes.items():
            if isinstance(size, tuple) and size[0] > size[1]:
                raise ValueError(f"{dim}: the lowest length {size[0]} is above the highest {size[1]}")
        return sizes


class Coords(Check):
    """Each dimension carries these coordinates, without a missing value."""

    check: Literal["coords"]
    coords: dict[Name, tuple[Name, ...]] = Field(min_length=1)


class Dtype(Check):
    """The values are stored as this NumPy type."""

    check: Literal["dtype"]
    dtype: Literal[
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64", "str"
    ]


class ValuesFinite(Check):
    """No value is infinite, and exactly the declared number is missing (NaN, as in padding; else 0)."""

    check: Literal["values_finite"]
    missing: Count = Field(0, description="Declared number of NaN values, exactly.")


class ValuesBetween(Check):
    """Every value that is not missing lies between `low` and `high`, both included."""

    check: Literal["values_between"]
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_bounds(self, self.low, self.high)


class ValuesVary(Check):
    """No neuroid (or other site along `over`) gives the same value to every presentation."""

    check: Literal["values_vary"]
    over: Name = "neuroid"


class Content(Check):
    """The values and coordinates, after reading and all preprocessing, have this SHA-256 (`neuroledger show` tells it)."""

    check: Literal["content"]
    sha256: Sha256


class SamplingRate(Check):
    """Time bins start at even steps, so many to the second."""

    check: Literal["sampling_rate"]
    hz: float = Field(gt=0)


class Channels(Check):
    """The recording sites have exactly these names, in this order."""

    check: Literal["channels"]
    names: tuple[Name, ...] = Field(min_length=1)
    coordinate: Name = "neuroid_id"


class Units(Check):
    """The values are in this unit: attribute `units` of the assembly, or coordinate `units` of every site."""

    check: Literal["units"]
    units: Name


class Aligned(Check):
    """Every stimulus id of the assembly is in the stimulus table; with `complete`, also the reverse."""

    check: Literal["aligned"]
    complete: bool = False


class Repetitions(Check):
    """Every stimulus was presented so often: exactly `count` times, or between `low` and `high` times."""

    check: Literal["repetitions"]
    count: Size | None = None
    low: Size | None = None
    high: Size | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_count(self, self.count, self.low, self.high)


RowExpectation = Unique | UniqueTogether | NotNull | InSet | EqualSet | Between | Matches | Distinct
FileExpectation = FilesExist | FilesDecode | FilesMatchSha256
ValueExpectation = Dims | Shape | Coords | Dtype | ValuesFinite | ValuesBetween | ValuesVary | Content
RecordingExpectation = SamplingRate | Channels | Units | Aligned | Repetitions

StimuliExpectation = Annotated[
    RowExpectation | RowCount | Columns | FileExpectation, Field(discriminator="check")
]
AssemblyExpectation = Annotated[
    RowExpectation | RowCount | ValueExpectation | RecordingExpectation, Field(discriminator="check")
]
Expectation = RowExpectation | RowCount | Columns | FileExpectation | ValueExpectation | RecordingExpectation


class Expectations(Frozen):
    """Everything a data set promises: about its stimuli, and about its assembly."""

    stimuli: tuple[StimuliExpectation, ...] = ()
    assembly: tuple[AssemblyExpectation, ...] = ()


def _has_bounds(check: C, low: float | None, high: float | None) -> C:
    if low is None and high is None:
        raise ValueError("give `low`, `high` or both: without a bound nothing is checked")
    if low is not None and high is not None and low > high:
        raise ValueError(f"low ({low}) is above high ({high})")
    return check


def _has_count(check: C, count: int | None, low: int | None, high: int | None) -> C:
    if count is None:
        return _has_bounds(check, low, high)
    if low is not None or high is not None:
        raise ValueError("give either `count`, or `low` and `high`")
    return check
