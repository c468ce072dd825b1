"""Reading: a model reads texts part by part, and is compared with readers, recordings or the text itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.assembly import average_repetitions, select
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import locate
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.models.model import Model, Task, perform, record
from neuroledger.spec.registry import paradigm

__all__ = ["in_context", "reading"]

Condition = dict[
    str, str | int | float | list[str] | list[int] | list[float] | dict[str, float]
]


def _asks(values: Mapping[str, object]) -> set[str]:
    return {
        f"responses:{values['region']}"
        if values["give"] == "responses"
        else f"decisions:{values['give']}"
    }


@paradigm(
    "reading", version=1, shows={"text"}, asks=_asks, itself=False, permuted="target"
)
def reading(
    model: Model,
    data: Dataset,
    *,
    give: Literal["responses", "reading_times", "next_word"],
    region: str = "language_system",
    passage: str | None = None,
    joined_by: str = " ",
    score: Condition | None = None,
    ceiling_from: Literal["scored", "all"] = "scored",
    average: str | None = None,
    unread: float | None = None,
) -> Measurement:
    """Measure the model's answer to each part of a text, given the passage up to the end of that part.

    Parameters
    ----------
    model, data
        The model, and data whose stimuli are texts (column ``text``) in reading order.
    give
        ``responses`` of a region; ``reading_times`` of each part, such as its surprisal in bits; the ``next_word``.
    region
        The model's region to record from.
    passage
        Column that identifies the unit read in one go: a passage, a story, a sentence. None: each text alone.
    joined_by
        Separator between the parts of a passage.
    score
        Conditions on presentation coordinates that select the compared parts; the model reads all parts.
    ceiling_from
        ``all``: the ceiling is estimated from all parts, not only from the compared ones.
    average
        Dimension of the data that is averaged for the target, such as the readers as neuroids; the ceiling gets the
        data before averaging.
    unread
        Reading time of parts that the model cannot rate, such as the first of a passage; None leaves them missing.

    Returns
    -------
    Measurement
        ``source`` ``(presentation, neuroid)`` or ``(presentation,)`` with the columns of the stimuli; ``target``: the data's
        assembly; without one, the column ``truth``, if present.

    Raises
    ------
    DataError
        The data set has no texts, or its assembly has stimuli without a text.
    ModelError
        The number of the model's answers differs from the number of parts.
    """
    if data.stimuli is None or "text" not in data.stimuli.table:
        raise DataError(
            f"data set {data.id!r} has no texts to read: it needs a table of stimuli with a column 'text'"
        )
    stimuli = in_context(data.stimuli, passage, joined_by)
    if give == "responses":
        source = record(model, stimuli, region)
    else:
        source = perform(model, Task(give), stimuli)
        if unread is not None and source.dtype.kind == "f":
            source = source.fillna(unread)
    rows = locate(stimuli.ids, source["stimulus_id"].values)
    if (rows < 0).any() or source.sizes["presentation"] != len(stimuli):
        raise ModelError(
            f"model {model.id!r} gave {source.sizes['presentation']} answers for {len(stimuli)} texts"
        )
    source = source.isel(presentation=rows)
    columns = [
        name for name in map(str, stimuli.table.columns) if name not in source.coords
    ]
    source = source.assign_coords(
        {name: ("presentation", stimuli.table[name].to_numpy()) for name in columns}
    )
    repeated = data.assembly
    if repeated is None:
        truth = (
            stimuli.table["truth"].to_numpy().astype(str)
            if "truth" in stimuli.table
            else np.asarray(stimuli.ids)
        )
        coords = {
            "stimulus_id": ("presentation", stimuli.ids),
            "truth": ("presentation", truth),
        }
        return Measurement(
            source, xr.DataArray(truth, dims=("presentation",), coords=coords)
        )
    compared = (
        repeated
        if score is None
        else select(repeated, score, name=f"data set {data.id!r}")
    )
    if ceiling_from == "scored":
        repeated = compared
    target = (
        average_repetitions(compared) if "repetition" in compared.coords else compared
    )
    if average is not None:
        target = target.mean(average, keep_attrs=True)
    compared_rows = locate(
        np.unique(target["stimulus_id"].values.astype(str)),
        source["stimulus_id"].values,
    )
    if (compared_rows < 0).any():
        raise DataError(
            f"data set {data.id!r}: {int((compared_rows < 0).sum())} stimuli of the assembly have no text"
        )
    return Measurement(
        source.isel(presentation=np.sort(compared_rows)), target, repeated
    )


def in_context(
    stimuli: StimulusSet, passage: str | None, joined_by: str = " "
) -> StimulusSet:
    """The stimuli with added columns ``passage``, ``part`` (from 0) and ``context`` (the passage up to the text's end).

    Raises
    ------
    DataError
        The table has no column ``passage``.
    """
    table = stimuli.table.copy()
    if passage is not None and passage not in table:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {passage!r}, which `passage` names"
        )
    if passage is None:
        keys = stimuli.ids
    else:
        keys = table[passage].astype(str).tolist()
    read: dict[str, list[str]] = {}
    contexts = []
    parts = []
    for key, text in zip(keys, table["text"].astype(str), strict=True):
        texts = read.setdefault(str(key), [])
        texts.append(text)
        contexts.append(joined_by.join(texts))
        parts.append(len(texts) - 1)
    table["passage"] = keys
    table["part"] = parts
    table["context"] = contexts
    return replace(stimuli, table=table)
