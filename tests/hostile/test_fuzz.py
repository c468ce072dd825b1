"""A short, seeded part of the fuzzing of parsers and readers; ``python -m tests.hostile.fuzz`` runs all of it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from neuroledger.data.images import decode
from neuroledger.data.stimuli import safe_members
from neuroledger.errors import AssemblyError, DataError
from neuroledger.spec import registry
from neuroledger.spec.bibliography import read_bibliography
from tests.hostile import fuzz as fuzzing
from tests.hostile.fuzz import (
    Case,
    collect,
    fuzz,
    parser_cases,
    reader_cases,
    reader_tests,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs processes with limits"
)


def test_parsers_of_text_and_tables_raise_only_clear_errors() -> None:
    cases = list(parser_cases())
    counts = fuzz(cases, 100, seed=11)
    assert not [key for key in counts if key[1] == "WRONG"]
    assert counts.total() == 100 * len({case.name for case in cases}) >= 1500


def test_an_input_depends_only_on_the_seed_and_its_number() -> None:
    cases = [case for case in parser_cases() if case.name == "table"]
    assert fuzz(cases, 60, seed=3) == fuzz(cases, 60, seed=3)
    assert not fuzz(cases, 60, seed=3, until=0.0)


def test_the_fuzzer_detects_wrong_outcomes(tmp_path: Path) -> None:
    def careless(folder: Path) -> object:
        data = (folder / "a").read_bytes()
        if data[:1] != b"a":
            raise KeyError("first")
        return data

    def crashing(folder: Path) -> object:
        if (folder / "a").read_bytes()[:1] != b"a":
            import ctypes

            ctypes.string_at(0)
        return None

    counts = fuzz([Case("careless", {"a": b"abc"}, careless, inside=True)], 200, seed=1)
    assert any(kind == "WRONG" and "KeyError" in said for _, kind, said in counts)
    counts = fuzz([Case("crashing", {"a": b"abc"}, crashing, inside=False)], 12, seed=1)
    assert {kind for _, kind, _ in counts} == {"read", "contained"}
    counts = fuzz([Case("crashing", {"a": b"abc"}, crashing, inside=True)], 12, seed=1)
    assert any(kind == "WRONG" and "died" in said for _, kind, said in counts)


def test_files_of_a_reader_become_its_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.hostile import recorder

    (tmp_path / "file.csv").write_text("stimulus_id\na\n")
    recorder._keep(
        tmp_path / "corpus" / "netcdf",
        "netcdf",
        {"file.csv": tmp_path / "file.csv"},
        {"stimuli": None},
    )
    (case,) = reader_cases(tmp_path / "corpus")
    assert case.name == "reader:netcdf" and case.files == {
        "file.csv": b"stimulus_id\na\n"
    }


def test_every_registered_reader_has_tests() -> None:
    assert {name for names in reader_tests().values() for name in names} == set(
        registry.names("reader")
    )


@pytest.mark.slow
def test_a_reader_without_files_is_reported_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = {"tests/families/efficiency/test_idx_images.py": ["idx_images", "netcdf"]}
    assert collect(tmp_path, tests) == ["netcdf"]
    cases = list(reader_cases(tmp_path))
    assert cases and {case.name for case in cases} == {"reader:idx_images"}
    monkeypatch.setattr(fuzzing, "collect", lambda folder: ["netcdf"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["fuzz", "--each", "1", "--minutes", "0.05"])
    assert fuzzing.main() == 1 and "nothing tried of: netcdf" in capsys.readouterr().out


def test_a_bibliography_that_is_not_text_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "r.bib").write_bytes(b"@article{a,\n title = {\xff}}\n")
    ((line, what, _),) = read_bibliography(tmp_path / "r.bib").problems
    assert line == 2 and "UTF-8" in what


def test_a_zip_of_an_unknown_version_is_one_error(tmp_path: Path) -> None:
    import io
    import zipfile

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a.png", b"x")
    data = bytearray(held.getvalue())
    at = data.index(b"PK\x01\x02")
    data[at + 6] = 218
    (tmp_path / "s.zip").write_bytes(data)
    with pytest.raises(AssemblyError, match="not a readable zip"):
        safe_members(tmp_path / "s.zip")


def test_a_zip_whose_member_has_no_name_is_one_error(tmp_path: Path) -> None:
    import io
    import zipfile

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a", b"x")
    data = bytearray(held.getvalue())
    data[data.index(b"PK\x01\x02") + 46] = 0  # the name now ends before it begins
    (tmp_path / "s.zip").write_bytes(data)
    with pytest.raises(AssemblyError, match="a member has no name"):
        safe_members(tmp_path / "s.zip")


def test_an_image_without_dimensions_is_one_error() -> None:
    with pytest.raises(DataError, match="truncated or damaged"):
        decode(b"II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00", "i.tiff")
