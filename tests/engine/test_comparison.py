"""Comparisons as text and as tables."""

from __future__ import annotations

import pytest

from neuroledger.engine.compare import Comparison, compare
from neuroledger.errors import RequestError
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score

FOUND = (
    Difference("one", 0.5, 0.25, 0.25, 0.1, 0.4, 0.0004, 0.0008, 1.234, 0.05, 30, covers="new stimuli"),
    Difference("three", reason="unavailable: lost"),
    Difference("two", 0.5, 0.6, -0.1, -0.3, 0.1, 0.2, 0.001, None, None, 12, covers="new stimuli"),
)


def test_a_comparison_has_one_line_per_benchmark_and_the_suite_last() -> None:
    suite = Difference("suite", 0.5, 0.4, 0.1, 0.0, 0.2, 0.04, 0.04)
    text = str(Comparison("ant", "bee", "vision", 3, FOUND, suite))
    expected = """\
A = ant, B = bee · suite vision, version 3

benchmark      A      B   A − B    95 % interval      p  effect  pairs  detectable  better
──────────────────────────────────────────────────────────────────────────────────────────
one        0.500  0.250   0.250   [0.100, 0.400]  8e-04    1.23     30       0.050  ant
three
two        0.500  0.600  -0.100  [-0.300, 0.100]  0.001             12              bee
suite      0.500  0.400   0.100   [0.000, 0.200]  0.040                             ant

p: two-sided, paired over the same items, corrected by Holm. effect: difference / deviation of one item.
detectable: the smallest difference that 80 % of experiments of this size detect.
Intervals and p cover new stimuli.
three: unavailable: lost"""
    assert text == expected


def test_a_comparison_on_one_benchmark_has_no_line_for_the_suite() -> None:
    text = str(Comparison("ant", "bee", "", 0, FOUND[:1], Difference("suite", 0.5, 0.25, 0.25)))
    assert text.startswith("A = ant, B = bee\n\n") and "suite" not in text


def test_a_table_has_one_row_per_benchmark_with_the_better_model() -> None:
    created = Comparison("<ant>", "bee", "vision", 3, FOUND, Difference("suite"))
    frame = created.to_frame()
    assert frame["benchmark"].tolist() == ["one", "three", "two", "suite"]
    assert frame["better"].tolist() == ["a", "", "b", ""]
    assert created.to_dict()["differences"][0]["pairs"] == 30 and created.to_dict()["version"] == 3
    page = created._repr_html_()
    assert "&lt;ant&gt;" in page and "<th>difference</th>" in page and "–" in page and "1.23" not in page
    assert "0.0008" in page and "<th></th>" not in page


def test_impossible_comparisons_are_refused_before_records_are_read() -> None:
    with pytest.raises(RequestError, match="'ant' cannot be compared with itself; name two models"):
        compare("ant", "ant")
    with pytest.raises(RequestError, match="the scores share no benchmark: A has x, y, B has z"):
        compare({"x": Score(1.0), "y": Score(1.0)}, {"z": Score(1.0)})


def test_two_scores_are_compared_under_the_id_of_the_first() -> None:
    created = compare(Score(0.75, id="first"), Score(0.5, id="second"))
    assert (created.a, created.b, created.suite, created.version) == ("A", "B", "", 0)
    assert [(item.benchmark, item.value) for item in created.differences] == [("first", 0.25)]
    assert created.overall.value == 0.25
    assert compare(Score(1.0), Score(1.0)).differences[0].benchmark == "score"
