"""Small predictions and true values for the contract checks of decoding, by measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.families.decoding.hypnograms import STAGES
from neuroledger.spec.registry import Example

__all__ = ["of_events", "of_measure", "of_nights"]

ROWS, SUBJECTS, COLUMNS = 120, 6, 5
Sides = tuple[Any, Any]


def of_measure(rng: np.random.Generator, given: Mapping[str, Any]) -> Example:
    """Predictions and truth of windows of six subjects: classes, numbers, counts, embeddings or texts."""
    measure = given.get("measure", "balanced_accuracy")
    if measure not in _DRAWN:
        return Example(_classes(rng, per_subject=given.get("per") == "subject"))
    predicted, true = _DRAWN[measure](rng)
    return Example((_labelled(predicted), _labelled(true)))


def of_events(rng: np.random.Generator, given: Mapping[str, Any]) -> Example:
    """Predicted probabilities and true labels of consecutive windows of six subjects, with two events each."""
    windows, step = 120, 5.0
    positive = str(given.get("positive", "seizure"))
    names = np.array(["background", positive])
    true = np.zeros((SUBJECTS, windows), dtype=int)
    true[:, 20:26] = true[:, 80:90] = 1
    return _recorded(rng, true, names, step)


def of_nights(rng: np.random.Generator, given: Mapping[str, Any]) -> Example:
    """Predicted probabilities and true stages of six nights of two hours, in windows of 30 s."""
    names = np.array(list((given.get("stages") or {}) or STAGES))
    stages = rng.integers(1, len(names), (SUBJECTS, 24))
    stages[:, :2] = 0
    return _recorded(rng, np.repeat(stages, 10, axis=1), names, 30.0)


def _recorded(
    rng: np.random.Generator, true: Indices, names: Array, step: float
) -> Example:
    """Predicted probabilities and true labels of windows (subject, window) that are `step` seconds apart."""
    windows = true.shape[1]
    truth = true.ravel()
    evidence = rng.normal(0, 1, (truth.size, len(names)))
    evidence[np.arange(truth.size), truth] += 2.0
    subject = np.repeat(np.arange(SUBJECTS), windows)
    columns = {
        "stimulus_id": [f"window{i:03d}" for i in range(truth.size)],
        "subject": [f"person{i}" for i in subject],
        "recording": [f"run{i}" for i in subject],
        "onset": np.tile(step * np.arange(windows), SUBJECTS),
    }
    coords = {name: ("presentation", each) for name, each in columns.items()}
    source = xr.DataArray(
        evidence, dims=("presentation", "choice"), coords={**coords, "choice": names}
    )
    target = xr.DataArray(names[truth], dims="presentation", coords=coords)
    return Example((source, target))


def _classes(rng: np.random.Generator, *, per_subject: bool) -> Sides:
    # The components of this family are imported by every command, the checks by few.
    from neuroledger.testing.inputs import predictions

    source, target = predictions(rng)
    if not per_subject:
        return source, target
    names = np.unique(target["subject"].values, return_inverse=True)[1]
    classes = source["choice"].values
    truth = names % len(classes)
    evidence = rng.random(source.shape)
    evidence[np.arange(len(truth)), truth] += 0.5
    return source.copy(data=evidence), target.copy(data=classes[truth])


def _numbers(rng: np.random.Generator) -> Sides:
    true = 100 + 20 * rng.standard_normal(ROWS)
    return true + 10 * rng.standard_normal(ROWS), true


def _counts(rng: np.random.Generator) -> Sides:
    rates: Floats = rng.gamma(4.0, 0.5, (ROWS, COLUMNS))
    return rates, rng.poisson(rates).astype(np.float64)


def _embeddings(rng: np.random.Generator) -> Sides:
    true = np.tile(rng.standard_normal((ROWS // SUBJECTS, COLUMNS)), (SUBJECTS, 1))
    return true + 0.5 * rng.standard_normal(true.shape), true


def _texts(rng: np.random.Generator) -> Sides:
    words: Array = np.array(["the", "cat", "sat", "on", "a", "mat"])
    true = [" ".join(rng.choice(words, 4)) for _ in range(ROWS)]
    found = [text.replace("cat", "mat") for text in true]
    return np.array(found), np.array(true)


_DRAWN: Final[Mapping[str, Callable[[np.random.Generator], Sides]]] = MappingProxyType(
    {
        **dict.fromkeys(("pearson_r", "rmse", "r2", "mae", "binned_mae"), _numbers),
        "bits_per_spike": _counts,
        "retrieval": _embeddings,
        "word_error_rate": _texts,
    }
)


def _labelled(values: Array) -> xr.DataArray:
    stimulus = np.arange(ROWS) % (ROWS // SUBJECTS)
    subject = np.arange(ROWS) // (ROWS // SUBJECTS)
    columns = {
        "stimulus_id": [f"stimulus{i:03d}" for i in stimulus],
        "subject": [f"person{i}" for i in subject],
        "recording": [f"run{i}" for i in subject],
    }
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid")[: np.ndim(values)],
        coords={name: ("presentation", each) for name, each in columns.items()},
    )
