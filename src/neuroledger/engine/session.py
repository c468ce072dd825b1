"""What the jobs of one run share: the request, the catalogue, the store, and what was made already."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from neuroledger.data.assembly import content_sha256
from neuroledger.data.dataset import Dataset
from neuroledger.errors import RequestError
from neuroledger.models.activations import Store
from neuroledger.models.model import Model
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import Score
from neuroledger.stats.workspace import Workspace
from neuroledger.store.store import open_store

__all__ = ["Control", "Request", "Session", "device_for_metrics", "named_device", "require_device"]


@dataclass(frozen=True)
class Request:
    """How hard to run: what belongs to the identity of a score, and where it is computed."""

    seed: int = 0
    limit: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise RequestError(f"seed {self.seed}: a seed is 0 or more")
        object.__setattr__(self, "device", named_device(self.device))


@dataclass(frozen=True)
class Control:
    """A control's value against its bound; None where it could not be computed, which has then failed."""

    role: str
    value: float | None
    bound: float
    passed: bool
    says: str


@dataclass
class Session:
    """The request, the catalogue, the store, and what was made for earlier jobs, by id.

    Attributes
    ----------
    valid
        Data sets that passed the gate.
    datasets, selected, models
        As read, as selected for a benchmark, as built; :meth:`forget` drops them.
    shown
        The stimuli of a benchmark, by content.
    layers
        The layer that a rule chose, by model and region.
    ceilings, dummies, controls
        Results that do not depend on the model that is scored.
    environment
        Of the records of this run.
    """

    catalog: Catalog
    request: Request = field(default_factory=Request)
    store: Store | None = None
    workspace: Workspace = field(init=False)
    valid: set[str] = field(default_factory=set, repr=False)
    datasets: dict[str, Dataset] = field(default_factory=dict, repr=False)
    selected: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)
    models: dict[str, Model] = field(default_factory=dict, repr=False)
    shown: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    layers: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    ceilings: dict[tuple[str, str, str], Score] = field(default_factory=dict, repr=False)
    dummies: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    controls: dict[tuple[str, str], Control] = field(default_factory=dict, repr=False)
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    _contents: dict[int, tuple[weakref.ref[xr.DataArray], str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        kept = None if self.store is None else open_store(self.catalog.root)
        self.workspace = Workspace(device=device_for_metrics(self.request.device), store=kept)

    def forget(self, *, but_datasets: Collection[str], but_models: Collection[str]) -> None:
        """Drop data sets and models other than these; what was computed from them stays."""
        self.datasets = {id: data for id, data in self.datasets.items() if id in but_datasets}
        self.selected = {key: data for key, data in self.selected.items() if key[0] in but_datasets}
        self.models = {id: model for id, model in self.models.items() if id in but_models}

    def content(self, assembly: xr.DataArray) -> str:
        """SHA-256 of an assembly, computed once for as long as it is in memory."""
        known = self._contents.get(id(assembly))
        if known is None or known[0]() is not assembly:
            known = (weakref.ref(assembly), content_sha256(assembly))
            self._contents[id(assembly)] = known
        return known[1]


def named_device(name: str) -> str:
    """``auto`` as the fastest device here, any other name as it is: a score's identity says what it was computed on.

    Raises
    ------
    RequestError
        There is no device of that name; whether one that there is can be used is found when it is.
    """
    if re.fullmatch(r"auto|cpu|torch|mps|cuda(:\d+)?", name) is None:
        raise RequestError(f"there is no device {name!r}: use auto, cpu, cuda, cuda:1 or mps")
    if name != "auto":
        return name
    try:
        import torch
    except ImportError:
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_for_metrics(name: str) -> str:
    """The device of metrics: they sum in float64, which Apple's GPUs lack, so that theirs is the CPU there."""
    return "cpu" if name == "mps" else name


def require_device(name: str) -> None:
    """Return if this machine has the device.

    Raises
    ------
    UnavailableError
        It has not.
    """
    if name.split(":")[0] in ("cuda", "mps"):
        from neuroledger.models.torch_layers import available
        from neuroledger.models.torch_module import require

        require("torch", "torch")
        available(name)
