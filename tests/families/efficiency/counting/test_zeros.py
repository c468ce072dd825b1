"""Zeros are those of the weights that a product uses, whenever and however they were written."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import neuroledger as nl

WIDTH = 12


def dense_inputs(samples=3):
    return torch.rand(samples, WIDTH) + 0.5


def macs(net, inputs):
    return nl.cost(net.eval(), [inputs], ["effective_macs"])["effective_macs"].value


def layer():
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH, bias=False)


def through_data(net):
    net.weight.data.view(-1)[::5] = 0


def in_place(net):
    with torch.no_grad():
        net.weight[2:4] = 0


def in_numpy(net):
    net.weight.detach().numpy()[:, 1] = 0


def other_memory(net):
    net.weight.data = net.weight.detach() * (torch.arange(WIDTH) % 3).bool()


def pruned(net):
    prune.l1_unstructured(net, "weight", amount=37)


class Mask(nn.Module):
    def forward(self, weight):
        return weight * torch.eye(len(weight))


def parametrised(net):
    parametrize.register_parametrization(net, "weight", Mask())


WAYS = (through_data, in_place, in_numpy, other_memory, pruned, parametrised)


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("samples", [1, 64])
def test_zeros_written_between_two_calls_are_counted(write, samples):
    net, inputs = layer(), dense_inputs(samples)
    assert macs(net, inputs) == WIDTH**2
    write(net)
    true = int(net.weight.count_nonzero())
    assert true < WIDTH**2
    assert macs(net, inputs) == true


class Writes(nn.Module):
    """A layer that is used, written and used again."""

    def __init__(self, write):
        super().__init__()
        self.layer, self.write = layer(), write

    def forward(self, x):
        first = self.layer(x)
        self.write(self.layer)
        return first + self.layer(x)


@pytest.mark.parametrize("write", [through_data, in_place, other_memory])
def test_zeros_written_within_a_pass_are_counted_from_then_on(write):
    net, inputs = Writes(write), dense_inputs()
    changed = layer()
    write(changed)
    true = WIDTH**2 + int(changed.weight.count_nonzero())
    for _ in range(2):  # the first pass restores the weights
        assert macs(net, inputs) == true


class Follows(nn.Module):
    """Weights that are overwritten with values of samples, through a view, between two products."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(WIDTH, WIDTH))

    def forward(self, x):
        first = x @ self.kept.t()
        self.kept.copy_(torch.diag(x[0]))
        second = x @ self.kept.t()
        self.kept.t().copy_(torch.outer(x[0], x[0]))
        return first + second + x @ self.kept.t()


def test_weights_overwritten_with_values_of_samples_are_counted_anew():
    assert macs(Follows(), dense_inputs(2)) == WIDTH**2 + WIDTH + WIDTH**2


class Computed(nn.Module):
    """Weights that are computed one after another, possibly in the same memory."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, WIDTH))

    def forward(self, x):
        total = 0
        for kept in range(1, WIDTH + 1):
            mask = (torch.arange(WIDTH) < kept).float()
            total = total + x @ (self.weight * mask).t()
        return total


def test_weights_computed_in_the_same_memory_are_counted_one_by_one():
    assert macs(Computed(), dense_inputs()) == WIDTH * sum(range(1, WIDTH + 1))


class Overwrites(nn.Module):
    """Small inputs that are overwritten after their product, before the next."""

    def __init__(self):
        super().__init__()
        self.layer = layer()

    def forward(self, x):
        total, inputs = 0, torch.ones_like(x)
        for column in range(WIDTH):
            total = total + self.layer(inputs)
            inputs[:, column] = 0
        return total + x


def test_inputs_that_are_overwritten_later_count_as_they_were():
    costs = nl.cost(
        Overwrites().eval(), [dense_inputs()], ["effective_acs", "effective_macs"]
    )
    assert costs["effective_acs"].value == WIDTH * sum(range(1, WIDTH + 1))
    assert costs["effective_macs"].value == 0
