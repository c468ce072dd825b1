"""The preprocessing of a network that is given without any: its own configuration, or the usual one for photographs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neuroledger.errors import RequestError
from neuroledger.models.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch

__all__ = ["assumed_preprocessing"]


def assumed_preprocessing(module: torch.nn.Module) -> tuple[Preprocessing, str]:
    """Return the preprocessing that a network comes with, or the usual one for photographs, and words that say which.

    In this order: the configuration that timm attaches (``pretrained_cfg`` or ``default_cfg``); the transforms of
    weights of torchvision, if the module has them as ``weights``; and for a network whose first convolution takes three
    channels, the image stretched to 224 × 224 pixels, with mean and standard deviation of ImageNet.

    Raises
    ------
    RequestError
        The network comes with none, and does not start with a convolution of three channels.
    """
    for name in ("pretrained_cfg", "default_cfg"):
        config = getattr(module, name, None)
        if config is not None and _item(config, "input_size") is not None:
            return _of_timm(config), f"preprocessing of the module's {name}"
    transforms = getattr(getattr(module, "weights", None), "transforms", None)
    if callable(transforms):
        return _of_torchvision(transforms()), "preprocessing of the module's weights"
    from torch.nn import Conv2d

    first = next((part for part in module.modules() if isinstance(part, Conv2d)), None)
    if first is None or first.in_channels != 3:
        takes = (
            "it has no convolution"
            if first is None
            else f"its first convolution takes {first.in_channels} channels"
        )
        raise RequestError(
            f"{type(module).__name__} comes without preprocessing, and {takes}, so that none can be assumed: give "
            "preprocessing={'resize': …, 'colour': …, 'mean': …, 'std': …} or a function of an image"
        )
    return (
        Preprocessing(),
        "preprocessing assumed: 224 x 224 pixels, mean and standard deviation of ImageNet",
    )


def _item(config: Any, name: str) -> Any:
    """Return a field of a configuration, which is a mapping or an object."""
    if isinstance(config, Mapping):
        return config.get(name)
    return getattr(config, name, None)


def _of_timm(config: Any) -> Preprocessing:
    """Return the steps of timm's evaluation transform: resize by the share that is cropped, then the central square."""
    side = int(_item(config, "input_size")[1])
    share = float(_item(config, "crop_pct") or 0.875)
    squashed = _item(config, "crop_mode") == "squash"
    return Preprocessing.model_validate(
        {
            "resize": math.floor(side / share),
            "fit": "stretch" if squashed else "shorter",
            "interpolation": _item(config, "interpolation") or "bilinear",
            "crop": side,
            "mean": tuple(_item(config, "mean")),
            "std": tuple(_item(config, "std")),
        }
    )


def _of_torchvision(transforms: Any) -> Preprocessing:
    """Return the steps of torchvision's preset for classification."""
    mode = transforms.interpolation
    return Preprocessing.model_validate(
        {
            "resize": int(transforms.resize_size[0]),
            "fit": "shorter",
            "interpolation": str(getattr(mode, "value", mode)),
            "crop": int(transforms.crop_size[0]),
            "mean": tuple(transforms.mean),
            "std": tuple(transforms.std),
        }
    )
