"""What jobs of one run share: specs, data, models, metrics and ceilings, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import xarray as xr
from pydantic import BaseModel, ValidationError

from neuroledger.data.assembly import content_sha256, select
from neuroledger.data.dataset import Dataset
from neuroledger.data.load import load_dataset, verified_files
from neuroledger.data.threads import exclusive
from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric, ceiling, metric
from neuroledger.engine.device import device_for_metrics, named_device
from neuroledger.errors import DataError, RequestError, SpecError, UnavailableError
from neuroledger.models.activations import Store
from neuroledger.models.model import Model
from neuroledger.spec import registry
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.spec.load import explain
from neuroledger.stats.score import Score
from neuroledger.stats.workspace import Workspace

__all__ = ["Request", "Session"]

T = TypeVar("T")


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


@dataclass
class Session:
    """The caches of one run."""

    catalog: Catalog
    request: Request = field(default_factory=Request)
    store: Store | None = None
    _held: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What ``make`` gave for ``key``, made the first time it is asked for, by one thread at a time."""
        with exclusive():
            if key not in self._held:
                self._held[key] = make()
            return cast(T, self._held[key])

    @property
    def workspace(self) -> Workspace:
        """Where metrics compute, and the Gram matrices that they share."""
        return self.once(("workspace",), lambda: Workspace(device=device_for_metrics(self.request.device)))

    def dataset(self, benchmark: BenchmarkSpec) -> Dataset:
        """The benchmark's data: verified, read, checked, selected, and cut to the request's limit."""
        whole = self.once(
            ("dataset", benchmark.dataset), lambda: load_dataset(self.catalog, benchmark.dataset)
        )
        key = ("selected", benchmark.dataset, repr(sorted(benchmark.select.items())), self.request.limit)
        return self.once(key, lambda: self._selected(whole, benchmark))

    def _selected(self, data: Dataset, benchmark: BenchmarkSpec) -> Dataset:
        assembly = data.assembly
        if assembly is None or (not benchmark.select and self.request.limit is None):
            return data
        assembly = select(assembly, benchmark.select, name=f"data set {benchmark.dataset!r}")
        if (
            self.request.limit is not None
            and "stimulus_id" in assembly.coords
            and "presentation" in assembly.dims
        ):
            ids = assembly["stimulus_id"].values.astype(str)
            first = list(dict.fromkeys(ids.tolist()))[: self.request.limit]
            assembly = assembly.isel(presentation=np.flatnonzero(np.isin(ids, first)))
        return replace(data, assembly=assembly)

    def metric(self, wanted: str | Override, compat: str | None = None) -> BoundMetric:
        """The bound metric, with the benchmark's overrides."""
        options = self._compat("metrics", wanted, compat)
        return self.once(
            ("metric", repr(wanted), compat),
            lambda: metric(
                wanted, catalog=self.catalog, workspace=self.workspace, seed=self.request.seed, **options
            ),
        )

    def ceiling(self, wanted: str | Override, compat: str | None = None) -> BoundCeiling:
        """The bound ceiling, with the benchmark's overrides."""
        options = self._compat("ceilings", wanted, compat)
        return self.once(
            ("ceiling", repr(wanted), compat),
            lambda: ceiling(
                wanted, catalog=self.catalog, workspace=self.workspace, seed=self.request.seed, **options
            ),
        )

    def _compat(self, kind: str, wanted: str | Override, compat: str | None) -> dict[str, Any]:
        """A benchmark's compat applies to those of its parts that have such a mode."""
        name = wanted.name if isinstance(wanted, Override) else wanted
        spec = self.catalog.metric(name) if kind == "metrics" else self.catalog.ceiling(name)
        return {"compat": compat} if compat is not None and compat in spec.compat else {}

    def ceiling_score(
        self, wanted: str | Override, assembly: xr.DataArray, compat: str | None = None
    ) -> Score:
        """The ceiling of an assembly, computed once for all models and metrics."""
        content = self.once(("content", id(assembly)), lambda: (content_sha256(assembly), assembly))[0]
        bound = self.ceiling(wanted, compat)
        return self.once(("ceiling score", repr(wanted), compat, content), lambda: bound(assembly))

    def model(self, id: str) -> Model:
        """The model ``id``, built from its spec with verified weights."""
        return self.once(("model", id), lambda: self._build(id))

    def _build(self, id: str) -> Model:
        spec = self.catalog.model(id)
        if spec.builder is None or spec.unavailable is not None:
            raise UnavailableError(f"model {id!r} is unavailable: {spec.unavailable}")
        component = registry.get("builder", spec.builder.name)
        offered: dict[str, Any] = {
            "id": id,
            "weights": verified_files(self.catalog, "models", id),
            "regions": dict(spec.regions),
            "layers": spec.layers,
            "readout": spec.readout,
            "visual_degrees": spec.visual_degrees,
            "device": self.request.device,
            "store": self.store,
            "rng": np.random.default_rng(self.request.seed),
        }
        given = {
            "weights": spec.weights,
            "regions": spec.regions,
            "layers": spec.layers,
            "readout": spec.readout,
        }
        for name, value in given.items():
            if value and name not in component.injected:
                raise RequestError(
                    f"model {id!r}: builder {component.name!r} does not use `{name}`; remove it"
                )
        injected = {name: offered[name] for name in component.injected}
        return cast(Model, component.function(**injected, **self._parameters("models", id, "builder")))

    def paradigm(self, benchmark: BenchmarkSpec) -> tuple[registry.Registered, dict[str, Any]]:
        """The benchmark's paradigm and its validated parameters."""
        component = registry.get("paradigm", benchmark.paradigm.name)
        return component, self._parameters("benchmarks", benchmark.id, "paradigm")

    def _parameters(self, kind: str, id: str, field_name: str) -> dict[str, Any]:
        entry = self.catalog.entry(kind, id)
        named = getattr(entry.spec, field_name)
        component = registry.get(field_name, named.name)
        try:
            return component.bind(named.parameters)
        except ValidationError as error:
            model: type[BaseModel] = component.parameters
            raise SpecError(explain(error, entry.document, model, (field_name,))) from None

    def require_valid(self, dataset: str) -> None:
        """Return if the data set's current files and expectations were validated with success.

        Raises
        ------
        DataError
            They were not; the message says why and what to do.
        """
        from neuroledger.data.gate.validation import refusal

        problem = self.once(("valid", dataset), lambda: refusal(self.catalog, dataset))
        if problem:
            raise DataError(f"{problem.where}: {problem.what}; {problem.fix}")
