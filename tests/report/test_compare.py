"""Differences are paired over shared items and corrected for the number of tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import neuroledger as nl
from neuroledger.data.gate.validate import validate
from neuroledger.display import NoDisplay
from neuroledger.engine.compare import compare
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import plan
from neuroledger.engine.record import read_record, record_path, write_record
from neuroledger.engine.resolve import model_of
from neuroledger.engine.run import run
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError
from neuroledger.stats.differences import Difference, corrected, difference
from neuroledger.stats.score import Score
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab
from tests.report.ledger import with_score
from tests.varying import mean_score as scored


def test_interval_p_and_effect_agree_with_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(0.5, 1.0, 40)
    a, b = common + rng.normal(0.1, 0.1, 40), common + rng.normal(0.0, 0.1, 40)
    found = difference("x", scored(a), scored(b))
    test = stats.ttest_rel(a, b)
    low, high = test.confidence_interval()
    assert found.value == pytest.approx((a - b).mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)
    assert np.log(found.p) == pytest.approx(np.log(test.pvalue), rel=0.15)
    assert found.effect * np.sqrt(40) == pytest.approx(test.statistic, rel=0.1)
    assert found.pairs == 40 and found.covers == "new stimuli"
    error = (a - b).std(ddof=1) / np.sqrt(40)
    assert found.detectable == pytest.approx(
        (stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)) * error, rel=0.1
    )


def test_p_can_be_small_enough_for_any_correction() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, 50)
    found = difference("x", scored(values + rng.normal(1, 0.1, 50)), scored(values))
    assert found.p < 1e-12
    assert (
        corrected([found, *[Difference(f"{i}", p=0.9) for i in range(25)]])[0].better
        == "a"
    )


def test_equal_models_do_not_differ() -> None:
    values = np.random.default_rng(1).normal(size=20)
    found = difference("x", scored(values), scored(values))
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1.0)
    assert found.effect is None and found.better == ""


def test_p_is_uniform_for_equal_models() -> None:
    rng = np.random.default_rng(2)
    found = [
        difference("x", scored(rng.normal(size=30)), scored(rng.normal(size=30))).p
        for _ in range(400)
    ]
    assert 0.025 < np.mean(np.array(found) < 0.05) < 0.08
    assert stats.kstest(found, "uniform").pvalue > 1e-3


def test_scores_of_other_items_are_not_paired() -> None:
    rng = np.random.default_rng(3)
    common = rng.normal(0, 1, 100)
    a, b = common + 0.1, common + rng.normal(0, 0.05, 100)
    assert difference("x", scored(a), scored(b)).better == ""  # not yet corrected
    assert corrected([difference("x", scored(a), scored(b))])[0].better == "a"
    assert (
        corrected([difference("x", scored(a, "one"), scored(b, "other"))])[0].better
        == ""
    )


def test_holm_correction_within_declared_families() -> None:
    given = [
        Difference("a", p=0.01),
        Difference("b", reason="failed"),
        Difference("c", p=0.04),
        Difference("d", p=0.03),
    ]
    found = [each.p_corrected for each in corrected(given)]
    assert found[1] is None
    assert [found[i] for i in (0, 2, 3)] == pytest.approx([0.03, 0.06, 0.06])
    apart = [each.p_corrected for each in corrected(given, ["V4", "V4", "IT", "IT"])]
    assert [apart[i] for i in (0, 2, 3)] == pytest.approx([0.01, 0.06, 0.06])
    assert corrected([]) == ()


def test_the_direction_of_a_metric_is_respected() -> None:
    assert (
        Difference("x", value=-1.0, p_corrected=0.01, direction="lower").better == "a"
    )
    assert Difference("x", value=-1.0, p_corrected=0.01).better == "b"
    assert Difference("x", value=-1.0, p_corrected=0.2).better == ""


def test_scores_without_an_interval_say_so() -> None:
    found = difference("x", Score(0.1), Score(0.2))
    assert (
        found.low is None
        and found.value == pytest.approx(-0.1)
        and "no interval" in found.reason
    )


def test_scores_of_two_scales_have_no_common_mean() -> None:
    a, b = (scored(np.random.default_rng(seed).normal(size=30)) for seed in (0, 1))
    other = b.replace(scale="similarity")
    for first, second in ((a, other), ({"x": a, "y": a}, {"x": other, "y": b})):
        found = nl.compare(first, second)
        assert (
            "not comparable" in found.differences[0].reason
            and found.differences[0].p is None
        )
        expected = nl.compare(a, b).overall if isinstance(first, dict) else None
        assert found.overall.p == (None if expected is None else expected.p)
        assert found.overall.value == (None if expected is None else expected.value)


def test_a_benchmark_cannot_be_named_for_scores() -> None:
    a, b = (scored(np.random.default_rng(seed).normal(size=30)) for seed in (0, 1))
    for named in ({"benchmark": "x"}, {"suite": "core"}):
        with pytest.raises(RequestError, match="omit `suite` and `benchmark`"):
            nl.compare({"x": a, "y": a}, {"x": b, "y": b}, **named)


def test_scores_and_mappings_of_scores_are_compared_without_a_repository() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, 60)
    a, b = scored(values + rng.normal(0.5, 0.2, 60)), scored(values)
    assert nl.compare(a, b).differences[0].better == "a"
    both = nl.compare({"x": a, "y": b, "z": a}, {"x": b, "y": b})
    assert [each.benchmark for each in both.differences] == ["x", "y"]
    assert [each.better for each in both.differences] == ["a", ""]
    assert both.overall.value == pytest.approx((a.value - b.value) / 2)
    assert "detectable" in str(both) and "cover new stimuli" in str(both)
    with pytest.raises(RequestError, match="share no benchmark"):
        nl.compare({"x": a}, {"y": b})


@pytest.fixture
def run_lab(lab: Lab) -> Lab:
    """Score two models: one with the pixels that drive the neurons, and one with two by two of them."""
    lab.spec("models", "coarse", builder={"name": "pixels", "size": 2})
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 4})
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4", "coarse"])
    catalog = lab.open()
    validate(catalog, "lab")
    run(
        catalog,
        plan(catalog, suites=[catalog.suite("lab")], request=Request()).jobs,
        Request(),
        NoDisplay(),
    )
    return lab


def test_two_models_end_to_end_by_id_in_memory_and_as_scores(run_lab: Lab) -> None:
    catalog = run_lab.open()
    kept = compare("pixels4", "coarse", catalog=catalog, tell=pytest.fail)
    [found] = kept.differences
    assert found.better == "a" and found.covers == "new stimuli and new neuroids"
    assert found.low is not None and 0 < found.low < (found.value or 0) < (
        found.high or 0
    )
    turned = compare("coarse", "pixels4", catalog=catalog)
    assert turned.differences[0].value == pytest.approx(-(found.value or 0))
    assert turned.overall.better == "b"
    assert "A = pixels4, B = coarse" in str(kept) and "lab.V4-ridge" in str(kept)
    session = Session(catalog, Request())
    model = model_of(session, "coarse")
    [again] = compare(
        "pixels4", model, benchmark="lab.V4-ridge", catalog=catalog
    ).differences
    assert again.value == pytest.approx(found.value, abs=1e-9)
    assert (again.low, again.high) == pytest.approx((found.low, found.high), rel=0.01)
    score = evaluate(
        session, catalog.benchmark("lab.V4-ridge"), model, controls=False
    ).headline
    [given] = compare("pixels4", {"lab.V4-ridge": score}, catalog=catalog).differences
    assert given.p == pytest.approx(again.p)


@pytest.mark.parametrize("private", [False, True])
def test_records_without_deviations_by_item_are_scored_again(
    run_lab: Lab, private: bool
) -> None:
    """Those of earlier records store none; those of private data store their sum of squares only."""
    catalog = run_lab.open()
    [found] = compare("pixels4", "coarse", catalog=catalog).differences
    for model in ("pixels4", "coarse"):
        path = record_path(catalog.root, "lab.V4-ridge", model)
        old = read_record(path)
        uncertainty = old.as_score().uncertainty
        assert uncertainty is not None
        summed = StoredUncertainty.of(uncertainty, summed=True) if private else None
        write_record(path, with_score(old, uncertainty=summed))
    told: list[str] = []
    [again] = compare(
        "pixels4", "coarse", catalog=catalog, tell=told.append
    ).differences
    assert len(told) == 1 and "pixels4 and coarse" in told[0]
    assert again.value == pytest.approx(found.value, abs=1e-9)
    assert again.low == pytest.approx(found.low, rel=0.01)


def test_invalid_comparisons_are_refused_with_a_reason(run_lab: Lab) -> None:
    catalog = run_lab.open()
    [missing] = compare("pixels4", "ant", catalog=catalog).differences
    assert missing.value is None
    assert (
        missing.reason
        == "ant has no record on lab.V4-ridge; run `neuroledger run ant --benchmark lab.V4-ridge`"
    )
    with pytest.raises(RequestError, match="with itself"):
        compare("pixels4", "pixels4", catalog=catalog)
    with pytest.raises(RequestError, match="did you mean 'pixels4'"):
        compare("pixels5", "coarse", catalog=catalog)
