"""Ceilings of the peers' own code on seeded arrays; needs the folder of reference values."""

import json

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl


@pytest.fixture(scope="module")
def case(reference):
    folder = reference / "brainscore_oracle"
    with np.load(folder / "ceilings.npz") as arrays:
        return dict(arrays), json.loads((folder / "ceilings.json").read_text())


def recorded(arrays, values) -> xr.DataArray:
    names = ("stimulus_id", "object_name", "variation", "repetition")
    coords = {name: ("presentation", arrays[f"C1_{name}"]) for name in names}
    coords["neuroid_id"] = ("neuroid", arrays["C1_neuroid_id"])
    if values.ndim == 3:
        coords |= {
            "time_bin_start": ("time_bin", [0, 10]),
            "time_bin_end": ("time_bin", [10, 20]),
        }
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin")[: values.ndim],
        coords=coords,
    )


def test_internal_consistency(case):
    arrays, expected = case
    score = nl.ceiling("internal_consistency", compat="brainscore")(
        recorded(arrays, arrays["C1_values"])
    )
    expected = expected["C1/internal_consistency"]
    assert score.value == pytest.approx(expected["center"], abs=1e-12)
    assert score.error == pytest.approx(expected["error"], abs=1e-12)
    np.testing.assert_allclose(
        score.samples.sortby("neuroid_id").values, expected["raw"], atol=1e-12
    )


def test_internal_consistency_in_time(case):
    arrays, expected = case
    score = nl.ceiling("internal_consistency_temporal", compat="brainscore")(
        recorded(arrays, arrays["C1_values_t2"])
    )
    expected = expected["C1/internal_consistency_temporal"]
    by_bin = np.median(score.samples.values, axis=2)
    np.testing.assert_allclose(by_bin.mean(axis=1), expected["center"], atol=1e-12)
    np.testing.assert_allclose(
        by_bin.std(axis=1) / np.sqrt(10), expected["error"], atol=1e-12
    )


def test_predictor_consistency(case):
    arrays, expected = case
    score = nl.ceiling("predictor_consistency", compat="brainscore")(
        recorded(arrays, arrays["C1_values"])
    )
    expected = expected["C1/predictor_consistency"]
    assert score.value == pytest.approx(expected["center"], abs=1e-12)
    assert score.error == pytest.approx(expected["error"], abs=1e-12)
    np.testing.assert_allclose(score.samples.values, expected["raw"], atol=1e-12)


def test_rsa_ceiling(case):
    arrays, expected = case
    values = arrays["C2_values"]
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{i:02d}" for i in range(len(values))]),
            "neuroid_id": ("neuroid", [f"n{i:02d}" for i in range(values.shape[1])]),
            "subject": ("neuroid", arrays["C2_subject"]),
        },
    )
    assert nl.ceiling("rsa_ceiling")(assembly).value == pytest.approx(
        expected["C2/rsa_ceiling"]["center"], abs=1e-12
    )
    lower = nl.ceiling("rsa_ceiling_lower")(assembly).value
    assert lower == pytest.approx(
        expected["C2/rsa_ceiling"]["lower_bound_loo"], abs=1e-12
    )
