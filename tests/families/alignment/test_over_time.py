"""Similarity over time: each bin as the measure itself, clusters of bins, and the matrix of two times."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import MetricError
from tests.families.alignment.neural_cases import assembly


def movie(bins=6, *, first=2, last=4, rows=16, seed=0, noise=1.0):
    """A model, and a brain whose patterns are the model's between two bins and noise otherwise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 12))
    Y = noise * rng.standard_normal((rows, 10, bins))
    Y[:, :, first:last] += (X @ rng.standard_normal((12, 10)))[:, :, None] / 2
    return X, Y


@pytest.mark.parametrize(
    ("over", "measure"), [("rdm_time", "rdm"), ("cka_time", "cka")]
)
def test_each_bin_has_the_value_of_the_measure(over, measure):
    X, Y = movie()
    features = np.stack(
        [X, 2 * X + 1, *[np.roll(X, k, axis=0) for k in (1, 2, 3, 4)]], -1
    )
    score = nl.metric(over)(assembly(features), assembly(Y))
    single = nl.metric(measure)
    expected = [
        single(assembly(features[..., t]), assembly(Y[..., t])) for t in range(6)
    ]
    np.testing.assert_allclose(score.samples, [each.value for each in expected])
    assert score.value == pytest.approx(np.mean([each.value for each in expected]))
    assert score.samples["time_bin_start"].values.tolist() == [0, 10, 20, 30, 40, 50]
    assert score.low < score.value < score.high
    alone = nl.metric(over)(assembly(features[..., 2:3]), assembly(Y[..., 2:3]))
    assert alone.low == pytest.approx(expected[2].low)
    assert alone.high == pytest.approx(expected[2].high)


def test_a_model_without_time_is_compared_with_every_bin():
    X, Y = movie()
    found = nl.metric("rdm_time")(assembly(X), assembly(Y)).samples.values
    expected = [
        nl.metric("rdm")(assembly(X), assembly(Y[..., t])).value for t in range(6)
    ]
    np.testing.assert_allclose(found, expected)


def test_the_matrix_has_every_pair_of_times():
    X, Y = movie(4)
    features = np.stack([X, np.roll(X, 1, axis=0), np.roll(X, 2, axis=0)], axis=-1)
    score = nl.metric("rdm_time_matrix")(assembly(features), assembly(Y))
    assert score.samples.dims == ("source_bin", "time_bin")
    for a in range(3):
        for b in range(4):
            expected = nl.metric("rdm")(assembly(features[..., a]), assembly(Y[..., b]))
            assert float(score.samples[a, b]) == pytest.approx(expected.value)
    assert score.low < score.value < score.high


def test_single_trials_are_compared_in_each_bin():
    X, Y = movie(3, rows=12)
    rng = np.random.default_rng(1)
    trials = np.concatenate([Y + rng.standard_normal(Y.shape) for _ in range(3)])
    ids = [f"s{i:04d}" for i in range(12)] * 3
    repetition = np.repeat(np.arange(3), 12)
    brain = assembly(trials, repetition=repetition).assign_coords(
        stimulus_id=("presentation", ids)
    )
    found = nl.metric("crossnobis_time")(assembly(X), brain)
    expected = [
        nl.metric("crossnobis")(assembly(X), brain.isel(time_bin=t, drop=True)).value
        for t in range(3)
    ]
    np.testing.assert_allclose(found.samples.values, expected)


def test_a_cluster_is_where_the_brain_follows_the_model():
    X, Y = movie(12, first=4, last=9, noise=0.7)
    score = nl.metric("cka_time", permutations=60)(assembly(X), assembly(Y))
    p = score.samples["cluster_p"].values
    assert (p[5:8] <= 0.05).all()
    assert (p[:3] > 0.05).all()
    assert any("cluster" in note and "ms: p = " in note for note in score.notes)


def alarms(experiments):
    found = 0
    for seed in range(experiments):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((10, 6)), rng.standard_normal((10, 5, 8))
        score = nl.metric("cka_time", permutations=39)(assembly(X), assembly(Y))
        found += bool((score.samples["cluster_p"] <= 0.05).any())
    return found / experiments


@pytest.mark.slow
def test_noise_has_clusters_in_at_most_six_percent_of_experiments():
    assert alarms(300) <= 0.06 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_noise_rarely_has_a_cluster():
    assert alarms(5) <= 0.4


def test_the_ceiling_of_each_bin_is_that_of_its_noise():
    _, Y = movie(3, rows=20, first=1, last=3)
    rng = np.random.default_rng(1)
    trials = np.concatenate([Y + 0.3 * rng.standard_normal(Y.shape) for _ in range(4)])
    brain = assembly(trials, repetition=np.repeat(np.arange(4), 20)).assign_coords(
        stimulus_id=("presentation", [f"s{i:04d}" for i in range(20)] * 4)
    )
    found = nl.ceiling("rdm_consistency_time")(brain)
    expected = [
        nl.ceiling("rdm_consistency")(brain.isel(time_bin=t, drop=True)).value
        for t in range(3)
    ]
    np.testing.assert_allclose(found.samples.values, expected)
    silent = brain.copy(deep=True)
    silent[:, :, 0] = 1.0
    lacking = nl.ceiling("rdm_consistency_time")(silent)
    assert np.isnan(lacking.samples.values[0])
    assert any("time bin 0" in note for note in lacking.notes)


def test_bad_input_is_refused():
    X, Y = movie()
    with pytest.raises(MetricError, match="has no dimension time_bin"):
        nl.metric("rdm_time")(assembly(X), assembly(Y[..., 0]))
    with pytest.raises(MetricError, match="5 time bins and the target 6"):
        nl.metric("rdm_time")(assembly(Y[..., :5]), assembly(Y))
    with pytest.raises(MetricError, match="`measure: regression` does not"):
        nl.metric("rdm_time", measure={"name": "regression"})(assembly(X), assembly(Y))
    with pytest.raises(MetricError, match="time bin 2: "):
        flat = Y.copy()
        flat[:, :, 2] = 1.0
        nl.metric("cka_time")(assembly(X), assembly(flat))


def test_the_figure_marks_clusters():
    X, Y = movie(12, first=4, last=9, noise=0.7)
    score = nl.metric("cka_time", permutations=39)(assembly(X), assembly(Y))
    ax = nl.plot.time(score)
    assert ax.data["score"] == score.samples.values.tolist()
    assert ax.data["clusters of score"]
    matrix = nl.metric("rdm_time_matrix")(assembly(Y[..., :2]), assembly(Y[..., :4]))
    assert np.array(nl.plot.time(matrix).data["score"]).shape == (2, 4)
