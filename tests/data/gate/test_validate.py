"""The gate lets right data pass and stops each kind of wrong data with one message: what, where, what to do."""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data.gate.validate import is_here, validate
from neuroledger.data.gate.validation import (
    ValidationReport,
    is_valid,
    refusal,
    report_path,
)
from neuroledger.errors import (
    IntegrityError,
    MissingError,
    RequestError,
    StorageError,
    UnavailableError,
)
from tests.engine.tiny_repository import (
    EXPECTATIONS,
    IDS,
    Tiny,
    image,
    responses,
    table,
)


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    built = Tiny(tmp_path)
    built.write()
    return built


def found(report: ValidationReport) -> list[str]:
    return [f"{finding.code}: {finding.what}" for finding in report.findings]


def with_expectation(part: str, expectation: dict[str, Any]) -> dict[str, Any]:
    return {**EXPECTATIONS, part: [*EXPECTATIONS[part], expectation]}


def test_right_data_pass_and_may_be_scored_on(tiny: Tiny) -> None:
    catalog = tiny.pin()
    assert (
        str(refusal(catalog, "tiny"))
        == "data set 'tiny': it has not been validated [data.not-validated]\n    hint: run `neuroledger validate tiny`"
    )
    report = validate(catalog, "tiny")
    assert report.success and report.findings == ()
    assert report.stages == {
        "hash": "passed",
        "structure": "passed",
        "expectations": "passed",
    }
    assert report.contents["assembly"].shape == (12, 3)
    assert {check.check for check in report.checks if not check.declared} == {
        "values_finite"
    }
    assert sum(check.declared for check in report.checks) == 8
    assert is_valid(catalog, "tiny") and refusal(catalog, "tiny") is None


def test_without_great_expectations_the_error_says_what_to_install(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tiny.pin()
    monkeypatch.setitem(sys.modules, "neuroledger.data.gate.gx_suites", None)
    with pytest.raises(
        UnavailableError,
        match=r"'tiny' has to be validated.*pip install 'neuroledger\[pipeline\]'",
    ):
        validate(catalog, "tiny")
    assert not report_path(catalog.root, "tiny").exists()


def test_same_inputs_same_report_byte_for_byte(tiny: Tiny) -> None:
    catalog = tiny.pin()
    validate(catalog, "tiny")
    path = report_path(catalog.root, "tiny")
    first = path.read_bytes()
    validate(catalog, "tiny", force=True)
    assert path.read_bytes() == first
    assert json.loads(first)["success"] is True
    assert str(tiny.root) not in first.decode()


def test_unchanged_data_are_not_examined_again(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tiny.pin()
    first = validate(catalog, "tiny")
    monkeypatch.setattr("neuroledger.data.gate.validate._report", None)
    assert validate(catalog, "tiny") == first


def test_a_flipped_byte_after_validation_is_found(tiny: Tiny) -> None:
    catalog = tiny.pin()
    validate(catalog, "tiny")
    path = tiny.data / "responses.nc"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = report_path(catalog.root, "tiny").read_bytes()
    with pytest.raises(
        IntegrityError, match="does not have the pinned bytes"
    ) as caught:
        validate(catalog, "tiny")
    assert caught.value.command == "neuroledger fetch tiny --force"
    assert caught.value.message.startswith("data set 'tiny': data/tiny/responses.nc ")
    assert report_path(catalog.root, "tiny").read_bytes() == before, (
        "a damaged copy is no verdict on the data"
    )
    assert refusal(catalog, "tiny") is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "responses.nc").unlink(), "1 of 3 files are missing"),
        (
            lambda folder: (folder / "stimuli.zip").write_bytes(b"PK"),
            "has 2 bytes where the spec pins",
        ),
        (
            lambda folder: os.truncate(folder / "stimuli.zip", 60),
            "has 60 bytes where the spec pins",
        ),
        (
            lambda folder: (folder / "stimuli.csv").write_bytes(
                (folder / "stimuli.zip").read_bytes()
            ),
            "bytes where the spec pins",
        ),
    ],
    ids=["missing", "replaced", "truncated", "swapped"],
)
def test_files_that_differ_from_their_pins_are_reported(
    tiny: Tiny, damage: Any, words: str
) -> None:
    catalog = tiny.pin()
    damage(tiny.data)
    with pytest.raises(StorageError, match=words) as caught:
        validate(catalog, "tiny")
    assert caught.value.command.startswith("neuroledger fetch tiny")
    assert not report_path(catalog.root, "tiny").exists()


def test_missing_files_are_counted_and_give_no_report(tiny: Tiny) -> None:
    catalog = tiny.pin()
    for path in tiny.data.glob("*"):
        path.unlink()
    with pytest.raises(MissingError, match="3 of 3 files are missing"):
        validate(catalog, "tiny")
    assert not report_path(catalog.root, "tiny").exists()
    assert not is_here(catalog, "tiny")


def missing_value() -> xr.DataArray:
    assembly = responses()
    assembly[5, 1] = np.nan
    return assembly


def infinite_value() -> xr.DataArray:
    assembly = responses()
    assembly[5, 1] = np.inf
    return assembly


def foreign_stimulus() -> xr.DataArray:
    return responses().assign_coords(
        stimulus_id=("presentation", [*IDS, *IDS, "im0", "im1", "im2", "im9"])
    )


def repeated_id() -> pd.DataFrame:
    return table().assign(stimulus_id=["im0", "im1", "im1", "im3"])


def without(name: str) -> dict[str, bytes]:
    return {f"{id}.png": image(i) for i, id in enumerate(IDS) if id != name}


@pytest.mark.parametrize(
    ("wrong", "stage", "words"),
    [
        ({"assembly": missing_value()}, "expectation.", "missing values (NaN): 0 declared, found 1"),
        ({"assembly": infinite_value()}, "expectation.", "infinite values: none allowed, found 1"),
        ({"assembly": foreign_stimulus()}, "expectation.", "1 of 12 presentations of stimuli that the stimulus"),
        ({"assembly": responses()[:11]}, "expectation.", "length of 'presentation': 12 declared, found 11"),
        ({"assembly": responses()[:11]}, "expectation.", "1 of 4 stimuli not presented 3 times: 2 (im3)"),
        ({"assembly": responses().T}, "expectation.", "dimensions: (presentation, neuroid) declared, found neuroid"),
        ({"assembly": responses().rename(neuroid="unit")}, "data.structure", "dimensions are (presentation, unit)"),
        ({"assembly": responses().drop_vars("stimulus_id")}, "data.structure", "no coordinate 'stimulus_id'"),
        ({"stimuli": repeated_id()}, "data.structure", "'im1' occurs more than once"),
        ({"stimuli": table().iloc[:0]}, "data.structure", "the table is empty"),
        ({"stimuli": table().drop(columns="stimulus_id")}, "data.structure", "no column 'stimulus_id'"),
        ({"stimuli": table().assign(object_name="face")}, "expectation.", "'object_name': declared but absent: car"),
        ({"images": without("im2")}, "data.structure", "lacks 1 files of stimuli.csv, first 'im2.png'"),
        ({"images": without("im2") | {"im2.png": b""}}, "expectation.", "1 of 4 files missing or empty: im2"),
        ({"images": without("im2") | {"im2.png": image(2)[:50]}}, "expectation.", "images not decodable: im2"),
        ({"images": without("im2") | {"im2.png": image(1)}}, "expectation.", "without the SHA-256 that the table"),
    ],
)  # fmt: skip
def test_wrong_content_with_right_pins(
    tiny: Tiny, wrong: dict[str, Any], stage: str, words: str
) -> None:
    tiny.write(**wrong)
    catalog = tiny.pin()
    report = validate(catalog, "tiny")
    assert not report.success and not is_valid(catalog, "tiny")
    matching = [finding for finding in report.findings if words in finding.what]
    assert matching, found(report)
    assert matching[0].code.startswith(stage)
    assert matching[0].where.startswith("data set tiny") and matching[0].fix


@pytest.mark.parametrize("name", ["responses.nc", "stimuli.csv", "stimuli.zip"])
@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 and no more", bytes(range(256)) * 8],
    ids=["empty", "cut", "noise"],
)
def test_a_file_that_was_pinned_broken_is_a_finding_not_a_crash(
    tiny: Tiny, name: str, content: bytes
) -> None:
    (tiny.data / name).write_bytes(content)
    report = validate(tiny.pin(), "tiny")
    assert report.stages["hash"] == "passed" and report.stages["structure"] == "failed"
    assert "tiny" in report.findings[0].where and report.findings[0].fix


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("x"),
        EOFError("x"),
        RuntimeError("x"),
        zlib.error("x"),
        zipfile.BadZipFile("x"),
    ],
    ids=repr,
)
def test_every_exception_of_a_reader_becomes_a_finding(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(
        "neuroledger.families.alignment.readers.netcdf.safe_members", stumble
    )
    [finding] = validate(tiny.pin(), "tiny").findings
    assert finding.code == "data.structure" and type(error).__name__ in finding.what


def test_an_unknown_column_in_an_expectation_is_named_with_a_near_miss(
    tiny: Tiny,
) -> None:
    catalog = tiny.pin(
        with_expectation("stimuli", {"check": "not_null", "column": "object_nam"})
    )
    [finding] = validate(catalog, "tiny").findings
    assert finding.what == "the stimulus table has no column 'object_nam'"
    assert finding.fix == "did you mean 'object_name'?"
    assert "expectations.stimuli[4]" in finding.where


@pytest.mark.parametrize(
    ("assembly", "expectation", "words"),
    [
        (responses().astype(str), {"check": "values_between", "low": 0}, "not numbers"),
        (responses().astype(str), {"check": "values_vary"}, "not numbers"),
        (
            responses().assign_attrs(sampling_rate="fast"),
            {"check": "sampling_rate", "hz": 1},
            "is not a number",
        ),
    ],
)
def test_an_expectation_that_the_values_cannot_answer_is_a_finding(
    tiny: Tiny, assembly: xr.DataArray, expectation: dict[str, Any], words: str
) -> None:
    tiny.write(assembly=assembly)
    [finding] = validate(
        tiny.pin(with_expectation("assembly", expectation)), "tiny"
    ).findings
    assert (
        words in finding.what and finding.code == f"expectation.{expectation['check']}"
    )
    assert finding.where == "data set tiny, assembly (expectations.assembly[4])"
    assert (
        finding.fix == "drop the expectation, or let the reader return what it is about"
    )


def test_declaring_nothing_is_not_passing(tiny: Tiny) -> None:
    report = validate(tiny.pin({"stimuli": EXPECTATIONS["stimuli"]}), "tiny")
    assert found(report) == ["data.undeclared: nothing is declared of the assembly"]
    assert report.findings[0].where == "specs/datasets/tiny.yaml, expectations.assembly"
    assert report.findings[0].fix.endswith("under `expectations: {assembly: […]}`")
    assert not report.success


def test_the_report_says_what_was_checked_of_what_and_by_whose_declaration(
    tiny: Tiny,
) -> None:
    stimuli = [
        *EXPECTATIONS["stimuli"],
        {
            "check": "row_count",
            "low": 2,
            "where": {"object_name": ["face", "car"]},
            "why": "two of each",
        },
        {
            "check": "distinct",
            "column": "object_name",
            "count": 2,
            "severity": "warning",
        },
    ]
    assembly = [
        *EXPECTATIONS["assembly"],
        {"check": "row_count", "count": 8, "where": {"repetition": [0, 2]}},
        {"check": "coords", "coords": {"neuroid": ["neuroid_id", "region"]}},
        {"check": "values_between", "low": -100, "high": 100.5},
        {"check": "values_finite", "missing": 0},
    ]
    report = validate(tiny.pin({"stimuli": stimuli, "assembly": assembly}), "tiny")
    assert report.success
    assert [(one.part, one.check, one.about, one.says) for one in report.checks] == [
        ("stimuli", "unique", "stimulus table, stimulus_id", ""),
        ("stimuli", "equal_set", "stimulus table, object_name", "values face, car"),
        ("stimuli", "files_decode", "stimulus files", "mode L; size 8, 8"),
        ("stimuli", "files_match_sha256", "stimulus files, sha256", ""),
        (
            "stimuli",
            "row_count",
            "stimulus table where object_name = face or car",
            "where object_name: face, car; low 2",
        ),
        ("stimuli", "distinct", "stimulus table, object_name", "count 2"),
        ("assembly", "dims", "assembly values", "dims presentation, neuroid"),
        (
            "assembly",
            "shape",
            "assembly dimensions",
            "sizes presentation: 12, neuroid: 2 to 5",
        ),
        ("assembly", "repetitions", "presentations by stimulus", "count 3"),
        ("assembly", "aligned", "assembly along presentation", "complete yes"),
        (
            "assembly",
            "row_count",
            "assembly along presentation where repetition = 0 or 2",
            "where repetition: 0, 2; count 8",
        ),
        (
            "assembly",
            "coords",
            "assembly coordinates",
            "coords neuroid: neuroid_id, region",
        ),
        (
            "assembly",
            "values_between",
            "range of assembly values",
            "low -100; high 100.5",
        ),
        ("assembly", "values_finite", "assembly values", ""),
    ]
    assert all(one.declared for one in report.checks)
    assert [one.check for one in report.checks if one.severity == "warning"] == [
        "distinct"
    ]


def test_expectations_that_a_spec_does_not_declare_hold_for_every_data_set(
    tiny: Tiny,
) -> None:
    declared = {
        "stimuli": EXPECTATIONS["stimuli"][:1],
        "assembly": EXPECTATIONS["assembly"][:1],
    }
    report = validate(tiny.pin(declared), "tiny")
    assert [
        (one.part, one.check, one.says) for one in report.checks if not one.declared
    ] == [
        ("stimuli", "files_exist", ""),
        ("assembly", "values_finite", ""),
        ("assembly", "aligned", ""),
    ]
    tiny.write(assembly=missing_value().assign_coords(foreign_stimulus().coords))
    wrong = validate(tiny.pin(declared), "tiny").findings
    assert [finding.where for finding in wrong] == [
        "data set tiny, assembly values",
        "data set tiny, assembly along presentation",
    ]


def test_a_violated_expectation_says_where_it_is_declared_why_and_what_to_do(
    tiny: Tiny,
) -> None:
    wrong = {
        "check": "distinct",
        "column": "object_name",
        "count": 7,
        "why": "the paper lists seven",
    }
    unknown = {"check": "units", "units": "Hz"}
    expectations = {
        "stimuli": [*EXPECTATIONS["stimuli"], wrong],
        "assembly": [*EXPECTATIONS["assembly"], unknown],
    }
    first, second = validate(tiny.pin(expectations), "tiny").findings
    assert (first.code, first.where, first.what, first.fix) == (
        "expectation.distinct",
        "data set tiny, stimulus table, object_name (expectations.stimuli[4])",
        "'object_name': 2 different values, 7 declared (the paper lists seven)",
        "correct the values; if the data are right, correct `distinct` in specs/datasets/tiny.yaml",
    )
    assert second.where.endswith("(expectations.assembly[4])")
    assert second.fix == (
        "convert the values, and set the attribute units; if the data are right, correct `units` in "
        "specs/datasets/tiny.yaml"
    )


def test_a_warning_is_reported_and_blocks_nothing(tiny: Tiny) -> None:
    expectation = {
        "check": "shape",
        "sizes": {"neuroid": 100},
        "severity": "warning",
        "why": "all of the array",
    }
    catalog = tiny.pin(with_expectation("assembly", expectation))
    report = validate(catalog, "tiny")
    [finding] = report.findings
    assert finding.severity == "warning" and "all of the array" in finding.what
    assert report.success and is_valid(catalog, "tiny")


def test_padding_is_declared_by_its_exact_number(tiny: Tiny) -> None:
    tiny.write(assembly=missing_value())
    declared = tiny.pin(
        with_expectation("assembly", {"check": "values_finite", "missing": 1})
    )
    assert validate(declared, "tiny").success
    other = tiny.pin(
        with_expectation("assembly", {"check": "values_finite", "missing": 2})
    )
    assert found(validate(other, "tiny")) == [
        "expectation.values_finite: missing values (NaN): 2 declared, found 1"
    ]


def test_private_data_are_not_quoted(tiny: Tiny) -> None:
    tiny.write(
        stimuli=table().assign(object_name=["face", "car", "face", "secret-object"])
    )
    catalog = tiny.pin(access="private")
    report = validate(catalog, "tiny")
    text = report_path(catalog.root, "tiny").read_text()
    assert not report.success
    assert "1 of 4 values of 'object_name' not among face, car" in text
    assert "secret-object" not in text and "im3" not in text


def test_pages_that_quote_values_are_refused_for_private_data(
    tiny: Tiny, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="is private"):
        validate(tiny.pin(access="private"), "tiny", data_docs=tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_private_ids_do_not_leak_through_a_reader_message(tiny: Tiny) -> None:
    tiny.write(stimuli=repeated_id())
    catalog = tiny.pin(access="private")
    [finding] = validate(catalog, "tiny").findings
    assert "im1" not in finding.what and "withheld" in finding.what


def test_data_that_cannot_be_had_are_unavailable(tiny: Tiny) -> None:
    catalog = tiny.pin(
        unavailable="the authors share it on request", files={}, reader=None
    )
    with pytest.raises(UnavailableError, match="on request"):
        validate(catalog, "tiny")


def test_the_page_of_great_expectations_is_written_on_request(
    tiny: Tiny, tmp_path: Path
) -> None:
    validate(tiny.pin(), "tiny", data_docs=tmp_path / "docs")
    assert (tmp_path / "docs" / "tiny" / "index.html").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="confinement needs Linux")
def test_an_image_that_crashes_its_decoder_is_one_finding_also_where_nothing_asks_to_decode(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    stimuli = [one for one in EXPECTATIONS["stimuli"] if one["check"] != "files_decode"]
    catalog = tiny.pin(expectations={**EXPECTATIONS, "stimuli": stimuli})

    def crash(content: bytes, name: str) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr("neuroledger.data.gate.gx_tables.decode", crash)
    report = validate(catalog, "tiny")
    assert report.stages["expectations"] == "failed"
    assert any(
        "stimuli.zip crashed the process" in words and "SIGSEGV" in words
        for words in found(report)
    )
