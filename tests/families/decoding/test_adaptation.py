"""Networks are adapted as declared: equal to plain PyTorch loops, with fixed parameters that stay as they were."""

import copy

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import network_to_decoder
from neuroledger.families.decoding.models.window_inputs import Inputs
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.adaptation import Adaptation
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.decoding.training.lora import add_low_rank
from neuroledger.families.decoding.training.probes import PENALTIES

torch = pytest.importorskip("torch")

CHANNELS, SAMPLES, CLASSES = 3, 8, 2
RECIPE = Laptop(
    epochs=4, patience=9, batch=8, scale="none", clamp=0, weight_decay=0.1,
    class_weights=False, learning_rate=0.01,
)  # fmt: skip
SIGNATURE = Signature(
    "classification", CHANNELS, SAMPLES, CLASSES, 8.0, ("A", "B", "C"), 5
)


def network():
    """Two layers with a normalisation and dropout between them, the same weights every time."""
    from torch import nn

    state = torch.get_rng_state()
    torch.manual_seed(3)
    made = nn.Sequential(
        nn.Flatten(),
        nn.Linear(CHANNELS * SAMPLES, 6),
        nn.BatchNorm1d(6),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(6, CLASSES),
    )
    torch.set_rng_state(state)
    return made


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.tile(["a", "b"], 24)
    x = rng.standard_normal((48, CHANNELS, SAMPLES))
    x[:, 0] += 0.8 * (y == "b")[:, None]
    return x, y


def trained(data, adapt, recipe=RECIPE, **fields):
    x, y = data
    decoder = network_to_decoder(
        "m", lambda _: network(), recipe, True, "cpu", False, adapt=adapt, **fields
    )
    estimator = decoder.make(SIGNATURE)
    return estimator.fit_validated(x[:32], y[:32], x[32:], y[32:])


def plain_loop(model, parameters, data, set_mode, recipe=RECIPE, features=None):
    """Train by PyTorch alone; return the losses of the last batches and the state with the best balanced accuracy."""
    x, y = data
    windows = torch.from_numpy(x.astype(np.float32))
    target = torch.from_numpy((y == "b").astype(int))
    optimiser = torch.optim.AdamW(
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=recipe.learning_rate, total_steps=recipe.epochs * 4,
        pct_start=0.1, div_factor=25.0, final_div_factor=1e4,
    )  # fmt: skip
    order = torch.Generator().manual_seed(SIGNATURE.seed)
    losses, best, state = [], -1.0, None
    for _ in range(recipe.epochs):
        set_mode()
        for rows in torch.randperm(32, generator=order).split(recipe.batch):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(windows[rows]), target[rows])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
        losses.append(loss.item())
        model.eval()
        with torch.inference_mode():
            hit = model(windows[32:]).argmax(1) == target[32:]
        right = [hit[target[32:] == k].float().mean().item() for k in (0, 1)]
        if np.mean(right) > best:
            best, state = np.mean(right), copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return losses, model.eval()


def outputs_of(model, x):
    with torch.inference_mode():
        values = model(torch.from_numpy(x.astype(np.float32)))
    return torch.softmax(values, 1).numpy()


def assert_equal(estimator, losses, model, x):
    np.testing.assert_allclose(estimator.losses_, losses, atol=1e-6)
    np.testing.assert_allclose(
        estimator.predict_proba(x), outputs_of(model, x), atol=1e-6
    )


def test_full_training_equals_a_plain_loop(data):
    torch.manual_seed(SIGNATURE.seed)
    model = network()
    losses, model = plain_loop(model, list(model.parameters()), data, model.train)
    assert_equal(trained(data, "full"), losses, model, data[0])


def test_a_frozen_network_equals_a_plain_loop_over_its_last_layer(data):
    model = network()
    last = model[-1]

    def mode():
        model.eval()
        last.train()

    losses, model = plain_loop(model, list(last.parameters()), data, mode)
    estimator = trained(data, "frozen")
    assert_equal(estimator, losses, model, data[0])
    assert estimator.notes_ == ("adapted: frozen, 14 parameters trained",)
    before, after = network().state_dict(), estimator.network_.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"5.weight", "5.bias"}


def test_two_stages_equal_two_plain_loops(data):
    torch.manual_seed(SIGNATURE.seed)
    model = network()
    last = model[-1]

    def first_mode():
        model.eval()
        last.train()

    first, model = plain_loop(model, list(last.parameters()), data, first_mode)
    second, model = plain_loop(model, list(model.parameters()), data, model.train)
    estimator = trained(data, "two_stages")
    assert_equal(estimator, first + second, model, data[0])


def test_a_linear_probe_equals_a_plain_loop_over_a_new_layer(data):
    torch.manual_seed(SIGNATURE.seed)
    body = network()[:3].eval()
    model = torch.nn.Sequential(body, torch.nn.Linear(6, CLASSES))
    head = list(model[1].parameters())
    losses, model = plain_loop(model, head, data, lambda: None)
    adapt = Adaptation(name="linear_probe", layer="2")
    estimator = trained(data, adapt)
    assert_equal(estimator, losses, model, data[0])
    before, after = network().state_dict(), estimator.network_.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_full_training_with_a_new_head_equals_a_plain_loop(data):
    torch.manual_seed(SIGNATURE.seed)
    body = network()[:5]
    model = torch.nn.Sequential(body, torch.nn.Linear(6, CLASSES))
    losses, model = plain_loop(model, list(model.parameters()), data, model.train)
    estimator = trained(data, Adaptation(name="full", layer="4"))
    assert_equal(estimator, losses, model, data[0])


def test_low_rank_training_equals_a_plain_loop_over_the_formula(data):
    torch.manual_seed(SIGNATURE.seed)
    model = network()
    rank, alpha = 2, 4.0
    a = torch.nn.Parameter(torch.empty(rank, CHANNELS * SAMPLES))
    b = torch.nn.Parameter(torch.zeros(6, rank))
    torch.nn.init.kaiming_uniform_(a, a=5**0.5)

    class Formula(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.a, self.b = model, a, b

        def forward(self, x):
            first = model[1]
            weight = first.weight + alpha / rank * self.b @ self.a
            x = torch.nn.functional.linear(x.flatten(1), weight, first.bias)
            return model[2:](x)

    whole = Formula()

    def mode():
        whole.train()
        model[2].eval()

    parameters = [a, b, *model[-1].parameters()]
    losses, whole = plain_loop(whole, parameters, data, mode)
    estimator = trained(data, Adaptation(name="lora", rank=rank, alpha=alpha))
    assert_equal(estimator, losses, whole, data[0])
    after = estimator.network_.state_dict()
    kept = {
        "1.parametrizations.weight.original": "1.weight",
        "1.bias": "1.bias",
        "2.weight": "2.weight",
        "2.running_mean": "2.running_mean",
        "2.num_batches_tracked": "2.num_batches_tracked",
    }
    before = network().state_dict()
    assert all(torch.equal(after[new], before[old]) for new, old in kept.items())
    trained_count = 2 * CHANNELS * SAMPLES + 6 * 2 + 14
    assert estimator.notes_ == (f"adapted: lora, {trained_count} parameters trained",)


def test_full_rank_reaches_the_least_squares_solution_of_a_linear_layer():
    torch.manual_seed(0)
    x, y = torch.randn(200, 5).double(), torch.randn(200, 3).double()
    layer = torch.nn.Linear(5, 3, bias=False).double()
    start = layer.weight.detach().clone()
    assert add_low_rank(layer, 3, 3.0) == [""]
    assert torch.equal(layer.weight, start)
    free = [part for part in layer.parameters() if part.requires_grad]
    assert sorted(tuple(part.shape) for part in free) == [(3, 3), (3, 5)]
    optimiser = torch.optim.LBFGS(
        free, max_iter=2000, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        loss = ((layer(x) - y) ** 2).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    solution = torch.linalg.lstsq(x, y).solution.T
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), solution.numpy(), atol=1e-5
    )
    assert torch.equal(layer.parametrizations.weight.original, start)


def test_a_ridge_probe_is_the_ridge_of_scikit_learn(data):
    from sklearn.linear_model import Ridge
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.preprocessing import StandardScaler

    x, y = data
    estimator = trained(data, Adaptation(name="ridge_probe", layer="1"))
    windows = torch.from_numpy(x.astype(np.float32))
    with torch.inference_mode():
        features = network()[:2](windows).double().numpy()
    scaler = StandardScaler().fit(features[:32])
    scaled = scaler.transform(features)
    target = np.stack([y == "a", y == "b"], axis=1) * 2.0 - 1.0
    best, chosen = -1.0, None
    for penalty in PENALTIES:
        ridge = Ridge(alpha=penalty, solver="svd").fit(scaled[:32], target[:32])
        outputs = ridge.predict(scaled[32:]).argmax(1)
        value = balanced_accuracy_score(y[32:] == "b", outputs)
        if value > best:
            best, chosen = value, ridge
    expected = chosen.predict(scaled)
    with torch.inference_mode():
        found = estimator.network_(windows).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (estimator.epochs_, estimator.losses_) == (0, [])


def test_by_default_a_probe_reads_what_the_output_layer_receives(data):
    estimator = trained(data, "linear_probe")
    windows = torch.from_numpy(data[0].astype(np.float32))
    with torch.inference_mode():
        expected = network().eval()[:5](windows)
        found = estimator.network_.features(windows)
    assert torch.equal(found, expected)
    assert estimator.network_.head.in_features == 6


@pytest.mark.parametrize(
    ("pool", "count"), [("flatten", 24), ("mean", 8), ("first", 8)]
)
def test_activations_of_several_tokens_are_pooled_as_declared(data, pool, count):
    x, y = data
    tokens = torch.nn.Sequential(torch.nn.LayerNorm(SAMPLES), network())
    decoder = network_to_decoder(
        "m", lambda _: tokens, RECIPE, True, "cpu", False,
        adapt=Adaptation(name="linear_probe", layer="0", pool=pool),
    )  # fmt: skip
    estimator = decoder.make(SIGNATURE).fit_validated(x[:32], y[:32], x[32:], y[32:])
    assert estimator.network_.head.in_features == count


def test_a_learned_adapter_is_trained_with_a_frozen_network(data):
    adapter = {"name": "learned", "channels": 3, "start": "random"}
    inputs = Inputs.model_validate({"channels": adapter})
    estimator = trained(data, "frozen", inputs=inputs)
    state = estimator.network_.state_dict()
    assert state["adapter.weight"].shape == (3, 3, 1)
    assert estimator.notes_ == ("adapted: frozen, 26 parameters trained",)
    with pytest.raises(ModelError, match="cannot learn an adapter"):
        trained(data, "ridge_probe", inputs=inputs)


@pytest.mark.parametrize(
    ("adapt", "words"),
    [
        ({"name": "linear_probe", "layer": "9"}, "no layer '9'; it has 0, 1"),
        ({"name": "lora", "only": ("nowhere",)}, "a name with nowhere"),
        ({"name": "frozen", "head": "z"}, "no layer 'z'"),
    ],
)
def test_what_the_network_does_not_have_is_said(data, adapt, words):
    with pytest.raises(ModelError, match=words):
        trained(data, Adaptation(**adapt))


def test_a_field_of_another_adaptation_is_refused():
    with pytest.raises(ValueError, match="`frozen` does not use rank"):
        Adaptation(name="frozen", rank=4)


def test_an_adapted_decoder_is_scored(data):
    x, y = data
    decoder = network_to_decoder(
        "m", lambda _: network(), RECIPE, True, "cpu", False, adapt="ridge_probe"
    )
    score = nl.decode(decoder, x, y, splits=3, seeds=(0,))
    assert any("adapted: ridge_probe" in note for note in score.notes)
    assert 0.0 <= score.value <= 1.0
