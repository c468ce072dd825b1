"""Reference values of the peers' code on seeded arrays, for neural metrics; needs the folder of reference values."""

import json

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl

TOLERANCE = {"pls": 1e-9}


@pytest.fixture(scope="module")
def case(reference):
    folder = reference / "brainscore_oracle"
    with np.load(folder / "neural.npz") as arrays:
        return dict(arrays), json.loads((folder / "neural.json").read_text())


def built(arrays, values, rows=None, ids=None) -> xr.DataArray:
    rows = np.arange(len(values)) if rows is None else rows
    coords = {
        "stimulus_id": ("presentation", arrays["N1_stim"][rows]),
        "object_name": ("presentation", arrays["N1_obj"][rows]),
        "neuroid_id": (
            "neuroid",
            [f"m{i:03d}" for i in range(values.shape[1])] if ids is None else ids,
        ),
    }
    if values.ndim == 3:
        coords |= {
            "time_bin_start": ("time_bin", [0, 10, 20]),
            "time_bin_end": ("time_bin", [10, 20, 30]),
        }
    return xr.DataArray(
        values[rows],
        dims=("presentation", "neuroid", "time_bin")[: values.ndim],
        coords=coords,
    )


def agree(score, expected, tolerance):
    assert score.value == pytest.approx(np.mean(expected["center"]), abs=tolerance)
    if expected.get("error") is not None and np.ndim(expected["error"]) == 0:
        assert score.error == pytest.approx(expected["error"], abs=tolerance)
    if "raw" in expected:
        raw = np.array(expected["raw"])
        samples = (
            score.samples.sortby("neuroid_id")
            if "neuroid_id" in score.samples.coords
            else score.samples
        )
        np.testing.assert_allclose(
            samples.values.reshape(raw.shape), raw, atol=max(tolerance, 1e-9)
        )


CROSS_VALIDATED = [
    ("N1/{}/strat=object_name", {"stratify": "object_name"}),
    ("N1/{}/strat=None", {"stratify": None}),
]


@pytest.mark.parametrize(("key", "splits"), CROSS_VALIDATED)
@pytest.mark.parametrize(
    "name",
    [
        "pls_cv",
        "ridge_cv",
        "linear_predictivity_cv",
        "neuron_to_neuron_cv",
        "rdm_cv",
        "cka_cv",
    ],
)
def test_cross_validated(case, name, key, splits):
    arrays, expected = case
    source = built(arrays, arrays["N1_X"], arrays["N1_perm_source"])
    target = built(
        arrays, arrays["N1_Y"], arrays["N1_perm_target"], arrays["N1_neuroid_id"]
    )
    agree(
        nl.metric(name, splits=splits)(source, target), expected[key.format(name)], 1e-9
    )
    plain = name.removesuffix("_cv")
    if plain not in ("rdm", "cka"):
        agree(
            nl.metric(plain, splits=splits)(source, target),
            expected[key.format(name)],
            1e-9,
        )
    if splits["stratify"]:
        agree(
            nl.metric(name, compat="brainscore")(source, target),
            expected[key.format(name)],
            1e-9,
        )


@pytest.mark.parametrize(
    ("key", "name", "splits"),
    [
        ("N1/pls_cv/strat=None/splits=4", "pls", {"folds": 4}),
        (
            "N1/pls_cv/strat=object_name/kfold",
            "pls",
            {"name": "kfold", "stratify": "object_name"},
        ),
        ("N1/ridge_cv/strat=None/kfold5", "ridge", {"name": "kfold", "folds": 5}),
        ("N1/rdm", "rdm", None),
        ("N1/cka (unbiased)", "cka", None),
        ("N1/cka_biased", "cka_biased", None),
    ],
)
def test_other_splits_and_whole_assemblies(case, key, name, splits):
    arrays, expected = case
    source = built(arrays, arrays["N1_X"], arrays["N1_perm_source"])
    target = built(
        arrays, arrays["N1_Y"], arrays["N1_perm_target"], arrays["N1_neuroid_id"]
    )
    metric = nl.metric(name) if splits is None else nl.metric(name, splits=splits)
    agree(metric(source, target), expected[key], 1e-9)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "pls",
        "ridge",
        "linear_predictivity",
        "neuron_to_neuron",
        "ridgecv",
        "dual_ridge",
        "dual_ridgecv",
    ],
)
def test_given_train_and_test(case, name, wide):
    arrays, expected = case
    key = (
        f"N1/wide/{name}_split"
        if wide
        else f"N1/{name}_split/train=rows0-47,test=rows48-59"
    )
    if key not in expected:
        assert name in ("pls", "linear_predictivity", "neuron_to_neuron")
        return
    source = built(arrays, arrays["N1_Xwide" if wide else "N1_X"])
    target = built(arrays, arrays["N1_Y"], ids=arrays["N1_neuroid_id"])
    score = nl.metric(f"{name}_split")(
        source_train=source[:48],
        source_test=source[48:],
        target_train=target[:48],
        target_test=target[48:],
    )
    agree(score, expected[key], 1e-9)
    if expected[key].get("alpha") is not None:
        assert (score.samples["penalty"] == expected[key]["alpha"]).all()


def test_reverse_direction(case):
    arrays, expected = case
    Y = arrays["N1_Y"]
    source = built(arrays, arrays["N1_X"], arrays["N1_perm_source"])
    target = built(arrays, np.hstack([Y, Y**2, np.tanh(Y)]), arrays["N1_perm_target"])
    agree(
        nl.metric("reverse_pls_cv")(source, target),
        expected["N1/reverse_pls_cv/target=[Y,Y^2,tanh(Y)]/strat=None"],
        1e-9,
    )


@pytest.mark.parametrize("name", ["spantime_pls", "spantime_ridge"])
def test_shared_weights_over_time(case, name):
    arrays, expected = case
    source = built(arrays, arrays["N1_X3"], arrays["N1_perm_source"])
    target = built(
        arrays, arrays["N1_Y3"], arrays["N1_perm_target"], arrays["N1_neuroid_id"]
    )
    score = nl.metric(name, splits={"stratify": "object_name"})(source, target)
    agree(score, expected[f"N1/{name}"], 1e-9)
    by_bin = np.median(score.samples.values, axis=2).mean(axis=0)
    np.testing.assert_allclose(by_bin, expected[f"N1/{name}"]["center"], atol=1e-9)
