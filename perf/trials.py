"""Seeded simulated behaviour in the sizes of well-known experiments, with as many labels as their trials have."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

IMAGES, OBJECTS, TRIALS = 240, 24, 110_400
PEOPLE, SHOWN, CONDITIONS = 10, 1280, 8


def object_task(
    seed: int = 0, images: int = IMAGES, trials: int = TRIALS
) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's probabilities and simulated two-choice trials, in the size of Rajalingham et al. (2018)."""
    rng = np.random.default_rng(seed)
    names = np.array([f"object_{i:02d}" for i in range(OBJECTS)])
    ids = np.array([f"{rng.integers(2**62):040x}" for _ in range(images)])
    truth = np.arange(images) % OBJECTS
    p = rng.dirichlet(np.ones(OBJECTS), images) + 0.5 * np.eye(OBJECTS)[truth]
    p /= p.sum(axis=1, keepdims=True)
    image = rng.integers(0, images, trials)
    other = (truth[image] + rng.integers(1, OBJECTS, trials)) % OBJECTS
    right = p[image, truth[image]] / (p[image, truth[image]] + p[image, other])
    chosen = np.where(rng.random(trials) < right, truth[image], other)
    files = {
        "filename": np.char.add(ids, ".png"),
        "image_sample_obj": names[truth],
        "image_label": names[truth],
    }
    image_columns = {
        "stimulus_id": ids,
        "stimulus_path": np.char.add("/stimuli/", ids),
    } | files
    coords: dict[str, Any] = {
        name: ("presentation", column) for name, column in image_columns.items()
    }
    source = xr.DataArray(
        p, dims=("presentation", "choice"), coords=coords | {"choice": names}
    )
    columns = {
        "stimulus_id": ids[image],
        "choice": names[chosen],
        "sample_obj": names[truth[image]],
        "dist_obj": names[other],
        "truth": names[truth[image]],
        "enough_human_data": np.ones(trials, bool),
        "correct": chosen == truth[image],
    } | {name: column[image] for name, column in files.items()}
    return source, _answers(names[chosen], columns)


def naming_task(
    seed: int = 0, shown_images: int = SHOWN, subjects: int = PEOPLE
) -> tuple[xr.DataArray, xr.DataArray]:
    """Labels of a model and ten simulated subjects for the same images in eight conditions, as Geirhos et al. (2021)."""
    rng = np.random.default_rng(seed)
    names = np.array([f"category_{i:02d}" for i in range(16)])
    ids = np.array([f"n{rng.integers(10**8):08d}_{i}.png" for i in range(shown_images)])
    condition = np.array([f"c{i % CONDITIONS:02d}" for i in range(shown_images)])
    truth = names[rng.integers(0, 16, shown_images)]
    answers = np.where(
        rng.random((subjects + 1, shown_images)) < 0.7,
        truth,
        names[rng.integers(0, 16, (subjects + 1, shown_images))],
    )
    image_columns = {
        "stimulus_id": ids,
        "image_id_long": np.char.add("0001_cop_dnn_", ids),
        "truth": truth,
        "category": truth,
        "condition": condition,
    }
    columns = {
        name: np.tile(column, subjects) for name, column in image_columns.items()
    }
    columns["choice"] = answers[1:].ravel()
    columns["response_time"] = np.round(rng.gamma(4, 0.2, subjects * shown_images), 3)
    columns["trial"] = np.tile(np.arange(shown_images), subjects)
    columns["session"] = np.tile(np.arange(shown_images) // 320, subjects)
    columns["subject"] = np.repeat(
        [f"person_{i:02d}" for i in range(subjects)], shown_images
    )
    return _answers(answers[0], image_columns), _answers(answers[1:].ravel(), columns)


def _answers(values: Any, columns: dict[str, Any]) -> xr.DataArray:
    coords = {name: ("presentation", column) for name, column in columns.items()}
    return xr.DataArray(values, dims=("presentation",), coords=coords)
