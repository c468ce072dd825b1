"""Networks of other frameworks as users write them: what their layers were handed, multiplied with masks of weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import neuroledger as nl
from tests.frameworks.test_frameworks import need

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]
STEPS, SAMPLES = 6, 7
ASKED = ("effective_macs", "effective_acs", "dense_operations", "spikes")
CONVOLVE = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


class Stepped(nn.Module):
    """Hands each step to its parts in turn."""

    def __init__(self, *parts, states=()):
        super().__init__()
        self.parts, self.states = nn.ModuleList(parts), states

    def forward(self, x):
        held, answers = {}, []
        for step in x.unbind(1):
            for number, part in enumerate(self.parts):
                if number in self.states:
                    step, held[number] = part(step, held.get(number))
                else:
                    step = part(step)
            answers.append(step)
        return torch.stack(answers, 1)


def in_spikingjelly():
    neuron = need("spikingjelly.activation_based.neuron")
    layer, functional = (
        need("spikingjelly.activation_based.layer"),
        need("spikingjelly.activation_based.functional"),
    )
    network = nn.Sequential(
        layer.Conv2d(2, 4, 3, padding=1, bias=False),
        layer.BatchNorm2d(4),
        neuron.ParametricLIFNode(v_threshold=0.3),
        layer.MaxPool2d(2),
        layer.SeqToANNContainer(nn.Conv2d(4, 4, 3, stride=2, groups=2)),
        neuron.IFNode(v_reset=None, v_threshold=0.2),
        layer.Flatten(),
        layer.Linear(4, 10),
        neuron.EIFNode(v_threshold=0.3),
        layer.VotingLayer(5),
    )
    functional.set_step_mode(network, "m")
    return network, (STEPS, SAMPLES, 2, 8, 8), 1, functional.reset_net


def in_norse(kind):
    def made():
        norse = need("norse.torch")
        cell, end, first = getattr(norse, kind)(), norse.LICell(), nn.Linear(6, 8)
        first.weight.data *= 8  # so that the neurons fire
        parts = (first, nn.Hardtanh(0, 4), cell, nn.Linear(8, 3), end)
        return Stepped(*parts, states=(2, 4)), (SAMPLES, STEPS, 6), 0, lambda _: None

    return made


def in_sinabs():
    layers = need("sinabs.layers")

    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = nn.Sequential(
                nn.Conv2d(2, 4, 3),
                layers.IAFSqueeze(num_timesteps=STEPS, spike_threshold=0.3),
                layers.SumPool2d(2),
                nn.Flatten(),
                nn.Linear(36, 4),
                layers.IAFSqueeze(num_timesteps=STEPS),
            )

        def forward(self, x):
            return self.network(x.flatten(0, 1)).unflatten(0, (len(x), STEPS))

    def reset(network):
        for part in network.modules():
            if hasattr(part, "reset_states"):
                part.reset_states()

    return Squeezed(), (SAMPLES, STEPS, 2, 8, 8), 0, reset


def in_snntorch():
    snntorch = need("snntorch")

    class Handed(nn.Module):
        """Keeps states in variables of its own."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv1d(2, 4, 3), nn.Linear(24, 5)
            self.one = snntorch.Leaky(beta=0.8, threshold=0.3, learn_beta=True)
            self.other = snntorch.Synaptic(alpha=0.7, beta=0.8, threshold=0.3)

        def forward(self, x):
            membrane, (current, potential) = (
                self.one.init_leaky(),
                self.other.init_synaptic(),
            )
            answers = []
            for step in x.unbind(1):
                fired, membrane = self.one(self.first(step), membrane)
                fired, current, potential = self.other(
                    self.second(fired.flatten(1)), current, potential
                )
                answers.append(fired)
            return torch.stack(answers, 1)

    return Handed(), (SAMPLES, STEPS, 2, 8), 0, lambda _: None


def in_rockpool():
    modules, combinators = need("rockpool.nn.modules"), need("rockpool.nn.combinators")

    class Answering(nn.Module):
        """The answer alone, of a network that copies what each of its layers answers."""

        def __init__(self):
            super().__init__()
            self.network = combinators.Sequential(
                modules.LinearTorch((6, 8)),
                modules.LIFTorch(8, dt=1e-3, threshold=0.1),
                modules.LinearTorch((8, 3)),
                modules.LIFTorch(3, dt=1e-3, threshold=0.1),
            )

        def forward(self, x):
            return self.network(x)[0]

    return Answering(), (SAMPLES, STEPS, 6), 0, lambda _: None


def by_masks(network, x, axis, reset):
    """Products of two factors that are not zero, of the layers of torch, sample by sample."""
    total = 0.0

    def note(layer, given, _):
        nonlocal total
        values, weight = given[0].ne(0).double(), layer.weight.ne(0).double()
        if weight.dim() == 2:
            total += float((values @ weight.t()).sum())
        else:
            values = (
                values.flatten(0, values.dim() - weight.dim())
                if values.dim() > weight.dim()
                else values
            )
            where = layer.stride, layer.padding, layer.dilation, layer.groups
            total += float(CONVOLVE[weight.dim()](values, weight, None, *where).sum())

    hooks = [
        part.register_forward_hook(note)
        for part in network.modules()
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d))
    ]
    with torch.no_grad():
        for start in range(x.shape[axis]):
            reset(network)
            network(x.narrow(axis, start, 1))
    reset(network)
    for hook in hooks:
        hook.remove()
    return total / x.shape[axis]


NETWORKS = {
    "spikingjelly": in_spikingjelly,
    "norse": in_norse("LIFCell"),
    "norse, adaptive thresholds": in_norse("LSNNCell"),
    "norse, exponential": in_norse("LIFAdExCell"),
    "sinabs": in_sinabs,
    "snntorch": in_snntorch,
    "rockpool": in_rockpool,
}


@pytest.mark.parametrize("framework", NETWORKS)
def test_networks_as_users_write_them_count_as_masks_do_in_any_batches(framework):
    network, shape, axis, reset = NETWORKS[framework]()
    x = (torch.rand(shape) < 0.4).float()
    true = by_masks(network.eval(), x, axis, reset)
    counts = []
    for size in (1, 2, 3, 7):
        found = nl.cost(network, x.split(size, axis), ASKED, sample_axis=axis)
        assert {score.status for score in found.values()} == {"scored"}, [
            s.reason for s in found.values()
        ]
        counts.append([found[name].value for name in ASKED])
    assert counts[1:] == [pytest.approx(counts[0], rel=1e-9)] * 3
    if framework != "rockpool":  # its linear layers are none of torch's
        assert counts[0][0] + counts[0][1] == pytest.approx(true, rel=1e-9)
    else:
        assert counts[0][0] + counts[0][1] > STEPS and counts[0][3] > 0
