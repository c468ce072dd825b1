"""``python -m perf.cost``: what counting adds to a bare forward pass of a small convolutional network."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from neuroledger.engine.cost import DEFAULT, cost

IMAGES = 450
OPERATIONS = ("effective_macs", "effective_acs", "dense_operations")


def network() -> nn.Module:
    """Two convolutions and a readout for digits of 8 × 8 pixels: the case that the peer's harness is timed on."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(64, 10),
    ).eval()  # fmt: skip


def in_turn(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each run, taken in turn so that a busy machine is as unkind to all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 3):
        for name, run in runs.items():
            before = time.process_time()
            run()
            seconds[name].append(time.process_time() - before)
    return {name: sorted(values[3:]) for name, values in seconds.items()}


def main() -> None:
    """Print milliseconds and ratios by batch size."""
    parser = argparse.ArgumentParser(prog="python -m perf.cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    module = network()
    images = torch.rand(IMAGES, 64, generator=torch.Generator().manual_seed(0))
    images[images < 0.4] = 0
    print("| batch | passes | bare ms | operations ms | ratio | all static and traced ms | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for size, repeats in ((64, 1), (64, 10), (450, 1), (450, 10)):
        batches = list(images.split(size)) * repeats

        def bare(batches: list[torch.Tensor] = batches) -> None:
            with torch.no_grad():
                for batch in batches:
                    module(batch)

        found = in_turn(
            {
                "bare": bare,
                "operations": lambda batches=batches: cost(module, batches, OPERATIONS),  # type: ignore[misc]
                "all": lambda batches=batches: cost(module, batches, DEFAULT),  # type: ignore[misc]
            },
            given.rounds,
        )
        middle = {name: 1e3 * values[len(values) // 2] for name, values in found.items()}
        print(
            f"| {size} | {len(batches)} | {middle['bare']:.2f} | {middle['operations']:.2f} "
            f"| {middle['operations'] / middle['bare']:.2f} | {middle['all']:.2f} | {middle['all'] / middle['bare']:.2f} |"
        )


if __name__ == "__main__":
    main()
