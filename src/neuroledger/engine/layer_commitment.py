"""Commitment of a model's regions to layers before scoring: by its spec, or by a rule on other stimuli."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from neuroledger.data.dataset import Dataset
from neuroledger.data.images import decode
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.models.model import LayeredModel, Model, unknown
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec, ModelSpec
from neuroledger.spec.model_rules import Rule, rule_of
from neuroledger.stats.score import Score

__all__ = [
    "are_disjoint",
    "commitment_problems",
    "committed",
    "may_share",
    "Rule",
    "rule_of",
    "scored_on",
]

Scoring = Callable[[BenchmarkSpec, Model], Score]

# Coordinates of neuroids: a selection by them does not change the stimuli.
NEUROID_COORDINATES: Final = frozenset(
    {"region", "subject", "neuroid_id", "layer", "hemisphere", "animal"}
)


def committed(
    session: Session,
    model: Model,
    rule: Rule,
    benchmark: BenchmarkSpec,
    data: Dataset,
    load: Callable[[BenchmarkSpec], Dataset],
    score: Scoring,
) -> Model:
    """Return the model with each region of the rule committed to its best layer on the rule's benchmark.

    Of layers with equal scores, the first is chosen.

    Parameters
    ----------
    benchmark, data
        The benchmark on which the model will be scored, and its data.
    load
        Returns the data of another benchmark.
    score
        Returns the score by which layers are compared.

    Raises
    ------
    RequestError
        The rule uses stimuli of ``benchmark``, so that its choice would not be independent of the score.
    ModelError
        The model has no such layers.
    """
    if not isinstance(model, LayeredModel):
        raise ModelError(
            f"model {model.id!r} has no layers to choose from; remove `commit`"
        )
    scored = _stimuli_of(session, benchmark, lambda _: data)
    regions = {}
    for region, chosen_on in rule.on.items():
        other = session.catalog.benchmark(chosen_on)
        shared = _stimuli_of(session, other, load) & scored
        if shared:
            raise RequestError(
                f"model {model.id!r} chooses its layer of {region} on {chosen_on!r}, which shares {len(shared)} "
                f"stimuli with {benchmark.id!r}, so the score would not be independent; choose it on other stimuli"
            )
        if (model.id, region) not in session.layers:
            session.layers[model.id, region] = _best(other, model, region, rule, score)
        regions[region] = session.layers[model.id, region]
    return replace(model, regions={**model.regions, **regions})


def commitment_problems(
    catalog: Catalog, spec: ModelSpec
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Yield the problems of a model's rule, determined from specs only, as (location, message, hint)."""
    try:
        rule = rule_of(spec)
    except RequestError as error:
        yield ("commit",), str(error), "see docs/models.md"
        return
    if rule is None:
        return
    for layer in rule.layers:
        if spec.layers and layer not in spec.layers:
            yield (
                ("commit", "layers"),
                f"no {unknown('layer', layer, spec.layers)}",
                "name one of `layers`",
            )
    known = catalog.ids("benchmarks")
    for region, chosen_on in rule.on.items():
        place: tuple[str | int, ...] = ("commit", "on", region)
        if chosen_on not in known:
            yield (
                place,
                f"no {unknown('benchmark', chosen_on, known)}",
                "name a benchmark of this repository",
            )
            continue
        for scored in scored_on(catalog, spec):
            if may_share(
                catalog, catalog.benchmark(chosen_on), catalog.benchmark(scored)
            ):
                words = f"the layer of {region} is chosen on stimuli of {scored!r}, on which the model is scored"
                yield (
                    place,
                    words,
                    "choose on another data set, or on a disjoint `select` of this one",
                )


def scored_on(catalog: Catalog, spec: ModelSpec) -> list[str]:
    """Return the benchmarks that the model or a suite declares for the model."""
    ids = [id for id in spec.benchmarks if id in catalog.ids("benchmarks")]
    for suite in map(catalog.suite, catalog.ids("suites")):
        if spec.id in suite.models:
            ids += [
                item.id
                for item in suite.benchmarks
                if item.id in catalog.ids("benchmarks")
            ]
    return list(dict.fromkeys(ids))


def may_share(
    catalog: Catalog, chosen_on: BenchmarkSpec, scored: BenchmarkSpec
) -> bool:
    """Whether two benchmarks may share stimuli, according to their specs."""
    if chosen_on.id == scored.id:
        return True
    ours = catalog.dataset(chosen_on.dataset)
    theirs = catalog.dataset(scored.dataset)
    if ours.id != theirs.id:
        return bool(_content_pins(catalog, ours) & _content_pins(catalog, theirs))
    shared = (chosen_on.select.keys() & scored.select.keys()) - NEUROID_COORDINATES
    return not any(
        are_disjoint(chosen_on.select[key], scored.select[key]) for key in shared
    )


def _content_pins(catalog: Catalog, dataset: DatasetSpec) -> set[str]:
    """Return the pins of files that may contain stimuli; not of tables, which may be equal for different images."""
    return {
        pin.sha256
        for part in (dataset, *map(catalog.dataset, dataset.members))
        for name, pin in part.files.items()
        if not name.endswith((".csv", ".tsv", ".txt"))
    }


def are_disjoint(first: object, second: object) -> bool:
    """Whether two selected values, or lists of values, have none in common."""
    sets = [
        set(value) if isinstance(value, list) else {value}
        for value in (first, second)
        if not isinstance(value, dict)
    ]
    return len(sets) == 2 and not sets[0] & sets[1]


def _stimuli_of(
    session: Session, benchmark: BenchmarkSpec, load: Callable[[BenchmarkSpec], Dataset]
) -> frozenset[str]:
    """Return the hashes of a benchmark's stimuli, or their ids if stimuli have no files."""
    if benchmark.id not in session.shown:
        session.shown[benchmark.id] = _contents(load(benchmark), benchmark)
    return session.shown[benchmark.id]


def _contents(data: Dataset, benchmark: BenchmarkSpec) -> frozenset[str]:
    ids = data.stimuli.ids if data.stimuli is not None else []
    if data.assembly is not None and "stimulus_id" in data.assembly.coords:
        ids = list(
            dict.fromkeys(data.assembly["stimulus_id"].values.astype(str).tolist())
        )
    stimuli = data.stimuli
    if stimuli is None or (stimuli.archive is None and stimuli.contents is None):
        return frozenset(f"{benchmark.dataset}:{id}" for id in ids)
    return frozenset(_content(content) for content in stimuli.read(ids))


def _content(file: bytes) -> str:
    """Return the hash of a file's content: the pixels of an image in any format, the bytes of any other file."""
    try:
        image = decode(file, "stimulus")
    except DataError:
        return hashlib.sha256(file).hexdigest()
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()


def _best(
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    region: str,
    rule: Rule,
    score: Scoring,
) -> str:
    """Return the layer with the best score, the first of equals."""
    target = str(benchmark.paradigm.parameters.get("region", region))
    scores = {
        layer: score(benchmark, replace(model, regions={target: layer}))
        for layer in rule.layers or model.layers
    }
    if next(iter(scores.values())).direction == "lower":
        sign = -1
    else:
        sign = 1
    return max(scores, key=lambda layer: sign * float(scores[layer].value))
