"""Small inputs for the contract checks of efficiency: counts of a pass, forecasts, boxes, sessions and costs of problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.spec.registry import Example

__all__ = ["of_boxes", "of_forecasts", "of_problems", "of_sessions"]

Given = Mapping[str, Any]


def _rows(values: Array, **columns: object) -> xr.DataArray:
    dims = ("presentation", "output")[: np.ndim(values)]
    coords = {
        name: ("presentation", np.asarray(each)) for name, each in columns.items()
    }
    return xr.DataArray(values, dims=dims, coords=coords)


def of_forecasts(rng: np.random.Generator, given: Given) -> Example:
    """Predicted and true numbers of four series, at several horizons."""
    number = np.arange(80)
    columns: dict[str, object] = {"stimulus_id": [f"step{i:03d}" for i in number]}
    if given.get("series"):
        columns[given["series"]] = [f"series{i}" for i in number % 4]
    if given.get("horizon"):
        columns[given["horizon"]] = number // 4 / 10
    true = np.sin(number / 5) + 2
    predicted = true + 0.2 * rng.standard_normal(len(number))
    return Example((_rows(predicted, **columns), _rows(true, **columns)))


def of_problems(rng: np.random.Generator, _: Given) -> Example:
    """Costs found and best known costs of 20 problems."""
    names = [f"problem{i:02d}" for i in range(20)]
    known = -rng.integers(20, 60, 20).astype(np.float64)
    found = known + rng.integers(0, 5, 20)
    return Example(tuple(_rows(each, stimulus_id=names) for each in (found, known)))


def of_sessions(rng: np.random.Generator, _: Given) -> Example:
    """Scores of classes after three sessions, each of which adds two."""
    session = np.repeat(np.arange(3), 30)
    truth = rng.integers(0, 2 * (session + 1))
    columns = {
        "stimulus_id": [f"clip{i:03d}" for i in range(len(truth))],
        "session": session,
        "introduced": truth // 2,
    }
    scores = rng.standard_normal((len(truth), 6))
    scores[np.arange(len(truth)), truth] += 1.5
    names = np.array([f"word{i}" for i in range(6)])
    source = (
        _rows(scores, **columns).rename(output="choice").assign_coords(choice=names)
    )
    return Example((source, _rows(names[truth], **columns)))


def of_boxes(rng: np.random.Generator, _: Given) -> Example:
    """Detected and true boxes of two classes in ten scenes."""
    scene = np.repeat(np.arange(10), 4)
    corner = rng.uniform(0, 60, (len(scene), 2))
    boxes = np.hstack([corner, corner + rng.uniform(10, 30, (len(scene), 2))])
    columns = {
        "scene": [f"scene{i}" for i in scene],
        "label": np.array(["car", "pedestrian"])[np.arange(len(scene)) % 2],
    }
    found = _rows(
        boxes + rng.normal(0, 2, boxes.shape), score=rng.random(len(scene)), **columns
    )
    return Example(
        tuple(side.rename(output="corner") for side in (found, _rows(boxes, **columns)))
    )
