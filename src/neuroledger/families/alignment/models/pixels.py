"""Pixels as features: a small grey copy of each image, a control without any computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.screen import shown
from neuroledger.data.stimuli import StimulusSet
from neuroledger.models.activations import Store, Trial
from neuroledger.models.model import READOUTS, LayeredModel, of_layers
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1


def grey_pixels(image: Image, size: int) -> Floats:
    """Luminance (size, size) in 0…1: ITU-R 601 grey, averaged over boxes of the image."""
    from PIL.Image import Resampling

    grey = image.convert("L").resize((size, size), Resampling.BOX)
    return floats(grey) / 255


@builder(
    "pixels",
    version=VERSION,
    takes={"images"},
    gives=partial(of_layers, decisions=READOUTS),
)
def pixels(
    *,
    id: str,
    size: Annotated[int, Field(gt=0, le=512)] = 16,
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    visual_degrees: float | None = None,
    store: Store | None = None,
) -> LayeredModel:
    """Model with one layer, ``pixels``: the grey image at ``size`` × ``size``, size² features in 0…1."""

    def extract(
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Floats]:
        features = [
            grey_pixels(image, size).ravel() for image in shown(stimuli, stimulus_ids)
        ]
        return {"pixels": np.stack(features)}

    return LayeredModel(
        id=id,
        takes=frozenset({"images"}),
        decisions=READOUTS,
        extract=extract,
        layers=("pixels",),
        regions=dict(regions or {}),
        visual_degrees=visual_degrees,
        identity={"builder": "pixels", "version": VERSION, "size": size},
        store=store,
    )
