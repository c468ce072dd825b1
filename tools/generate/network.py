"""Training of the small network, on digits that are in no benchmark, to name a digit at any position."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from tools.generate.images import CANVAS, DIGIT, Digits, on_canvas
from tools.generate.training import same_bytes

SEED: Final = 20_260_104
EPOCHS: Final = 60
BATCH: Final = 64
RATE: Final = 2e-3


@same_bytes()
def train(source: Digits, path: Path, *, epochs: int = EPOCHS) -> float:
    """Train on the held-out digits, at new positions in each epoch, and return the accuracy on the shown ones.

    Adam with a cosine schedule to zero. With one thread and weights drawn with NumPy, the bytes are the same on
    every run with the same versions of torch and its libraries.
    """
    import torch
    from safetensors.torch import save_file
    from torch.nn.functional import cross_entropy

    from neuroledger.families.alignment.models.small_cnn import network

    module = network(channels=1, classes=10, seed=SEED)
    optimiser = torch.optim.Adam(module.parameters(), lr=RATE)
    batches = -(-len(source.held_out) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, T_max=epochs * batches
    )
    rng = np.random.default_rng(SEED)
    digits = source.luminance[source.held_out]
    labels = torch.from_numpy(source.labels[source.held_out].astype(np.int64))
    for _ in range(epochs):
        places = rng.integers(0, CANVAS - DIGIT + 1, size=(len(digits), 2))
        images = torch.from_numpy(screen(on_canvas(digits, places)))
        for rows in np.array_split(rng.permutation(len(digits)), batches):
            optimiser.zero_grad()
            cross_entropy(module(images[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    save_file(
        module.state_dict(),
        temporary,
        metadata={"trained_on": "digits that are not in Digits.simulated"},
    )
    temporary.replace(path)
    with torch.no_grad():
        answers = module(
            torch.from_numpy(
                screen(on_canvas(source.luminance[source.shown], source.places))
            )
        )
    return float((answers.argmax(dim=1).numpy() == source.labels[source.shown]).mean())


def screen(
    canvas: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Canvases after the network's preprocessing: (value / 255 − 0.1) / 0.3, one channel."""
    values = np.rint(canvas * 240) / 255
    return ((values - 0.1) / 0.3).astype(np.float32)[:, None]
