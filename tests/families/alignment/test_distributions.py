"""Distributions of properties and dimensions of factors: reference values, closed forms, refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.tuning.distributions import histogram, ks_similarity
from tests.golden.behaviour_cases import GOLDEN


def properties(values, bins=(0.0, 0.25, 0.5, 0.75, 1.0), name="circular_variance"):
    return xr.DataArray(
        np.asarray(values, dtype=float).reshape(-1, 1),
        dims=("neuroid", "property"),
        coords={"property": [name]},
        attrs={f"{name}_bins": np.asarray(bins)},
    )


def test_reference_values_after_seeding_the_legacy_generator(reference):
    folder = reference / "brainscore_oracle"
    arrays = np.load(folder / "behavior_other.npz", allow_pickle=True)
    cases = json.loads((folder / "behavior_other.json").read_text())
    model, data = (
        properties(arrays[name][:, 0], arrays["KS_bins"])
        for name in ("KS_model", "KS_data")
    )
    expected = cases["KS/ks_similarity np.random.seed(0)"]
    settings = {"property_name": "circular_variance", "compat": "brainscore"}
    score = bind.metric("ks_similarity", **settings)(model, data)
    assert math.isclose(score.value, expected["score"], abs_tol=1e-12)
    assert math.isclose(score.error, expected["error"], abs_tol=1e-12)
    np.testing.assert_allclose(score.samples.values[:5], expected["first5"], atol=1e-12)
    expected = cases["KS/property_ceiling np.random.seed(0)"]
    ceiling = bind.ceiling("property_ceiling", **settings)(data)
    assert math.isclose(ceiling.value, expected["score"], abs_tol=1e-12)
    assert math.isclose(ceiling.error, expected["error"], abs_tol=1e-12)


def test_golden_similarity_of_histograms():
    assert float(
        ks_similarity([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1])
    ) == pytest.approx(GOLDEN["ks"], abs=1e-15)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda p: sum(p) > 0.1))
def test_similarity_is_between_zero_and_one(weights):
    q = np.asarray(weights) / sum(weights)
    first, last = np.eye(4)[0], np.eye(4)[-1]
    assert float(ks_similarity(q, q)) == pytest.approx(1)
    assert min(
        float(ks_similarity(first, q)), float(ks_similarity(last, q))
    ) == pytest.approx(0)


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=50))
def test_histogram_is_numpys_after_clipping(values):
    edges = np.array([0.0, 0.1, 0.5, 1.0])
    expected = np.histogram(np.clip(values, 0, 1), edges)[0]
    np.testing.assert_array_equal(
        np.bincount(histogram(np.asarray(values), edges), minlength=3), expected
    )


def test_default_is_seeded_and_near_the_peer():
    rng = np.random.default_rng(0)
    model, data = properties(rng.beta(2, 3, 300)), properties(rng.beta(3, 2, 120))
    metric = bind.metric("ks_similarity", property_name="circular_variance")
    peer = bind.metric(
        "ks_similarity", property_name="circular_variance", compat="brainscore"
    )
    assert metric(model, data).value == metric(model, data).value
    assert metric(model, data).value == pytest.approx(peer(model, data).value, abs=0.01)


def test_inputs_are_not_modified():
    model, data = properties([-1.0, 0.2, 2.0]), properties([0.1, 0.6, 3.0])
    bind.metric("ks_similarity", property_name="circular_variance")(model, data)
    np.testing.assert_array_equal(model.values[:, 0], [-1.0, 0.2, 2.0])


def test_same_distribution_reaches_the_ceiling():
    values = np.random.default_rng(1).random(200)
    score = bind.metric("ks_similarity", property_name="circular_variance")(
        properties(values), properties(values)
    )
    assert (
        score.value
        == bind.ceiling("property_ceiling", property_name="circular_variance")(
            properties(values)
        ).value
    )


@pytest.mark.parametrize(
    ("model", "data", "word"),
    [
        (properties([0.1, 0.2]), properties([0.1], bins=(1.0, 0.0)), "do not increase"),
        (properties([0.1, 0.2], name="other"), properties([0.1]), "no property"),
        (properties([np.nan, np.nan]), properties([0.1]), "empty"),
    ],
)
def test_unusable_distributions_are_refused(model, data, word):
    with pytest.raises(MetricError, match=word):
        bind.metric("ks_similarity", property_name="circular_variance")(model, data)


def test_an_empty_property_has_no_ceiling():
    with pytest.raises(CeilingError, match="empty"):
        bind.ceiling("property_ceiling", property_name="circular_variance")(
            properties([np.nan])
        )


def pairs(rng, noise):
    factors = np.repeat(["shape", "texture"], 50)
    shared = rng.normal(size=(100, 12)) * (factors == "shape")[:, None]
    a, b = (shared + noise * rng.normal(size=(100, 12)) for _ in range(2))

    def wrap(v):
        return xr.DataArray(
            v,
            dims=("presentation", "neuroid"),
            coords={"factor": ("presentation", factors)},
        )

    return wrap(a), wrap(b)


def test_reference_dimensionality(reference):
    folder = reference / "brainscore_oracle"
    arrays = np.load(folder / "behavior_other.npz", allow_pickle=True)
    cases = json.loads((folder / "behavior_other.json").read_text())
    coords = {"factor": ("presentation", arrays["DIM_factor"])}
    sides = [
        xr.DataArray(arrays[n], dims=("presentation", "neuroid"), coords=coords)
        for n in ("DIM_za", "DIM_zb")
    ]
    for factor in ("shape", "texture"):
        score = bind.metric("factor_dimensionality", factor=factor)(*sides)
        assert score.value == pytest.approx(
            cases[f"DIM/factor_dimensionality({factor})"], abs=1e-12
        )


@pytest.mark.parametrize("exponent", [-300, -150, -13, 13, 150, 155, 300])
def test_the_dimensions_of_a_factor_do_not_depend_on_units(exponent):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 30))
    b = np.where(rng.random(a.shape) < 0.6, a, rng.standard_normal(a.shape))
    pairs = {"factor": ("presentation", np.repeat(["shape", "texture"], 20))}
    sides = [
        xr.DataArray(side, dims=("presentation", "neuroid"), coords=pairs)
        for side in (a, b)
    ]
    metric = bind.metric("factor_dimensionality", factor="shape")
    assert (
        metric(*(side * 10.0**exponent for side in sides)).value == metric(*sides).value
    )


def test_a_shared_factor_takes_more_dimensions():
    a, b = pairs(np.random.default_rng(0), 0.3)
    shape, texture = (
        bind.metric("factor_dimensionality", factor=f)(a, b).value
        for f in ("shape", "texture")
    )
    assert shape > texture


def test_dimensionality_needs_the_factor_and_variance():
    a, b = pairs(np.random.default_rng(0), 0.3)
    with pytest.raises(MetricError, match="give one of shape, texture"):
        bind.metric("factor_dimensionality")(a, b)
    with pytest.raises(MetricError, match="do not vary"):
        bind.metric("factor_dimensionality", factor="shape")(a * 0, b * 0)
    with pytest.raises(MetricError, match="do not match"):
        bind.metric("factor_dimensionality", factor="shape")(
            a, b.isel(presentation=slice(0, 99))
        )
