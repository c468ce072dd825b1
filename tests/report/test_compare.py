"""Differences are paired over shared samples, corrected for how many were tested, and honest when there are none."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from neuroledger.data.gate.validate import validate
from neuroledger.display import NoDisplay
from neuroledger.engine.plan import plan
from neuroledger.engine.run import run
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, RequestError
from neuroledger.report.compare import Difference, _corrected, _shared, compare, difference
from neuroledger.stats.score import Score
from tests.engine.lab import Lab


def samples(values: np.ndarray, names: list[str] | None = None) -> xr.DataArray:
    ids = names or [f"n{i}" for i in range(values.shape[1])]
    return xr.DataArray(values, dims=("split", "neuroid"), coords={"neuroid_id": ("neuroid", ids)})


def scored(values: np.ndarray, draws: np.ndarray | None) -> Score:
    return Score(float(np.mean(values)), scale="correlation", samples=samples(values), replicates=draws)


def test_interval_p_and_effect_agree_with_their_definitions() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 0.1, (3, 40)), rng.normal(0.4, 0.1, (3, 40))
    draws_a, draws_b = rng.normal(0.5, 0.01, 999), rng.normal(0.4, 0.01, 999)
    found, draws = difference("x", scored(a, draws_a), scored(b, draws_b))
    assert found.value == pytest.approx(a.mean() - b.mean())
    assert [found.low, found.high] == pytest.approx(np.quantile(draws_a - draws_b, [0.025, 0.975]))
    assert found.p == pytest.approx(2 * 1 / 1000)
    each = (a - b).mean(axis=0)
    assert found.pairs == 40
    # The effect is what a paired t statistic is made of: t = effect · √n.
    assert found.effect * np.sqrt(40) == pytest.approx(stats.ttest_1samp(each, 0).statistic)
    assert draws.shape == (999,)


def test_equal_models_do_not_differ() -> None:
    rng = np.random.default_rng(1)
    values, draws = rng.normal(size=(3, 20)), rng.normal(size=500)
    found, _ = difference("x", scored(values, draws), scored(values, draws))
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1.0)
    assert found.effect is None and found.better == ""


def test_p_is_uniform_when_nothing_differs() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(300):
        each = rng.normal(size=30)
        draws = each[rng.integers(0, 30, (400, 30))].mean(axis=1)
        zero = scored(np.zeros((1, 30)), np.zeros(400))
        found.append(difference("x", scored(each[None], draws), zero)[0].p)
    assert 0.01 < np.mean(np.array(found) < 0.05) < 0.13
    assert stats.kstest(found, "uniform").pvalue > 1e-4


def test_holm_over_the_benchmarks_that_were_tested() -> None:
    given = [
        Difference("a", p=0.01),
        Difference("b", reason="failed"),
        Difference("c", p=0.04),
        Difference("d", p=0.03),
    ]
    corrected = [each.p_corrected for each in _corrected(given)]
    assert corrected[1] is None
    assert [corrected[i] for i in (0, 2, 3)] == pytest.approx([0.03, 0.06, 0.06])
    assert _corrected([]) == ()


def test_lower_is_better_is_known() -> None:
    assert Difference("x", value=-1.0, p_corrected=0.01, direction="lower").better == "a"
    assert Difference("x", value=-1.0, p_corrected=0.01).better == "b"
    assert Difference("x", value=-1.0, p_corrected=0.2).better == ""


def test_scores_without_replicates_say_so() -> None:
    values = np.zeros((2, 3))
    found, draws = difference("x", scored(values, None), scored(values, None))
    assert found.low is None and "nothing to resample" in found.reason and draws.size == 0


def test_shared_neuroids_meet_each_other_whatever_their_order() -> None:
    a = samples(np.arange(6.0).reshape(2, 3), ["p", "q", "r"])
    b = samples(np.arange(8.0).reshape(2, 4), ["r", "x", "p", "q"])
    first, second = _shared(a, b)
    assert first["neuroid_id"].values.tolist() == second["neuroid_id"].values.tolist() == ["p", "q", "r"]
    assert second.values.tolist() == [[2, 3, 0], [6, 7, 4]]
    with pytest.raises(DataError, match="not paired"):
        _shared(a, samples(np.zeros((3, 3)), ["p", "q", "r"]))
    with pytest.raises(DataError, match="not paired"):
        _shared(a, a.isel(split=0))


@pytest.fixture
def run_lab(lab: Lab) -> Lab:
    """Two models really scored: the one whose pixels drive the neurons, and one that sees two by two of them."""
    lab.spec("models", "coarse", builder={"name": "pixels", "size": 2})
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 4})
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4", "coarse"])
    catalog = lab.open()
    validate(catalog, "lab")
    run(catalog, plan(catalog, suites=[catalog.suite("lab")], request=Request()).jobs, Request(), NoDisplay())
    return lab


def test_two_models_end_to_end_from_kept_samples_and_again_without_them(run_lab: Lab) -> None:
    catalog = run_lab.open()
    kept = compare("pixels4", "coarse", catalog=catalog, tell=pytest.fail)
    [found] = kept.differences
    assert found.better == "a" and found.pairs == 5
    assert found.low is not None and 0 < found.low < (found.value or 0) < (found.high or 0)
    shutil.rmtree(catalog.root / ".cache" / "neuroledger" / "samples")
    told: list[str] = []
    [again] = compare("pixels4", "coarse", catalog=catalog, tell=told.append).differences
    assert told == ["lab.V4-ridge: no samples of pixels4 and coarse are kept here; both are scored again"]
    assert again.value == pytest.approx(found.value, abs=1e-9)
    assert again.effect == pytest.approx(found.effect)
    turned = compare("coarse", "pixels4", catalog=catalog)
    assert turned.differences[0].value == pytest.approx(-(found.value or 0))
    assert turned.overall.better == "b"
    text = str(kept)
    assert "A = pixels4, B = coarse" in text and "lab.V4-ridge" in text


def test_what_cannot_be_compared_says_why(run_lab: Lab) -> None:
    catalog = run_lab.open()
    [missing] = compare("pixels4", "ant", catalog=catalog).differences
    assert missing.value is None
    assert missing.reason == "ant has no record; run `neuroledger run ant --benchmark lab.V4-ridge`"
    with pytest.raises(RequestError, match="with itself"):
        compare("pixels4", "pixels4", catalog=catalog)
    with pytest.raises(RequestError, match="did you mean 'pixels4'"):
        compare("pixels5", "coarse", catalog=catalog)
