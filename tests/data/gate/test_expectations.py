"""Every word of the vocabulary holds where it should, breaks where it should, and never passes for want of looking."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from neuroledger.data.dataset import Dataset
from neuroledger.data.gate import gx_suites as suites
from neuroledger.data.gate.expectations import Inquiry, Subject, UnaskableError, inquire
from neuroledger.data.gate.gx_queries import Answer
from neuroledger.data.gate.gx_suites import answers
from neuroledger.data.gate.gx_tables import Facts
from neuroledger.data.gate.run_expectations import REMEDIES, has_images
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.spec.expectations import Expectation, Expectations
from tests.engine.tiny_repository import IDS, image, responses, table

VOCABULARY = {
    member.model_fields["check"].annotation.__args__[0]
    for member in typing.get_args(Expectation)
}


def stimulus_set(
    rows: pd.DataFrame | None = None, files: dict[str, bytes] | None = None
) -> StimulusSet:
    held = (
        {f"{id}.png": image(i) for i, id in enumerate(IDS)} if files is None else files
    )
    return StimulusSet("tiny", table() if rows is None else rows, contents=held)


def recording() -> xr.DataArray:
    """(presentation, neuroid, time_bin) at 100 Hz, in microvolt."""
    flat = responses()
    bins = np.arange(5) * 10.0
    values = flat.to_numpy()[:, :, None] + np.arange(5.0)
    coords = {
        name: (coordinate.dims, coordinate.to_numpy())
        for name, coordinate in flat.coords.items()
    }
    coords |= {
        "time_bin_start": (("time_bin",), bins),
        "time_bin_end": (("time_bin",), bins + 10),
    }
    return xr.DataArray(
        values, dims=(*flat.dims, "time_bin"), coords=coords, attrs={"units": "uV"}
    )


def ask(
    part: str, expectation: dict[str, Any], subject: Subject | None = None
) -> list[str]:
    """What breaks: the words of every failed answer."""
    subject = subject or Subject(stimulus_set(), recording(), decoded=True)
    [compiled] = getattr(Expectations.model_validate({part: [expectation]}), part)
    inquiry = inquire(compiled, part, subject)
    [found] = answers([inquiry])
    pairs = zip(inquiry.questions, found, strict=True)
    return [
        answer.error or question.breach(answer)
        for question, answer in pairs
        if not answer.success
    ]


CASES = yaml.safe_load(
    (Path(__file__).parent / "vocabulary.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['holds']['check']}{i}" for i, case in enumerate(CASES)]
)
def test_each_check_holds_and_breaks(case: dict[str, Any]) -> None:
    assert ask(case["part"], case["holds"]) == []
    broken = {
        key: value
        for key, value in {**case["holds"], **case["change"]}.items()
        if value is not None
    }
    try:
        found = ask(case["part"], broken)
    except UnaskableError as error:
        found = [str(error)]
    assert any(text.startswith(case["words"]) for text in found), found


def test_combinations_that_repeat() -> None:
    same = recording().assign_coords(repetition=("presentation", np.zeros(12)))
    together = {"check": "unique_together", "columns": ["stimulus_id", "repetition"]}
    assert ask("assembly", together) == []
    [words] = ask("assembly", together, Subject(None, same))
    assert words.startswith("12 of 12 rows share their stimulus_id and repetition: im0")


def test_alignment_both_ways() -> None:
    more = pd.concat([table(), table().iloc[:1].assign(stimulus_id="im7")])
    subject = Subject(stimulus_set(more), recording())
    assert ask("assembly", {"check": "aligned"}, subject) == []
    assert ask("assembly", {"check": "aligned", "complete": True}, subject) == [
        "stimuli of the table that were never presented: im7"
    ]
    fewer = Subject(stimulus_set(table().iloc[:3]), recording())
    words = (
        "3 of 12 presentations of stimuli that the stimulus table does not have: im3"
    )
    assert ask("assembly", {"check": "aligned"}, fewer) == [words]


def test_a_presentation_of_several_stimuli_is_aligned_if_the_table_has_each() -> None:
    ids = recording()["stimulus_id"].values.astype(object)
    for said, broken in (
        ("im0|im2", []),
        ("im0|im9", ["1 of 12"]),
        ("im0im2", ["1 of 12"]),
    ):
        ids[0] = said
        shown = recording().assign_coords(stimulus_id=("presentation", ids.astype(str)))
        found = ask("assembly", {"check": "aligned"}, Subject(stimulus_set(), shown))
        assert [words[:7] for words in found] == broken, said


def test_ids_that_are_numbers_on_one_side_and_text_on_the_other_are_the_same() -> None:
    numbered = recording().assign_coords(
        stimulus_id=("presentation", np.tile(np.arange(4), 3))
    )
    rows = table().assign(stimulus_id=["0", "1", "2", "3"])
    assert (
        ask(
            "assembly",
            {"check": "aligned", "complete": True},
            Subject(stimulus_set(rows), numbered),
        )
        == []
    )


@pytest.mark.parametrize(
    "ending",
    [
        "png",
        "jpg",
        "jpeg",
        "bmp",
        "gif",
        "tif",
        "tiff",
        "webp",
        "ppm",
        "PNG",
        "Tiff",
        "txt",
        "pngx",
    ],
)
def test_files_that_are_named_as_images_are_decoded_whatever_is_declared(
    ending: str,
) -> None:
    rows = table().assign(
        filename=[*table()["filename"][:-1].str.replace("png", "wav"), f"last.{ending}"]
    )
    assert has_images(Dataset(stimulus_set(rows), None)) is (
        ending not in {"txt", "pngx"}
    )
    assert (
        has_images(Dataset(None, None))
        is has_images(Dataset(stimulus_set(rows[["stimulus_id"]]), None))
        is False
    )


def test_a_site_that_never_changes() -> None:
    dead = recording()
    dead[:, 1] = 0.5
    words = "1 of 3 positions along neuroid with a constant value: b"
    assert ask("assembly", {"check": "values_vary"}, Subject(None, dead)) == [words]


def test_nothing_but_missing_values_is_not_in_range() -> None:
    empty = Subject(None, recording() * np.nan)
    assert ask("assembly", {"check": "values_between", "low": 0}, empty) != []
    assert ask("assembly", {"check": "values_vary"}, empty) != []


def test_units_by_site() -> None:
    mixed = recording().assign_coords(units=("neuroid", ["uV", "uV", "mV"]))
    assert ask("assembly", {"check": "units", "units": "uV"}, Subject(None, mixed)) == [
        "units: uV declared, found mV"
    ]


def test_sampling_rate_of_uneven_steps_and_without_time() -> None:
    uneven = recording().assign_coords(
        time_bin_start=("time_bin", [0.0, 10, 20, 35, 45])
    )
    assert ask(
        "assembly", {"check": "sampling_rate", "hz": 100}, Subject(None, uneven)
    ) == ["1 of 4 time steps not of 100 Hz: 66.6667"]
    assert (
        ask(
            "assembly",
            {"check": "sampling_rate", "hz": 100},
            Subject(None, responses()),
        )
        != []
    )
    stated = responses().assign_attrs(sampling_rate=100.0)
    assert (
        ask("assembly", {"check": "sampling_rate", "hz": 100}, Subject(None, stated))
        == []
    )


def test_a_coordinate_with_a_missing_value_is_not_complete() -> None:
    holes = recording().assign_coords(region=("neuroid", ["V4", "", "IT"]))
    [words] = ask(
        "assembly",
        {"check": "coords", "coords": {"neuroid": ["region"]}},
        Subject(None, holes),
    )
    assert (
        words
        == f"1 of {len(holes.coords)} coordinates with missing values: region along neuroid"
    )


def test_damaged_missing_and_wrong_files() -> None:
    files = {
        "im0.png": image(0),
        "im1.png": image(1)[:40],
        "im2.png": b"",
        "im3.png": b"not an image",
    }
    subject = Subject(stimulus_set(files=files), None, decoded=True)
    assert ask("stimuli", {"check": "files_exist"}, subject) == [
        "1 of 4 files missing or empty: im2"
    ]
    [words] = ask("stimuli", {"check": "files_decode"}, subject)
    assert words.startswith("3 of 4 images not decodable: im1, im2, im3 (")
    del files["im0.png"]
    gone = Subject(stimulus_set(files=files), None, decoded=True)
    assert "2 of 4 files missing or empty: im0, im2" in ask(
        "stimuli", {"check": "files_match_sha256"}, gone
    )


COLUMN_CHECKS: list[dict[str, Any]] = [
    {"check": "unique"},
    {"check": "not_null"},
    {"check": "in_set", "values": ["p", "q", "r"]},
    {"check": "equal_set", "values": ["p", "q"]},
    {"check": "matches", "pattern": "[pqr]"},
    {"check": "distinct", "count": 2},
]


@pytest.mark.parametrize(
    "check", COLUMN_CHECKS, ids=[check["check"] for check in COLUMN_CHECKS]
)
@pytest.mark.parametrize("nothing", [None, np.nan, ""])
def test_a_missing_value_breaks_every_check_of_a_column(
    check: dict[str, Any], nothing: Any
) -> None:
    rows = table().iloc[:3].assign(letter=["p", "q", nothing])
    found = ask(
        "stimuli", {**check, "column": "letter"}, Subject(stimulus_set(rows), None)
    )
    assert "'letter': 1 of 3 values missing: im2" in found


@settings(max_examples=15, deadline=None)
@given(
    values=st.lists(
        st.sampled_from([0.0, 1.0, 2.0, 5.0, np.nan]), min_size=1, max_size=6
    )
)
def test_between_agrees_with_its_definition(values: list[float]) -> None:
    rows = pd.DataFrame(
        {"stimulus_id": [f"s{i}" for i in range(len(values))], "x": values}
    )
    found = ask(
        "stimuli",
        {"check": "between", "column": "x", "low": 1, "high": 2},
        Subject(stimulus_set(rows)),
    )
    assert (found == []) == all(1 <= value <= 2 for value in values)


def test_vacuous_passes_of_great_expectations_are_failures() -> None:
    found = ask("stimuli", {"check": "between", "column": "object_name", "low": 0})
    assert len(found) == 1 and found[0].startswith(
        "Great Expectations could not decide the expectation ("
    )


def test_no_expectation_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="empty suite would pass"):
        answers([])


def test_an_empty_table_is_not_a_pass() -> None:
    [compiled] = Expectations.model_validate(
        {"stimuli": [{"check": "unique", "column": "stimulus_id"}]}
    ).stimuli
    inquiry = inquire(compiled, "stimuli", Subject(stimulus_set()))
    nothing = Inquiry(Facts("empty", inquiry.facts.rows.iloc[:0]), inquiry.questions)
    assert [answer.success for answer in answers([nothing])[0]] == [False, False]


def test_a_result_that_does_not_come_back_is_a_failure() -> None:
    [compiled] = Expectations.model_validate(
        {"stimuli": [{"check": "files_exist"}]}
    ).stimuli
    inquiry = inquire(compiled, "stimuli", Subject(stimulus_set()))
    lost: Answer = suites.answer_of(
        None, inquiry.questions[0], inquiry.facts, private=False
    )
    assert not lost.success and lost.error == "Great Expectations returned no result"


def test_private_answers_hold_counts_and_no_values() -> None:
    [compiled] = Expectations.model_validate(
        {"stimuli": [{"check": "unique", "column": "object_name"}]}
    ).stimuli
    inquiry = inquire(compiled, "stimuli", Subject(stimulus_set()))
    [[_, answer]] = answers([inquiry], private=True)
    assert (answer.breaches, answer.values, answer.rows) == (4, (), ())


def test_every_word_of_the_vocabulary_is_tried_here() -> None:
    tried = {case["holds"]["check"] for case in CASES} | {
        check["check"] for check in COLUMN_CHECKS
    }
    assert tried | {"aligned"} >= VOCABULARY


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"check": "between", "column": "x"}, "without a bound nothing is checked"),
        (
            {"check": "between", "column": "x", "low": 2, "high": 1},
            "low \\(2.0\\) is above high",
        ),
        (
            {"check": "matches", "column": "x", "pattern": "("},
            "not a regular expression",
        ),
        ({"check": "in_set", "column": "x", "values": []}, "at least 1 item"),
        ({"check": "row_count", "count": 1, "low": 2}, "either `count`, or"),
        ({"check": "row_count"}, "without a bound"),
        ({"check": "unik", "column": "x"}, "does not match any of the expected tags"),
        ({"check": "unique", "colum": "x"}, "Extra inputs are not permitted"),
        (
            {"check": "dims", "dims": ["presentation"]},
            "does not match any of the expected tags",
        ),
    ],
)
def test_expectations_that_would_check_nothing_are_refused(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(Expectations).validate_python({"stimuli": [wrong]})


def test_advice_is_only_given_for_words_of_the_vocabulary() -> None:
    assert set(REMEDIES) < VOCABULARY


def test_every_word_and_field_is_in_the_manual(repository: Path) -> None:
    text = (repository / "docs" / "validation.md").read_text(encoding="utf-8")
    for member in typing.get_args(Expectation):
        [row] = [
            line
            for line in text.splitlines()
            if line.startswith(
                f"| `{member.model_fields['check'].annotation.__args__[0]}` |"
            )
        ]
        for field in set(member.model_fields) - {"check", "severity", "why", "where"}:
            assert f"`{field}`" in row, row


def test_the_examples_in_the_manual_are_valid(repository: Path) -> None:
    text = (repository / "docs" / "validation.md").read_text(encoding="utf-8")
    [block] = [part.split("```")[0] for part in text.split("```yaml\n")[1:]]
    found = Expectations.model_validate(yaml.safe_load(block)["expectations"])
    assert len(found.stimuli) == 3 and found.assembly[2].severity == "warning"
