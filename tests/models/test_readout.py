"""Decisions from features equal those of Brain-Score, and small cases match results computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from neuroledger.errors import ModelError, RequestError
from neuroledger.models import readout
from neuroledger.models.readout import CATEGORIES, SYNSETS


@pytest.fixture(scope="module")
def oracle(reference: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = reference / "brainscore_oracle"
    with np.load(folder / "helpers.npz") as arrays:
        return json.loads((folder / "helpers.json").read_text()), dict(arrays)


def test_probabilities_equal_those_of_brain_score(
    oracle: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    expected, arrays = oracle
    labels = [str(one) for one in arrays["LR_fit_labels"]]
    ids = [str(n) for n in range(20)]
    given = readout.probabilities(
        arrays["LR_fit_features"], labels, arrays["LR_test_features"], ids
    )
    assert list(given["choice"].values) == expected["logistic_readout"]["choice_order"]
    assert list(given["stimulus_id"].values) == ids
    assert (
        np.abs(
            given.values - np.array(expected["logistic_readout"]["probabilities"])
        ).max()
        < 1e-6
    )


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_odd_ones_out_equal_those_of_brain_score(
    oracle: tuple[dict[str, Any], dict[str, Any]], similarity: Any
) -> None:
    expected, arrays = oracle
    case = expected["odd_one_out/" + similarity]
    features = arrays["OOO_features"]
    ids = [f"o{n}" for n in range(len(features))]
    triplets = [tuple(row) for row in case["triplets"]]
    given = readout.odd_one_out(features, ids, similarity=similarity, triplets=triplets)
    assert list(given.values) == case["choices"]
    rows = [int(name[1:]) for triplet in triplets for name in triplet]
    names = [name for triplet in triplets for name in triplet]
    in_threes = readout.odd_one_out(features[rows], names, similarity=similarity)
    assert list(in_threes.values) == case["choices"]
    assert list(in_threes["stimulus_id"].values) == [
        "|".join(triplet) for triplet in triplets
    ]


def test_labels_equal_those_of_brain_score(
    oracle: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    expected, arrays = oracle
    sixteen = sorted(list(CATEGORIES)[:16])
    given = readout.label(
        arrays["LABEL_logits"], [str(n) for n in range(12)], sixteen, model="m"
    )
    assert list(given.values) == expected["label/geirhos16"]


def test_synsets_equal_those_of_brain_score(
    oracle: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    expected, arrays = oracle
    given = readout.label(
        arrays["LABEL_logits"], [str(n) for n in range(12)], ["imagenet"], model="m"
    )
    assert list(given.values) == expected["label/imagenet synsets"]


def test_every_class_has_its_own_synset() -> None:
    assert len(SYNSETS) == len(set(SYNSETS)) == 1000
    assert list(SYNSETS) == sorted(SYNSETS)
    assert (SYNSETS[0], SYNSETS[281], SYNSETS[999]) == (
        "n01440764",
        "n02123045",
        "n15075141",
    ), "tench, tabby, paper"


def test_a_label_is_the_mean_over_its_classes_not_their_sum() -> None:
    logits = np.full((1, 1000), -20.0)
    logits[0, 404] = 5.0
    logits[0, list(CATEGORIES["dog"])] = 4.0
    assert list(
        readout.label(logits, ["a"], ["dog", "airplane"], model="m").values
    ) == ["airplane"]
    logits[0, 404] = 3.9
    assert list(
        readout.label(logits, ["a"], ["dog", "airplane"], model="m").values
    ) == ["dog"]
    assert list(
        readout.label(logits + 1e4, ["a"], ["dog", "airplane"], model="m").values
    ) == ["dog"]


def test_the_sixteen_categories_share_no_class() -> None:
    sixteen = [CATEGORIES[name] for name in list(CATEGORIES)[:16]]
    every = [index for indices in sixteen for index in indices]
    assert len(every) == len(set(every))
    assert max(every) < 1000


def test_labels_need_logits_of_imagenet_and_known_choices() -> None:
    with pytest.raises(ModelError, match="its readout layer has 10 features"):
        readout.label(np.zeros((1, 10)), ["a"], ["dog"], model="m")
    with pytest.raises(RequestError, match=r"\['unicorn'\]"):
        readout.label(np.zeros((1, 1000)), ["a"], ["dog", "unicorn"], model="m")


def test_the_most_similar_pair_is_kept_and_the_first_wins_a_tie() -> None:
    features = np.array([[1.0, 0], [0, 1], [1, 0.1], [1, 0], [1, 0], [1, 0]])
    given = readout.odd_one_out(features, list("abcdef"))
    assert list(given.values) == ["b", "f"]
    with pytest.raises(RequestError, match="a multiple of three"):
        readout.odd_one_out(features[:4], list("abcd"))
    with pytest.raises(
        RequestError, match="1 stimuli of the triplets have no features, first 'z'"
    ):
        readout.odd_one_out(features, list("abcdef"), triplets=[("a", "b", "z")])


def test_a_readout_needs_two_labels() -> None:
    with pytest.raises(RequestError, match="at least two labels"):
        readout.probabilities(np.ones((2, 2)), ["a", "a"], np.ones((1, 2)), ["s"])


def test_two_labels_are_penalised_like_several() -> None:
    rng = np.random.default_rng(4)
    fitting, shown = rng.normal(size=(60, 12)), rng.normal(size=(9, 12))
    truth = np.where(fitting[:, 0] + rng.normal(size=60) > 0, "a", "b")
    given = readout.probabilities(
        fitting, truth.tolist(), shown, [f"s{n}" for n in range(9)]
    )
    fitting, shown = (
        (one - fitting.mean(axis=0)) / fitting.std(axis=0) for one in (fitting, shown)
    )
    own = np.array([given["choice"].values.tolist().index(one) for one in truth])

    def loss(flat: np.ndarray) -> float:
        weights, start = flat[:24].reshape(2, 12), flat[24:]
        logits = fitting @ weights.T + start
        chosen = logits[np.arange(60), own] - np.log(np.exp(logits).sum(axis=1))
        return float(-chosen.sum() + (weights**2).sum() / (2 * readout.PENALTY))

    found = minimize(loss, np.zeros(26), tol=1e-12).x
    logits = shown @ found[:24].reshape(2, 12).T + found[24:]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.abs(given.values - expected).max() < 1e-4


def test_a_model_may_have_its_own_labels() -> None:
    logits = np.array([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    names = ["one", "two", "three"]
    assert list(
        readout.label(logits, ["a", "b"], names, model="m", labels=names).values
    ) == ["one", "three"]
    assert (
        list(
            readout.label(
                logits, ["a", "b"], ["three", "two"], model="m", labels=names
            ).values
        )
        == ["three"] * 2
    )
    with pytest.raises(RequestError, match=r"has no label for \['four'\]"):
        readout.label(logits, ["a", "b"], ["one", "four"], model="m", labels=names)
    with pytest.raises(
        ModelError, match="its readout layer has 3 features, but there are 2 labels"
    ):
        readout.label(logits, ["a", "b"], ["one"], model="m", labels=names[:2])


def test_decisions_have_the_ids_of_their_stimuli() -> None:
    logits = np.zeros((2, 1000))
    logits[:, 404] = 1.0
    for given in (
        readout.label(logits, ["x", "y"], ["airplane", "dog"], model="m"),
        readout.label(logits, ["x", "y"], ["imagenet"], model="m"),
        readout.label(logits[:, :2], ["x", "y"], ["a"], model="m", labels=["a", "b"]),
        readout.odd_one_out(logits[[0, 0, 0, 1, 1, 1]], list("xxxyyy"))[:2],
    ):
        assert (
            given["stimulus_id"].dims == ("presentation",)
            and given["stimulus_id"].dtype == object
        )
    assert list(
        readout.label(logits, ["x", "y"], ["dog"], model="m")["stimulus_id"].values
    ) == ["x", "y"]


def test_refusals_of_labels_name_the_model() -> None:
    with pytest.raises(ModelError, match="model 'm': its readout layer has 3 features"):
        readout.label(np.zeros((1, 3)), ["a"], ["one"], model="m", labels=["one"])
    with pytest.raises(
        RequestError, match="model 'm' has no label for an empty list of choices"
    ):
        readout.label(np.zeros((1, 1)), ["a"], [], model="m", labels=["one"])
    with pytest.raises(
        RequestError, match="no ImageNet classes are known for an empty list of choices"
    ):
        readout.label(np.zeros((1, 1000)), ["a"], [], model="m")


def test_categories_contain_their_first_and_last_class() -> None:
    assert CATEGORIES["cat"] == (281, 282, 283, 284, 285, 286)
    assert CATEGORIES["bicycle"] == (444, 671) and CATEGORIES["knife"] == (499,)
