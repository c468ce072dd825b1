"""Long lists of files and recordings lie in a table beside the spec, which is held to its stated hash, line by line."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import SpecError
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import address, table_of
from neuroledger.spec.load import read_spec

HEAD = """\
id: Long
version: 1
title: Very many recordings
license: CC0-1.0
access_steps: [by hand]
"""
READER = "reader: {{name: mne_epochs, window: {{start: 0, duration: 1, stride: 1}}{recordings}}}\n"


def pin_of(number: int) -> dict[str, Any]:
    return {"size": number, "sha256": hashlib.sha256(str(number).encode()).hexdigest()}


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"name": f"sub-{n:05d}/eeg/{n}.edf", **pin_of(n)} for n in range(count)]


def write(folder: Path, text: str, lists: str = "") -> Path:
    """The spec with its files in a table of this text; `lists` overrides what it states of it."""
    (folder / "Long.files.jsonl").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    said = (
        lists
        or f"files: {{table: Long.files.jsonl, sha256: {digest}, rows: {text.count(chr(10))}}}"
    )
    path = folder / "Long.yaml"
    path.write_text(
        f"{HEAD}lists: {{{said}}}\n" + READER.format(recordings=", recordings: []")
    )
    return path


def load(path: Path) -> DatasetSpec:
    spec = read_spec(path, "datasets", path.name)[0]
    assert isinstance(spec, DatasetSpec)
    return spec


def test_a_list_in_a_table_is_the_same_data_set_as_one_that_is_written_out(
    tmp_path: Path,
) -> None:
    rows = rows_of(5)
    listed = load(write(tmp_path, table_of(rows)[0]))
    inline = "files:\n" + "".join(
        f"  {row['name']}: {{size: {row['size']}, sha256: {row['sha256']}}}\n"
        for row in rows
    )
    (tmp_path / "Long.yaml").write_text(
        HEAD + inline + READER.format(recordings=", recordings: []")
    )
    written = load(tmp_path / "Long.yaml")
    assert listed.files == written.files
    assert list(listed.files) == [row["name"] for row in rows]
    assert spec_sha256(listed) == spec_sha256(written)


def test_recordings_lie_in_a_table_too(tmp_path: Path) -> None:
    rows = [
        {
            "file": f"{n}.edf",
            "subject": f"{n:02d}",
            "facts": {"age": 50 + n, "group": "01"},
        }
        for n in range(3)
    ]
    path = write(tmp_path, table_of(rows_of(3))[0])
    text, count = table_of(rows)
    (tmp_path / "Long.recordings.jsonl").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    said = f"reader.recordings: {{table: Long.recordings.jsonl, sha256: {digest}, rows: {count}}}"
    path.write_text(path.read_text().replace("lists: {", f"lists: {{{said}, "))
    spec = load(path)
    assert spec.reader is not None
    assert spec.reader.parameters["recordings"] == rows
    path.write_text(
        path.read_text().replace(
            "recordings: []", "recordings: [{file: a, subject: b}]"
        )
    )
    with pytest.raises(
        SpecError, match=r"are both in the reader and in Long\.recordings\.jsonl"
    ):
        load(path)


def calls(path: Path) -> int:
    """How often a function is entered or left while the spec is read."""
    count = 0

    def called(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(called)
    try:
        load(path)
    finally:
        sys.setprofile(None)
    return count


def test_every_row_of_a_long_list_costs_the_same_small_number_of_steps(
    tmp_path: Path,
) -> None:
    load(write(tmp_path, table_of(rows_of(10))[0]))  # imports what reads a spec
    counts = [
        calls(write(tmp_path, table_of(rows_of(rows))[0])) for rows in (10, 1010, 4010)
    ]
    first, rest = np.diff(counts) / (1000, 3000)
    assert rest == pytest.approx(first, rel=0.05)
    assert rest < 80


FIRST, SECOND = (json.dumps(row) for row in rows_of(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{FIRST}\n{FIRST}\n",
            r"Long\.files\.jsonl:2:1: sub-00000/eeg/0\.edf is pinned twice \(first at line 1\)",
        ),
        (
            f"{FIRST}\n{SECOND[:-3]}\n",
            r"Long\.files\.jsonl:2:1: not a JSON object on one line",
        ),
        (f"{FIRST}\n\n{SECOND}\n", r"Long\.files\.jsonl:2:1: not a JSON object"),
        (f"{FIRST}\n[1]\n", r"Long\.files\.jsonl:2:1: not a JSON object"),
        (
            FIRST.replace('"size"', '"name"') + "\n",
            r"Long\.files\.jsonl:1:1: .*a key occurs twice",
        ),
        (
            FIRST.replace("sub-00000", "..") + "\n",
            r"Long\.files\.jsonl:1:1: '\.\./eeg/0\.edf' cannot be the name",
        ),
        (
            FIRST.replace("sub-00000", "/etc") + "\n",
            "cannot be the name of a pinned file",
        ),
        (
            FIRST.replace("eeg/0", ".git/0") + "\n",
            "cannot be the name of a pinned file",
        ),
        (
            FIRST.replace('"size": 0', '"size": -1') + "\n",
            r":1:1: sub-00000/eeg/0\.edf: size: -1 is not greater",
        ),
        (FIRST.replace('"size": 0', '"size": NaN') + "\n", "NaN is not JSON"),
        (
            FIRST.replace('"size": 0', '"bytes": 0') + "\n",
            r":1:1: .*size: it is missing",
        ),
        (
            FIRST.replace("5feceb", "5FECEB") + "\n",
            r":1:1: .*sha256: String should match pattern",
        ),
        ("\ufeff" + FIRST + "\n", r":1:1: not a JSON object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(write(tmp_path, text))


def test_the_table_is_the_stated_one(tmp_path: Path) -> None:
    text = table_of(rows_of(2))[0]
    path = write(tmp_path, text)
    (tmp_path / "Long.files.jsonl").write_text(text + text)
    with pytest.raises(
        SpecError,
        match=r"Long\.files\.jsonl:1:1: the table has SHA-256 .*, and Long\.yaml states",
    ) as caught:
        load(path)
    assert "restore it from git; for an intended change, run `neuroledger pin`" in str(
        caught.value
    )
    with pytest.raises(SpecError, match=r"^specs/datasets/Long\.files\.jsonl:1:1: "):
        read_spec(path, "datasets", "specs/datasets/Long.yaml")
    (tmp_path / "Long.files.jsonl").unlink()
    with pytest.raises(
        SpecError,
        match=r"Long\.yaml:6:\d+: Long\.files\.jsonl cannot be read \(No such file",
    ):
        load(path)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(SpecError, match=r"has 2 lines, 3 are stated"):
        load(
            write(
                tmp_path,
                text,
                f"files: {{table: Long.files.jsonl, sha256: {digest}, rows: 3}}",
            )
        )
    with pytest.raises(SpecError, match="should match pattern"):
        load(
            write(
                tmp_path,
                text,
                f"files: {{table: ../Long.files.jsonl, sha256: {digest}, rows: 2}}",
            )
        )
    with pytest.raises(SpecError, match=r"lists\.weights"):
        load(
            write(
                tmp_path,
                text,
                f"weights: {{table: Long.files.jsonl, sha256: {digest}, rows: 2}}",
            )
        )
    path = write(tmp_path, text)
    path.write_text(
        path.read_text() + f"files: {{a.edf: {{size: 1, sha256: {digest}}}}}\n"
    )
    with pytest.raises(
        SpecError, match=r"files are both here and in Long\.files\.jsonl"
    ):
        load(path)


def test_addresses_follow_from_a_template(tmp_path: Path) -> None:
    rows = [{**rows_of(2)[1], "at": "annex"}]
    text = table_of(rows)[0]
    digest = hashlib.sha256(text.encode()).hexdigest()
    said = f"files: {{table: Long.files.jsonl, sha256: {digest}, rows: 1, urls: {{annex: 'https://a.org/{{size}}--{{sha256}}{{suffix}}'}}}}"
    pin = load(write(tmp_path, text, said)).files[rows[0]["name"]]
    assert pin.url == f"https://a.org/1--{pin.sha256}.edf"
    with pytest.raises(SpecError, match="`at` is 'annex'; the `urls` of the list are"):
        load(write(tmp_path, text, said.replace("annex", "other")))
    with pytest.raises(SpecError, match=r"\{key\} is none of"):
        load(write(tmp_path, text, said.replace("{size}", "{key}")))


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a/x_eeg.bdf", ".bdf"),
        ("x_bold.nii.gz", ".nii.gz"),
        ("S001R01.edf.event", ""),
        ("a.L.func.gii", ".func.gii"),
        ("README", ""),
    ],
)
def test_endings_are_those_of_git_annex(name: str, suffix: str) -> None:
    assert address("{suffix}", name, 1, "") == suffix
