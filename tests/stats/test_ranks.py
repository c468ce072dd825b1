"""Ranks as published, to the second decimal; failures last; tests against enumeration."""

import math
from itertools import product

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.errors import RequestError
from neuroledger.stats.task_ranks import (
    agreement,
    mean_normalised_score,
    mean_rank,
    normalised_ranks,
    paired_differences,
    published_table,
    sign_flip_p,
)

# Mean normalised ranks of NeuralBench EEG Core v1.0 as its figure gives them.
PUBLISHED = {
    "REVE": 0.20, "LaBraM": 0.21, "LUNA": 0.30, "CTNet": 0.32, "CBraMod": 0.33, "SimpleConvTimeAgg": 0.35,
    "Deep4Net": 0.43, "ShallowFBCSPNet": 0.43, "EEGConformer": 0.45, "EEGNet": 0.47, "BENDR": 0.57, "ATCNet": 0.59,
    "Handcrafted": 0.60, "BIOT": 0.64, "BDTCN": 0.73, "Dummy": 0.92, "Chance": 0.94,
}  # fmt: skip


def test_published_ranks_come_out_of_the_published_table():
    table = published_table("neuralbench.core")
    assert len(table) == 36
    ranks = mean_rank(normalised_ranks(table))
    assert set(ranks) == set(PUBLISHED)
    for model, rank in PUBLISHED.items():
        assert ranks[model] == pytest.approx(rank, abs=0.01), model
    assert list(ranks)[:4] == ["REVE", "LaBraM", "LUNA", "CTNet"]


def test_the_specs_contain_the_reference_table(reference):
    tasks = yaml.safe_load((reference / "neuralbench_tasks.yaml").read_text())["tasks"]
    table = published_table("neuralbench.core")
    cells = 0
    for task in tasks:
        if not task["in_eeg_v1"]:
            continue
        own = table[f"neuralbench.eeg.{task['id'].removeprefix('eeg/')}"]
        known = {
            model: value
            for model, (value, _) in task["published_core_scores_mean_std"].items()
        }
        assert set(own) == set(known)
        factor = 100 if max(known.values()) > 1 else 1
        for model, value in known.items():
            assert own[model] * factor == pytest.approx(value, abs=1e-4)
            cells += 1
    assert cells == 36 * 17 - 5


def test_published_normalised_scores():
    means = mean_normalised_score(published_table("neuralbench.core"))
    for model, value in {
        "REVE": 0.403,
        "LaBraM": 0.402,
        "CBraMod": 0.362,
        "EEGNet": 0.289,
        "BDTCN": 0.176,
    }.items():
        assert means[model] == pytest.approx(value, abs=0.002)
    assert means["Dummy"] == 0


def test_suites_are_frozen_with_as_many_pairs_as_published():
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog()
    core, full = (catalog.suite(f"neuralbench.{name}") for name in ("core", "full"))
    assert (len(core.benchmarks), len(full.benchmarks)) == (36, 97)
    assert {item.id for item in core.benchmarks} < {item.id for item in full.benchmarks}
    assert all(
        item.version == catalog.benchmark(item.id).version for item in full.benchmarks
    )
    assert len({catalog.benchmark(item.id).parent for item in full.benchmarks}) == 36
    families = {
        catalog.benchmark(item.id).dataset.split(".")[0] for item in full.benchmarks
    }
    assert len(families) == 94


def test_ties_share_the_smallest_rank_and_failures_the_place_after_the_last_success():
    ranks = normalised_ranks(
        {"t": {"a": 0.9, "b": 0.7, "c": 0.7, "d": math.nan}}, models=list("abcde")
    )
    assert ranks["t"] == {"a": 0.0, "b": 0.25, "c": 0.25, "d": 0.75, "e": 0.75}


def test_failing_never_helps():
    whole = {
        "easy": {"a": 0.9, "b": 0.8, "c": 0.1},
        "hard": {"a": 0.6, "b": 0.7, "c": 0.5},
    }
    failed = {"easy": whole["easy"], "hard": {"b": 0.7, "c": 0.5}}
    assert (
        mean_rank(normalised_ranks(failed, models=list("abc")))["a"]
        > mean_rank(normalised_ranks(whole))["a"]
    )


def test_lower_can_be_better():
    table = {"t": {"a": 0.9, "b": 0.1}}
    assert normalised_ranks(table, lower_is_better=["t"])["t"] == {"a": 1.0, "b": 0.0}


def test_data_sets_of_a_task_are_averaged_before_the_tasks():
    ranks = {
        "x1": {"a": 0.0, "b": 1.0},
        "x2": {"a": 1.0, "b": 0.0},
        "y": {"a": 0.0, "b": 1.0},
    }
    means = mean_rank(ranks, group={"x1": "x", "x2": "x"})
    assert means == {"a": 0.25, "b": 0.75}


def test_a_task_weighs_as_its_heaviest_data_set_and_data_sets_by_their_weights():
    ranks = {"x1": {"a": 0.0}, "x2": {"a": 1.0}, "y": {"a": 0.5}, "z": {"a": 1.0}}
    means = mean_rank(
        ranks, group={"x1": "x", "x2": "x"}, weights={"x1": 3.0, "z": 2.0}
    )
    # x: (3·0 + 1·1) / 4, of weight 3; y of weight 1; z of weight 2; those that no group names stand alone.
    assert means["a"] == pytest.approx((3 * 0.25 + 1 * 0.5 + 2 * 1.0) / 6)


@pytest.mark.parametrize(
    ("dummy", "perfect", "mean"),
    [(-1.0, 1.0, 0.75), (0.5, 0.0, 0.0), (0.2, 1.0, 0.375)],
)
def test_scores_are_normalised_between_the_dummy_and_perfection(dummy, perfect, mean):
    table = {"t": {"Dummy": dummy, "model": 0.5}}
    assert mean_normalised_score(table, perfect={"t": perfect})[
        "model"
    ] == pytest.approx(mean)


def test_a_dummy_that_is_perfect_normalises_nothing():
    with pytest.raises(RequestError, match="no usable score"):
        mean_normalised_score({"t": {"Dummy": 0.7, "model": 0.5}}, perfect={"t": 0.7})


def test_agreement_is_kendalls():
    core = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.9}
    full = {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.8, "e": 0.5}
    result = agreement(core, full)
    assert result.tau == pytest.approx((5 - 1) / 6)
    assert result.models == 4
    assert agreement(core, full, without=["d"]).tau == pytest.approx(1 / 3)
    with pytest.raises(RequestError, match="needs three"):
        agreement(core, {"a": 1.0})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-20, 20).filter(bool), min_size=1, max_size=8))
def test_sign_flips_agree_with_enumeration(differences):
    values = np.array(differences, float)
    sums = [
        abs(np.dot(signs, values)) for signs in product([-1, 1], repeat=len(values))
    ]
    assert sign_flip_p(values) == pytest.approx(
        np.mean([s >= abs(values.sum()) - 1e-9 for s in sums])
    )


def test_many_pairs_are_flipped_by_a_seed():
    values = np.random.default_rng(0).standard_normal(40) + 0.2
    assert sign_flip_p(values, seed=1) == sign_flip_p(values, seed=1)
    from scipy.stats import ttest_1samp

    assert sign_flip_p(values, seed=1) == pytest.approx(
        ttest_1samp(values, 0).pvalue, abs=0.03
    )


def test_the_smallest_p_of_drawn_flips_counts_what_was_observed_among_the_draws():
    assert sign_flip_p(np.ones(60)) == 1 / 10_001
    assert (
        sign_flip_p(np.tile([1.0, -1.0], 30)) == 1.0
    )  # every draw is at least as far from 0


def test_every_pair_is_compared_and_corrected():
    rng = np.random.default_rng(0)
    table = {
        f"t{i}": {
            "good": 0.8 + 0.01 * rng.random(),
            "fair": 0.7,
            "poor": 0.1 * rng.random(),
        }
        for i in range(12)
    }
    result = paired_differences(table)
    assert [(d.first, d.second) for d in result] == [
        ("fair", "good"),
        ("fair", "poor"),
        ("good", "poor"),
    ]
    assert all(d.p == pytest.approx(2 / 2**12) for d in result)
    assert all(d.corrected_p == pytest.approx(3 * d.p) for d in result)


def test_models_without_shared_rows_are_not_tested():
    with pytest.raises(RequestError, match="a paired test needs at least one pair"):
        sign_flip_p([float("nan")])
    with pytest.raises(RequestError, match="a and b have no task in common"):
        paired_differences({"x": {"a": 1.0}, "y": {"b": 1.0}})


def test_ranks_of_one_model_are_refused() -> None:
    with pytest.raises(RequestError, match=r"^ranks need at least two models"):
        normalised_ranks({"t": {"a": 0.9}})
