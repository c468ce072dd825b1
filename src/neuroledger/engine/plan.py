"""Suite × models to jobs, each with the identity of everything that determines its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroledger.engine.bound_metric import resolve
from neuroledger.engine.layer_commitment import rule_of
from neuroledger.engine.session import Request
from neuroledger.errors import RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.identity import DESCRIPTIVE, sha256_of, spec_sha256
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec, SuiteSpec

__all__ = ["Job", "inputs_of", "plan", "unavailable"]

SCHEMA_VERSION = 1
LISTED_FILES = 1000
# Fields that decide whether data may be used or how they are shown, not what a score is.
DATASET_ONLY_SAYS = DESCRIPTIVE | {
    "license", "license_note", "access", "access_steps", "source", "species", "modality", "expectations",
    "unavailable", "defects", "simulated",
}  # fmt: skip
BENCHMARK_ONLY_SAYS = DESCRIPTIVE | {"unavailable", "defects"}
MODEL_ONLY_SAYS = DESCRIPTIVE | {
    "control",
    "benchmarks",
    "license",
    "unavailable",
    "simulated",
    "pretraining",
}


@dataclass(frozen=True)
class Job:
    """One model on one benchmark; ``id`` is its identity, the hash of ``inputs``."""

    model: str
    benchmark: str
    id: str
    inputs: dict[str, Any] = field(compare=False, repr=False)


def plan(
    catalog: Catalog,
    *,
    models: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
    suites: Sequence[SuiteSpec] = (),
    request: Request,
) -> list[Job]:
    """The jobs of a request, benchmark by benchmark, its control models first.

    ``models`` take the place of those that the suites name; a suite (or list of benchmarks) that names none is for
    every model of the repository that fits. Benchmarks and data sets that are unavailable give no job.

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
    for id, named in asked:
        benchmark = catalog.benchmark(id)
        if unavailable(catalog, benchmark):
            continue
        wanted = named or [m for m in catalog.own("models") if fits(catalog.model(m), benchmark)]
        controls = (*benchmark.controls.positive, *benchmark.controls.negative)
        for model in dict.fromkeys((*(controls if not models else ()), *wanted)):
            if (id, model) not in jobs and (models or fits(catalog.model(model), benchmark)):
                inputs = inputs_of(catalog, benchmark, model, request)
                jobs[id, model] = Job(model, id, sha256_of(inputs), inputs)
    return list(jobs.values())


def unavailable(catalog: Catalog, benchmark: BenchmarkSpec) -> str | None:
    """Why a benchmark cannot be scored now: its own reason, or that of its data set."""
    return benchmark.unavailable or catalog.dataset(benchmark.dataset).unavailable


def fits(model: ModelSpec, benchmark: BenchmarkSpec) -> bool:
    """Whether a model is meant for a benchmark: buildable, and not bound to other benchmarks only.

    A model is bound to benchmarks by their id, data set, parent, paradigm (`decoding`) or what that asks
    (`decoding.regression`). A decoder always is; models that are not are shown stimuli.
    """
    if model.unavailable is not None:
        return False
    paradigm = benchmark.paradigm.name
    if not model.benchmarks:
        return paradigm != "decoding"
    asked = f"{paradigm}.{benchmark.paradigm.parameters.get('objective', 'classification')}"
    names = {benchmark.id, benchmark.dataset, benchmark.parent, paradigm, asked}
    return not names.isdisjoint(model.benchmarks)


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
        raise RequestError(f"data set {dataset.id!r} is unavailable: {dataset.unavailable}")
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
    others = [*benchmark.controls.positive, *benchmark.controls.negative]
    if benchmark.floor is not None:
        others += [id for id in (benchmark.floor.dummy, benchmark.floor.fallback) if isinstance(id, str)]
    inputs["controls"] = {id: _model(catalog, id) for id in sorted(set(others))}
    if model is not None:
        inputs["model"] = _model(catalog, model)
        rule = rule_of(catalog.model(model))
        if rule is not None:
            chosen_on = sorted(set(rule.on.values()))
            inputs["commitment"] = {
                id: inputs_of(catalog, catalog.benchmark(id), None, request) for id in chosen_on
            }
    return inputs


def _component(kind: str, name: str) -> str:
    return f"{name}@{registry.get(kind, name).version}"


def _bound(catalog: Catalog, kind: Any, wanted: str | Override, compat: str | None) -> dict[str, Any]:
    name = wanted.name if isinstance(wanted, Override) else wanted
    spec = catalog.metric(name) if kind == "metrics" else catalog.ceiling(name)
    changes = {"compat": compat} if compat is not None and compat in spec.compat else {}
    merged, component, _ = resolve(kind, wanted, catalog, changes)
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
