"""Files of a stimulus set are found quickly, hashed once, and never taken from an archive that has changed."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from neuroledger.data import stimuli as module
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import AssemblyError
from tests.models.drawn_stimuli import drawn


def archive(path: Path, **files: str) -> StimulusSet:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(f"{name}.txt", content)
    return StimulusSet(
        "s",
        pd.DataFrame(
            {"stimulus_id": list(files), "filename": [f"{n}.txt" for n in files]}
        ),
        path,
    )


def test_an_archive_that_changed_is_read_again(tmp_path: Path) -> None:
    first = archive(tmp_path / "s.zip", a="one", b="two")
    assert first.bytes("b") == b"two"
    before = first.content_sha256
    second = archive(tmp_path / "s.zip", a="one", b="TWO")
    os.utime(tmp_path / "s.zip", ns=(1, 1))
    assert second.bytes("b") == b"TWO"
    assert second.content_sha256 != before


def test_the_list_of_members_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = archive(tmp_path / "s.zip", a="one", b="two", c="three")
    opened: list[Path] = []
    original = zipfile.ZipFile

    def counting(path: Path) -> zipfile.ZipFile:
        opened.append(path)
        return original(path)

    monkeypatch.setattr(module.zipfile, "ZipFile", counting)
    for _ in range(3):
        assert [held.bytes(name) for name in ("c", "a")] == [b"three", b"one"]
        assert held.select(["b"]).bytes("b") == b"two"
    assert len(opened) == 1


def test_a_file_is_hashed_once_for_all_selections(tmp_path: Path) -> None:
    whole = archive(tmp_path / "s.zip", a="one", b="two", c="three")
    expected = {
        ids: StimulusSet(
            "s", whole.select(list(ids)).table, whole.archive
        ).content_sha256
        for ids in ("ab", "ba", "c")
    }
    assert whole.content_sha256
    assert set(whole.digests) == {"a.txt", "b.txt", "c.txt"}
    (tmp_path / "s.zip").unlink()
    assert {ids: whole.select(list(ids)).content_sha256 for ids in expected} == expected
    assert len(set(expected.values())) == 3


def test_damaged_members_are_reported(tmp_path: Path) -> None:
    held = archive(tmp_path / "s.zip", a="one " * 500)
    data = bytearray((tmp_path / "s.zip").read_bytes())
    data[45:55] = b"\xff" * 10
    (tmp_path / "s.zip").write_bytes(bytes(data))
    with pytest.raises(AssemblyError, match=r"s\.zip cannot be read"):
        held.bytes("a")


@pytest.mark.parametrize(
    ("place", "value"), [(6, 255), (8, 1)], ids=["of another version", "encrypted"]
)
def test_an_archive_that_zipfile_cannot_read_is_one_clear_error(
    tmp_path: Path, place: int, value: int
) -> None:
    held = archive(tmp_path / "s.zip", a="one", b="two")
    data = bytearray((tmp_path / "s.zip").read_bytes())
    data[data.index(b"PK\x01\x02") + place] = value
    (tmp_path / "s.zip").write_bytes(bytes(data))
    with pytest.raises(AssemblyError, match=r"s\.zip cannot be read"):
        list(held.read(["a"]))


def test_an_archive_with_undecodable_names_is_one_clear_error(tmp_path: Path) -> None:
    held = archive(tmp_path / "s.zip", a="one", b="two")
    data = bytearray((tmp_path / "s.zip").read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 9] |= 0x08  # names are UTF-8
    data[entry + 46] = 0xD6
    (tmp_path / "s.zip").write_bytes(bytes(data))
    with pytest.raises(AssemblyError, match=r"s\.zip cannot be read"):
        list(held.read(["a"]))


def test_a_selection_has_the_requested_order_and_all_columns() -> None:
    whole = drawn(4, columns={"word": list("abcd")})
    part = whole.select(["s002", "s000"])
    assert list(part.ids) == ["s002", "s000"] and part.table["word"].tolist() == [
        "c",
        "a",
    ]
    assert (
        part.table.columns.tolist() == whole.table.columns.tolist()
        and part.table.index.tolist() == [0, 1]
    )
    assert [part.bytes(id) for id in part.ids] == [whole.bytes(id) for id in part.ids]
    with pytest.raises(AssemblyError, match="lacks 2 stimuli, first 'x'"):
        whole.select(["s001", "x", "y"])


def test_the_content_of_a_set_is_its_ids_files_and_degrees_in_their_order() -> None:
    whole = drawn(3, columns={"word": list("abc")})
    same = drawn(3, columns={"word": list("xyz")})
    others = [
        drawn(3, seed=1),
        drawn(2),
        drawn(3, degrees=8.0),
        whole.select(["s001", "s000", "s002"]),
    ]
    assert (
        same.content_sha256
        == whole.content_sha256
        == whole.select(whole.ids).content_sha256
    )
    assert len({one.content_sha256 for one in (whole, *others)}) == 5
    without = [replace(one, contents=None) for one in (whole, same)]
    assert without[0].content_sha256 != without[1].content_sha256, (
        "there, the words are all there is"
    )
