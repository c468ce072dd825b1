"""The untrained twin of a module, its preprocessing when none is given, and its devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neuroledger.errors import ModelError, RequestError
from neuroledger.families.alignment.layer_curves.assumed_preprocessing import (
    assumed_preprocessing,
)
from neuroledger.families.alignment.layer_curves.untrained import in_place, untrained
from neuroledger.models.torch_layers import state_sha256

torch = pytest.importorskip("torch")
nn = torch.nn


class Tokens(nn.Module):  # type: ignore[misc, name-defined]
    """A network with a parameter and a buffer of its own, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = (
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.Linear(4, 2),
        )
        self.token = nn.Parameter(torch.arange(50.0))
        self.register_buffer("mask", torch.tensor([1.0, 0.0]))


def trained() -> Any:
    network = Tokens()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(3.0)
        network.norm.running_mean.add_(5.0)
    return network


def test_a_twin_is_drawn_again_and_repeats_by_seed_and_leaves_the_original_alone() -> (
    None
):
    network = trained()
    before = state_sha256(network)
    generator = torch.get_rng_state()
    twin, shuffled = untrained(network, 0)
    assert state_sha256(network) == before and torch.equal(
        torch.get_rng_state(), generator
    )
    assert state_sha256(untrained(network, 0)[0]) == state_sha256(twin)
    assert state_sha256(untrained(network, 1)[0]) != state_sha256(twin)
    assert shuffled == ("token",)
    assert not torch.equal(twin.token, network.token)
    assert torch.equal(twin.token.sort().values, network.token.sort().values)
    assert twin.conv.weight.abs().max() < 1 < network.conv.weight.min()
    assert torch.equal(twin.norm.running_mean, torch.zeros(4)) and torch.equal(
        twin.mask, network.mask
    )
    assert not any(parameter.isnan().any() for parameter in twin.parameters())


def test_a_network_drawn_with_the_same_seed_is_not_its_own_twin() -> None:
    torch.manual_seed(0)
    network = nn.Linear(20, 20)
    twin, shuffled = untrained(network, 0)
    assert not torch.equal(twin.weight, network.weight) and shuffled == ()


def test_modules_without_parameters_or_copies_have_no_twin() -> None:
    with pytest.raises(ModelError, match="ReLU has no parameters"):
        untrained(nn.ReLU(), 0)
    broken = nn.Linear(2, 2)
    broken.held = broken.weight * 2  # a tensor inside a graph cannot be copied
    with pytest.raises(ModelError, match="Linear cannot be copied"):
        untrained(broken, 0)


class Placed:
    """A tensor that is on a device, of which this machine has perhaps only one."""

    def __init__(self, device: str) -> None:
        self.device = device

    @property
    def data(self) -> Placed:
        return self

    @data.setter
    def data(self, other: Placed) -> None:
        self.device = other.device

    def to(self, device: str) -> Placed:
        return Placed(device)


def test_parameters_and_buffers_are_returned_to_their_own_devices() -> None:
    tensors = [Placed("cuda:1"), Placed("cpu"), Placed("cuda:0")]
    module: Any = SimpleNamespace(
        parameters=lambda: tensors[:2], buffers=lambda: tensors[2:]
    )

    def moved_and_failing() -> None:
        with in_place(module):
            for tensor in tensors:
                tensor.device = "cpu"
            raise ModelError("out of memory")

    with pytest.raises(ModelError):
        moved_and_failing()
    assert [tensor.device for tensor in tensors] == ["cuda:1", "cpu", "cuda:0"]


def test_the_preprocessing_is_that_of_the_module_or_assumed_for_three_channels() -> (
    None
):
    network = nn.Conv2d(3, 4, 3)
    steps, words = assumed_preprocessing(network)
    assert (steps.resize, steps.mean[0], steps.crop) == (
        224,
        0.485,
        None,
    ) and words.startswith("preprocessing assumed")
    timm = {
        "input_size": (3, 192, 192),
        "crop_pct": 0.8,
        "interpolation": "bicubic",
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
    }
    for config in (timm, SimpleNamespace(**timm)):
        network.pretrained_cfg = config
        steps, words = assumed_preprocessing(network)
        assert (steps.resize, steps.crop, steps.fit, steps.interpolation) == (
            240,
            192,
            "shorter",
            "bicubic",
        )
        assert (
            steps.std == (0.25,) * 3
            and words == "preprocessing of the module's pretrained_cfg"
        )
    network.pretrained_cfg = {**timm, "crop_mode": "squash"}
    assert assumed_preprocessing(network)[0].fit == "stretch"
    other = nn.Conv2d(3, 4, 3)
    preset = SimpleNamespace(
        resize_size=[256],
        crop_size=[224],
        mean=[0.4] * 3,
        std=[0.2] * 3,
        interpolation=SimpleNamespace(value="bilinear"),
    )
    other.weights = SimpleNamespace(transforms=lambda: preset)
    steps, words = assumed_preprocessing(other)
    assert (steps.resize, steps.crop, steps.mean) == (
        256,
        224,
        (0.4,) * 3,
    ) and "weights" in words
    with pytest.raises(
        RequestError,
        match="first convolution takes 1 channels, so that none can be assumed",
    ):
        assumed_preprocessing(nn.Conv2d(1, 4, 3))
    with pytest.raises(RequestError, match="it has no convolution"):
        assumed_preprocessing(nn.Linear(3, 4))
