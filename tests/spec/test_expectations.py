"""An expectation that could not fail, or that contradicts itself, is refused; defaults are the strict ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from neuroledger.errors import SpecError
from neuroledger.spec.document import MAX_BYTES, parse
from neuroledger.spec.expectations import Expectations

SMALLEST: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "stimuli",
        {"check": "unique_together", "columns": ["a", "b"]},
        {"columns": ["a"]},
    ),
    ("stimuli", {"check": "in_set", "column": "a", "values": [1]}, {"values": []}),
    ("stimuli", {"check": "equal_set", "column": "a", "values": [1]}, {"values": []}),
    ("stimuli", {"check": "matches", "column": "a", "pattern": "x"}, {"pattern": ""}),
    ("stimuli", {"check": "not_null", "column": "a"}, {"column": ""}),
    ("stimuli", {"check": "distinct", "column": "a", "count": 1}, {"count": 0}),
    ("stimuli", {"check": "row_count", "count": 0}, {"count": -1}),
    ("stimuli", {"check": "columns", "columns": ["a"]}, {"columns": []}),
    ("stimuli", {"check": "files_decode", "size": [1, 1]}, {"size": [0, 1]}),
    (
        "stimuli",
        {"check": "between", "column": "a", "low": 1, "high": 1},
        {"high": 0.5},
    ),
    ("assembly", {"check": "dims", "dims": ["a"]}, {"dims": []}),
    ("assembly", {"check": "shape", "sizes": {"a": [2, 2]}}, {"sizes": {"a": [3, 2]}}),
    ("assembly", {"check": "shape", "sizes": {"a": 0}}, {"sizes": {}}),
    ("assembly", {"check": "coords", "coords": {"a": ["b"]}}, {"coords": {}}),
    ("assembly", {"check": "values_finite", "missing": 0}, {"missing": -1}),
    ("assembly", {"check": "values_between", "low": 1, "high": 1}, {"low": 2}),
    ("assembly", {"check": "sampling_rate", "hz": 0.1}, {"hz": 0}),
    ("assembly", {"check": "channels", "names": ["a"]}, {"names": []}),
    ("assembly", {"check": "repetitions", "count": 1}, {"count": 0}),
    ("assembly", {"check": "repetitions", "low": 2, "high": 2}, {"high": 1}),
    ("assembly", {"check": "dtype", "dtype": "uint16"}, {"dtype": "float16"}),
]


@pytest.mark.parametrize(
    ("part", "least", "change"), SMALLEST, ids=[one[1]["check"] for one in SMALLEST]
)
def test_the_least_that_can_be_declared_is_accepted_and_less_is_not(
    part: str, least: dict[str, Any], change: dict[str, Any]
) -> None:
    Expectations.model_validate({part: [least]})
    with pytest.raises(ValidationError):
        Expectations.model_validate({part: [{**least, **change}]})


def test_defaults_of_expectations_are_strict() -> None:
    said = {"stimuli": [{"check": "columns", "columns": ["a"]}, {"check": "files_match_sha256"}],
            "assembly": [{"check": "aligned"}, {"check": "values_vary"}, {"check": "channels", "names": ["a"]},
                         {"check": "values_finite"}]}  # fmt: skip
    found = Expectations.model_validate(said)
    columns, files = found.stimuli
    aligned, vary, channels, finite = found.assembly
    assert (columns.severity, columns.why, columns.only, files.column, files.where) == (
        "error",
        "",
        False,
        "sha256",
        {},
    )
    assert (aligned.complete, vary.over, channels.coordinate, finite.missing) == (
        False,
        "neuroid",
        "neuroid_id",
        0,
    )
    assert Expectations().stimuli == Expectations().assembly == ()


def test_a_file_may_be_as_large_as_its_limit_but_not_larger() -> None:
    assert MAX_BYTES == 262_144
    text = "a: " + "é" * ((MAX_BYTES - 4) // 2) + "\n"
    assert (
        len(text.encode()) == MAX_BYTES
        and len(parse(text, "x").data["a"]) == (MAX_BYTES - 4) // 2
    )
    with pytest.raises(SpecError, match="file is larger than 256 KiB"):
        parse(f"{text}\n", "x")
