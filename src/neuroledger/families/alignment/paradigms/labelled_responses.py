"""Labelled responses: a model's responses in a region, beside the labels of the stimuli, which belong to domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import pandas as pd
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
from neuroledger.spec.registry import paradigm

__all__ = ["labelled_responses"]

Rows = dict[str, str | int | float | list[str] | list[int] | list[float]]
# Columns that say where a stimulus is, not what it is.
PLACES = ("stimulus_id", "filename")


@paradigm(
    "labelled_responses",
    version=1,
    shows={"stimuli"},
    asks=lambda values: {f"responses:{values['region']}"},
    itself=False,
    permuted="target",
)
def labelled_responses(
    model: Model,
    data: Dataset,
    *,
    region: str,
    domains: Annotated[dict[str, Rows], Field(min_length=1)],
    label_column: str = "image_label",
    time_bins: list[tuple[float, float]] | None = None,
    visual_degrees: Annotated[float, Field(gt=0)] | None = None,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
    trials: Annotated[int, Field(ge=1)] = 1,
    prepare_model: tuple[Step, ...] = (),
) -> Measurement:
    """Responses to the stimuli of every domain, and what they show.

    Parameters
    ----------
    model, data
        Who is shown what; the data need no assembly.
    region
        The model's region to record from.
    domains
        For each domain the values that columns of the stimulus table have in it. No stimulus is in two; those that are
        in none are not shown.
    label_column
        The column that says what a stimulus shows.
    time_bins, visual_degrees, screen, trials, prepare_model
        As in the paradigm ``recording``; time bins are averaged.

    Returns
    -------
    Measurement
        ``source``: responses ``(presentation, neuroid)``; ``target``: labels ``(presentation,)`` as text, with the
        coordinates ``stimulus_id``, ``domain`` and the columns of the table, domain by domain.

    Raises
    ------
    DataError
        The data have no stimuli, a column or a label is missing, a domain is empty, or domains overlap.
    """
    if data.stimuli is None:
        raise DataError(f"data set {data.id!r} has no stimuli to show to a model")
    stimuli, of = _divided(data.stimuli, domains)
    labels = _labels(stimuli, label_column)
    response = record(model, spanning(stimuli, visual_degrees, screen), region, time_bins, trials)
    response = average_repetitions(response) if "repetition" in response.coords else response
    response = response.mean("time_bin", keep_attrs=True) if "time_bin" in response.dims else response
    response = prepared(response, prepare_model, name=f"the responses of model {model.id!r}")
    columns = {
        str(name): ("presentation", stimuli.table[name].to_numpy())
        for name in stimuli.table.columns
        if name not in PLACES
    }
    known = {"stimulus_id": ("presentation", stimuli.ids), "domain": ("presentation", of)}
    target = xr.DataArray(labels, dims=("presentation",), coords=columns | known)
    return Measurement(response, target)


def _divided(stimuli: StimulusSet, domains: Mapping[str, Rows]) -> tuple[StimulusSet, list[str]]:
    """The stimuli that are in a domain, domain by domain in the order of the table, and which."""
    place = np.full(len(stimuli), -1)
    names = list(domains)
    for number, (name, conditions) in enumerate(domains.items()):
        inside = np.ones(len(stimuli), dtype=bool)
        for column, wanted in conditions.items():
            if column not in stimuli.table:
                raise DataError(
                    f"stimuli {stimuli.id!r} have no column {column!r}; correct the domain {name!r}"
                )
            values = [str(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
            inside &= stimuli.table[column].astype(str).isin(values).to_numpy()
        if not inside.any():
            raise DataError(f"no stimulus of {stimuli.id!r} is in the domain {name!r} ({conditions})")
        twice = np.flatnonzero(inside & (place >= 0))
        if twice.size:
            raise DataError(
                f"stimulus {stimuli.ids[twice[0]]!r} of {stimuli.id!r} is in the domains "
                f"{names[place[twice[0]]]!r} and {name!r}: correct their conditions"
            )
        place[inside] = number
    order = np.argsort(place, kind="stable")
    kept, ids = order[place[order] >= 0], stimuli.ids
    return stimuli.select([ids[row] for row in kept]), [names[place[row]] for row in kept]


def _labels(stimuli: StimulusSet, column: str) -> list[str]:
    if column not in stimuli.table:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {column!r}; name another one as `label_column`"
        )
    held: pd.Series[str] = stimuli.table[column]
    missing = held.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"{int(missing.sum())} stimuli have no {column!r}, first {stimuli.ids[int(missing.argmax())]!r}"
        )
    return [str(one) for one in held]
