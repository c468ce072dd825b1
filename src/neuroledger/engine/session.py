"""Sessions: the request, catalogue, store and cached results that the jobs of one run share."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.assembly import content_sha256
from neuroledger.data.dataset import Dataset
from neuroledger.display import Display, NoDisplay
from neuroledger.engine.control import Control
from neuroledger.engine.records.environment import Environment
from neuroledger.engine.records.inputs import Request
from neuroledger.models.activations import Store
from neuroledger.models.devices import available
from neuroledger.models.model import Model
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import Score
from neuroledger.stats.workspace import Workspace
from neuroledger.store.store import open_store

__all__ = [
    "SHUFFLED",
    "Request",
    "Session",
    "device_for_metrics",
    "require_device",
]

# Separates the random numbers of shuffles from all others of the same seed.
SHUFFLED: Final = 271828


@dataclass
class Session:
    """The request, the catalogue, the store, and results of earlier jobs by id.

    Attributes
    ----------
    valid
        Data sets that passed the gate.
    datasets, prepared, selected, models
        Data sets as read, as prepared for models with needs, and as selected for benchmarks, and built models;
        :meth:`forget` drops them.
    shown
        Hashes of the stimuli of each benchmark.
    layers
        The layers that rules chose, by model and region.
    ceilings, dummies, controls
        Results that do not depend on the scored model.
    environment
        The environment of all records of this run.
    display
        Where the progress of trainings is reported.
    """

    catalog: Catalog
    request: Request = field(default_factory=Request)
    store: Store | None = None
    workspace: Workspace = field(init=False)
    valid: set[str] = field(default_factory=set, repr=False)
    datasets: dict[str, Dataset] = field(default_factory=dict, repr=False)
    prepared: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)
    selected: dict[tuple[str, str, str], Dataset] = field(
        default_factory=dict, repr=False
    )
    models: dict[str, Model] = field(default_factory=dict, repr=False)
    shown: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    layers: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    ceilings: dict[tuple[str, str, str], Score] = field(
        default_factory=dict, repr=False
    )
    dummies: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    controls: dict[tuple[str, str], Control] = field(default_factory=dict, repr=False)
    environment: Environment | None = field(default=None, repr=False)
    display: Display = field(default_factory=NoDisplay, repr=False)
    _contents: dict[int, tuple[weakref.ref[xr.DataArray], str]] = field(
        default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        if self.store is None:
            store = None
        else:
            store = open_store(self.catalog.root)
        self.workspace = Workspace(
            device=device_for_metrics(self.request.device), store=store
        )

    def reshuffled(self, number: int) -> Session:
        """Return a session with the seed of another shuffle, which shares data, models, ceilings and dummies with this one.

        The seed follows from that of the request and the number of the shuffle.
        """
        entropy = np.random.SeedSequence([self.request.seed, SHUFFLED, number])
        seed = int(entropy.generate_state(1)[0])
        session = replace(self, request=replace(self.request, seed=seed))
        session.workspace = self.workspace
        return session

    def forget(
        self, *, but_datasets: Collection[str], but_models: Collection[str]
    ) -> None:
        """Drop all other data sets and models from memory, but keep results computed from them."""
        self.datasets = {
            id: data for id, data in self.datasets.items() if id in but_datasets
        }
        self.prepared = {
            key: data for key, data in self.prepared.items() if key[0] in but_datasets
        }
        self.selected = {
            key: data for key, data in self.selected.items() if key[0] in but_datasets
        }
        self.models = {
            id: model for id, model in self.models.items() if id in but_models
        }

    def content(self, assembly: xr.DataArray) -> str:
        """Return the SHA-256 of an assembly, computed once while it is in memory."""
        known = self._contents.get(id(assembly))
        if known is None or known[0]() is not assembly:
            known = (weakref.ref(assembly), content_sha256(assembly))
            self._contents[id(assembly)] = known
        return known[1]


def device_for_metrics(name: str) -> str:
    """Return the device of metrics: the CPU instead of Apple's GPUs, which lack float64."""
    return "cpu" if name == "mps" else name


def require_device(name: str) -> None:
    """Require that this machine has the device.

    Raises
    ------
    UnavailableError
        The machine lacks the device.
    """
    if name.split(":")[0] in ("cuda", "mps"):
        from neuroledger.models.torch_module import require

        require("torch", "torch")
        available(name)
