"""Tests of the whole pipeline from images to scores, with a known ranking of models."""

from __future__ import annotations

import pytest

from neuroledger.data.load import load_dataset
from neuroledger.engine.bound_metric import ceiling
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.spec.registry import get

IT = "Digits.simulated.IT-pls"


@pytest.fixture(scope="module")
def session(catalog):
    pytest.importorskip("torch")
    get("builder", "small_cnn")
    session = Session(catalog)
    # The gate has its own tests; here the data come straight from the embedded remote.
    session.valid.update(session.catalog.ids("datasets"))
    return session


@pytest.fixture(scope="module")
def scores(session):
    models = (
        "generator",
        "small_cnn.digits",
        "small_cnn.random",
        "gabor",
        "pixels16",
        "noise",
    )
    benchmark = session.catalog.benchmark(IT)
    return {model: evaluate(session, benchmark, model) for model in models}


def test_generator_comes_first_and_reaches_the_ceiling(scores):
    best = max(scores, key=lambda model: scores[model].headline.value)
    assert best == "generator"
    headline = scores["generator"].headline
    assert headline.low < 1 and headline.high > 1


def test_learning_helps_beyond_the_interval(scores):
    trained = scores["small_cnn.digits"].headline
    for other in ("small_cnn.random", "gabor", "pixels16"):
        assert trained.value > scores[other].headline.value
    assert trained.low > scores["small_cnn.random"].headline.high
    assert trained.high < scores["generator"].headline.low


def test_uninformed_models_are_at_the_floor(scores):
    for model in ("noise", "pixels16"):
        assert abs(scores[model].headline.value) < 0.02
    for evaluation in scores.values():
        assert abs(evaluation.controls["permuted"].value) < 0.02
        assert all(
            control.verdict == "passed" for control in evaluation.controls.values()
        )


@pytest.mark.parametrize(
    "id",
    [
        "Digits.simulated.V4-pls",
        pytest.param("Digits.simulated.IT-rdm", marks=pytest.mark.slow),
        "Digits.simulated.subjects.IT-rdm",
    ],
)
def test_generator_beats_the_trained_network_beats_pixels(session, id):
    benchmark = session.catalog.benchmark(id)
    models = ("generator", "small_cnn.digits", "pixels16")
    values = [evaluate(session, benchmark, model).headline.value for model in models]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.9


def test_generator_is_between_the_noise_ceilings_of_subjects(session):
    benchmark = session.catalog.benchmark("Digits.simulated.subjects.IT-rdm")
    score = evaluate(session, benchmark, "generator").headline
    assembly = load_dataset(session.catalog, benchmark.dataset).assembly
    lower = ceiling("rsa_ceiling_lower", catalog=session.catalog)(assembly).value
    assert lower < score.raw < score.ceiling.value
