"""Invariance of counts to batch size, order, earlier and concurrent runs, and restoration of state."""

from __future__ import annotations

import threading
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neuroledger.families.efficiency.networks.layers import Lif, OverTime
from tests.families.efficiency.counting.counting import counted, per_sample


def rectified():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(27, 4), nn.Sigmoid(),
    )  # fmt: skip


class Nested(nn.Module):
    """Spiking layers in nested blocks that take one step per call: (spikes, membrane)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.Sequential(nn.Sequential(nn.Linear(36, 8), Lif(0.8)))
        self.head = nn.Linear(8, 4)
        self.out = Lif(0.8)

    def forward(self, x):
        return self.out(self.head(self.block(x))), self.out.membrane


def spiking():
    return OverTime(Nested().block)


MODELS = {"rectified": rectified, "spiking": spiking, "stepped": Nested}


def inputs(name, count=24):
    generator = torch.Generator().manual_seed(1)
    if name == "rectified":
        x = torch.rand(count, 36, generator=generator)
        x[::3] = (x[::3] > 0.5).float()  # every third sample is binary
        return x
    x = (torch.rand(count, 36, 5, generator=generator) < 0.3).float()
    x[::4] *= 0.5
    return x if name == "spiking" else x.transpose(1, 2).contiguous()


@pytest.mark.parametrize("name", MODELS)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12))
@settings(deadline=None, max_examples=15)
def test_batches_of_any_sizes_give_the_same_counts(name, sizes):
    model, x = MODELS[name](), inputs(name)
    whole = counted(model, x)
    cuts, left = [], len(x)
    for size in sizes:
        cuts.append(min(size, left))
        left -= cuts[-1]
    parts = [
        part
        for part in x.split([*(c for c in cuts if c), *([left] if left else [])])
        if len(part)
    ]
    trace = counted(model, *parts)
    assert trace.samples == whole.samples
    assert trace.layers == whole.layers


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
@pytest.mark.parametrize("name", MODELS)
def test_a_second_run_in_another_order_gives_the_same(name, mode):
    model, x = MODELS[name](), inputs(name)
    first = counted(model, *x.split(7), mode=mode)
    model(x[:, 0]) if name == "stepped" else model(
        x
    )  # the network is used in between, and keeps a state
    again = counted(model, *x.split(7), mode=mode)
    assert first == again
    reordered = counted(
        model,
        *reversed(x.split(8)),
        needs=("weights", "membranes", "activations", "operations"),
    )
    if mode == "strict":
        assert reordered.layers == first.layers


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
@pytest.mark.parametrize("name", MODELS)
def test_concurrent_runs_on_the_same_network_are_independent(name, mode):
    model, x = MODELS[name](), inputs(name)
    alone = counted(model, *x.split(6), mode=mode)
    result, meeting = {}, threading.Barrier(3)

    def batches():
        for part in x.split(6):
            meeting.wait(timeout=20)
            yield part

    def run(key):
        result[key] = (
            counted(model, *[], mode=mode)
            if key is None
            else _counted(model, batches(), mode)
        )

    threads = [threading.Thread(target=run, args=(key,)) for key in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result[key].layers for key in range(3)] == [alone.layers] * 3


def _counted(model, batches, mode):
    from neuroledger.families.efficiency.counting.run_trace import trace

    return trace(
        model,
        batches,
        needs=("operations", "activations", "membranes", "weights"),
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
def test_nested_runs_are_independent(mode):
    model, x = rectified(), inputs("rectified")
    alone = counted(model, *x.split(6), mode=mode)
    inner = []

    def batches():
        for part in x.split(6):
            inner.append(counted(model, x, mode=mode).layers)
            yield part

    assert _counted(model, batches(), mode).layers == alone.layers
    assert all(layers == inner[0] for layers in inner)


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_network_is_restored(mode, fails):
    model = Nested()
    model.train()
    model.head.eval()
    model(torch.rand(3, 36))
    state, weights = (
        model.out.membrane,
        {k: v.clone() for k, v in model.state_dict().items()},
    )
    x = inputs("stepped")[..., :30] if fails else inputs("stepped")
    trace = counted(model, x, mode=mode, time_axis=1)
    assert bool(trace.failures) == fails
    assert model.training and model.block.training and not model.head.training
    assert model.out.membrane is state
    assert all(
        torch.equal(value, weights[key]) for key, value in model.state_dict().items()
    )
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("mode", ["strict", "neurobench-2.3"])
def test_an_interrupted_pass_leaves_nothing_behind(mode):
    model, before = Nested(), torch.get_rng_state()
    model.train()

    def batches():
        yield inputs("stepped")
        torch.rand(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _counted(model, batches(), mode)
    assert model.training and model.block[0][1].training and model.out.membrane is None
    assert torch.is_grad_enabled() and torch.equal(torch.get_rng_state(), before)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_random_networks_give_the_same_counts_with_any_other_metrics():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(36, 4)

        def forward(self, x):
            return self.layer(x * (torch.rand_like(x) > 0.5))

    torch.manual_seed(3)
    model, x, state = Noisy(), inputs("rectified"), torch.get_rng_state()
    first = counted(model, x)
    timed = counted(
        model,
        x,
        needs=("operations", "activations", "membranes", "weights", "timing", "memory"),
    )
    assert first.layers == timed.layers == counted(model, x).layers
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_batches():
    model, x = rectified(), inputs("rectified", 8)

    def batches(count):
        for _ in range(count):
            yield x.clone()

    def peak(count):
        tracemalloc.start()
        _counted(model, batches(count), "strict")
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(600)  # what waits to be counted together has filled up by then
    assert peak(6000) < peak(600) + 200_000  # less than 40 bytes for each further batch


def test_inputs_of_new_shapes_do_not_accumulate():
    class Any(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)

    trace = _counted(
        Any(), (torch.full((2, n, 4), 0.5) for n in range(1, 1200)), "strict"
    )
    assert per_sample(trace)[0] == 8 * 1200 * 1199 / 2 / 1199


def test_a_missing_batch_is_a_failure_and_not_zero():
    trace = counted(rectified())
    assert set(trace.failures) == {"operations", "activations", "membranes"}
    assert trace.weights is not None
    broken = counted(rectified(), torch.rand(3, 35))
    assert (
        "forward pass" in broken.failures["operations"]
        and "(3, 35)" in broken.failures["operations"]
    )


def test_gradients_are_never_kept():
    seen = []
    counted(
        rectified(),
        inputs("rectified"),
        receive=lambda _, answer: seen.append(answer.requires_grad),
    )
    assert seen == [False]


def test_networks_may_run_in_inference_mode():
    class Inference(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(
                nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
            )

        def forward(self, x):
            with torch.inference_mode():
                return self.layer(x)

    model, x = Inference(), torch.rand(5, 1, 6, 6)
    inside = counted(model, *x.split(2))
    outside = counted(model.layer, *x.split(2))
    assert per_sample(inside) == per_sample(outside)
    with torch.inference_mode():
        assert per_sample(counted(model.layer, *x.clone().split(2))) == per_sample(
            outside
        )
