"""The drop of accuracy of people and a model between two kinds of stimuli."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import choices, correctness, same
from neuroledger.stats.spread import Influence, reweighted

__all__ = ["drop_of_model", "drop_of_people", "drop_similarity", "half_of", "of_new_people"]


def _masks(
    assembly: xr.DataArray, conditions: tuple[str, str], by: str, error: type[MetricError]
) -> tuple[Booleans, Booleans]:
    kinds = coordinate(assembly, by)
    if kinds is None:
        raise error(f"there is no coordinate {by!r} that tells {conditions[0]!r} from {conditions[1]!r}")
    masks = kinds.astype(str) == str(conditions[0]), kinds.astype(str) == str(conditions[1])
    for name, mask in zip(conditions, masks, strict=True):
        if not mask.any():
            raise error(f"no presentation has {by} = {name!r}")
    return masks


def drop_of_model(source: xr.DataArray, conditions: tuple[str, str], *, by: str, category: str) -> float:
    """Return the accuracy on the first condition minus that on the second, each averaged over categories.

    Raises
    ------
    MetricError
        A condition is missing, or a category within a condition.
    """
    whole, other = _masks(source, conditions, by, MetricError)
    truth = coordinate(source, category)
    if truth is None:
        raise MetricError(f"model behaviour has no coordinate {category!r} with the right answers")
    answers = choices(source)
    right = answers.astype(bool) if answers.dtype.kind == "b" else same(answers, truth)
    coded = encode(truth)
    means = []
    for mask in (whole, other):
        count = np.bincount(coded.codes[mask], minlength=len(coded.labels))
        if (count == 0).any():
            name = coded.labels[np.flatnonzero(count == 0)[0]]
            raise MetricError(
                f"category {str(name)!r} has no presentation in one of the conditions {conditions}"
            )
        means.append(
            (np.bincount(coded.codes[mask], weights=right[mask], minlength=count.size) / count).mean()
        )
    return float(means[0] - means[1])


def drop_of_people(
    target: xr.DataArray, conditions: tuple[str, str], *, by: str, error: type[MetricError] = MetricError
) -> tuple[Floats, Array]:
    """Return the drop of accuracy of each subject ``(subject,)``, and the subjects.

    Raises
    ------
    MetricError
        There are fewer than two subjects, or a subject has no trials of a condition.
    """
    whole, other = _masks(target, conditions, by, error)
    subject = coordinate(target, "subject", "subject_id")
    if subject is None:
        raise error("trials of people need the coordinate subject")
    coded = encode(subject)
    if len(coded.labels) < 2:
        raise error("one subject: halves of the people need at least two")
    values = np.asarray(target.values).ravel()
    right = (values != 0 if values.dtype.kind in "biuf" else correctness(target, error=error)).astype(
        np.float64
    )
    means = []
    for mask, name in zip((whole, other), conditions, strict=True):
        count = np.bincount(coded.codes[mask], minlength=len(coded.labels))
        if (count == 0).any():
            missing = coded.labels[np.flatnonzero(count == 0)[0]]
            raise error(f"subject {str(missing)!r} has no trials with {by} = {name!r}")
        means.append(np.bincount(coded.codes[mask], weights=right[mask], minlength=count.size) / count)
    return means[0] - means[1], coded.labels


def half_of(names: Array, *, peer: np.random.RandomState | None, rng: np.random.Generator) -> Booleans:
    """Return a random half of the subjects, ``floor(n / 2)`` of them, as a mask.

    With ``peer``, Brain-Score's generator, the half is drawn from the numbers ``1 … n−1`` as subject ids.
    """
    n = len(names)
    if peer is None:
        mask = np.zeros(n, dtype=bool)
        mask[rng.permutation(n)[: n // 2]] = True
        return mask
    chosen = peer.choice(np.arange(1, n), n // 2, replace=False)
    return np.isin(names.astype(str), chosen.astype(str))


def drop_similarity(drop: Any, reference: Any, *, signed: bool = False) -> Floats:
    """Return ``max(1 − |reference − one| / |reference|, 0)``; with ``signed`` the divisor is the signed reference."""
    scale = reference if signed else np.abs(reference)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.maximum(1 - np.abs(reference - drop) / scale, 0.0))


def of_new_people(
    names: Array, drops: Floats, halves: Sequence[Booleans], value: Callable[[Floats, Floats], Floats]
) -> Influence:
    """Return the influence of people on the mean, over halves, of ``value`` (drop of a half, drop of the other)."""

    def score(weights: Mapping[str, Floats]) -> Floats:
        w = weights["subject"]
        sides = (
            (w[:, half] @ drops[half] / w[:, half].sum(axis=1) for half in (members, ~members))
            for members in halves
        )
        return np.asarray(np.mean([value(*means) for means in sides], axis=0))

    return reweighted({"subject": names}, score)
