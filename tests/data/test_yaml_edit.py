"""Fields and entries are put into the text of a spec, whatever its layout, and everything else stays as it was written."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.pin.yaml_edit import (
    inline,
    spec_text,
    with_entries,
    with_field,
    without,
    write_lists,
)
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec

TEXT = """\
# about this set
id: x
files:  # of the lab
  a.set: {size: 1}

  # noisy
  b.set:
    # large
    size: 2
  c.set: {size: 3}   # the last
reader:
  name: plain
  recordings:
    - {file: a, subject: "1"}
    # noisy
    - file: b
      subject: "2"
  window: {start: 0}
notes:
- one

title: A set
"""
A, B, C = {"size": 1}, {"size": 2}, {"size": 3}


def data(text: str) -> Any:
    return parse(text, "x").data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"), ([], "[]"), ((1, 2.5), "[1, 2.5]"), (None, "null"), (True, "true"), (-3, "-3"),
        ({"a": {"b": [1, "x"]}, 7: "y"}, '{a: {b: [1, x]}, "7": "y"}'), ("a/b.c:d=e+f-g_1", "a/b.c:d=e+f-g_1"),
        ("a:", '"a:"'), ("No", '"No"'), ("n", '"n"'), ("null", '"null"'), ("nothing", "nothing"), ("-a", '"-a"'),
        ("1.5e3", '"1.5e3"'), ("1a", "1a"), ("0x1f", '"0x1f"'), ("0o17", '"0o17"'), ("2020-01-01", '"2020-01-01"'),
        ("é", '"é"'), ("a b", '"a b"'), ('"', '"\\""'), ("", '""'), (".5", '".5"'), (".hidden", ".hidden"),
    ],
)  # fmt: skip
def test_plain_data_are_one_line_in_which_texts_stay_texts(
    value: Any, text: str
) -> None:
    assert inline(value) == text


@pytest.mark.parametrize(
    ("path", "value", "before", "old", "new"),
    [
        (("id",), "z", "", "id: x\n", "id: z\n"),
        (("id",), "z", "reader", "id: x\n", "id: z\n"),
        (("version",), 2, "", "title: A set\n", "title: A set\nversion: 2\n"),
        (("version",), 2, "missing", "title: A set\n", "title: A set\nversion: 2\n"),
        (("version",), 2, "reader", "reader:\n", "version: 2\nreader:\n"),
        (
            ("version",),
            2,
            "files",
            "files:  # of the lab\n",
            "version: 2\nfiles:  # of the lab\n",
        ),
        (("notes",), ["two"], "", "notes:\n- one\n", "notes: [two]\n"),
        (("reader", "name"), "other", "", "  name: plain\n", "  name: other\n"),
        (
            ("reader", "window"),
            {"start": 1},
            "",
            "  window: {start: 0}\n",
            "  window: {start: 1}\n",
        ),
        (
            ("reader", "size"),
            3,
            "",
            "  window: {start: 0}\n",
            "  window: {start: 0}\n  size: 3\n",
        ),
        (
            ("reader", "nam"),
            3,
            "",
            "  window: {start: 0}\n",
            "  window: {start: 0}\n  nam: 3\n",
        ),
    ],
)
def test_a_field_is_set_in_its_place_and_no_other_line_changes(
    path: tuple[str, ...], value: Any, before: str, old: str, new: str
) -> None:
    assert with_field(TEXT, path, value, before=before) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("id",), "x"),
        (("notes",), ("one",)),
        (("files", "a.set"), {"size": 1}),
        (("reader", "name"), "plain"),
    ],
)
def test_a_field_that_has_its_value_keeps_its_layout(
    path: tuple[str, ...], value: Any
) -> None:
    assert with_field(TEXT, path, value) == TEXT


def test_a_component_on_one_line_is_laid_out_when_a_field_of_it_changes() -> None:
    text = "id: x\nreader: {name: a, window: {start: 0}}  # w\ntitle: t\n"
    laid = "id: x\nreader:                                # w\n  name: b\n  window: {start: 0}\ntitle: t\n"
    assert with_field(text, ("reader", "name"), "b") == laid
    assert with_field(text, ("reader", "name"), "a") == text
    assert with_field(laid, ("reader", "name"), "c") == laid.replace(
        "name: b", "name: c"
    )
    remarked = laid.replace("# w", "# how: it is cut")
    assert with_field(remarked, ("reader", "name"), "c") == remarked.replace(
        "name: b", "name: c"
    )
    listed = with_entries(text, ("reader", "recordings"), [{"file": "a"}])
    assert listed == laid.replace("name: b", "name: a").replace(
        "title", "  recordings:\n    - {file: a}\ntitle"
    )


@pytest.mark.parametrize(
    ("entries", "old", "new"),
    [
        ({"a.set": A, "b.set": B, "c.set": C}, "", ""),
        ({"c.set": C, "b.set": B, "a.set": A}, "", ""),
        (
            {"a.set": B, "b.set": B, "c.set": C},
            "  a.set: {size: 1}\n",
            "  a.set: {size: 2}\n",
        ),
        (
            {"a.set": A, "c.set": C},
            "\n  # noisy\n  b.set:\n    # large\n    size: 2\n",
            "",
        ),
        ({"a.set": A, "b.set": B}, "  c.set: {size: 3}   # the last\n", ""),
        (
            {"a.set": A, "b.set": B, "c.set": C, "d.set": A},
            "# the last\n",
            "# the last\n  d.set: {size: 1}\n",
        ),
    ],
)
def test_entries_that_say_the_same_keep_their_lines_and_their_remarks(
    entries: dict[str, Any], old: str, new: str
) -> None:
    found = with_entries(TEXT, ("files",), entries)
    assert found == TEXT.replace(old, new, 1)
    assert data(found)["files"] == entries
    assert with_entries(found, ("files",), entries) == found


@pytest.mark.parametrize(
    ("rows", "old", "new"),
    [
        ([{"file": "a", "subject": "1"}, {"file": "b", "subject": "2"}], "", ""),
        ([{"file": "b", "subject": "2"}], '    - {file: a, subject: "1"}\n', ""),
        (
            [{"file": "a", "subject": "1"}],
            '    # noisy\n    - file: b\n      subject: "2"\n',
            "",
        ),
        (
            [{"file": "a", "subject": "1"}, {"file": "b", "subject": ("2",)}],
            '    # noisy\n    - file: b\n      subject: "2"\n',
            '    - {file: b, subject: ["2"]}\n',
        ),
        (
            [
                {"file": "c"},
                {"file": "a", "subject": "1"},
                {"file": "b", "subject": "2"},
            ],
            '      subject: "2"\n',
            '      subject: "2"\n    - {file: c}\n',
        ),
    ],
)
def test_rows_that_are_there_already_keep_their_lines_wherever_they_stand(
    rows: list[dict[str, Any]], old: str, new: str
) -> None:
    found = with_entries(TEXT, ("reader", "recordings"), rows)
    assert found == TEXT.replace(old, new, 1)


def test_a_remark_above_an_entry_stays_when_the_one_before_it_goes() -> None:
    text = "files:\n  a: {size: 1}\n  # large\n  b: {size: 2}\n# of the reader\nreader: {}\n"
    assert with_entries(text, ("files",), {"b": B}) == text.replace(
        "  a: {size: 1}\n", ""
    )
    assert without(text, "files") == "# of the reader\nreader: {}\n"


def test_no_line_of_a_shipped_spec_changes_when_its_components_are_written_again(
    repository: Path,
) -> None:
    written = 0
    for path in sorted((repository / "specs" / "datasets").glob("*.yaml"))[::40]:
        text = path.read_text(encoding="utf-8")
        in_blocks = re.findall(r"^(\w+):\n  \w", text, re.MULTILINE)
        for name in in_blocks:
            marked = with_field(text, (name, "marked"), {"a": "01"})
            assert len(marked.splitlines()) == len(text.splitlines()) + 1
            assert without(marked, name, "marked") == text
            written += 1
    assert written > 10


def test_the_dashes_of_a_list_may_be_below_its_name() -> None:
    text = "reader:\n  recordings:\n  - {file: a}  # noisy\n  - file: b\n    run: 2\n  window: 1\n"
    rows: list[dict[str, Any]] = [{"file": "a"}, {"file": "c"}]
    assert with_entries(text, ("reader", "recordings"), rows) == text.replace(
        "  - file: b\n    run: 2\n", "  - {file: c}\n"
    )
    rows = [{"file": "b", "run": 2}]
    assert with_entries(text, ("reader", "recordings"), rows) == text.replace(
        "  - {file: a}  # noisy\n", ""
    )


def test_new_entries_get_their_own_block() -> None:
    assert with_entries(
        "id: x\nreader: {}\n", ("files",), {"a": A}, before="reader"
    ) == ("id: x\nfiles:\n  a: {size: 1}\nreader: {}\n")
    assert (
        with_entries("id: x\n", ("files",), {"a": A})
        == "id: x\nfiles:\n  a: {size: 1}\n"
    )
    text = TEXT.replace("  recordings:\n    - {file: a", "  others:\n    - {file: a")
    found = with_entries(text, ("reader", "recordings"), [A])
    assert found == text.replace(
        "  window: {start: 0}\n",
        "  window: {start: 0}\n  recordings:\n    - {size: 1}\n",
    )
    for written in (
        "files: {a: {size: 1}, b: {size: 2}}",
        "files: {}",
        "files:",
        "files: null",
    ):
        assert with_entries(f"id: x\n{written}\ntitle: t\n", ("files",), {"b": B}) == (
            "id: x\nfiles:\n  b: {size: 2}\ntitle: t\n"
        )
    empty = with_entries(
        "reader:\n  recordings: []\n  name: a\n", ("reader", "recordings"), [A]
    )
    assert empty == "reader:\n  recordings:\n    - {size: 1}\n  name: a\n"


def test_a_field_is_removed_with_all_of_its_lines() -> None:
    fields = ("id", "files", "reader", "notes", "title")
    starts = [TEXT.index(f"\n{name}:") + 1 for name in fields]
    for name, (start, stop) in zip(fields, pairwise([*starts, len(TEXT)]), strict=True):
        gone = TEXT[start:stop].rstrip("\n") + "\n"
        assert without(TEXT, name) == TEXT.replace(gone, "", 1)
    assert without(TEXT, "version") == TEXT
    assert without("ids: 1\nid : 2\n", "id") == "ids: 1\n"


def test_recordings_are_removed_from_the_reader_alone() -> None:
    gone = TEXT[TEXT.index("  recordings:") : TEXT.index("  window:")]
    assert without(TEXT, "reader", "recordings") == TEXT.replace(gone, "")
    flat = "reader:\n  name: a\n  recordings:\n  - {file: a}\n\n  - file: b\n    run: 2\n  size: 1\n"
    assert without(flat, "reader", "recordings") == "reader:\n  name: a\n  size: 1\n"
    other = "protocol:\n  recordings: 3\nreader:\n  recordings: [a]\n"
    assert (
        without(other, "reader", "recordings")
        == "protocol:\n  recordings: 3\nreader: {}\n"
    )
    for text in (
        "id: x\n",
        "reader: {name: a}\n",
        "reader: a\n",
        "reader:\n  name: a\n",
    ):
        assert without(text, "reader", "recordings") == text
    on_one_line = "id: x\nreader: {name: a, recordings: [{file: a}]}\n"
    assert without(on_one_line, "reader", "recordings") == "id: x\nreader:\n  name: a\n"


def spec(**lists: Any) -> Any:
    fields = {
        "id": "x",
        "version": 1,
        "title": "A set",
        "license": "CC0-1.0",
        "reader": {"name": "netcdf"},
    }
    return DatasetSpec.model_validate(
        {**fields, "unavailable": "a test", "lists": lists}
    )


def pins(count: int) -> dict[str, dict[str, Any]]:
    return {f"{i:03d}.nc": {"size": i, "sha256": f"{i:064x}"} for i in range(count)}


SHORT = "id: x\nreader:\n  name: a\n"


def test_up_to_four_hundred_pins_are_written_into_the_spec_and_more_into_a_table() -> (
    None
):
    text, tables = write_lists(SHORT, spec(), pins(400), None)
    assert (
        data(text) == {"id": "x", "files": pins(400), "reader": {"name": "a"}}
        and tables == {}
    )
    text, tables = write_lists(text, spec(), pins(401), None)
    (content,) = tables.values()
    digest = hashlib.sha256(content.encode()).hexdigest()
    assert list(tables) == ["x.files.jsonl"]
    assert data(text) == {
        "id": "x",
        "lists": {"files": {"table": "x.files.jsonl", "sha256": digest, "rows": 401}},
        "reader": {"name": "a"},
    }
    assert json.loads(content.splitlines()[-1])["sha256"] == f"{400:064x}"


def test_recordings_go_where_the_pins_go_and_a_list_in_a_table_stays_there() -> None:
    rows = [{"file": "a", "subject": "1"}]
    text, tables = write_lists(SHORT, spec(), pins(1), rows)
    assert data(text)["reader"] == {"name": "a", "recordings": rows} and tables == {}
    assert (
        data(write_lists(text, spec(), pins(1), None).text)["reader"]["recordings"]
        == rows
    )
    declared = {"table": "own.jsonl", "sha256": "0" * 64, "rows": 7}
    text, tables = write_lists(
        text, spec(**{"reader.recordings": declared}), pins(1), rows
    )
    assert "recordings" not in data(text)["reader"] and list(tables) == ["own.jsonl"]
    assert data(text)["lists"]["reader.recordings"]["rows"] == 1 and list(
        data(text)["files"]
    ) == ["000.nc"]
    many = [{"file": str(i)} for i in range(401)]
    assert list(write_lists(SHORT, spec(), pins(1), many).tables) == [
        "x.recordings.jsonl"
    ]


# Random specs: `files` in blocks, components and lists in blocks or on one line, a comment above and behind every line.

NAMES = st.sampled_from(["a.nc", "b", "c-1", "yes", "é"])
VALUES = st.sampled_from(
    [1, 2.5, None, True, "x", "no", "a: b # c", "7", [1, "y"], {"size": 3}]
)
COMPONENTS = st.dictionaries(NAMES, VALUES, max_size=4)
SPECS = st.fixed_dictionaries(
    {
        "id": VALUES,
        "reader": COMPONENTS,
        "title": VALUES,
        "files": COMPONENTS,
        "notes": st.lists(VALUES, max_size=3),
    }
)


def laid_out(spec: dict[str, Any], in_blocks: set[str]) -> str:
    """The text of a spec with numbered comments."""
    lines: list[str] = []
    for name, value in spec.items():
        if name not in in_blocks or not value:
            lines.append(f"{name}: {inline(value)}")
            continue
        lines.append(f"{name}:")
        is_mapping = isinstance(value, dict)
        lines += (
            [f"  {inline(key)}: {inline(item)}" for key, item in value.items()]
            if is_mapping
            else []
        )
        lines += [] if is_mapping else [f"  - {inline(item)}" for item in value]
    return "".join(
        f"{indent_of(line)}# above {i}\n{line}  # behind {i}\n"
        for i, line in enumerate(lines)
    )


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def comments_of(text: str, kind: str) -> list[str]:
    """The comments of one kind outside quotes, in order."""
    return [
        line.rpartition("# ")[2]
        for line in text.splitlines()
        if line.rpartition("# ")[2].startswith(kind)
    ]


@settings(max_examples=30, deadline=None)
@given(SPECS, st.sets(st.sampled_from(["reader", "files", "notes"])), NAMES, VALUES)
def test_edits_keep_every_other_value_and_comment(
    spec: dict[str, Any], in_blocks: set[str], name: str, value: Any
) -> None:
    text = laid_out(spec, in_blocks)
    assert data(text) == spec
    edited = {
        "title": (with_field(text, ("title",), value), spec | {"title": value}),
        "reader": (
            with_field(text, ("reader", name), value),
            spec | {"reader": spec["reader"] | {name: value}},
        ),
        "files": (
            with_entries(text, ("files",), {**spec["files"], name: value}),
            spec | {"files": spec["files"] | {name: value}},
        ),
        "notes": (
            with_entries(text, ("notes",), [*spec["notes"], "new"]),
            spec | {"notes": [*spec["notes"], "new"]},
        ),
    }
    for found, expected in edited.values():
        assert data(found) == expected and list(data(found)) == list(expected)
        assert comments_of(found, "above") == comments_of(text, "above")
        assert comments_of(found, "behind") == comments_of(text, "behind")
    for gone in spec:
        found = without(text, gone)
        assert data(found) == {key: item for key, item in spec.items() if key != gone}
        # A comment above a field that is removed stays; those within the field are removed with it.
        others = [line for key in spec if key != gone for line in lines_of(text, key)]
        assert [line for line in found.splitlines() if line in others] == others


def lines_of(text: str, name: str) -> list[str]:
    """The lines of a top-level field, without comments of their own."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{name}:"))
    stop = next(
        (i for i in range(start + 1, len(lines)) if lines[i][0] not in " #"), len(lines)
    )
    return [line for line in lines[start:stop] if not line.lstrip().startswith("#")]


def test_a_new_spec_has_one_line_per_field() -> None:
    fields = {"id": "x", "version": 1, "notes": ["a b"]}
    assert (
        spec_text("model", fields, schema=False)
        == 'id: x\nversion: 1\nnotes: ["a b"]\n'
    )
    assert spec_text("model", fields).startswith(
        "# yaml-language-server: $schema=../schema/model.json\nid: x\n"
    )
