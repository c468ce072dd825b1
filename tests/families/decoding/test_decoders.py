"""Tests of decoders: published parameter counts, early stopping, reproducible training, and classical pipelines."""

import json

import numpy as np
import pytest

from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.models.classical_decoders import (
    cospectra_decoder,
    covariance_decoder,
    dummy_decoder,
    shrinkage_lda,
    sklearn_decoder,
)
from neuroledger.families.decoding.models.convolutional_decoders import (
    eegnet,
    limit_norms,
    shallow_fbcsp_net,
)
from neuroledger.families.decoding.models.network_decoders import (
    braindecode_decoder,
    network_decoder,
    torch_decoder,
)
from neuroledger.families.decoding.models.response_networks import residual_mlp
from neuroledger.families.decoding.protocols.decoder import Signature, answer
from neuroledger.families.decoding.training.decoding_recipes import Laptop, NeuralBench
from tests.contractions import from_right_to_left
from tests.devices import FOR_NETWORKS


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("network", "backbone", "total"),
    [(eegnet, 1456, 1972), (shallow_fbcsp_net, 36320, 38084)],
)
def test_parameters_are_as_many_as_published(network, backbone, total):
    module = network(22, 256, 4)
    assert count(module) == total
    assert count(module) - count(module[-1]) == backbone


def test_parameters_agree_with_the_reference_implementation(reference):
    known = json.loads(
        (reference / "neuralbench_oracle" / "param_counts.json").read_text()
    )
    assert count(eegnet(22, 256, 4)) == known["EEGNet"]["total"]
    assert count(shallow_fbcsp_net(22, 256, 4)) == known["ShallowFBCSPNet"]["total"]
    oracle = json.loads(
        (reference / "neuralbench_oracle" / "oracle_eeglab.json").read_text()
    )
    sizes = {
        row["model"]: row["n_params"] for row in oracle["rows"] if "n_params" in row
    }
    assert count(eegnet(30, 128, 2)) == sizes["EEGNet"] == 1714
    assert count(shallow_fbcsp_net(30, 128, 2)) == sizes["ShallowFBCSPNet"] == 49282


def test_the_perceptron_for_fmri_has_the_published_layers():
    hidden, channels, samples, outputs = 128, 20_484, 4, 1_536
    layers = [
        (channels, hidden),
        (hidden, hidden),
        (hidden, hidden),
        (samples, 1),
        (hidden, outputs),
    ]
    layers += [(outputs, outputs)]
    norms = 3 * 2 * hidden
    assert (
        count(residual_mlp(channels, samples, outputs))
        == sum(a * b + b for a, b in layers) + norms
    )
    assert count(residual_mlp(channels, samples, outputs)) == 5_214_853


def test_the_perceptron_learns_from_four_samples():
    rng = np.random.default_rng(0)
    y = np.tile(["a", "b"], 400)
    x = rng.standard_normal((800, 100, 4)).astype(np.float32)
    x[:, :20, 1:3] += (y == "b")[:, None, None]
    network = network_decoder(
        id="m", architecture="residual_mlp", recipe=Laptop(epochs=12)
    )
    fitted = network.make(signature(channels=100, samples=4)).fit(x[:600], y[:600])
    assert (fitted.predict(x[600:]) == y[600:]).mean() > 0.9


def test_windows_that_are_too_short_are_refused():
    with pytest.raises(ModelError, match="at least 99 samples"):
        shallow_fbcsp_net(4, 98, 2)
    with pytest.raises(ModelError, match="EEGNet"):
        eegnet(4, 20, 2)


def test_spatial_filters_keep_their_norm():
    import torch

    module = eegnet(22, 256, 4)
    with torch.no_grad():
        module[3].weight.mul_(100)
    limit_norms(module)
    assert module[3].weight.flatten(1).norm(dim=1).max() <= 1 + 1e-5


@pytest.mark.parametrize(("limit", "within"), [(0.25, True), (None, False)])
def test_the_norm_of_the_last_layer_is_that_of_the_publication_if_asked_for(
    limit: float | None, within: bool
) -> None:
    given = {} if limit is None else {"last_norm": limit}
    decoder = network_decoder(
        id="e", architecture="eegnet", parameters=given, recipe=Laptop(epochs=2)
    )
    last = decoder.make(signature()).fit(*data()).network_[-1]
    assert bool(last.weight.norm(dim=1).max() <= 0.25 + 1e-5) is within


def signature(objective="classification", channels=3, samples=64, outputs=2, seed=33):
    return Signature(
        objective, channels, samples, outputs, 64.0, ("C0", "C1", "C2"), seed
    )


def data(n=120, seed=0, strength=2.0):
    rng = np.random.default_rng(seed)
    y = np.tile(["a", "b"], n // 2)
    x = rng.standard_normal((n, 3, 64)).astype(np.float32)
    x[:, 0] += strength * (y == "b")[:, None]
    return x, y


SMALL = Laptop(epochs=8, patience=4)


@pytest.mark.parametrize("device", FOR_NETWORKS)
def test_a_network_learns_and_the_same_seed_gives_the_same_bits(device):
    import torch

    x, y = data()
    decoder = network_decoder(
        id="eegnet", architecture="eegnet", recipe=SMALL, device=device
    )
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = decoder.make(signature()).fit(x[:80], y[:80])
    assert (
        torch.equal(torch.get_rng_state(), state)
        and not torch.are_deterministic_algorithms_enabled()
    )
    again = decoder.make(signature()).fit(x[:80], y[:80])
    other = decoder.make(signature(seed=34)).fit(x[:80], y[:80])
    scores = first.predict_proba(x[80:])
    np.testing.assert_array_equal(scores, again.predict_proba(x[80:]))
    assert (scores != other.predict_proba(x[80:])).any()
    assert (first.predict(x[80:]) == y[80:]).mean() > 0.85
    assert first.parameters_ == count(eegnet(3, 64, 2))
    assert decoder.stochastic


def test_a_device_that_is_missing_is_refused_before_training():
    x, y = data()
    decoder = network_decoder(
        id="eegnet", architecture="eegnet", recipe=SMALL, device="abacus"
    )
    with pytest.raises(
        UnavailableError,
        match="device 'abacus' is not available here; use one of: auto, cpu",
    ):
        decoder.make(signature()).fit(x, y)


def test_a_recipe_that_watches_its_scores_trains_where_opt_einsum_is_installed(
    monkeypatch,
):
    """Predictions during training set what training has set."""
    x, y = data()
    setting = from_right_to_left(monkeypatch)
    decoder = network_decoder(id="eegnet", architecture="eegnet", recipe=SMALL)
    assert (
        decoder.make(signature()).fit(x[:80], y[:80]).predict(x[80:]) == y[80:]
    ).mean() > 0.85
    assert setting.enabled


def test_training_stops_when_the_validation_part_does_not_improve():
    x, y = data(strength=8.0)
    recipe = Laptop(epochs=40, patience=3)
    network = network_decoder(id="e", architecture="eegnet", recipe=recipe).make(
        signature()
    )
    network.fit_validated(x[:80], y[:80], x[80:], y[80:])
    assert network.epochs_ < 40


def test_numbers_come_back_in_their_own_units():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, 3, 64)).astype(np.float32)
    y = 500 + 20 * rng.standard_normal(160)
    x[:, 1] += ((y - 500) / 10)[:, None]
    network = network_decoder(
        id="e", architecture="eegnet", recipe=Laptop(epochs=15)
    ).make(signature("regression", outputs=1))
    predicted = network.fit(x[:120], y[:120]).predict(x[120:])
    assert np.corrcoef(predicted, y[120:])[0, 1] > 0.6
    assert abs(predicted.mean() - 500) < 20


@pytest.mark.parametrize(
    ("objective", "outputs"), [("multilabel", 3), ("retrieval", 5)]
)
def test_other_objectives_train(objective, outputs):
    rng = np.random.default_rng(0)
    x, _ = data(60)
    y = (
        rng.integers(0, 2, (60, outputs))
        if objective == "multilabel"
        else rng.standard_normal((60, outputs))
    )
    network = network_decoder(id="e", architecture="eegnet", recipe=SMALL)
    fitted = network.make(signature(objective, outputs=outputs)).fit(x, y)
    assert answer(fitted, x, objective, np.empty(0), id="e").shape == (60, outputs)


def test_untrained_is_chance_and_close_to_where_it_started():
    x, y = data(strength=8.0)
    fitted = (
        network_decoder(id="chance", architecture="eegnet", trained=False)
        .make(signature())
        .fit(x[:80], y[:80])
    )
    assert fitted.epochs_ == 1
    assert (fitted.predict(x[80:]) == y[80:]).mean() < 0.8


def test_recipes_are_named_versioned_and_frozen():
    published = NeuralBench()
    assert (published.name, published.version) == ("neuralbench", 2)
    assert (
        published.learning_rate,
        published.epochs,
        published.patience,
        published.batch,
    ) == (
        1e-4,
        40,
        5,
        64,
    )
    with pytest.raises(ValueError, match="frozen"):
        published.epochs = 2


def test_any_module_by_import_path():
    x, y = data()
    decoder = torch_decoder(
        id="own",
        path="neuroledger.families.decoding.models.convolutional_decoders.eegnet",
        recipe=SMALL,
    )
    assert (
        decoder.make(signature()).fit(x[:80], y[:80]).predict(x[80:]) == y[80:]
    ).mean() > 0.8
    with pytest.raises(ModelError, match="is not on the list of torch modules"):
        torch_decoder(id="own", path="nowhere.Net", recipe=SMALL).make(signature()).fit(
            x, y
        )


def test_a_missing_braindecode_has_an_error_with_the_command_to_install_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "braindecode.models", None)
    decoder = braindecode_decoder(id="b", architecture="Deep4Net", recipe=SMALL)
    with pytest.raises(UnavailableError, match=r"neuroledger\[braindecode\]"):
        decoder.make(signature()).fit(*data())


def test_braindecode_classes_are_built_by_name_from_the_signature(monkeypatch):
    import sys
    import types

    from torch import nn

    class Deep(nn.Sequential):
        def __init__(self, n_chans, n_outputs, n_times, sfreq=None):
            super().__init__(nn.Flatten(), nn.Linear(n_chans * n_times, n_outputs))
            self.sfreq = sfreq

    monkeypatch.setitem(
        sys.modules, "braindecode.models", types.SimpleNamespace(Deep=Deep)
    )
    fitted = (
        braindecode_decoder(id="b", architecture="Deep", recipe=SMALL)
        .make(signature())
        .fit(*data())
    )
    assert fitted.network_.network.sfreq == 64.0
    with pytest.raises(ModelError, match="no network 'Shallow'"):
        braindecode_decoder(id="b", architecture="Shallow", recipe=SMALL).make(
            signature()
        ).fit(*data())


def test_braindecode_classes_that_answer_over_time_write_texts(monkeypatch):
    import sys
    import types

    from torch import nn

    class Typist(nn.Module):
        def __init__(self, n_chans, n_outputs):
            super().__init__()
            self.over_time = nn.Conv1d(n_chans, n_outputs, 8, stride=4)

        def forward(self, windows):
            return self.over_time(windows).transpose(1, 2)

    monkeypatch.setitem(
        sys.modules, "braindecode.models", types.SimpleNamespace(Typist=Typist)
    )
    decoder = braindecode_decoder(id="b", architecture="Typist", recipe=SMALL)
    asked = signature("sequence", outputs=3)._replace(symbols=("a", "b"))
    x, y = data()
    fitted = decoder.make(asked).fit(x, y)
    assert fitted.network_.network.over_time.out_channels == 3
    predicted = answer(fitted, x[:5], "sequence", np.empty(0), id="b")
    assert predicted.shape == (5,) and set("".join(predicted)) <= {"a", "b"}


def oscillations(n=80, seed=0):
    """Class b has twice the power on channel 0, in a 10 Hz rhythm of random phase."""
    rng = np.random.default_rng(seed)
    y = np.tile(["a", "b"], n // 2)
    time = np.arange(128) / 64
    x = rng.standard_normal((n, 3, 128))
    wave = np.sin(2 * np.pi * 10 * time + rng.uniform(0, 6, (n, 1)))
    x[:, 0] += np.where(y == "b", 2.0, 0.3)[:, None] * wave
    return x.astype(np.float32), y


@pytest.mark.parametrize("head", [{"name": "logistic"}, {"name": "logistic_search"}])
def test_power_is_read_from_covariances(head):
    from pydantic import TypeAdapter

    from neuroledger.families.decoding.pipelines.declare import Head

    x, y = oscillations()
    decoder = covariance_decoder(
        id="c", shrinkage=0.1, head=TypeAdapter(Head).validate_python(head)
    )
    fitted = decoder.make(signature(samples=128))
    fitted.fit(x[:60], y[:60])
    scores = answer(fitted, x[60:], "classification", np.array(["a", "b"]), id="c")
    assert (np.array(["a", "b"])[scores.argmax(axis=1)] == y[60:]).mean() > 0.9


def test_power_is_read_from_cospectra():
    x, y = oscillations()
    fitted = cospectra_decoder(id="c", window=64).make(signature(samples=128))
    fitted.fit(x[:60], y[:60])
    assert (fitted.predict(x[60:]) == y[60:]).mean() > 0.8


@pytest.mark.parametrize("which", ["all", "rarest"])
def test_evoked_responses_are_read_by_xdawn(which):
    rng = np.random.default_rng(0)
    y = np.tile(["target", "other", "other"], 30)
    x = rng.standard_normal((90, 3, 64))
    x[y == "target", 1] += 2 * np.hanning(64)
    fitted = covariance_decoder(
        id="x", xdawn=2, xdawn_classes=which, estimator="lwf"
    ).make(signature())
    fitted.fit(x[:60].astype(np.float32), y[:60])
    assert (fitted.predict(x[60:].astype(np.float32)) == y[60:]).mean() > 0.9


def test_any_estimator_by_import_path():
    x, y = data()
    tree = sklearn_decoder(
        id="forest",
        path="sklearn.ensemble.RandomForestClassifier",
        parameters={"n_estimators": 20},
        seeded=True,
    )
    assert tree.stochastic
    fitted = tree.make(signature())
    fitted.fit(x[:80], y[:80])
    assert (fitted.predict(x[80:]) == y[80:]).mean() > 0.9
    with pytest.raises(ModelError, match="does not take these parameters"):
        sklearn_decoder(id="svc", path="sklearn.svm.SVC", parameters={"trees": 3}).make(
            signature()
        )


def test_scores_of_a_margin_become_columns_in_the_order_of_the_choices():
    x, y = data()
    fitted = sklearn_decoder(id="svc", path="sklearn.svm.LinearSVC").make(signature())
    fitted.fit(x[:80], y[:80])
    scores = answer(
        fitted, x[80:], "classification", np.array(["a", "b", "c"]), id="svc"
    )
    assert scores.shape == (40, 3)
    np.testing.assert_array_equal(
        np.array(["a", "b", "c"])[scores.argmax(axis=1)], fitted.predict(x[80:])
    )


def test_shrinkage_lda_is_scikit_learns_on_thinned_amplitudes():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = data(strength=0.3)
    fitted = shrinkage_lda(id="l", every=8).make(signature())
    fitted.fit(x[:80], y[:80])
    flat = x[:, :, ::8].reshape(len(x), -1).astype(float)
    centre, spread = flat[:80].mean(axis=0), flat[:80].std(axis=0)
    plain = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(
        (flat[:80] - centre) / spread, y[:80]
    )
    np.testing.assert_array_equal(
        fitted.predict(x[80:]), plain.predict((flat[80:] - centre) / spread)
    )


def test_the_dummy_predicts_the_most_frequent_value():
    x = np.zeros((4, 1, 1))
    make = dummy_decoder(id="d").make
    assert (
        make(signature()).fit(x, np.array(["b", "a", "b", "b"])).predict(x).tolist()
        == ["b"] * 4
    )
    assert (
        make(signature("regression"))
        .fit(x, np.array([1.0, 2.0, 3.0, 6.0]))
        .predict(x)
        .tolist()
        == [3.0] * 4
    )
    text = (
        make(signature("sequence"))
        .fit(x, np.array(["aab", "a", "ab", "aaaa"]))
        .predict(x)
    )
    assert text.tolist() == ["aa"] * 4


def test_invalid_predictions_are_refused():
    class Strange:
        def predict(self, x):
            return np.full(len(x), "z")

    with pytest.raises(ModelError, match="which is not a class of the training part"):
        answer(
            Strange(),
            np.zeros((3, 1, 1)),
            "classification",
            np.array(["a", "b"]),
            id="s",
        )


def test_training_leaves_the_number_of_threads_as_it_was():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x, y = data(40)
        network_decoder(id="e", architecture="eegnet", recipe=Laptop(epochs=1)).make(
            signature()
        ).fit(x, y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_alias_is_used_once():
    from neuroledger.families.decoding.models.network_decoders import build_network

    def constructor(
        n_chans=None, in_chans=None, n_outputs=None, n_classes=None, n_times=None
    ):
        return (n_chans, in_chans, n_outputs, n_classes, n_times)

    assert build_network(constructor, signature(), {}, "m") == (3, None, 2, None, 64)
