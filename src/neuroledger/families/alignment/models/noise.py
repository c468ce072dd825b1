"""Random features that are independent of the stimuli: the control that must score at the floor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt

from neuroledger.data.arrays import Floats
from neuroledger.data.stimuli import StimulusSet
from neuroledger.models.activations import Store, Trial
from neuroledger.models.model import READOUTS, LayeredModel, of_layers
from neuroledger.spec.channels import STIMULI
from neuroledger.spec.registry import builder

VERSION = 1


@builder(
    "noise",
    version=VERSION,
    takes=STIMULI,
    gives=partial(of_layers, decisions=READOUTS),
)
def noise(
    *,
    id: str,
    features: Annotated[int, Field(gt=0, le=1_000_000)] = 100,
    seed: NonNegativeInt = 0,
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    visual_degrees: float | None = None,
    store: Store | None = None,
) -> LayeredModel:
    """Model with one layer, ``noise``: standard normal features, independent between stimuli.

    The features of a stimulus depend only on ``seed`` and its id, so they are the same in every set and order.
    """

    def draw(stimulus_id: str) -> Floats:
        digest = hashlib.sha256(stimulus_id.encode()).digest()
        return np.random.default_rng([seed, int.from_bytes(digest)]).standard_normal(
            features
        )

    def extract(
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Floats]:
        return {"noise": np.stack([draw(stimulus_id) for stimulus_id in stimulus_ids])}

    return LayeredModel(
        id=id,
        takes=STIMULI,
        decisions=READOUTS,
        extract=extract,
        layers=("noise",),
        regions=dict(regions or {}),
        visual_degrees=visual_degrees,
        identity={
            "builder": "noise",
            "version": VERSION,
            "features": features,
            "seed": seed,
        },
        store=store,
    )
