"""Modelled energy and memory traffic, compared with sums by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.errors import NeuroLedgerError
from neuroledger.families.efficiency.networks.layers import Lif
from tests.families.efficiency.counting.counting import ones

PICO = 1e-12


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


class Spiking(nn.Module):
    """100 inputs, 20 neurons, 10 neurons, stepped over (sample, time, input)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(100, 20, bias=False),
            Lif(0.5),
            nn.Linear(20, 10, bias=False),
            Lif(0.5),
        )

    def forward(self, x):
        return torch.stack([self.layers(step) for step in x.unbind(1)], 1)


def components(score):
    return {
        str(name): float(value)
        for name, value in zip(
            score.samples["component"].values, score.samples, strict=True
        )
    }


def profile(**fields):
    return {
        "name": "energy",
        "model": {"name": "hardware", "source": "by hand", **fields},
    }


def energy(module, batch, **fields):
    return nl.cost(module, [batch], [profile(**fields)])["energy"]


def test_a_spiking_network_in_a_profile_with_memory_levels_by_hand():
    net, x = ones(Spiking()), torch.zeros(2, 4, 100)
    x[:, 0, :3] = (
        1  # three spikes in the first of four steps: every neuron fires, and again as long as above threshold
    )
    costs = nl.cost(
        net, [x], ["effective_acs", "membrane_updates", "spikes", "effective_macs"]
    )
    acs, spikes = costs["effective_acs"].value, costs["spikes"].value
    assert costs["effective_macs"].value == 0 and costs["membrane_updates"].value > 0
    levels = [
        {"name": "near", "kibibytes": 1, "picojoules_per_byte": 2},
        {"name": "far", "picojoules_per_byte": 7},
    ]
    score = energy(net, x, zeros="skipped", ac={"float32": 0.5}, memory=levels, weight_reads="each operation",
                   partial_sums=True, picojoules_per_update=3, picojoules_per_spike=11)  # fmt: skip
    state = 4 * 30 * 4 * 2  # steps, neurons, bytes, read and written
    by_hand = {
        "macs": 0, "acs": acs * 0.5, "weights (far)": acs * 4 * 7,  # 2,200 weights of 4 bytes are more than 1 KiB
        "activations (near)": spikes * 4 * 2 * 2, "state (near)": state * 2, "partial sums (near)": acs * 4 * 2 * 2,
        "updates": 4 * 30 * 3, "spikes": spikes * 11,
    }  # fmt: skip
    assert components(score) == pytest.approx(
        {name: value * PICO for name, value in by_hand.items()}
    )
    assert score.value == pytest.approx(sum(by_hand.values()) * PICO)
    assert score.n["bytes_state"] == state and score.n["time_steps"] == 4
    assert any(note.startswith("evidence: modelled (by hand)") for note in score.notes)
    moved = nl.cost(net, [x], ["memory_traffic"])["memory_traffic"]
    assert components(moved) == pytest.approx(
        {"weights": acs * 4, "activations": spikes * 8, "state": state}
    )
    assert moved.n["held_weights"] == 2200 * 4 and moved.n["held_state"] == 30 * 4
    alone = nl.cost(net, [x[:1], x[1:]], ["memory_traffic"])["memory_traffic"]
    assert components(alone) == components(moved)  # the size of batches changes nothing


def test_a_machine_that_skips_no_zeros_has_the_cost_of_every_operation():
    net, x = (
        nn.Sequential(nn.Linear(100, 20), nn.ReLU(), nn.Linear(20, 10)),
        torch.zeros(3, 100),
    )
    x[:, :5] = 1
    dense = energy(net, x, zeros="computed", mac={"float32": 2.0}, weight_reads="each time step",
                   memory=[{"name": "all", "picojoules_per_byte": 1}])  # fmt: skip
    assert components(dense) == pytest.approx(
        {
            "macs": 2200 * 2 * PICO,
            "acs": 0,
            "weights (all)": 2200 * 4 * PICO,
            "activations (all)": 20 * 4 * 2 * PICO,
        }
    )


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_prices_depend_on_the_data_type():
    mac = {"float32": 4.6, "float16": 1.5, "int8": 0.23}
    x = torch.rand(4, 64) + 0.1
    net = nn.Sequential(nn.Linear(64, 32))
    with torch.no_grad():
        net[0].weight.add_(2)
    assert energy(net, x, zeros="skipped", mac=mac).value == pytest.approx(
        64 * 32 * 4.6 * PICO
    )
    half = nn.Sequential(nn.Linear(64, 32)).half()
    with torch.no_grad():
        half[0].weight.add_(2)
    assert energy(half, x.half(), zeros="skipped", mac=mac).value == pytest.approx(
        64 * 32 * 1.5 * PICO
    )
    packed = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, torch.qint8)
    result = energy(packed, x, zeros="computed", mac=mac, weight_reads="each operation",
                   memory=[{"name": "all", "picojoules_per_byte": 1}])  # fmt: skip
    assert components(result) == pytest.approx(
        {"macs": 64 * 32 * 0.23 * PICO, "acs": 0, "weights (all)": 64 * 32 * PICO}
    )
    failed = energy(half, x.half(), zeros="skipped", mac={"float32": 4.6})
    assert (
        failed.status == "failed"
        and "multiply-accumulates in float16, which layer '0' has" in failed.reason
    )


def test_shipped_profiles_order_a_network_as_their_sources_do():
    names = [
        "energy_45nm",
        "energy_45nm_memory",
        "energy_loihi",
        "energy_gpu",
        "energy_microcontroller",
    ]
    net, x = ones(Spiking()), (torch.rand(2, 4, 100) < 0.1).float()
    costs = nl.cost(net, [x], names)
    assert all(score.status == "scored" for score in costs.values()), costs
    assert all(
        any("evidence: modelled" in note for note in score.notes)
        for score in costs.values()
    )
    assert (
        costs["energy_45nm_memory"].value > 10 * costs["energy_45nm"].value
    )  # memory is most of it
    assert costs["energy_microcontroller"].value == pytest.approx(
        4 * 2200 * 1659 * PICO
    )
    analog = nl.cost(net, [x + 0.5], ["energy_loihi"])["energy_loihi"]
    assert (
        analog.status == "failed"
        and "no price of multiply-accumulates" in analog.reason
    )


def test_profiles_are_checked():
    levels = [{"name": "small", "kibibytes": 8, "picojoules_per_byte": 1}]
    with pytest.raises(NeuroLedgerError, match="no `kibibytes`"):
        nl.cost(
            nn.Linear(2, 2),
            [torch.rand(1, 2)],
            [profile(zeros="skipped", memory=levels)],
        )
    rate = nl.cost(
        nn.Linear(2, 2),
        [torch.rand(1, 2)],
        ["execution_rate", {"name": "execution_rate", "hertz": 250}],
    )
    assert (
        rate["execution_rate"].value == 250
        and "evidence: declared" in rate["execution_rate"].notes
    )
    assert (
        nl.cost(nn.Linear(2, 2), metrics=["execution_rate"])["execution_rate"].status
        == "failed"
    )


def test_the_analytical_model_of_lemaire_by_hand():
    x = torch.rand(1, 100) + 0.1
    dense = nl.cost(nn.Sequential(nn.Linear(100, 20)), [x], ["energy_lemaire"])[
        "energy_lemaire"
    ]
    weights = (
        2.5 * 2020 * 4 / 8192
    )  # pJ per byte of a memory of 2,020 words, below 8 KiB
    by_hand = {
        "operations": 20 * 0.1 + 2000 * 3.2, "addressing": 120 * 0.1,
        "inputs and outputs": (100 * 4) * (2.5 * 400 / 8192) + (20 * 4) * (2.5 * 80 / 8192),
        "weights": (2000 + 20) * 4 * weights, "potentials": 0.0,
    }  # fmt: skip
    assert components(dense) == pytest.approx(
        {name: value * PICO for name, value in by_hand.items()}
    )
    spikes = torch.zeros(1, 1, 100)
    spikes[0, 0, :7] = 1
    net = ones(nn.Sequential(nn.Linear(100, 20), Lif(0.5)))
    costs = nl.cost(net, [spikes[:, 0]], ["energy_lemaire"])["energy_lemaire"]
    queue, potential = 2.5 * 4000 / 8192, 2.5 * 80 / 8192
    by_hand = {
        "operations": (20 + 7 * 20 + 20) * 0.1 + 20 * 3.2,  # biases, synapses and spikes; the leak of each neuron
        "addressing": 7 * 20 * 0.1, "inputs and outputs": (7 * 4 + 20 * 4) * queue,
        "weights": (7 * 20 + 20) * 4 * weights, "potentials": (2 * 7 * 20 + 2 * 20) * 4 * potential,
    }  # fmt: skip
    assert components(costs) == pytest.approx(
        {name: value * PICO for name, value in by_hand.items()}
    )
    left = nl.cost(
        nn.Sequential(nn.Linear(100, 20), nn.Softmax(1)), [x], ["energy_lemaire"]
    )["energy_lemaire"]
    assert left.status == "partial" and "leaves out Softmax" in left.reason
