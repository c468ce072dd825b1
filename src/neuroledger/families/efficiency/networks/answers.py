"""What a network answers to the test part of labelled data, beside the truth: classes, numbers, or boxes in scenes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Indices, Singles, Strings
from neuroledger.data.threads import exclusive
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.counting.counts import Mode, Need, Trace
from neuroledger.families.efficiency.networks.trainable_model import (
    Examples,
    Learner,
    Presentations,
    Task,
    in_batches,
    shown,
)
from neuroledger.models.model import fit

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.families.efficiency.counting.counts import Trace

__all__ = ["answered", "answers", "coordinates", "forecast", "incremental"]

CORNERS = ("x1", "y1", "x2", "y2")
UNCOUNTED = "the preparation of the input is not part of the network: it is not counted"


def answers(
    model: Learner,
    assembly: xr.DataArray,
    task: Task,
    targets: Sequence[str],
    split: str,
    count: tuple[Need, ...],
    mode: Mode,
) -> tuple[Measurement, Trace | None]:
    """Answers of the model, made ready on the training part, to the test part, with the trace of that pass.

    Raises
    ------
    DataError
        A coordinate is missing or has no test part, or boxes are not written as boxes.
    ModelError
        The answers do not have the shape of the task.
    """
    rows = parts_of(assembly, split, targets)
    if task != "regression" and len(targets) != 1:
        raise DataError(f"a {task} has one target, not {', '.join(targets)}")
    classes: list[str] = []
    learnt: Array
    if task == "regression":
        truth = np.stack([assembly[name].values.astype(np.float64) for name in targets], axis=1)
        learnt = truth[rows["train"]]
    elif task == "classification":
        truth = assembly[targets[0]].values.astype(str)
        classes = np.unique(truth[np.concatenate(list(rows.values()))]).tolist()
        learnt = np.searchsorted(classes, truth[rows["train"]])
    else:
        boxes = [_boxes(text, targets[0]) for text in assembly[targets[0]].values]
        classes = sorted({str(label) for scene in boxes for label, *_ in scene})
        learnt = _numbered([boxes[row] for row in rows["train"]], classes)
    examples = Examples(shown(assembly, rows["train"], model.prepare), learnt, classes)
    module = fit(model, f"answers:{task}", examples)
    given, counted = answered(model, module, shown(assembly, rows["test"], model.prepare), count, mode)
    coords = coordinates(assembly, rows["test"])
    if task == "detection":
        source, target = _detected(model, given, [boxes[row] for row in rows["test"]], classes, coords)
        return Measurement(source, target), counted
    expected = len(classes) or len(targets)
    if given.shape != (len(rows["test"]), expected):
        raise ModelError(f"model {model.id!r} answered {given.shape}, not {(len(rows['test']), expected)}")
    over: tuple[str, ...] = ("presentation",)
    if task == "classification":
        source = xr.DataArray(given, dims=("presentation", "choice"), coords={**coords, "choice": classes})
        return Measurement(source, xr.DataArray(truth[rows["test"]], dims=over, coords=coords)), counted
    if len(targets) > 1:
        over, coords = ("presentation", "output"), {**coords, "output": list(targets)}
        right = truth[rows["test"]]
    else:
        given, right = given[:, 0], truth[rows["test"], 0]
    source = xr.DataArray(given, dims=over, coords=coords)
    return Measurement(source, xr.DataArray(right, dims=over, coords=coords)), counted


def parts_of(assembly: xr.DataArray, split: str, targets: Sequence[str]) -> dict[str, Indices]:
    """Rows of the training and of the test part.

    Raises
    ------
    DataError
        A target or the split is no coordinate of the presentations, or there is no test part.
    """
    for name in (*targets, split):
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise DataError(f"presentations have no coordinate {name!r}")
    parts = assembly[split].values.astype(str)
    rows = {part: np.flatnonzero(parts == part) for part in ("train", "test")}
    if not len(rows["test"]):
        raise DataError(f"no presentation has {split} = test")
    return rows


def answered(
    model: Learner,
    module: nn.Module,
    inputs: Singles | Presentations,
    count: tuple[Need, ...],
    mode: Mode,
) -> tuple[Array, Trace]:
    """The module's answers to all inputs, in batches, and what they cost."""
    import torch

    from neuroledger.families.efficiency.counting.run_trace import trace

    held = next(iter(module.parameters()), None)
    device = held.device if held is not None else "cpu"
    found: list[Array] = []
    counted = trace(
        module,
        (torch.from_numpy(batch).to(device) for batch in in_batches(inputs, model.batch)),
        needs=count,
        mode=mode,
        receive=lambda _, answer: found.append(answer.detach().cpu().to(torch.float64).numpy()),
    )
    if model.prepare is not None:
        counted = replace(counted, notes=(*counted.notes, UNCOUNTED))
    return np.concatenate(found), counted


def coordinates(assembly: xr.DataArray, rows: Indices) -> dict[str, Any]:
    """The coordinates of some presentations."""
    return {
        str(name): ("presentation", coordinate.values[rows])
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }


def _boxes(text: Any, name: str) -> list[list[Any]]:
    try:
        boxes = json.loads(str(text))
        valid = isinstance(boxes, list) and all(
            len(box) == 5 and np.isfinite([float(corner) for corner in box[1:]]).all() for box in boxes
        )
    except (ValueError, TypeError):
        valid = False
    if not valid:
        raise DataError(f"{name} holds boxes as JSON, [[label, x1, y1, x2, y2], …], not {str(text)[:60]!r}")
    return boxes  # type: ignore[no-any-return]


def _numbered(scenes: Sequence[list[list[Any]]], classes: Sequence[str]) -> Array:
    """Boxes as rows: scene, four corners, class number."""
    rows = [
        [scene, *map(float, box[1:]), classes.index(str(box[0]))]
        for scene, boxes in enumerate(scenes)
        for box in boxes
    ]
    return np.asarray(rows, dtype=np.float64).reshape(-1, 6)


def _detected(
    model: Learner,
    given: Array,
    truth: Sequence[list[list[Any]]],
    classes: Sequence[str],
    coords: dict[str, Any],
) -> tuple[xr.DataArray, xr.DataArray]:
    """Boxes found and true boxes, one row each, with their scenes."""
    if given.ndim != 3 or len(given) != len(truth) or given.shape[2] != 4 + len(classes):
        wanted = f"({len(truth)}, box, {4 + len(classes)})"
        raise ModelError(
            f"model {model.id!r} answered {given.shape}, not {wanted}: four corners, then classes"
        )
    scenes = coords["stimulus_id"][1] if "stimulus_id" in coords else np.arange(len(truth)).astype(str)
    scene, box, number = np.nonzero(given[:, :, 4:] > 0)
    found = _rows(
        given[scene, box, :4], scenes[scene], [classes[int(k)] for k in number], given[scene, box, 4 + number]
    )
    rows = _numbered(truth, classes)
    right = _rows(rows[:, 1:5], scenes[rows[:, 0].astype(int)], [classes[int(k)] for k in rows[:, 5]], None)
    return found, right


def _rows(corners: Array, scenes: Array, labels: list[str], scores: Array | None) -> xr.DataArray:
    coords: dict[str, Any] = {
        "corner": list(CORNERS),
        "scene": ("presentation", np.asarray(scenes, dtype=object)),
        "label": ("presentation", np.asarray(labels, dtype=object)),
    }
    if scores is not None:
        coords["score"] = ("presentation", scores)
    return xr.DataArray(corners, dims=("presentation", "corner"), coords=coords)


def incremental(
    model: Learner,
    assembly: xr.DataArray,
    targets: Sequence[str],
    split: str,
    increments: str | Sequence[Sequence[str]],
    shots: int,
    count: tuple[Need, ...],
    mode: Mode,
) -> tuple[Measurement, Trace | None]:
    """Answers after every session to the test presentations of all classes met so far.

    The base session shows all its training presentations; each later one the first ``shots`` of every new class, and
    nothing old again. Answers are rows (session, presentation) with scores by class; a class that was not met yet
    has none (minus infinity). The coordinate ``session`` tells when a row was asked, ``introduced`` when its class
    was new. Costs are those of the last session, when all classes are known.

    Raises
    ------
    DataError
        Classes of an increment are unknown, appear twice, or lack training or test presentations.
    ModelError
        The model cannot learn further, or answers another shape.
    """
    if len(targets) != 1:
        raise DataError(f"incremental learning has one target, not {', '.join(targets)}")
    rows = parts_of(assembly, split, targets)
    labels = assembly[targets[0]].values.astype(str)
    sessions = sessions_of(assembly, labels, increments)
    every = [name for session in sessions for name in session]
    known: list[str] = []
    parts: list[xr.DataArray] = []
    counted: Trace | None = None
    module = None
    for number, fresh in enumerate(sessions):
        known += fresh
        seen = _shown(labels, rows["train"], fresh, shots if number else None)
        asked = rows["test"][np.isin(labels[rows["test"]], known)]
        lacking = [name for name in fresh if name not in labels[asked]]
        if lacking:
            raise DataError(f"class {lacking[0]!r} has no test presentation")
        places = {name: place for place, name in enumerate(known)}
        numbers = np.array([places[name] for name in labels[seen]])
        examples = Examples(shown(assembly, seen, model.prepare), numbers, tuple(known))
        module = fit(model, "answers:incremental", examples, module)
        last = number == len(sessions) - 1
        asking = shown(assembly, asked, model.prepare)
        given, counted = answered(model, module, asking, count if last else (), mode)
        if given.shape != (len(asked), len(known)):
            raise ModelError(f"model {model.id!r} answered {given.shape}, not {(len(asked), len(known))}")
        scores = np.full((len(asked), len(every)), -np.inf)
        scores[:, : len(known)] = given
        met = [next(s for s, names in enumerate(sessions) if name in names) for name in labels[asked]]
        coords = coordinates(assembly, asked) | {
            "session": ("presentation", np.full(len(asked), number)),
            "introduced": ("presentation", np.array(met)),
            "truth": ("presentation", labels[asked]),
        }
        if "stimulus_id" in coords:
            ids = [f"{name}.s{number}" for name in coords["stimulus_id"][1].astype(str)]
            coords["stimulus_id"] = ("presentation", np.asarray(ids, dtype=object))
        coords["choice"] = every
        parts.append(xr.DataArray(scores, dims=("presentation", "choice"), coords=coords))
    source = xr.concat(parts, "presentation")
    target = source["truth"].drop_vars("truth").astype(str)
    note = "costs are those of the last session, when all classes are known"
    traced = None if counted is None else replace(counted, notes=(*counted.notes, note))
    return Measurement(source.drop_vars("truth"), target), traced


def sessions_of(
    assembly: xr.DataArray, labels: Strings, increments: str | Sequence[Sequence[str]]
) -> list[list[str]]:
    """The classes that are new in each session: the base session's, then those of each increment.

    Raises
    ------
    DataError
        An increment names a class that does not exist or that another has too; or a coordinate gives one class to
        several sessions, or does not begin with session 0.
    """
    names = np.unique(labels).tolist()
    if not isinstance(increments, str):
        listed = [str(name) for group in increments for name in group]
        wrong = [name for name in listed if name not in names or listed.count(name) > 1]
        if wrong:
            raise DataError(f"class {wrong[0]!r} of an increment does not exist, or is in several")
        groups = [[name for name in names if name not in listed], *(list(map(str, g)) for g in increments)]
    else:
        if increments not in assembly.coords or assembly[increments].dims != ("presentation",):
            raise DataError(f"presentations have no coordinate {increments!r}, and no increments are listed")
        numbers = assembly[increments].values.astype(int)
        of = {name: set(numbers[labels == name].tolist()) for name in names}
        split = [name for name, found in of.items() if len(found) > 1]
        if split:
            raise DataError(f"class {split[0]!r} is in several sessions")
        groups = [[n for n in names if of[n] == {s}] for s in range(int(numbers.max()) + 1)]
    if len(groups) < 2 or not all(groups):
        raise DataError(
            "incremental learning needs a base session and at least one increment, none of them empty"
        )
    return groups


def _shown(labels: Strings, train: Indices, fresh: Sequence[str], shots: int | None) -> Indices:
    """Training rows of new classes, in the order of the data; no more than ``shots`` of each."""
    found = []
    for name in fresh:
        own = train[labels[train] == name]
        if len(own) < (shots or 1):
            raise DataError(f"class {name!r} has {len(own)} training presentations, fewer than {shots or 1}")
        found.append(own[:shots])
    rows: Indices = np.sort(np.concatenate(found))
    return rows


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
) -> tuple[Measurement, Trace | None]:
    """Closed-loop forecasts of every window of every series; costs are per value, of the first window."""
    rows: dict[str, list[Any]] = {name: [] for name in ("stimulus_id", "series", "step", "answer", "truth")}
    counted: Trace | None = None
    with _one_thread():
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
                module = fit(
                    model, "answers:forecast", Examples(piece[None, None, :train], piece[1 : train + 1])
                )
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
    return Measurement(source, right), traced


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for BLAS and torch: a chaotic series turns the order of a sum into another forecast."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with exclusive():
        before = torch.get_num_threads()
        with threadpool_limits(1):
            torch.set_num_threads(1)
            try:
                yield
            finally:
                torch.set_num_threads(before)


def _closed_loop(
    module: nn.Module, first: float, steps: int, count: tuple[Need, ...] | None, mode: Any
) -> tuple[list[float], Trace | None]:
    """Answers fed back as inputs, and what they cost where that is wanted."""
    import torch

    from neuroledger.families.efficiency.counting.run_trace import trace

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
        carry_state=True,
        receive=lambda _, answer: answers.append(float(answer)),
    )
