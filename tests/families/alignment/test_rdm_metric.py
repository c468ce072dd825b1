"""Representational similarity of assemblies and of given RDMs, with its interval."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.spatial.distance import pdist, squareform

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from neuroledger.stats.workspace import Workspace
from tests.devices import DEVICES
from tests.families.alignment.neural_cases import assembly, latent


def spearman(X, Y):
    return stats.spearmanr(pdist(X, "correlation"), pdist(Y, "correlation")).statistic


@pytest.mark.parametrize("device", DEVICES)
def test_equals_scipy(device):
    X, Y = latent(40, 100, 20)
    score = nl.metric("rdm", workspace=Workspace(device=device))(
        assembly(X, seed=1), assembly(Y, seed=2)
    )
    assert score.value == pytest.approx(spearman(X, Y), abs=1e-12)
    assert score.low < score.value < score.high


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("comparison", ["pearson", "kendall_tau_a", "cosine"])
def test_other_distances_and_comparisons(distance, comparison):
    X, Y = latent(25, 60, 20)
    a, b = pdist(X, distance), pdist(Y, distance)
    expected = {
        "pearson": lambda: stats.pearsonr(a, b).statistic,
        "kendall_tau_a": lambda: stats.kendalltau(a, b).statistic,
        "cosine": lambda: a @ b / np.sqrt(a @ a * (b @ b)),
    }[comparison]()
    score = nl.metric("rdm", distance=distance, comparison=comparison)(
        assembly(X), assembly(Y)
    )
    assert score.value == pytest.approx(expected, abs=1e-10)


def test_subsets_are_the_test_rows():
    X, Y = latent(40, 100, 20)
    score = nl.metric("rdm_cv")(assembly(X), assembly(Y))
    splits = draw(SplitsSpec(test=0.9), assembly(Y))
    np.testing.assert_allclose(
        score.samples.values,
        [spearman(X[s.test], Y[s.test]) for s in splits],
        atol=1e-12,
    )
    assert score.error == pytest.approx(score.samples.values.std() / np.sqrt(10))


def given(X, subjects=None):
    """RDMs as an assembly."""
    ids = [f"s{i:04d}" for i in range(len(X if subjects is None else X[0]))]
    coords = {"stimulus_id": ("stimulus", ids), "stimulus_id_b": ("stimulus_b", ids)}
    if subjects is None:
        return xr.DataArray(
            squareform(pdist(X, "correlation")),
            dims=("stimulus", "stimulus_b"),
            coords=coords,
        )
    stacked = np.stack([squareform(pdist(one, "correlation")) for one in X])
    return xr.DataArray(
        stacked,
        dims=("subject", "stimulus", "stimulus_b"),
        coords={**coords, "subject": subjects},
    )


def test_given_rdms_of_several_subjects():
    X, Y = latent(30, 100, 20)
    _, Z = latent(30, 100, 20, seed=5)
    target = given([Y, Z], ["a", "b"])
    score = nl.metric("rdm")(assembly(X, seed=3), target)
    np.testing.assert_allclose(
        score.samples.values, [spearman(X, Y), spearman(X, Z)], atol=1e-12
    )
    assert score.value == pytest.approx(score.samples.values.mean())
    same = nl.metric("rdm")(given(X), target)
    np.testing.assert_allclose(same.samples.values, score.samples.values, atol=1e-12)


def test_a_stimulus_without_a_pattern_is_left_out_and_noted():
    X, Y = latent(30, 100, 20)
    whole = nl.metric("rdm")(assembly(np.delete(X, 4, 0)), assembly(np.delete(Y, 4, 0)))
    X[4] = 1.0
    score = nl.metric("rdm")(assembly(X), assembly(Y))
    assert score.value == pytest.approx(whole.value, abs=1e-12)
    assert any("1 of 30 stimuli left out" in note for note in score.notes)


def test_neuroids_with_missing_responses_are_left_out_and_noted():
    X, Y = latent(30, 100, 20)
    Y[3, 7] = np.nan
    score = nl.metric("rdm")(assembly(X), assembly(Y))
    assert score.value == pytest.approx(spearman(X, np.delete(Y, 7, 1)), abs=1e-12)
    assert any("1 of 20 neuroids left out" in note for note in score.notes)


def test_one_neuroid_has_no_correlation_between_patterns():
    X, Y = latent(30, 100, 1)
    with pytest.raises(MetricError, match="more neuroids than 1"):
        nl.metric("rdm")(assembly(X), assembly(Y))


@pytest.mark.slow
@pytest.mark.parametrize(("stimuli", "neuroids"), [(70, 30), (80, 15)])
def test_the_interval_for_few_neuroids_has_the_true_variance(stimuli, neuroids):
    """Over new stimuli and new neuroids; derivatives gave .84 to .88 of the variance, and a coverage of .905."""
    claimed, values, covered = [], [], []
    readout = np.random.default_rng(99).standard_normal((6, 12))
    metric = nl.metric("rdm")
    for run in range(120):
        rng = np.random.default_rng([run, 6])
        Z = rng.standard_normal((stimuli, 6))
        Y = Z @ rng.standard_normal((6, neuroids)) / np.sqrt(6) + rng.standard_normal(
            (stimuli, neuroids)
        )
        X = Z @ readout + 1.5 * rng.standard_normal((stimuli, 12))
        score = metric(assembly(X, prefix="f"), assembly(Y))
        values.append(score.value)
        claimed.append(score.uncertainty.error**2)
        covered.append((score.low, score.high))
    assert 0.95 < np.mean(claimed) / np.var(values) < 1.4
    low, high = np.transpose(covered)
    assert (
        0.935 <= np.mean((low <= np.mean(values)) & (np.mean(values) <= high)) <= 0.98
    )


def test_essential_or_too_few_neuroids_are_not_left_out_one_by_one():
    """Without the only neuroid that responds to a stimulus, dissimilarities are undefined; derivatives are used instead."""
    X, Y = latent(30, 100, 6)
    Y[3], Y[3, 2] = 0.0, 5.0
    score = nl.metric("rdm")(assembly(X), assembly(Y))
    assert score.low < score.value < score.high
    few = nl.metric("rdm")(assembly(X), assembly(latent(30, 100, 3)[1]))
    assert few.low < few.value < few.high


def test_the_interval_covers_scores_over_other_stimuli():
    """The width of the interval equals the spread of scores over new sets of stimuli, within a factor of two."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((10, 60)), rng.standard_normal((10, 30))

    def sample():
        Z = rng.standard_normal((50, 10))
        return Z @ A + rng.standard_normal((50, 60)), Z @ B + rng.standard_normal(
            (50, 30)
        )

    first = nl.metric("rdm")(*map(assembly, sample()))
    others = [spearman(*sample()) for _ in range(60)]
    width = first.high - first.low
    assert (
        0.5 * np.ptp(np.percentile(others, [2.5, 97.5]))
        < width
        < 2 * np.ptp(np.percentile(others, [2.5, 97.5]))
    )
