"""``python -m perf.training``: EEGNet trained by its recipe and by a plain loop of torch, alternately, in one process.

The plain loop is the published recipe written out: robust scaling, AdamW with one cycle, batches of 64, limited gradients
and norms, and predictions of the validation part after each epoch. Both sides train the same network on the same rows.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from neuroledger.families.decoding.models.convolutional_decoders import (
    eegnet,
    limit_norms,
)
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import NeuralBench
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from perf.decoding import windows
from perf.table import in_turn

SEED = 33
VALIDATED = 0.2


def ours(x: Any, y: Any, validation: Any, epochs: int) -> Any:
    """Predictions of the validation part, by NeuroLedger."""
    names = tuple(f"C{number}" for number in range(x.shape[1]))
    signature = Signature(
        "classification", x.shape[1], x.shape[2], 2, 120.0, names, SEED
    )
    recipe = NeuralBench(epochs=epochs)
    network = TrainedNetwork(
        lambda given: eegnet(given.channels, given.samples, given.outputs),
        signature,
        recipe,
    )
    rows = ~validation
    network.fit_validated(x[rows], y[rows], x[validation], y[validation])
    return network.predict_proba(x[validation])[:, 1]


def theirs(x: Any, y: Any, validation: Any, epochs: int) -> Any:
    """Predictions of the validation part, by a plain loop."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return _plain(x, y, validation, epochs)


def _plain(x: Any, y: Any, validation: Any, epochs: int) -> Any:
    low, middle, high = np.percentile(x[~validation], [25, 50, 75], axis=(0, 2))
    scaled = np.clip((x - middle[:, None]) / (high - low)[:, None], -20, 20)
    inputs = torch.from_numpy(scaled.astype(np.float32))
    targets = torch.from_numpy((y == np.unique(y)[1]).astype(int))
    trained, tested = (torch.from_numpy(rows) for rows in (~validation, validation))
    counts = torch.bincount(targets[trained])
    weights = int(trained.sum()) / (2.0 * counts)
    loss = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.1)
    network = eegnet(x.shape[1], x.shape[2], 2)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.05)
    train_x, train_y = inputs[trained], targets[trained]
    steps = -(-len(train_x) // 64)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=1e-4, total_steps=epochs * steps, pct_start=0.1
    )
    order = torch.Generator().manual_seed(SEED)
    for _ in range(epochs):
        network.train()
        for rows in torch.randperm(len(train_x), generator=order).split(64):
            optimiser.zero_grad()
            loss(network(train_x[rows]), train_y[rows]).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            cycle.step()
            limit_norms(network)
        answers = _answers(network, inputs[tested])
    return answers[:, 1]


def _answers(network: Any, inputs: Any) -> Any:
    network.eval()
    with torch.inference_mode():
        parts = [network(part).softmax(dim=1) for part in inputs.split(64)]
    return torch.cat(parts).numpy()


def main() -> None:
    """Train both sides alternately, and print their medians."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.training", description=__doc__
    )
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        small = _data(128, 8, 128)
        for side in (ours, theirs):
            side(*small, 1)
        data = _data(options.windows, options.channels, options.samples)
        mine, plain = in_turn(
            partial(ours, *data, options.epochs),
            partial(theirs, *data, options.epochs),
            options.rounds,
            options.clock,
        )
    apart = float(np.abs(mine.values - plain.values).max())
    print("| plain loop s | ours s | ratio | plain MB | ours MB | difference |")
    print("|--:|--:|--:|--:|--:|--:|")
    print(
        f"| {plain.median:.2f} | {mine.median:.2f} | {mine.median / plain.median:.3f} | {plain.megabytes:.0f} "
        f"| {mine.megabytes:.0f} | {apart:.1g} |"
    )


def _data(count: int, channels: int, samples: int) -> tuple[Any, Any, Any]:
    x, y, _ = windows(count, 4, channels, samples)
    validation = np.zeros(count, bool)
    validation[: int(VALIDATED * count)] = True
    return x.astype(np.float32), y, validation


if __name__ == "__main__":
    main()
