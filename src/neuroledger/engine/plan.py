"""Planning: jobs for suites and models, each with the identity of everything that determines its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import ValidationError

from neuroledger.data.integrity import absent
from neuroledger.data.reader import changed_parameters
from neuroledger.display import some
from neuroledger.engine.outcome import Pending, pending_for
from neuroledger.engine.overrides import in_compat, resolve
from neuroledger.engine.records.inputs import (
    ComponentIdentity,
    DatasetIdentity,
    Inputs,
    ModelIdentity,
    Request,
    SpecIdentity,
    record_folder,
)
from neuroledger.engine.records.summary import Known, Summary, known_in
from neuroledger.errors import (
    CircleError,
    DataError,
    PendingError,
    RequestError,
    SpecError,
    UnknownError,
    error_named,
)
from neuroledger.spec import registry
from neuroledger.spec.base import DESCRIPTIVE, Override, id_of, sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.channels import Interface
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec, SuiteSpec
from neuroledger.spec.load import explain
from neuroledger.spec.model_rules import rule_of
from neuroledger.store.derived import fact

if TYPE_CHECKING:
    from neuroledger.models.model import Model

__all__ = [
    "Identities",
    "Job",
    "Plan",
    "again",
    "current",
    "files_of",
    "fits",
    "inputs_of",
    "interface",
    "lacking",
    "mismatch",
    "needs_of",
    "other_models",
    "parameters_of",
    "plan",
    "prepared_as",
    "require_compatible",
    "unavailable",
]

SCHEMA_VERSION = 1
LISTED_FILES = 1000
# Fields that affect the use or display of data, but no score.
DATASET_ONLY_SAYS = DESCRIPTIVE | {
    "license",
    "license_note",
    "access",
    "access_steps",
    "source",
    "species",
    "modality",
    "expectations",
    "unavailable",
    "unread",
    "defects",
    "simulated",
}
BENCHMARK_ONLY_SAYS = DESCRIPTIVE | {"unavailable", "defects", "resources"}
MODEL_ONLY_SAYS = DESCRIPTIVE | {
    "control",
    "benchmarks",
    "license",
    "unavailable",
    "simulated",
    "pretraining",
    "untrained",
    "resources",
}


@dataclass(frozen=True)
class Job:
    """One model on one benchmark; ``id`` is its identity, the hash of :attr:`inputs`.

    Attributes
    ----------
    shared
        Inputs that several jobs share, which are in memory once.
    own
        The fields of the inputs that the model changes.
    """

    model: str
    benchmark: str
    id: str
    shared: Inputs = field(compare=False, repr=False)
    own: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def inputs(self) -> Inputs:
        """Everything that determines the outcome."""
        return self.shared.model_copy(update=self.own)


@dataclass(frozen=True)
class Plan:
    """The jobs of a request, and the pairs and ids that give none.

    Attributes
    ----------
    jobs
        Benchmark by benchmark, control models first.
    incompatible
        Requested pairs (model, benchmark) that cannot be scored, with the channels that the model lacks.
    unavailable
        Benchmarks and models that are unavailable, with the reason.
    pending
        Pairs and benchmarks that have an invalid spec, with what is wrong in it.
    """

    jobs: tuple[Job, ...]
    incompatible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[tuple[str, Pending], ...] = ()

    def notes(self) -> Iterator[str]:
        """Yield one line with the number of incompatible pairs and the reasons, if any."""
        if not self.incompatible:
            return
        models: dict[tuple[str, str], list[str]] = {}
        for (model, benchmark), lacks in self.incompatible.items():
            models.setdefault((model, lacks), []).append(benchmark)
        words = [
            f"{model} lacks {lacks} for {some(benchmarks)}"
            for (model, lacks), benchmarks in models.items()
        ]
        pairs = len(self.incompatible)
        yield f"skipped {pairs} incompatible {'pair' if pairs == 1 else 'pairs'}: {'; '.join(words)}"


def again(model: str, benchmark: str) -> str:
    """Return the command that scores this pair."""
    return f"neuroledger run {model} --benchmark {benchmark}"


def plan(
    catalog: Catalog,
    *,
    models: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
    suites: Sequence[SuiteSpec] = (),
    request: Request,
) -> Plan:
    """Return the jobs of a request.

    ``models`` replace the models of the suites. A suite without models, or a list of benchmarks, is scored for every
    matching model of the repository. Unavailable and incompatible pairs give no job; pairs with an invalid spec, which
    the request does not name, are pending.

    Raises
    ------
    RequestError
        An id is unknown, or neither suites nor benchmarks are named.
    SpecError
        The spec of a named model or benchmark is invalid.
    """
    requests = [
        (item.id, models or suite.models)
        for suite in suites
        for item in suite.benchmarks
    ]
    requests += [(id, models) for id in benchmarks]
    if not requests:
        raise RequestError("nothing to run: name a suite or benchmarks")
    identities = Identities(catalog, request)
    jobs: dict[tuple[str, str], Job] = {}
    incompatible: dict[tuple[str, str], str] = {}
    pending: dict[str, Pending] = {}
    unavailable_ids = {
        id: why for id in models if (why := catalog.model(id).unavailable) is not None
    }
    for id in benchmarks:
        catalog.benchmark(id)
    for id, suite_models in requests:
        try:
            benchmark = catalog.benchmark(id)
            reason = unavailable(catalog, benchmark)
            asked = _asked(catalog, benchmark)
        except SpecError as error:
            pending[id] = pending_for(error)
            continue
        if reason is not None:
            unavailable_ids[id] = reason
            continue
        controls = (
            ()
            if models
            else (*benchmark.controls.positive, *benchmark.controls.negative)
        )
        for model in dict.fromkeys(
            (*controls, *(suite_models or catalog.own("models")))
        ):
            if (id, model) in jobs or model in unavailable_ids:
                continue
            try:
                if not models and not _fits(catalog, model, asked):
                    continue
                lacks = _lacks(catalog, model, asked) if models else []
                if lacks:
                    incompatible[model, id] = ", ".join(lacks)
                    continue
                jobs[id, model] = identities.job(benchmark, model)
            except (SpecError, RequestError) as error:
                pending[f"{id} · {model}"] = pending_for(error)
    return Plan(
        tuple(jobs.values()), incompatible, unavailable_ids, tuple(pending.items())
    )


def unavailable(catalog: Catalog, benchmark: BenchmarkSpec) -> str | None:
    """Return why a benchmark cannot be scored: its own reason, that of its data set, or missing private data; or None."""
    data = catalog.about(benchmark.dataset)
    reason = benchmark.unavailable or catalog.closed(data.id)
    if (
        reason is None
        and data.access == "private"
        and absent(catalog, "datasets", data.id) is not None
    ):
        return f"the data are private and missing; with access to them, run `neuroledger fetch {data.id}`"
    return reason


def fits(catalog: Catalog, model: str, benchmark: str) -> bool:
    """Whether a model is available, compatible with a benchmark, and not restricted to other benchmarks.

    The field `benchmarks` of a model restricts it to ids, data sets, parents, paradigms, or outputs of paradigms
    (`decoding.regression`).
    """
    return _fits(catalog, model, _asked(catalog, catalog.benchmark(benchmark)))


class _Asked(NamedTuple):
    """A benchmark, and the channels that it requires of a model; None if they are not known."""

    spec: BenchmarkSpec
    required: Interface | None


def _asked(catalog: Catalog, benchmark: BenchmarkSpec) -> _Asked:
    entry = catalog.entry("benchmarks", benchmark.id)
    stimuli = catalog.about(benchmark.dataset).stimuli
    return _Asked(benchmark, interface(catalog, entry, stimuli))


def _fits(catalog: Catalog, model: str, asked: _Asked) -> bool:
    spec = catalog.model(model)
    if spec.unavailable is not None or _lacks(catalog, model, asked):
        return False
    if not spec.benchmarks:
        return True
    target, required = asked
    paradigm = target.paradigm.name
    outputs = {
        f"{paradigm}.{name.partition(':')[2]}"
        for name in (required.outputs if required else ())
    }
    return not {
        target.id,
        target.dataset,
        target.parent,
        paradigm,
        *outputs,
    }.isdisjoint(spec.benchmarks)


def lacking(catalog: Catalog, model: str, benchmark: str) -> list[str]:
    """Return the channels of a benchmark that a model lacks, according to their specs."""
    return _lacks(catalog, model, _asked(catalog, catalog.benchmark(benchmark)))


def _lacks(catalog: Catalog, model: str, asked: _Asked) -> list[str]:
    own = interface(catalog, catalog.entry("models", model), "")
    if own is None or asked.required is None:
        return []
    lacks = [name for part in own.lacking(asked.required) for name in part]
    return lacks or _lacking_preparation(catalog, model, asked.spec.dataset)


def _lacking_preparation(catalog: Catalog, model: str, dataset: str) -> list[str]:
    """What a model lacks if the data set cannot be prepared as it needs."""
    needs = needs_of(catalog, model)
    if needs is None or catalog.closed(dataset) is not None:
        return []
    try:
        changed_parameters(catalog, dataset, needs)
    except RequestError:
        return ["windows prepared as it needs"]
    return []


def require_compatible(catalog: Catalog, benchmark: str, model: Model | str) -> None:
    """Require that a model, or the model of a spec, has all channels of a benchmark.

    Raises
    ------
    RequestError
        ``model`` is not a model or lacks a channel; the message lists the channels of both.
    """
    found = mismatch(catalog, benchmark, model)
    if found is None:
        return
    id = model if isinstance(model, str) else model.id
    fix = (
        found.fix
        or f"`neuroledger run --benchmark {benchmark}` scores all models that are compatible"
    )
    raise RequestError(
        f"model {id!r} cannot be scored on {benchmark!r}: {found.model}; {found.benchmark}; {fix}"
    )


class Mismatch(NamedTuple):
    """Why a model cannot be scored: what it takes and gives, what the benchmark needs, and what to change, if anything."""

    model: str
    benchmark: str
    fix: str


def mismatch(catalog: Catalog, benchmark: str, model: Model | str) -> Mismatch | None:
    """Return the channels of a model, or of the model of a spec, and of a benchmark if they do not match, else None.

    Raises
    ------
    RequestError
        ``model`` is not a model.
    """
    from neuroledger.models.model import Model

    spec = catalog.benchmark(benchmark)
    required = _asked(catalog, spec).required
    if isinstance(model, str):
        own = interface(catalog, catalog.entry("models", model), "")
    elif isinstance(model, Model):
        own = Interface(model.takes, model.gives)
    else:
        raise RequestError(
            f"{type(model).__name__} is not a model: pass the id of a model, or declare inputs and outputs with "
            "nl.models.torch(module, id=…, regions={…: …}) for responses and decisions; nl.decode(module, x, y) "
            "scores it as a decoder, nl.cost(module, batches) counts its costs"
        )
    inputs, outputs = (
        own.lacking(required) if own is not None and required is not None else ([], [])
    )
    if own is None or required is None or not (inputs or outputs):
        return None
    regions = [
        name.partition(":")[2] for name in outputs if name.startswith("responses:")
    ]
    fix = ""
    if regions and any(name.startswith("responses") for name in own.outputs):
        fix = f"commit a layer to the region: `regions: {{{regions[0]}: <layer>}}`"
    elif "dynamics" in outputs:
        fix = "score a model with several time steps, whose time bins are its `times`"
    return Mismatch(
        f"it takes {_list(own.inputs)} and gives {_list(own.outputs)}",
        f"the benchmark shows {_list(required.inputs)} and asks for {_list(required.outputs)}",
        fix,
    )


def _list(channels: Iterable[str]) -> str:
    return ", ".join(sorted(channels)) or "nothing"


def parameters_of(entry: Entry, kind: str) -> dict[str, object]:
    """Return the validated parameters of the `builder` or `paradigm` that a spec names.

    Raises
    ------
    SpecError
        A parameter is unknown or invalid; the finding contains its line.
    """
    component = getattr(entry.spec, kind)
    registered = registry.get(kind, component.name)
    try:
        return registered.bind(component.parameters)
    except ValidationError as error:
        raise SpecError(
            explain(error, entry.document, registered.parameters, (kind,))
        ) from None


def needs_of(catalog: Catalog, model: Model | str | None) -> object:
    """Return what a model, or the model of a spec, needs of the preparation of data; None if it needs nothing."""
    if isinstance(model, str):
        return _declared_needs(catalog.entry("models", model))
    return getattr(model, "needs", None)


@lru_cache(maxsize=8192)
def _declared_needs(entry: Entry) -> object:
    """Return the field ``needs`` of a model's builder; None also for invalid parameters, which are reported elsewhere."""
    spec = entry.spec
    builder = spec.builder if isinstance(spec, ModelSpec) else None
    if builder is None or builder.parameters.get("needs") is None:
        return None
    try:
        return parameters_of(entry, "builder")["needs"]
    except SpecError:
        return None


def prepared_as(catalog: Catalog, dataset: str, needs: object) -> dict[str, object]:
    """Return the parameters of a data set's reader that a model's needs change, as plain data.

    Raises
    ------
    RequestError
        The data set cannot be prepared in this way.
    """
    changed = changed_parameters(catalog, dataset, needs)
    members = catalog.dataset(dataset).members
    if members:
        prepared = {each: prepared_as(catalog, each, needs) for each in members}
        return {each: fields for each, fields in prepared.items() if fields}
    declared = catalog.dataset(dataset).reader
    if declared is None or not changed:
        return {}
    component = registry.get("reader", declared.name)
    values = component.canonical({**declared.parameters, **changed})
    return {name: values[name] for name in changed}


def interface(catalog: Catalog, entry: Entry, stimuli: str) -> Interface | None:
    """Return the inputs and outputs of a model, or those that a benchmark requires with this kind of stimuli.

    None if the spec has no builder or invalid parameters, which are reported elsewhere.
    """
    return _interface(catalog.root, entry, stimuli)


@lru_cache(maxsize=8192)
def _interface(root: Path, entry: Entry, stimuli: str) -> Interface | None:
    spec = entry.spec
    values = dict[str, object]()
    kind: Literal["paradigm", "builder"]
    if isinstance(spec, BenchmarkSpec):
        kind = "paradigm"
        chosen = spec.paradigm
    elif isinstance(spec, ModelSpec) and spec.builder is not None:
        kind = "builder"
        chosen = spec.builder
        values = {
            name: getattr(spec, name)
            for name in ("regions", "layers", "readout", "commit")
        }
    else:
        return None

    def channels() -> tuple[list[str], list[str]]:
        bound = values | parameters_of(entry, kind)
        found = registry.get(kind, chosen.name).interface(bound)
        return sorted(found.inputs), sorted(found.outputs)

    asked = [kind, chosen.name, chosen.parameters, values]
    try:
        inputs, outputs = fact(root, "channels", asked, channels)
    except SpecError:
        return None
    shown = {stimuli if name == "stimuli" else name for name in inputs}
    return Interface(frozenset(shown), frozenset(outputs))


def files_of(dataset: DatasetSpec) -> dict[str, str | int]:
    """Return the pins of the files; for more than ``LISTED_FILES``, their number and one hash, to keep records small."""
    pins: dict[str, str | int] = {
        name: pin.sha256 for name, pin in sorted(dataset.files.items())
    }
    if len(pins) <= LISTED_FILES:
        return pins
    return {"count": len(pins), "sha256": sha256_of(pins)}


def inputs_of(
    catalog: Catalog,
    benchmark: BenchmarkSpec,
    model: str | None,
    request: Request,
    needs: object = None,
) -> Inputs:
    """Return everything that determines the outcome of a job; without ``model``, what its model does not determine.

    ``needs`` are those of a model in memory.
    """
    return Identities(catalog, request).of(benchmark, model, needs)


@dataclass(frozen=True)
class Identities:
    """What determines the outcome of the jobs of one request; what several jobs share is hashed once."""

    catalog: Catalog
    request: Request
    _shared: dict[str, tuple[BenchmarkSpec, Inputs]] = field(default_factory=dict)
    _models: dict[str, ModelIdentity] = field(default_factory=dict)
    _own: dict[str, dict[str, object]] = field(default_factory=dict)

    def job(self, benchmark: BenchmarkSpec, model: str) -> Job:
        """Return the job of a pair."""
        shared = self.of(benchmark, None, needs_of(self.catalog, model))
        own = self._of_model(model)
        return Job(model, benchmark.id, shared.sha256_with(own), shared, own)

    def of(
        self, benchmark: BenchmarkSpec, model: str | None, needs: object = None
    ) -> Inputs:
        """Return the inputs of a job; see :func:`inputs_of`."""
        known = self._shared.get(benchmark.id)
        if known is None or known[0] is not benchmark:
            known = benchmark, self._without_model(benchmark)
            self._shared[benchmark.id] = known
        inputs = known[1]
        needs = needs_of(self.catalog, model) or needs
        if needs is not None:
            prepared = prepared_as(self.catalog, benchmark.dataset, needs)
            inputs = inputs.model_copy(update={"preparation": prepared})
        if model is None:
            return inputs
        return inputs.model_copy(update=self._of_model(model))

    def _without_model(self, benchmark: BenchmarkSpec) -> Inputs:
        """Return what a benchmark determines for every model."""
        catalog = self.catalog
        request = self.request
        dataset = catalog.dataset(benchmark.dataset)
        ceiling = benchmark.ceiling
        return Inputs(
            schema_version=SCHEMA_VERSION,
            benchmark=SpecIdentity(
                id=benchmark.id,
                version=benchmark.version,
                spec_sha256=spec_sha256(benchmark, without=BENCHMARK_ONLY_SAYS),
            ),
            dataset=_dataset(catalog, dataset),
            paradigm=_component(catalog, "paradigm", benchmark.paradigm.name),
            metrics=tuple(
                _comparison(catalog, "metrics", metric, benchmark.compat)
                for metric in benchmark.all_metrics
            ),
            ceiling=None
            if ceiling is None
            else _comparison(catalog, "ceilings", ceiling, benchmark.compat),
            seed=request.seed,
            limit=request.limit,
            device=request.device.split(":")[0],
            controls={id: self._model(id) for id in sorted(other_models(benchmark))},
        )

    def _of_model(self, id: str) -> dict[str, object]:
        """Return the inputs of a model on any benchmark: its own, and those of benchmarks on which it chooses its layers."""
        if id in self._own:
            return self._own[id]
        own: dict[str, object] = {"model": self._model(id)}
        rule = rule_of(self.catalog.model(id))
        if rule is not None:
            own["commitment"] = {
                benchmark: self.of(self.catalog.benchmark(benchmark), None)
                for benchmark in sorted(set(rule.on.values()))
            }
        self._own[id] = own
        return own

    def _model(self, id: str) -> ModelIdentity:
        if id not in self._models:
            self._models[id] = _model(self.catalog, id)
        return self._models[id]


def other_models(benchmark: BenchmarkSpec) -> set[str]:
    """Return the models that every score on a benchmark depends on: its controls and the dummies of its floor."""
    floor = (
        ()
        if benchmark.floor is None
        else (benchmark.floor.dummy, benchmark.floor.fallback)
    )
    ids = (*benchmark.controls.positive, *benchmark.controls.negative, *floor)
    return {id for id in ids if isinstance(id, str)}


def _dataset(catalog: Catalog, spec: DatasetSpec) -> DatasetIdentity:
    """Return the identity of a data set, with those of its members if it has any."""
    if spec.reader is None:
        raise RequestError(f"data set {spec.id!r} is unavailable: {spec.closed}")
    own = DatasetIdentity(
        id=spec.id,
        version=spec.version,
        spec_sha256=spec_sha256(spec, without=DATASET_ONLY_SAYS),
        files=files_of(spec),
        component=_component(catalog, "reader", spec.reader.name),
    )
    if not spec.members:
        return own
    members = tuple(_dataset(catalog, catalog.dataset(id)) for id in spec.members)
    return own.model_copy(update={"members": members})


def _component(catalog: Catalog, kind: str, name: str) -> str:
    """Return a component with its version."""

    def versioned() -> str:
        return f"{name}@{registry.get(kind, name).version}"

    return fact(catalog.root, "version", [kind, name], versioned)


def _comparison(
    catalog: Catalog,
    kind: Literal["metrics", "ceilings"],
    override: str | Override,
    compat: str | None,
) -> ComponentIdentity:
    name = id_of(override)
    spec = catalog.metric(name) if kind == "metrics" else catalog.ceiling(name)
    mode = in_compat(spec, compat)

    def identified() -> dict[str, str]:
        merged, component, _ = resolve(kind, override, catalog, mode)
        parameters = component.canonical(merged.compare.parameters)
        return {
            "id": merged.id,
            "spec_sha256": spec_sha256(merged, without=DESCRIPTIVE | {"compat"}),
            "parameters_sha256": sha256_of(parameters),
            "component": f"{component.name}@{component.version}",
        }

    changed = override.parameters if isinstance(override, Override) else {}
    asked = [kind, spec.model_dump(mode="json", by_alias=True), changed, mode]
    return ComponentIdentity(**fact(catalog.root, "comparison", asked, identified))


def _model(catalog: Catalog, id: str) -> ModelIdentity:
    spec = catalog.model(id)
    if spec.builder is None:
        raise RequestError(f"model {id!r} is unavailable: {spec.unavailable}")
    return ModelIdentity(
        id=id,
        version=spec.version,
        spec_sha256=spec_sha256(spec, without=MODEL_ONLY_SAYS),
        weights={name: pin.sha256 for name, pin in sorted(spec.weights.items())},
        component=_component(catalog, "builder", spec.builder.name),
    )


def current(
    catalog: Catalog, jobs: Sequence[Job], request: Request, *, retry_failed: bool
) -> dict[Job, Known]:
    """Return the records of those jobs that have one that is intact and current, and need not be computed again."""
    scratch = request.limit is not None
    folders = {
        job.benchmark: record_folder(catalog.root, job.benchmark, scratch)
        for job in jobs
    }
    known = known_in(catalog.root, folders.values())
    by_name = {
        benchmark: {each.name: each for each in known[folder]}
        for benchmark, folder in folders.items()
    }
    found: dict[Job, Known] = {}
    for job in jobs:
        record = by_name[job.benchmark].get(f"{job.model}.json")
        if record is not None and _is_current(
            record.summary, job, retry_failed=retry_failed
        ):
            found[job] = record
    return found


def _is_current(summary: Summary, job: Job, *, retry_failed: bool) -> bool:
    """Whether a record is intact and current, and need not be computed again."""
    if summary.id != job.id or not summary.intact:
        return False
    tried_again = retry_failed or not _about_pair(summary.failure)
    return summary.status != "failed" or not tried_again


def _about_pair(kind: str) -> bool:
    """Whether the type of a recorded error says something about the pair.

    Earlier versions recorded states of the machine, such as missing files; those records are computed again. They gave
    them the types ``DataError`` and ``AssemblyError`` too, so records with these are tried again.
    """
    recorded = error_named(kind)
    machine = (PendingError, SpecError, UnknownError, CircleError, DataError)
    return recorded is not None and not issubclass(recorded, machine)
