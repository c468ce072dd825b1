"""The report speaks for the inputs it was made from, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroledger.data.gate import validate as gate
from neuroledger.data.gate.validate import refused_here, validate
from neuroledger.data.gate.validation import (
    Contents,
    is_valid,
    read_report,
    refusal,
    report_path,
    seal,
    seen_here,
    write_report,
)
from neuroledger.errors import DataError, IntegrityError
from tests.data.gate.test_validate import with_expectation
from tests.engine.tiny_repository import Tiny


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    built = Tiny(tmp_path)
    built.write()
    return built


def test_a_report_speaks_only_for_its_inputs(tiny: Tiny) -> None:
    validate(tiny.pin(), "tiny")
    changed = tiny.pin(with_expectation("stimuli", {"check": "row_count", "count": 4}))
    refused = refusal(changed, "tiny")
    assert refused is not None and refused.code == "data.report-stale"
    described = tiny.pin(description="more words")
    assert is_valid(described, "tiny")


def test_an_edited_report_is_not_believed(tiny: Tiny) -> None:
    (tiny.data / "responses.nc").write_bytes(b"")
    catalog = tiny.pin()
    validate(catalog, "tiny")
    path = report_path(catalog.root, "tiny")
    path.write_text(
        path.read_text()
        .replace('"failed"', '"passed"')
        .replace('"not reached"', '"passed"')
    )
    assert read_report(path) is None
    refused = refusal(catalog, "tiny")
    assert refused is not None and refused.code == "data.report-edited"
    path.write_text("{}")
    assert not is_valid(catalog, "tiny")


def test_a_failed_examination_is_repeated(tiny: Tiny) -> None:
    catalog = tiny.pin()
    content = (tiny.data / "responses.nc").read_bytes()
    (tiny.data / "responses.nc").write_bytes(b"")
    with pytest.raises(IntegrityError):
        validate(catalog, "tiny")
    (tiny.data / "responses.nc").write_bytes(content)
    assert validate(catalog, "tiny").success, "the arrival of the right file is enough"


def test_a_full_disk_leaves_the_old_report(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tiny.pin()
    report = validate(catalog, "tiny")
    path = report_path(catalog.root, "tiny")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="cannot be written"):
        write_report(path, seal(report.model_copy(update={"title": "another"})))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["tiny.json"]


def test_asking_whether_data_are_valid_does_not_import_great_expectations() -> None:
    code = (
        "import sys, neuroledger.data.gate.validate\n"
        "sys.exit(any(m.startswith('great_expectations') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_report_has_a_summary_line_and_one_line_per_finding(tiny: Tiny) -> None:
    report = validate(tiny.pin(), "tiny")
    assert str(report) == "✓ tiny: 3 files verified, 9 of 9 expectations met"
    (tiny.data / "responses.nc").write_bytes(b"")
    broken = validate(
        tiny.pin(with_expectation("stimuli", {"check": "row_count", "count": 4})),
        "tiny",
    )
    head, *told = str(broken).splitlines()
    assert head == "✗ tiny: invalid, 1 error in stage 'structure'"
    assert (
        told == [f"  {line}" for line in str(broken.findings[0]).splitlines()]
        and len(told) == 2
    )
    assert broken.errors == broken.findings and broken.to_dict()["success"] is False
    refused = refusal(
        tiny.pin(with_expectation("stimuli", {"check": "row_count", "count": 4})),
        "tiny",
    )
    assert refused is not None and refused.fix == "see results/validation/tiny.json"


def test_contents_are_written_with_a_hash_only_where_there_is_one() -> None:
    bare = Contents(dims=("presentation",), shape=(3,))
    assert bare.model_dump() == {
        "dims": ("presentation",),
        "shape": (3,),
        "dtype": "",
        "columns": (),
    }
    assert bare.model_copy(update={"sha256": "f"}).model_dump()["sha256"] == "f"


def test_a_report_of_another_machine_is_made_again_before_data_are_scored(
    tiny: Tiny,
) -> None:
    catalog = tiny.pin()
    refused = refused_here(catalog, "tiny")
    assert refused is not None and refused.code == "data.not-validated"
    report = validate(catalog, "tiny")
    path = report_path(catalog.root, "tiny")
    mark = catalog.root / ".cache" / "validated" / "tiny.json"
    assert seen_here(catalog, report) and refused_here(catalog, "tiny") is None
    mark.unlink()
    path.write_bytes(path.read_bytes())
    assert not seen_here(catalog, report) and refused_here(catalog, "tiny") is None
    assert mark.is_file(), "it was validated here"
    mark.unlink()
    (tiny.data / "responses.nc").write_bytes(b"other")
    with pytest.raises(
        IntegrityError, match=r"responses\.nc has 5 bytes where the spec pins"
    ):
        refused_here(catalog, "tiny")


def test_a_report_that_this_machine_made_is_not_made_again(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tiny.pin()
    validate(catalog, "tiny")
    monkeypatch.setattr(
        gate, "validate", lambda *_: pytest.fail("it was validated again")
    )
    assert refused_here(catalog, "tiny") is None
