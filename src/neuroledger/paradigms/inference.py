"""Inference: a trained network answers labelled data; what it answered and what that cost come from one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.core.dataset import Dataset
from neuroledger.core.measurement import Measurement
from neuroledger.core.networks.learner import Examples, Learner, Task
from neuroledger.core.registry import paradigm
from neuroledger.core.trace.counts import Need
from neuroledger.errors import DataError, ModelError

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.core.trace.counts import Trace

__all__ = ["forecast", "inference"]

Array = npt.NDArray[Any]
COUNTED: tuple[Need, ...] = ("weights", "operations", "activations", "membranes")


@paradigm("inference", version=1)
def inference(
    model: Learner,
    data: Dataset,
    *,
    task: Task = "classification",
    target: str = "label",
    split: str = "split",
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
        An assembly (presentation, neuroid, time_bin). For ``classification`` and ``regression``, presentations carry
        ``target`` and ``split`` (train, test). For a ``forecast``, each presentation is a series.
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
    return _answers(model, assembly, task, target, split, count, mode)


def _answers(
    model: Learner,
    assembly: xr.DataArray,
    task: Task,
    target: str,
    split: str,
    count: tuple[Need, ...],
    mode: Any,
) -> Measurement:
    import torch

    from neuroledger.core.trace.passes import trace

    for name in (target, split):
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise DataError(f"presentations have no coordinate {name!r}")
    parts = assembly[split].values.astype(str)
    rows = {part: np.flatnonzero(parts == part) for part in ("train", "test")}
    if not len(rows["test"]):
        raise DataError(f"no presentation has {split} = test")
    classes = np.unique(assembly[target].values.astype(str)).tolist() if task == "classification" else []
    truth = assembly[target].values
    numbers = np.searchsorted(classes, truth.astype(str)) if classes else truth.astype(np.float64)
    values = np.asarray(assembly.values, dtype=np.float32)
    module = model.ready(Examples(values[rows["train"]], numbers[rows["train"]], classes))
    tested = torch.from_numpy(values[rows["test"]]).to(_device(module))
    answers: list[Array] = []
    counted = trace(
        module,
        tested.split(model.batch),
        needs=count,
        mode=mode,
        receive=lambda _, answer: answers.append(answer.detach().cpu().to(torch.float64).numpy()),
    )
    given = np.concatenate(answers)
    expected = len(classes) if classes else 1
    if given.ndim != 2 or given.shape != (len(tested), expected):
        raise ModelError(f"model {model.id!r} answered {given.shape}, not {(len(tested), expected)}")
    coords = {
        str(name): ("presentation", coordinate.values[rows["test"]])
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }
    right = xr.DataArray(truth[rows["test"]], dims=("presentation",), coords=coords)
    if classes:
        source = xr.DataArray(given, dims=("presentation", "choice"), coords={**coords, "choice": classes})
        right = right.astype(str)
    else:
        source = xr.DataArray(given[:, 0], dims=("presentation",), coords=coords)
    return Measurement(source, right, trace=counted)


def forecast(
    model: Learner,
    assembly: xr.DataArray,
    count: tuple[Need, ...],
    mode: Literal["strict", "neurobench-2.3"],
    train: int,
    test: int,
    windows: int,
    stride: float,
    per_time: float,
) -> Measurement:
    """Closed-loop forecasts of every window of every series; costs are per value, of the first window."""
    rows: dict[str, list[Any]] = {name: [] for name in ("stimulus_id", "series", "step", "answer", "truth")}
    counted: Trace | None = None
    for number in range(assembly.sizes["presentation"]):
        name = str(assembly["stimulus_id"].values[number])
        series = np.asarray(assembly.values[number, 0], dtype=np.float64)
        for window in range(windows):
            start = int(window * stride)
            piece = series[start : start + train + test + 1]
            if len(piece) < train + test + 1:
                raise DataError(
                    f"series {name!r} has {len(series)} values, window {window} needs {start + train + test + 1}"
                )
            module = model.ready(Examples(piece[None, None, :train], piece[1 : train + 1]))
            answers, found = _closed_loop(
                module, piece[train], test, count if counted is None else None, mode
            )
            counted = found if counted is None else counted
            rows["stimulus_id"] += [f"{name}.w{window:02d}.k{step:04d}" for step in range(1, test + 1)]
            rows["series"] += [f"{name}.w{window:02d}"] * test
            rows["step"] += range(1, test + 1)
            rows["answer"] += answers
            rows["truth"] += piece[train + 1 :].tolist()
    steps = np.asarray(rows["step"])
    coords = {
        "stimulus_id": ("presentation", np.asarray(rows["stimulus_id"], dtype=object)),
        "series": ("presentation", np.asarray(rows["series"], dtype=object)),
        "horizon": ("presentation", steps / per_time),
    }
    source = xr.DataArray(np.asarray(rows["answer"]), dims=("presentation",), coords=coords)
    notes = ("costs are per value, counted over the first window",)
    right = xr.DataArray(np.asarray(rows["truth"]), dims=("presentation",), coords=coords)
    traced = None if counted is None else replace(counted, notes=(*counted.notes, *notes))
    return Measurement(source, right, trace=traced)


def _closed_loop(
    module: nn.Module, first: float, steps: int, count: tuple[Need, ...] | None, mode: Any
) -> tuple[list[float], Trace | None]:
    """Answers fed back as inputs, and what they cost where that is wanted."""
    import torch

    from neuroledger.core.trace.passes import trace

    answers: list[float] = []
    value = torch.tensor([[first]], dtype=torch.float64)
    if count is None:
        module.eval()
        with torch.no_grad():
            for _ in range(steps):
                value = module(value)
                answers.append(float(value))
        return answers, None

    def inputs() -> Iterator[Any]:
        for step in range(steps):
            yield torch.tensor([[answers[-1] if step else first]], dtype=torch.float64)

    return answers, trace(
        module,
        inputs(),
        needs=count,
        mode=mode,
        time_axis=None,
        receive=lambda _, answer: answers.append(float(answer)),
    )


def _device(module: nn.Module) -> Any:
    import torch

    held = next(iter(module.parameters()), None)
    return held.device if held is not None else torch.device("cpu")
