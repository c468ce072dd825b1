"""Inference: a trained network answers labelled data; answers and costs come from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from neuroledger.data.dataset import Dataset
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.cost import read_costs
from neuroledger.families.efficiency.counting.counts import Need, Trace
from neuroledger.families.efficiency.networks.answers import (
    answers,
    forecast,
    incremental,
)
from neuroledger.families.efficiency.networks.trainable_model import Learner, Task
from neuroledger.families.efficiency.simulated_detections import simulated_answers
from neuroledger.spec.base import Override, id_of
from neuroledger.spec.catalog import Catalog, open_definitions
from neuroledger.spec.registry import paradigm

__all__ = ["inference"]

COUNTED: tuple[Need, ...] = ("weights", "operations", "activations", "membranes")


@paradigm(
    "inference",
    version=3,
    shows={"signals", "training"},
    asks=lambda values: {f"answers:{values['task']}", "costs"},
    itself=False,
    permuted=None,
    simulates=simulated_answers,
)
def inference(
    model: Learner,
    data: Dataset,
    *,
    task: Task = "classification",
    target: str | tuple[str, ...] = "label",
    split: str = "split",
    increments: tuple[tuple[str, ...], ...] = (),
    session: str = "session",
    shots: PositiveInt = 5,
    count: tuple[Need, ...] = COUNTED,
    mode: Literal["strict", "neurobench-2.3"] = "strict",
    train: Annotated[int, Field(gt=1)] = 750,
    test: PositiveInt = 750,
    windows: PositiveInt = 30,
    stride: PositiveFloat = 37.5,
    per_time: PositiveFloat = 75.0,
    metrics: Sequence[str | Override] = (),
    catalog: Catalog | None = None,
) -> Measurement:
    """Return answers to the test part with the truth, and the trace of the same pass.

    Parameters
    ----------
    model
        A trainable network; it is trained on the training part, or has stored weights.
    data
        An assembly (presentation, neuroid, time_bin). For all tasks except forecasts, presentations have coordinates
        ``target`` and ``split`` (train, test; others are ignored). A ``regression`` may have several targets. The
        target of a ``detection`` is text: a JSON list of boxes ``[label, x1, y1, x2, y2]``. For a ``forecast``, each
        presentation is a series.
    increments, session, shots
        Incremental learning: the classes of each session after the first, which has all others; or, if none are
        listed, the coordinate that numbers the sessions from 0. In later sessions, at most ``shots``
        training presentations of each class are shown, the first ones in the order of the data.
    count, mode
        What is counted during the pass, and the counting mode.
    train, test, windows, stride
        Forecasts: numbers of values to train on and to predict, number of windows, and the stride between them. In the
        test the first input is true, and each later one is the previous answer.
    per_time
        Forecasts: values per unit of the horizon (a Lyapunov time).

    Raises
    ------
    DataError
        The data do not have what the task needs.
    ModelError
        The model is not a trainable network, does not support the task, or fails.
    """
    if not isinstance(model, Learner):
        raise ModelError(
            f"model {getattr(model, 'id', model)!r} is not a trainable network: it does not support {task}"
        )
    if task not in model.tasks:
        raise ModelError(
            f"model {model.id!r} does not support {task}, only {', '.join(model.tasks)}"
        )
    assembly = data.assembly
    if assembly is None or set(assembly.dims) != {
        "presentation",
        "neuroid",
        "time_bin",
    }:
        raise DataError(
            f"data set {data.id!r} has no assembly (presentation, neuroid, time_bin)"
        )
    assembly = assembly.transpose("presentation", "neuroid", "time_bin")
    if task == "forecast":
        return _with_costs(
            *forecast(
                model, assembly, count, mode, train, test, windows, stride, per_time
            ),
            metrics,
            catalog,
        )
    names = (target,) if isinstance(target, str) else target
    if task == "incremental":
        answered = incremental(
            model, assembly, names, split, increments or session, shots, count, mode
        )
    else:
        answered = answers(model, assembly, task, names, split, count, mode)
    return _with_costs(*answered, metrics, catalog)


def _with_costs(
    measured: Measurement,
    trace: Trace | None,
    metrics: Sequence[str | Override],
    catalog: Catalog | None,
) -> Measurement:
    """Add the scores of the metrics that are read from the trace of the pass."""
    metrics_by_id = {id_of(item): item for item in metrics}
    costs = (
        read_costs(metrics_by_id, trace, catalog or open_definitions())
        if trace is not None
        else {}
    )
    return replace(measured, costs=costs, trace=trace)
