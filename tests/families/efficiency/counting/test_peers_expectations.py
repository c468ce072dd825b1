"""The expectations in the tests of NeuroBench and of SpikingJelly's counters, applied to ``nl.cost``.

Networks, inputs and figures are those of their tests; where an answer differs by definition, the test says by which.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import neuroledger as nl
from neuroledger.families.efficiency.metrics.prediction_error import prediction_error
from tests.families.efficiency.counting.counting import counted

MODES = ("strict", "neurobench-2.3")


@pytest.fixture(autouse=True)
def seeded(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def values(module, batches, *metrics, **options):
    costs = nl.cost(module, batches, list(metrics), **options)
    assert {score.status for score in costs.values()} == {"scored"}, {
        n: s.reason for n, s in costs.items()
    }
    return [costs[name].value for name in metrics]


def operations(module, batches, **options):
    return tuple(values(module, batches, "effective_macs", "effective_acs", **options))


# NeuroBench


def keyword_network():
    """Four layers of leaky neurons on twenty channels."""
    snn = pytest.importorskip("snntorch")
    sizes = (20, 256, 256, 256, 35)
    layers = [
        part for into, out in pairwise(sizes) for part in (nn.Linear(into, out), snn.Leaky(beta=0.9, init_hidden=True))
    ]  # fmt: skip
    layers[-1] = snn.Leaky(beta=0.9, init_hidden=True, output=True)
    return nn.Sequential(nn.Flatten(), *layers)


def test_neurobench_parameters_and_footprint():
    network = keyword_network()
    assert values(network, (), "parameter_count", "footprint") == [145_955, 583_900]
    with torch.no_grad():
        network(torch.rand(256, 20))
    # The peer's later test asks a network that has just run, and finds its membranes of 256 samples beside the weights.
    states = counted(network, needs=("weights",)).weights.state_bytes
    assert 583_900 + states == 1_406_172
    for mode in MODES:
        assert values(network, (), "footprint", mode=mode) == [583_900]


@pytest.mark.parametrize("mode", MODES)
def test_neurobench_connection_sparsity(mode):
    network = keyword_network()

    def of(change):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(change(parameter))
        return values(network, (), "connection_sparsity", mode=mode)[0]

    assert of(torch.zeros_like) == 1.0
    assert of(torch.ones_like) == 0.0
    assert of(lambda p: torch.rand_like(p) + 1e-3) == 0.0
    half = of(
        lambda p: (
            (torch.arange(len(p.reshape(-1))) >= p.numel() // 2).float().view(p.shape)
        )
    )
    assert half == pytest.approx(0.5, abs=1e-3)
    recurrent = nn.Sequential(
        nn.RNN(20, 20, num_layers=2, bidirectional=True), nn.Linear(20, 256)
    )
    assert values(recurrent, (), "connection_sparsity", mode=mode)[0] < 1e-3


def test_neurobench_activation_sparsity():
    up, mixed = torch.ones(1, 20), torch.cat([-torch.ones(1, 10), torch.ones(1, 10)], 1)
    shared = nn.ReLU()
    relu = nn.Sequential(nn.Identity(), nn.ReLU())
    again = nn.Sequential(*(part for _ in range(4) for part in (nn.Identity(), shared)))
    sigmoid = nn.Sequential(nn.Identity(), nn.Sigmoid())
    for mode in MODES:
        for network, x, expected in (
            (relu, up, 0.0), (relu, mixed, 0.5), (again, up, 0.0), (again, mixed, 0.5), (sigmoid, up, 0.0)
        ):  # fmt: skip
            assert values(network, [x], "activation_sparsity", mode=mode) == [expected]
    costs = nl.cost(keyword_network(), [torch.rand(3, 20)], ["activation_sparsity"])[
        "activation_sparsity"
    ]
    assert len(costs.samples) == 4  # one figure for each layer of neurons


def analogue(*shape):
    """Ones, with a first value that is not a spike."""
    x = torch.ones(shape)
    x.view(-1)[0] = 4
    return x


def tens():
    x = torch.ones(1, 20)
    x[:, :10] = 5
    return x


def perceptron(*sizes):
    layers = (
        part
        for into, out in pairwise(sizes)
        for part in (nn.Linear(into, out, bias=False), nn.Sigmoid())
    )
    return nn.Sequential(*layers)


DENSE = {
    "two layers": (lambda: perceptron(20, 25, 25), tens, 1125),
    "four layers": (lambda: perceptron(20, 20, 25, 25, 25), tens, 2 * 625 + 400 + 500),
    "an image of the kernel's size": (lambda: nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.ReLU()),
                                      lambda: analogue(1, 1, 3, 3), 9),
    "an image": (lambda: nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.ReLU()), lambda: analogue(1, 1, 12, 12), 900),
    "a line": (lambda: nn.Sequential(nn.Conv1d(5, 1, 5, bias=False), nn.ReLU()), lambda: analogue(1, 5, 10), 150),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", DENSE)
def test_neurobench_synaptic_operations_of_layers(case, mode):
    make, inputs, macs = DENSE[case]
    assert operations(make(), [inputs()], mode=mode) == (macs, 0)


class Cell(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(25, 5)

    def forward(self, x, *state):
        answer = self.cell(x, state if len(state) > 1 else state[0])
        return answer[0] if isinstance(answer, tuple) else answer


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "states", "macs"),
    [(nn.LSTMCell, 2, 615), (nn.RNNCell, 1, 150), (nn.GRUCell, 1, 465)],
)
def test_neurobench_synaptic_operations_of_cells(kind, states, macs, mode):
    """Sizes 25 and 5. Inputs of the second sample that are all ones are spikes only in the strict count."""
    inputs = (analogue(2, 25), *(torch.full((2, 5), 0.5) for _ in range(states)))
    assert operations(Cell(kind), [(inputs, None)], mode=mode) == pytest.approx(
        (macs, 0)
        if mode != "strict"
        else (macs - 25 * macs_of_inputs(kind) / 2, 25 * macs_of_inputs(kind) / 2)
    )


def macs_of_inputs(kind):
    """The number of weights that one input of a cell of five units drives."""
    return 5 * {nn.LSTMCell: 4, nn.RNNCell: 1, nn.GRUCell: 3}[kind]


@pytest.mark.parametrize("mode", MODES)
def test_neurobench_spikes_through_ten_steps(mode):
    snn = pytest.importorskip("snntorch")
    layer = nn.Linear(20, 5, bias=False)
    with torch.no_grad():
        layer.weight.copy_(
            torch.linspace(-0.05, 0.05, 5)[:, None].expand(5, 20) + 0.005
        )
    network = nn.Sequential(layer, snn.Leaky(beta=0.9, init_hidden=True, output=True))
    spikes = torch.ones(5, 10, 20)
    assert operations(network, [spikes], mode=mode) == (0, 1000)
    costs = nl.cost(
        network, [spikes], ["membrane_updates", "activation_sparsity"], mode=mode
    )
    assert costs["membrane_updates"].value == 50
    # By hand: m = .9 m + x - (m > 1), a spike above 1.
    drive, membrane, fired = (
        layer.weight.detach().double().sum(1).numpy(),
        np.zeros(5),
        0,
    )
    for _ in range(10):
        membrane = 0.9 * membrane + drive - (membrane > 1)
        fired += int((membrane > 1).sum())
    assert fired and costs["activation_sparsity"].samples.sel(
        layer="1"
    ).item() == pytest.approx(1 - fired / 50)


def predictions(values):
    values = np.asarray(values, dtype=float)
    return xr.DataArray(values, dims=("presentation", "output")[: values.ndim])


def test_neurobench_errors_of_predictions():
    numbers = np.arange(10.0)

    def error(given, true, measure):
        return prediction_error(
            predictions(given), predictions(true), measure=measure
        ).values.item()

    assert error(1.1 * numbers, numbers, "mse") == pytest.approx(
        0.01 * (numbers**2).mean()
    )
    later = numbers + 1
    assert error(1.1 * later, later, "smape") == pytest.approx(200 * 0.1 / 2.1)
    both = np.stack([1.1 * numbers, 1.1 * later], 1)
    first, second = ((0.1 * numbers) ** 2).sum(), ((1.1 * later - numbers) ** 2).sum()
    expected = 1 - (first + second) / 2 / 82.5
    assert error(both, np.stack([numbers, numbers], 1), "r2") == pytest.approx(expected)


# SpikingJelly


def sparse_spikes():
    return (
        torch.rand(32, 100, generator=torch.Generator().manual_seed(1)) > 0.8
    ).float()


def test_spikingjelly_products_are_multiplied_or_accumulated_and_never_both():
    layer = nn.Linear(100, 50, bias=False)
    floats, spikes = torch.randn(32, 100), sparse_spikes()
    for batches in (lambda x: [x], lambda x: x.split(1), lambda x: x.split(5)):
        assert operations(layer, batches(floats)) == (50 * 100, 0)
        assert operations(layer, batches(spikes)) == (
            0,
            pytest.approx(int(spikes.count_nonzero()) * 50 / 32),
        )


def test_spikingjelly_spikes_drive_accumulates():
    layer = nn.Conv2d(3, 3, 3, padding=1)
    assert operations(layer, [torch.zeros(2, 3, 24, 24)]) == (0, 0)
    assert operations(layer, [torch.ones(2, 3, 24, 24)]) == (
        0,
        3 * 3 * (3 * 24 - 2) ** 2,
    )


def test_spikingjelly_large_sums_of_transposed_convolutions_are_exact():
    size = 192
    layer = nn.ConvTranspose2d(64, 1, 3, padding=1, bias=False)
    x = torch.ones(1, 64, size, size)
    x[0, 0, size // 2, size // 2] = 0
    assert operations(layer, [x]) == (0, 64 * (3 * size - 2) ** 2 - 9)


def test_spikingjelly_a_spike_in_a_corner_reaches_four_places():
    layer = nn.Conv2d(1, 2, 3, padding=1, bias=False)
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 0, 0] = 1
    assert operations(layer, [x]) == (0, 8)
    assert values(layer, [x], "memory_traffic") == [8 * 4]


def test_spikingjelly_products_of_activations():
    class Product(nn.Module):
        def forward(self, x, y):
            return torch.bmm(x, y)

    factors = (torch.full((2, 3, 4), 0.5), torch.full((2, 4, 5), 0.5))
    assert operations(Product(), [(factors, None)]) == (120 / 2, 0)


def test_norms_and_sums_are_not_synapses():
    """SpikingJelly counts a multiply-accumulate for each value of a norm, and an accumulate for each sum of two values."""
    network = nn.Sequential(nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3))
    assert operations(network.eval(), [torch.full((2, 4), 0.5)]) == (12, 0)


SIMPLE = {"float32": (4.6, 0.9), "float16": (1.5, 0.4), "int8": (0.23, 0.03)}
PER_BYTE = 24.96


def simple(**prices):
    """SpikingJelly's simple model: prices per operation, and per byte of weights that operations read, and of states."""
    mac, ac = ({name: pair[which] for name, pair in prices.items()} for which in (0, 1))
    memory = [{"name": "memory", "picojoules_per_byte": PER_BYTE}]
    model = {"name": "hardware", "zeros": "skipped", "mac": mac, "ac": ac, "weight_reads": "each operation",
             "memory": memory, "source": "SpikingJelly's tests"}  # fmt: skip
    return {"name": "energy", "model": model}


@pytest.mark.parametrize(
    ("x", "out", "dtype", "picojoules"),
    [
        ([[1.0, 0, 1, 0]], 3, "float32", 6 * 0.9 + 24 * PER_BYTE),
        ([[0.5] * 4] * 2, 3, "float32", (24 * 4.6 + 96 * PER_BYTE) / 2),
        ([[1.0, 0, 1, 0]], 2, "float16", 4 * 0.4 + 8 * PER_BYTE),
    ],
)
def test_spikingjelly_simple_energy(x, out, dtype, picojoules):
    """Half-precision weights are read with two bytes here; SpikingJelly's test reads four."""
    kind = getattr(torch, dtype)
    layer = nn.Linear(4, out, bias=False).to(kind)
    score = nl.cost(layer, [torch.tensor(x, dtype=kind)], [simple(**SIMPLE)])["energy"]
    assert score.status == "scored" and score.value == pytest.approx(picojoules * 1e-12)


def test_spikingjelly_prices_are_those_of_the_profile_of_45_nm():
    spec = nl.cost(
        nn.Linear(4, 3, bias=False), [torch.tensor([[1.0, 0, 1, 0]])], ["energy_45nm"]
    )["energy_45nm"]
    assert spec.value == pytest.approx(6 * 0.9e-12)
    dense = nl.cost(
        nn.Linear(4, 3, bias=False), [torch.full((2, 4), 0.5)], ["energy_45nm"]
    )["energy_45nm"]
    assert dense.value == pytest.approx(12 * 4.6e-12)


def test_spikingjelly_nothing_to_count_is_a_failure_and_never_0():
    for score in nl.cost(
        nn.Linear(4, 3), [torch.empty(0, 4)], ["effective_macs", "energy_45nm"]
    ).values():
        assert score.status == "failed" and "no batches" in score.reason
