"""Cluster tests and the false discovery rate: against brute force, and with false alarms at most as often as promised."""

import numpy as np
import pytest
from scipy.ndimage import label
from scipy.stats import false_discovery_control, ttest_1samp

from neuroledger.errors import MetricError
from neuroledger.stats.clusters import (
    cluster_test,
    discoveries,
    grid,
    neighbourhood,
    sign_flips,
)


def smooth(rng, *shape):
    noise = rng.standard_normal((*shape[:-1], shape[-1] + 8))
    return sum(noise[..., k : k + shape[-1]] for k in range(9)) / 3


@pytest.mark.parametrize("shape", [(12,), (5, 6), (3, 4, 2)])
def test_neighbours_on_a_grid_differ_by_one_along_one_axis(shape):
    found = grid(*shape).toarray()
    places = np.array(np.unravel_index(np.arange(np.prod(shape)), shape)).T
    distance = np.abs(places[:, None] - places).sum(axis=-1)
    np.testing.assert_array_equal(found, distance == 1)
    np.testing.assert_array_equal(
        neighbourhood(places.astype(float), 1.0).toarray(), distance == 1
    )


@pytest.mark.parametrize("shape", [(40,), (9, 8)])
def test_clusters_are_those_of_a_labelled_image(shape):
    rng = np.random.default_rng(0)
    observed, null = smooth(rng, *shape) + 0.6, smooth(rng, 50, *shape)
    found = cluster_test(observed.ravel(), null.reshape(50, -1), grid(*shape))
    both = np.concatenate([observed[None], null])
    z = (both - both.mean(axis=0)) / both.std(axis=0)

    def masses(image):
        marks, count = label(image > 1.6448536269514722)
        return [image[marks == k].sum() for k in range(1, count + 1)]

    largest = [max(masses(image), default=0.0) for image in z]
    expected = sorted(masses(z[0]), reverse=True)
    assert len(expected) > 0
    np.testing.assert_allclose([each.mass for each in found.found], expected)
    np.testing.assert_allclose(
        [each.p for each in found.found],
        [np.mean(np.array(largest) >= mass - 1e-9) for mass in expected],
    )
    inside = found.p.reshape(shape) < 1
    np.testing.assert_array_equal(inside, z[0] > 1.6448536269514722)


def test_a_planted_effect_is_found_where_it_is():
    rng = np.random.default_rng(0)
    values = smooth(rng, 16, 60)
    values[:, 20:35] += 1.5
    found = cluster_test(*sign_flips(values, 200, rng), grid(60)).found
    assert found[0].p < 0.01
    assert set(range(22, 33)) <= set(found[0].points) <= set(range(14, 41))
    assert all(each.p > 0.05 for each in found[1:])


def alarms(experiments, permutations=99):
    """Share of experiments of noise that have a cluster with p ≤ .05."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(experiments):
        null = sign_flips(smooth(rng, 12, 40), permutations, rng)
        clusters = cluster_test(*null, grid(40)).found
        found += any(each.p <= 0.05 for each in clusters)
    return found / experiments


def test_noise_has_few_clusters_in_some_experiments():
    assert alarms(30) <= 0.15


@pytest.mark.slow
def test_noise_has_clusters_in_at_most_six_percent_of_experiments():
    assert 0.03 <= alarms(2000) <= 0.06


def test_signs_give_students_t():
    values = np.random.default_rng(0).standard_normal((9, 5)) + 0.3
    observed, null = sign_flips(values, 30, np.random.default_rng(2))
    np.testing.assert_allclose(observed, ttest_1samp(values, 0).statistic)
    signs = np.random.default_rng(2).choice([-1.0, 1.0], size=(30, 9))
    expected = [ttest_1samp(values * each[:, None], 0).statistic for each in signs]
    np.testing.assert_allclose(null, expected)


def test_discoveries_are_those_of_benjamini_and_hochberg():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = np.concatenate([rng.random(30), rng.random(10) ** 6])
        np.testing.assert_array_equal(
            discoveries(p, 0.1), false_discovery_control(p) <= 0.1
        )
    p = np.array([0.001, np.nan, 0.9])
    assert discoveries(p).tolist() == [True, False, False]
    assert not discoveries([]).size


def test_false_discoveries_are_as_rare_as_promised():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        p = np.concatenate([rng.random(80), rng.random(20) ** 8])
        rejected = discoveries(p, 0.2)
        shares.append(rejected[:80].sum() / max(rejected.sum(), 1))
    assert np.mean(shares) <= 0.2


def test_bad_input_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(MetricError, match="at least 19"):
        cluster_test(np.zeros(5), np.zeros((18, 5)), grid(5))
    with pytest.raises(MetricError, match="has 5 points"):
        cluster_test(np.zeros(5), np.zeros((20, 4)), grid(5))
    with pytest.raises(MetricError, match="at least 6"):
        sign_flips(np.zeros((5, 4)), 20, rng)
    with pytest.raises(MetricError, match="between 0 and 1"):
        discoveries([0.2, 1.2])
