"""Small inputs of metrics and ceilings of behaviour for their contract checks, where trials of six people do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Floats, Indices
from neuroledger.spec.registry import Example

__all__ = [
    "of_blocks",
    "of_changed_images",
    "of_conditions",
    "of_elevations",
    "of_formulas",
    "of_repeated_numbers",
    "of_solution_times",
    "of_thresholds",
    "people_of_elevations",
    "people_of_thresholds",
    "trials_of_changed_images",
    "trials_of_conditions",
]

Given = Mapping[str, Any]


def _trials(rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    # The components of this family are imported by every command, the checks by few.
    from neuroledger.testing.inputs import trials

    return trials(rng)


def _along(side: xr.DataArray, name: str, values: npt.ArrayLike) -> xr.DataArray:
    return side.assign_coords({name: ("presentation", np.asarray(values))})


def _number_of(side: xr.DataArray) -> Indices:
    """Return the number of the stimulus of each row."""
    return np.array([int(name[-3:]) for name in side["stimulus_id"].values])


def of_conditions(rng: np.random.Generator, given: Given) -> Example:
    """Trials whose conditions have the names of the spec's variables."""
    source, people = _trials(rng)
    for name in given.get("variables", ()):
        source, people = (
            _along(s, name, s["condition"].values) for s in (source, people)
        )
    return Example((source, people))


def trials_of_conditions(rng: np.random.Generator, given: Given) -> Example:
    """The trials of people of :func:`of_conditions`."""
    return Example(of_conditions(rng, given).inputs[1:])


def of_changed_images(rng: np.random.Generator, given: Given) -> Example:
    """Labels of a model, and correct answers of people that are fewer for manipulated images."""
    source, people = _trials(rng)
    labels = source["choice"].values[source.values.argmax(axis=1)]
    intact, manipulated = given["image_types"]
    kinds = np.array([intact, manipulated])
    answers = source.isel(choice=0, drop=True).copy(data=labels)
    answers = _along(answers, given["category"], source["truth"].values)
    answers = _along(answers, given["by"], kinds[_number_of(source) // 4 % 2])
    kind = _number_of(people) // 4 % 2
    correct = rng.random(people.size) < np.where(kind == 0, 0.9, 0.6)
    people = people.copy(data=correct.astype(float)).drop_vars("truth")
    return Example((answers, _along(people, given["by"], kinds[kind])))


def trials_of_changed_images(rng: np.random.Generator, given: Given) -> Example:
    """The trials of people of :func:`of_changed_images`."""
    return Example(of_changed_images(rng, {"category": "animal", **given}).inputs[1:])


def of_blocks(rng: np.random.Generator, given: Given) -> Example:
    """Trials at three levels in two blocks."""
    sides = []
    for side in _trials(rng):
        number = _number_of(side)
        side = _along(side, given["over"], (number // 8 % 3).astype(float))
        sides.append(
            _along(side, given["block"], np.array(given["blocks"])[number // 4 % 2])
        )
    return Example(tuple(sides))


def of_formulas(rng: np.random.Generator, _: Given) -> Example:
    """Surprisal in two regions of matching and mismatching sentences."""
    items = 12
    conditions = ("match", "mismatch")
    regions = ("1", "2")
    rows = [(i, c, r) for i in range(items) for c in conditions for r in regions]
    values = [rng.exponential() + (c == "mismatch") for _, c, _ in rows]
    columns = {
        "stimulus_id": [f"sentence{i:02d}{c}{r}" for i, c, r in rows],
        "item": [f"item{i:02d}" for i, _, _ in rows],
        "condition": [c for _, c, _ in rows],
        "region": [r for _, _, r in rows],
    }
    source = xr.DataArray(
        values,
        dims="presentation",
        coords={name: ("presentation", each) for name, each in columns.items()},
    )
    compared = ("(2;%match%) < (2;%mismatch%)",)
    return Example((source, source), {"formulas": compared})


def of_thresholds(rng: np.random.Generator, _: Given) -> Example:
    """A model's answers, which become right with the level of the stimulus, and thresholds of six people."""
    return Example((_at_levels(rng, 3.0), np.array([2.5, 3.0, 3.5, 2.8, 3.2, 4.0])))


def people_of_thresholds(rng: np.random.Generator, given: Given) -> Example:
    """The people of :func:`of_thresholds`."""
    return Example(of_thresholds(rng, given).inputs[1:])


def people_of_elevations(rng: np.random.Generator, given: Given) -> Example:
    """The people of :func:`of_elevations`."""
    return Example(of_elevations(rng, given).inputs[1:])


def of_elevations(rng: np.random.Generator, _: Given) -> Example:
    """A model's elevation, and people's thresholds in both conditions; :func:`of_thresholds` has answers to be fitted."""
    people = {
        "baseline": np.array([2.5, 3.0, 3.5, 2.8]),
        "test": np.array([4.0, 5.5, 6.0, 4.4]),
    }
    return Example((rng.uniform(1.4, 1.8), people))


def _at_levels(rng: np.random.Generator, threshold: float) -> xr.DataArray:
    level = np.repeat(np.arange(1.0, 9.0), 20)
    chance = 0.5 + 0.48 / (1 + np.exp(threshold - level))
    right: Floats = np.where(rng.random(level.size) < chance, 0.8, 0.2)
    columns = {
        "stimulus_id": [f"stimulus{i:03d}" for i in range(level.size)],
        "image_label": ["left"] * level.size,
        "independent_variable": level,
    }
    return xr.DataArray(
        np.stack([right, 1 - right], axis=1),
        dims=("presentation", "choice"),
        coords={name: ("presentation", each) for name, each in columns.items()}
        | {"choice": ["left", "right"]},
    )


def of_solution_times(rng: np.random.Generator, _: Given) -> Example:
    """Responses in which the objects of images appear one after another, and the times of their solution."""
    stimuli, bins, units = 60, 5, 8
    labels = np.arange(stimuli) % 4
    onset = rng.uniform(0, bins - 2, stimuli)
    centre = 2 * rng.standard_normal((4, units))[labels]
    rise = np.clip(np.arange(bins) - onset[:, None], 0, 2) / 2
    noise = 0.3 * rng.standard_normal((stimuli, units, bins))
    ids = [f"stimulus{i:03d}" for i in range(stimuli)]
    starts = 70.0 + 10 * np.arange(bins)
    source = xr.DataArray(
        rise[:, None, :] * centre[:, :, None] + noise,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", [f"unit{i}" for i in range(units)]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 10),
        },
    )
    columns = {
        "stimulus_id": ids,
        "image_label": [f"object{i}" for i in labels],
        "i1": np.ones(stimuli),
    }
    target = xr.DataArray(
        70 + 10 * onset,
        dims="presentation",
        coords={name: ("presentation", each) for name, each in columns.items()},
    )
    return Example((source, target), {"splits": {"folds": 2}})


def of_repeated_numbers(rng: np.random.Generator, _: Given) -> Example:
    """One number for each stimulus in four repetitions."""
    stimulus = np.tile(np.arange(30), 4)
    repetition = np.repeat(np.arange(4), 30)
    values = rng.standard_normal(30)[stimulus] + 0.5 * rng.standard_normal(120)
    columns = {
        "stimulus_id": [f"stimulus{i:03d}" for i in stimulus],
        "repetition": repetition,
    }
    coords = {name: ("presentation", each) for name, each in columns.items()}
    return Example((xr.DataArray(values, dims="presentation", coords=coords),))
