"""Whether the same conditions are difficult for people and for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.agreement.accuracies import (
    PeopleTable,
    model_on_trials,
    table_of_people,
    tabulate,
)
from neuroledger.families.behavior.agreement.confusions import rows_pearson
from neuroledger.families.behavior.agreement.error_agreement import correctness
from neuroledger.families.behavior.agreement.trial_items import TrialItems, ids_of
from neuroledger.families.behavior.tasks.discrimination import FEWEST, pearson
from neuroledger.families.fields import Names
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["condition_accuracy"]


@metric(
    "condition_accuracy", version=3, input="behaviour", example=examples.of_conditions
)
def condition_accuracy(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    variables: Names = ("condition",),
    people: Literal["each", "pooled"] = "each",
    match: Mapping[str, Mapping[str, str]] | None = None,
) -> Samples:
    """Return the correlation of accuracies across conditions, with each person ``(subject,)`` or all pooled ``()``.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: labels ``(presentation,)`` or probabilities
        ``(presentation, choice)``, with ``stimulus_id``.
    target
        Trials of people ``(presentation,)``: labels with ``stimulus_id``, ``subject``, ``truth`` and ``variables``.
    variables
        Coordinates of the target; each of their combinations is a condition.
    people
        ``each``: compare the model with each person on the stimuli of that person; ``pooled``: compare it with all people
        on all trials.
    match
        With ``pooled``, if people and the model saw different stimuli: maps each condition of people (the values of
        ``variables``, joined by ``|``) to the columns and values of the model's stimuli that are the same condition.

    Raises
    ------
    MetricError
        There are fewer than three conditions, accuracies do not differ between conditions, or a condition of people is not
        in ``match`` or matches no stimulus of the model.

    Notes
    -----
    Coggan and Tong (2024) for ``each``; Maniquet et al. (2024) for ``pooled``.
    """
    table = table_of_people(target, variables)
    if match is not None:
        if people != "pooled":
            raise MetricError("`match` compares with all people: set `people: pooled`")
        return _matched(source, target, table, variables, match)
    model = model_on_trials(source, target)
    if table.cells < FEWEST:
        raise MetricError(_too_few(variables, table.cells))
    if people == "pooled":
        count = np.bincount(table.cell, minlength=table.cells)
        profiles = [
            np.bincount(table.cell, weights=right, minlength=table.cells) / count
            for right in (model, table.correct)
        ]
        value = pearson(*profiles)
        if np.isnan(value):
            raise MetricError(
                "accuracies do not differ between conditions, so they have no correlation"
            )
        return Samples(xr.DataArray(value))
    model_table = tabulate(model, table)
    people_table = tabulate(table.correct, table)
    values = np.asarray(
        [
            pearson(a[k], b[k])
            for a, b, k in zip(
                model_table, people_table, ~np.isnan(people_table), strict=True
            )
        ]
    )
    flat = int(np.isnan(values).sum())
    if flat == values.size:
        raise MetricError(
            f"for no person do accuracies differ between conditions, of at least {FEWEST}: no correlation"
        )
    out = xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    notes = (
        [
            f"{flat} people whose accuracies do not vary over {FEWEST} conditions were left out"
        ]
        if flat
        else []
    )
    return Samples(out, notes=notes)


def _too_few(variables: tuple[str, ...], count: int) -> str:
    return (
        f"{' × '.join(variables)} has {count} condition{'s' * (count != 1)}; a correlation needs at least {FEWEST}, because "
        "that of two is always 1 or -1"
    )


def _matched(
    source: xr.DataArray,
    target: xr.DataArray,
    table: PeopleTable,
    variables: tuple[str, ...],
    match: Mapping[str, Mapping[str, str]],
) -> Samples:
    """Return the correlation over conditions in which people and the model saw different stimuli."""
    columns = [as_text(coordinate(target, name)) for name in variables]
    names = np.asarray(
        [
            "|".join(row)
            for row in zip(*(values.tolist() for values in columns), strict=True)
        ]
    )
    conditions = encode(names)
    if len(conditions.labels) < FEWEST:
        raise MetricError(_too_few(variables, len(conditions.labels)))
    right = floats(correctness(source))
    rows = []
    for name in map(str, conditions.labels):
        if name not in match:
            raise MetricError(
                f"`match` does not say which stimuli of the model are of people's condition {name!r}"
            )
        matches = np.ones(len(right), dtype=bool)
        for column, accepted in match[name].items():
            column_values = coordinate(source, column)
            if column_values is None:
                raise MetricError(
                    f"the model's stimuli have no column {column!r}, which `match` names"
                )
            matches &= as_text(column_values) == accepted
        if not matches.any():
            raise MetricError(
                f"no stimulus of the model is of people's condition {name!r}: {dict(match[name])}"
            )
        rows.append(matches)
    membership = floats(rows)
    sides = list(map(ids_of, (source, target)))
    if any(stimulus is None for stimulus, _ in sides):
        raise MetricError(
            "both sides need stimulus_id, to know which stimuli they share"
        )
    trials = TrialItems.of([(sides[0][0], None), sides[1]], [len(right), len(names)])

    def correlation(of_model: Booleans, of_people: Booleans) -> float:
        weights = of_people.astype(np.float64)
        count = np.bincount(conditions.codes, weights, minlength=len(rows))
        hits = np.bincount(
            conditions.codes, weights * table.correct, minlength=len(rows)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            profiles = (
                (of_model * right) @ membership.T / (of_model @ membership.T),
                hits / count,
            )
        known = np.isfinite(profiles).all(axis=0)
        return float(rows_pearson(*(profile[None, known] for profile in profiles))[0])

    value = correlation(*trials.rows({}))
    if np.isnan(value):
        raise MetricError(
            "accuracies do not differ between conditions, so they have no correlation"
        )
    # The stimuli of both sides vary, so that those of the people alone would not do.
    return Samples(
        xr.DataArray(value),
        Variation(
            trials.items, lambda keep: xr.DataArray(correlation(*trials.rows(keep)))
        ),
    )
