"""``python -m perf.cost``: the overhead of counting operations over a bare forward pass, for networks of several kinds.

If NeuroBench or SpikingJelly can be imported (``pip install --no-deps neurobench spikingjelly loguru``), their counters
run alternately with ours. Three pairs of columns state their time as a multiple of a bare pass, as a multiple of ours, and
their overhead as a multiple of ours.
"""

from __future__ import annotations

import argparse
import copy
import io
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from neuroledger.families.efficiency.cost import DEFAULT, cost
from neuroledger.families.efficiency.networks.layers import Lif, OverTime

IMAGES = 450
SIZES = (32, 64, 256, 450)
OPERATIONS = ("effective_macs", "effective_acs", "dense_operations")
WARM_UP = 3


def network() -> nn.Module:
    """Two convolutions and a readout for digits of 8 × 8 pixels: the case that the peer's harness is timed on."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(64, 10),
    ).eval()  # fmt: skip


def in_turn(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU milliseconds of each run; runs alternate, so that a busy machine affects all of them equally."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + WARM_UP):
        for name, run in runs.items():
            before = time.process_time()
            run()
            seconds[name].append(time.process_time() - before)
    return {name: 1e3 * median(values[WARM_UP:]) for name, values in seconds.items()}


class LastStep(nn.Module):  # type: ignore[misc]
    """A recurrent layer and a readout of its last step."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(layer.hidden_size, 10)

    def forward(self, x: Tensor) -> Any:
        """Outputs ``(sample, 10)`` for sequences ``(sample, time, feature)``."""
        return self.readout(self.layer(x)[0][:, -1])


def others() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks of other kinds and moderate size, each with one batch."""
    torch.manual_seed(0)
    spikes = (torch.rand(450, 64, 10) < 0.2).float()
    steps, places = torch.randn(450, 20, 32), torch.randn(128, 32, 64)
    spiking = OverTime(
        nn.Sequential(nn.Linear(64, 128), Lif(0.9), nn.Linear(128, 10), Lif(0.9))
    )
    large = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))
    layers = (
        nn.Linear(700, 256),
        Lif(0.9),
        nn.Linear(256, 256),
        Lif(0.9),
        nn.Linear(256, 20),
        Lif(0.9),
    )
    long = (torch.rand(64, 700, 100) < 0.03).float()
    return {
        "spiking, 64-128-10, 10 steps": (spiking, spikes),
        "spiking, 700-256-256-20, 100 steps": (OverTime(nn.Sequential(*layers)), long),
        "perceptron of 21 million weights": (large, torch.randn(1, 4096)),
        "LSTM, 32-64, 20 steps": (LastStep(nn.LSTM(32, 64, batch_first=True)), steps),
        "GRU, 32-64, 20 steps": (LastStep(nn.GRU(32, 64, batch_first=True)), steps),
        "transformer layer, 64 wide, 32 places": (
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
            places,
        ),
    }


def images() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks for images with more than 10 million weights, each with one image."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    before = 3
    for wide, pooled in (
        (64, 1),
        (128, 1),
        (256, 0),
        (256, 1),
        (512, 0),
        (512, 1),
        (512, 0),
        (512, 1),
    ):
        layers += [
            nn.Conv2d(before, wide, 3, padding=1),
            nn.ReLU(),
            *[nn.MaxPool2d(2)] * pooled,
        ]
        before = wide
    readout = (nn.Flatten(), nn.Linear(512 * 49, 512), nn.ReLU(), nn.Linear(512, 1000))
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return {
        "convolutions of 22 million weights": (
            nn.Sequential(*layers, *readout),
            torch.randn(1, 3, 224, 224),
        ),
        "transformer of 19 million weights, 197 places": (
            nn.TransformerEncoder(layer, 6),
            torch.randn(1, 197, 512),
        ),
    }


def neurobench(module: nn.Module, batch: Tensor) -> Callable[[], Any] | None:
    """A run of NeuroBench's harness with synaptic operations; None if it is not installed or fails on the network."""
    try:
        from neurobench.benchmarks import Benchmark
        from neurobench.metrics.workload import SynapticOperations
        from neurobench.models import TorchModel
    except ImportError:
        return None
    labelled = TensorDataset(batch, torch.zeros(len(batch), dtype=torch.long))
    harness = Benchmark(
        TorchModel(module),
        DataLoader(labelled, len(batch)),
        [],
        [],
        [[], [SynapticOperations]],
    )
    with redirect_stdout(io.StringIO()):
        operations = harness.run(quiet=True)["SynapticOperations"]
    return (
        (lambda: harness.run(quiet=True))
        if isinstance(operations, dict) and operations["Dense"]
        else None
    )


def spikingjelly(module: nn.Module, batch: Tensor) -> Callable[[], Any] | None:
    """A pass under SpikingJelly's counters of MACs and ACs; None if they are not installed, or miss most operations."""
    try:
        from spikingjelly.activation_based.op_counter import (
            ACCounter,
            DispatchCounterMode,
            MACCounter,
        )
    except ImportError:
        return None

    def run() -> float:
        counters = [MACCounter(), ACCounter()]
        with torch.no_grad(), DispatchCounterMode(counters):
            module(batch)
        return float(sum(counter.get_total() for counter in counters))

    costs = cost(module, [batch], OPERATIONS)
    operations = (costs["effective_macs"].value + costs["effective_acs"].value) * len(
        batch
    )
    return run if run() > operations / 2 else None


def compare(module: nn.Module, batch: Tensor, rounds: int) -> str:
    """Run a bare pass, ours and the peers alternately, and return the cells of a row of the table."""
    runs: dict[str, Callable[[], Any]] = {
        "bare": lambda: bare_pass(module, batch),
        "operations": lambda: cost(module, [batch], OPERATIONS),
        "all": lambda: cost(module, [batch], DEFAULT),
    }
    peers = {
        peer.__name__: peer(copy.deepcopy(module), batch)
        for peer in (neurobench, spikingjelly)
    }
    runs |= {name: run for name, run in peers.items() if run is not None}
    with redirect_stdout(io.StringIO()):
        milliseconds = in_turn(runs, rounds)
    bare = milliseconds["bare"]
    cells = [
        f"{bare:.2f}",
        *(f"{milliseconds[name] / bare:.2f}" for name in ("operations", "all")),
    ]
    cells += [
        f"{milliseconds[name] / bare:.2f}" if name in milliseconds else ""
        for name in peers
    ]
    cells += [
        f"{milliseconds[name] / milliseconds['operations']:.1f}"
        if name in milliseconds
        else ""
        for name in peers
    ]
    our_overhead = milliseconds["operations"] - bare
    cells += [
        f"{(milliseconds[name] - bare) / our_overhead:.1f}"
        if name in milliseconds
        else ""
        for name in peers
    ]
    return " | ".join(cells) + " |"


def bare_pass(module: nn.Module, batch: Tensor) -> None:
    """The forward pass alone."""
    with torch.no_grad():
        module(batch)


def ratios(module: nn.Module, batches: Iterable[Any], rounds: int) -> str:
    """Milliseconds of a bare pass, of operation counts and of all eight metrics, as cells of a row."""

    def bare() -> None:
        with torch.no_grad():
            for batch in batches:
                module(batch[0] if isinstance(batch, list) else batch)

    runs: dict[str, Callable[[], Any]] = {
        "bare": bare,
        "operations": lambda: cost(module, batches, OPERATIONS),
        "all": lambda: cost(module, batches, DEFAULT),
    }
    milliseconds = in_turn(runs, rounds)
    base, operations, everything = (
        milliseconds["bare"],
        milliseconds["operations"],
        milliseconds["all"],
    )
    return f"{base:.2f} | {operations:.2f} | {operations / base:.2f} | {everything:.2f} | {everything / base:.2f} |"


def convolutions(columns: str, rounds: int) -> None:
    """Print the table of the small convolutional network."""
    module = network()
    images = torch.rand(IMAGES, 64, generator=torch.Generator().manual_seed(0))
    images[images < 0.4] = 0
    print(f"{IMAGES} images, one thread, CPU time, medians of {rounds}\n")
    print(
        f"| passes over the images | batch | {columns}\n|--:|--:|--:|--:|--:|--:|--:|"
    )
    for passes in (1, 10):
        for size in SIZES:
            cells = ratios(module, list(images.split(size)) * passes, rounds)
            print(f"| {passes} | {size} | {cells}")
    labelled = TensorDataset(images, torch.zeros(IMAGES, dtype=torch.long))
    for size in SIZES:
        cells = ratios(module, DataLoader(labelled, batch_size=size), rounds)
        print(f"| 1, from a DataLoader | {size} | {cells}")


def main() -> None:
    """Print milliseconds and ratios, by the number of passes over the images and by batch size."""
    parser = argparse.ArgumentParser(prog="python -m perf.cost", description=__doc__)
    parser.add_argument(
        "--others", action="store_true", help="print only the table of other networks"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=40,
        help="repeats of each run; medians are printed",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = "bare ms | operations ms | ratio | all eight metrics ms | ratio |"
    if not options.others:
        convolutions(columns, options.rounds)
    peers = "NeuroBench | SpikingJelly |"
    print(
        f"\n| network | batch | bare ms | operations | all eight | {peers} {peers} {peers}\n|---|{'--:|' * 10}"
    )
    for name, (other, batch) in (others() | images()).items():
        print(
            f"| {name} | {len(batch)} | {compare(other.eval(), batch, options.rounds)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
