"""What the engine gives to components that ask for it: a frozen record for each kind, built where it calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuroledger.models.activations import Store
from neuroledger.models.devices import Training
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import Pretraining
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["BuilderContext", "MetricContext", "ParadigmContext"]


@dataclass(frozen=True)
class MetricContext:
    """Context of a metric or ceiling.

    Attributes
    ----------
    rng
        Random numbers with the seed of the request; the same in every call.
    workspace
        Device, precision and caches.
    splits
        Train and test rows; empty if the function does not ask for them.
    """

    rng: np.random.Generator
    workspace: Workspace
    splits: Sequence[Split] = ()


@dataclass(frozen=True)
class ParadigmContext:
    """Context of a paradigm.

    Attributes
    ----------
    pretraining
        Data sets that the model was pretrained on.
    metrics
        All metrics of the benchmark, the headline first.
    """

    rng: np.random.Generator
    workspace: Workspace
    store: Store | None
    pretraining: Sequence[str | Pretraining]
    metrics: Sequence[str | Override]
    catalog: Catalog


@dataclass(frozen=True)
class BuilderContext:
    """Context of a model builder: the fields of the spec that every model may have, and the request.

    Attributes
    ----------
    weights
        Verified files by name.
    regions, layers, readout, logits
        The layers of each region, all layers, and those of decisions.
    visual_degrees
        Width of the field of view, in degrees.
    training
        How this machine trains networks.
    """

    id: str
    weights: Mapping[str, Path]
    regions: Mapping[str, str | tuple[str, ...]]
    layers: tuple[str, ...]
    readout: str | None
    logits: str | None
    visual_degrees: float | None
    device: str
    training: Training
    store: Store | None
    rng: np.random.Generator
