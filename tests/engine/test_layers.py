"""Scores of every layer as a region, from one pass over the stimuli."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr

from neuroledger.data.gate.validate import validate
from neuroledger.engine.evaluate import evaluate, layer_scores
from neuroledger.engine.session import Request, Session
from neuroledger.errors import MetricError, ModelError, RequestError
from neuroledger.families.behavior.models.stored_answers import StoredAnswers
from neuroledger.models.activation_store import open_store
from neuroledger.spec.base import Component
from tests.engine.lab import Lab
from tests.engine.test_commit import network


def opened(lab: Lab) -> Session:
    lab.dataset()
    lab.benchmark("lab.V4-ridge")
    catalog = lab.open()
    validate(catalog, "lab")
    return Session(catalog, Request(), open_store(catalog.root))


def test_a_layer_scores_as_if_the_region_were_committed_to_it(lab: Lab) -> None:
    network(lab, regions={"V4": "conv1"})
    session = opened(lab)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    result = layer_scores(session, benchmark, "net")
    assert list(result) == ["logits", "conv1"]
    assert result["conv1"].value == evaluate(session, benchmark, "net", controls=False).headline.value
    assert result["conv1"].value > result["logits"].value
    assert list(layer_scores(session, benchmark, "net", ["conv1"])) == ["conv1"]


def test_models_without_layers_and_benchmarks_without_regions_are_refused(lab: Lab) -> None:
    network(lab)
    session = opened(lab)
    benchmark: Any = session.catalog.benchmark("lab.V4-ridge")
    with pytest.raises(RequestError, match="layer 'conv2'"):
        layer_scores(session, benchmark, "net", ["conv2"])
    elsewhere = benchmark.model_copy(update={"paradigm": Component(name="recording")})
    with pytest.raises(RequestError, match="records from no region"):
        layer_scores(session, elsewhere, "net")
    session.models["net"] = StoredAnswers("net", xr.DataArray([]))
    with pytest.raises(ModelError, match="'net' has no layers to compare"):
        layer_scores(session, benchmark, "net")


def test_a_mask_reads_a_convolution_and_the_data_predict_themselves_through_it(lab: Lab) -> None:
    network(lab, regions={"V4": "conv1"})
    long = {"epochs": 400, "decay": 300, "batch": 20}
    metric = {"name": "mask_regression", "splits": {"folds": 2}, "compare": {"estimator": long}}
    lab.dataset()
    lab.benchmark("lab.V4-mask", metric=metric, controls={"floor_at_most": 2.0})
    catalog = lab.open()
    validate(catalog, "lab")
    session = Session(catalog, Request(), open_store(catalog.root))
    done = evaluate(session, catalog.benchmark("lab.V4-mask"), "net")
    assert done.headline.value > 0.5
    assert done.controls["itself"].value > 0.8
    with pytest.raises(MetricError, match="no channel, channel_x, channel_y"):
        layer_scores(session, catalog.benchmark("lab.V4-mask"), "net", ["logits"])
