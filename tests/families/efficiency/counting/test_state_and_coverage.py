"""Networks with state, or with operations without a rule: every batch starts from the same state, and nothing is ignored."""

from __future__ import annotations

import random
import threading
from collections import deque
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neuroledger as nl
from neuroledger.errors import RequestError
from neuroledger.families.efficiency.counting.network import Network, evaluation
from neuroledger.families.efficiency.metrics.activity import (
    membrane_updates,
    neuron_operations,
    spikes,
)
from neuroledger.families.efficiency.metrics.operations import operations_per_sample
from neuroledger.families.efficiency.networks.layers import Lif
from tests.families.efficiency.counting.counting import counted, ones, per_sample

SIZES = (1, 2, 3, 8, 64)


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def in_package(package, *names):
    """A base class that looks like that of a package, which need not be installed."""
    return [
        type(name, (nn.Module,), {"__module__": f"{package}.layers"}) for name in names
    ]


(BaseNode,) = in_package("spikingjelly", "BaseNode")
(StatefulLayer,) = in_package("sinabs", "StatefulLayer")
(SNNCell,) = in_package("norse", "SNNCell")


class Jelly(BaseNode):
    """A neuron in SpikingJelly's style: memories in a dictionary, reset from another, numbers before the first step."""

    def __init__(self):
        super().__init__()
        self._memories, self._memories_rv = {"v": 0.0}, {"v": 0.0}

    def __getattr__(self, name):
        memories = self.__dict__.get("_memories", {})
        return memories[name] if name in memories else super().__getattr__(name)

    def reset(self):
        self._memories.update(self._memories_rv)

    def forward(self, current):
        potential = self._memories["v"] + current
        fired = (potential >= 1).float()
        self._memories["v"] = potential * (1 - fired)
        return fired


class Sinabs(StatefulLayer):
    """A neuron in sinabs' style: a buffer with the shape of the batch; whole sequences in one call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("v_mem", torch.zeros(0))

    def reset_states(self):
        self.v_mem = torch.zeros(0)

    def forward(self, current):
        state = (
            self.v_mem
            if self.v_mem.shape == current[:, 0].shape
            else torch.zeros_like(current[:, 0])
        )
        found = []
        for step in current.unbind(1):
            state = state + step
            fired = (state >= 1).float()
            state = state - fired
            found.append(fired)
        self.v_mem = state
        return torch.stack(found, 1)


class Norse(SNNCell):
    """A neuron in norse's style: the state is an argument and a result."""

    class State(tuple):
        v = property(lambda self: self[0])

    def forward(self, current, state=None):
        potential = (
            0.9 * (torch.zeros_like(current) if state is None else state.v) + current
        )
        fired = (potential >= 1).float()
        return fired, Norse.State((potential - fired,))


class Plain(nn.Module):
    """A neuron of no framework, with its membrane in a plain attribute."""

    def __init__(self):
        super().__init__()
        self.v = None

    def forward(self, current):
        before = (
            self.v
            if self.v is not None and self.v.shape == current.shape
            else torch.zeros_like(current)
        )
        potential = before + current
        fired = (potential >= 1).float()
        self.v = potential - fired
        return fired


class Hidden(nn.Module):
    """A neuron with its membrane in an unusual place: in an object in a list."""

    class Box:
        def __init__(self):
            self.values = {}

    def __init__(self):
        super().__init__()
        self.boxes = [self.Box()]

    def forward(self, current):
        values = self.boxes[0].values
        potential = values.get(current.shape, torch.zeros_like(current)).add_(current)
        fired = (potential >= 1).float()
        values[current.shape] = potential.sub_(fired)
        return fired


class Stepped(nn.Module):
    """Two layers of weights and neurons, stepped over (sample, time, 6); no state is reset."""

    def __init__(self, neuron):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.fire, self.second = nn.Linear(6, 5), neuron(), nn.Linear(5, 3)

    def forward(self, x):
        if isinstance(self.fire, Sinabs):
            return self.second(self.fire(self.first(x))).sum(1)
        state, answers = None, []
        for step in x.unbind(1):
            current = self.first(step)
            fired, state = (
                self.fire(current, state)
                if isinstance(self.fire, Norse)
                else (self.fire(current), None)
            )
            answers.append(self.second(fired))
        return torch.stack(answers).sum(0)


NEURONS = {kind.__name__: kind for kind in (Jelly, Sinabs, Norse, Plain, Hidden)}


@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("used", [False, True])
def test_every_batch_of_any_size_starts_from_the_same_state(name, used):
    network, x = Stepped(NEURONS[name]), (torch.rand(64, 5, 6) < 0.5).float()
    if used and name in (
        "Jelly",
        "Sinabs",
    ):  # a framework's own reset clears what an earlier use left
        network(x[:7])
    whole = counted(network, x)
    assert whole.layers["first"].acs > 0 < whole.layers["second"].acs
    for size in SIZES:
        assert counted(network, *x.split(size)).layers == whole.layers


@pytest.mark.parametrize("name", NEURONS)
@given(sizes=st.lists(st.integers(1, 64), min_size=1, max_size=6))
@settings(deadline=None, max_examples=10)
def test_counts_do_not_depend_on_batch_size(name, sizes):
    network, x = Stepped(NEURONS[name]), (torch.rand(sum(sizes), 4, 6) < 0.5).float()
    assert counted(network, *x.split(sizes)).layers == counted(network, x).layers


class Wanderer(nn.Module):
    """Draws from all generators, and writes into all kinds of attributes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("buffer", torch.zeros(4))
        self.calls, self.array, self.seen = 0, np.zeros(3), deque([1.0], 3)
        self.names, self.flags, self.raw = {"a": [torch.ones(2)]}, {1}, bytearray(b"ab")
        self.own = torch.Generator().manual_seed(1)
        self.numpy, self.old = np.random.default_rng(1), random.Random(1)
        self.legacy = np.random.RandomState(1)

    def forward(self, x):
        self.calls += 1
        self.array += 1
        self.seen.append(2.0)
        self.names["a"][0].mul_(2)
        self.names["b"] = self.extra = torch.ones(1)
        self.flags.add(2)
        self.raw.extend(b"c")
        self.buffer.data = self.buffer + 1
        self.layer.weight.data.mul_(1.5)
        draws = [
            torch.rand(()), torch.rand((), generator=self.own), self.numpy.random(), self.old.random(),
            self.legacy.rand(), random.random(), np.random.rand(),  # noqa: NPY002
        ]  # fmt: skip
        share = float(sum(float(draw) for draw in draws)) / len(draws)
        share *= float(self.names["a"][0][0]) / len(self.seen) / self.calls
        return self.layer(x * (torch.rand_like(x) < share))

    def facts(self):
        return (
            self.calls, self.array.tolist(), list(self.seen), self.names["a"][0].tolist(), sorted(self.names),
            hasattr(self, "extra"), self.flags, bytes(self.raw), self.buffer.tolist(), self.layer.weight.tolist(),
            self.own.get_state().tolist(), self.numpy.bit_generator.state, self.old.getstate(),
            self.legacy.get_state()[1].tolist(), random.getstate(), np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.get_rng_state().tolist(),
        )  # fmt: skip


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
def test_attributes_and_generators_are_restored_before_each_batch_and_after_the_call(
    mode,
):
    network, x = nn.Sequential(Wanderer(), nn.Linear(4, 2)), torch.rand(7, 6)
    weight, before = network[0].layer.weight, network[0].facts()
    once = counted(network, x, mode=mode)
    assert network[0].facts() == before and network[0].layer.weight is weight
    thrice = counted(network, x, x, x, mode=mode)
    assert thrice.samples == 3 * once.samples
    assert {name: layer.macs / 3 for name, layer in thrice.layers.items()} == {
        name: layer.macs for name, layer in once.layers.items()
    }


def test_batches_drawn_lazily_are_different_batches():
    seen = []

    def batches():
        for _ in range(3):
            yield torch.from_numpy(np.random.rand(4, 6)).float()  # noqa: NPY002

    nl.cost(
        nn.Sequential(Wanderer()),
        (seen.append(x) or x for x in batches()),
        ["dense_operations"],
    )
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


class Normal(nn.Module):
    """Draws NumPy's normal numbers, which are computed in pairs: the second one is cached for the next call."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def forward(self, x):
        drawn = np.random.standard_normal(self.draws)  # noqa: NPY002
        return (x * float(drawn[-1] > 0) + 1e-9) @ torch.eye(6)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize(
    "source", [np.random.MT19937, np.random.PCG64, np.random.SFC64]
)
def test_a_normal_number_cached_in_numpys_generator_is_preserved(
    source, waiting, draws
):
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(source(3))
        np.random.standard_normal(waiting)  # noqa: NPY002
        expected = np.random.get_state(legacy=False)  # noqa: NPY002
        trace = counted(Normal(draws), *[torch.ones(2, 6)] * 3)
        after = np.random.get_state(legacy=False)  # noqa: NPY002
        assert str(after) == str(expected)
        assert per_sample(trace) == per_sample(counted(Normal(draws), torch.ones(2, 6)))
        assert str(np.random.get_state(legacy=False)) == str(expected)  # noqa: NPY002
        expected = np.random.RandomState(source(3)).standard_normal(waiting + 1)[-1]
        assert np.random.standard_normal() == expected  # noqa: NPY002
    finally:
        np.random.set_bit_generator(before)


class Extra(nn.Module):
    """36 weights in a layer, and 600 more in code without a rule; 636 operations in total."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.extra, self.function = (
            ones(nn.Linear(6, 6)),
            nn.Parameter(torch.ones(6, 100)),
            function,
        )

    def forward(self, x):
        return self.function(self.layer(x), self.extra)


@torch.library.custom_op("neuroledger_tests::product", mutates_args=())
def custom(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def threaded(x, w):
    result = []
    worker = threading.Thread(target=lambda: result.append(x.matmul(w)))
    worker.start()
    worker.join()
    return result[0]


class Function(torch.autograd.Function):
    """A product with a custom gradient."""

    @staticmethod
    def forward(context, x, w):
        return x @ w


class Product(nn.Module):
    """The product as a module of its own, without weights, to be frozen."""

    def forward(self, x, w):
        return x @ w


HIDDEN = {
    "addcmul": lambda x, w: torch.addcmul(torch.zeros(()), x.unsqueeze(2), w).sum(1),
    "NumPy": lambda x, w: torch.from_numpy(x.numpy() @ w.detach().numpy()),
    "where": lambda x, w: torch.where(x.unsqueeze(2) > 0, w, 0).sum(1),
    "chosen columns": lambda x, w: w[x[0] > 0].sum(0),
    "a thread": threaded,
}
SEEN = {
    "an operator of one's own": custom,
    "TorchScript": scripted,
    "an autograd function": Function.apply,
    "vmap": lambda x, w: torch.vmap(lambda row: row @ w)(x),
    "a frozen module": torch.jit.freeze(torch.jit.script(Product().eval())),
    "a compiled graph": torch.jit.trace(
        lambda x, w: x @ w, (torch.ones(1, 6), torch.ones(6, 100))
    ),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_planted_work_that_cannot_be_counted_is_reported(way):
    network = Extra(HIDDEN[way])
    for name in (
        "effective_macs",
        "synaptic_operations",
        "dense_operations",
        "energy_45nm",
    ):
        score = nl.cost(network, [torch.rand(3, 6)], [name])[name]
        assert score.status == "partial" and "extra" in score.reason
        assert score.n["coverage"] == pytest.approx(36 / 636)
    assert (
        nl.cost(network, [torch.rand(3, 6)], ["dense_operations"])[
            "dense_operations"
        ].value
        == 36
    )


@pytest.mark.parametrize("way", SEEN)
def test_planted_work_below_torch_functions_is_counted(way):
    network = Extra(SEEN[way])
    for batches in ([torch.rand(3, 6)], torch.rand(5, 6).split(2)):
        score = nl.cost(network, batches, ["dense_operations"])["dense_operations"]
        assert (score.status, score.value, score.n["coverage"]) == ("scored", 636, 1)


def test_work_without_weights_in_compiled_or_custom_code_is_counted_or_reported():
    class Gram(nn.Module):
        def __init__(self, product):
            super().__init__()
            self.product = product

        def forward(self, x):
            return self.product(x, x.transpose(-1, -2))

    x = torch.rand(4, 3, 6)
    assert per_sample(counted(Gram(scripted), x))[2] == 3 * 6 * 3
    assert per_sample(counted(Gram(custom), x))[2] == 3 * 6 * 3
    outside = Gram(lambda x, y: torch.from_numpy(x.numpy() @ y.numpy()))
    score = nl.cost(outside, [x], ["dense_operations"])["dense_operations"]
    assert score.status == "failed" and "leave torch" in score.reason


def test_a_part_of_a_weight_does_not_cover_the_whole():
    class Slices(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(10, 6))

        def forward(self, x):
            return nn.functional.linear(x, self.weight[:4]), x.numpy() @ self.weight[
                4:
            ].detach().numpy().T

    trace = counted(Slices(), torch.rand(2, 6))
    assert (trace.weights_reached, trace.weights_met) == (24, 60)
    assert [(part.name, part.weights) for part in trace.unreached] == [
        ("Slices.weight", 36)
    ]


def test_a_layer_of_one_output_is_a_connection_too():
    class Unseen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(6, 6), nn.Linear(600, 1)

        def forward(self, x):
            return torch.addcmul(
                torch.zeros(()), self.layer(x).repeat(1, 100), self.last.weight
            ).sum(1)

    score = nl.cost(Unseen(), [torch.rand(3, 6)], ["dense_operations"])[
        "dense_operations"
    ]
    assert score.status == "partial" and "last.weight" in score.reason
    assert score.n["coverage"] == pytest.approx(36 / 636)


def test_positions_gains_and_tables_are_not_connections():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.place, self.gain = (
                nn.Parameter(torch.ones(50, 6)),
                nn.Parameter(torch.ones(50, 6)),
            )
            self.table, self.layer = nn.Parameter(torch.ones(9, 6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.layer(
                (x + self.place) * self.gain
                + nn.functional.embedding(torch.zeros(50).long(), self.table)
            )

    trace = counted(Adds(), torch.rand(3, 50, 6))
    assert (trace.weights_reached, trace.weights_met, trace.unreached) == (12, 12, ())
    assert operations_per_sample(trace, lambda layer: layer.dense).status == "scored"


def test_frameworks_are_recognised_by_their_classes():
    x = (torch.rand(4, 5, 6) < 0.5).float()
    for kind in (Jelly, Norse):
        trace = counted(Stepped(kind), x)
        layer = trace.layers["fire"]
        assert layer.membranes == layer.elements == 5 * 4 * 5
        assert membrane_updates(trace).value > 0 and spikes(trace).value > 0
        assert (
            neuron_operations(trace).status == "failed"
            and kind.__name__ in neuron_operations(trace).reason
        )
    whole = counted(Stepped(Sinabs), x)
    assert spikes(whole).value > 0
    assert (
        membrane_updates(whole).status == "failed"
        and "each time step" in membrane_updates(whole).reason
    )
    unknown = counted(Stepped(Plain), x)
    assert all(
        reading(unknown).status == "failed"
        for reading in (membrane_updates, spikes, neuron_operations)
    )


def test_custom_layers_are_registered_without_changing_their_class():
    x = (torch.rand(4, 5, 6) < 0.5).float()
    for names in ("v", ("v",)):
        scores = nl.cost(
            Stepped(Plain), [x], ["membrane_updates", "spikes"], spiking={Plain: names}
        )
        assert {score.status for score in scores.values()} == {"scored"}
    assert scores["spikes"].value == pytest.approx(
        float(sum_of_spikes(Stepped(Plain), x)) / 4
    )
    assert not hasattr(Plain, "spiking_state")
    assert nl.cost(Stepped(Plain), [x], ["spikes"])["spikes"].status == "failed"


def sum_of_spikes(network, x):
    return sum(network.fire(network.first(step)).sum() for step in x.unbind(1))


def test_a_custom_class_can_be_declared_by_an_attribute(monkeypatch):
    monkeypatch.setattr(Jelly, "spiking_state", ("v",), raising=False)
    network, x = Stepped(Jelly), (torch.rand(8, 5, 6) < 0.5).float()
    network(x[:3])
    assert counted(network, *x.split(3)).layers == counted(network, x).layers
    assert membrane_updates(counted(network, x)).status == "scored"


class TimeFirst(nn.Module):
    """Spiking layers over (time, sample, 6)."""

    def __init__(self, answer="summed"):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.fire, self.second, self.answer = (
            nn.Linear(6, 5),
            Lif(0.5),
            nn.Linear(5, 3),
            answer,
        )

    def forward(self, x):
        steps = torch.stack([self.second(self.fire(self.first(step))) for step in x])
        return steps.sum(0) if self.answer == "summed" else steps


@pytest.mark.parametrize("answer", ["summed", "stacked"])
@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
def test_time_first_input_is_never_silently_wrong(answer, mode):
    x = (torch.rand(100, 8, 6) < 0.5).float()
    wrong = nl.cost(TimeFirst(answer), [x], ["effective_acs"], mode)["effective_acs"]
    assert wrong.status == "failed" and "sample_axis=1" in wrong.reason
    right = nl.cost(TimeFirst(answer), [x], ["effective_acs"], mode, sample_axis=1)[
        "effective_acs"
    ]
    whole = nl.cost(
        TimeFirst(answer), x.split(1, 1), ["effective_acs"], mode, sample_axis=1
    )["effective_acs"]
    assert (
        right.status == "scored"
        and right.n["samples"] == 8
        and right.value == whole.value
    )
    assert right.value > 100 * 6 * 5 * 0.4
    stated = nl.cost(TimeFirst(answer), [x], ["effective_acs"], mode, sample_axis=0)[
        "effective_acs"
    ]
    assert stated.n["samples"] == 100


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_that_take_time_first_are_detected(kind):
    layer, x = getattr(nn, kind)(6, 5), torch.rand(20, 4, 6)
    assert "sample_axis=1" in counted(layer, x).failures["operations"]
    trace = counted(layer, x, sample_axis=1)
    first = counted(
        getattr(nn, kind)(6, 5, batch_first=True), x.transpose(0, 1).contiguous()
    )
    assert trace.samples == 4 and per_sample(trace)[2] == per_sample(first)[2]


def test_single_steps_along_the_first_axis():
    class Step(TimeFirst):
        def forward(self, x):
            return self.fire(self.first(x)), self.fire.membrane

    x = (torch.rand(7, 3, 6) < 0.5).float()
    trace = counted(Step(), x, sample_axis=1)
    assert (trace.steps, trace.samples) == (7, 3) and "axis 0" in trace.notes[0]
    assert trace.layers == counted(Step(), x.transpose(0, 1).contiguous()).layers
    assert counted(Step(), x, sample_axis=1, time_axis=0).layers == trace.layers
    with pytest.raises(RequestError, match="axis 1 is that of the samples"):
        counted(Step(), x, sample_axis=1, time_axis=1)
    with pytest.raises(RequestError, match="sample_axis 4"):
        counted(Step(), x, sample_axis=4)


@given(size=st.integers(1, 12), steps=st.integers(1, 12))
@settings(deadline=None, max_examples=20)
def test_time_first_counts_do_not_depend_on_batch_size(size, steps):
    x = (torch.rand(steps, 24, 6) < 0.5).float()
    x[:, ::3] *= 0.5  # every third sample is analogue at every step
    whole = counted(TimeFirst(), x, sample_axis=1)
    assert counted(TimeFirst(), *x.split(size, 1), sample_axis=1).layers == whole.layers


ELSEWHERE = ModuleType("elsewhere")


class Leaking(nn.Module):
    """A state outside of the snapshot: a variable of another Python module."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        ELSEWHERE.calls = getattr(ELSEWHERE, "calls", 0) + 1
        return self.layer(x if ELSEWHERE.calls % 2 else torch.zeros_like(x))


class OfTheBatch(nn.Module):
    """Counts that depend on which samples are in the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return self.layer(x * (x > x.mean()))


def test_the_check_states_that_runs_and_batch_sizes_agree():
    metrics, x = (
        ["effective_macs", "activation_sparsity", "footprint"],
        torch.rand(6, 6) + 1,
    )
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    costs = nl.cost(net, [x, x[:2]], metrics, check=True)
    for name in metrics[:2]:
        assert (
            "checked: batches of 6 samples again and of 3 and 3 samples gave the same counts"
            in costs[name].notes
        )
    assert {name: score.value for name, score in costs.items()} == {
        name: score.value for name, score in nl.cost(net, [x, x[:2]], metrics).items()
    }
    assert any("checked: batches of 1 samples again gave" in note for note in
               nl.cost(net, x[:1], metrics, check=True)["effective_macs"].notes)  # fmt: skip
    for net, what in (
        (Leaking(), "of 6 samples again"),
        (OfTheBatch(), "of 3 and 3 samples"),
    ):
        uneven = torch.rand(6, 6)
        uneven[:3] += 5
        assert nl.cost(net, [uneven], metrics)["effective_macs"].status == "scored"
        scores = nl.cost(net, [uneven], metrics, check=True)
        assert (
            scores["effective_macs"].status == "failed"
            and what in scores["effective_macs"].reason
        )
        assert (
            "layer" in scores["effective_macs"].reason
            and scores["footprint"].status == "scored"
        )


def test_a_network_whose_state_cannot_be_copied_leaves_gradients_and_its_lock_free(
    monkeypatch,
):
    network = Network.of(nn.Linear(3, 2))

    def full(_):
        raise MemoryError

    monkeypatch.setattr(Network, "take_state", full)
    with pytest.raises(MemoryError), evaluation(network):
        pass
    assert torch.is_grad_enabled()
    acquired = []
    thread = threading.Thread(
        target=lambda: acquired.append(network.lock.acquire(blocking=False))
    )
    thread.start()
    thread.join()
    assert acquired == [True]
