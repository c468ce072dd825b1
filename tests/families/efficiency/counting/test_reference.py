"""NeuroBench's figures, from its own runs, and strict counts where it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from neuroledger.families.efficiency.metrics.activity import (
    dense_neuron_operations,
    neuron_operations,
)
from tests.families.efficiency.counting.counting import counted, ones, per_sample

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "golden" / "neurobench.json").read_text()
)
PEER_FAILS = {
    "lstm_layer", "gru_layer", "rnn_layer", "lstm_layer_zero_bias", "lstm_cell_implicit_state",
    "gru_cell_implicit_state",
}  # fmt: skip
SLOW = {"snn_leaky_batch1"}


@pytest.mark.parametrize("name", sorted(set(GOLDEN["conv2d_2_to_4"]) - {"input"}))
def test_convolutions_equal_neurobenchs_counts(name):
    options = dict(GOLDEN["conv2d_2_to_4"][name])
    dense = options.pop("dense")
    layer = nn.Sequential(ones(nn.Conv2d(2, 4, options.pop("kernel"), **options)))
    trace = counted(layer, torch.full((3, 2, 8, 8), 0.5), mode="neurobench-2.3")
    assert per_sample(trace) == (dense, 0, dense)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_equal_neurobenchs_counts(kind):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = ones(getattr(nn, kind)(25, 5))

        def forward(self, x):
            state = torch.ones(2, 5)
            return self.cell(x, (state, state) if kind == "LSTMCell" else state)

    for mode in ("strict", "neurobench-2.3"):
        macs, acs, _ = per_sample(counted(Cell(), torch.full((2, 25), 0.5), mode=mode))
        assert macs + acs == GOLDEN["cells_25_to_5_of_ones"][kind]


def test_linear_on_steps_sparsity_and_footprints_equal_neurobenchs():
    case = GOLDEN["linear_on_steps"]
    layer = nn.Sequential(ones(nn.Linear(case["inputs"], case["outputs"])))
    trace = counted(
        layer,
        torch.full((2, case["steps"], case["inputs"]), 0.5),
        mode="neurobench-2.3",
    )
    assert per_sample(trace)[2] == case["dense"]
    lstm = nn.Sequential(nn.LSTM(8, 16, num_layers=2, bidirectional=True, proj_size=4))
    for name, parameter in lstm.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
    weights = counted(lstm, mode="neurobench-2.3", needs=("weights",)).weights
    assert (
        round(weights.zeros / weights.connections, 4)
        == GOLDEN["lstm_connection_sparsity_zero_biases"]
    )
    strict = counted(lstm, needs=("weights",)).weights
    assert strict.zeros == 0
    for dtype, size in GOLDEN["footprint"].items():
        network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(
            getattr(torch, dtype)
        )
        assert counted(network, needs=("weights",)).weights.parameter_bytes == size


@pytest.mark.parametrize("name", GOLDEN["unregistered_activations"])
def test_activations_that_neurobench_does_not_count(name):
    network = nn.Sequential(nn.Linear(4, 4), getattr(nn, name)())
    x = torch.full((2, 4), 0.5)
    assert sum(layer.elements for layer in counted(network, x).layers.values()) == 8
    assert (
        sum(
            layer.elements
            for layer in counted(network, x, mode="neurobench-2.3").layers.values()
        )
        == 0
    )


def test_layers_with_the_same_last_name_are_not_merged():
    network = nn.Sequential(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    )
    x = torch.rand(2, 4)
    assert {n for n, layer in counted(network, x).layers.items() if layer.elements} == {
        "0.1",
        "1.1",
    }
    peer = counted(network, x, mode="neurobench-2.3").layers
    assert {n for n, layer in peer.items() if layer.elements} == {"1"}


@pytest.fixture(scope="module")
def oracle(reference):
    """The frozen networks, their inputs, and NeuroBench's figures for them."""
    folder = reference / "neurobench_oracle"
    pytest.importorskip("snntorch")
    sys.path.insert(0, str(folder))
    write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        import common
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = write
    archive = np.load(folder / "data_digits_test.npz")
    shape = archive["spikes_shape"]
    x, y = torch.from_numpy(archive["X"]), torch.from_numpy(archive["y"])
    spikes = torch.from_numpy(
        np.unpackbits(archive["spikes_packed"])[: np.prod(shape)].reshape(shape)
    ).float()
    special = {
        "snn_leaky_analog_input": x[:, None, :].repeat(1, 10, 1),
        "mlp_relu_binary_input": (x > 0.5).float(),
        "mlp_relu_pm1_input": x.sub(0.5).sign(),
        "mlp_relu_zero_input": torch.zeros_like(x),
    }
    cases = json.loads((folder / "oracle.json").read_text())["cases"]
    fixed = json.loads((folder / "reference_check.json").read_text())[
        "fixed_recurrent_synops"
    ]

    def case(name):
        known = cases[name]
        model = known["model"]
        if "implicit" in name:
            network = common.CellNet(model.removesuffix("_cell"), explicit=False)
        else:
            network = common.BUILDERS[model]()
        common.load_weights(model, network, known["weights"].removesuffix(".npz"))
        spiking = model in common.SPIKING
        return (
            network,
            special.get(name, spikes if spiking else x),
            y,
            known,
            fixed.get(name),
        )

    return case, sorted(cases)


def test_every_reference_case_of_neurobench(oracle):
    case, names = oracle
    agreeing = 0
    for name in names:
        if name in SLOW:
            continue
        network, x, y, known, _ = case(name)
        right = []

        def judge(batch, answer, right=right):
            answer = answer.sum(1) if answer.dim() == 3 else answer
            right.append(int((answer.argmax(1) == batch[1]).sum()))

        batches = zip(
            x.split(known["batch_size"]), y.split(known["batch_size"]), strict=True
        )
        trace = counted(network, *batches, mode="neurobench-2.3", receive=judge)
        expected = known["results"]
        layers, count = trace.layers.values(), trace.samples
        weights = trace.weights
        assert weights.parameters == expected["ParameterCount"], name
        assert (
            weights.parameter_bytes + weights.buffer_bytes == expected["Footprint"]
        ), name
        assert (
            round(weights.zeros / weights.connections, 4)
            == expected["ConnectionSparsity"]
        ), name
        assert sum(right) / count == pytest.approx(
            expected["ClassificationAccuracy"], abs=1e-6
        ), name
        assert trace.batch_sparsity == pytest.approx(
            expected["ActivationSparsity"], abs=1e-9
        ), name
        by_layer = {
            n: layer.zeros / layer.elements
            for n, layer in trace.layers.items()
            if layer.elements
        }
        assert by_layer == pytest.approx(
            expected["ActivationSparsityByLayer"], abs=1e-9
        ), name
        if "MembraneUpdates" in expected:
            updates = sum(layer.updates for layer in layers) / count
            assert updates == pytest.approx(expected["MembraneUpdates"], abs=1e-6), name
        neurons = [neuron_operations(trace), dense_neuron_operations(trace)]
        if isinstance(stated := expected.get("NeuronOperations"), dict):
            given = [stated["Effective Neuron Ops"], stated["Neuron Dense Ops"]]
            assert [reading.value for reading in neurons] == pytest.approx(
                given, rel=1e-9
            ), name
        elif stated == 0.0:
            assert {reading.status for reading in neurons} == {"failed"}, name
        if name in PEER_FAILS:
            assert (
                "operations" in trace.failures
                and "strict" in trace.failures["operations"]
            ), name
            continue
        operations = expected["SynapticOperations"]
        peer = (
            operations["Effective_MACs"],
            operations["Effective_ACs"],
            operations["Dense"],
        )
        assert per_sample(trace) == pytest.approx(peer, rel=1e-6, abs=1e-6), name
        agreeing += 1
    assert agreeing >= 36


def test_neurobenchs_failures_are_counted_in_strict_mode(oracle):
    case, names = oracle
    checked = 0
    for name in names:
        network, x, _, _, fixed = case(name)
        if fixed is None:
            continue
        expected = (fixed["Effective_MACs"], fixed["Effective_ACs"], fixed["Dense"])
        assert per_sample(counted(network, *x.split(100))) == pytest.approx(
            expected, rel=1e-9, abs=1e-9
        ), name
        checked += 1
    assert checked >= 7


def test_strict_equals_neurobench_where_definitions_agree(oracle):
    case, names = oracle
    for name in names:
        network, x, _, known, fixed = case(name)
        operations = known["results"]["SynapticOperations"]
        if fixed is not None or name in SLOW or operations == 0.0:
            continue
        macs, acs, dense = per_sample(counted(network, *x.split(90)))
        assert macs + acs == pytest.approx(
            operations["Effective_MACs"] + operations["Effective_ACs"], rel=1e-9
        ), name
        if "conv" not in name and "cnn" not in name:
            assert dense == operations["Dense"], name
        else:  # padding counts
            assert dense >= operations["Dense"], name
