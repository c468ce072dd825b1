"""Spiking networks of other frameworks, against counts made by hand from the equations that each one publishes.

``make test-frameworks`` runs these in an environment of its own. Each framework is pinned in the Makefile.
"""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import neuroledger as nl

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

METRICS = (
    "effective_acs",
    "effective_macs",
    "dense_operations",
    "spikes",
    "membrane_updates",
    "activation_sparsity",
)
SAMPLES, STEPS, SIZES = 5, 8, (12, 20, 6)


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)


def need(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")


def problem():
    rng = np.random.default_rng(3)
    inputs = (rng.random((SAMPLES, STEPS, SIZES[0])) < 0.4).astype(np.float32)
    weights = [
        rng.normal(0.15, 0.6, (out, into)).astype(np.float32)
        for into, out in pairwise(SIZES)
    ]
    return inputs, weights


def linear(weight):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = torch.as_tensor(weight)
    return layer


def by_hand(step, states):
    """Counts per sample of two layers of neurons, ``step(state, current) -> (state, spikes, membrane)``."""
    inputs, weights = problem()
    acs = spikes = updates = 0
    held = [None, None]
    before = [None, None]
    for t in range(STEPS):
        x = inputs[:, t].astype(np.float64)
        for number, weight in enumerate(weights):
            acs += np.count_nonzero(x) * len(weight)
            start = (
                [np.zeros((SAMPLES, len(weight))) for _ in range(states)]
                if held[number] is None
                else held[number]
            )
            held[number], x, membrane = step(start, x @ weight.T.astype(np.float64))
            spikes += x.sum()
            updates += (
                membrane.size
                if before[number] is None
                else np.count_nonzero(membrane != before[number])
            )
            before[number] = membrane
    dense = STEPS * (SIZES[0] * SIZES[1] + SIZES[1] * SIZES[2])
    neurons = STEPS * (SIZES[1] + SIZES[2]) * SAMPLES
    return {
        "effective_acs": acs / SAMPLES,
        "effective_macs": 0.0,
        "dense_operations": dense,
        "spikes": spikes / SAMPLES,
        "membrane_updates": updates / SAMPLES,
        "activation_sparsity": 1 - spikes / neurons,
    }


def check(module, expected, *, time_first=False, without=(), **options):
    """Counts of one batch, of samples one by one, and again, are those made by hand; the module is left as it was."""
    inputs = torch.as_tensor(problem()[0])
    axis = 1 if time_first else 0
    inputs = inputs.transpose(0, 1).contiguous() if time_first else inputs
    if time_first:
        options["sample_axis"] = 1
    for batches in (
        [inputs],
        list(inputs.split(1, axis)),
        list(inputs.split(2, axis)),
        [inputs],
    ):
        costs = nl.cost(module, batches, METRICS, **options)
        for name, value in expected.items():
            if name in without:
                assert costs[name].status == "failed", name
            else:
                assert costs[name].status == "scored", (name, costs[name].reason)
                assert costs[name].value == pytest.approx(value), name
        if "membrane_updates" not in without:
            assert costs["effective_acs"].n["time_steps"] == STEPS


class Steps(nn.Module):
    """Layers called once for each time step, and what they answer at every step (sample, time, …)."""

    def __init__(self, *layers, carries=False):
        super().__init__()
        self.layers, self.carries = nn.ModuleList(layers), carries

    def forward(self, x):
        states, answers = [None] * len(self.layers), []
        for step in x.unbind(1):
            for number, layer in enumerate(self.layers):
                if self.carries and not isinstance(layer, nn.Linear):
                    step, states[number] = layer(step, states[number])
                else:
                    step = layer(step)
            answers.append(step)
        return torch.stack(answers, 1)


def layers(make):
    first, second = map(linear, problem()[1])
    return first, make(SIZES[1]), second, make(SIZES[2])


def integrate(state, current):
    """``v += x``; a spike from 1 on, which sets v to 0."""
    v = state[0] + current
    fired = (v >= 1).astype(float)
    v = v * (1 - fired)
    return [v], fired, v


def leaky_jelly(state, current):
    """``v += (x - v) / 2``, then as above."""
    return integrate([state[0] + (current - state[0]) / 2], 0.0)


@pytest.mark.parametrize(
    ("kind", "step"), [("IFNode", integrate), ("LIFNode", leaky_jelly)]
)
def test_spikingjelly_single_and_multiple_steps(kind, step):
    neuron = need("spikingjelly.activation_based.neuron")
    functional = need("spikingjelly.activation_based.functional")
    layer = need("spikingjelly.activation_based.layer")
    expected = by_hand(step, 1)
    assert 0 < expected["spikes"] < 100
    make = getattr(neuron, kind)
    check(Steps(*layers(lambda _: make())), expected)
    several = nn.Sequential(
        *(
            layer.Linear(p.in_features, p.out_features, bias=False)
            if isinstance(p, nn.Linear)
            else p
            for p in layers(lambda _: make())
        )
    )
    for place, weight in zip((0, 2), problem()[1], strict=True):
        several[place].weight.data = torch.as_tensor(weight)
    functional.set_step_mode(several, "m")
    check(several, expected, time_first=True)
    assert not several[1].store_v_seq and several[1].v == 0.0  # left as it was


def test_spikingjelly_counts_the_same_energy():
    energy = need("spikingjelly.activation_based.op_counter.analytical_energy")
    neuron, functional = (
        need("spikingjelly.activation_based.neuron"),
        need("spikingjelly.activation_based.functional"),
    )
    for make in (neuron.IFNode, neuron.LIFNode):
        net = nn.Sequential(*layers(lambda _, make=make: make()))
        functional.set_step_mode(net, "m")
        x = torch.as_tensor(problem()[0]).transpose(0, 1).contiguous()
        ours = nl.cost(net, [x[:, :1]], ["energy_lemaire"], sample_axis=1)[
            "energy_lemaire"
        ]
        functional.reset_net(net)
        report = energy.estimate_lemaire_energy(net, x[:, :1])
        functional.reset_net(net)
        assert (
            ours.value == pytest.approx(report.total_pj * 1e-12, rel=1e-9)
            and ours.status == "scored"
        )
    rng = torch.Generator().manual_seed(0)
    dense = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2),
        nn.Conv2d(4, 8, 3, groups=2, bias=False),
    )
    images = torch.rand(1, 2, 12, 12, generator=rng)
    for x in (images, (images < 0.3).float()):
        report = energy.estimate_lemaire_energy(dense, x)
        assert nl.cost(dense, [x], ["energy_lemaire"])[
            "energy_lemaire"
        ].value == pytest.approx(report.total_pj * 1e-12)


def test_norse_cells_carry_their_state_and_sequences_hide_it():
    norse = need("norse.torch")
    p = norse.LIFBoxParameters(
        tau_mem_inv=torch.as_tensor(100.0), v_th=torch.as_tensor(0.2)
    )

    def box(
        state, current
    ):  # v += dt/tau (x - v), a spike above 0.2, which sets v to 0
        v = state[0] + 0.1 * (current - state[0])
        fired = (v > np.float32(0.2)).astype(float)
        v = v * (1 - fired)
        return [v], fired, v

    expected = by_hand(box, 1)
    assert 0 < expected["spikes"] < 100
    check(Steps(*layers(lambda _: norse.LIFBoxCell(p)), carries=True), expected)
    check(
        norse.SequentialState(*layers(lambda _: norse.LIFBoxCell(p))),
        expected,
        time_axis=1,
    )

    class Sequence(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.layer, self.neurons = linear(problem()[1][0]), norse.LIF(**options)

        def forward(self, x):
            return self.neurons(self.layer(x))[0]

    hidden = nl.cost(
        Sequence(),
        [torch.as_tensor(problem()[0]).transpose(0, 1)],
        METRICS,
        sample_axis=1,
    )
    assert (
        hidden["spikes"].status == "scored"
        and "cannot be read" in hidden["membrane_updates"].reason
    )
    net, x = Sequence(record_states=True), torch.as_tensor(problem()[0]).transpose(0, 1)
    shown = nl.cost(net, [x], METRICS, sample_axis=1)
    with torch.no_grad():
        v = net.neurons(net.layer(x))[1].v.numpy()  # (time, sample, neuron)
    updates = v[0].size + np.count_nonzero(v[1:] != v[:-1])
    assert shown["membrane_updates"].value == updates / SAMPLES
    assert shown["effective_acs"].n["time_steps"] == STEPS


def test_the_recurrent_products_of_a_norse_cell_are_counted_at_every_step():
    norse = need("norse.torch")
    net = Steps(norse.LIFRecurrentCell(SIZES[0], SIZES[1]), carries=True)
    costs = nl.cost(net, [torch.as_tensor(problem()[0])], ["dense_operations"])
    assert costs["dense_operations"].value == STEPS * (
        SIZES[0] * SIZES[1] + SIZES[1] * SIZES[1]
    )


def test_sinabs_layers_take_whole_sequences():
    sinabs = need("sinabs.layers")

    single = need("sinabs.activation").SingleSpike

    def one(state, current):  # one spike for each step, one threshold subtracted
        v = state[0] + current
        fired = (v >= 1).astype(float)
        return [v - fired], fired, v - fired

    check(
        nn.Sequential(*layers(lambda _: sinabs.IAF(spike_fn=single))), by_hand(one, 1)
    )
    adaptive = nn.Sequential(
        *layers(
            lambda _: sinabs.ALIF(
                tau_mem=20.0, tau_adapt=20.0, spike_threshold=torch.tensor(0.1)
            )
        )
    )
    costs = nl.cost(adaptive, [torch.as_tensor(problem()[0])], METRICS)
    assert (
        costs["spikes"].status == "scored"
        and costs["membrane_updates"].status == "failed"
    )


def test_rockpool_layers_take_whole_sequences():
    torch_modules = need("rockpool.nn.modules")

    def step(
        state, current
    ):  # the current decays before it is added; one threshold subtracted per spike
        v, i = state
        i = (i + current) * np.exp(-0.5)
        v = v * np.exp(-0.25) + i
        fired = (v >= 1).astype(float)
        return [v - fired, i], fired, v - fired

    def make(size):
        return torch_modules.LIFTorch(
            (size, size),
            tau_mem=0.004,
            tau_syn=0.002,
            dt=0.001,
            has_rec=False,
            max_spikes_per_dt=1,
        )

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers(make))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                x = x[0] if isinstance(x, tuple) else x
            return x

    expected = by_hand(step, 2)
    assert 0 < expected["spikes"] < 200
    # Layers without recurrence multiply their spikes with a matrix of zeros: dense operations that are not effective.
    expected["dense_operations"] += STEPS * (SIZES[1] ** 2 + SIZES[2] ** 2)
    check(Network(), expected)


NEURONS = (
    "Leaky",
    "Synaptic",
    "Lapicque",
    "Alpha",
    "RLeaky",
    "RSynaptic",
    "SLSTM",
    "SConv2dLSTM",
    "LeakyParallel",
    "StateLeaky",
    "DeltaLeaky",
    "AssociativeLeaky",
)


@pytest.mark.parametrize("kind", NEURONS)
def test_every_neuron_of_snntorch_is_a_spiking_layer(kind):
    from neuroledger.families.efficiency.counting.spiking import spiking_layer

    snntorch = need("snntorch")
    make = getattr(snntorch, kind, None)
    if make is None:
        pytest.skip(f"this snntorch has no {kind}")
    empty = make.__new__(make)
    nn.Module.__init__(empty)
    assert spiking_layer(empty) is not None


def test_snntorch_layers_over_a_whole_sequence():
    snntorch = need("snntorch")
    first, second = map(linear, problem()[1])
    parallel = nn.Sequential(
        first, snntorch.LeakyParallel(input_size=20, hidden_size=20)
    )
    x = torch.as_tensor(problem()[0]).transpose(0, 1).contiguous()
    costs = nl.cost(parallel, [x], METRICS, sample_axis=1)
    assert (
        costs["spikes"].status == "scored"
        and costs["membrane_updates"].status == "failed"
    )
    one = [
        nl.cost(parallel, [y], METRICS, sample_axis=1)["spikes"].value
        for y in x.split(1, 1)
    ]
    assert costs["spikes"].value == pytest.approx(np.mean(one))

    def leaky(state, current):  # m = .9 m + x - (m > 1), a spike above 1
        v = 0.9 * state[0] + current - (state[0] > 1)
        return [v], (v > 1).astype(float), v

    net = Steps(
        first,
        snntorch.Leaky(beta=0.9, init_hidden=True),
        second,
        snntorch.Leaky(beta=0.9, init_hidden=True),
    )
    check(net, by_hand(leaky, 1))


class Stepped(nn.Module):
    """A network of single steps that is handed its state."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        state, answers = None, []
        for step in x.unbind(1):
            answer, state = self.net(step, state)
            answers.append(answer)
        return torch.stack(answers, 1)


def in_norse(graph):
    need("nirtorch")
    return Stepped(need("norse.torch").from_nir(graph, dt=1e-4))


def in_snntorch(graph):
    need("nirtorch")
    return Stepped(need("snntorch.import_nir").import_from_nir(graph))


def in_spikingjelly(graph):
    need("nirtorch")
    return Stepped(
        need("spikingjelly.activation_based.nir_exchange").import_from_nir(
            graph, dt=1e-4
        )
    )


@pytest.mark.parametrize(
    "imported", [in_norse, in_snntorch, in_spikingjelly], ids=lambda f: f.__name__
)
def test_one_nir_graph_has_one_certificate_in_every_framework(imported):
    nir = need("nir")
    _, weights = problem()

    def lif(size):
        def full(x):
            return np.full(size, x, np.float32)

        return nir.LIF(
            tau=full(1e-3),
            r=full(1.0),
            v_leak=full(0),
            v_threshold=full(0.1),
            v_reset=full(0),
        )

    graph = nir.NIRGraph.from_list(
        nir.Input({"input": np.array([SIZES[0]])}),
        nir.Affine(weights[0], np.zeros(SIZES[1], np.float32)),
        lif(SIZES[1]),
        nir.Affine(weights[1], np.zeros(SIZES[2], np.float32)),
        lif(SIZES[2]),
        nir.Output({"output": np.array([SIZES[2]])}),
    )
    x = (
        torch.rand(64, 20, SIZES[0], generator=torch.Generator().manual_seed(1)) < 0.3
    ).float()
    asked = [*METRICS, "activation_sparsity", "parameter_count", "synaptic_operations"]
    ours = nl.cost(graph, [x], asked)
    assert ours["spikes"].value > 0
    net = imported(graph).eval()
    for sizes in ([64], [1] * 64, [7, 57], [32, 32]):
        theirs = nl.cost(net, x.split(sizes), asked)
        for name in asked:
            assert theirs[name].status == "scored", (name, theirs[name].reason)
            assert theirs[name].value == pytest.approx(ours[name].value, rel=1e-9), (
                name,
                sizes,
            )


def test_a_layer_of_spikingjelly_that_is_handed_its_state_is_counted_as_one_that_keeps_it():
    neuron = need("spikingjelly.activation_based.neuron")

    class Handed(nn.Module):
        def __init__(self):
            super().__init__()
            self.node = neuron.LIFNode(tau=2.0)

        def forward(self, x):
            state, spikes = (0.0,), []
            for step in x.unbind(1):
                (fired,), state = self.node.functional_forward((step,), state)
                spikes.append(fired)
            return torch.stack(spikes, 1)

    class Kept(Handed):
        def forward(self, x):
            return torch.stack([self.node(step) for step in x.unbind(1)], 1)

    x = 3 * torch.rand(8, 12, 5, generator=torch.Generator().manual_seed(1))
    asked = ["spikes", "membrane_updates", "activation_sparsity"]
    handed, kept = Handed(), nl.cost(Kept(), [x], asked)
    assert kept["spikes"].value > 0
    for sizes in ([8], [1] * 8):
        found = nl.cost(handed, x.split(sizes), asked)
        assert {name: score.value for name, score in found.items()} == pytest.approx(
            {name: score.value for name, score in kept.items()}
        )
    assert "functional_forward" not in vars(handed.node)


TIME_STEP = 1e-4


def neurons(kind, shape):
    """Neurons of a NIR graph which every framework can take: one number for all of them."""
    nir = need("nir")

    def full(x):
        return np.full(shape, x, np.float32)

    if kind == "LIF":
        return nir.LIF(
            tau=full(1e-3),
            r=full(1),
            v_leak=full(0),
            v_threshold=full(0.1),
            v_reset=full(0),
        )
    return nir.CubaLIF(
        tau_syn=full(5e-4),
        tau_mem=full(1e-3),
        r=full(10),
        v_leak=full(0),
        v_threshold=full(1),
        w_in=full(5),
        v_reset=full(0),
    )


def drawn(*shape):
    return np.random.default_rng(sum(shape)).normal(0.15, 0.5, shape).astype(np.float32)


def affine(into, out):
    return need("nir").Affine(drawn(out, into), np.zeros(out, np.float32))


def convolution(side, into, out):
    return need("nir").Conv2d(
        input_shape=(side, side),
        weight=drawn(out, into, 3, 3),
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=np.zeros(out, np.float32),
    )


def pooled(kind):
    nir, two = need("nir"), np.array([2, 2])
    pool = getattr(nir, kind)(kernel_size=two, stride=two, padding=np.array([0, 0]))
    nodes = (
        convolution(8, 1, 2),
        neurons("LIF", (2, 6, 6)),
        pool,
        convolution(3, 2, 3),
        neurons("LIF", (3, 1, 1)),
    )
    return chained((1, 8, 8), (3, 1, 1), *nodes)


def chained(into, out, *nodes):
    nir = need("nir")
    return nir.NIRGraph.from_list(
        nir.Input({"input": np.array(into)}),
        *nodes,
        nir.Output({"output": np.array(out)}),
    )


def recurrent(kind):
    """Neurons that drive themselves through a matrix of weights, one step later."""
    nir = need("nir")
    nodes = {
        "input": nir.Input({"input": np.array([12])}),
        "first": affine(12, 10),
        "r.lif": neurons(kind, (10,)),
        "r.w_rec": affine(10, 10),
        "last": affine(10, 5),
        "end": neurons(kind, (5,)),
        "output": nir.Output({"output": np.array([5])}),
    }
    way = ("input", "first", "r.lif", "last", "end", "output")
    return nir.NIRGraph(
        nodes, [*pairwise(way), ("r.lif", "r.w_rec"), ("r.w_rec", "r.lif")]
    )


def convolutional(*, flat=False):
    nodes = [convolution(6, 1, 2), neurons("LIF", (2, 4, 4))]
    if not flat:
        return chained(
            (1, 6, 6),
            (3, 2, 2),
            *nodes,
            convolution(4, 2, 3),
            neurons("LIF", (3, 2, 2)),
        )
    flatten = need("nir").Flatten(
        input_type={"input": np.array([2, 4, 4])}, start_dim=0, end_dim=-1
    )
    return chained(
        (1, 6, 6), (5,), *nodes, flatten, affine(32, 5), neurons("LIF", (5,))
    )


EVERY = (in_norse, in_snntorch, in_spikingjelly)
GRAPHS = {
    "convolutions": (convolutional, (1, 6, 6), EVERY),
    # norse and snntorch flatten the axis of samples as well, so that they take one sample at a time.
    "flattened": (lambda: convolutional(flat=True), (1, 6, 6), EVERY),
    "averaged": (
        lambda: pooled("AvgPool2d"),
        (1, 8, 8),
        (in_snntorch, in_spikingjelly),
    ),
    "summed": (lambda: pooled("SumPool2d"), (1, 8, 8), (in_norse, in_spikingjelly)),
    "driven by currents": (
        lambda: chained(
            (12,),
            (6,),
            affine(12, 20),
            neurons("CubaLIF", (20,)),
            affine(20, 6),
            neurons("CubaLIF", (6,)),
        ),
        (12,),
        EVERY,
    ),
    # snntorch 1.0 hands the input of the neurons through their recurrent weights, which is another graph.
    "recurrent": (lambda: recurrent("LIF"), (12,), (in_norse, in_spikingjelly)),
    "recurrent, driven by currents": (
        lambda: recurrent("CubaLIF"),
        (12,),
        (in_norse, in_spikingjelly),
    ),
}


@pytest.mark.parametrize("way", GRAPHS)
def test_graphs_of_every_kind_have_one_certificate_in_every_framework(way):
    need("nir")
    make, shape, frameworks = GRAPHS[way]
    x = (
        torch.rand(6, 9, *shape, generator=torch.Generator().manual_seed(1)) < 0.4
    ).float()
    asked = [*METRICS, "parameter_count", "synaptic_operations"]
    ours = nl.cost(make(), [x], asked)
    assert ours["spikes"].value > 0
    for imported in frameworks:
        net = imported(make()).eval()  # snntorch changes the graph that it is handed
        together = way != "flattened" or imported is in_spikingjelly
        for sizes in ([6], [1] * 6, [2, 4]) if together else ([1] * 6,):
            theirs = nl.cost(net, x.split(sizes), asked)
            for name in asked:
                assert theirs[name].status == "scored", (name, theirs[name].reason)
                assert theirs[name].value == pytest.approx(
                    ours[name].value, rel=1e-9
                ), (
                    imported,
                    name,
                    sizes,
                )


JELLY = {
    "IFNode": {}, "LIFNode": {}, "ParametricLIFNode": {}, "KLIFNode": {}, "QIFNode": {}, "EIFNode": {},
    "IzhikevichNode": {}, "CUBALIFNode": {}, "ComplementaryLIFNode": {}, "HalfThresholdIFNode": {}, "ILIFNode": {},
    "TernaryIFNode": {}, "TernaryLIFNode": {}, "RAFNode": {}, "OTTTLIFNode": {}, "SLTTLIFNode": {}, "SimpleIFNode": {},
    "ActivationAwareIFNode": {}, "GatedLIFNode": {"T": 6}, "PSN": {"T": 6}, "MaskedPSN": {"k": 2, "T": 6},
    "SlidingPSN": {"k": 2}, "DSRIFNode": {"T": 6},
}  # fmt: skip
SEVERAL_ONLY = frozenset({"GatedLIFNode", "PSN", "MaskedPSN", "DSRIFNode"})
SINGLE_ONLY = frozenset({"OTTTLIFNode", "SLTTLIFNode"})
# Products over time, of weights with inputs, inside of the neurons.
WEIGHTED_OVER_TIME = frozenset({"PSN", "MaskedPSN", "SlidingPSN"})


@pytest.mark.parametrize("kind", JELLY)
def test_neurons_of_spikingjelly_count_as_they_are_stepped_by_hand(kind):
    neuron = need("spikingjelly.activation_based.neuron")
    functional = need("spikingjelly.activation_based.functional")
    x = 2 * torch.rand(
        6, 5, 7, generator=torch.Generator().manual_seed(0)
    )  # (time, sample, neuron)
    modes = (
        ("m",)
        if kind in SEVERAL_ONLY
        else ("s",)
        if kind in SINGLE_ONLY
        else ("s", "m")
    )
    for mode in modes:
        torch.manual_seed(0)
        several = (
            {"step_mode": "m"} if mode == "m" and kind in SEVERAL_ONLY - {"PSN"} else {}
        )
        node = getattr(neuron, kind)(**JELLY[kind], **several)
        if kind != "PSN":
            node.step_mode = mode

        class Network(nn.Module):
            def __init__(self, node=node, mode=mode):
                super().__init__()
                self.node, self.readout, self.mode = (
                    node,
                    nn.Linear(7, 3, bias=False),
                    mode,
                )

            def forward(self, x):
                steps = (
                    torch.stack([self.node(step) for step in x])
                    if self.mode == "s"
                    else self.node(x)
                )
                return self.readout(steps)

        net = Network().eval()
        functional.reset_net(net)
        fired, updates, before = [], 0, None
        with torch.no_grad():
            if mode == "m":
                fired = node(x)
            else:
                for step in x:
                    fired.append(node(step))
                    now = getattr(node, "v", None)
                    if isinstance(now, torch.Tensor):
                        updates += (
                            now.numel() if before is None else int(now.ne(before).sum())
                        )
                        before = now.clone()
                fired = torch.stack(list(fired))
        functional.reset_net(net)
        signs = (fired == fired.sign()).all(0).all(1)  # of each sample, over all steps
        driven = 3 * fired.ne(0).sum((0, 2)).double()
        for sizes in ([5], [1] * 5, [2, 3]):
            found = nl.cost(net, x.split(sizes, 1), METRICS, sample_axis=1)
            assert found["spikes"].value == pytest.approx(
                int(fired.count_nonzero()) / 5
            ), (
                mode,
                found["spikes"].reason,
            )
            assert found["activation_sparsity"].value == pytest.approx(
                1 - int(fired.count_nonzero()) / fired.numel()
            )
            assert found["effective_acs"].value == pytest.approx(
                float(driven[signs].sum()) / 5
            )
            if kind not in WEIGHTED_OVER_TIME:
                assert found["effective_macs"].value == pytest.approx(
                    float(driven[~signs].sum()) / 5
                )
            if before is not None:
                assert found["membrane_updates"].value == pytest.approx(updates / 5)


def silent_in_norse():
    return need("norse.torch").LICell()


def silent_in_sinabs():
    return need("sinabs.layers").ExpLeak(tau_mem=10.0)


@pytest.mark.parametrize(
    "make", [silent_in_norse, silent_in_sinabs], ids=lambda f: f.__name__
)
def test_leaky_integrators_answer_no_spikes(make):
    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.end = nn.Linear(4, 3, bias=False), make()

        def forward(self, x):
            drive, state, answers = self.layer(x), None, []
            if make is silent_in_sinabs:
                return self.end(drive)
            for step in drive.unbind(1):
                answer, state = self.end(step, state)
                answers.append(answer)
            return torch.stack(answers, 1)

    network, x = Readout().eval(), (torch.rand(5, 6, 4) < 0.5).float()
    asked = ["spikes", "dense_operations", "footprint"]
    found = nl.cost(network, [x], asked)
    assert (
        found["spikes"].status == "failed" and found["dense_operations"].value == 6 * 12
    )
    with torch.no_grad():
        network(
            x
        )  # it keeps its membranes, which are no part of the network as it is stored
    assert nl.cost(network, [x], asked)["footprint"].value == found["footprint"].value


NEURONS_OF_SNNTORCH = {
    "Leaky": {},
    "Synaptic": {"alpha": 0.8},
    "Lapicque": {},
    "Alpha": {"alpha": 0.9},
    "RLeaky": {"linear_features": 7},
    "RSynaptic": {"alpha": 0.8, "linear_features": 7},
}


@pytest.mark.parametrize("kind", NEURONS_OF_SNNTORCH)
def test_neurons_of_snntorch_count_as_they_are_stepped_by_hand(kind):
    snntorch = need("snntorch")
    x = 2 * torch.rand(6, 5, 7, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    beta = 0.7 if kind == "Alpha" else 0.9
    node = getattr(snntorch, kind)(
        beta=beta, init_hidden=True, **NEURONS_OF_SNNTORCH[kind]
    )

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.node, self.readout = node, nn.Linear(7, 3, bias=False)

        def forward(self, x):
            return self.readout(torch.stack([self.node(step) for step in x]))

    net = Network().eval()
    fired, updates, before = [], 0, None
    with torch.no_grad():
        for step in x:
            fired.append(node(step))
            updates += (
                node.mem.numel() if before is None else int(node.mem.ne(before).sum())
            )
            before = node.mem.clone()
    fired = torch.stack(fired)
    spikes, drives = int(fired.count_nonzero()), 3 * int(fired.count_nonzero())
    if (
        "linear_features" in NEURONS_OF_SNNTORCH[kind]
    ):  # spikes of all steps but the last drive seven weights each
        drives += 7 * int(fired[:-1].count_nonzero())
    for name in ("mem", "syn", "syn_exc", "syn_inh", "spk"):
        if isinstance(getattr(node, name, None), torch.Tensor):
            setattr(node, name, getattr(node, name).new_zeros(0))
    for sizes in ([5], [1] * 5, [2, 3]):
        found = nl.cost(net, x.split(sizes, 1), METRICS, sample_axis=1)
        assert found["spikes"].value == pytest.approx(spikes / 5), found[
            "spikes"
        ].reason
        assert found["membrane_updates"].value == pytest.approx(updates / 5)
        assert (
            found["effective_acs"].value == pytest.approx(drives / 5)
            and found["effective_macs"].value == 0
        )
