"""Stimulus pairs: a model's responses to stimuli, paired with those to stimuli that share a factor."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field, NonNegativeInt, PositiveFloat

from neuroledger.data.dataset import Dataset
from neuroledger.data.screen import spanning
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.families.alignment.responses import mean_responses
from neuroledger.families.fields import AtLeastOne, Names
from neuroledger.models.model import Model
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import paradigm

__all__ = ["stimulus_pairs"]


class Factor(Frozen):
    """Two stimuli share a factor if the columns ``same`` are equal and the columns ``differ`` are different."""

    same: Names
    differ: Names


@paradigm(
    "stimulus_pairs",
    version=2,
    shows={"stimuli"},
    asks=lambda values: {f"responses:{values['region']}"},
    itself=False,
    permuted="target",
)
def stimulus_pairs(
    model: Model,
    data: Dataset,
    *,
    region: str,
    factors: Annotated[dict[str, Factor], Field(min_length=1)],
    seed: NonNegativeInt = 0,
    time_bins: list[tuple[float, float]] | None = None,
    visual_degrees: PositiveFloat | None = None,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
    trials: AtLeastOne = 1,
    prepare_model: tuple[Step, ...] = (),
) -> Measurement:
    """Record responses to every stimulus and to a partner that shares a factor with it.

    Parameters
    ----------
    model, data
        The model, and the data set with the stimuli; it needs no assembly.
    region
        The model's region to record from.
    factors, seed
        For each stimulus, in the order of the table, three things are drawn with Python's generator of this seed, the
        same for every model: one of the factors for which it has a partner, the values of ``differ`` of the partner, and
        the partner among the stimuli with these values, if there are several.
    time_bins, visual_degrees, screen, trials, prepare_model
        As in the paradigm ``recording``; time bins are averaged.

    Returns
    -------
    Measurement
        ``source`` and ``target`` ``(presentation, neuroid)``: responses to the first and second stimulus of each pair, with
        the coordinate ``factor``. Stimuli without a partner are left out and counted in the notes.

    Raises
    ------
    DataError
        The data have no stimuli, a column is missing, or no stimulus has a partner.
    """
    if data.stimuli is None:
        raise DataError(f"data set {data.id!r} has no stimuli to show to a model")
    first, second, names = _draw_pairs(data.stimuli, factors, seed)
    presented = spanning(data.stimuli, visual_degrees, screen)
    response = mean_responses(
        model, presented, region, time_bins, trials, over_time=True
    )
    response = prepared(
        response, prepare_model, name=f"the responses of model {model.id!r}"
    )
    row_of = {str(id): row for row, id in enumerate(response["stimulus_id"].values)}
    ids = data.stimuli.ids
    pair_ids = [f"{ids[a]}|{ids[b]}" for a, b in zip(first, second, strict=True)]

    def responses_to(stimulus_rows: list[int]) -> xr.DataArray:
        selected = response.isel(
            presentation=[row_of[ids[row]] for row in stimulus_rows]
        )
        plain = selected.transpose("presentation", "neuroid").drop_vars(
            [
                name
                for name, coord in selected.coords.items()
                if coord.dims == ("presentation",)
            ]
        )
        return plain.assign_coords(
            stimulus_id=("presentation", pair_ids), factor=("presentation", names)
        )

    unpaired = len(ids) - len(first)
    notes = (
        (f"{unpaired} of {len(ids)} stimuli have no partner and were left out",)
        if unpaired
        else ()
    )
    return Measurement(responses_to(first), responses_to(second), notes=notes)


def _draw_pairs(
    stimuli: StimulusSet, factors: dict[str, Factor], seed: int
) -> tuple[list[int], list[int], list[str]]:
    """Rows of the first and second stimulus of each pair, and the factor that they share."""
    table = stimuli.table
    needed = {
        column
        for factor in factors.values()
        for column in (*factor.same, *factor.differ)
    }
    missing = sorted(needed - set(map(str, table.columns)))
    if missing:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {missing[0]!r}; correct `factors` of the paradigm"
        )
    columns = {name: table[name].astype(str).to_numpy() for name in needed}
    generator = random.Random(seed)
    first = []
    second = []
    names = []
    for row in range(len(table)):
        partners = {}
        for name, factor in factors.items():
            fits = np.ones(len(table), dtype=bool)
            for column in factor.same:
                fits &= columns[column] == columns[column][row]
            for column in factor.differ:
                fits &= columns[column] != columns[column][row]
            if fits.any():
                partners[name] = np.flatnonzero(fits).tolist()
        if partners:
            drawn_factor = generator.choice(list(partners))
            differ = [columns[column] for column in factors[drawn_factor].differ]
            by_value: dict[tuple[str, ...], list[int]] = {}
            for partner in partners[drawn_factor]:
                by_value.setdefault(
                    tuple(str(column[partner]) for column in differ), []
                ).append(partner)
            candidates = by_value[generator.choice(sorted(by_value))]
            first.append(row)
            second.append(
                candidates[0] if len(candidates) == 1 else generator.choice(candidates)
            )
            names.append(drawn_factor)
    if not first:
        raise DataError(
            f"no two stimuli of {stimuli.id!r} share a factor as declared: correct `factors`"
        )
    return first, second, names
