"""Ceilings from variances and ranks, and noise-corrected explained variance, compared with simulated truth."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import kendalltau, spearmanr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.metrics.r2_er import unbiased_fraction
from neuroledger.stats.workspace import Workspace
from tests.families.alignment.neural_cases import assembly, latent
from tests.families.alignment.test_internal_consistency import recorded


@pytest.mark.parametrize("repetitions", [2, 3, 8])
@pytest.mark.parametrize("noise", [0.5, 2.0, 4.0])
def test_signal_reliability_is_the_true_one(noise, repetitions):
    found = nl.ceiling("signal_reliability")(
        recorded(3000, repetitions, 20, noise=noise, seed=repetitions)
    )
    assert found.value == pytest.approx(1 / (1 + noise**2 / repetitions), abs=0.03)


def test_signal_reliability_of_noise_is_zero_on_average_and_ragged_data_unbiased():
    rng = np.random.default_rng(0)
    noise = recorded(100, 4, 400, seed=1)
    noise.values[:] = rng.standard_normal(noise.shape)
    assert abs(float(nl.ceiling("signal_reliability")(noise).samples.mean())) < 0.015
    data = recorded(3000, 6, 20, noise=1.5, seed=2)
    kept = data[rng.random(len(data)) < 0.6]
    count = np.unique(kept["stimulus_id"].values, return_counts=True)[1]
    truth = 1 / (1 + 1.5**2 * (1 / count).mean())
    assert nl.ceiling("signal_reliability")(kept).value == pytest.approx(
        truth, abs=0.02
    )


def test_signal_reliability_by_hand_with_missing_values():
    data = recorded(12, 3, 2, seed=3)
    data[0, 1] = np.nan
    found = nl.ceiling("signal_reliability")(data).samples.values
    for k in range(2):
        groups = [
            own[np.isfinite(own)]
            for own in (
                data.values[data["stimulus_id"].values == id, k]
                for id in np.unique(data["stimulus_id"])
            )
        ]
        noise = np.mean([own.var(ddof=1) / len(own) for own in groups])
        variance = np.var([own.mean() for own in groups], ddof=1)
        assert found[k] == pytest.approx(1 - noise / variance * 9 / 11, abs=1e-12)
    with pytest.raises(CeilingError, match="no repetitions"):
        nl.ceiling("signal_reliability")(recorded(12, 1, 2))


@pytest.mark.parametrize(
    ("name", "agree"), [("spearman", spearmanr), ("kendall", kendalltau)]
)
@pytest.mark.parametrize("repetitions", [2, 5])
def test_rank_reliabilities_are_those_of_another_experiment(name, agree, repetitions):
    """The reliability is the rank correlation between the means of two simulated experiments of the same size."""
    both = recorded(1500, 2 * repetitions, 6, noise=1.2, seed=repetitions)
    first = both[both["repetition"].values < repetitions]
    means = [
        part.groupby("stimulus_id").mean().values
        for part in (first, both[both["repetition"].values >= repetitions])
    ]
    truth = np.mean(
        [agree(a, b).statistic for a, b in zip(means[0].T, means[1].T, strict=True)]
    )
    found = nl.ceiling(f"internal_consistency_{name}")(first)
    assert float(found.samples.mean()) == pytest.approx(truth, abs=0.025)


def trials(
    values: np.ndarray, noise: float, repetitions: int, seed: int
) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(len(values)), repetitions)
    noisy = values[rows] + noise * rng.standard_normal((len(rows), values.shape[1]))
    found = assembly(noisy, repetition=np.tile(np.arange(repetitions), len(values)))
    return found.assign_coords(
        stimulus_id=("presentation", [f"s{row:04d}" for row in rows])
    )


@pytest.mark.parametrize("noise", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("truth", [0.0, 0.4, 1.0])
def test_the_corrected_fraction_is_that_of_noiseless_responses(truth, noise):
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((80, 600))
    signal = (signal - signal.mean(axis=0)) / signal.std(axis=0)
    other = rng.standard_normal((80, 600))
    other -= other.mean(axis=0)
    other -= signal * (other * signal).mean(axis=0)
    predicted = np.sqrt(truth) * signal + np.sqrt(1 - truth) * other / other.std(axis=0)
    measured = signal + noise / 2 * rng.standard_normal(
        signal.shape
    )  # four repetitions
    plain = np.mean(
        [
            np.corrcoef(a, b)[0, 1] ** 2
            for a, b in zip(predicted.T, measured.T, strict=True)
        ]
    )
    found = unbiased_fraction(predicted, measured, np.full(600, noise**2 / 4))
    assert np.nanmedian(found) == pytest.approx(truth, abs=0.05)
    assert truth == 0.0 or plain < truth


def test_a_perfect_readout_of_noisy_responses_reaches_one():
    X, _ = latent(300, 12, 3, seed=1)
    Y = X @ np.random.default_rng(2).standard_normal((12, 30))
    Y /= Y.std(axis=0)
    target = trials(Y, 2.0, 4, seed=3)
    source = assembly(X, prefix="m")
    found = nl.metric("r2_er", estimator="linear")(source, target)
    assert found.value == pytest.approx(1.0, abs=0.08)
    uncorrected = nl.metric("linear_predictivity")(source, average_repetitions(target))
    assert uncorrected.value**2 < 0.6
    scaled = nl.metric("r2_er", estimator="linear", workspace=Workspace())(
        source, target * 1e150
    )
    assert scaled.value == pytest.approx(found.value, abs=1e-9)


def test_data_without_a_noise_estimate_are_refused():
    X, Y = latent(40, 12, 3)
    with pytest.raises(MetricError, match=r"presented once.*two or more"):
        nl.metric("r2_er")(assembly(X), assembly(Y))
    with pytest.raises(MetricError, match="tests on 4 stimuli"):
        nl.metric("r2_er", splits={"folds": 10})(assembly(X), trials(Y, 1.0, 3, seed=0))
