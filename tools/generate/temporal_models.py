"""Train the small networks for temporal data: ``python -m tools.generate.temporal_models [FOLDER]``.

With one thread and seeded generators, the bytes are the same on every run with the same versions of torch and its
libraries.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.data import assembly
from tools.generate.training import same_bytes

SEED: Final = 20_260_106


def _artificial(
    architecture: str, inputs: int, units: int, outputs: int
) -> dict[str, Any]:
    return {
        "architecture": architecture,
        "inputs": inputs,
        "units": units,
        "outputs": outputs,
    }


# Model: its data set, the arguments of its constructor, epochs, learning rate.
MODELS: Final[dict[str, tuple[str, dict[str, Any], int, float]]] = {
    "perceptron.digits": (
        "Digits.spikes",
        _artificial("perceptron", 64, 32, 10),
        40,
        5e-3,
    ),
    "convolution.digits": (
        "Digits.spikes",
        _artificial("convolution", 64, 8, 10),
        40,
        5e-3,
    ),
    "lstm.digits": ("Digits.spikes", _artificial("lstm", 64, 32, 10), 30, 5e-3),
    "spiking.digits": ("Digits.spikes", {"sizes": (64, 32, 10)}, 20, 5e-3),
    "line.heartbeats": ("Heartbeats.simulated", _artificial("line", 1, 6, 2), 15, 5e-3),
}


@same_bytes()
def train(
    name: str, data: Path, path: Path, *, epochs: int | None = None, seed: int = SEED
) -> float:
    """Train one model on the train part of its data with Adam, and return the accuracy on the test part.

    ``epochs`` defaults to the model's entry in ``MODELS``.
    """
    import torch
    from safetensors.torch import save_file
    from torch.nn.functional import cross_entropy

    from neuroledger.families.efficiency.models import ann, spiking

    torch.manual_seed(seed)
    dataset, settings, default_epochs, rate = MODELS[name]
    examples = assembly.read(data / dataset / "responses.nc")
    module = (
        spiking.network(**settings) if "sizes" in settings else ann.network(**settings)
    )
    _, numbers = np.unique(examples["label"].values.astype(str), return_inverse=True)
    parts = examples["split"].values.astype(str)
    inputs = torch.from_numpy(examples.values.astype(np.float32))
    truth = torch.from_numpy(numbers.astype(np.int64))
    train_rows, test_rows = (
        np.flatnonzero(parts == "train"),
        np.flatnonzero(parts == "test"),
    )
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    rng = np.random.default_rng(seed)
    for _ in range(default_epochs if epochs is None else epochs):
        for rows in np.array_split(
            rng.permutation(train_rows), -(-len(train_rows) // 64)
        ):
            optimiser.zero_grad()
            cross_entropy(module(inputs[rows]), truth[rows]).backward()
            optimiser.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(
        {key: value.contiguous() for key, value in module.state_dict().items()}, path
    )
    with torch.no_grad():
        return float(
            (module(inputs[test_rows]).argmax(1) == truth[test_rows]).double().mean()
        )


def main() -> None:
    """Train all, then print the pins."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("data")
    for name in MODELS:
        path = folder / "models" / name / "model.safetensors"
        accuracy = train(name, folder, path)
        content = path.read_bytes()
        pin = f"size: {len(content)}, sha256: {hashlib.sha256(content).hexdigest()}"
        print(
            f"{path.relative_to(folder)}: {{dvc: true, {pin}}}  # {accuracy:.3f} of the test part"
        )


if __name__ == "__main__":
    main()
