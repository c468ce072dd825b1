"""Names of files are compared with patterns whose placeholders say who and what a file is of."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from neuroledger.data.file_names import (
    Pattern,
    expression,
    fields_of,
    matching,
    tail,
    written,
)


@pytest.mark.parametrize(
    ("pattern", "name", "fields"),
    [
        ("{subject}_{run}.fif", "s1_2.fif", {"subject": "s1", "run": "2"}),
        ("{subject}_{run}.fif", "deep/s1_2.fif", {"subject": "s1", "run": "2"}),
        ("{subject}_{run}.fif", "s1_2xfif", None),
        ("{subject}/{subject}_{run}.fif", "s1/s1_2.fif", {"subject": "s1", "run": "2"}),
        ("{subject}/{subject}_{run}.fif", "s1/s2_2.fif", None),
        ("{subject}/a.fif", "a.fif", None),
        ("{subject:2}{run}.fif", "ab12.fif", {"subject": "ab", "run": "12"}),
        ("{subject:2}.fif", "abc.fif", None),
        ("*_{run}?.fif", "x_12.fif", {"run": "1"}),
        ("*_{run}.fif", "x/y_1.fif", {"run": "1"}),
        ("a+b.fif", "a+b.fif", {}),
        ("a.fif", "xa.fif", None),
    ],
)
def test_placeholders_match_their_part_of_a_name(
    pattern: str, name: str, fields: dict[str, str] | None
) -> None:
    assert fields_of(pattern, name) == fields


def test_known_placeholders_are_replaced_by_plain_text() -> None:
    assert written("{subject}_{run}.fif", {"subject": "s.1"}, "x/s.1_7.fif")
    assert not written("{subject}_{run}.fif", {"subject": "s.1"}, "sx1_7.fif")
    assert written("{subject}/{subject}.fif", {"subject": "a"}, "a/a.fif")
    assert not written("{subject}/{subject}.fif", {"subject": "a"}, "a/b.fif")


def test_expressions_of_values_and_repeated_names_can_be_chosen() -> None:
    digits = expression("{a}{b}", values=(("a", r"\d"),))
    assert digits.fullmatch("1x") and not digits.fullmatch("xx")
    assert expression("{a}", value="x+").fullmatch("xx") and not expression(
        "{a}", value="x+"
    ).fullmatch("y")
    free = expression("{a}-{a}", again=False)
    assert list((free.fullmatch("1-2") or pytest.fail()).groupdict().values()) == [
        "1",
        "2",
    ]
    assert not expression("{a}-{a}").fullmatch("1-2") and expression(
        "{a}-{a}"
    ).fullmatch("1-1")
    assert expression("a", flags=re.IGNORECASE).fullmatch("A") and not expression(
        "a"
    ).fullmatch("A")
    assert not expression("*").fullmatch("a/b") and not expression("?").fullmatch("/")


@pytest.mark.parametrize(
    ("pattern", "name", "parts"),
    [
        ("a", "x/y/z", ("x/y", "z")),
        ("a/b", "x/y/z", ("x", "y/z")),
        ("a/b/c/d", "x/y/z", ("", "x/y/z")),
        ("a", "z", ("", "z")),
    ],
)
def test_the_end_of_a_name_has_as_many_folders_as_the_pattern(
    pattern: str, name: str, parts: tuple[str, str]
) -> None:
    assert tail(pattern, name) == parts


def test_a_star_of_a_list_means_folders_too_and_the_order_stays() -> None:
    names = ["b.zip", "x/y/a.zip", "a.zipx", "ab.zip"]
    assert matching("*.zip", names) == ["b.zip", "x/y/a.zip", "ab.zip"]
    assert (
        matching("?.zip", names) == ["b.zip"]
        and matching("c*", names) == []
        and matching("x?y*", names) == ["x/y/a.zip"]
    )


@pytest.mark.parametrize(
    "pattern", ["a.fif", "{subject}_{run:2}*?.fif", "{session_label}"]
)
def test_well_formed_placeholders_are_accepted(pattern: str) -> None:
    assert TypeAdapter(Pattern).validate_python(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", ["{Subject}", "{subject", "subject}", "{subject:x}", "{}", "{a1}"]
)
def test_malformed_placeholders_are_refused(pattern: str) -> None:
    with pytest.raises(
        ValidationError,
        match=r"write a placeholder as \{name\} or \{name:2\}, with the name in",
    ):
        TypeAdapter(Pattern).validate_python(pattern)
