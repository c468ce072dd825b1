"""Small seeded networks whose costs are pinned in ``costs.json``: they move only with a metric's version.

``python -m tests.golden.cost_cases`` writes the file anew, which is right only where versions were raised.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroledger as nl
from neuroledger.engine.bound_metric import resolve
from neuroledger.families.efficiency.networks.layers import (
    EchoState,
    LastStep,
    Lif,
    OverTime,
)
from neuroledger.spec.catalog import open_definitions
from tests.families.efficiency.counting import test_panel_of_kinds as panel

FILE = Path(__file__).with_name("costs.json")

METRICS = (
    "parameter_count",
    "footprint",
    "connection_sparsity",
    "activation_sparsity",
    "effective_macs",
    "effective_acs",
    "synaptic_operations",
    "dense_operations",
    "membrane_updates",
    "spikes",
    "neuron_operations",
    "dense_neuron_operations",
    "memory_traffic",
    "energy_45nm",
    "energy_45nm_memory",
    "energy_lemaire",
)


def spiking() -> tuple[nn.Module, torch.Tensor]:
    """Two layers of leaky neurons over ten steps, the first of them reset to zero."""
    layers = nn.Linear(12, 9), Lif(0.8, reset="zero"), nn.Linear(9, 4), Lif(0.9)
    x = (
        torch.rand(6, 12, 10, generator=torch.Generator().manual_seed(3)) < 0.3
    ).float()
    x[0] *= 0.5
    return OverTime(filled(nn.Sequential(*layers))), x


def filled(network: nn.Module) -> nn.Module:
    """The network with weights from NumPy, some of them zero."""
    for number, parameter in enumerate(network.parameters()):
        parameter.data = panel.drawn(*parameter.shape, seed=number)
    return network


def image() -> tuple[nn.Module, torch.Tensor]:
    """Convolutions with norms and pooling."""
    layers = (
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    return filled(nn.Sequential(*layers)), panel.drawn(5, 2, 8, 8, seed=1)


def recurrent() -> tuple[nn.Module, torch.Tensor]:
    """An LSTM read out at its last step."""
    return filled(LastStep(5, 4, 2)), panel.drawn(6, 5, 7, seed=2)


def echo() -> tuple[nn.Module, torch.Tensor]:
    """An echo state network in double precision."""
    w_in, w = (
        panel.drawn(8, 2, seed=1).double(),
        panel.drawn(8, 8, kept=0.2, seed=2).double(),
    )
    network = EchoState(w_in, w, 0.5)
    network.w_out.weight.data = panel.drawn(1, 10, seed=3).double()
    return network, panel.drawn(1, 1, kept=1.0, seed=4).double()


def quantised() -> tuple[nn.Module, torch.Tensor]:
    """Layers with weights of eight bits."""
    network = filled(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)))
    return torch.ao.quantization.quantize_dynamic(network, {nn.Linear}), panel.drawn(
        4, 8, seed=5
    )


NETWORKS = {
    "spiking": spiking,
    "image": image,
    "recurrent": recurrent,
    "echo state": echo,
    "eight bits": quantised,
    **{
        kind.__name__: lambda kind=kind: (kind(), panel.inputs(*kind.shape)[:6])
        for kind in (*panel.KINDS, panel.Start)
    },
}


def found(name: str) -> dict[str, Any]:
    """Value of each metric, or its status where it has none."""
    network, x = NETWORKS[name]()
    axis = {}
    if isinstance(network, panel.TimeFirst):
        x, axis = x.transpose(0, 1).contiguous(), {"sample_axis": 1}
    scores = nl.cost(network.eval(), [x], METRICS, **axis)
    return {
        key: s.value if s.status == "scored" else s.status for key, s in scores.items()
    }


def versions() -> dict[str, int]:
    """The version of each metric's component."""
    catalog = open_definitions()
    return {id: resolve("metrics", id, catalog, {})[1].version for id in METRICS}


if __name__ == "__main__":
    pinned = {
        "about": "Costs of small networks. A metric whose number changes needs a higher version.",
        "versions": versions(),
        "costs": {name: found(name) for name in NETWORKS},
    }
    FILE.write_text(json.dumps(pinned, indent=1) + "\n")
