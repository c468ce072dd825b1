"""If user code keeps state between calls, each batch counts like the first, or the counts fail with a reason."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn

import neuroledger as nl

ASKED = ["effective_macs", "dense_operations"]
WIDTH, SAMPLES = 4, 6
CALLS = 0
KEPT: list[torch.Tensor] = []
SUM = torch.zeros(WIDTH)


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    monkeypatch.setitem(globals(), "CALLS", 0)
    monkeypatch.setattr(Remembering, "calls_of_class", 0)
    KEPT.clear()
    SUM.zero_()


class Remembering(nn.Module):
    """Multiplies as often as it was called: once, then twice, …"""

    calls_of_class = 0

    def __init__(self, remember):
        super().__init__()
        self.layer, self.remember = nn.Linear(WIDTH, WIDTH, bias=False), remember

    def forward(self, x):
        for _ in range(self.remember(self)):
            x = self.layer(x)
        return x


def closure():
    calls = 0

    def remember(_):
        nonlocal calls
        calls += 1
        return calls

    return remember


def list_of_closure():
    seen = []
    return lambda _: seen.append(1) or len(seen)


def a_global(_):
    global CALLS  # noqa: PLW0603
    CALLS += 1
    return CALLS


def through_another_function(s):
    return a_global(s)


def list_of_globals(_):
    KEPT.append(torch.ones(1))
    return len(KEPT)


def tensor_of_globals(_):
    SUM.add_(1)
    return int(SUM[0])


def attribute_of_the_class(s):
    type(s).calls_of_class += 1
    return type(s).calls_of_class


def attribute_of_a_function(_):
    attribute_of_a_function.calls = getattr(attribute_of_a_function, "calls", 0) + 1
    return attribute_of_a_function.calls


def default(_, seen=[]):  # noqa: B006
    seen.append(1)
    return len(seen)


class Called:
    calls = 0

    def __call__(self, _):
        self.calls += 1
        return self.calls


WAYS = {
    "closure": closure,
    "list of a closure": list_of_closure,
    "global": lambda: a_global,
    "global of another function": lambda: through_another_function,
    "list of globals": lambda: list_of_globals,
    "tensor of globals": lambda: tensor_of_globals,
    "attribute of the class": lambda: attribute_of_the_class,
    "attribute of a function": lambda: attribute_of_a_function,
    "default": lambda: default,
    "partial": lambda: functools.partial(
        lambda seen, _: seen.append(1) or len(seen), []
    ),
    "object": Called,
    "method": lambda: Called().__call__,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_batch_counts_like_the_first(way):
    module, x = Remembering(WAYS[way]()).eval(), torch.randn(SAMPLES, WIDTH)
    for _ in range(2):
        for sizes in ([SAMPLES], [1] * SAMPLES, [2, 4]):
            costs = nl.cost(module, x.split(sizes), ASKED, check=True)
            assert [score.value for score in costs.values()] == [WIDTH * WIDTH] * 2, (
                sizes
            )
    module(x)
    assert module.remember(module) == 2, "a count leaves no trace"


class Reading(nn.Module):
    def __init__(self, source):
        super().__init__()
        self.layer, self.source = nn.Linear(WIDTH, WIDTH, bias=False), source

    def forward(self, x):
        for _ in range(next(self.source)):
            x = self.layer(x)
        return x


def generated():
    yield from itertools.count(1)


@pytest.mark.parametrize(
    "source",
    [
        generated,
        lambda: itertools.count(1),
        lambda: iter([1, 2, 3, 4, 5, 6, 7]),
        lambda: map(int, range(1, 9)),
    ],
)
def test_advancing_iterators_are_detected(source):
    costs = nl.cost(Reading(source()).eval(), [torch.randn(SAMPLES, WIDTH)] * 2, ASKED)
    for score in costs.values():
        assert score.status == "failed" and "cannot be restored" in score.reason


def test_iterators_that_change_no_counts_only_add_a_note():
    costs = nl.cost(
        Reading(itertools.repeat(1)).eval(), [torch.randn(SAMPLES, WIDTH)] * 2, ASKED
    )
    for score in costs.values():
        assert score.status == "scored" and any(
            note.startswith("checked: ") for note in score.notes
        )
