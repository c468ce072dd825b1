"""Stimuli shown in several trials with small displacements, like those of a fixating eye."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import floats
from neuroledger.data.images import decode
from neuroledger.data.screen import source_degrees
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.models.model import Model
from neuroledger.models.preprocessing import look
from neuroledger.spec.base import Frozen
from neuroledger.spec.channels import STIMULI

__all__ = ["Microsaccades", "in_trials", "looks", "of_stimuli"]

# Separates the stimulus id and the number of the trial.
MARK = " @ trial "


class Microsaccades(Frozen):
    """Number of trials for each tested stimulus, and for each stimulus that the readout is fitted to."""

    tested: Annotated[int, Field(ge=1, le=1000)] = 10
    fitted: Annotated[int, Field(ge=1, le=1000)] = 1


def looks(model: Model) -> bool:
    """Return whether the model sees images; a model that takes all kinds of stimuli identifies them by their ids only."""
    return not model.takes >= STIMULI


def in_trials(stimuli: StimulusSet, trials: int) -> StimulusSet:
    """Return all stimuli in each of ``trials``: unchanged in the first, then displaced in the second, and so on.

    The displacement of a trial is that of :func:`neuroledger.models.preprocessing.shifts`, up to 0.05 degrees, with
    linear interpolation and repeated edge pixels.

    Raises
    ------
    DataError
        The stimuli have no files, or an id contains the separator of trials.
    RequestError
        The visual angle of the stimuli is unknown.
    """
    if trials == 1:
        return stimuli
    if "filename" not in stimuli.table or (
        stimuli.archive is None and stimuli.contents is None
    ):
        raise DataError(f"stimuli {stimuli.id!r} have no files to displace")
    for id in stimuli.ids:
        if MARK in id:
            raise DataError(
                f"stimulus {id!r} contains {MARK!r}, which separates stimulus and trial; rename the stimulus"
            )
    names = stimuli.table["filename"].astype(str)
    files = dict(zip(names, stimuli.ids, strict=True))
    contents = _DisplacedFiles(stimuli, files, source_degrees(stimuli), trials)
    tables = [_table_of_trial(stimuli, trial) for trial in range(trials)]
    table = pd.concat(tables, ignore_index=True)
    return replace(stimuli, table=table, archive=None, contents=contents, digests={})


def _table_of_trial(stimuli: StimulusSet, trial: int) -> pd.DataFrame:
    table = stimuli.table.copy()
    if trial:
        mark = f"{MARK}{trial}"
    else:
        mark = ""
    table["filename"] = [f"{trial}/{name}" for name in table["filename"].astype(str)]
    table["stimulus_id"] = [id + mark for id in stimuli.ids]
    return table


@dataclass(frozen=True)
class _DisplacedFiles(Mapping[str, bytes]):
    """Files by trial and name, such as ``3/name.png``, displaced on access."""

    stimuli: StimulusSet
    ids: Mapping[str, str]
    degrees: Mapping[str, float]
    trials: int

    def __getitem__(self, name: str) -> bytes:
        number, _, file = name.partition("/")
        id = self.ids[file]
        trial = int(number)
        content = self.stimuli.bytes(id)
        if trial == 0:
            return content
        import PIL.Image

        image = floats(decode(content, id)).transpose(2, 0, 1)
        moved = look(image, trial, self.trials, self.degrees[id]).transpose(1, 2, 0)
        file_content = io.BytesIO()
        PIL.Image.fromarray(np.rint(moved).astype(np.uint8)).save(
            file_content, format="PNG"
        )
        return file_content.getvalue()

    def __contains__(self, name: object) -> bool:
        number, _, file = str(name).partition("/")
        return file in self.ids and number.isdigit() and int(number) < self.trials

    def __iter__(self) -> Iterator[str]:
        return (f"{trial}/{file}" for trial in range(self.trials) for file in self.ids)

    def __len__(self) -> int:
        return self.trials * len(self.ids)


def of_stimuli(answers: xr.DataArray) -> xr.DataArray:
    """Return the answers with the id of the stimulus as ``stimulus_id`` and the trial as ``repetition``."""
    parts = [str(id).partition(MARK) for id in answers["stimulus_id"].values]
    return answers.assign_coords(
        stimulus_id=("presentation", np.asarray([id for id, _, _ in parts])),
        repetition=(
            "presentation",
            np.asarray([int(trial or 0) for _, _, trial in parts]),
        ),
    )
