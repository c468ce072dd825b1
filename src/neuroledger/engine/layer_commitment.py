"""A model's regions are committed to layers before it is scored: by its spec, or by a rule on other stimuli."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from neuroledger.data.dataset import Dataset
from neuroledger.data.images import decode
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.models.model import LayeredModel, Model, unknown
from neuroledger.spec.base import worded
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec
from neuroledger.stats.score import Score

__all__ = ["Rule", "committed", "commitment_problems", "rule_of"]

Scoring = Callable[[BenchmarkSpec, Model], Score]

# Coordinates of neuroids: selecting different ones leaves the stimuli the same.
NEUROID_COORDINATES: Final = frozenset({"region", "subject", "neuroid_id", "layer", "hemisphere", "animal"})


class Rule(BaseModel):
    """For each region, the benchmark whose best layer is taken; of ``layers``, or of all that the model has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: dict[str, str] = Field(min_length=1)
    layers: tuple[str, ...] = ()


def rule_of(spec: ModelSpec) -> Rule | None:
    """The rule that a model spec declares under ``commit``, if any.

    Raises
    ------
    RequestError
        It is not such a rule.
    """
    if spec.commit is None:
        return None
    try:
        return Rule.model_validate(spec.commit)
    except ValidationError as error:
        words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {worded(one)}" for one in error.errors())
        raise RequestError(
            f"model {spec.id!r}: commit is {{on: {{<region>: <benchmark>}}, layers: [<layer>, …]}}; {words}"
        ) from error


def committed(
    session: Session,
    model: Model,
    rule: Rule,
    benchmark: BenchmarkSpec,
    data: Dataset,
    load: Callable[[BenchmarkSpec], Dataset],
    score: Scoring,
) -> Model:
    """The model, each region of the rule committed to the layer that scores best where the rule says.

    The layers are compared by ``score``; among equals the first layer is taken.

    Parameters
    ----------
    benchmark, data
        What the model is scored on.
    load
        The data of another benchmark.

    Raises
    ------
    RequestError
        The rule looks at stimuli of ``benchmark``: its choice would not be independent of what it is scored on.
    ModelError
        The model has no such layers.
    """
    if not isinstance(model, LayeredModel):
        raise ModelError(f"model {model.id!r} has no layers to choose from: remove `commit`")
    scored = _shown(session, benchmark, lambda one: data)
    regions = {}
    for region, chosen_on in rule.on.items():
        other = session.catalog.benchmark(chosen_on)
        shared = _shown(session, other, load) & scored
        if shared:
            raise RequestError(
                f"model {model.id!r} chooses its layer of {region} on {chosen_on!r}, which shows {len(shared)} of the "
                f"stimuli of {benchmark.id!r}: a score there would not be independent; choose it on other stimuli"
            )
        if (model.id, region) not in session.layers:
            session.layers[model.id, region] = _best(other, model, region, rule, score)
        regions[region] = session.layers[model.id, region]
    return replace(model, regions={**model.regions, **regions})


def commitment_problems(
    catalog: Catalog, spec: ModelSpec
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """What is wrong with a model's rule, as (location, message, hint), from the specs alone."""
    try:
        rule = rule_of(spec)
    except RequestError as error:
        yield ("commit",), str(error), "see docs/models.md"
        return
    if rule is None:
        return
    for layer in rule.layers:
        if spec.layers and layer not in spec.layers:
            yield ("commit", "layers"), f"no {unknown('layer', layer, spec.layers)}", "name one of `layers`"
    known = catalog.ids("benchmarks")
    for region, chosen_on in rule.on.items():
        place: tuple[str | int, ...] = ("commit", "on", region)
        if chosen_on not in known:
            yield place, f"no {unknown('benchmark', chosen_on, known)}", "name a benchmark of this repository"
            continue
        for scored in _scored_on(catalog, spec):
            if _may_share(catalog, catalog.benchmark(chosen_on), catalog.benchmark(scored)):
                words = (
                    f"the layer of {region} is chosen on stimuli of {scored!r}, on which the model is scored"
                )
                yield place, words, "choose on another data set, or on a disjoint `select` of this one"


def _scored_on(catalog: Catalog, spec: ModelSpec) -> list[str]:
    """Benchmarks on which some suite, or the model itself, says that it is scored."""
    found = [one for one in spec.benchmarks if one in catalog.ids("benchmarks")]
    for suite in map(catalog.suite, catalog.ids("suites")):
        if spec.id in suite.models:
            found += [item.id for item in suite.benchmarks if item.id in catalog.ids("benchmarks")]
    return list(dict.fromkeys(found))


def _may_share(catalog: Catalog, chosen_on: BenchmarkSpec, scored: BenchmarkSpec) -> bool:
    """Whether two benchmarks show the same stimuli, as far as their specs tell."""
    if chosen_on.id == scored.id:
        return True
    ours, theirs = catalog.dataset(chosen_on.dataset), catalog.dataset(scored.dataset)
    if ours.id != theirs.id:
        return bool(_content_pins(ours) & _content_pins(theirs))
    shared = (chosen_on.select.keys() & scored.select.keys()) - NEUROID_COORDINATES
    return not any(_disjoint(chosen_on.select[key], scored.select[key]) for key in shared)


def _content_pins(dataset: DatasetSpec) -> set[str]:
    """Pins of the files that may hold stimuli; tables of different images can be equal."""
    return {pin.sha256 for name, pin in dataset.files.items() if not name.endswith((".csv", ".tsv", ".txt"))}


def _disjoint(one: Any, other: Any) -> bool:
    sets = [
        set(value) if isinstance(value, list) else {value}
        for value in (one, other)
        if not isinstance(value, dict)
    ]
    return len(sets) == 2 and not sets[0] & sets[1]


def _shown(
    session: Session, benchmark: BenchmarkSpec, load: Callable[[BenchmarkSpec], Dataset]
) -> frozenset[str]:
    """What a benchmark shows, by content; by id within the data set where stimuli have no files."""
    if benchmark.id not in session.shown:
        session.shown[benchmark.id] = _contents(load(benchmark), benchmark)
    return session.shown[benchmark.id]


def _contents(data: Dataset, benchmark: BenchmarkSpec) -> frozenset[str]:
    ids = data.stimuli.ids if data.stimuli is not None else []
    if data.assembly is not None and "stimulus_id" in data.assembly.coords:
        ids = list(dict.fromkeys(data.assembly["stimulus_id"].values.astype(str).tolist()))
    stimuli = data.stimuli
    if stimuli is None or (stimuli.archive is None and stimuli.contents is None):
        return frozenset(f"{benchmark.dataset}:{id}" for id in ids)
    return frozenset(_content(content) for content in stimuli.read(ids))


def _content(file: bytes) -> str:
    """What a file shows: the pixels of an image, in whatever format it is stored; the bytes of anything else."""
    try:
        image = decode(file, "stimulus")
    except DataError:
        return hashlib.sha256(file).hexdigest()
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()


def _best(benchmark: BenchmarkSpec, model: LayeredModel, region: str, rule: Rule, score: Scoring) -> str:
    """The layer with the best score; the first among equals."""
    asked = str(benchmark.paradigm.parameters.get("region", region))
    scores = {
        layer: score(benchmark, replace(model, regions={asked: layer}))
        for layer in rule.layers or model.layers
    }
    sign = -1 if next(iter(scores.values())).direction == "lower" else 1
    return max(scores, key=lambda layer: sign * float(scores[layer].value))
