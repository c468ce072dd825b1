"""Answers of a network to the test part of labelled data, with the truth: classes, numbers, or boxes in scenes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Indices, Singles, Strings, floats
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
    select_presentations,
)
from neuroledger.models.model import fit

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.families.efficiency.counting.counts import Trace

__all__ = ["answers", "coordinates", "forecast", "incremental", "run_network"]

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
    """Train the model on the training part; return its answers to the test part, with the trace of that pass.

    Raises
    ------
    DataError
        A coordinate is missing, there is no test part, or boxes have another format.
    ModelError
        The answers do not have the shape of the task.
    """
    rows = parts_of(assembly, split, targets)
    if task != "regression" and len(targets) != 1:
        raise DataError(f"a {task} has one target, not {', '.join(targets)}")
    classes: list[str] = []
    learnt: Array
    if task == "regression":
        truth = np.stack(
            [assembly[name].values.astype(np.float64) for name in targets], axis=1
        )
        learnt = truth[rows["train"]]
    elif task == "classification":
        truth = assembly[targets[0]].values.astype(str)
        classes = np.unique(truth[np.concatenate(list(rows.values()))]).tolist()
        learnt = np.searchsorted(classes, truth[rows["train"]])
    else:
        boxes = [_boxes(text, targets[0]) for text in assembly[targets[0]].values]
        classes = sorted({str(label) for scene in boxes for label, *_ in scene})
        learnt = _numbered([boxes[row] for row in rows["train"]], classes)
    examples = Examples(
        select_presentations(assembly, rows["train"], model.prepare), learnt, classes
    )
    module = fit(model, f"answers:{task}", examples)
    outputs, traced = run_network(
        model,
        module,
        select_presentations(assembly, rows["test"], model.prepare),
        count,
        mode,
    )
    coords = coordinates(assembly, rows["test"])
    if task == "detection":
        source, target = _detected(
            model, outputs, [boxes[row] for row in rows["test"]], classes, coords
        )
        return Measurement(source, target), traced
    expected = len(classes) or len(targets)
    if outputs.shape != (len(rows["test"]), expected):
        raise ModelError(
            f"model {model.id!r} answered {outputs.shape}, not {(len(rows['test']), expected)}"
        )
    dims: tuple[str, ...] = ("presentation",)
    if task == "classification":
        source = xr.DataArray(
            outputs,
            dims=("presentation", "choice"),
            coords={**coords, "choice": classes},
        )
        return Measurement(
            source, xr.DataArray(truth[rows["test"]], dims=dims, coords=coords)
        ), traced
    if len(targets) > 1:
        dims = ("presentation", "output")
        coords = {**coords, "output": list(targets)}
        truth_of_test = truth[rows["test"]]
    else:
        outputs = outputs[:, 0]
        truth_of_test = truth[rows["test"], 0]
    source = xr.DataArray(outputs, dims=dims, coords=coords)
    return Measurement(
        source, xr.DataArray(truth_of_test, dims=dims, coords=coords)
    ), traced


def parts_of(
    assembly: xr.DataArray, split: str, targets: Sequence[str]
) -> dict[str, Indices]:
    """Return the rows of the training and of the test part.

    Raises
    ------
    DataError
        A target or the split is not a coordinate of the presentations, or there is no test part.
    """
    for name in (*targets, split):
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise DataError(f"presentations have no coordinate {name!r}")
    parts = assembly[split].values.astype(str)
    rows = {part: np.flatnonzero(parts == part) for part in ("train", "test")}
    if not len(rows["test"]):
        raise DataError(f"no presentation has {split} = test")
    return rows


def run_network(
    model: Learner,
    module: nn.Module,
    inputs: Singles | Presentations,
    count: tuple[Need, ...],
    mode: Mode,
) -> tuple[Array, Trace]:
    """Run the module on all inputs in batches; return its outputs and the trace of costs."""
    import torch

    from neuroledger.families.efficiency.counting.run_trace import trace

    parameter = next(iter(module.parameters()), None)
    device = parameter.device if parameter is not None else "cpu"
    outputs: list[Array] = []
    traced = trace(
        module,
        (
            torch.from_numpy(batch).to(device)
            for batch in in_batches(inputs, model.batch)
        ),
        needs=count,
        mode=mode,
        receive=lambda _, answer: outputs.append(
            answer.detach().cpu().to(torch.float64).numpy()
        ),
    )
    if model.prepare is not None:
        traced = replace(traced, notes=(*traced.notes, UNCOUNTED))
    return np.concatenate(outputs), traced


def coordinates(assembly: xr.DataArray, rows: Indices) -> dict[str, Any]:
    """Return the coordinates of the presentations ``rows``."""
    return {
        str(name): ("presentation", coordinate.values[rows])
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }


# The label of a box, then its corners.
Box = list[str | float]


def _boxes(text: object, name: str) -> list[Box]:
    try:
        boxes = json.loads(str(text))
        valid = isinstance(boxes, list) and all(
            len(box) == 5 and np.isfinite(list(map(float, box[1:]))).all()
            for box in boxes
        )
    except (ValueError, TypeError):
        valid = False
    if not valid:
        raise DataError(
            f"{name} must contain boxes as JSON, [[label, x1, y1, x2, y2], …], not {str(text)[:60]!r}"
        )
    return boxes  # type: ignore[no-any-return]


def _numbered(scenes: Sequence[list[Box]], classes: Sequence[str]) -> Array:
    """Return boxes as rows: scene, four corners, class number."""
    rows = [
        [scene, *map(float, box[1:]), classes.index(str(box[0]))]
        for scene, boxes in enumerate(scenes)
        for box in boxes
    ]
    return floats(rows).reshape(-1, 6)


def _detected(
    model: Learner,
    outputs: Array,
    truth: Sequence[list[Box]],
    classes: Sequence[str],
    coords: Mapping[str, tuple[str, Array]],
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return detected boxes and true boxes, one row each, with their scenes."""
    if (
        outputs.ndim != 3
        or len(outputs) != len(truth)
        or outputs.shape[2] != 4 + len(classes)
    ):
        expected = f"({len(truth)}, box, {4 + len(classes)})"
        raise ModelError(
            f"model {model.id!r} answered {outputs.shape}, not {expected}: four corners, then classes"
        )
    scenes = (
        coords["stimulus_id"][1]
        if "stimulus_id" in coords
        else np.arange(len(truth)).astype(str)
    )
    scene, box, number = np.nonzero(outputs[:, :, 4:] > 0)
    detected = _rows(
        outputs[scene, box, :4],
        scenes[scene],
        [classes[int(k)] for k in number],
        outputs[scene, box, 4 + number],
    )
    rows = _numbered(truth, classes)
    true = _rows(
        rows[:, 1:5],
        scenes[rows[:, 0].astype(int)],
        [classes[int(k)] for k in rows[:, 5]],
        None,
    )
    return detected, true


def _rows(
    corners: Array, scenes: Array, labels: list[str], scores: Array | None
) -> xr.DataArray:
    coords: dict[str, object] = {
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
    """Return the answers after every session to the test presentations of all classes seen so far.

    The base session shows all its training presentations; each later session shows the first ``shots`` of every new class
    and no earlier class. Answers are rows (session, presentation) with scores by class, minus infinity for classes not
    seen yet. The coordinate ``session`` is the session in which a row was tested, ``introduced`` that of its class. Costs
    are those of the last session, when all classes are known.

    Raises
    ------
    DataError
        Classes of an increment are unknown, appear twice, or lack training or test presentations.
    ModelError
        The model cannot learn further, or its answers have another shape.
    """
    if len(targets) != 1:
        raise DataError(
            f"incremental learning has one target, not {', '.join(targets)}"
        )
    rows = parts_of(assembly, split, targets)
    labels = assembly[targets[0]].values.astype(str)
    sessions = sessions_of(assembly, labels, increments)
    all_classes = [name for session in sessions for name in session]
    seen_classes: list[str] = []
    parts: list[xr.DataArray] = []
    traced: Trace | None = None
    module = None
    for number, new_classes in enumerate(sessions):
        seen_classes += new_classes
        training_rows = _training_rows(
            labels, rows["train"], new_classes, shots if number else None
        )
        test_rows = rows["test"][np.isin(labels[rows["test"]], seen_classes)]
        missing = [name for name in new_classes if name not in labels[test_rows]]
        if missing:
            raise DataError(f"class {missing[0]!r} has no test presentation")
        class_numbers = {name: index for index, name in enumerate(seen_classes)}
        numbers = np.array([class_numbers[name] for name in labels[training_rows]])
        examples = Examples(
            select_presentations(assembly, training_rows, model.prepare),
            numbers,
            tuple(seen_classes),
        )
        module = fit(model, "answers:incremental", examples, module)
        last = number == len(sessions) - 1
        inputs = select_presentations(assembly, test_rows, model.prepare)
        outputs, traced = run_network(
            model, module, inputs, count if last else (), mode
        )
        if outputs.shape != (len(test_rows), len(seen_classes)):
            raise ModelError(
                f"model {model.id!r} answered {outputs.shape}, not {(len(test_rows), len(seen_classes))}"
            )
        scores = np.full((len(test_rows), len(all_classes)), -np.inf)
        scores[:, : len(seen_classes)] = outputs
        introduced = [
            next(s for s, names in enumerate(sessions) if name in names)
            for name in labels[test_rows]
        ]
        coords = coordinates(assembly, test_rows) | {
            "session": ("presentation", np.full(len(test_rows), number)),
            "introduced": ("presentation", np.array(introduced)),
            "truth": ("presentation", labels[test_rows]),
        }
        if "stimulus_id" in coords:
            ids = [f"{name}.s{number}" for name in coords["stimulus_id"][1].astype(str)]
            coords["stimulus_id"] = ("presentation", np.asarray(ids, dtype=object))
        coords["choice"] = all_classes
        parts.append(
            xr.DataArray(scores, dims=("presentation", "choice"), coords=coords)
        )
    source = xr.concat(parts, "presentation")
    target = source["truth"].drop_vars("truth").astype(str)
    note = "costs are those of the last session, when all classes are known"
    if traced is None:
        result = None
    else:
        result = replace(traced, notes=(*traced.notes, note))
    return Measurement(source.drop_vars("truth"), target), result


def sessions_of(
    assembly: xr.DataArray, labels: Strings, increments: str | Sequence[Sequence[str]]
) -> list[list[str]]:
    """Return the new classes of each session: those of the base session, then those of each increment.

    Raises
    ------
    DataError
        An increment names a class that does not exist or is in another increment; or a coordinate assigns one class to
        several sessions, or does not begin with session 0.
    """
    if isinstance(increments, str):
        groups = _sessions_by_coordinate(assembly, labels, increments)
    else:
        groups = _listed_sessions(np.unique(labels).tolist(), increments)
    if len(groups) < 2 or not all(groups):
        raise DataError(
            "incremental learning needs a base session and at least one increment, none of them empty"
        )
    return groups


def _listed_sessions(
    names: Sequence[str], increments: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Return the classes of no increment, then those of each."""
    groups = [list(map(str, group)) for group in increments]
    counts = Counter(chain.from_iterable(groups))
    for name, count in counts.items():
        if name not in names or count > 1:
            raise DataError(
                f"class {name!r} of an increment does not exist, or is in several increments"
            )
    return [[name for name in names if name not in counts], *groups]


def _sessions_by_coordinate(
    assembly: xr.DataArray, labels: Strings, coordinate: str
) -> list[list[str]]:
    """Return the classes of each session that the coordinate numbers from 0."""
    dims = assembly[coordinate].dims if coordinate in assembly.coords else ()
    if dims != ("presentation",):
        raise DataError(
            f"presentations have no coordinate {coordinate!r}, and no increments are listed"
        )
    numbers = assembly[coordinate].values.astype(int)
    groups: list[list[str]] = [[] for _ in range(int(numbers.max()) + 1)]
    for name in np.unique(labels).tolist():
        session, *others = np.unique(numbers[labels == name]).tolist()
        if others:
            raise DataError(f"class {name!r} is in several sessions")
        if session >= 0:
            groups[session].append(name)
    return groups


def _training_rows(
    labels: Strings, train: Indices, new: Sequence[str], shots: int | None
) -> Indices:
    """Return training rows of new classes, in the order of the data; at most ``shots`` of each."""
    selected = []
    for name in new:
        own = train[labels[train] == name]
        if len(own) < (shots or 1):
            raise DataError(
                f"class {name!r} has {len(own)} training presentations, fewer than {shots or 1}"
            )
        selected.append(own[:shots])
    rows: Indices = np.sort(np.concatenate(selected))
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
    """Return closed-loop forecasts of every window of every series; costs are per value, of the first window."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("stimulus_id", "series", "step", "answer", "truth")
    }
    traced: Trace | None = None
    with _one_thread():
        for number in range(assembly.sizes["presentation"]):
            name = str(assembly["stimulus_id"].values[number])
            series = floats(assembly.values[number, 0])
            for window in range(windows):
                start = int(window * stride)
                piece = series[start : start + train + test + 1]
                if len(piece) < train + test + 1:
                    raise DataError(
                        f"series {name!r} has {len(series)} values, window {window} needs {start + train + test + 1}"
                    )
                module = fit(
                    model,
                    "answers:forecast",
                    Examples(piece[None, None, :train], piece[1 : train + 1]),
                )
                answers, window_trace = _closed_loop(
                    module, piece[train], test, count if traced is None else None, mode
                )
                if traced is None:
                    traced = window_trace
                rows["stimulus_id"] += [
                    f"{name}.w{window:02d}.k{step:04d}" for step in range(1, test + 1)
                ]
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
    source = xr.DataArray(
        np.asarray(rows["answer"]), dims=("presentation",), coords=coords
    )
    notes = ("costs are per value, counted over the first window",)
    truth = xr.DataArray(
        np.asarray(rows["truth"]), dims=("presentation",), coords=coords
    )
    if traced is None:
        result = None
    else:
        result = replace(traced, notes=(*traced.notes, *notes))
    return Measurement(source, truth), result


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit BLAS and torch to one thread: for a chaotic series, the order of a sum changes the forecast."""
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
    module: nn.Module,
    first: float,
    steps: int,
    count: tuple[Need, ...] | None,
    mode: Any,
) -> tuple[list[float], Trace | None]:
    """Return predictions that are fed back as inputs, and the trace of costs unless ``count`` is None."""
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
