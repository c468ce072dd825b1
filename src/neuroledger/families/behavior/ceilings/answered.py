"""Agreement and similarity of accuracies of two people on the stimuli that both answered."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Indices
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracies import (
    over_conditions,
    relative_distance,
)
from neuroledger.families.behavior.agreement.answered import (
    UNANSWERED,
    by_variables,
    given_by_people,
    left_out,
)
from neuroledger.families.behavior.agreement.error_agreement import (
    Answers,
    Measure,
    compare,
    measured,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["answered_accuracy_distance", "answered_agreement"]


@ceiling("answered_agreement", version=1, input="behaviour")
def answered_agreement(
    assembly: xr.DataArray,
    *,
    measure: Measure = "error_consistency",
    by: str | None = "condition",
    undefined: Literal["skip", "one"] = "skip",
    unanswered: tuple[str, ...] = UNANSWERED,
) -> Samples:
    """Return the agreement of every pair of people on the stimuli that both answered: ``(condition, pair)``.

    Parameters
    ----------
    assembly, measure, by, undefined, unanswered
        As in the metric ``answered_agreement``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, no two answered the same stimulus, or there are no errors to compare.
    """
    people = given_by_people(assembly, by=by, unanswered=unanswered, error=CeilingError)
    pairs = _pairs(people)
    values = measured(compare(people, people), measure, undefined)[
        :, pairs[:, 0], pairs[:, 1]
    ]
    if np.isnan(values).all():
        raise CeilingError(
            "no two subjects answered the same stimuli with errors that could be compared"
        )
    out = xr.DataArray(
        values,
        dims=("condition", "pair"),
        coords={"condition": people.conditions, "pair": _names(people, pairs)},
    )
    empty = int(np.isnan(values).sum())
    notes = left_out(people)
    if empty:
        notes.append(
            f"{empty} pair × condition cells with nothing to compare were left out"
        )
    return Samples(out, notes=notes)


@ceiling("answered_accuracy_distance", version=2, input="behaviour")
def answered_accuracy_distance(
    assembly: xr.DataArray,
    *,
    variables: tuple[str, ...] = (),
    chance: float = 0.0,
    unanswered: tuple[str, ...] = UNANSWERED,
) -> Samples:
    """Return the similarity of accuracies of each pair of people on stimuli that both answered: ``(pair,)``.

    The second person of a pair is the reference.

    Parameters
    ----------
    assembly, variables, chance, unanswered
        As in the metric ``answered_accuracy_distance``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, or no two answered the same stimulus.
    """
    people = given_by_people(
        by_variables(assembly, variables, error=CeilingError),
        by="|".join(variables) or None,
        unanswered=unanswered,
        error=CeilingError,
    )
    pairs = _pairs(people)

    shared = compare(people, people)
    accuracies = (
        side[:, pairs[:, 0], pairs[:, 1]]
        for side in (shared.accuracy_a, shared.accuracy_b)
    )
    values = over_conditions(relative_distance(*accuracies, chance=chance).T)
    if np.isnan(values).all():
        raise CeilingError("no two subjects answered the same stimuli")
    out = xr.DataArray(values, dims=("pair",), coords={"pair": _names(people, pairs)})
    return Samples(out, notes=left_out(people))


def _pairs(people: Answers) -> Indices:
    pairs = list(combinations(range(len(people.observers)), 2))
    if not pairs:
        raise CeilingError(
            "one subject: people are compared with each other, which needs at least two"
        )
    return np.asarray(pairs, dtype=np.intp)


def _names(people: Answers, pairs: Indices) -> list[str]:
    return [f"{people.observers[a]}|{people.observers[b]}" for a, b in pairs]
