"""Split-half ceilings equal plain loops on complete, ragged and missing data, and are refused without repetitions."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import ShuffleSplit

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError
from neuroledger.stats.reliability import of_all


def recorded(
    stimuli=12, repetitions=6, neuroids=4, *, seed=0, noise=1.0, bins=None
) -> xr.DataArray:
    """Responses of ``stimuli`` shown ``repetitions`` times, rows in random order."""
    rng = np.random.default_rng(seed)
    shape = (stimuli, 1, neuroids) if bins is None else (stimuli, 1, neuroids, bins)
    values = rng.standard_normal(shape) + noise * rng.standard_normal(
        (stimuli, repetitions, *shape[2:])
    )
    values = values.reshape(stimuli * repetitions, *shape[2:])
    order = rng.permutation(len(values))
    coords = {
        "stimulus_id": (
            "presentation",
            np.repeat([f"s{i:03d}" for i in range(stimuli)], repetitions)[order],
        ),
        "repetition": ("presentation", np.tile(np.arange(repetitions), stimuli)[order]),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
    }
    dims = ("presentation", "neuroid", "time_bin")[: values.ndim]
    if bins is not None:
        coords |= {
            "time_bin_start": ("time_bin", np.arange(bins)),
            "time_bin_end": ("time_bin", np.arange(bins) + 1),
        }
    return xr.DataArray(values[order], dims=dims, coords=coords)


def loop(assembly: xr.DataArray, *, seed=1, folds=10) -> np.ndarray:
    """Reliability (split × neuroid), one mean and one correlation after another."""
    values, ids = assembly.values, assembly["stimulus_id"].values
    repetitions = np.unique(assembly["repetition"].values)
    found = []
    for train, test in ShuffleSplit(folds, train_size=0.5, random_state=seed).split(
        repetitions
    ):
        sides = []
        for half in (train, test):
            rows = np.isin(assembly["repetition"].values, repetitions[half])
            means = []
            for stimulus in np.unique(ids):
                here = values[rows & (ids == stimulus)]
                there = (
                    np.isfinite(here).any(axis=0)
                    if len(here)
                    else np.zeros(values.shape[1], bool)
                )
                with np.errstate(invalid="ignore"):
                    means.append(
                        np.where(
                            there,
                            np.nansum(here, axis=0)
                            / np.maximum(1, np.isfinite(here).sum(axis=0)),
                            np.nan,
                        )
                    )
            sides.append(np.array(means))
        row = []
        for a, b in zip(sides[0].T, sides[1].T, strict=True):
            both = np.isfinite(a) & np.isfinite(b)
            r = np.corrcoef(a[both], b[both])[0, 1]
            row.append(2 * r / (1 + r))
        found.append(row)
    return np.array(found)


def halves_taken_as_equal(assembly: xr.DataArray, **overrides) -> nl.Score:
    return nl.ceiling("internal_consistency", correction="spearman_brown", **overrides)(
        assembly
    )


@pytest.mark.parametrize("repetitions", [2, 5, 6])
def test_equals_the_loop(repetitions):
    assembly = recorded(repetitions=repetitions)
    score = halves_taken_as_equal(assembly)
    expected = loop(assembly)
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-12)
    by_split = np.median(expected, axis=1)
    assert score.value == pytest.approx(by_split.mean(), abs=1e-12)
    assert score.error == pytest.approx(by_split.std() / np.sqrt(10), abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.6, 0.95), st.booleans())
def test_ragged_and_missing_repetitions_equal_the_loop(seed, kept, whole_rows):
    assembly = recorded(20, 8, 3, seed=seed)
    rng = np.random.default_rng(seed)
    if whole_rows:
        assembly = assembly[rng.random(assembly.sizes["presentation"]) < kept]
    else:
        assembly = assembly.where(rng.random(assembly.shape) < kept)
    score = halves_taken_as_equal(assembly)
    np.testing.assert_allclose(score.samples.values, loop(assembly), atol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
def test_a_high_level_costs_no_digits(missing):
    """Millionths about 1e8, in the steps that numbers have there, are as reliable as about 0."""
    assembly = recorded(20, 5, 3)
    assembly = (assembly * 1e-6 * 2**26).round() / 2**26
    if missing:
        assembly = assembly.where(np.random.default_rng(0).random(assembly.shape) < 0.9)
    level = xr.DataArray([1e8, -1e8, 0.0], dims="neuroid")
    score = halves_taken_as_equal(assembly + level)
    np.testing.assert_allclose(score.samples.values, loop(assembly), atol=1e-11)


def test_stimuli_missing_from_a_half_are_left_out_and_noted():
    assembly = recorded(repetitions=4)
    gone = (assembly["stimulus_id"] == "s003") & (assembly["repetition"] > 0)
    score = halves_taken_as_equal(assembly[~gone.values])
    np.testing.assert_allclose(
        score.samples.values, loop(assembly[~gone.values]), atol=1e-12
    )
    assert any("left out" in note for note in score.notes)


def test_only_the_first_repetitions_may_be_used():
    assembly = recorded(repetitions=8)
    score = halves_taken_as_equal(assembly, repetitions=5)
    np.testing.assert_allclose(
        score.samples.values,
        loop(assembly[assembly["repetition"].values < 5]),
        atol=1e-12,
    )
    with pytest.raises(MetricError, match="the assembly has 8"):
        nl.ceiling("internal_consistency", repetitions=9)(assembly)


def test_each_time_bin_has_its_own_reliability():
    assembly = recorded(bins=3)
    score = nl.ceiling("internal_consistency_temporal", correction="spearman_brown")(
        assembly
    )
    assert score.samples.dims == ("time_bin", "split", "neuroid")
    for t in range(3):
        np.testing.assert_allclose(
            score.samples.values[t], loop(assembly[..., t]), atol=1e-12
        )


def test_the_correction_is_optional():
    assembly = recorded()
    r = nl.ceiling("internal_consistency", correction="none")(assembly).samples.values
    corrected = halves_taken_as_equal(assembly).samples.values
    np.testing.assert_allclose(2 * r / (1 + r), corrected, atol=1e-12)


def test_noiseless_responses_are_perfectly_reliable():
    assert halves_taken_as_equal(recorded(noise=0.0)).value == pytest.approx(1.0)


def test_negative_halves_and_constant_neuroids_are_noted():
    assembly = recorded(noise=30.0)
    assembly[:, 0] = 4.2
    score = halves_taken_as_equal(assembly)
    assert np.isnan(score.samples.values[:, 0]).all()
    assert any("not a reliability" in note for note in score.notes)
    assert any("1 of 4 neuroids have no reliability" in note for note in score.notes)


def test_presentations_without_repetitions_are_refused():
    assembly = recorded(stimuli=20, repetitions=1)
    assembly["repetition"] = ("presentation", np.arange(20) % 2)
    with pytest.raises(CeilingError, match="no repetitions"):
        halves_taken_as_equal(assembly)
    with pytest.raises(MetricError, match="repetition"):
        halves_taken_as_equal(assembly.drop_vars("repetition"))
    with pytest.raises(
        MetricError, match="no repetitions: 'repetition' has only the value"
    ):
        halves_taken_as_equal(recorded(repetitions=1))


def test_macaque_v4_with_six_to_ten_repetitions(mirror):
    folder = mirror / "cowley2023_v4_210325"
    raw = np.load(folder / "responses_raw_210325.npy")
    expected = json.loads((folder / "expected.json").read_text())
    neuroids, stimuli, repetitions = raw.shape
    assembly = xr.DataArray(
        raw.transpose(2, 1, 0).reshape(-1, neuroids),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": (
                "presentation",
                np.tile([f"i{i:04d}" for i in range(stimuli)], repetitions),
            ),
            "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
        },
    )
    for used, case in ((6, "ceiling_first6reps"), ("all", "ceiling_all_ragged_reps")):
        score = nl.ceiling("internal_consistency", repetitions=used)(assembly)
        assert score.value == pytest.approx(expected[case]["value"], abs=1e-12)
        assert score.error == pytest.approx(expected[case]["error"], abs=1e-12)


@pytest.mark.parametrize("repetitions", [2, 3, 5])
@pytest.mark.parametrize("name", ["internal_consistency", "predictor_consistency"])
@pytest.mark.slow
def test_the_reliability_of_all_repetitions_is_the_true_one(name, repetitions):
    """Simulated with noise of twice the signal's variance: reliability is 1 / (1 + 2 / repetitions)."""
    assembly = recorded(4000, repetitions, 24, noise=np.sqrt(2), seed=repetitions)
    truth = 1 / (1 + 2 / repetitions)
    exact = nl.ceiling(name)(assembly).value
    assert exact == pytest.approx(truth, abs=0.006)
    equal = nl.ceiling(name, compat="brainscore")(assembly).value
    assert (
        (truth - equal > 0.007)
        if repetitions == 3
        else equal == pytest.approx(truth, abs=0.012)
    )


def test_parts_of_unequal_length_are_corrected_by_horsts_formula():
    r, p = np.linspace(0.05, 0.95, 10), 0.25
    q = 1 - p
    horst = r * (np.sqrt(r**2 + 4 * p * q * (1 - r**2)) - r) / (2 * p * q * (1 - r**2))
    first, second = np.full((10, 7), 1.0), np.full((10, 7), 3.0)
    np.testing.assert_allclose(of_all(r, first, second), horst, atol=1e-12)
    np.testing.assert_allclose(of_all(r, second, second), 2 * r / (1 + r), atol=1e-15)
    np.testing.assert_allclose(of_all(-r, second, second), -2 * r / (1 - r), atol=1e-15)
    assert np.isnan(of_all(np.array([-1.0]), first[:1], second[:1])).all()
    assert of_all(np.array([0.0]), first[:1], second[:1]).item() == 0.0


def test_an_array_stored_by_neuroid_gives_the_same_values():
    """Such as BrainIO's, whose neuroids come first; ``python -m perf`` measures that they cost no more time."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((168, 40 * 400)).astype(np.float32)
    coords = {
        "stimulus_id": ("presentation", np.tile([f"s{i}" for i in range(400)], 40)),
        "repetition": ("presentation", np.repeat(np.arange(40), 400)),
    }
    by_neuroid = xr.DataArray(values, dims=("neuroid", "presentation"), coords=coords)
    by_row = xr.DataArray(
        np.ascontiguousarray(values.T), dims=("presentation", "neuroid"), coords=coords
    )
    ceiling = nl.ceiling("internal_consistency")
    np.testing.assert_array_equal(
        ceiling(by_row).samples.values, ceiling(by_neuroid).samples.values
    )
