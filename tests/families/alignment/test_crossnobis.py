"""Cross-validated distances against their definition, their expectation under noise, and their refusals."""

import numpy as np
import pytest
import xarray as xr
from scipy.spatial.distance import pdist, squareform

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.crossnobis import (
    cross_validated_distances,
    unbalanced_distances,
)
from neuroledger.families.alignment.similarity.rdm import compare, condensed
from tests.families.alignment.neural_cases import assembly


def by_definition(patterns: np.ndarray) -> np.ndarray:
    """The mean over ordered pairs of different folds, in a loop over pairs of stimuli."""
    folds, stimuli, neuroids = patterns.shape
    result = np.zeros((stimuli, stimuli))
    for i in range(stimuli):
        for j in range(stimuli):
            difference = patterns[:, i] - patterns[:, j]
            products = [
                difference[m] @ difference[k]
                for m in range(folds)
                for k in range(folds)
                if m != k
            ]
            result[i, j] = np.mean(products) / neuroids
    return result


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_distances_equal_their_definition(folds):
    patterns = np.random.default_rng(0).standard_normal((folds, 6, 15)) + 10
    np.testing.assert_allclose(
        cross_validated_distances(patterns), by_definition(patterns), atol=1e-11
    )


def test_noise_alone_has_no_distance_on_average():
    rng = np.random.default_rng(0)
    noise = [
        condensed(cross_validated_distances(rng.standard_normal((4, 8, 200)))).mean()
        for _ in range(50)
    ]
    assert abs(np.mean(noise)) < 3 * np.std(noise) / np.sqrt(50)


def recorded(Y: np.ndarray, folds: int, noise: float, seed: int = 0) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    rows = np.tile(np.arange(len(Y)), folds)
    order = rng.permutation(len(rows))
    values = Y[rows] + noise * rng.standard_normal((len(rows), Y.shape[1]))
    coords = {
        "stimulus_id": ("presentation", np.array([f"s{i:04d}" for i in rows])[order]),
        "repetition": ("presentation", np.repeat(np.arange(folds), len(Y))[order]),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(Y.shape[1])]),
    }
    return xr.DataArray(values[order], dims=("presentation", "neuroid"), coords=coords)


@pytest.mark.parametrize("noise", ["none", "univariate", "multivariate"])
def test_a_model_is_compared_with_the_distances_of_the_trials(noise):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((12, 30)), rng.standard_normal((12, 9))
    Y[:, :9] += X[:, :9]
    target = recorded(Y, 6, 0.5)
    score = nl.metric("crossnobis", noise=noise)(assembly(X, seed=5), target)
    trials = np.stack(
        [
            target[target["repetition"].values == m].sortby("stimulus_id").values
            for m in range(6)
        ]
    )
    if noise == "univariate":
        residual = trials - trials.mean(axis=0)
        trials = trials / np.sqrt((residual**2).sum(axis=(0, 1)) / (5 * 12))
    expected = compare(
        condensed(squareform(pdist(X, "sqeuclidean"))),
        condensed(by_definition(trials)),
        "cosine",
    )
    assert score.value == pytest.approx(
        expected, abs=1e-10 if noise != "multivariate" else 0.05
    )
    assert score.low < score.value < score.high


def test_whitened_residuals_have_unit_covariance():
    from neuroledger.families.alignment.metrics.crossnobis import whitening

    rng = np.random.default_rng(0)
    values = rng.standard_normal((4000, 5)) @ rng.standard_normal((5, 5))
    W = whitening(values, np.arange(4000) % 10, "multivariate")
    np.testing.assert_allclose(np.cov((values @ W).T), np.eye(5), atol=0.1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t[t["repetition"].values == 0], "has one"),
        (lambda t: t[1:], "1 of 18 pairs"),
        (lambda t: t.where(t["repetition"] > 0), "complete responses"),
        (lambda t: t.drop_vars("repetition"), "coordinate 'repetition'"),
    ],
)
def test_data_that_cannot_be_cross_validated_are_refused(change, reason):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, 30)), rng.standard_normal((6, 9))
    with pytest.raises(MetricError, match=reason):
        nl.metric("crossnobis")(assembly(X), change(recorded(Y, 3, 0.5)))


def repeated(
    rng: np.random.Generator,
    stimuli: int,
    neuroids: int,
    folds: int = 3,
    noise: float = 2.0,
) -> tuple[xr.DataArray, xr.DataArray]:
    """Simulated features, and noisy responses with repetitions, of which neuroids have unequal strength."""
    latent = rng.standard_normal((stimuli, 6))
    signal = (
        latent
        @ rng.standard_normal((6, neuroids))
        * np.exp(0.4 * rng.standard_normal(neuroids))
    )
    values = np.concatenate(
        [signal + noise * rng.standard_normal(signal.shape) for _ in range(folds)]
    )
    ids = np.array([f"s{i:02d}" for i in range(stimuli)])
    source = xr.DataArray(
        latent + 0.5 * rng.standard_normal(latent.shape),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", np.arange(6)),
        },
    )
    target = xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", np.tile(ids, folds)),
            "repetition": ("presentation", np.repeat(np.arange(folds), stimuli)),
            "neuroid_id": ("neuroid", [f"n{i:02d}" for i in range(neuroids)]),
        },
    )
    return source, target


@pytest.mark.slow
def test_intervals_contain_the_similarity_for_new_stimuli_and_neuroids() -> None:
    """Intervals for new stimuli alone do not: neuroids of unequal strength differ between experiments."""
    scores = [
        nl.metric("crossnobis", comparison="pearson")(
            *repeated(np.random.default_rng([7, run]), 150, 6, noise=0.5)
        )
        for run in range(60)
    ]
    truth = np.mean([score.value for score in scores])
    stimuli = [score.replace(generalise=("stimulus",)) for score in scores]
    assert np.mean([score.low <= truth <= score.high for score in scores]) > 0.9
    assert np.mean([score.low <= truth <= score.high for score in stimuli]) < 0.85


def test_unbalanced_distances_are_over_the_folds_that_have_both_stimuli():
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((4, 6, 15)) + 10
    np.testing.assert_allclose(
        unbalanced_distances(patterns), cross_validated_distances(patterns), atol=1e-11
    )
    missing = rng.random((4, 6)) < 0.25
    patterns[missing] = np.nan
    found = unbalanced_distances(patterns)
    for i in range(6):
        for j in range(6):
            own = np.flatnonzero(~missing[:, i] & ~missing[:, j])
            difference = patterns[:, i] - patterns[:, j]
            products = [
                difference[m] @ difference[k] for m in own for k in own if m != k
            ]
            expected = np.mean(products) / 15 if products else np.nan
            assert found[i, j] == pytest.approx(expected, nan_ok=True, abs=1e-11)


def test_a_stimulus_may_be_missing_from_a_fold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 12))
    brain = recorded(X, 4, 0.5)
    whole = nl.metric("crossnobis", unbalanced=True)(assembly(X), brain)
    assert whole.value == pytest.approx(
        nl.metric("crossnobis")(assembly(X), brain).value
    )
    fewer = brain.isel(presentation=slice(2, None))
    with pytest.raises(MetricError, match="`unbalanced: true`"):
        nl.metric("crossnobis")(assembly(X), fewer)
    score = nl.metric("crossnobis", unbalanced=True)(assembly(X), fewer)
    assert score.low < score.value < score.high
    assert score.value == pytest.approx(whole.value, abs=0.05)


@pytest.mark.parametrize("noise", ["univariate", "multivariate"])
def test_noise_of_each_fold_is_removed_by_its_own_covariance(noise):
    """Folds with other units and other noise have the same distances: each is whitened by its own residuals."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 5))
    two = [recorded(X, 8, 0.5, seed=k).isel(neuroid=range(5)) for k in (0, 1)]
    folds = [
        part.assign_coords(
            repetition=("presentation", [k] * part.sizes["presentation"])
        )
        for k, part in enumerate(two)
    ]
    scaled = [folds[0], folds[1] * 100]
    options = {"noise": noise, "covariance": "fold"}
    values = []
    for parts in (folds, scaled):
        brain = xr.concat(parts, "presentation")
        values.append(nl.metric("crossnobis", **options)(assembly(X), brain).value)
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    with pytest.raises(MetricError, match="no noise to scale by"):
        nl.metric("crossnobis", **options)(assembly(X), recorded(X, 3, 0.5))
