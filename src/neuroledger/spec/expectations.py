"""The vocabulary of expectations: properties that a data set must have before anything is scored on it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from neuroledger.spec.base import Frozen, Sha256

__all__ = [
    "AssemblyExpectation",
    "Check",
    "Expectation",
    "Expectations",
    "RowCheck",
    "StimuliExpectation",
]

Value = bool | int | float | str
"""A single value in YAML; `true`, `1`, `1.0` and `"1"` are four different values."""

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
C = TypeVar("C", bound="Check")


class Check(Frozen):
    """Fields that all expectations share: the severity of a violation, and the reason for the expectation."""

    severity: Literal["error", "warning"] = Field(
        "error", description="A warning is reported but blocks nothing."
    )
    why: str = Field("", description="The reason, reported with a violation.")


class RowCheck(Check):
    """An expectation about the rows of the stimulus table, or about the coordinates along one dimension."""

    where: dict[Name, Value | tuple[Value, ...]] = Field(
        default_factory=dict,
        description="Only rows in which each column has this value (or one of these); it is an error if there are none.",
    )


class ColumnCheck(RowCheck):
    """An expectation about one column of the stimulus table, or one coordinate of the assembly."""

    column: Name = Field(
        description="Column of the stimulus table, or coordinate of the assembly."
    )


class Unique(ColumnCheck):
    """No value occurs twice or is missing."""

    check: Literal["unique"]


class UniqueTogether(RowCheck):
    """No combination of values occurs twice; no value is missing."""

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
    """The values are exactly these: each occurs at least once, no other value occurs, none is missing."""

    check: Literal["equal_set"]
    values: tuple[Value, ...] = Field(min_length=1)


class Between(ColumnCheck):
    """Every value is between `low` and `high`, inclusive; none is missing."""

    check: Literal["between"]
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_bounds(self, self.low, self.high)


class Matches(ColumnCheck):
    """Every value, as a whole, matches the regular expression; none is missing."""

    check: Literal["matches"]
    pattern: str = Field(
        min_length=1, description="Anchored at both ends: the whole value must match."
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern


class Distinct(ColumnCheck):
    """The column has `count` different values; none is missing."""

    check: Literal["distinct"]
    count: Size


class RowCount(RowCheck):
    """The number of rows, or of presentations of an assembly: exactly `count`, or between `low` and `high`."""

    check: Literal["row_count"]
    count: Count | None = None
    low: Count | None = None
    high: Count | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_count(self, self.count, self.low, self.high)


class Columns(Check):
    """The table has these columns, and no others if `only` is true."""

    check: Literal["columns"]
    columns: tuple[Name, ...] = Field(min_length=1)
    only: bool = False


class FilesExist(RowCheck):
    """Every stimulus has a file that exists and is not empty."""

    check: Literal["files_exist"]


class FilesDecode(RowCheck):
    """Every stimulus file decodes completely as an image, with this mode and size if given."""

    check: Literal["files_decode"]
    mode: str | None = Field(None, description="Pillow's mode: L, RGB, RGBA, …")
    size: tuple[Size, Size] | None = Field(
        None, description="Width and height in pixels."
    )


class FilesMatchSha256(ColumnCheck):
    """Every stimulus file has the SHA-256 that the table states."""

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
    def _ordered(
        cls, sizes: dict[str, int | tuple[int, int]]
    ) -> dict[str, int | tuple[int, int]]:
        for dim, size in sizes.items():
            if isinstance(size, tuple) and size[0] > size[1]:
                raise ValueError(
                    f"{dim}: the lowest length {size[0]} is above the highest {size[1]}"
                )
        return sizes


class Coords(Check):
    """Each dimension has these coordinates, without missing values."""

    check: Literal["coords"]
    coords: dict[Name, tuple[Name, ...]] = Field(min_length=1)


class Dtype(Check):
    """The values have this NumPy type."""

    check: Literal["dtype"]
    dtype: Literal[
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "float32",
        "float64",
        "str",
    ]


class ValuesFinite(Check):
    """No value is infinite, and exactly `missing` values are NaN (for example padding)."""

    check: Literal["values_finite"]
    missing: Count = Field(0, description="Exact number of NaN values.")


class ValuesBetween(Check):
    """Every value that is not missing is between `low` and `high`, inclusive."""

    check: Literal["values_between"]
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_bounds(self, self.low, self.high)


class ValuesVary(Check):
    """No neuroid (or other position along `over`) has the same value in all presentations."""

    check: Literal["values_vary"]
    over: Name = "neuroid"


class Content(Check):
    """The values and coordinates after reading and preprocessing have this SHA-256 (`neuroledger show` prints it)."""

    check: Literal["content"]
    sha256: Sha256


class SamplingRate(Check):
    """Time bins start at equal steps, with `hz` steps per second."""

    check: Literal["sampling_rate"]
    hz: float = Field(gt=0)


class Channels(Check):
    """The recording sites have exactly these names, in this order."""

    check: Literal["channels"]
    names: tuple[Name, ...] = Field(min_length=1)
    coordinate: Name = "neuroid_id"


class Units(Check):
    """The values have this unit: attribute `units` of the assembly, or coordinate `units` of every site."""

    check: Literal["units"]
    units: Name


class Aligned(Check):
    """Every stimulus id of the assembly is in the stimulus table; with `complete`, also the reverse."""

    check: Literal["aligned"]
    complete: bool = False


class Repetitions(Check):
    """Every stimulus was presented exactly `count` times, or between `low` and `high` times."""

    check: Literal["repetitions"]
    count: Size | None = None
    low: Size | None = None
    high: Size | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _has_count(self, self.count, self.low, self.high)


RowExpectation = (
    Unique | UniqueTogether | NotNull | InSet | EqualSet | Between | Matches | Distinct
)
FileExpectation = FilesExist | FilesDecode | FilesMatchSha256
ValueExpectation = (
    Dims | Shape | Coords | Dtype | ValuesFinite | ValuesBetween | ValuesVary | Content
)
RecordingExpectation = SamplingRate | Channels | Units | Aligned | Repetitions

StimuliExpectation = Annotated[
    RowExpectation | RowCount | Columns | FileExpectation, Field(discriminator="check")
]
AssemblyExpectation = Annotated[
    RowExpectation | RowCount | ValueExpectation | RecordingExpectation,
    Field(discriminator="check"),
]
Expectation = (
    RowExpectation
    | RowCount
    | Columns
    | FileExpectation
    | ValueExpectation
    | RecordingExpectation
)


class Expectations(Frozen):
    """All expectations of a data set, about its stimuli and about its assembly."""

    stimuli: tuple[StimuliExpectation, ...] = ()
    assembly: tuple[AssemblyExpectation, ...] = ()


def _has_bounds(check: C, low: float | None, high: float | None) -> C:
    if low is None and high is None:
        raise ValueError(
            "give `low`, `high` or both: without a bound nothing is checked"
        )
    if low is not None and high is not None and low > high:
        raise ValueError(f"low ({low}) is above high ({high})")
    return check


def _has_count(check: C, count: int | None, low: int | None, high: int | None) -> C:
    if count is None:
        return _has_bounds(check, low, high)
    if low is not None or high is not None:
        raise ValueError("give either `count`, or `low` and `high`")
    return check
