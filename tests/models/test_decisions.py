"""Decisions read out from features: reference probabilities and choices, properties of the fit, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from neuroledger.errors import ModelError, RequestError
from neuroledger.models import readout

SIXTEEN = sorted(
    [
        "airplane",
        "bear",
        "bicycle",
        "bird",
        "boat",
        "bottle",
        "car",
        "cat",
        "chair",
        "clock",
        "dog",
        "elephant",
    ]
    + ["keyboard", "knife", "oven", "truck"]
)


@pytest.fixture(scope="module")
def oracle(reference):
    folder = reference / "brainscore_oracle"
    return np.load(folder / "helpers.npz", allow_pickle=True), json.loads(
        (folder / "helpers.json").read_text()
    )


def test_reference_probabilities(oracle):
    arrays, cases = oracle
    labels = [str(label) for label in arrays["LR_fit_labels"]]
    ids = [str(i) for i in range(len(arrays["LR_test_features"]))]
    got = readout.probabilities(
        arrays["LR_fit_features"], labels, arrays["LR_test_features"], ids
    )
    assert got["choice"].values.tolist() == cases["logistic_readout"]["choice_order"]
    np.testing.assert_allclose(
        got.values, cases["logistic_readout"]["probabilities"], atol=1e-9
    )


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_reference_odd_one_out(oracle, similarity):
    arrays, cases = oracle
    case, features = cases[f"odd_one_out/{similarity}"], arrays["OOO_features"]
    names = [f"o{i}" for i in range(len(features))]
    triplets = [tuple(triplet) for triplet in case["triplets"]]
    got = readout.odd_one_out(features, names, similarity=similarity, triplets=triplets)
    assert got.values.tolist() == case["choices"]
    assert got["stimulus_id"].values[0] == "|".join(triplets[0])
    rows = [names.index(name) for triplet in triplets for name in triplet]
    in_threes = readout.odd_one_out(
        features[rows], [names[row] for row in rows], similarity=similarity
    )
    assert in_threes.values.tolist() == case["choices"]


def test_labels_do_not_depend_on_an_offset_of_the_logits():
    logits = np.random.default_rng(0).normal(size=(20, 1000)) * 5
    ids = [str(i) for i in range(20)]
    plain, shifted = (
        readout.label(logits + by, ids, SIXTEEN, model="m").values
        for by in (0.0, 900.0)
    )
    np.testing.assert_array_equal(plain, shifted)


def test_probabilities_sum_to_one_and_recover_planted_labels():
    rng = np.random.default_rng(1)
    labels = np.repeat(["x", "y", "z"], 40)
    centres = {"x": 0, "y": 4, "z": 8}
    features = rng.normal(size=(120, 5)) + np.array(
        [[centres[label]] for label in labels]
    )
    got = readout.probabilities(
        features[::2], labels[::2].tolist(), features[1::2], [str(i) for i in range(60)]
    )
    np.testing.assert_allclose(got.values.sum(axis=1), 1, atol=1e-12)
    assert (
        got["choice"].values[got.values.argmax(axis=1)] == labels[1::2]
    ).mean() > 0.6


def test_unusable_questions_are_refused():
    with pytest.raises(RequestError, match="two labels"):
        readout.probabilities(np.ones((3, 2)), ["a"] * 3, np.ones((1, 2)), ["i"])
    with pytest.raises(RequestError, match="a multiple of three"):
        readout.odd_one_out(np.ones((4, 2)), list("abcd"))
    with pytest.raises(RequestError, match="no features"):
        readout.odd_one_out(np.ones((2, 2)), ["a", "b"], triplets=[("a", "b", "c")])
    with pytest.raises(ModelError, match="1000 ImageNet logits"):
        readout.label(np.ones((1, 10)), ["i"], ["cat"], model="m")
    with pytest.raises(RequestError, match="unicorn"):
        readout.label(np.ones((1, 1000)), ["i"], ["unicorn"], model="m")
