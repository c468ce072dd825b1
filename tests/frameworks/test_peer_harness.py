"""Exports beside what NeuroBench's own harness writes of the same networks, key by key; and sc-neurocore's totals."""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stdout

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuroledger as nl
from neuroledger.families.efficiency.exports import flat, nested

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

SAMPLES, BATCH = 12, 4
ASKED = (
    "parameter_count",
    "footprint",
    "connection_sparsity",
    "activation_sparsity",
    "effective_macs",
    "effective_acs",
    "dense_operations",
)


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def perceptron():
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), torch.randn(
        SAMPLES, 20
    )


def convolutions():
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    return nn.Sequential(*layers), torch.randn(SAMPLES, 1, 8, 8)


def spiking():
    snn = pytest.importorskip("snntorch")
    ends = snn.Leaky(0.9, init_hidden=True, output=True)
    layers = (
        nn.Linear(20, 30),
        snn.Leaky(0.9, init_hidden=True),
        nn.Linear(30, 5),
        ends,
    )
    return nn.Sequential(*layers), (torch.rand(SAMPLES, 10, 20) < 0.3).float()


def harness(network, x):
    """What the peer's harness finds: its own names and numbers."""
    part = importlib.import_module
    try:
        benchmarks, models = part("neurobench.benchmarks"), part("neurobench.models")
        static, workload = (
            part("neurobench.metrics.static"),
            part("neurobench.metrics.workload"),
        )
    except ImportError as error:
        pytest.skip(f"neurobench is not installed: {error}")
    spikes = x.dim() == 3
    model = (models.SNNTorchModel if spikes else models.TorchModel)(network)
    asked = [
        workload.SynapticOperations,
        workload.ActivationSparsity,
        workload.ActivationSparsityByLayer,
    ]
    asked += [workload.MembraneUpdates] if spikes else []
    labelled = TensorDataset(x, torch.zeros(len(x), dtype=torch.long))
    fixed = [static.Footprint, static.ParameterCount, static.ConnectionSparsity]
    with redirect_stdout(io.StringIO()):
        return benchmarks.Benchmark(
            model, DataLoader(labelled, BATCH), [], [], [fixed, asked]
        ).run(quiet=True)


@pytest.mark.parametrize(
    "make", [perceptron, convolutions, spiking], ids=lambda f: f.__name__
)
def test_the_flat_export_is_what_the_harness_of_the_peer_writes(make):
    network, x = make()
    theirs = harness(network, x)
    asked = [*ASKED, *(["membrane_updates"] if x.dim() == 3 else [])]
    ours = flat(nl.cost(network, x.split(BATCH), asked, mode="neurobench-2.3"))
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, rel=1e-9), key
    assert "CountingMode" in flat(nl.cost(network, x.split(BATCH), asked))


@pytest.mark.parametrize(
    "make", [perceptron, convolutions, spiking], ids=lambda f: f.__name__
)
def test_the_nested_export_has_totals_over_all_samples(make):
    network, x = make()
    counted = nl.cost(network, x.split(BATCH), [*ASKED, "spikes", "energy_45nm"])
    found = nested("task", "network", counted)
    complexity, each = (
        found["metrics"]["complexity"],
        counted["effective_macs"].value + counted["effective_acs"].value,
    )
    assert complexity["synaptic_operations"] == round(each * SAMPLES)
    assert complexity["timesteps"] == (10 if x.dim() == 3 else 1)
    fired = round(counted["spikes"].value * SAMPLES) if x.dim() == 3 else None
    assert complexity["total_spikes"] == fired
    assert found["metrics"]["system"] == {
        "latency_ms": None,
        "energy_nj": None,
    }  # modelled energy is no measurement
    assert found["extra"]["modelled"]["energy_45nm_nj"] == pytest.approx(
        counted["energy_45nm"].value * 1e9
    )
