"""Behavioural inputs for tests: the reference folder's arrays, and the small golden file, as assemblies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "behaviour.json").read_text("utf-8")
)


def presentations(values: Any, **coords: Any) -> xr.DataArray:
    """One value per presentation with coordinates."""
    return xr.DataArray(
        np.asarray(values),
        dims=("presentation",),
        coords={
            name: ("presentation", np.asarray(column))
            for name, column in coords.items()
        },
    )


def golden_answers() -> tuple[xr.DataArray, xr.DataArray]:
    """Model and people of the golden file, rows shuffled."""
    case = GOLDEN["agreement"]
    ids = np.array([f"st{i:02d}" for i in range(len(case["truth"]))])
    truth, condition = (
        np.array(list(case["truth"])),
        np.array([f"c{c}" for c in case["condition"]]),
    )
    people = case["people"]
    answers = np.concatenate([list(line) for line in people.values()])
    target = presentations(
        answers,
        stimulus_id=np.tile(ids, len(people)),
        truth=np.tile(truth, len(people)),
        condition=np.tile(condition, len(people)),
        subject=np.repeat(list(people), len(ids)),
    )
    source = presentations(
        list(case["model"]), stimulus_id=ids, truth=truth, condition=condition
    )
    rng = np.random.default_rng(3)
    return (
        source.isel(presentation=rng.permutation(source.size)),
        target.isel(presentation=rng.permutation(target.size)),
    )


def object_trials(
    rng: np.random.Generator, images: int = 12, objects: int = 4, trials: int = 900
) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's probabilities and people's two-choice trials on images of a few objects."""
    names = np.array([f"object{i}" for i in range(objects)])
    truth = np.arange(images) % objects
    skill = rng.normal(1.0, 0.7, (images, objects))
    rows = rng.integers(0, images, trials)
    other = (truth[rows] + rng.integers(1, objects, trials)) % objects
    right = rng.random(trials) < 1 / (1 + np.exp(-skill[rows, other]))
    chosen = np.where(right, truth[rows], other)
    people = presentations(
        names[chosen],
        stimulus_id=[f"image{i:02d}" for i in rows],
        sample_obj=names[truth[rows]],
        dist_obj=names[other],
        truth=names[truth[rows]],
    )
    raw = np.exp(rng.normal(0, 1, (images, objects)) + 2 * np.eye(objects)[truth])
    model = xr.DataArray(
        raw / raw.sum(axis=1, keepdims=True),
        dims=("presentation", "choice"),
        coords={
            "stimulus_id": ("presentation", [f"image{i:02d}" for i in range(images)]),
            "choice": names,
        },
    )
    return model, people
