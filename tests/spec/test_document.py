"""Specs are plain data: strict YAML, with the position of every value."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.errors import SpecError
from neuroledger.spec.document import json_object, parse
from neuroledger.spec.load import spec_of


def problem_of(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text, "specs/x.yaml")
    assert len(caught.value.findings) == 1
    return str(caught.value)


def test_scalars_are_those_of_yaml_1_2() -> None:
    document = parse(
        "a: no\nb: 1e-3\nc: 12:30\nd: 010\ne: 2020-01-01\nf: null\ng: true\nh: -4\ni: .5\nj: 1_000\n",
        "x",
    )
    assert document.data == {
        "a": "no",
        "b": 0.001,
        "c": "12:30",
        "d": "010",
        "e": "2020-01-01",
        "f": None,
        "g": True,
        "h": -4,
        "i": 0.5,
        "j": "1_000",
    }


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: 2\na: 3", "specs/x.yaml:3:1", "duplicate key 'a' (first at line 1)"),
        ("a: " + "9" * 400, "specs/x.yaml:1:4", "an integer of 400 digits"),
        ("a: " + "9" * 9000, "specs/x.yaml:1:4", "an integer of 9000 digits"),
        ("a: !!python/name:os.system x", "specs/x.yaml:1:4", "tag"),
        ("a: !mine 3", "specs/x.yaml:1:4", "tag"),
        ("a: &anchor [1]\nb: *anchor", "specs/x.yaml:1:4", "anchor"),
        ("base: 1\n<<: {a: 1}", "specs/x.yaml:2:1", "merge key"),
        ("a:\n\tb: 1", "specs/x.yaml:2:1", "not valid YAML"),
        ("a: 1\n---\nb: 1", "specs/x.yaml:2:1", "another document"),
        ("", "specs/x.yaml:1:1", "empty"),
        ("a: [1, 2", "specs/x.yaml:1:4", "has no end"),
        ('a: "b\nc: 1\n', "specs/x.yaml:1:4", "has no end"),
        ("[a, b]: 1", "specs/x.yaml:1:1", "key must be plain text"),
        ("x: " + "[" * 100_000, "specs/x.yaml:1:", "nested deeper than 40"),
        ("x: " + "a" * 300_000, "specs/x.yaml:1:1", "larger than 256 KiB"),
    ],
)
def test_yaml_beyond_plain_data_is_refused_with_its_position(
    text: str, where: str, what: str
) -> None:
    message = problem_of(text)
    assert message.startswith(where)
    assert what in message


def test_tabs_are_explained() -> None:
    assert "use spaces, not tabs" in problem_of("a:\n\tb: 1")


def test_positions_point_at_values_and_keys() -> None:
    document = parse("a: 1\nlist:\n  - x\n  - {k: v}\n", "x")
    assert document.position(("list", 1, "k")) == (4, 9)
    assert document.position(("list",), key=True) == (2, 1)
    assert document.position(("list", 7, "nowhere")) == (3, 3)


@given(st.text(max_size=200))
def test_any_text_gives_data_or_one_placed_problem(text: str) -> None:
    try:
        parse(text, "x.yaml")
    except SpecError as error:
        assert error.findings[0].line >= 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> other\n",
            "x.yaml:2:1: conflict marker of git",
        ),
        ("a: 1\nb: 2\n>>>>>>> other\n", "x.yaml:3:1: conflict marker of git"),
        ("title: V4: the area\n", "in quotes"),
        ("a: 1\n---\nb: 2\n", "one file contains one spec"),
    ],
)
def test_yaml_errors_are_reported_in_plain_words(text: str, says: str) -> None:
    assert says in problem_of(text)


def test_lines_of_a_longer_text_are_no_conflict() -> None:
    assert parse("notes: |\n  =======\n  <<<<<<< so\n", "x").data == {
        "notes": "=======\n<<<<<<< so\n"
    }


def test_invalid_yaml_is_reported_with_its_line(repository: Path) -> None:
    """Changed at random, a spec is refused without a word of the libraries beneath, at a line that it has."""
    generator = random.Random(0)
    texts = {
        kind: (repository / "specs" / kind / f"{id}.yaml").read_text()
        for kind, id in (
            ("datasets", "Digits.simulated"),
            ("benchmarks", "Digits.simulated.IT-ridge"),
        )
    }
    wrong, refused = (
        re.compile(
            r"[Ii]nput (should|tag)|Field required|did not find|valid (dict|string|integer)"
        ),
        0,
    )
    values = [
        "7",
        "[1]",
        "{a: b}",
        "yes",
        "-3.5",
        "'x y'",
        "[unclosed",
        '"open',
        "null",
    ]
    for kind, text in texts.items():
        for _ in range(150):
            lines = text.splitlines()
            at = generator.randrange(1, len(lines))
            changed = re.sub(
                r": .*", lambda _: f": {generator.choice(values)}", lines[at], count=1
            )
            lines[at] = generator.choice(
                [changed, f"  {lines[at]}", "    - {check: nope}", "- x", "\tx: 1"]
            )
            try:
                spec_of(parse("\n".join(lines), "x.yaml"), kind)
            except SpecError as error:
                refused += 1
                for finding in error.findings:
                    assert not wrong.search(str(finding)), finding
                    assert 1 <= finding.line <= len(lines), finding
    assert refused > 150


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1' + "0" * 400 + "}", "401 digits"),
        ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "nested too deeply"),
        ("[1]", "not an object"),
        (b'{"a": "\xff"}', "utf-8"),
        (None, "Expecting value"),
    ],
)
def test_untrusted_json_is_an_object_or_one_value_error(
    text: str | bytes | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        json_object(text)
    assert json_object('{"a": -9223372036854775808, "b": 1e300}') == {
        "a": -(2**63),
        "b": 1e300,
    }


def test_what_must_be_written_out_is_said() -> None:
    assert problem_of("b: *a\n").endswith("hint: write the value out")
    assert problem_of("a: &a 1\n").endswith("hint: write the value out")
