"""Every layer of a model on one benchmark: a layer curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.activation_store import attach
from neuroledger.models.model import LayeredModel, Model, unknown
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score

__all__ = ["layer_scores"]


def layer_scores(
    session: Session, benchmark: BenchmarkSpec, model: Model | str, layers: Sequence[str] = ()
) -> dict[str, Score]:
    """The benchmark's headline for each layer in the place of its region, in the model's order of layers.

    The stimuli are shown once: all layers are recorded in the same pass. The scores are for looking at and are not
    recorded; the best of many layers on the same stimuli is an optimistic choice, so that a model commits to its
    layers on other stimuli (``commit`` in its spec).

    Parameters
    ----------
    session
        Where data, models and activations are kept.
    benchmark
        One of the paradigm ``recording``.
    model
        A model with layers, or the id of one.
    layers
        Some of its layers; all that it names where none are given.

    Raises
    ------
    RequestError
        The benchmark records from no region, or the model has no such layer.
    ModelError
        The model has no layers.
    """
    region = benchmark.paradigm.parameters.get("region")
    if region is None:
        raise RequestError(
            f"benchmark {benchmark.id!r} (paradigm {benchmark.paradigm.name!r}) records from no region; "
            "layers are compared on benchmarks of the paradigm 'recording'"
        )
    subject = session.model(model) if isinstance(model, str) else attach(model, session.store)
    if not isinstance(subject, LayeredModel):
        raise ModelError(f"model {subject.id!r} has no layers to compare")
    for layer in layers:
        if layer not in subject.layers:
            raise RequestError(f"no {unknown('layer', layer, subject.layers)}")
    return {
        layer: evaluate(
            session, benchmark, replace(subject, regions={str(region): layer}), controls=False
        ).headline
        for layer in layers or subject.layers
    }
