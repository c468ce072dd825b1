"""What a network answers to the test part of labelled data, beside the truth: classes, numbers, or boxes in scenes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.counting.counts import Mode, Need, Trace
from neuroledger.families.efficiency.networks.presentations import Presentations, in_batches, shown
from neuroledger.families.efficiency.networks.trainable_model import Examples, Learner, Task

if TYPE_CHECKING:
    from torch import nn

__all__ = ["answered", "answers", "coordinates", "parts_of"]

Array = npt.NDArray[Any]
CORNERS = ("x1", "y1", "x2", "y2")
UNCOUNTED = "what prepares the input of this model is no part of the network: it is not counted"


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
    module = model.ready(Examples(shown(assembly, rows["train"], model.prepare), learnt, classes))
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


def parts_of(assembly: xr.DataArray, split: str, targets: Sequence[str]) -> dict[str, npt.NDArray[np.intp]]:
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
    inputs: npt.NDArray[np.float32] | Presentations,
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


def coordinates(assembly: xr.DataArray, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
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
