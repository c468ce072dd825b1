"""Comparisons as text and as tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neuroledger.engine import compare as module
from neuroledger.engine.compare import Comparison, compare
from neuroledger.engine.record import record_path
from neuroledger.errors import MetricError, RequestError
from neuroledger.stats.differences import Difference
from neuroledger.stats.score import Score
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab
from tests.report.ledger import altered, keep, ledger, record, with_score
from tests.varying import of_items

FOUND = (
    Difference(
        "one",
        0.5,
        0.25,
        0.25,
        0.1,
        0.4,
        0.0004,
        0.0008,
        1.234,
        0.05,
        30,
        covers="new stimuli",
    ),
    Difference("three", reason="unavailable: lost"),
    Difference(
        "two",
        0.5,
        0.6,
        -0.1,
        -0.3,
        0.1,
        0.2,
        0.001,
        None,
        None,
        12,
        covers="new stimuli",
    ),
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
    text = str(
        Comparison("ant", "bee", "", 0, FOUND[:1], Difference("suite", 0.5, 0.25, 0.25))
    )
    assert text.startswith("A = ant, B = bee\n\n") and "suite" not in text


def test_a_table_has_one_row_per_benchmark_with_the_better_model() -> None:
    created = Comparison("<ant>", "bee", "vision", 3, FOUND, Difference("suite"))
    frame = created.to_frame()
    assert frame["benchmark"].tolist() == ["one", "three", "two", "suite"]
    assert frame["better"].tolist() == ["a", "", "b", ""]
    assert (
        created.to_dict()["differences"][0]["pairs"] == 30
        and created.to_dict()["version"] == 3
    )
    page = created._repr_html_()
    assert (
        "&lt;ant&gt;" in page
        and "<th>difference</th>" in page
        and "–" in page
        and "1.23" not in page
    )
    assert "0.0008" in page and "<th></th>" not in page


def test_impossible_comparisons_are_refused_before_records_are_read() -> None:
    with pytest.raises(
        RequestError, match="'ant' cannot be compared with itself; name two models"
    ):
        compare("ant", "ant")
    with pytest.raises(
        RequestError, match="the scores share no benchmark: A has x, y, B has z"
    ):
        compare({"x": Score(1.0), "y": Score(1.0)}, {"z": Score(1.0)})


def test_two_scores_are_compared_under_the_id_of_the_first() -> None:
    created = compare(Score(0.75, id="first"), Score(0.5, id="second"))
    assert (created.a, created.b, created.suite, created.version) == ("A", "B", "", 0)
    assert [(item.benchmark, item.value) for item in created.differences] == [
        ("first", 0.25)
    ]
    assert created.overall.value == 0.25
    assert compare(Score(1.0), Score(1.0)).differences[0].benchmark == "score"


@pytest.fixture
def shelf(tmp_path: Path, repository: Path) -> Lab:
    """A repository with records of two models, without intervals, on both benchmarks of its suite."""
    lab = ledger(tmp_path / "lab", repository)
    (lab.root / "params.yaml").write_text("suite: lab\n")
    scores = {"lab.V4-ridge": (0.5, 0.25), "lab.V4-pls": (0.75, 0.25)}
    for benchmark, values in scores.items():
        for model, value in zip(("ant", "bee"), values, strict=True):
            keep(lab.open(), record(model, benchmark, value, half=None))
    return lab


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, int]]:
    """Scores of 0.125 for every model that is scored now; each is listed with its benchmark and seed."""
    calls: list[tuple[str, Any, int]] = []

    def evaluate(session: Any, spec: Any, model: Any, *, controls: bool) -> Any:
        assert not controls
        calls.append((spec.id, model, session.request.seed))
        return SimpleNamespace(headline=Score(0.125, scale="correlation"))

    monkeypatch.setattr(module, "evaluate", evaluate)
    return calls


def test_records_are_compared_on_the_suite_of_the_repository_with_its_weights(
    shelf: Lab, scored: list[Any]
) -> None:
    created = compare("ant", "bee", catalog=shelf.open(), tell=pytest.fail)
    assert (created.a, created.b, created.suite, created.version) == (
        "ant",
        "bee",
        "lab",
        1,
    )
    assert [(item.benchmark, item.value) for item in created.differences] == [
        ("lab.V4-ridge", 0.25), ("lab.V4-pls", 0.5),
    ]  # fmt: skip
    assert created.overall.value == pytest.approx((0.25 + 3 * 0.5) / 4) and scored == []
    assert (
        compare("ant", "bee", suite="lab", catalog=shelf.open()).overall.value
        == created.overall.value
    )


def test_one_benchmark_is_compared_as_a_suite_of_its_own(shelf: Lab) -> None:
    created = compare("ant", "bee", benchmark="lab.V4-pls", catalog=shelf.open())
    assert (created.suite, created.version) == ("lab.V4-pls", 1)
    assert [item.value for item in created.differences] == [
        0.5
    ] and created.overall.value == 0.5
    with pytest.raises(RequestError, match=r"^name a suite or a benchmark, not both$"):
        compare("ant", "bee", suite="lab", benchmark="lab.V4-pls", catalog=shelf.open())
    with pytest.raises(RequestError, match=r"did you mean 'lab\.V4-pls'"):
        compare("ant", "bee", benchmark="lab.V4-psl", catalog=shelf.open())


def test_a_suite_of_one_benchmark_has_the_interval_of_its_difference() -> None:
    rng = np.random.default_rng(2)
    first, second = (rng.normal(mean, 0.2, 30) for mean in (0.7, 0.4))
    a, b = (
        Score(
            float(each.mean()),
            scale="fraction",
            id="one",
            varies=of_items(each, scale="logit"),
        )
        for each in (first, second)
    )
    created = compare(a, b)
    alone = created.differences[0]
    assert (created.overall.low, created.overall.high, created.overall.p) == (
        alone.low,
        alone.high,
        alone.p,
    )
    assert alone.low is not None and alone.p is not None and alone.pairs == 30
    by_pair = first - second
    assert alone.low == pytest.approx(
        by_pair.mean() - 2.04523 * by_pair.std(ddof=1) / np.sqrt(30), rel=1e-5
    ), (
        "Student's interval of the mean of paired differences, with 29 degrees of freedom"
    )


def test_scores_are_compared_on_their_own_benchmarks(shelf: Lab) -> None:
    mine = Score(0.625, scale="correlation")
    for scores in ({"lab.V4-pls": mine}, {"lab.V4-pls": mine, "lab.V4-ridge": mine}):
        created = compare(scores, "bee", catalog=shelf.open())
        assert {
            item.benchmark: item.value for item in created.differences
        } == dict.fromkeys(scores, 0.375)
        assert (created.a, created.b) == ("A", "bee")
    turned = compare("bee", mine, benchmark="lab.V4-ridge", catalog=shelf.open())
    assert turned.differences[0].value == -0.375 and turned.b == "B"
    words = r"^the benchmark of the Score is unknown; name it with `benchmark=…`$"
    with pytest.raises(RequestError, match=words):
        compare("ant", mine, catalog=shelf.open())


def test_models_in_memory_are_scored_with_the_seed_of_the_record_of_the_other(
    shelf: Lab, scored: list[Any]
) -> None:
    model: Any = SimpleNamespace(
        id="mine", takes=frozenset(), gives=frozenset(), answer=print
    )
    created = compare("ant", model, benchmark="lab.V4-ridge", catalog=shelf.open())
    assert created.b == "mine" and created.differences[0].value == 0.375
    assert scored == [("lab.V4-ridge", model, 0)]
    seeded = {"seed": 6, "limit": None, "device": "cpu"}
    keep(shelf.open(), record("ant", "lab.V4-ridge", 0.5, half=None, request=seeded))
    compare("ant", model, benchmark="lab.V4-ridge", catalog=shelf.open())
    assert scored[1:] == [("lab.V4-ridge", model, 6)]
    [item] = compare(
        "ant", "bee", benchmark="lab.V4-ridge", catalog=shelf.open()
    ).differences
    assert (
        item.value is None
        and item.reason == "records with seeds 0 and 6 cannot be paired; rerun one"
    )


def test_records_that_store_no_deviations_by_item_are_scored_again_with_a_message(
    shelf: Lab, scored: list[Any]
) -> None:
    keep(shelf.open(), record("bee", "lab.V4-ridge", 0.25))
    lines: list[str] = []
    created = compare(
        "ant", "bee", benchmark="lab.V4-ridge", catalog=shelf.open(), tell=lines.append
    )
    assert created.differences[0].value == 0.375 and scored == [
        ("lab.V4-ridge", "bee", 0)
    ]
    assert lines == [
        "lab.V4-ridge: the record of bee lacks the variation of the score; scored again"
    ]
    keep(shelf.open(), record("ant", "lab.V4-ridge", 0.5))
    compare(
        "ant", "bee", benchmark="lab.V4-ridge", catalog=shelf.open(), tell=lines.append
    )
    assert (
        lines[1]
        == "lab.V4-ridge: the record of ant and bee lacks the variation of the score; scored again"
    )


def test_a_record_of_private_data_is_scored_again_and_one_with_deviations_is_not(
    shelf: Lab, scored: list[Any]
) -> None:
    known = of_items(np.linspace(0.0, 1.0, 12))
    by_item, summed = (
        StoredUncertainty.of(known, summed=private) for private in (False, True)
    )
    for kept, calls in ((by_item, 0), (summed, 2)):
        for model in ("ant", "bee"):
            content = record(model, "lab.V4-ridge", 0.5)
            keep(shelf.open(), with_score(content, uncertainty=kept))
        created = compare("ant", "bee", benchmark="lab.V4-ridge", catalog=shelf.open())
        assert len(scored) == calls
        if not calls:
            assert created.differences[0].p == 1.0, (
                "the same deviations of the same items"
            )


def test_benchmarks_that_cannot_be_compared_have_a_reason_and_no_part_in_the_suite(
    shelf: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason() -> str:
        created = compare("ant", "bee", catalog=shelf.open())
        first, second = created.differences
        assert first.value is None and second.value == created.overall.value == 0.5
        return str(first.reason)

    keep(shelf.open(), record("bee", "lab.V4-ridge", None))
    assert (
        reason()
        == "the record of bee on lab.V4-ridge is failed: it cannot be compared; run it again"
    )
    keep(shelf.open(), record("bee", "lab.V4-ridge", 0.25, half=None))
    path = record_path(shelf.root, "lab.V4-ridge", "bee")
    path.write_text(path.read_text().replace("0.25", "0.26"))
    assert (
        reason()
        == "the record of bee on lab.V4-ridge is edited: it cannot be compared; run it again"
    )
    path.unlink()
    words = "bee has no record on lab.V4-ridge; run `neuroledger run bee --benchmark lab.V4-ridge`"
    assert reason() == words
    shelf.benchmark("lab.V4-ridge", unavailable="the data are withdrawn")
    assert reason() == "unavailable: the data are withdrawn"
    (shelf.root / "results" / "records" / "lab.V4-pls" / "ant.json").unlink()
    none = compare("ant", "bee", catalog=shelf.open()).overall
    assert (
        none.value is None and none.reason == "no benchmark on which both were scored"
    )


def test_scores_in_which_lower_is_better_or_without_a_common_scale_have_no_part_in_the_suite(
    shelf: Lab,
) -> None:
    for fields in ({"direction": "lower"}, {"scale": "bits"}):
        scores = {
            "lab.V4-ridge": Score(0.5, scale="correlation"),
            "lab.V4-pls": Score(9.0, **fields),
        }
        other = {
            "lab.V4-ridge": Score(0.25, scale="correlation"),
            "lab.V4-pls": Score(1.0, **fields),
        }
        assert compare(scores, other).overall.value == 0.25, (
            "the same rule without a suite"
        )
        for benchmark in scores:
            for model, plain in (("ant", scores), ("bee", other)):
                content = record(model, benchmark, 0.5, half=None)
                values = {
                    "value": plain[benchmark].value,
                    "scale": plain[benchmark].scale,
                }
                values["direction"] = plain[benchmark].direction
                content = with_score(content, **values)
                keep(shelf.open(), altered(content, scores={"ridge": content.score}))
        created = compare("ant", "bee", catalog=shelf.open())
        assert [item.value for item in created.differences] == [
            0.25,
            8.0,
        ] and created.overall.value == 0.25


def test_the_mean_of_scores_in_memory_leaves_out_what_cannot_be_averaged() -> None:
    first = {"r": Score(0.5), "ms": Score(20.0, scale="seconds", direction="lower")}
    second = {"r": Score(0.4), "ms": Score(10.0, scale="seconds", direction="lower")}
    overall = compare(first, second).overall
    assert (overall.a, overall.b, overall.value) == (0.5, 0.4, pytest.approx(0.1))
    alone = compare(first["ms"], second["ms"]).overall
    assert (alone.a, alone.b) == (20.0, 10.0)


def test_an_error_while_a_model_is_scored_is_the_reason(
    shelf: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(*given: Any, **options: Any) -> Any:
        raise MetricError("the target is constant")

    monkeypatch.setattr(module, "evaluate", evaluate)
    model: Any = SimpleNamespace(
        id="", takes=frozenset(), gives=frozenset(), answer=print
    )
    created = compare(model, "bee", benchmark="lab.V4-ridge", catalog=shelf.open())
    assert (
        created.a == "A" and created.differences[0].reason == "the target is constant"
    )


def test_an_undefined_score_in_a_record_is_not_compared(shelf: Lab) -> None:
    content = record("bee", "lab.V4-ridge", 0.25, half=None)
    content = with_score(content, value=None)
    keep(shelf.open(), altered(content, scores={"ridge": content.score}))
    [item] = compare(
        "ant", "bee", benchmark="lab.V4-ridge", catalog=shelf.open()
    ).differences
    assert item.value is None
    assert (
        item.reason
        == "the score of bee on lab.V4-ridge is undefined and cannot be compared"
    )


def test_benchmarks_that_no_suite_lists_can_be_compared(shelf: Lab) -> None:
    shelf.spec("suites", "lab", benchmarks=["lab.V4-ridge"])
    shelf.dataset(
        files={
            name: pin | {"dvc": True, "url": None} for name, pin in shelf.pins().items()
        }
    )
    created = compare("ant", "bee", suite="unlisted", catalog=shelf.open())
    assert [(item.benchmark, item.value) for item in created.differences] == [
        ("lab.V4-pls", 0.5)
    ]


def test_a_score_is_compared_with_the_score_of_its_benchmark_among_several() -> None:
    several = {"x": Score(0.25), "y": Score(0.125)}
    created = compare(Score(0.75, id="y"), several)
    assert [(item.benchmark, item.value) for item in created.differences] == [
        ("y", 0.625)
    ]
    with pytest.raises(
        RequestError, match=r"^the scores share no benchmark: A has z, B has x, y$"
    ):
        compare(Score(0.75, id="z"), several)


@pytest.mark.parametrize(
    ("family", "families"), [("suite", ["", ""]), ("parent", ["V4", "V4"])]
)
def test_p_is_corrected_within_the_families_that_the_suite_declares(
    shelf: Lab, monkeypatch: pytest.MonkeyPatch, family: str, families: list[str]
) -> None:
    asked: list[Any] = []
    corrected = module.corrected
    monkeypatch.setattr(
        module,
        "corrected",
        lambda found, by: asked.append(list(by)) or corrected(found, by),
    )
    shelf.spec(
        "suites", "lab", benchmarks=["lab.V4-ridge", "lab.V4-pls"], family=family
    )
    compare("ant", "bee", catalog=shelf.open())
    assert asked == [families]


def test_what_is_no_model_and_an_empty_table_are_refused_with_the_reason() -> None:
    for given, words in (
        ({}, "an empty dict: no benchmark was scored, so there is nothing to compare"),
        (object(), "object is not a model: pass the id of a model"),
    ):
        subject: Any = given
        for pair in ((subject, "ant"), ("ant", subject)):
            with pytest.raises(RequestError, match=rf"^{words}"):
                compare(*pair)
