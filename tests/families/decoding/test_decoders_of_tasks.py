"""Tests that every published task has decoders besides the dummy, and that these predict windows of its shape."""

import warnings

import numpy as np
import pytest

from neuroledger.engine.plan import fits
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Session
from neuroledger.families.decoding.protocols.decoder import Signature, answer
from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe
from neuroledger.spec.catalog import open_catalog

# The shape of a window by where it comes from: channels, samples, Hz. Channels of EEG and MEG are fewer than there are.
SHAPES = {
    "eeg": (8, 120, 120.0),
    "meg": (12, 120, 120.0),
    "fmri": (300, 4, 0.5),
    "emg": (16, 11_790, 2000.0),
}
NETWORKS = ("network_decoder", "torch_decoder", "braindecode_decoder", "ctc_decoder")
CONTROLS = ("dummy_decoder",)


def published():
    catalog = open_catalog()
    names = [
        name for name in catalog.ids("benchmarks") if name.startswith("neuralbench.")
    ]
    return [
        name for name in names if catalog.benchmark(name).paradigm.name == "decoding"
    ]


def meant_for(catalog, benchmark):
    """The models that a run of this benchmark would score, by kind, without controls."""
    spec = catalog.benchmark(benchmark)
    models = [name for name in catalog.ids("models") if fits(catalog, name, spec.id)]
    kinds = {"network": [], "classical": [], "dummy": []}
    for name in models:
        model = catalog.model(name)
        builder = model.builder.name
        if model.control is not None and builder not in CONTROLS:
            continue
        kind = (
            "network"
            if builder in NETWORKS
            else ("dummy" if builder in CONTROLS else "classical")
        )
        kinds[kind].append(name)
    return kinds


def objective_of(catalog, benchmark):
    return catalog.benchmark(benchmark).paradigm.parameters.get(
        "objective", "classification"
    )


@pytest.mark.parametrize("benchmark", published())
def test_every_task_has_decoders_that_support_it(benchmark):
    catalog = open_catalog()
    session = Session(catalog)
    kinds = meant_for(catalog, benchmark)
    objective = objective_of(catalog, benchmark)
    for name in (*kinds["network"], *kinds["classical"], *kinds["dummy"]):
        assert objective in model_of(session, name).objectives, name
    assert kinds["dummy"] == ["dummy"]
    assert [name for name in kinds["network"] if not name.startswith("braindecode.")]
    # All tasks except texts have a published classical decoder.
    assert kinds["classical"] or objective == "sequence"


def truth_of(objective, count, rng):
    if objective == "classification":
        return np.tile(["a", "b", "c"], count)[:count]
    if objective == "multilabel":
        return (rng.random((count, 3)) < 0.5).astype(int)
    if objective == "retrieval":
        return rng.standard_normal((count, 6))
    return rng.standard_normal(count)


@pytest.mark.parametrize(
    ("device", "objective", "model"),
    [
        ("eeg", "classification", "covariance_logistic_search"),
        ("eeg", "classification", "xdawn_logistic_search"),
        ("eeg", "classification", "cospectra_logistic_search"),
        ("eeg", "classification", "eegnet_neuralbench"),
        ("eeg", "multilabel", "covariance_logistic_search"),
        ("eeg", "multilabel", "eegnet_neuralbench"),
        ("eeg", "regression", "covariance_ridge"),
        ("eeg", "regression", "shallow_fbcsp_net_neuralbench"),
        ("eeg", "retrieval", "covariance_ridge"),
        ("eeg", "retrieval", "eegnet_neuralbench"),
        ("meg", "retrieval", "covariance_ridge"),
        ("meg", "retrieval", "eegnet_neuralbench"),
        ("meg", "classification", "covariance_logistic_search"),
        ("fmri", "retrieval", "amplitude_ridge_search"),
        ("fmri", "retrieval", "residual_mlp_neuralbench"),
        ("emg", "regression", "covariance_ridge"),
        ("emg", "regression", "pose_network"),
    ],
)
@pytest.mark.slow
def test_decoders_of_tasks_answer_windows_of_their_shape(device, objective, model):
    """A decoder for a task of this kind is trained for one epoch on windows of its shape."""
    catalog = open_catalog()
    tasks = [
        name
        for name in published()
        if name.startswith(f"neuralbench.{device}.")
        and objective_of(catalog, name) == objective
    ]
    assert any(
        model
        in (
            *meant_for(catalog, task)["network"],
            *meant_for(catalog, task)["classical"],
        )
        for task in tasks
    )
    channels, samples, rate = SHAPES[device]
    rng = np.random.default_rng(0)
    count = 12 if device == "emg" else 40
    x = rng.standard_normal((count, channels, samples)).astype(np.float32)
    y = (
        rng.standard_normal((count, 40))
        if device == "emg"
        else truth_of(objective, count, rng)
    )
    choices = np.unique(y) if objective == "classification" else np.empty(0, dtype=str)
    outputs = len(choices) or (y.shape[1] if y.ndim == 2 else 1)
    ids = tuple(f"C{channel}" for channel in range(channels))
    recipe = TaskRecipe(epochs=1, scale="none")
    signature = Signature(
        objective, channels, samples, outputs, rate, ids, 33, recipe=recipe
    )
    estimator = model_of(Session(catalog), model).make(signature)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = answer(estimator.fit(x, y), x, objective, choices, id=model)
    assert predicted.shape == ((count, outputs) if outputs > 1 else (count,))
    assert np.isfinite(predicted).all()
