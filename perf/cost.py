"""``python -m perf.cost``: what counting adds to a bare forward pass of a small convolutional network."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from neuroledger.engine.cost import DEFAULT, cost

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
    print(
        "| passes over the images | batch | bare ms | operations ms | ratio | all eight metrics ms | ratio |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for passes in (1, 10):
        for size in SIZES:
            batches = list(images.split(size)) * passes

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
            base, operations, everything = found["bare"], found["operations"], found["all"]
            print(
                f"| {passes} | {size} | {base:.2f} | {operations:.2f} | {operations / base:.2f} "
                f"| {everything:.2f} | {everything / base:.2f} |"
            )


if __name__ == "__main__":
    main()
