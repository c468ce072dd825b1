"""Metrics without some of their items: the fast ways equal computing the metric again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.stats.left_out import general
from neuroledger.stats.samples import Variation
from neuroledger.stats.splits import Split
from tests.families.alignment.neural_cases import assembly, latent
from tests.families.alignment.test_crossnobis import repeated
from tests.families.alignment.test_domain_readout import Coding, measured, table
from tests.families.alignment.test_noise_corrected import trials

STIMULI, NEUROIDS = 24, 9


def sides(**coords: Any) -> tuple[xr.DataArray, xr.DataArray]:
    X, Y = latent(STIMULI, 14, NEUROIDS, rank=5)
    return assembly(X, prefix="f"), assembly(Y).assign_coords(**coords)


def routes(
    bound: Any, source: xr.DataArray, target: xr.DataArray
) -> tuple[xr.DataArray, Variation, Variation]:
    """Samples of a metric, how it says that they change, and how they change if it is computed again."""
    source, target = bound._matched(source, target)
    splits = bound._splits(None, target)
    samples = bound.samples((source, target), splits)

    def compute(
        arrays: Sequence[xr.DataArray], parts: Sequence[Split] | None
    ) -> xr.DataArray:
        try:
            found = bound.samples(arrays, parts).values
            assert isinstance(found, xr.DataArray)
        except MetricError:
            return xr.full_like(samples.values, np.nan, dtype=np.float64)
        return found

    again = general((source, target), splits, compute, samples.values, halves=False)
    assert isinstance(samples.variation, Variation) and again is not None
    return samples.values, samples.variation, again


def kept(variation: Variation, lost: dict[str, list[str]]) -> dict[str, np.ndarray]:
    return {
        name: ~np.isin(np.asarray(variation.items[name]), ids)
        for name, ids in lost.items()
    }


def assert_equal_routes(
    bound: Any, source: xr.DataArray, target: xr.DataArray, *factors: str
) -> None:
    values, own, again = routes(bound, source, target)
    assert set(own.items) == set(factors)
    rng = np.random.default_rng(0)
    every = [{name} for name in factors] + ([set(factors)] if len(factors) > 1 else [])
    for chosen in every * 2:
        lost = {
            name: rng.choice(
                np.unique(own.items[name]),
                3 if name == "stimulus" else 2,
                replace=False,
            ).tolist()
            for name in chosen
        }
        found, expected = own.without(kept(own, lost)), again.without(kept(again, lost))
        assert found.dims == values.dims and np.isfinite(found.values).any()
        np.testing.assert_allclose(found.values, expected.values, atol=1e-9)
        assert not np.array_equal(found.values, values.values)


@pytest.mark.parametrize("distance", ["correlation", "euclidean", "cosine"])
@pytest.mark.parametrize(
    "comparison", ["spearman", "pearson", "kendall_tau_a", "rho_a"]
)
def test_rdm(distance: str, comparison: str) -> None:
    bound = nl.metric("rdm", distance=distance, comparison=comparison)
    assert_equal_routes(bound, *sides(), "stimulus", "neuroid")


def test_rdm_of_stimuli_without_a_pattern() -> None:
    source, target = sides()
    source, target = source.copy(deep=True), target.copy(deep=True)
    source[4], target[9] = 1.0, 0.0
    assert_equal_routes(nl.metric("rdm"), source, target, "stimulus", "neuroid")


def test_rdms_of_several_subjects() -> None:
    source, target = sides()
    ids = target["stimulus_id"].values
    coords = {
        "stimulus_id": ("stimulus", ids),
        "stimulus_id_b": ("stimulus_b", ids),
        "subject": ["a", "b"],
    }
    rdms = np.stack(
        [1 - np.corrcoef(target.values[:, part]) for part in (slice(0, 4), slice(4, 9))]
    )
    given = xr.DataArray(
        rdms, dims=("subject", "stimulus", "stimulus_b"), coords=coords
    )
    assert_equal_routes(nl.metric("rdm"), source, given, "stimulus")


@pytest.mark.parametrize("name", ["rdm_subjects", "cka_subjects"])
def test_each_subject(name: str) -> None:
    source, target = sides(subject=("neuroid", list("BABABABAB")))
    assert_equal_routes(nl.metric(name), source, target, "stimulus")
    shown = target.copy(deep=True)
    if name == "cka_subjects":
        shown[2:6, 1::2] = np.nan
        assert_equal_routes(nl.metric(name), source, shown, "stimulus")


@pytest.mark.parametrize("unbiased", [True, False])
def test_cka(unbiased: bool) -> None:
    assert_equal_routes(
        nl.metric("cka", unbiased=unbiased), *sides(), "stimulus", "neuroid"
    )


def test_cka_with_a_constant_in_the_units_of_the_target() -> None:
    assert_equal_routes(
        nl.metric("cka", regularisation=30.0), *sides(), "stimulus", "neuroid"
    )


@pytest.mark.parametrize(("subsets", "whole"), [("rdm_cv", "rdm"), ("cka_cv", "cka")])
def test_subsets_vary_as_all_of_their_stimuli(subsets: str, whole: str) -> None:
    source, target = sides()
    values, own, _ = routes(nl.metric(subsets), source, target)
    all_of_them = routes(nl.metric(whole), source, target)[1]
    lost = {"stimulus": target["stimulus_id"].values[[1, 5]].tolist()}
    found, expected = (
        own.without(kept(own, lost)),
        all_of_them.without(kept(all_of_them, lost)),
    )
    np.testing.assert_allclose(
        found.values, np.full(values.shape, float(expected)), atol=1e-12
    )


@pytest.mark.parametrize("noise", ["none", "univariate", "multivariate"])
@pytest.mark.parametrize("comparison", ["cosine", "spearman"])
def test_crossnobis(noise: str, comparison: str) -> None:
    bound = nl.metric("crossnobis", noise=noise, comparison=comparison)
    assert_equal_routes(
        bound, *repeated(np.random.default_rng(5), 14, 8), "stimulus", "neuroid"
    )


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
@pytest.mark.parametrize("name", ["pls", "ridge"])
def test_regression_on_tested_stimuli(name: str, correlation: str) -> None:
    bound = nl.metric(
        name, correlation=correlation, splits={"folds": 2, "train": 0.5, "test": 0.5}
    )
    source, target = sides()
    _, own, again = routes(bound, source, target)
    assert own.inflation["stimulus"] == pytest.approx(again.inflation["stimulus"])
    lost = {"stimulus": target["stimulus_id"].values[[0, 7, 11]].tolist()}
    found, expected = own.without(kept(own, lost)), again.without(kept(again, lost))
    np.testing.assert_allclose(found.values, expected.values, atol=1e-9)
    assert own.each is not None
    codes = (~kept(own, lost)["stimulus"]).astype(int)
    np.testing.assert_allclose(own.each("stimulus", codes)[1], found.values, atol=1e-12)


@pytest.mark.parametrize("time", ["shared", "separate"])
def test_regression_of_time_bins(time: str) -> None:
    source, target = sides()
    stacks = [
        xr.concat(
            [side, side + np.sin(np.arange(side.size)).reshape(side.shape)], "time_bin"
        )
        for side in (source, target)
    ]
    bound = nl.metric(
        "ridge", time=time, splits={"folds": 2, "train": 0.5, "test": 0.5}
    )
    _, own, again = routes(bound, *stacks)
    lost = {"stimulus": target["stimulus_id"].values[[3, 4]].tolist()}
    found, expected = own.without(kept(own, lost)), again.without(kept(again, lost))
    np.testing.assert_allclose(found.values, expected.values, atol=1e-9)


def test_another_layer_reuses_what_is_left_of_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from neuroledger.families.alignment.similarity import gram, pair
    from neuroledger.stats.workspace import Workspace

    source, target = sides()
    workspace = Workspace()
    alone = nl.metric("rdm")(source, target).uncertainty
    scores = [
        nl.metric("rdm", workspace=workspace)(layer, target)
        for layer in (source * 2 + 1, source)
    ]
    assert scores[0].uncertainty is not None
    made = gram.relative_gram
    calls: list[int] = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return made(*args)

    monkeypatch.setattr(f"{pair.__name__}.relative_gram", counted)
    found = scores[1].uncertainty
    assert found is not None and alone is not None
    assert not calls, "neuroids are left out once for all layers"
    assert found.error == alone.error


def test_the_similarity_of_distributions_without_neuroids_keeps_the_drawn_samples() -> (
    None
):
    rng = np.random.default_rng(3)
    edges = (0.0, 0.25, 0.5, 0.75, 1.0)
    source, target = (
        xr.DataArray(rng.random(count), dims="neuroid") for count in (70, 40)
    )
    bound = nl.metric("ks_similarity", bins=edges, draws=30)
    values, own, _ = routes(bound, source, target)
    stay = np.arange(40) % 5 != 0
    drawn = np.random.default_rng(bound.seed).integers(0, 70, (30, 40))

    def cumulated(sample: np.ndarray) -> np.ndarray:
        return np.cumsum(np.histogram(sample, edges)[0]) / len(sample)

    for kept_ones in (stay, np.ones(40, dtype=bool)):
        q = cumulated(target.values[kept_ones])
        farthest = max(np.abs(1 - q).max(), q[:-1].max())
        samples = source.values[drawn[:, kept_ones]]
        expected = [
            1 - np.abs(cumulated(sample) - q).max() / farthest for sample in samples
        ]
        np.testing.assert_allclose(
            own.without({"neuroid": kept_ones}).values, expected, atol=1e-12
        )
    np.testing.assert_allclose(values.values, expected, atol=1e-12)


def test_the_fraction_of_explainable_variance_moves_as_without_tested_stimuli() -> None:
    X, _ = latent(400, 12, 3, seed=1)
    Y = X @ np.random.default_rng(2).standard_normal((12, 4))
    source, target = assembly(X, prefix="m"), trials(Y / Y.std(axis=0), 2.0, 4, seed=3)
    bound = nl.metric("r2_er", estimator="linear", splits={"folds": 2})
    values, own, again = routes(bound, source, target)
    assert own.inflation == pytest.approx({"stimulus": 3.0})
    moves = []
    for ids in np.array_split(np.unique(target["stimulus_id"].values), 20):
        lost = {"stimulus": ids.tolist()}
        moves.append([way.without(kept(way, lost)) - values for way in (own, again)])
    found, expected = np.transpose(np.array(moves), (1, 0, 2, 3))
    # To first order about the variances of both splits together.
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.97
    assert found.std() == pytest.approx(expected.std(), rel=0.15)


def test_a_domain_readout_moves_by_the_shares_of_tested_stimuli() -> None:
    noisy = measured(Coding(table(40), noise=3.0))
    bound = nl.metric("domain_readout", fitted="photo", divisions=3, tested=20)
    samples = bound.samples((noisy.source, noisy.target), None)
    own = samples.variation
    assert isinstance(own, Variation)
    ids = np.asarray(own.items["stimulus"])
    each = (
        np.array([own.without({"stimulus": ids != name}) for name in ids])
        - samples.values.values
    )
    np.testing.assert_allclose(each.sum(axis=0), 0, atol=1e-12)
    assert ((each != 0).sum(axis=0) <= 20).all() and each.any()
    # Of 40 stimuli, 20 are fitted; stimuli that are tested several times weigh more in the mean and vary it already.
    score = bound(noisy.source, noisy.target)
    assert 1 < own.inflation["stimulus"] < 1 + 3 * 20 / 20
    assert score.uncertainty is not None and score.uncertainty.factors == ("stimulus",)
    assert score.low < score.value < score.high


def test_the_dimensions_of_a_factor_vary_with_its_pairs() -> None:
    rng = np.random.default_rng(0)
    factors = {"factor": ("presentation", np.repeat(["shape", "texture"], 50))}
    shared = rng.normal(size=(100, 300)) * (np.arange(100) < 50)[:, None]
    sides = [
        xr.DataArray(
            shared + rng.normal(size=shared.shape),
            dims=("presentation", "neuroid"),
            coords=factors,
        )
        for _ in range(2)
    ]
    bound = nl.metric("factor_dimensionality", factor="shape")
    _, own, _ = routes(bound, *sides)
    stay = np.arange(100) % 7 != 0
    again = bound(*(side.isel(presentation=stay) for side in sides)).value
    assert float(own.without({"stimulus": stay})) == again
    assert bound(*sides).interval_covers.endswith("covers new stimuli")
