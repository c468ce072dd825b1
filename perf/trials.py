"""Seeded behaviour at the sizes of well-known experiments, with as many labels as their trials carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

IMAGES, OBJECTS, TRIALS = 240, 24, 110_400
PEOPLE, SHOWN, CONDITIONS = 10, 1280, 8


def object_task(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's probabilities and people's two-choice trials, at the size of Rajalingham et al. (2018)."""
    rng = np.random.default_rng(seed)
    names = np.array([f"object_{i:02d}" for i in range(OBJECTS)])
    ids = np.array([f"{rng.integers(2**62):040x}" for _ in range(IMAGES)])
    truth = np.arange(IMAGES) % OBJECTS
    p = rng.dirichlet(np.ones(OBJECTS), IMAGES) + 0.5 * np.eye(OBJECTS)[truth]
    p /= p.sum(axis=1, keepdims=True)
    image = rng.integers(0, IMAGES, TRIALS)
    other = (truth[image] + rng.integers(1, OBJECTS, TRIALS)) % OBJECTS
    right = p[image, truth[image]] / (p[image, truth[image]] + p[image, other])
    chosen = np.where(rng.random(TRIALS) < right, truth[image], other)
    files = {
        "filename": np.char.add(ids, ".png"),
        "image_sample_obj": names[truth],
        "image_label": names[truth],
    }
    shown = {"stimulus_id": ids, "stimulus_path": np.char.add("/stimuli/", ids)} | files
    coords: dict[str, Any] = {name: ("presentation", column) for name, column in shown.items()}
    source = xr.DataArray(p, dims=("presentation", "choice"), coords=coords | {"choice": names})
    columns = {
        "stimulus_id": ids[image],
        "choice": names[chosen],
        "sample_obj": names[truth[image]],
        "dist_obj": names[other],
        "truth": names[truth[image]],
        "enough_human_data": np.ones(TRIALS, bool),
        "correct": chosen == truth[image],
    } | {name: column[image] for name, column in files.items()}
    return source, _answers(names[chosen], columns)


def naming_task(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's and ten people's labels for the same images in eight conditions, as in Geirhos et al. (2021)."""
    rng = np.random.default_rng(seed)
    names = np.array([f"category_{i:02d}" for i in range(16)])
    ids = np.array([f"n{rng.integers(10**8):08d}_{i}.png" for i in range(SHOWN)])
    condition = np.array([f"c{i % CONDITIONS:02d}" for i in range(SHOWN)])
    truth = names[rng.integers(0, 16, SHOWN)]
    answers = np.where(
        rng.random((PEOPLE + 1, SHOWN)) < 0.7, truth, names[rng.integers(0, 16, (PEOPLE + 1, SHOWN))]
    )
    shown = {
        "stimulus_id": ids,
        "image_id_long": np.char.add("0001_cop_dnn_", ids),
        "truth": truth,
        "category": truth,
        "condition": condition,
    }
    columns = {name: np.tile(column, PEOPLE) for name, column in shown.items()}
    columns["choice"] = answers[1:].ravel()
    columns["response_time"] = np.round(rng.gamma(4, 0.2, PEOPLE * SHOWN), 3)
    columns["trial"] = np.tile(np.arange(SHOWN), PEOPLE)
    columns["session"] = np.tile(np.arange(SHOWN) // 320, PEOPLE)
    columns["subject"] = np.repeat([f"person_{i:02d}" for i in range(PEOPLE)], SHOWN)
    return _answers(answers[0], shown), _answers(answers[1:].ravel(), columns)


def _answers(values: Any, columns: dict[str, Any]) -> xr.DataArray:
    coords = {name: ("presentation", column) for name, column in columns.items()}
    return xr.DataArray(values, dims=("presentation",), coords=coords)
