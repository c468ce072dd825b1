"""Arrays of a few odd cases, made from seeds with NumPy alone, whose numbers Brain-Score's own code gave once.

Each side is ``(dims, values, {coordinate: (dimension, values)})``. The numbers are in ``peer.json``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Side = tuple[tuple[str, ...], Any, dict[str, tuple[str, Any]]]
NEURAL = ("presentation", "neuroid")


def _side(values: Any, **coords: Any) -> Side:
    count = values.shape[1]
    neuroids = {
        "neuroid_id": ("neuroid", np.arange(count)),
        "region": ("neuroid", np.full(count, "IT")),
    }
    return (
        NEURAL,
        values,
        {n: ("presentation", np.asarray(c)) for n, c in coords.items()} | neuroids,
    )


def _pair(
    seed: int, rows: int, features: int, targets: int, *, repeat: int = 1
) -> tuple[Side, Side]:
    """Features and responses to the same stimuli in different orders; each stimulus has ``repeat`` rows."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((rows, 5))
    X = Z @ rng.standard_normal((5, features)) + 0.4 * rng.standard_normal(
        (rows, features)
    )
    Y = Z @ rng.standard_normal((5, targets)) + 0.8 * rng.standard_normal(
        (rows, targets)
    )
    ids = np.repeat(rng.permutation(rows)[: -(-rows // repeat)], repeat)[:rows] * 7
    objects = np.array([f"object{i // repeat % 4}" for i in range(rows)])
    order = rng.permutation(rows) if repeat == 1 else np.arange(rows)
    return (
        _side(X[order], stimulus_id=ids[order], object_name=objects[order]),
        _side(Y, stimulus_id=ids, object_name=objects),
    )


def _repeated(seed: int, stimuli: int, repetitions: int, *, views: int = 1) -> Side:
    """Responses to every stimulus, each repetition a row; ``views`` images share one stimulus id."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(stimuli * repetitions)
    image, repetition = rows // repetitions, rows % repetitions
    values = rng.standard_normal((stimuli, 4))[image] + 0.9 * rng.standard_normal(
        (len(rows), 4)
    )
    return _side(
        values,
        stimulus_id=image // views * 3,
        image_id=image * 5 % 64,
        repetition=repetition,
    )


def cases() -> dict[
    str, tuple[str, str, tuple[Side, ...], dict[str, Any], dict[str, Any]]
]:
    """Name → (metric or ceiling, id, sides, the peer's arguments, ours)."""

    def crossed(**options: Any) -> dict[str, Any]:
        return {"crossvalidation_kwargs": options}

    ties = _pair(3, 44, 2, 5)  # of two neuroids all correlations are 1 or -1
    return {
        "stratified folds": (
            "metric",
            "ridge",
            _pair(1, 44, 30, 4),
            crossed(kfold=True, splits=5),
            {"splits": {"name": "kfold", "folds": 5}},
        ),
        "counts of stimuli": (
            "metric",
            "pls",
            _pair(2, 44, 30, 4),
            crossed(splits=3, train_size=30, test_size=8),
            {"splits": {"folds": 3, "train": 30, "test": 8}},
        ),
        "equal dissimilarities": ("metric", "rdm", ties, {}, {}),
        "equal dissimilarities, subsets": ("metric", "rdm_cv", ties, {}, {}),
        "repeated stimuli, ridge": (
            "metric",
            "ridge",
            _pair(4, 48, 60, 4, repeat=2),
            {},
            {},
        ),
        "repeated stimuli, pls": (
            "metric",
            "pls",
            _pair(5, 48, 60, 4, repeat=2),
            {},
            {},
        ),
        "objects apart": (
            "metric",
            "ridge",
            _pair(6, 44, 30, 4),
            crossed(
                split_coord="object_name",
                stratification_coord=None,
                unique_split_values=True,
                train_size=0.5,
            ),
            {
                "splits": {
                    "by": "object_name",
                    "stratify": None,
                    "unique": True,
                    "train": 0.5,
                }
            },
        ),
        "as many features as stimuli": (
            "metric",
            "linear_predictivity",
            _pair(7, 44, 37, 4),
            {},
            {},
        ),
        "two images of a stimulus": (
            "ceiling",
            "internal_consistency",
            (_repeated(8, 24, 5, views=2),),
            {},
            {},
        ),
        "images named by numbers": (
            "ceiling",
            "predictor_consistency",
            (_repeated(9, 24, 5),),
            {},
            {"by": "image_id"},
        ),
    }
