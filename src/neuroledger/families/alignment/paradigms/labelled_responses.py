"""Labelled responses: a model's responses in a region, and the labels of stimuli from several domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.assembly import among
from neuroledger.data.dataset import Dataset
from neuroledger.data.screen import spanning
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.families.alignment.responses import mean_responses
from neuroledger.families.fields import AtLeastOne
from neuroledger.models.model import Model
from neuroledger.spec.registry import paradigm

__all__ = ["labelled_responses"]

Rows = dict[str, str | int | float | list[str] | list[int] | list[float]]
# Columns that identify a stimulus and do not describe it.
IDENTIFIERS = ("stimulus_id", "filename")


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
    visual_degrees: PositiveFloat | None = None,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
    trials: AtLeastOne = 1,
    prepare_model: tuple[Step, ...] = (),
) -> Measurement:
    """Record responses to the stimuli of every domain, with the labels of the stimuli.

    Parameters
    ----------
    model, data
        The model, and the data set with the stimuli; it needs no assembly.
    region
        The model's region to record from.
    domains
        For each domain, the values of columns of the stimulus table that define it. A stimulus may belong to one domain
        only; stimuli without a domain are not shown.
    label_column
        The column with the labels.
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
    stimuli, domain_of = _select_domains(data.stimuli, domains)
    labels = _read_labels(stimuli, label_column)
    presented = spanning(stimuli, visual_degrees, screen)
    response = mean_responses(
        model, presented, region, time_bins, trials, over_time=True
    )
    response = prepared(
        response, prepare_model, name=f"the responses of model {model.id!r}"
    )
    columns = {
        str(name): ("presentation", stimuli.table[name].to_numpy())
        for name in stimuli.table.columns
        if name not in IDENTIFIERS
    }
    target = xr.DataArray(labels, dims=("presentation",), coords=columns)
    target = target.assign_coords(
        stimulus_id=("presentation", stimuli.ids), domain=("presentation", domain_of)
    )
    return Measurement(response, target)


def _select_domains(
    stimuli: StimulusSet, domains: Mapping[str, Rows]
) -> tuple[StimulusSet, list[str]]:
    """Stimuli of the domains, domain by domain in the order of the table, and the domain of each."""
    domain_numbers = np.full(len(stimuli), -1)
    names = list(domains)
    for number, (name, conditions) in enumerate(domains.items()):
        inside = np.ones(len(stimuli), dtype=bool)
        for column, condition in conditions.items():
            if column not in stimuli.table:
                raise DataError(
                    f"stimuli {stimuli.id!r} have no column {column!r}; correct the domain {name!r}"
                )
            values = condition if isinstance(condition, list) else [condition]
            where = f"stimuli {stimuli.id!r}: domain {name!r}: {column}"
            inside &= among(stimuli.table[column].to_numpy(), values, where)
        if not inside.any():
            raise DataError(
                f"no stimulus of {stimuli.id!r} is in the domain {name!r} ({conditions})"
            )
        shared = np.flatnonzero(inside & (domain_numbers >= 0))
        if shared.size:
            raise DataError(
                f"stimulus {stimuli.ids[shared[0]]!r} of {stimuli.id!r} is in the domains "
                f"{names[domain_numbers[shared[0]]]!r} and {name!r}: correct their conditions"
            )
        domain_numbers[inside] = number
    order = np.argsort(domain_numbers, kind="stable")
    rows = order[domain_numbers[order] >= 0]
    ids = stimuli.ids
    return stimuli.select([ids[row] for row in rows]), [
        names[domain_numbers[row]] for row in rows
    ]


def _read_labels(stimuli: StimulusSet, column: str) -> list[str]:
    if column not in stimuli.table:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {column!r}; name another one as `label_column`"
        )
    labels: pd.Series[str] = stimuli.table[column]
    missing = labels.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"{int(missing.sum())} stimuli have no {column!r}, first {stimuli.ids[int(missing.argmax())]!r}"
        )
    return list(map(str, labels))
