"""Spiking layers: their dynamics in comparison with snntorch, and their counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.families.efficiency.counting.spiking import spiking_layer
from neuroledger.families.efficiency.metrics.activity import (
    dense_neuron_operations,
    neuron_operations,
    spikes,
)
from neuroledger.families.efficiency.networks.layers import Lif, OverTime
from tests.families.efficiency.counting.counting import counted, ones, per_sample


def test_a_neuron_integrates_leaks_fires_and_is_reset_one_step_later():
    layer = Lif(beta=0.5, threshold=1.0)
    values = [
        (float(layer(torch.tensor([[x]]))), float(layer.membrane))
        for x in (0.75, 0.75, 0.75, 0.0)
    ]
    # 0.75 · 0.375 + 0.75 = 1.125 fires · 0.5625 + 0.75 - 1 = 0.3125 · 0.15625
    assert values == [(0, 0.75), (1, 1.125), (0, 0.3125), (0, 0.15625)]
    zero = Lif(beta=0.5, reset="zero")
    assert [float(zero(torch.tensor([[x]]))) for x in (1.5, 0.5, 0.5)] == [1, 0, 0]
    assert float(zero.membrane) == 0.75


@pytest.mark.parametrize("reset", ["subtract", "zero"])
def test_lif_equals_snntorchs_leaky(reset):
    snn = pytest.importorskip("snntorch")
    torch.manual_seed(0)
    current = torch.randn(20, 4, 6)
    ours, theirs = (
        Lif(0.9, reset=reset),
        snn.Leaky(beta=0.9, init_hidden=True, reset_mechanism=reset),
    )
    for step in current:
        assert torch.equal(ours(step), theirs(step))
        assert torch.allclose(ours.membrane, theirs.mem, atol=1e-6)


def test_a_gradient_passes_through_the_spike():
    current = torch.tensor([[0.5, 2.0]], requires_grad=True)
    Lif()(current).sum().backward()
    assert (current.grad > 0).all()


def test_spikes_drive_accumulations_and_every_membrane_is_written():
    network = OverTime(
        nn.Sequential(
            ones(nn.Linear(3, 4)), Lif(1.0, 2.0), ones(nn.Linear(4, 2)), Lif()
        )
    )
    with torch.no_grad():
        network.network[0].bias.zero_()
    x = torch.zeros(1, 3, 3)
    x[0, :, 0] = (
        1  # three spikes in the first step: membranes at 3 > 2 fire, and the next step subtracts 2
    )
    trace = counted(network, x)
    assert per_sample(trace) == (0, 3 * 4 + 4 * 2, 3 * (12 + 8))
    layer = trace.layers["network.1"]
    assert (layer.zeros, layer.elements) == (8, 12)
    # the first layer changes in steps 1 and 2; in step 3 it stays at 1
    assert (layer.updates, layer.membranes) == (8, 12)


def test_a_network_that_takes_single_steps_is_detected():
    snn = pytest.importorskip("snntorch")

    class Wrapped(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return torch.stack([self.net(step)[0] for step in x.unbind(1)]).sum(0)

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 5), snn.Leaky(beta=0.9, init_hidden=True), nn.Linear(5, 3),
        snn.Leaky(beta=0.9, init_hidden=True, output=True),
    )  # fmt: skip
    x = (torch.rand(8, 4, 6) < 0.5).float()
    stepped, whole = counted(net, x), counted(Wrapped(net), x)
    assert stepped.steps == 4 and "axis 1" in stepped.notes[0]
    assert whole.steps == 4 and not whole.notes
    assert per_sample(stepped) == per_sample(whole) and per_sample(stepped)[2] == 4 * 45
    assert counted(net, x, time_axis=None).steps == 1
    layer = spiking_layer(net[1])
    assert layer is not None and layer.membrane() is None


class Blocks(nn.Module):
    """Takes single steps, and has a loop over its blocks."""

    def __init__(self, *blocks, fails=False):
        super().__init__()
        self.blocks, self.fails = nn.ModuleList(blocks), fails

    def forward(self, x):
        if self.fails and x.dim() > 2:
            raise ValueError("one step at a time")
        for block in self.blocks:
            x = block(x)
        return x, self.blocks[-1].membrane


@pytest.mark.parametrize("fails", [False, True])
def test_a_loop_over_layers_is_not_taken_for_a_loop_over_time(fails):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), Lif(0.9), nn.Linear(5, 3), Lif(0.9)]
    x = (torch.rand(8, 4, 6) < 0.5).float()
    whole = counted(OverTime(nn.Sequential(*layers)), x.transpose(1, 2))
    for batches in ([x], x.split(1), x.split([3, 5])):
        stepped = counted(Blocks(*layers, fails=fails), *batches)
        assert stepped.steps == whole.steps == 4 and "axis 1" in stepped.notes[0]
        assert (
            per_sample(stepped) == per_sample(whole)
            and per_sample(stepped)[2] == 4 * 45
        )
        assert [
            (layer.updates, layer.zeros)
            for layer in stepped.layers.values()
            if layer.neuron
        ] == [
            (layer.updates, layer.zeros)
            for layer in whole.layers.values()
            if layer.neuron
        ]
    alone = nl.cost(Blocks(*layers, fails=fails), [x], ["synaptic_operations"])[
        "synaptic_operations"
    ]
    assert alone.value == sum(per_sample(whole)[:2]) and alone.n["time_steps"] == 4


def test_state_of_nested_snntorch_layers_is_reset_and_not_in_the_footprint():
    snn = pytest.importorskip("snntorch")
    net = nn.Sequential(
        nn.Sequential(nn.Linear(6, 5), snn.Leaky(beta=0.9, init_hidden=True))
    )
    bare = counted(net, needs=("weights",)).weights
    net(torch.rand(7, 6))
    trace = counted(net, needs=("weights",)).weights
    assert trace.buffer_bytes == bare.buffer_bytes == 20
    assert trace.state_bytes == 7 * 5 * 4
    membrane = net[0][1].mem
    counted(net, torch.rand(3, 6))
    assert net[0][1].mem is membrane


def test_neuron_operations_are_updates_times_operations_per_update():
    network = OverTime(nn.Sequential(ones(nn.Linear(3, 5, bias=False)), Lif(0.5)))
    x = torch.zeros(2, 3, 4)
    x[0, 0, 1] = 1.0  # the second sample never changes after its first step
    trace = counted(network, x)
    # sample 0: written, changed by the spike, leaking twice; sample 1: written
    assert neuron_operations(trace).value == 4 * (5 * 4 + 5) / 2
    assert dense_neuron_operations(trace).value == 4 * 5 * 4
    assert spikes(trace).value == 0  # a membrane of 1 is at the threshold, not above it
    assert spikes(counted(network, 2 * x)).value == 5 / 2


def test_neurons_of_unknown_cost_are_reported():
    class Other(nn.Module):
        spiking_state = ("membrane",)
        membrane = None

        def forward(self, x):
            self.membrane = x if self.membrane is None else self.membrane + x
            return (self.membrane > 1).float()

    x = torch.rand(2, 3, 4)
    alone = neuron_operations(
        counted(OverTime(nn.Sequential(nn.Linear(3, 5), Other())), x)
    )
    assert alone.status == "failed" and "Other" in alone.reason
    both = OverTime(nn.Sequential(nn.Linear(3, 5), Lif(), nn.Linear(5, 2), Other()))
    partly = neuron_operations(counted(both, x))
    assert partly.status == "partial" and set(partly.parts) == {"network.1"}
    none = neuron_operations(counted(nn.Sequential(nn.Linear(3, 2)), torch.rand(2, 3)))
    assert none.status == "failed" and "not applicable" in none.reason


def test_a_network_that_takes_its_state_as_an_argument_keeps_it_between_steps():
    class Handed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.neurons = (
                ones(nn.Linear(3, 4, bias=False)),
                Lif(1.0, threshold=2.5),
            )

        def forward(self, x, state=None):
            self.neurons.membrane = state
            return self.neurons(self.layer(x)), self.neurons.membrane

    x = torch.zeros(1, 4, 3)
    x[..., 0] = 1  # membranes 1, 2, 3 (a spike), and 3 + 1 - 2.5
    trace = counted(Handed(), x)
    assert trace.steps == 4
    assert trace.layers["neurons"].elements - trace.layers["neurons"].zeros == 4


def test_unobserved_spiking_layers_are_never_counted_as_zero():
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.neuron = Lif()

        def forward(self, x):
            return type(self.neuron).forward(self.neuron, x)

    costs = nl.cost(
        Beside(),
        [torch.rand(3, 4)],
        ["spikes", "membrane_updates", "activation_sparsity"],
    )
    for score in costs.values():
        assert score.status == "failed" and "neuron cannot be observed" in score.reason


@pytest.mark.parametrize("inner", [nn.ReLU(inplace=True), nn.Identity()])
def test_networks_of_this_package_do_not_modify_their_inputs(inner):
    x = torch.randn(5, 6, 8)
    before = x.clone()
    for net in (
        OverTime(nn.Sequential(inner, nn.Linear(6, 4), Lif())),
        nn.Sequential(inner, Lif()),
    ):
        nl.cost(net, [x], ["effective_macs", "spikes"])
        assert torch.equal(x, before)


def test_a_sum_pool_has_no_activation_of_its_own():
    network = nn.Sequential(nn.LPPool2d(1, 2), nn.ReLU())
    x = torch.randn(3, 1, 4, 4)
    layers = counted(network, x, needs=("activations",)).layers
    assert set(layers) == {"1"} and layers["1"].elements == 3 * 4


def test_a_start_state_multiplied_with_ones_counts_for_each_sample():
    class Started(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2, bias=False)
            self.register_buffer("start", torch.tensor([1.0, 0.0, 2.0]))

        def forward(self, x):
            return x + self.layer(torch.ones(len(x), 3) * self.start)

    found = counted(Started(), torch.rand(5, 2), needs=("operations",))
    assert per_sample(found) == (4, 0, 6)
