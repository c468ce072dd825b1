"""``python -m perf.cost``: what counting adds to a bare forward pass, of a small convolutional network and of others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
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
    """Median CPU milliseconds of each run, taken in turn so that a busy machine is as unkind to all."""
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
        """Answers ``(sample, 10)`` to sequences ``(sample, time, feature)``."""
        return self.readout(self.layer(x)[0][:, -1])


def others() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks of other kinds and of moderate size, each with one batch."""
    torch.manual_seed(0)
    spikes = (torch.rand(450, 64, 10) < 0.2).float()
    steps, places = torch.randn(450, 20, 32), torch.randn(128, 32, 64)
    spiking = OverTime(nn.Sequential(nn.Linear(64, 128), Lif(0.9), nn.Linear(128, 10), Lif(0.9)))
    large = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))
    layers = (nn.Linear(700, 256), Lif(0.9), nn.Linear(256, 256), Lif(0.9), nn.Linear(256, 20), Lif(0.9))
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


def ratios(module: nn.Module, batches: Iterable[Any], rounds: int) -> str:
    """Milliseconds of a bare pass, of operation counts and of all eight metrics, as cells of a table."""

    def bare() -> None:
        with torch.no_grad():
            for batch in batches:
                module(batch[0] if isinstance(batch, list) else batch)

    runs: dict[str, Callable[[], Any]] = {
        "bare": bare,
        "operations": lambda: cost(module, batches, OPERATIONS),
        "all": lambda: cost(module, batches, DEFAULT),
    }
    found = in_turn(runs, rounds)
    base, operations, everything = found["bare"], found["operations"], found["all"]
    return f"{base:.2f} | {operations:.2f} | {operations / base:.2f} | {everything:.2f} | {everything / base:.2f} |"


def main() -> None:
    """Print milliseconds and ratios, by the number of passes over the images in one run and by batch size."""
    parser = argparse.ArgumentParser(prog="python -m perf.cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="repeats of each run; medians are printed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    module = network()
    images = torch.rand(IMAGES, 64, generator=torch.Generator().manual_seed(0))
    images[images < 0.4] = 0
    print(f"{IMAGES} images, one thread, CPU time, medians of {given.rounds}\n")
    columns = "bare ms | operations ms | ratio | all eight metrics ms | ratio |"
    print(f"| passes over the images | batch | {columns}\n|--:|--:|--:|--:|--:|--:|--:|")
    for passes in (1, 10):
        for size in SIZES:
            cells = ratios(module, list(images.split(size)) * passes, given.rounds)
            print(f"| {passes} | {size} | {cells}")
    labelled = TensorDataset(images, torch.zeros(IMAGES, dtype=torch.long))
    for size in SIZES:
        cells = ratios(module, DataLoader(labelled, batch_size=size), given.rounds)
        print(f"| 1, from a DataLoader | {size} | {cells}")
    print(f"\n| network | batch | {columns}\n|---|--:|--:|--:|--:|--:|--:|")
    for name, (other, batch) in others().items():
        print(f"| {name} | {len(batch)} | {ratios(other.eval(), [batch], given.rounds)}")


if __name__ == "__main__":
    main()
