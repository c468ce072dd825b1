"""Small simulated inputs of metrics and ceilings, by what they are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Integers
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import RequestError
from neuroledger.spec.components import Ceiling, Example, Metric

__all__ = ["example_of", "predictions", "recordings", "trials"]

STIMULI, NEUROIDS, FEATURES, LATENT = 60, 8, 12, 5
REPETITIONS, PEOPLE = 4, 6
LABELS: Final = ("bear", "boat", "chair", "dog")
CONDITIONS: Final = ("easy", "hard", "medium", "odd")


def example_of(
    component: Metric | Ceiling,
    rng: np.random.Generator,
    parameters: Mapping[str, object],
) -> Example:
    """Return the declared example of a component, or simulated inputs of its kind.

    Raises
    ------
    RequestError
        The component is computed from something that cannot be simulated here, and declares no example.
    """
    if component.example is not None:
        return component.example(rng, parameters)
    if component.input == "assemblies":
        source, repeated = recordings(rng)
        if isinstance(component, Ceiling):
            return Example((repeated,))
        target = repeated if component.trials else average_repetitions(repeated)
        return Example((source, target))
    if component.input == "behaviour":
        source, people = trials(rng)
        both = isinstance(component, Metric)
        return Example((source, people) if both else (people,))
    if component.input == "predictions":
        return Example(predictions(rng))
    raise RequestError(
        f"{component.kind} {component.name!r} is computed from {component.input!r}, of which no example is known: declare "
        "one at registration, `example=function`, where function(rng, parameters) returns "
        "neuroledger.spec.registry.Example(inputs)"
    )


def recordings(rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    """Return features of a model and responses of two subjects, each stimulus shown four times.

    Returns
    -------
    source
        ``(presentation, neuroid)``, one row per stimulus, in another order than the target.
    repeated
        ``(presentation, neuroid)``, with ``repetition``.
    """
    latent = rng.standard_normal((STIMULI, LATENT))
    features = latent @ rng.standard_normal((LATENT, FEATURES))
    features += 0.3 * rng.standard_normal(features.shape)
    signal = latent @ rng.standard_normal((LATENT, NEUROIDS))
    stimulus = np.tile(np.arange(STIMULI), REPETITIONS)
    repetition = np.repeat(np.arange(REPETITIONS), STIMULI)
    responses = signal[stimulus] + 0.7 * rng.standard_normal((len(stimulus), NEUROIDS))
    order = rng.permutation(STIMULI)
    source = _responses(features[order], order, "unit")
    repeated = _responses(responses, stimulus, "neuron").assign_coords(
        repetition=("presentation", repetition)
    )
    return source, repeated


def _responses(values: Floats, stimulus: Integers, unit: str) -> xr.DataArray:
    count = values.shape[1]
    labels = np.asarray(LABELS)[stimulus % len(LABELS)]
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"stimulus{i:03d}" for i in stimulus]),
            "object_name": ("presentation", labels),
            "image_label": ("presentation", labels),
            "neuroid_id": ("neuroid", [f"{unit}{i:02d}" for i in range(count)]),
            "subject": ("neuroid", [f"subject{i % 2}" for i in range(count)]),
            "region": ("neuroid", ["IT"] * count),
        },
    )


def trials(rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    """Return probabilities of a model, and choices of six people between the object of each image and another one.

    Stimuli differ in difficulty and people in skill. The rows of the model are in another order than those of people.

    Returns
    -------
    source
        ``(presentation, choice)``, one row per stimulus.
    people
        ``(presentation,)`` labels, with ``subject``, ``truth`` and properties of the stimuli.
    """
    stimulus = np.tile(np.arange(STIMULI), PEOPLE)
    subject = np.repeat(np.arange(PEOPLE), STIMULI)
    truth = stimulus % len(LABELS)
    level = np.array([2.0, 1.0, 0.5, 1.5])[stimulus // len(LABELS) % len(CONDITIONS)]
    difficulty = rng.standard_normal(STIMULI)
    skill = rng.normal(0, 0.7, PEOPLE)
    odds = level + difficulty[stimulus] + skill[subject]
    right = rng.random(len(odds)) < 1 / (1 + np.exp(-odds))
    other = (truth + rng.integers(1, len(LABELS), len(truth))) % len(LABELS)
    names = np.asarray(LABELS)
    people = xr.DataArray(
        names[np.where(right, truth, other)],
        dims="presentation",
        coords=_shown(stimulus)
        | {
            "subject": ("presentation", [f"person{i}" for i in subject]),
            "sample_obj": ("presentation", names[truth]),
            "dist_obj": ("presentation", names[other]),
        },
    )
    order = rng.permutation(STIMULI)
    evidence = rng.normal(0, 1, (STIMULI, len(LABELS)))
    evidence[np.arange(STIMULI), order % len(LABELS)] += 1 + difficulty[order]
    weights = np.exp(evidence)
    source = xr.DataArray(
        weights / weights.sum(axis=1, keepdims=True),
        dims=("presentation", "choice"),
        coords=_shown(order) | {"choice": names},
    )
    return source, people


def _shown(stimulus: Integers) -> dict[str, object]:
    """Return the coordinates of stimuli: their id, object, condition, texture and kind of image."""
    names = np.asarray(LABELS)
    conditions = np.asarray(CONDITIONS)
    truth = names[stimulus % len(LABELS)]
    round_of = stimulus // len(LABELS)
    columns = {
        "stimulus_id": [f"stimulus{i:03d}" for i in stimulus],
        "truth": truth,
        "image_label": truth,
        "condition": conditions[round_of % len(CONDITIONS)],
        "texture": names[(stimulus + 1 + round_of) % len(LABELS)],
    }
    return {name: ("presentation", values) for name, values in columns.items()}


def predictions(rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    """Return predicted probabilities of classes and true classes of windows of six subjects, in the same rows.

    Returns
    -------
    source
        ``(presentation, choice)``.
    target
        ``(presentation,)``.
    """
    names = np.asarray(LABELS)
    truth = np.tile(np.arange(len(LABELS)), 5 * PEOPLE)
    rows = len(truth)
    coords = {
        "stimulus_id": ("presentation", [f"window{i:03d}" for i in range(rows)]),
        "subject": (
            "presentation",
            [f"person{i * PEOPLE // rows}" for i in range(rows)],
        ),
        "recording": (
            "presentation",
            [f"run{i * 2 * PEOPLE // rows}" for i in range(rows)],
        ),
    }
    evidence = rng.normal(0, 1, (rows, len(LABELS)))
    evidence[np.arange(rows), truth] += 1.5
    weights = np.exp(evidence)
    source = xr.DataArray(
        weights / weights.sum(axis=1, keepdims=True),
        dims=("presentation", "choice"),
        coords=coords | {"choice": names},
    )
    return source, xr.DataArray(names[truth], dims="presentation", coords=coords)
