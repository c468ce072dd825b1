"""Inference: a trained network answers labelled data; what it answered and what that cost come from one pass."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from neuroledger.core.dataset import Dataset
from neuroledger.core.measurement import Measurement
from neuroledger.core.networks.answers import answers
from neuroledger.core.networks.forecasts import forecast
from neuroledger.core.networks.increments import incremental
from neuroledger.core.networks.learner import Learner, Task
from neuroledger.core.registry import paradigm
from neuroledger.core.trace.counts import Need
from neuroledger.errors import DataError, ModelError

__all__ = ["inference"]

COUNTED: tuple[Need, ...] = ("weights", "operations", "activations", "membranes")


@paradigm("inference", version=2)
def inference(
    model: Learner,
    data: Dataset,
    *,
    task: Task = "classification",
    target: str | tuple[str, ...] = "label",
    split: str = "split",
    increments: tuple[tuple[str, ...], ...] = (),
    session: str = "session",
    shots: Annotated[int, Field(gt=0)] = 5,
    count: tuple[Need, ...] = COUNTED,
    mode: Literal["strict", "neurobench-2.3"] = "strict",
    train: Annotated[int, Field(gt=1)] = 750,
    test: Annotated[int, Field(gt=0)] = 750,
    windows: Annotated[int, Field(gt=0)] = 30,
    stride: Annotated[float, Field(gt=0)] = 37.5,
    per_time: Annotated[float, Field(gt=0)] = 75.0,
) -> Measurement:
    """Answers to the test part beside the truth, with the trace of the same pass.

    Parameters
    ----------
    model
        A learner; it is made ready on the training part, or comes trained.
    data
        An assembly (presentation, neuroid, time_bin). For all but forecasts, presentations carry ``target`` and
        ``split`` (train, test; others are left aside). A ``regression`` may have several targets. The target of a
        ``detection`` is text: a JSON list of boxes ``[label, x1, y1, x2, y2]``. For a ``forecast``, each presentation
        is a series.
    increments, session, shots
        Incremental learning: the classes of each session after the first, which has all others; or, where none are
        listed, the coordinate that numbers the sessions from 0. After the first, no more than so many training
        presentations of a class are shown, the first ones in the order of the data.
    count, mode
        What is counted on the way, and by whose definitions.
    train, test, windows, stride
        Forecasts: values to learn from and values to foretell, in how many windows, so many values apart. At the
        test the first input is true, and each later one is the answer before.
    per_time
        Forecasts: values per unit of the horizon (a Lyapunov time).

    Raises
    ------
    DataError
        The data lack what the task needs.
    ModelError
        The model is no learner, cannot be asked this, or fails.
    """
    if not isinstance(model, Learner):
        raise ModelError(
            f"model {getattr(model, 'id', model)!r} is no learner: it cannot be asked for {task}"
        )
    if task not in model.tasks:
        raise ModelError(
            f"model {model.id!r} cannot be asked for {task}; it can for {', '.join(model.tasks)}"
        )
    assembly = data.assembly
    if assembly is None or set(assembly.dims) != {"presentation", "neuroid", "time_bin"}:
        raise DataError(f"data set {data.id!r} has no assembly (presentation, neuroid, time_bin)")
    assembly = assembly.transpose("presentation", "neuroid", "time_bin")
    if task == "forecast":
        return forecast(model, assembly, count, mode, train, test, windows, stride, per_time)
    names = (target,) if isinstance(target, str) else target
    if task == "incremental":
        return incremental(model, assembly, names, split, increments or session, shots, count, mode)
    return answers(model, assembly, task, names, split, count, mode)
