"""A stimulus set is a table of unique ids whose files are harmless members of its archives."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from neuroledger.data import stimuli as module
from neuroledger.data.stimuli import (
    StimulusFiles,
    StimulusSet,
    further_sets,
    read_table,
    safe_members,
)
from neuroledger.errors import AssemblyError, DataError
from tests.models.drawn_stimuli import drawn


def of(**columns: Any) -> StimulusSet:
    return StimulusSet("s", pd.DataFrame(columns))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"id": ["a"]}, "the table has no column 'stimulus_id'"),
        ({"stimulus_id": []}, "the table is empty"),
        ({"stimulus_id": ["a", None, None]}, "stimulus_id is missing in row 2"),
        ({"stimulus_id": ["1", "b", 1]}, "stimulus_id '1' occurs more than once"),
    ],
)
def test_a_table_names_each_stimulus_once(table: dict[str, Any], words: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        of(**table)
    assert str(caught.value) == f"stimulus set 's': {words}"


def test_ids_are_text_and_identify_files(tmp_path: Path) -> None:
    numbered = of(stimulus_id=[3, 1])
    assert len(numbered) == 2 and numbered.ids == ["3", "1"]
    with pytest.raises(
        AssemblyError,
        match=r"^stimulus set 's' has no files \(no column 'filename'\): score stored responses",
    ):
        numbered.bytes("3")
    with pytest.raises(
        AssemblyError, match=r"^stimulus set 's' has no archive of files$"
    ):
        of(stimulus_id=["a"], filename=["a.png"]).bytes("a")
    held = StimulusSet(
        "s",
        pd.DataFrame({"stimulus_id": ["a", "b"], "filename": ["x", "y"]}),
        contents={"x": b"1"},
    )
    assert held.bytes("a") == b"1" and list(held.read([])) == []
    with pytest.raises(AssemblyError, match=r"^stimulus set 's' has no stimulus 'c'$"):
        held.bytes("c")
    with pytest.raises(
        AssemblyError, match=r"^stimulus set 's' has no file for stimulus 'b'$"
    ):
        list(held.read())
    with (
        zipfile.ZipFile(tmp_path / "one.zip", "w") as one,
        zipfile.ZipFile(tmp_path / "two.zip", "w") as two,
    ):
        one.writestr("x", "1")
        two.writestr("deep/y", "2")
    frame = pd.DataFrame(
        {"stimulus_id": ["a", "b", "c"], "filename": ["1st/x", "2nd/deep/y", "2nd/z"]}
    )
    joined = StimulusSet(
        "s", frame, {"1st": tmp_path / "one.zip", "2nd": tmp_path / "two.zip"}
    )
    assert list(joined.read(["b", "a"])) == [b"2", b"1"]
    with pytest.raises(
        AssemblyError, match=r"^two\.zip has no file 'z' \(stimulus 'c'\)$"
    ):
        joined.bytes("c")
    with pytest.raises(AssemblyError, match=r"^stimulus set 's' has no stimulus 'd'$"):
        joined.bytes("d")


def test_the_content_hash_of_a_set_is_stable() -> None:
    words = of(stimulus_id=["a", "b"], word=["x", "y"])
    table = b"stimulus_id,word\na,x\nb,y\n"
    assert words.content_sha256 == hashlib.sha256(b"None" + table).hexdigest()
    assert (
        of(word=["x", "y"], stimulus_id=["a", "b"]).content_sha256
        == words.content_sha256
    )
    files = drawn(2, degrees=8.0)
    parts = b"".join(
        f"\x00{id}\x00".encode() + hashlib.sha256(files.bytes(id)).digest()
        for id in files.ids
    )
    assert files.content_sha256 == hashlib.sha256(b"8.0" + parts).hexdigest()


def test_a_notebook_shows_thumbnails_and_facts() -> None:
    (encoded, *_) = re.findall(
        r'src="data:image/png;base64,([^"]+)"', drawn(1, size=(100, 50))._repr_html_()
    )
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).size == (64, 32)
    page = drawn(14, degrees=8.0, size=(4, 4))._repr_html_()
    assert (
        "size on the screen" in page
        and "8°" in page
        and "stimulus_id, filename" in page
    )
    assert (
        page.count("<img ") == 12
        and 'title="s000"' in page
        and 'title="s012"' not in page
    )
    rows = dict(re.findall(r"<th [^>]*>([^<]*)</th><td [^>]*>([^<]*)</td>", page))
    assert rows == {
        "stimuli": "14",
        "columns": "stimulus_id, filename",
        "size on the screen": "8°",
    }
    assert 'src="data:image/png;base64,' in page
    plain = of(stimulus_id=["<b>"], filename=["a"])._repr_html_()
    assert "<img" not in plain and "size on the screen" not in plain
    odd = StimulusSet(
        "s",
        pd.DataFrame({"stimulus_id": ['"<x>'], "filename": ["a"]}),
        contents={"a": b"no image"},
    )
    assert "<img" not in odd._repr_html_()


def test_a_table_is_read_with_names_as_text(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(
        "stimulus_id,filename,n,word\n007,1,2,é\n8,2,,NA\n", encoding="utf-8"
    )
    got = read_table(path)
    assert got["stimulus_id"].tolist() == ["007", "8"] and got["filename"].tolist() == [
        "1",
        "2",
    ]
    assert (
        got["n"].iloc[0] == 2
        and got["n"].isna().tolist() == [False, True]
        and got["word"][0] == "é"
    )
    for content in (b"\xff\xfe\x00\n", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"s\.csv cannot be read"):
            read_table(path)


def members(path: Path, *infos: zipfile.ZipInfo | str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for info in infos:
            archive.writestr(info, "12")
    return path


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/x", "member '/etc/x' points outside the archive"),
        ("a/../../x", "points outside the archive"),
        ("a\\x", "points outside the archive"),
        (link(), "member 'link' is a link"),
    ],
    ids=["absolute", "above", "backslash", "link"],
)
def test_members_that_lead_elsewhere_are_refused(
    tmp_path: Path, name: Any, words: str
) -> None:
    with pytest.raises(AssemblyError) as caught:
        safe_members(members(tmp_path / "x.zip", "fine", name))
    assert str(caught.value).startswith("x.zip: ") and words in str(caught.value)


def test_members_are_files_of_plausible_size_and_may_repeat_where_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = members(tmp_path / "x.zip", "b", "folder/", "a/c..d")
    assert [info.filename for info in safe_members(path)] == ["b", "a/c..d"]
    monkeypatch.setattr(module, "MAX_ARCHIVE_BYTES", 4)
    monkeypatch.setattr(module, "MAX_MEMBER_BYTES", 2)
    assert len(safe_members(path)) == 2
    monkeypatch.setattr(module, "MAX_ARCHIVE_BYTES", 3)
    with pytest.raises(
        AssemblyError, match=r"^x\.zip: the files are larger than 0 GiB in total$"
    ):
        safe_members(path)
    monkeypatch.setattr(module, "MAX_MEMBER_BYTES", 1)
    with pytest.raises(
        AssemblyError, match=r"^x\.zip: member 'b' is larger than 0 MiB$"
    ):
        safe_members(path)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = members(tmp_path / "twice.zip", "a", "a")
    assert len(safe_members(twice, repeated=True)) == 2
    with pytest.raises(AssemblyError, match=r"^twice\.zip: member 'a' occurs twice$"):
        safe_members(twice)
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(twice, "a") as archive,
    ):
        archive.writestr("a", "34")
    with pytest.raises(AssemblyError, match="occurs twice"):
        safe_members(twice, repeated=True)
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    with pytest.raises(
        AssemblyError,
        match=r"^bad\.zip is not a readable zip \(.*\): it is damaged or incomplete$",
    ):
        safe_members(tmp_path / "bad.zip")


def test_further_sets_are_called_as_benchmarks_call_them(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("stimulus_id\na\n")
    files = {
        "words.csv": tmp_path / "words.csv",
        "x.zip": members(tmp_path / "x.zip", "a"),
    }
    named = {
        "text": StimulusFiles(stimuli="words.csv"),
        "images": StimulusFiles(stimuli="words.csv", archive="x.zip"),
    }
    sets = further_sets(files, named)
    assert list(sets) == ["text", "images"] and {one.id for one in sets.values()} == {
        "words"
    }
    assert sets["text"].archive is None and sets["images"].archive == files["x.zip"]
    assert further_sets(files, None) == {}
    for wrong in (
        StimulusFiles(stimuli="gone.csv"),
        StimulusFiles(stimuli="words.csv", archive="gone.csv"),
    ):
        with pytest.raises(
            DataError,
            match=r"^the stimulus set 'x' needs the file 'gone\.csv'; the spec's `files` are words\.csv, ",
        ):
            further_sets(files, {"x": wrong})
    with pytest.raises(AssemblyError, match="points outside"):
        further_sets({**files, "x.zip": members(tmp_path / "y.zip", "../a")}, named)
