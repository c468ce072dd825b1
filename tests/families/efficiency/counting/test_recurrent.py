"""Recurrent layers are counted from their outputs; unrolling them step by step gives the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuroledger.families.efficiency.counting import recurrent
from tests.families.efficiency.counting.counting import counted, per_sample


class Last(nn.Module):
    """A recurrent layer, batch first, and its output at the last step."""

    def __init__(self, kind, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layer = getattr(nn, kind)(6, 5, batch_first=True, **options)

    def forward(self, x):
        return self.layer(x)[0][:, -1]


def sequences():
    x = torch.randn(9, 4, 6, generator=torch.Generator().manual_seed(1))
    x[::3] = x[::3].sign()
    x[x.abs() < 0.3] = 0
    return x


OPTIONS = [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("silent", [False, True])
def test_states_from_outputs_equal_unrolled_states(kind, options, silent, monkeypatch):
    network, x = Last(kind, **options), sequences()
    if silent:  # some units never leave zero
        with torch.no_grad():
            for parameter in network.parameters():
                parameter[::5] = 0
    short = counted(network, *x.split(4))
    monkeypatch.setattr(recurrent, "has_open_gates", lambda cell: False)
    monkeypatch.setattr(
        recurrent, "_states", lambda *arguments: recurrent.unroll(*arguments[:4])
    )
    assert counted(network, *x.split(4)).layers == short.layers


def test_memory_behind_a_closed_gate_is_carried():
    network = Last("LSTM")
    with torch.no_grad():
        network.layer.bias_ih_l0[
            15:
        ] = -400.0  # o = 0: the answer is zero, the memory is not
    x = torch.full((2, 4, 6), 0.5)
    assert not network(x).any()
    inputs, gates = (
        4 * 6 * 20,
        4 * 2 * 5 + 3 * 5,
    )  # nothing is carried into the first step
    assert per_sample(counted(network, x)) == (
        inputs + gates,
        0,
        4 * (6 + 5) * 20 + 4 * 15,
    )
