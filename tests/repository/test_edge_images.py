"""Tests that networks which see the images of edges, and models with stored answers, are scored alike."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.data.images import decode
from neuroledger.data.load import load_dataset
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import lacking
from neuroledger.engine.session import Session
from neuroledger.families.behavior.tasks.trial_tables import (
    answers_by_stimulus,
    read_trial_tables,
)
from neuroledger.models.readout import CATEGORIES, CLASSES

BENCHMARK = "Geirhos2021.edge-error_consistency"
CELLS = 28
PLAIN = {"resize": 224, "mean": [0.0] * 3, "std": [1.0] * 3}


class Recognises(nn.Module):
    """Has one logit per class of ImageNet: the largest is that of the known image that resembles the input most."""

    def __init__(self, images: torch.Tensor, classes: list[int]) -> None:
        super().__init__()
        self.cells = nn.AdaptiveAvgPool2d(CELLS)
        self.register_buffer("known", self.cells(images).flatten(1))
        self.register_buffer(
            "rows", nn.functional.one_hot(torch.tensor(classes), CLASSES).float()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distances = torch.cdist(self.cells(x).flatten(1), self.known)
        return 20 * self.rows[distances.argmin(1)]


@pytest.fixture(scope="module")
def edge(catalog):
    return load_dataset(catalog, "Geirhos2021.edge")


@pytest.fixture(scope="module")
def pixels(edge):
    images = [
        np.asarray(decode(content, "image").convert("RGB"))
        for content in edge.stimuli.read()
    ]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255


def _network(pixels, answers):
    classes = [CATEGORIES[answer][0] for answer in answers]
    return nl.models.torch(
        Recognises(pixels, classes),
        id="recognises",
        logits="output",
        preprocessing=PLAIN,
    )


def _evaluated(catalog, model):
    session = Session(catalog)
    session.valid.update(catalog.ids("datasets"))
    return evaluate(session, catalog.benchmark(BENCHMARK), model)


def test_every_person_answered_every_image(edge):
    assert len(edge.stimuli) == 160
    for _, trials in edge.assembly.groupby("subject"):
        assert sorted(trials["stimulus_id"].values) == edge.stimuli.ids
    named = edge.stimuli.table["filename"].str.replace(r"\d+\.png$", "", regex=True)
    assert named.tolist() == edge.stimuli.table["truth"].tolist()


def test_a_network_that_recognises_the_objects_is_always_right(catalog, edge, pixels):
    result = _evaluated(catalog, _network(pixels, edge.stimuli.table["truth"]))
    assert result.scores["accuracy"].value == 1


def test_a_network_with_the_answers_of_resnet50_has_its_score(
    catalog, edge, pixels, repository
):
    """The recorded score is of stored answers, and equals the figure that the authors' toolbox computes."""
    path = catalog.root / "data/models/Geirhos2021.resnet50/edge_resnet50_session-1.csv"
    stored = answers_by_stimulus(read_trial_tables([path]))
    result = _evaluated(
        catalog, _network(pixels, [stored[id] for id in edge.stimuli.ids])
    )
    record = repository / "results/records" / BENCHMARK / "Geirhos2021.resnet50.json"
    recorded = json.loads(record.read_text())["scores"]
    published = catalog.benchmark(BENCHMARK).published
    toolbox = next(
        each.value for each in published if each.model == "Geirhos2021.resnet50"
    )
    assert result.headline.raw == pytest.approx(toolbox, abs=1e-12)
    assert {name: each.value for name, each in result.scores.items()} == pytest.approx(
        {name: each["value"] for name, each in recorded.items()}, abs=1e-12
    )


def test_networks_and_stored_answers_are_scored_on_one_benchmark(catalog):
    assert not lacking(catalog, "Geirhos2021.resnet50", BENCHMARK)
    assert "images" not in lacking(catalog, "small_cnn.digits", BENCHMARK)
