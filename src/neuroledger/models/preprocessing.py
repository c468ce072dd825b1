"""Declared preprocessing of images for a network, and shifts between trials like those of a fixating eye."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array, Floats, Singles
from neuroledger.errors import ModelError

if TYPE_CHECKING:
    from PIL.Image import Image

Side = Annotated[int, Field(gt=0, le=4096)]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
RADIUS_DEGREES: Final = 0.05
"""Largest shift of a fixating eye, in degrees of visual angle."""


class Preprocessing(BaseModel):
    """Resize, crop, colour, and normalisation (value / 255 − mean) / std, in this order.

    ``resize`` is the side in pixels: of the square that the image is stretched to (``fit: stretch``), or of the
    image's shorter side (``fit: shorter``); None leaves the size. ``crop`` then keeps the central square.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    resize: Side | None = 224
    fit: Literal["stretch", "shorter"] = "stretch"
    interpolation: Literal["nearest", "box", "bilinear", "bicubic", "lanczos"] = (
        "bilinear"
    )
    crop: Side | None = None
    colour: Literal["rgb", "grey"] = "rgb"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[Annotated[float, Field(gt=0)], ...] = IMAGENET_STD

    def __call__(self, images: Iterable[Image], *, model: str) -> Singles:
        """Return the images as (stimulus, channel, height, width), float32.

        Raises
        ------
        ModelError
            The images have different sizes after preprocessing, or mean and std do not match the channels.
        """
        self.check(model)
        return self.stack([self.one(image) for image in images], model=model)

    def check(self, model: str) -> None:
        """Check that mean and std match the channels."""
        channels = 3 if self.colour == "rgb" else 1
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            raise ModelError(
                f"model {model!r}: mean and std need 1 or {channels} numbers for {self.colour} images"
            )

    def stack(self, arrays: Sequence[Singles], *, model: str) -> Singles:
        """Stack results of :meth:`one` into one array; refuse different sizes."""
        sizes = sorted({(array.shape[2], array.shape[1]) for array in arrays})
        if len(sizes) > 1:
            listed = ", ".join(f"{width} x {height}" for width, height in sizes[:4])
            raise ModelError(
                f"model {model!r}: images of {len(sizes)} sizes ({listed}{' …' if len(sizes) > 4 else ''} pixels); "
                "add `resize` (or `crop`) to its preprocessing"
            )
        return np.stack(arrays)

    def one(self, image: Image) -> Singles:
        """Return one image as (channel, height, width)."""
        image = self._sized(image).convert("RGB" if self.colour == "rgb" else "L")
        values = np.asarray(image, dtype=np.float32) / np.float32(255)
        if values.ndim == 2:
            values = values[None]
        else:
            values = values.transpose(2, 0, 1)
        mean, std = (
            np.array(numbers, dtype=np.float32)[:, None, None]
            for numbers in (self.mean, self.std)
        )
        normalised: Singles = (values - mean) / std
        return normalised

    def _sized(self, image: Image) -> Image:
        from PIL.Image import Resampling

        width, height = image.size
        if self.resize is not None:
            target = (self.resize, self.resize)
            if self.fit == "shorter":
                # The longer side is rounded down to whole pixels, as in torchvision.
                short = min(width, height)
                target = (self.resize * width // short, self.resize * height // short)
            image = image.resize(target, Resampling[self.interpolation.upper()])
            width, height = image.size
        if self.crop is not None:
            left = round((width - self.crop) / 2)
            top = round((height - self.crop) / 2)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        return image


def shifts(trials: int, degrees: float, pixels: int) -> Floats:
    r"""Return shifts (trial, 2) in pixels, right and down, of an image that spans ``degrees`` with ``pixels``.

    Trial *i* of *n* lies on a spiral at radius :math:`R\sqrt{i/n}` and angle :math:`2\pi\sqrt{i/n}`, with *R* of 0.05
    degrees; the first trial is not shifted.

    >>> shifts(2, degrees=8, pixels=160).round(3).tolist()
    [[0.0, 0.0], [-0.188, -0.682]]
    """
    part = np.sqrt(np.arange(trials) / trials)
    radius = RADIUS_DEGREES / degrees * pixels * part
    return np.stack(
        [radius * np.cos(2 * np.pi * part), radius * np.sin(2 * np.pi * part)], axis=1
    )


def look(images: Array, trial: int, trials: int, degrees: float) -> Array:
    """Shift images (…, height, width) as in one trial, with linear interpolation and repeated edge pixels."""
    from scipy.ndimage import shift

    right, down = shifts(trials, degrees, images.shape[-1])[trial]
    if right == down == 0:
        return images
    still = (0.0,) * (images.ndim - 2)
    moved: Array = shift(
        images,
        (*still, float(down), float(right)),
        order=1,
        mode="nearest",
        prefilter=False,
    )
    return moved
