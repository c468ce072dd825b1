"""Whether a network and its exported graph answer alike, the facts on which counts depend, and the table of costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.errors import RequestError
from neuroledger.families.efficiency.graphs.nir_graph import from_nir

nir = pytest.importorskip("nir")
STEP, BETA = 1e-3, 0.9


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def graph(weight, threshold=1.0):
    units = len(weight)
    rest = np.zeros(units)
    tau = rest + STEP / (1 - BETA)
    neurons = nir.LIF(
        tau=tau, r=tau / STEP, v_leak=rest, v_threshold=rest + threshold, v_reset=rest
    )
    return nir.NIRGraph.from_list(nir.Linear(weight), neurons)


class Neurons(nn.Module):
    """Leaky neurons that are reset to 0 in the step of their spike."""

    spiking_state = ("v",)

    def __init__(self):
        super().__init__()
        self.v = None

    def forward(self, x):
        v = x if self.v is None else BETA * self.v + x
        fired = (v > 1).to(x.dtype)
        self.v = v * (1 - fired)
        return fired


class Stepped(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.layer, self.neurons = nn.Linear(6, 4, bias=False), Neurons()
        self.layer.weight = nn.Parameter(torch.from_numpy(weight))

    def forward(self, x):
        return torch.stack([self.neurons(self.layer(step)) for step in x.unbind(1)], 1)


def weights():
    return np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def test_an_export_is_the_same_network_or_parts_at_a_layer_and_step():
    weight, x = weights(), (torch.rand(5, 12, 6) < 0.5).float()
    network = Stepped(weight)
    same = nl.same(network, graph(weight), x, time_step=STEP)
    assert same and same.difference == 0 and same.parted is None and same.layers == 2
    assert (
        same.facts["time_step"].origin == "declared"
        and same.facts["reset"].origin == "assumed"
    )
    other = nl.same(network, graph(weight), x, time_step=STEP, reset="subtract")
    assert (
        not other
        and other.parted is not None
        and other.parted.layer == "neurons"
        and other.parted.step >= 1
    )
    changed = weight.copy()
    changed[1] += 0.5
    assert nl.same(network, graph(changed), x, time_step=STEP).parted.layer == "layer"
    assert nl.same(network, graph(changed), x, time_step=STEP).parted.step == 0


def test_the_command_exits_with_1_if_answers_differ(tmp_path, monkeypatch, capsys):
    from neuroledger.cli import main

    weight, x = weights(), (torch.rand(5, 12, 6) < 0.5).float()
    for name, threshold in (("net", 1.0), ("other", 0.5)):
        nir.write(tmp_path / f"{name}.nir", graph(weight, threshold))
    np.save(tmp_path / "x.npy", x.numpy())
    asked = ["--inputs", str(tmp_path / "x.npy"), "--time-step", "1e-3"]
    net, other = str(tmp_path / "net.nir"), str(tmp_path / "other.nir")
    assert main(["same", net, other, *asked]) == 1
    assert "first difference: " in capsys.readouterr().out


def test_time_step_and_reset_are_facts_of_the_score():
    weight, x = weights(), (torch.rand(5, 12, 6) < 0.5).float()
    assumed = nl.cost(graph(weight), [x], ["spikes"])["spikes"]
    assert (
        "time step: 0.0001 (assumed)" in assumed.notes
        and assumed.n["seconds_per_step"] == 1e-4
    )
    declared = nl.cost(
        graph(weight), [x], ["spikes"], time_step=STEP, reset="subtract"
    )["spikes"]
    assert {"time step: 0.001 (declared)", "reset: subtract (declared)"} <= set(
        declared.notes
    )
    stated = graph(weight)
    stated.metadata["dt"] = 2e-3
    assert from_nir(stated).facts["time_step"].origin == "stated"
    with pytest.raises(RequestError, match="time_step: only neurons of a NIR graph"):
        nl.cost(Stepped(weight), [x], ["spikes"], time_step=STEP)


def test_a_layer_without_a_spike_makes_counts_of_spikes_partial():
    weight, x = weights(), (torch.rand(5, 12, 6) < 0.5).float()
    costs = nl.cost(
        graph(weight, 1e6),
        [x],
        ["spikes", "effective_acs", "dense_operations"],
        time_step=STEP,
    )
    for id in ("spikes", "effective_acs"):
        assert (
            costs[id].status == "partial"
            and "no spike in any batch: lif" in costs[id].reason
        )
    assert costs["dense_operations"].status == "scored"


def test_costs_are_a_table(tmp_path):
    costs = nl.cost(
        nn.Sequential(nn.Linear(6, 4), nn.ReLU()),
        [torch.rand(2, 6) + 0.1],
        ["energy_45nm", "effective_macs"],
    )
    assert dict(costs).keys() == {"energy_45nm", "effective_macs"}
    assert costs.to_frame()["value"].tolist() == [pytest.approx(24 * 4.6e-12), 24]
    assert (
        "energy_45nm     110 pJ/sample" in repr(costs)
        and "<table>" in costs._repr_html_()
    )
    page = costs.to_html(tmp_path / "costs.html").read_text()
    assert "Conditions" in page and "mode strict" in page
