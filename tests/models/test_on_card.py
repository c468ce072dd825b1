"""Models and costs on a graphics card; run only on a machine that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.models.devices import available
from tests.devices import CARD
from tests.models.drawn_stimuli import drawn

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.skipif(not CARD, reason="needs a graphics card")

PLAIN = {"resize": None, "mean": [0.0], "std": [1.0]}
LAYERS = ["0", "2", "5"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.chdir(repository)


def network() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 32, 5),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6_400, 50),
        )


def seen(
    device: str, module: Any = None, count: int = 40, **given: Any
) -> dict[str, Any]:
    module = module or network()
    model = nl.models.torch(
        module, id="m", layers=LAYERS, device=device, preprocessing=PLAIN, **given
    )
    return dict(model.activations(drawn(count, size=(18, 18)), LAYERS))


def test_the_fastest_device_is_the_card() -> None:
    assert available("auto").type == "cuda"


def test_layers_are_those_of_the_processor_in_full_precision() -> None:
    """Reduced precision (TF32) of the card would differ by 1e-3; the user's own setting stays."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    card, processor = seen("cuda"), seen("cpu")
    assert torch.backends.cudnn.allow_tf32 and torch.backends.cuda.matmul.allow_tf32
    for layer in LAYERS:
        scale = np.abs(processor[layer]).max()
        np.testing.assert_allclose(
            card[layer], processor[layer], atol=2e-6 * scale, err_msg=layer
        )


def test_the_card_repeats_its_bits() -> None:
    first, again = seen("cuda"), seen("cuda")
    assert all(first[layer].tobytes() == again[layer].tobytes() for layer in LAYERS)


def test_batches_that_do_not_fit_are_halved() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit, self.sizes = nn.Flatten(), list[int]()

        def forward(self, images: Any) -> Any:
            self.sizes.append(len(images))
            torch.empty(
                len(images) << 28, dtype=torch.uint8, device=images.device
            ).fill_(1)  # 256 MiB each
            return self.unit(images)

    wide, stimuli = Wide(), drawn(12, size=(2, 2))
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((1 << 30) / whole)
    try:
        model = nl.models.torch(
            wide, id="w", layers=["unit"], device="cuda", preprocessing=PLAIN
        )
        response = model.record(stimuli, "V1")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    plain = nl.models.torch(
        Wide(), id="w", layers=["unit"], preprocessing=PLAIN
    ).record(stimuli, "V1")
    assert {12, 6, 3} <= set(wide.sizes)
    np.testing.assert_array_equal(response.values, plain.values)


def test_operations_are_those_of_the_processor() -> None:
    names = [
        "effective_macs",
        "dense_operations",
        "parameter_count",
        "activation_sparsity",
    ]
    inputs = torch.rand(4, 3, 18, 18, generator=torch.Generator().manual_seed(1))
    card = nl.cost(network().cuda(), [inputs.cuda()], names)
    processor = nl.cost(network(), [inputs], names)
    for name in names:
        assert card[name].value == pytest.approx(processor[name].value, rel=1e-4), name


def test_energy_time_and_memory_are_those_of_the_card() -> None:
    names = ["energy_measured", "latency", "throughput", "peak_memory"]
    scores = nl.cost(
        network().cuda(), [torch.rand(64, 3, 18, 18, device="cuda")], names
    )
    energy, memory = scores["energy_measured"], scores["peak_memory"]
    used = (
        energy.value * scores["throughput"].value
    )  # watts, were every pass as fast as the median one
    assert 20 < used < 2_000 and "NVML (GPU-" in energy.notes[0]
    assert 0 < scores["latency"].value < 0.1 and "cuda" in scores["latency"].notes[0]
    # The largest moment of one sample: both maps of the second convolution's input and output, without weights.
    assert (
        memory.n["activations"] >= 4 * (32 * 14 * 14 + 64 * 10 * 10)
        and "cuda" in memory.notes[0]
    )
