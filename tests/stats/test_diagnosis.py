"""Diagnosis recovers the structure of simulated tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from neuroledger.errors import RequestError
from neuroledger.stats import diagnosis
from neuroledger.stats.diagnosis import Table, diagnose, rank_agreement


def table(
    values: pd.DataFrame,
    *,
    states: pd.DataFrame | None = None,
    half: float = float("nan"),
    **kinds,
) -> Table:
    known = (
        values.notna().replace({True: "scored", False: "never run"})
        if states is None
        else states
    )
    attributes = {
        name: {kind: labels[at] for kind, labels in kinds.items()}
        for at, name in enumerate(values)
    }
    return Table(values, values * 0 + half, known, attributes)


def suite(models: int = 60, noise: float = 0.3, seed: int = 0) -> pd.DataFrame:
    """Two abilities; four benchmarks of the first, three of the second, and one that reverses the first."""
    rng = np.random.default_rng(seed)
    abilities = rng.standard_normal((models, 2))
    columns = {f"a{i}": abilities[:, 0] for i in range(4)} | {
        f"b{i}": abilities[:, 1] for i in range(3)
    }
    columns["reverse"] = -abilities[:, 0]
    frame = pd.DataFrame(columns, index=[f"m{i:02d}" for i in range(models)])
    return frame + noise * rng.standard_normal(frame.shape)


def test_abilities_are_the_dominant_axes() -> None:
    result = diagnose(table(suite()))
    first, second, third = result.axes
    assert set(list(first.loadings)[:4]) == {"a0", "a1", "a2", "a3"}
    assert {
        name for name, loading in second.loadings.items() if abs(loading) > 0.4
    } == {"b0", "b1", "b2"}
    assert first.share > second.share > 3 * third.share
    assert first.share == pytest.approx(4.7 / 8, abs=0.08)


def test_redundant_and_contrary_benchmarks_are_named_and_no_others() -> None:
    values = suite(noise=0.1).drop(columns=["a2", "a3", "b1", "b2"])
    result = diagnose(table(values))
    assert [(pair.first, pair.second) for pair in result.redundant] == [("a0", "a1")]
    assert {(pair.first, pair.second) for pair in result.contrary} == {
        ("a0", "reverse"),
        ("a1", "reverse"),
    }


@pytest.mark.slow
def test_unrelated_benchmarks_are_rarely_called_contrary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Orders of models are not asked for here, and take most of the time.
    monkeypatch.setattr(diagnosis, "_panel", lambda scored: ((), 0.0))
    monkeypatch.setattr(diagnosis, "_growth", lambda scored, order: [])
    rng = np.random.default_rng(3)
    wrong = [
        bool(diagnose(table(pd.DataFrame(rng.standard_normal((25, 8))))).contrary)
        for _ in range(60)
    ]
    assert np.mean(wrong) <= 0.08  # .025 for the family, within what 60 draws can show


def test_an_attribute_explains_agreement_only_where_it_does() -> None:
    rng = np.random.default_rng(1)
    factor = rng.standard_normal((80, 2))
    metric = ["pls", "pls", "pls", "pls", "rdm", "rdm", "rdm", "rdm"]
    region = ["V4", "IT", "V4", "IT", "V4", "IT", "V4", "IT"]
    values = pd.DataFrame(
        {
            f"b{i}": factor[:, int(name == "rdm")] + 0.5 * rng.standard_normal(80)
            for i, name in enumerate(metric)
        }
    )
    result = diagnose(table(values, metric=metric, region=region))
    by_kind = {item.attribute: item for item in result.explained}
    # Of the 35 ways to halve eight benchmarks one agrees as much: the permutations that hit it, and the one observed.
    assert (
        0.01 < by_kind["metric"].p < 0.05
        and by_kind["metric"].same > by_kind["metric"].other + 0.5
    )
    assert by_kind["region"].p > 0.2
    assert result.explained_share > 0.9


def test_the_share_that_attributes_explain_is_that_of_a_regression_on_all_of_them() -> (
    None
):
    rng = np.random.default_rng(4)
    values = pd.DataFrame(
        rng.standard_normal((30, 5)) + rng.standard_normal((30, 1)),
        columns=list("abcde"),
    )
    metric, region = ["pls", "pls", "rdm", "rdm", "rdm"], ["V4", "IT", "V4", "IT", "IT"]
    result = diagnose(table(values, metric=metric, region=region))
    rho = np.array([pair.rho for pair in result.pairs])
    upper = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    alike = np.array(
        [[metric[i] == metric[j], region[i] == region[j]] for i, j in upper],
        dtype=float,
    )
    expected = LinearRegression().fit(alike, rho).score(alike, rho)
    assert result.explained_share == pytest.approx(expected)
    assert [item.attribute for item in result.explained] == ["metric", "region"]
    for item, same in zip(result.explained, alike.T.astype(bool), strict=True):
        assert (item.same, item.other, item.pairs) == pytest.approx(
            (rho[same].mean(), rho[~same].mean(), same.sum())
        )
    expected_rho = values.corr("spearman").to_numpy()
    assert rho == pytest.approx([expected_rho[i, j] for i, j in upper])


def test_missing_scores_do_not_count_as_zero() -> None:
    rng = np.random.default_rng(2)
    ability, ease = rng.normal(0.5, 0.1, 12), rng.normal(0, 0.1, 6)
    whole = pd.DataFrame(
        ability[:, None] + ease,
        index=[f"m{i}" for i in range(12)],
        columns=[f"b{i}" for i in range(6)],
    )
    holes = whole.mask(rng.random(whole.shape) < 0.3)
    holes.iloc[:, 0] = whole.iloc[:, 0]
    result = diagnose(table(holes))
    truth = dict(zip(whole.index, whole.mean(axis=1), strict=True))
    assert result.adjusted == pytest.approx(
        truth, abs=1e-9
    )  # an additive table is completed exactly
    states = holes.notna().replace({True: "scored", False: "never run"})
    states.iloc[0, 1] = "failed"
    counted = diagnose(table(holes.mask(states != "scored"), states=states)).coverage
    assert counted.loc["b1", "failed"] == 1
    assert (counted.sum(axis=1) == 12).all()


def test_a_small_panel_preserves_the_order_of_models() -> None:
    values = suite(models=40, noise=0.05).drop(columns="reverse")
    result = diagnose(table(values))
    assert result.panel_tau >= 0.95
    assert len(result.panel) < values.shape[1]
    assert {name[0] for name in result.panel} == {"a", "b"}


def test_discriminative_power_is_the_share_of_separated_pairs() -> None:
    values = pd.DataFrame(
        {"b": [0.0, 0.1, 0.5], "c": [0.2, 0.1, 0.0]}, index=["x", "y", "z"]
    )
    result = diagnose(table(values, half=0.1))
    assert result.discriminative["b"] == pytest.approx(
        2 / 3
    )  # 0 and .1 differ by less than .1·√2
    assert result.discriminative["c"] == pytest.approx(1 / 3)
    assert np.isnan(diagnose(table(values)).discriminative["b"])


def test_growth_ends_at_the_whole_suite() -> None:
    result = diagnose(table(suite()))
    assert [item.benchmarks for item in result.growth] == list(range(1, 9))
    assert result.growth[-1].tau == pytest.approx(1) and result.growth[-1].largest == 0
    assert result.growth[0].tau < 0.9


def test_too_few_scores_are_refused_with_advice() -> None:
    with pytest.raises(
        RequestError,
        match="scores of three models on two benchmarks; there are 2 models",
    ):
        diagnose(table(pd.DataFrame(np.ones((2, 3)))))


def test_a_high_correlation_over_few_models_is_not_called_redundant() -> None:
    first = np.arange(8.0)
    second = first.copy()
    second[[0, 1]] = second[
        [1, 0]
    ]  # rho is .976 over 8 models, and the interval begins at about .86
    few = pd.DataFrame({"a": first[:6], "b": second[:6]})
    (pair,) = diagnose(table(few)).pairs
    assert (
        pair.low < 0.8
        and 0.9 < pair.rho < pair.high
        and diagnose(table(few)).redundant == ()
    )
    many = pd.DataFrame({"a": first, "b": second})
    (pair,) = diagnose(table(many)).redundant
    assert pair.low > 0.8 and pair.models == 8


def test_benchmarks_with_the_same_order_leave_nothing_to_explain() -> None:
    values = pd.DataFrame({name: np.arange(6.0) for name in "abcd"})
    result = diagnose(table(values, metric=["pls", "pls", "rdm", "rdm"]))
    assert result.explained_share == 0.0
    (item,) = result.explained
    assert item.p == 1.0 and item.same == pytest.approx(item.other)
    assert (
        diagnose(table(values)).explained == ()
        and diagnose(table(values)).explained_share == 0.0
    )


def test_a_permutation_p_counts_the_observed_order_among_a_thousand() -> None:
    rng = np.random.default_rng(7)
    values = pd.DataFrame(rng.standard_normal((12, 6)), columns=list("abcdef"))
    result = diagnose(
        table(
            values,
            metric=["x", "x", "y", "y", "y", "x"],
            region=["l", "l", "l", "r", "r", "r"],
        )
    )
    for item in result.explained:
        assert (
            item.p * 1000 == pytest.approx(round(item.p * 1000))
            and 0.001 <= item.p <= 1
        )


def test_the_unit_of_a_benchmark_changes_no_order() -> None:
    values = suite(models=20, noise=0.8)
    scaled = values.assign(a0=values["a0"] * 1000 + 5, b1=values["b1"] / 1000)
    plain, other = diagnose(table(values)), diagnose(table(scaled))
    assert other.panel == plain.panel and other.panel_tau == pytest.approx(
        plain.panel_tau
    )
    assert [(item.largest, item.model) for item in other.growth] == [
        (item.largest, item.model) for item in plain.growth
    ]


def test_a_benchmark_on_which_all_models_are_equal_orders_none() -> None:
    values = pd.DataFrame(
        {"flat": np.ones(6), "a": np.arange(6.0), "b": np.arange(6.0) ** 2}
    )
    result = diagnose(table(values))
    assert [(item.benchmarks, item.last) for item in result.growth] == [
        (1, "flat"),
        (2, "a"),
        (3, "b"),
    ]
    assert result.growth[0].tau == 0.0 and result.growth[1].tau == pytest.approx(1)
    assert [(pair.first, pair.second) for pair in result.pairs] == [("a", "b")]
    assert result.panel == ("a",) and result.panel_tau == pytest.approx(1)


def test_a_benchmark_of_two_models_is_no_panel_of_a_suite_of_many() -> None:
    rng = np.random.default_rng(2)
    quality = np.linspace(0, 1, 12)
    values = pd.DataFrame(
        {f"b{i}": quality + 0.3 * rng.standard_normal(12) for i in range(4)}
    )
    values["few"] = np.where((quality == 0) | (quality == 1), quality, np.nan)
    found = diagnose(table(values))
    assert found.panel[0] != "few" and found.panel != ("few",)
    assert found.panel_tau >= 0.95 or len(found.panel) == 5


def test_models_that_share_no_benchmark_with_the_others_have_no_adjusted_mean() -> None:
    rng = np.random.default_rng(3)
    values = pd.DataFrame(
        np.nan, index=[f"m{i}" for i in range(10)], columns=list("abcd")
    )
    values.iloc[:6, :2], values.iloc[6:, 2:] = (
        rng.standard_normal((6, 2)),
        9 + rng.standard_normal((4, 2)),
    )
    adjusted = diagnose(table(values)).adjusted
    assert all(np.isnan(adjusted[f"m{i}"]) == (i > 5) for i in range(10))
    both = values.iloc[:6].mean(axis=1)
    assert {name: pytest.approx(mean) for name, mean in both.items()} == {
        name: mean for name, mean in adjusted.items() if not np.isnan(mean)
    }
    values.loc["m5", "c"] = 9.0  # one model of both groups makes all comparable
    assert not any(np.isnan(mean) for mean in diagnose(table(values)).adjusted.values())


def test_orders_agree_whatever_the_range_of_the_scores() -> None:
    rising = np.arange(4.0)
    for whole in (rising / 3, rising, rising * 1e-9, -rising):
        assert rank_agreement(rising, whole) == (1.0 if whole[-1] > 0 else -1.0)
    assert (
        rank_agreement(rising, np.ones(4)) == rank_agreement(np.ones(4), rising) == 0.0
    )
