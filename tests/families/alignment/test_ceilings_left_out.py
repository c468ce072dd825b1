"""Ceilings without some of their items: the fast ways equal computing the ceiling again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.left_out import general
from neuroledger.stats.samples import Samples, Variation
from tests.families.alignment.test_ceiling_intervals import (
    binned,
    rdms_of_people,
    simulated,
)

STIMULI = 24


def computed(bound: Any, assembly: xr.DataArray) -> tuple[Samples, Variation]:
    samples = bound.samples((assembly,), bound._splits(None, assembly))
    assert isinstance(samples.variation, Variation)
    return samples, samples.variation


def again(
    bound: Any, assembly: xr.DataArray, samples: Samples, *, halves: bool
) -> Variation:
    found = general(
        (assembly,),
        bound._splits(None, assembly),
        lambda arrays, parts: bound.samples(arrays, parts).values,
        samples.values,
        halves=halves,
    )
    assert found is not None
    return found


def trials(missing: bool = False, **sizes: int) -> xr.DataArray:
    assembly = simulated(0, stimuli=STIMULI, neuroids=9, noise=1.0, subjects=3, **sizes)
    return (
        assembly.where(np.random.default_rng(3).random(assembly.shape) > 0.1)
        if missing
        else assembly
    )


def stimuli_kept(variation: Variation) -> np.ndarray:
    names = np.asarray(variation.items["stimulus"])
    return ~np.isin(
        names, np.random.default_rng(0).choice(np.unique(names), 5, replace=False)
    )


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "internal_consistency",
        "internal_consistency_spearman",
        "internal_consistency_kendall",
        "signal_reliability",
    ],
)
def test_halves_without_stimuli_are_those_of_the_others(
    name: str, missing: bool
) -> None:
    bound, assembly = nl.ceiling(name), trials(missing)
    samples, own = computed(bound, assembly)
    oracle = again(bound, assembly, samples, halves=True)
    keep = stimuli_kept(own)
    names = np.asarray(own.items["stimulus"])[keep]
    expected = oracle.without({"stimulus": np.isin(oracle.items["stimulus"], names)})
    np.testing.assert_allclose(own.without({"stimulus": keep}), expected, atol=1e-10)


@pytest.mark.parametrize("missing", [False, True])
def test_halves_of_each_time_bin(missing: bool) -> None:
    assembly = binned()
    if missing:
        assembly = assembly.where(np.random.default_rng(3).random(assembly.shape) > 0.1)
    bound = nl.ceiling("internal_consistency_temporal")
    samples, own = computed(bound, assembly)
    oracle = again(bound, assembly, samples, halves=True)
    keep = stimuli_kept(own)
    names = np.asarray(own.items["stimulus"])[keep]
    expected = oracle.without({"stimulus": np.isin(oracle.items["stimulus"], names)})
    np.testing.assert_allclose(own.without({"stimulus": keep}), expected, atol=1e-10)


@pytest.mark.parametrize("missing", [False, True])
def test_halves_drawn_for_each_stimulus_stay(missing: bool) -> None:
    """By hand: correlations of the same halves, of which one stimulus is masked."""
    bound, assembly = nl.ceiling("predictor_consistency"), trials(missing)
    _, own = computed(bound, assembly)
    names = np.asarray(own.items["stimulus"])
    masked = assembly.where(
        assembly["stimulus_id"] != names[4]
    )  # draws use ids and repetitions alone
    r = bound.samples((masked,), None).values
    np.testing.assert_allclose(
        own.without({"stimulus": names != names[4]}), r, atol=1e-10
    )


@pytest.mark.parametrize("name", ["subject_predictivity", "extrapolated_predictivity"])
def test_each_group_of_tested_stimuli_equals_leaving_it_out(name: str) -> None:
    assembly = simulated(
        0, stimuli=60, neuroids=6, repetitions=1, noise=0.7, subjects=3
    )
    bound = nl.ceiling(name, **({"bootstraps": 2} if name.startswith("extra") else {}))
    samples, own = computed(bound, assembly)
    codes = np.arange(60) % 20
    assert own.each is not None
    together = own.each("stimulus", codes)
    for group in (0, 5):
        alone = own.without({"stimulus": codes != group})
        np.testing.assert_allclose(
            alone, together[group], atol=1e-5
        )  # fits of curves stop there
    assert own.inflation["stimulus"] > 1
    if name == "subject_predictivity":
        oracle = again(bound, assembly, samples, halves=False)
        ids = np.asarray(own.items["stimulus"])[codes != 5]
        expected = oracle.without({"stimulus": np.isin(oracle.items["stimulus"], ids)})
        np.testing.assert_allclose(together[5], expected, atol=1e-10)


@pytest.mark.parametrize("bound", ["expected", "upper", "lower"])
@pytest.mark.parametrize(
    "comparison", ["pearson", "cosine", "spearman", "kendall_tau_a"]
)
def test_an_rsa_ceiling_without_stimuli_is_that_of_the_others(
    bound: str, comparison: str
) -> None:
    ceiling, rdms = (
        nl.ceiling("rsa_ceiling", bound=bound, comparison=comparison),
        rdms_of_people(0, 16),
    )
    _, own = computed(ceiling, rdms)
    keep = np.arange(16) % 5 > 0
    expected = ceiling(rdms.isel(stimulus=keep, stimulus_b=keep)).samples
    np.testing.assert_allclose(own.without({"stimulus": keep}), expected, atol=1e-12)


def test_subjects_are_aligned_without_stimuli_and_without_one_another() -> None:
    bound, assembly = (
        nl.ceiling("cka_subjects"),
        simulated(0, STIMULI, 16, 1, subjects=4),
    )
    _, own = computed(bound, assembly)
    rows, subjects = np.arange(STIMULI) % 6 > 0, np.array([True, False, True, True])
    left = own.without({"stimulus": rows, "subject": subjects})
    others = assembly["subject"].values != "p1"
    expected = bound(assembly[rows][:, others]).samples
    np.testing.assert_allclose(left.values[subjects], expected, atol=1e-12)
    assert np.isnan(left.values[1])


def test_the_samples_of_a_distribution_lose_the_neuroids_that_the_data_lose() -> None:
    values = np.random.default_rng(1).normal(size=30)
    bound = nl.ceiling(
        "property_ceiling", property_name="x", bins=(-2, -1, 0, 1, 2), draws=400
    )
    data = xr.DataArray(values, dims="neuroid")
    samples, own = computed(bound, data)
    everything = own.without({"neuroid": np.ones(30, dtype=bool)})
    np.testing.assert_array_equal(everything, samples.values)
    kept = np.arange(30) % 3 > 0
    left = float(own.without({"neuroid": kept}).mean())
    assert left == pytest.approx(bound(data[kept]).value, abs=0.02)
    score = bound(data)
    assert score.uncertainty is not None and score.uncertainty.factors == ("neuroid",)
