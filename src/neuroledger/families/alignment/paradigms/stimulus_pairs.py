"""Pairs: a model is shown stimuli that share one factor and differ in another, and its responses are paired."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.assembly import average_repetitions
from neuroledger.data.dataset import Dataset
from neuroledger.data.screen import spanning
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.models.model import Model, record
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import paradigm

__all__ = ["stimulus_pairs"]


class Factor(Frozen):
    """Two stimuli share a factor when the columns ``same`` are equal and the columns ``differ`` are not."""

    same: Annotated[tuple[str, ...], Field(min_length=1)]
    differ: Annotated[tuple[str, ...], Field(min_length=1)]


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
    seed: Annotated[int, Field(ge=0)] = 0,
    time_bins: list[tuple[float, float]] | None = None,
    visual_degrees: Annotated[float, Field(gt=0)] | None = None,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
    trials: Annotated[int, Field(ge=1)] = 1,
    prepare_model: tuple[Step, ...] = (),
) -> Measurement:
    """Responses to every stimulus and to a partner that shares a factor with it.

    Parameters
    ----------
    model, data
        Who is shown what; the data need no assembly.
    region
        The model's region to record from.
    factors, seed
        For each stimulus in the order of the table one of the factors that it has a partner for is drawn, then how the
        partner differs (which other value of ``differ``), then one of the stimuli that are so, where there are several:
        with Python's generator of that seed, the same for every model.
    time_bins, visual_degrees, screen, trials, prepare_model
        As in the paradigm ``recording``; time bins are averaged.

    Returns
    -------
    Measurement
        ``source`` and ``target`` ``(presentation, neuroid)``, responses to the first and second stimulus of each pair, with
        the coordinate ``factor``. Stimuli without any partner are left out and counted in the notes.

    Raises
    ------
    DataError
        The data have no stimuli, a column is missing, or no stimulus has a partner.
    """
    if data.stimuli is None:
        raise DataError(f"data set {data.id!r} has no stimuli to show to a model")
    first, second, names = _drawn(data.stimuli, factors, seed)
    response = record(model, spanning(data.stimuli, visual_degrees, screen), region, time_bins, trials)
    response = average_repetitions(response) if "repetition" in response.coords else response
    response = response.mean("time_bin", keep_attrs=True) if "time_bin" in response.dims else response
    response = prepared(response, prepare_model, name=f"the responses of model {model.id!r}")
    place = {str(id): row for row, id in enumerate(response["stimulus_id"].values)}
    ids = data.stimuli.ids

    def side(rows: list[int]) -> xr.DataArray:
        chosen = response.isel(presentation=[place[ids[row]] for row in rows])
        plain = chosen.transpose("presentation", "neuroid").drop_vars(
            [name for name, held in chosen.coords.items() if held.dims == ("presentation",)]
        )
        pair = [f"{ids[one]}|{ids[two]}" for one, two in zip(first, second, strict=True)]
        return plain.assign_coords(stimulus_id=("presentation", pair), factor=("presentation", names))

    alone = len(ids) - len(first)
    notes = (f"{alone} of {len(ids)} stimuli have no partner and were left out",) if alone else ()
    return Measurement(side(first), side(second), notes=notes)


def _drawn(
    stimuli: StimulusSet, factors: dict[str, Factor], seed: int
) -> tuple[list[int], list[int], list[str]]:
    """Rows of the first and second stimulus of each pair, and the factor that they share."""
    table = stimuli.table
    asked = {column for factor in factors.values() for column in (*factor.same, *factor.differ)}
    lost = sorted(asked - set(map(str, table.columns)))
    if lost:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {lost[0]!r}; correct `factors` of the paradigm"
        )
    columns = {name: table[name].astype(str).to_numpy() for name in asked}
    generator = random.Random(seed)
    first, second, names = [], [], []
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
            chosen = generator.choice(list(partners))
            differ = [columns[column] for column in factors[chosen].differ]
            by_value: dict[tuple[str, ...], list[int]] = {}
            for one in partners[chosen]:
                by_value.setdefault(tuple(str(column[one]) for column in differ), []).append(one)
            left = by_value[generator.choice(sorted(by_value))]
            first.append(row)
            second.append(left[0] if len(left) == 1 else generator.choice(left))
            names.append(chosen)
    if not first:
        raise DataError(f"no two stimuli of {stimuli.id!r} share a factor and differ as `factors` say")
    return first, second, names
