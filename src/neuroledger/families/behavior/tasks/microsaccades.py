"""Stimuli as an eye that is never quite still sees them: in several trials, displaced a little in each."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field

from neuroledger.data.images import decode
from neuroledger.data.screen import source_degrees
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.models.model import Model
from neuroledger.models.preprocessing import look
from neuroledger.spec.base import Frozen
from neuroledger.spec.channels import STIMULI

__all__ = ["Microsaccades", "in_trials", "looks", "of_stimuli"]

# Between a stimulus and the trial that shows it.
MARK = " @ trial "


class Microsaccades(Frozen):
    """In how many trials each stimulus is shown: one that is tested, and one that the readout is fitted to."""

    tested: Annotated[int, Field(ge=1, le=1000)] = 10
    fitted: Annotated[int, Field(ge=1, le=1000)] = 1


def looks(model: Model) -> bool:
    """Whether the model sees images; one that takes stimuli of every kind knows them by their ids alone."""
    return not model.takes >= STIMULI


def in_trials(stimuli: StimulusSet, trials: int) -> StimulusSet:
    """Every stimulus in each of ``trials``: all in the first, where they are as they were, then all in the second.

    The displacement of a trial is that of :func:`neuroledger.models.preprocessing.shifts`, up to 0.05 degrees, with
    linear interpolation; edges are repeated outwards.

    Raises
    ------
    DataError
        The stimuli have no files, or an id reads like that of a further trial.
    RequestError
        It is not known how many degrees they span.
    """
    if trials == 1:
        return stimuli
    if "filename" not in stimuli.table or (stimuli.archive is None and stimuli.contents is None):
        raise DataError(f"stimuli {stimuli.id!r} have no files that could be displaced")
    marked = next((id for id in stimuli.ids if MARK in id), None)
    if marked is not None:
        raise DataError(
            f"stimulus {marked!r} reads like a further trial of another one; name it without {MARK!r}"
        )
    files = dict(zip(stimuli.table["filename"].astype(str), stimuli.ids, strict=True))
    degrees = source_degrees(stimuli)
    tables = []
    for trial in range(trials):
        table = stimuli.table.copy()
        table["filename"] = [f"{trial}/{name}" for name in table["filename"].astype(str)]
        table["stimulus_id"] = [f"{id}{MARK}{trial}" if trial else id for id in stimuli.ids]
        tables.append(table)
    seen = _Displaced(stimuli, files, degrees, trials)
    whole = pd.concat(tables, ignore_index=True)
    return replace(stimuli, table=whole, archive=None, contents=seen, digests={})


@dataclass(frozen=True)
class _Displaced(Mapping[str, bytes]):
    """Files by trial and name, ``3/name.png``, made when they are asked for."""

    stimuli: StimulusSet
    ids: Mapping[str, str]
    degrees: Mapping[str, float]
    trials: int

    def __getitem__(self, name: str) -> bytes:
        number, _, file = name.partition("/")
        id, trial = self.ids[file], int(number)
        content = self.stimuli.bytes(id)
        if trial == 0:
            return content
        import PIL.Image

        image = np.asarray(decode(content, id), dtype=np.float64).transpose(2, 0, 1)
        moved = look(image, trial, self.trials, self.degrees[id]).transpose(1, 2, 0)
        held = io.BytesIO()
        PIL.Image.fromarray(np.rint(moved).astype(np.uint8)).save(held, format="PNG")
        return held.getvalue()

    def __contains__(self, name: object) -> bool:
        number, _, file = str(name).partition("/")
        return file in self.ids and number.isdigit() and int(number) < self.trials

    def __iter__(self) -> Iterator[str]:
        return (f"{trial}/{file}" for trial in range(self.trials) for file in self.ids)

    def __len__(self) -> int:
        return self.trials * len(self.ids)


def of_stimuli(answers: xr.DataArray) -> xr.DataArray:
    """Answers in trials, with the id of the stimulus and the trial as ``repetition``."""
    parts = [str(id).partition(MARK) for id in answers["stimulus_id"].values]
    return answers.assign_coords(
        stimulus_id=("presentation", np.asarray([id for id, _, _ in parts])),
        repetition=("presentation", np.asarray([int(trial or 0) for _, _, trial in parts])),
    )
