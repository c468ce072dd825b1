"""Embeddings of images: the tokens of hidden states of a vision network, averaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from neuroledger.data.arrays import Array, Singles
from neuroledger.data.images import decode
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.families.signals.embeddings.pretrained import (
    States,
    described,
    pretrained,
    require_tensors_only,
)
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell
from neuroledger.models.hub import PHOTOGRAPH
from neuroledger.models.preprocessing import Preprocessing, Side
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

AT_ONCE: Final = 8

Tokens = Literal["mean", "first", "last"]


@builder("image_embedder", version=1, takes={"images"}, gives={"embeddings"})
def image_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    config: Arguments | None = None,
    tokens: Tokens = "mean",
    resize_first: Side | None = None,
    preprocessing: Preprocessing = PHOTOGRAPH,
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """A vision network of transformers with pinned weights.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is the input of the first block, k the output of block k.
    tokens
        Mean over all tokens, including the class token; or the first or last token.
    resize_first
        Images are resized (bilinear) to this length of the shorter side, in pixels, before ``preprocessing``.
    unused
        Prefixes of the names of tensors in the files that the network does not use.
    """
    require_tensors_only(weights or {}, id)
    network = pretrained(
        id,
        architecture,
        config or {},
        weights or {},
        states=states,
        unused=unused,
        device=device,
    )
    preprocessing.check(id)

    def embed(
        stimuli: Sequence[Shown], requested: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        used = network.checked(requested or states)
        parts: list[Array] = []
        for batch in _batches(stimuli, resize_first, preprocessing, id):
            parts.append(pooled(network.hidden(used, pixel_values=batch), tokens))
            tell(sum(map(len, parts)))
        return Embedded(np.concatenate(parts).astype(np.float32))

    settings: dict[str, object] = {
        "states": list(states),
        "tokens": tokens,
        "resize_first": resize_first,
    }
    settings |= {"preprocessing": preprocessing.model_dump(mode="json")}
    description = described(
        architecture, config or {}, weights or {}, device, ("pillow",), **settings
    )
    return Embedder(id=id, shown="images", embed=embed, described=description)


def pooled(hidden: torch.Tensor, tokens: Tokens) -> Array:
    """Pool the tokens of (stimulus, token, feature) to (stimulus, feature)."""
    poolings = {
        "mean": lambda: hidden.mean(dim=1),
        "first": lambda: hidden[:, 0],
        "last": lambda: hidden[:, -1],
    }
    values: Array = poolings[tokens]().cpu().numpy()
    return values


def _batches(
    stimuli: Sequence[Shown], side: int | None, preprocessing: Preprocessing, model: str
) -> Iterator[torch.Tensor]:
    import torch

    for start in range(0, len(stimuli), AT_ONCE):
        batch = stimuli[start : start + AT_ONCE]
        yield torch.from_numpy(
            confined(
                partial(_prepared, batch, side, preprocessing, model),
                limits_for({image.file for image in batch}),
                f"images of model {model!r}",
            )
        )


def _prepared(
    stimuli: Sequence[Shown], side: int | None, preprocessing: Preprocessing, model: str
) -> Singles:
    images = (
        _resized(decode(image.file.read_bytes(), image.stimulus_id), side)
        for image in stimuli
    )
    return preprocessing(images, model=model)


def _resized(image: Image, side: int | None) -> Image:
    if side is None:
        return image
    from PIL.Image import Resampling

    short = min(image.size)
    width, height = (side * length // short for length in image.size)
    return image.resize((width, height), Resampling.BILINEAR)
