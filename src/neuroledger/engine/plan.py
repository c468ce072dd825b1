"""Suite × models to jobs, each with the identity of everything that determines its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from neuroledger.data.fetch import absent
from neuroledger.engine.layer_commitment import rule_of
from neuroledger.engine.overrides import in_compat, resolve
from neuroledger.engine.session import Request
from neuroledger.errors import RequestError, SpecError
from neuroledger.models.model import Model
from neuroledger.spec import registry
from neuroledger.spec.base import DESCRIPTIVE, Override, id_of, sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.channels import Interface
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec, SuiteSpec
from neuroledger.spec.load import explain

__all__ = [
    "Job", "Plan", "fits", "inputs_of", "interface", "lacking", "other_models", "parameters_of", "plan",
    "require_compatible", "some", "unavailable",
]  # fmt: skip

SCHEMA_VERSION = 1
LISTED_FILES = 1000
# Fields that decide whether data may be used or how they are shown, not what a score is.
DATASET_ONLY_SAYS = DESCRIPTIVE | {
    "license", "license_note", "access", "access_steps", "source", "species", "modality", "expectations",
    "unavailable", "unread", "defects", "simulated",
}  # fmt: skip
BENCHMARK_ONLY_SAYS = DESCRIPTIVE | {"unavailable", "defects"}
MODEL_ONLY_SAYS = DESCRIPTIVE | {
    "control", "benchmarks", "license", "unavailable", "simulated", "pretraining",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One model on one benchmark; ``id`` is its identity, the hash of ``inputs``."""

    model: str
    benchmark: str
    id: str
    inputs: dict[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Plan:
    """The jobs of a request, and what gives none.

    Attributes
    ----------
    jobs
        Benchmark by benchmark, control models first.
    incompatible
        Pairs (model, benchmark) that were asked for and cannot be scored, with what the model lacks.
    unavailable
        Benchmarks and models that are unavailable, with the reason.
    """

    jobs: tuple[Job, ...]
    incompatible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def notes(self) -> Iterator[str]:
        """One line on incompatible pairs, if there are any: how many, and why."""
        if not self.incompatible:
            return
        models: dict[tuple[str, str], list[str]] = {}
        for (model, benchmark), lacks in self.incompatible.items():
            models.setdefault((model, lacks), []).append(benchmark)
        words = [
            f"{model} lacks {lacks} for {some(benchmarks)}" for (model, lacks), benchmarks in models.items()
        ]
        pairs = len(self.incompatible)
        yield f"skipped {pairs} incompatible {'pair' if pairs == 1 else 'pairs'}: {'; '.join(words)}"


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def plan(
    catalog: Catalog,
    *,
    models: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
    suites: Sequence[SuiteSpec] = (),
    request: Request,
) -> Plan:
    """The jobs of a request.

    ``models`` take the place of those that the suites name; a suite (or list of benchmarks) that names none is for
    every model of the repository that fits. What is unavailable and what is incompatible gives no job.

    Raises
    ------
    RequestError
        Unknown ids, or nothing asked.
    SpecError
        A spec that is needed is wrong.
    """
    asked = [(item.id, models or suite.models) for suite in suites for item in suite.benchmarks]
    asked += [(id, models) for id in benchmarks]
    if not asked:
        raise RequestError("nothing to run: name a suite or benchmarks")
    jobs: dict[tuple[str, str], Job] = {}
    incompatible: dict[tuple[str, str], str] = {}
    closed = {id: why for id in models if (why := catalog.model(id).unavailable) is not None}
    for id, named in asked:
        benchmark = catalog.benchmark(id)
        reason = unavailable(catalog, benchmark)
        if reason is not None:
            closed[id] = reason
            continue
        controls = () if models else (*benchmark.controls.positive, *benchmark.controls.negative)
        for model in dict.fromkeys((*controls, *(named or catalog.own("models")))):
            if (id, model) in jobs or model in closed:
                continue
            if not models and not fits(catalog, model, id):
                continue
            lacks = lacking(catalog, model, id)
            if lacks:
                incompatible[model, id] = ", ".join(lacks)
                continue
            inputs = inputs_of(catalog, benchmark, model, request)
            jobs[id, model] = Job(model, id, sha256_of(inputs), inputs)
    return Plan(tuple(jobs.values()), incompatible, closed)


def unavailable(catalog: Catalog, benchmark: BenchmarkSpec) -> str | None:
    """Why a benchmark cannot be scored now: its own reason, that of its data set, or private data that are not here."""
    data = catalog.about(benchmark.dataset)
    reason = benchmark.unavailable or data.closed
    if reason is None and data.access == "private" and absent(catalog, "datasets", data.id) is not None:
        return f"the data are private and not here; `neuroledger fetch {data.id}` brings them to those who may have them"
    return reason


def fits(catalog: Catalog, model: str, benchmark: str) -> bool:
    """Whether a model is meant for a benchmark: available, compatible, and not bound to other benchmarks only.

    A model is bound by its field `benchmarks`: to benchmarks by their id, data set, parent or paradigm, or by what their
    paradigm asks (`decoding.regression`).
    """
    spec, wanted = catalog.model(model), catalog.benchmark(benchmark)
    if spec.unavailable is not None or lacking(catalog, model, benchmark):
        return False
    if not spec.benchmarks:
        return True
    paradigm = wanted.paradigm.name
    asked = interface(catalog.entry("benchmarks", benchmark), catalog.about(wanted.dataset).stimuli)
    addresses = {f"{paradigm}.{name.partition(':')[2]}" for name in (asked.outputs if asked else ())}
    return not {wanted.id, wanted.dataset, wanted.parent, paradigm, *addresses}.isdisjoint(spec.benchmarks)


def lacking(catalog: Catalog, model: str, benchmark: str) -> list[str]:
    """Channels that a benchmark shows or asks and a model does not have, from their specs; none for a compatible pair."""
    wanted = catalog.benchmark(benchmark)
    asked = interface(catalog.entry("benchmarks", benchmark), catalog.about(wanted.dataset).stimuli)
    own = interface(catalog.entry("models", model), "")
    return [] if own is None or asked is None else [name for part in own.lacking(asked) for name in part]


def require_compatible(catalog: Catalog, benchmark: str, model: Model | str) -> None:
    """Return if a model, or the model of a spec, has all channels of a benchmark.

    Raises
    ------
    RequestError
        It has not, or is not a model; the message says what it takes and gives, what the benchmark shows and asks, and
        what to do.
    """
    spec = catalog.benchmark(benchmark)
    asked = interface(catalog.entry("benchmarks", benchmark), catalog.about(spec.dataset).stimuli)
    if isinstance(model, str):
        id, own = model, interface(catalog.entry("models", model), "")
    elif isinstance(model, Model):
        id, own = model.id, Interface(model.takes, model.gives)
    else:
        raise RequestError(
            f"{type(model).__name__} is not a model: give the id of one, or wrap it so that it says what it takes and "
            "gives: nl.models.torch(module, id=…, regions={…: …}) for responses and decisions; nl.decode(module, x, y) "
            "scores it as a decoder, nl.cost(module, batches) counts its costs"
        )
    inputs, outputs = own.lacking(asked) if own is not None and asked is not None else ([], [])
    if own is None or asked is None or not (inputs or outputs):
        return
    regions = [name.partition(":")[2] for name in outputs if name.startswith("responses:")]
    if regions and any(name.startswith("responses") for name in own.outputs):
        fix = f"commit a layer to the region: `regions: {{{regions[0]}: <layer>}}`"
    elif "dynamics" in outputs:
        fix = "score a model that answers in steps, with its time bins as `times`"
    else:
        fix = f"`neuroledger run --benchmark {benchmark}` scores all models that are compatible"
    raise RequestError(
        f"model {id!r} cannot be scored on {benchmark!r}: it takes {_list(own.inputs)} and gives {_list(own.outputs)}; "
        f"the benchmark shows {_list(asked.inputs)} and asks {_list(asked.outputs)}; {fix}"
    )


def _list(channels: Iterable[str]) -> str:
    return ", ".join(sorted(channels)) or "nothing"


def parameters_of(entry: Entry, kind: str) -> dict[str, Any]:
    """Validated parameters of the `builder` or `paradigm` that a spec names.

    Raises
    ------
    SpecError
        A parameter is unknown or wrong; with its line.
    """
    named = getattr(entry.spec, kind)
    component = registry.get(kind, named.name)
    try:
        return component.bind(named.parameters)
    except ValidationError as error:
        raise SpecError(explain(error, entry.document, component.parameters, (kind,))) from None


@lru_cache(maxsize=8192)
def interface(entry: Entry, stimuli: str) -> Interface | None:
    """What the model of a spec takes and gives, or what a benchmark shows and asks with a data set of these stimuli.

    None where the spec has no builder or wrong parameters; whoever builds it says so.
    """
    spec, values = entry.spec, dict[str, Any]()
    if isinstance(spec, BenchmarkSpec):
        kind, name = "paradigm", spec.paradigm.name
    elif isinstance(spec, ModelSpec) and spec.builder is not None:
        kind, name = "builder", spec.builder.name
        values = {name: getattr(spec, name) for name in ("regions", "layers", "readout", "commit")}
    else:
        return None
    try:
        values |= parameters_of(entry, kind)
    except SpecError:
        return None
    component = registry.get(kind, name)
    found = component.interface(values)
    inputs = {stimuli if name == "stimuli" else name for name in found.inputs}
    return Interface(frozenset(inputs), found.outputs)


def _files(dataset: DatasetSpec) -> dict[str, Any]:
    """The pins of the files; of very many, how many they are and one hash over them, since a record holds its inputs."""
    pins = {name: pin.sha256 for name, pin in sorted(dataset.files.items())}
    return pins if len(pins) <= LISTED_FILES else {"count": len(pins), "sha256": sha256_of(pins)}


def inputs_of(
    catalog: Catalog, benchmark: BenchmarkSpec, model: str | None, request: Request
) -> dict[str, Any]:
    """Everything that determines the outcome of a job, as plain data."""
    dataset = catalog.dataset(benchmark.dataset)
    if dataset.reader is None:
        raise RequestError(f"data set {dataset.id!r} is unavailable: {dataset.closed}")
    inputs: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": {
            "id": benchmark.id,
            "version": benchmark.version,
            "spec_sha256": spec_sha256(benchmark, without=BENCHMARK_ONLY_SAYS),
        },
        "dataset": {
            "id": dataset.id,
            "version": dataset.version,
            "spec_sha256": spec_sha256(dataset, without=DATASET_ONLY_SAYS),
            "files": _files(dataset),
            "component": _component("reader", dataset.reader.name),
        },
        "paradigm": _component("paradigm", benchmark.paradigm.name),
        "metrics": [_bound(catalog, "metrics", wanted, benchmark.compat) for wanted in benchmark.all_metrics],
        "ceiling": None
        if benchmark.ceiling is None
        else _bound(catalog, "ceilings", benchmark.ceiling, benchmark.compat),
        "seed": request.seed,
        "limit": request.limit,
        "device": request.device.split(":")[0],
    }
    inputs["controls"] = {id: _model(catalog, id) for id in sorted(other_models(benchmark))}
    if model is not None:
        inputs["model"] = _model(catalog, model)
        rule = rule_of(catalog.model(model))
        if rule is not None:
            chosen_on = sorted(set(rule.on.values()))
            inputs["commitment"] = {
                id: inputs_of(catalog, catalog.benchmark(id), None, request) for id in chosen_on
            }
    return inputs


def other_models(benchmark: BenchmarkSpec) -> set[str]:
    """Models whose scores are part of every score on a benchmark: its controls, and the dummy of its floor."""
    floor = () if benchmark.floor is None else (benchmark.floor.dummy, benchmark.floor.fallback)
    named = (*benchmark.controls.positive, *benchmark.controls.negative, *floor)
    return {id for id in named if isinstance(id, str)}


def _component(kind: str, name: str) -> str:
    return f"{name}@{registry.get(kind, name).version}"


def _bound(catalog: Catalog, kind: Any, wanted: str | Override, compat: str | None) -> dict[str, Any]:
    name = id_of(wanted)
    spec = catalog.metric(name) if kind == "metrics" else catalog.ceiling(name)
    merged, component, _ = resolve(kind, wanted, catalog, in_compat(spec, compat))
    return {
        "id": merged.id,
        "spec_sha256": spec_sha256(merged, without=DESCRIPTIVE | {"compat"}),
        "parameters_sha256": sha256_of(component.canonical(merged.compare.parameters)),
        "component": f"{component.name}@{component.version}",
    }


def _model(catalog: Catalog, id: str) -> dict[str, Any]:
    spec = catalog.model(id)
    if spec.builder is None:
        raise RequestError(f"model {id!r} is unavailable: {spec.unavailable}")
    component = registry.get("builder", spec.builder.name)
    return {
        "id": id,
        "version": spec.version,
        "spec_sha256": spec_sha256(spec, without=MODEL_ONLY_SAYS),
        "weights": {name: pin.sha256 for name, pin in sorted(spec.weights.items())},
        "component": f"{component.name}@{component.version}",
    }
