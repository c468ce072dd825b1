"""Scores of layers as a region, and the choice of a layer on stimuli that its score does not use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.normalise_input import as_text
from neuroledger.data.screen import place, spanning
from neuroledger.data.threads import exclusive
from neuroledger.engine.evaluate import dummy_of, headline_of
from neuroledger.engine.measurement import Measurement, part_of
from neuroledger.engine.resolve import Resolved, resolve
from neuroledger.engine.score import headline, measure
from neuroledger.engine.session import Session
from neuroledger.errors import CeilingError, DataError, MetricError, RequestError
from neuroledger.families.alignment.layer_curves.plain_score import plain_score
from neuroledger.families.alignment.layer_curves.remembered import memory_of
from neuroledger.families.alignment.layer_curves.stages import (
    depths,
    recordable,
    stages,
)
from neuroledger.models.activations import PROBE
from neuroledger.models.model import LayeredModel, unknown
from neuroledger.models.torch_layers import OUTPUT, TorchExtract
from neuroledger.spec.kinds import BenchmarkSpec, SplitsSpec
from neuroledger.stats.score import Score
from neuroledger.stats.splits import stimuli_of

__all__ = [
    "ALL",
    "Choice",
    "choose",
    "halves",
    "layers_by_depth",
    "region_of",
    "score_layers",
    "with_layers",
]

ALL: Final = "all"
"""In place of layers: every module of the network that runs and answers with a row for each stimulus."""


@dataclass(frozen=True)
class Choice:
    """A layer that was chosen on one half of the stimuli, and its score on the other half.

    Attributes
    ----------
    layer
        The layer with the best score on the choosing half.
    nested
        The score of ``layer`` on the other half, normalised as the benchmark declares; None if there is none.
    reason
        Why there is no such score; empty otherwise.
    chosen_on, scored_on
        Numbers of stimuli of the two halves.
    values
        The score of each layer on the choosing half, before the ceiling; NaN if it is undefined.
    """

    layer: str
    nested: Score | None
    reason: str
    chosen_on: int
    scored_on: int
    values: Mapping[str, float]


def region_of(benchmark: BenchmarkSpec) -> str:
    """Return the region from which a benchmark records.

    Raises
    ------
    RequestError
        It records from none.
    """
    region = benchmark.paradigm.parameters.get("region")
    if region is None:
        raise RequestError(
            f"benchmark {benchmark.id!r} (paradigm {benchmark.paradigm.name!r}) records from no region; "
            "layers are compared on benchmarks that ask for the responses of a region"
        )
    return str(region)


@exclusive()
def layers_by_depth(
    session: Session,
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    layers: Sequence[str] | str = (),
) -> dict[str, float]:
    """Return layers in the order in which they finish, with their relative depth from 0 to 1.

    Parameters
    ----------
    session, benchmark
        Where the stimuli of one forward pass are taken from.
    model
        A model with layers.
    layers
        Names of layers, or ``all``. By default the layers that the model declares, or, for a torch module that declares
        none but those it commits, its stages (:func:`neuroledger.families.alignment.layer_curves.stages.stages`).

    Raises
    ------
    RequestError
        The model has no such layer.
    """
    if not isinstance(model.extract, TorchExtract):
        if layers and layers != ALL:
            names = list(layers)
        else:
            names = list(model.layers)
        for layer in names:
            if layer not in model.layers:
                raise RequestError(f"no {unknown('layer', layer, model.layers)}")
        return {layer: number / len(names) for number, layer in enumerate(names, 1)}
    job = resolve(
        session, benchmark, _committed(model, model.layers[0], benchmark), headline_of
    )
    if job.data.stimuli is None:
        raise DataError(f"data set {job.data.id!r} has no stimuli to show to a model")
    first = job.data.stimuli.select(job.data.stimuli.ids[:PROBE])
    presented = spanning(
        first,
        job.parameters.get("visual_degrees"),
        job.parameters.get("screen", "visual_degrees"),
    )
    shown = place(presented, model.visual_degrees)
    runs = model.extract.trace(shown, shown.ids)
    known = [run.name for run in recordable(runs)]
    if layers == ALL:
        names = known
    elif layers:
        if isinstance(layers, str):
            names = [layers]
        else:
            names = list(layers)
    else:
        names = stages(runs) if model.only_commits else list(model.layers)
    names = names or [OUTPUT]
    for layer in names:
        if layer not in known and layer != OUTPUT:
            raise RequestError(f"no {unknown('layer', layer, known)} that runs")
    depth = depths(runs, names)
    order = {name: at for at, name in enumerate(known)}
    return {
        layer: depth[layer]
        for layer in sorted(names, key=lambda name: order.get(name, len(order)))
    }


def score_layers(
    session: Session,
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    layers: Sequence[str],
) -> dict[str, Score]:
    """Return the benchmark's headline for each layer as the region; all layers are recorded in one pass.

    Raises
    ------
    NeuroLedgerError
        A layer cannot be scored.
    """
    recorded = with_layers(model, layers)

    def compute(layer: str) -> Score:
        own = _committed(recorded, layer, benchmark)
        try:
            return headline_of(session, benchmark, own)
        except CeilingError:  # which no layer changes
            raise
        except MetricError as error:
            raise MetricError(
                f"layer {layer!r} (it can be left out): {error}"
            ) from error

    # Absent, damaged or invalid data are an error also where a score is remembered.
    resolve(session, benchmark, _committed(recorded, layers[0], benchmark), headline_of)
    return memory_of(session, benchmark, recorded).scores(layers, compute)


def choose(
    session: Session,
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    scores: Mapping[str, Score],
) -> Choice:
    """Choose a layer on one half of the stimuli, and score it on the other half.

    Layers are compared by the benchmark's metric, computed on the choosing half alone as if there were no other data:
    also the splits of the metric, and what is trained, are of that half. The chosen layer is then scored as in
    ``scores``, with the same splits, training stimuli and ceiling, but only stimuli of the other half are in the test
    parts; a metric without splits compares the stimuli of the other half. So no stimulus that tests the chosen layer
    has a part in its choice, for any metric. The halves are drawn with the seed of the request
    (:func:`halves`).

    Parameters
    ----------
    scores
        Scores of all layers, from :func:`score_layers`. If the stimuli cannot be divided, the best of these is chosen, and
        the choice has no nested score.
    """
    layers = list(scores)
    memory = memory_of(session, benchmark, with_layers(model, layers))
    name = ("choice", *layers)
    known = memory.recall([name]).get(name)

    def again() -> Score:
        nested = _chosen(session, benchmark, model, scores).nested
        if nested is None:
            raise MetricError("the chosen layer no longer has a score")
        return nested

    if known is not None:
        nested = memory.score(name, known.pop("nested"), again)
        return Choice(nested=nested, **known)
    choice = _chosen(session, benchmark, model, scores)
    if choice.nested is None or choice.nested.status != "scored":
        return choice
    plain = {**vars(choice), "nested": plain_score(choice.nested)}
    memory.remember({name: plain})
    return replace(choice, nested=memory.watched(name, choice.nested))


@exclusive()
def _chosen(
    session: Session,
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    scores: Mapping[str, Score],
) -> Choice:
    layers = list(scores)
    recorded = with_layers(model, layers)
    sign = -1.0 if next(iter(scores.values())).direction == "lower" else 1.0
    bare = benchmark.model_copy(update={"floor": None, "normalise": "none"})
    values: dict[str, float] = {}
    try:
        first, measured = _measured(session, bare, recorded, layers[0])
        metric = first.metrics[first.first]
        choosing, other = halves(
            metric.spec.splits, measured.target, session.request.seed
        )
        for layer in layers:
            job, measured = _measured(session, bare, recorded, layer)
            values[layer] = _value(job, part_of(measured, choosing), session)
        ranked = {
            layer: sign * value
            for layer, value in values.items()
            if math.isfinite(value)
        }
        if not ranked:
            raise MetricError(
                "the score of every layer on the choosing half is undefined"
            )
        layer = max(ranked, key=lambda name: ranked[name])
        nested = _scored_on(
            session, benchmark, _committed(recorded, layer, benchmark), other
        )
    except (MetricError, DataError) as error:
        best = max(layers, key=lambda name: sign * scores[name].value)
        return Choice(best, None, str(error), 0, 0, values)
    return Choice(layer, nested, "", len(choosing), len(other), values)


def halves(
    spec: SplitsSpec | None, assembly: xr.DataArray, seed: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Divide the stimuli of an assembly into two random halves, which share no unit that a metric's splits keep together.

    Units are the values of ``groups`` or ``by`` of the splits, if the presentations have them, otherwise stimuli. With
    ``stratify`` each class is halved, as far as its units allow.

    Parameters
    ----------
    spec
        The splits of the metric, or None.
    assembly
        (presentation, …) with stimulus_id.
    seed
        Seed of the order in which units are dealt out alternately.

    Raises
    ------
    MetricError
        The presentations have no stimuli, or there are fewer than two units.
    """
    stimuli = stimuli_of(assembly)
    if spec is None:
        named = None
    else:
        named = spec.groups or spec.by
    known = (
        named is not None
        and named in assembly.coords
        and assembly[named].dims == ("presentation",)
    )
    labels = as_text(assembly[named].values) if known else stimuli
    units, first, of_row = np.unique(labels, return_index=True, return_inverse=True)
    if len(units) < 2:
        raise MetricError(
            f"{len(units)} value of {named or 'stimulus_id'!r} cannot be divided into two halves"
        )
    order = np.random.default_rng(seed).permutation(len(units))
    if (
        spec is not None
        and spec.stratify is not None
        and spec.stratify in assembly.coords
    ):
        classes = as_text(assembly[spec.stratify].values)[first]
        order = order[np.argsort(classes[order], kind="stable")]
    second = np.zeros(len(units), dtype=bool)
    second[order[1::2]] = True
    choosing = frozenset(stimuli[~second[of_row]].tolist())
    # A stimulus with rows in units of both halves belongs to the first one.
    return choosing, frozenset(stimuli[second[of_row]].tolist()) - choosing


def with_layers(model: LayeredModel, layers: Sequence[str]) -> LayeredModel:
    """Return the model with these layers, all of which one pass records, and no commitments."""
    return replace(
        model, layers=tuple(layers), regions={}, readout=None, logits=None, labels=()
    )


def _committed(
    model: LayeredModel, layer: str, benchmark: BenchmarkSpec
) -> LayeredModel:
    return replace(model, regions={region_of(benchmark): layer})


def _measured(
    session: Session, benchmark: BenchmarkSpec, model: LayeredModel, layer: str
) -> tuple[Resolved, Measurement]:
    job = resolve(session, benchmark, _committed(model, layer, benchmark), headline_of)
    return job, measure(job, session)


def _value(job: Resolved, measured: Measurement, session: Session) -> float:
    """Return the score before the ceiling; NaN if it is undefined, as for constant responses."""
    try:
        return headline(job, measured, session, None).value
    except MetricError:
        return math.nan


def _scored_on(
    session: Session,
    benchmark: BenchmarkSpec,
    model: LayeredModel,
    stimuli: frozenset[str],
) -> Score:
    job = resolve(session, benchmark, model, headline_of)
    dummy = None
    if job.benchmark.normalised_by == "floor":
        dummy = dummy_of(session, job)
    return headline(job, replace(measure(job, session), tested=stimuli), session, dummy)
