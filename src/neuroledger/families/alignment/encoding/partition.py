"""Variance partition: what feature spaces explain alone, beyond the others, and together, of held-out responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.encoding.banded_ridge import (
    BandedRidge,
    BandedSearch,
    banded_predictions,
)
from neuroledger.families.alignment.encoding.continuous import Continuous
from neuroledger.stats.variation import held_out_deviation

__all__ = ["HeldOutErrors", "errors_of_models", "explained", "parts_of", "without_each"]

Model = tuple[str, ...]
"""Names of the feature spaces that a model contains, in order."""


class HeldOutErrors(NamedTuple):
    """Squared errors of one split by model, (test row × neuroid), with the measured responses and their rows."""

    rows: Indices
    measured: Floats
    by_model: Mapping[Model, Floats]


def parts_of(bands: Sequence[str]) -> dict[str, dict[Model, int]]:
    """Return each part of the variance as the models whose explained variance is added or subtracted.

    ``whole`` is what all feature spaces explain together, ``alone X`` what one explains, ``unique X`` what it adds to
    the others, and ``shared`` the whole without all unique parts.

    Raises
    ------
    MetricError
        There is only one feature space.
    """
    whole = tuple(bands)
    if len(whole) < 2:
        raise MetricError(
            "a variance partition needs at least two feature spaces: name them in a coordinate of the source's "
            "neuroids, and the coordinate in `bands`"
        )
    parts: dict[str, dict[Model, int]] = {"whole": {whole: 1}}
    # The whole minus all unique parts, each of which is the whole minus a model of the others.
    shared = {whole: 1 - len(whole)}
    for name in whole:
        others = tuple(each for each in whole if each != name)
        parts[f"alone {name}"] = {(name,): 1}
        parts[f"unique {name}"] = {whole: 1, others: -1}
        shared[others] = 1
    parts["shared"] = shared
    return parts


def errors_of_models(
    rows: Continuous, search: BandedSearch, gap: int, columns: Sequence[int]
) -> list[HeldOutErrors]:
    """Fit every model of :func:`parts_of` in every split; return the squared errors of some neuroids."""
    models = dict.fromkeys(
        model for part in parts_of(rows.bands).values() for model in part
    )
    Y = rows.Y[:, columns]
    found = []
    for split in rows.splits:
        errors = {}
        for model in models:
            X, band = rows.columns(model)
            readout = BandedRidge(search, model, band, gap)
            predicted, _ = banded_predictions(readout, X, Y, split)
            errors[model] = (Y[split.test] - predicted) ** 2
        found.append(HeldOutErrors(split.test, Y[split.test], errors))
    return found


def explained(split: HeldOutErrors, part: Mapping[Model, int]) -> Floats:
    """Return the explained variance of a part, (neuroid,): of a model, 1 − Σ (y − ŷ)² / Σ (y − ȳ)² over the test rows."""
    measured = split.measured
    total = ((measured - measured.mean(axis=0)) ** 2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        lost = _combined(split, part).sum(axis=0) / total
    return np.asarray(sum(part.values()) - lost)


def without_each(
    split: HeldOutErrors, part: Mapping[Model, int], codes: Indices, count: int
) -> Floats:
    """Return :func:`explained` moved by each group of rows, given the group of every row, (group × neuroid)."""
    groups = codes[split.rows]
    members = (groups == np.arange(count)[:, None]).astype(np.float64)
    sizes = members.sum(axis=1, keepdims=True)
    error = _combined(split, part)
    centred = split.measured - split.measured.mean(axis=0)
    # Sums over the rows that stay; the sum over all centred rows is 0.
    squares = (centred**2).sum(axis=0) - members @ centred**2
    sums = -(members @ centred)
    lost = error.sum(axis=0) - members @ error
    rest = len(centred) - sizes
    with np.errstate(invalid="ignore", divide="ignore"):
        left = sum(part.values()) - lost / (squares - sums**2 / rest)
    return held_out_deviation(explained(split, part), left, sizes / len(centred))


def _combined(split: HeldOutErrors, part: Mapping[Model, int]) -> Floats:
    """Return the squared errors of the models of a part, added with their signs, (test row × neuroid)."""
    signed = [sign * split.by_model[model] for model, sign in part.items()]
    return np.asarray(np.sum(signed, axis=0))
