"""Scores of layers as a region from one pass, and a choice that does not see the stimuli on which it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.gate.validate import validate
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.alignment.layer_curves.choice import (
    choose,
    halves,
    layers_by_depth,
    region_of,
    score_layers,
)
from neuroledger.models.activation_store import open_store
from neuroledger.models.model import LayeredModel
from neuroledger.spec.base import Component
from neuroledger.spec.kinds import SplitsSpec
from tests.engine.lab import IMAGES, Lab
from tests.engine.test_commit import network

Features = Mapping[str, np.ndarray[Any, Any]]


def opened(lab: Lab, seed: int = 0, **fields: Any) -> Session:
    lab.dataset()
    lab.benchmark("lab.V4-ridge", **fields)
    catalog = lab.open()
    validate(catalog, "lab")
    return Session(catalog, Request(seed=seed), open_store(catalog.root))


def answering(features: Features) -> LayeredModel:
    """A model whose layers answer with the rows of arrays (image, feature)."""

    def extract(
        stimuli: Any, stimulus_ids: Any, layers: Any, trial: Any
    ) -> dict[str, Any]:
        rows = [int(id.removeprefix("im")) for id in stimulus_ids]
        return {layer: features[layer][rows] for layer in layers}

    return LayeredModel(
        id="drawn", takes=frozenset({"images"}), extract=extract, layers=tuple(features)
    )


def recorded(lab: Lab) -> np.ndarray[Any, Any]:
    """Return the mean responses (image, neuroid) of the lab, in the order of the images."""
    assembly = xr.open_dataset(lab.data / "responses.nc")
    values = next(iter(assembly.data_vars.values())).values.reshape(-1, IMAGES, 5)
    mean: np.ndarray[Any, Any] = values.mean(axis=0)
    return mean


def test_a_layer_scores_as_if_the_region_were_committed_to_it(lab: Lab) -> None:
    network(lab, regions={"V4": "conv1"})
    session = opened(lab)
    benchmark, model = (
        session.catalog.benchmark("lab.V4-ridge"),
        model_of(session, "net"),
    )
    assert isinstance(model, LayeredModel)
    depth = layers_by_depth(session, benchmark, model)
    assert list(depth) == [
        "conv1",
        "logits",
    ]  # in the order in which they run, declared the other way round
    assert 0 < depth["conv1"] < depth["logits"] == 1
    result = score_layers(session, benchmark, model, list(depth))
    assert (
        result["conv1"].value
        == evaluate(session, benchmark, "net", controls=False).headline.value
    )
    assert result["conv1"].value > result["logits"].value
    assert list(layers_by_depth(session, benchmark, model, ["conv1"])) == ["conv1"]
    every = layers_by_depth(session, benchmark, model, "all")
    assert {"conv1", "conv2", "conv3", "hidden", "logits"} <= set(every)


@pytest.mark.parametrize("span", [{"screen": "as_is"}, {"visual_degrees": 8}])
def test_the_benchmark_says_how_large_the_images_are_of_which_the_layers_are_listed(
    lab: Lab, span: dict[str, Any]
) -> None:
    network(lab, regions={"V4": "conv1"}, visual_degrees=8)
    session = opened(lab, paradigm={"name": "recording", "region": "V4", **span})
    benchmark, model = (
        session.catalog.benchmark("lab.V4-ridge"),
        model_of(session, "net"),
    )
    assert isinstance(model, LayeredModel)
    assert list(layers_by_depth(session, benchmark, model)) == ["conv1", "logits"]


def test_layers_that_do_not_exist_and_benchmarks_without_regions_are_refused(
    lab: Lab,
) -> None:
    network(lab)
    session = opened(lab)
    benchmark: Any = session.catalog.benchmark("lab.V4-ridge")
    model = model_of(session, "net")
    assert isinstance(model, LayeredModel)
    with pytest.raises(RequestError, match=r"layer 'conf1' .did you mean conv1"):
        layers_by_depth(session, benchmark, model, ["conf1"])
    with pytest.raises(RequestError, match="layer 'tow'"):
        layers_by_depth(
            session, benchmark, answering({"two": np.ones((IMAGES, 3))}), ["tow"]
        )
    elsewhere = benchmark.model_copy(update={"paradigm": Component(name="recording")})
    with pytest.raises(
        RequestError, match=r"^benchmark 'lab\.V4-ridge' .* records from no region"
    ):
        region_of(elsewhere)


def test_a_mask_reads_a_convolution_and_the_data_predict_themselves_through_it(
    lab: Lab,
) -> None:
    network(lab, regions={"V4": "conv1"})
    long = {"epochs": 400, "decay": 300, "batch": 20}
    metric = {
        "name": "mask_regression",
        "splits": {"folds": 2},
        "compare": {"estimator": long},
    }
    lab.dataset()
    lab.benchmark("lab.V4-mask", metric=metric, controls={"floor_at_most": 2.0})
    catalog = lab.open()
    validate(catalog, "lab")
    session = Session(catalog, Request(), open_store(catalog.root))
    benchmark = catalog.benchmark("lab.V4-mask")
    done = evaluate(session, benchmark, "net")
    assert done.headline.value > 0.5
    assert (done.controls["itself"].value or 0) > 0.8
    model = model_of(session, "net")
    assert isinstance(model, LayeredModel)
    with pytest.raises(MetricError, match="no channel, channel_x, channel_y"):
        score_layers(session, benchmark, model, ["logits"])


@pytest.mark.parametrize(
    "metric", [{"name": "ridge", "splits": {"folds": 5, "train": 0.7}}, {"name": "cka"}]
)
def test_a_layer_that_is_good_on_the_choosing_stimuli_alone_scores_nothing_on_the_others(
    lab: Lab, metric: dict[str, Any]
) -> None:
    session = opened(lab, metric=metric, ceiling=None)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    responses, rng = recorded(lab), np.random.default_rng(7)
    model = answering({"truth": responses, "liar": responses})
    measured = score_layers(session, benchmark, model, ["truth"])
    assert measured["truth"].value > 0.95
    target = session.selected or session.datasets
    assembly = next(iter(target.values())).assembly
    assert assembly is not None
    spec = SplitsSpec(name="shuffle") if metric["name"] == "ridge" else None
    choosing, other = halves(spec, assembly, session.request.seed)
    assert len(choosing) == len(other) == IMAGES / 2 and not choosing & other
    liar = 0.01 * rng.normal(size=responses.shape)
    inside = [int(id.removeprefix("im")) for id in choosing]
    liar[inside] = responses[inside]
    honest = responses + 1.5 * responses.std() * rng.normal(size=responses.shape)
    model = answering({"honest": honest, "liar": liar})
    scores = score_layers(session, benchmark, model, ["honest", "liar"])
    choice = choose(session, benchmark, model, scores)
    assert (
        choice.layer == "liar"
        and choice.values["liar"] > 0.95 > choice.values["honest"]
    )
    assert choice.nested is not None and choice.reason == ""
    assert choice.nested.value < 0.4 < scores["liar"].value
    assert (choice.chosen_on, choice.scored_on) == (30, 30)


def test_the_best_of_thirty_layers_of_noise_is_above_zero_and_its_nested_score_is_not(
    lab: Lab,
) -> None:
    metric = {"name": "ridge", "splits": {"folds": 2, "train": 0.7}}
    session = opened(lab, metric=metric, ceiling=None)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    best, nested = [], []
    for draw in range(6):
        rng = np.random.default_rng(draw)
        model = answering(
            {f"layer{i}": rng.normal(size=(IMAGES, 6)) for i in range(30)}
        )
        scores = score_layers(session, benchmark, model, model.layers)
        choice = choose(session, benchmark, model, scores)
        assert choice.nested is not None
        best.append(max(score.value for score in scores.values()))
        nested.append(choice.nested.value)
    error = np.std(nested, ddof=1) / np.sqrt(len(nested))
    assert (
        min(best) > 0.1
    )  # the highest point of the curve promises something every time
    assert abs(np.mean(nested)) < 3 * error and np.mean(nested) < np.mean(best) / 2


def test_the_halves_keep_units_together_and_classes_apart() -> None:
    ids = np.array([f"im{i}" for i in range(40)])
    coords = {
        "stimulus_id": ("presentation", ids),
        "category": ("presentation", np.repeat(["a", "b", "c", "d"], 10)),
        "scene": ("presentation", np.arange(40) // 4),
    }
    assembly = xr.DataArray(
        np.zeros((40, 2)), dims=("presentation", "neuroid"), coords=coords
    )
    first, second = halves(SplitsSpec(stratify="category"), assembly, 0)
    for start in range(0, 40, 10):
        assert sum(id in first for id in ids[start : start + 10]) == 5
    assert first | second == set(ids) and not first & second
    assert halves(SplitsSpec(stratify="category"), assembly, 0)[0] == first
    assert halves(SplitsSpec(stratify="category"), assembly, 1)[0] != first
    first, _ = halves(SplitsSpec(name="group", groups="scene"), assembly, 0)
    assert {
        sum(id in first for id in ids[start : start + 4]) for start in range(0, 40, 4)
    } == {0, 4}
    with pytest.raises(MetricError, match="no presentations of single stimuli"):
        halves(None, assembly.drop_vars("stimulus_id"), 0)


def test_a_choice_that_cannot_be_scored_elsewhere_says_why(lab: Lab) -> None:
    metric = {"name": "ridge", "splits": {"folds": 2, "train": 40, "test": 20}}
    session = opened(lab, metric=metric, ceiling=None)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    rng = np.random.default_rng(0)
    model = answering({"noise": rng.normal(size=(IMAGES, 3)), "truth": recorded(lab)})
    scores = score_layers(session, benchmark, model, model.layers)
    choice = choose(session, benchmark, model, scores)
    assert choice.layer == "truth" and choice.nested is None
    assert "undefined" in choice.reason or "splits" in choice.reason
