"""A model known by what it once decided: labels from tables, or the probability of each object from a netCDF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.assembly import read
from neuroledger.data.factorize import coordinate, locate
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.families.behavior.tasks.trial_tables import answers_by_stimulus, read_trial_tables
from neuroledger.models.model import Task
from neuroledger.spec.channels import STIMULI, Channels
from neuroledger.spec.registry import builder

__all__ = ["StoredAnswers", "stored_answers", "stored_probabilities"]


@dataclass(frozen=True)
class StoredAnswers:
    """Labels ``(presentation,)`` or probabilities ``(presentation, choice)``, one row for each ``stimulus_id``.

    It can neither be recorded from nor asked about other stimuli or objects.
    """

    id: str
    answers: xr.DataArray = field(repr=False)

    takes = STIMULI

    @property
    def kind(self) -> str:
        """``probabilities`` or ``label``: the most that it can tell."""
        return "probabilities" if "choice" in self.answers.dims else "label"

    @property
    def gives(self) -> Channels:
        """The decisions that were stored; of probabilities also labels."""
        return frozenset({"decisions:label", f"decisions:{self.kind}"})

    def answer(self, question: Any) -> xr.DataArray:
        """The stored decisions; see :func:`neuroledger.models.model.perform`."""
        return self.perform(question.task, question.stimuli)

    def perform(self, task: Task, stimuli: StimulusSet) -> xr.DataArray:
        """The stored answers; of probabilities the most probable of the choices for the task ``label``.

        Raises
        ------
        ModelError
            A stimulus, or an object to choose, is not in the table.
        """
        rows = locate(stimuli.ids, self.answers["stimulus_id"].values)
        if (rows < 0).any():
            first = stimuli.ids[int(np.flatnonzero(rows < 0)[0])]
            raise ModelError(
                f"model {self.id!r} has no stored answer for {int((rows < 0).sum())} stimuli, first {first!r}"
            )
        shown = self.answers.isel(presentation=rows)
        return shown if task.name == self.kind else self._most_probable(shown, task.choices)

    def _most_probable(self, shown: xr.DataArray, choices: Sequence[str]) -> xr.DataArray:
        columns = locate(choices, shown["choice"].values)
        if not choices or (columns < 0).any():
            known = ", ".join(map(str, shown["choice"].values[:5]))
            raise ModelError(
                f"model {self.id!r} knows the objects {known}, …; not all of the {len(choices)} to choose"
            )
        names = np.asarray(choices)[shown.values[:, columns].argmax(axis=1)]
        return _by_stimulus(names, shown["stimulus_id"].values)


@builder("stored_answers", version=1, takes=STIMULI, gives={"decisions:label"})
def stored_answers(*, id: str, weights: Mapping[str, Path]) -> StoredAnswers:
    """A model of the labels in tables of the model-vs-human toolbox, which are pinned like weights.

    Raises
    ------
    DataError
        A file is no trial table, or holds two answers for one stimulus.
    """
    tables = [weights[name] for name in sorted(weights)]
    held = confined(
        lambda: answers_by_stimulus(read_trial_tables(tables)),
        limits_for(tables),
        f"model {id!r}: its answers",
    )
    return StoredAnswers(id, _by_stimulus(np.asarray(list(held.values())), np.asarray(list(held))))


@builder(
    "stored_probabilities",
    version=1,
    takes=STIMULI,
    gives={"decisions:probabilities", "decisions:label"},
)
def stored_probabilities(*, id: str, weights: Mapping[str, Path]) -> StoredAnswers:
    """A model of the probabilities in one netCDF file, in the form of Brain-Score's packages, pinned like weights.

    The file holds one array ``(presentation, choice)``; stimuli are named by ``stimulus_id`` or ``image_id``, objects
    by ``choice`` or ``choice_``.

    Raises
    ------
    ModelError
        There is not exactly one file, or names are missing or doubled.
    """
    if len(weights) != 1:
        raise ModelError(f"model {id!r} needs one file of probabilities, {len(weights)} are declared")
    (path,) = weights.values()
    held = confined(lambda: read(path), limits_for([path]), f"model {id!r}: {path.name}")
    if set(held.dims) != {"presentation", "choice"}:
        raise ModelError(f"model {id!r}: {path.name} is {held.dims}, not (presentation, choice)")
    held = held.transpose("presentation", "choice")
    stimuli = coordinate(held, "stimulus_id", "image_id")
    objects = next((held[name].values for name in ("choice", "choice_") if name in held.coords), None)
    if stimuli is None or objects is None:
        raise ModelError(
            f"model {id!r}: its file does not name stimuli (stimulus_id, image_id) and objects (choice)"
        )
    if len(set(stimuli.tolist())) < stimuli.size or len(set(objects.tolist())) < objects.size:
        raise ModelError(f"model {id!r}: its file names a stimulus or an object twice")
    table = _by_stimulus(held.values.astype(np.float64), stimuli.astype(str), "choice")
    return StoredAnswers(id, table.assign_coords(choice=objects.astype(str)))


def _by_stimulus(values: np.ndarray, ids: np.ndarray, *more: str) -> xr.DataArray:
    return xr.DataArray(values, dims=("presentation", *more), coords={"stimulus_id": ("presentation", ids)})
