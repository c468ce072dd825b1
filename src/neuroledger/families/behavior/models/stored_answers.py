"""Models with stored decisions: labels from tables, or probabilities of objects from a netCDF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.assembly import read
from neuroledger.data.factorize import coordinate, locate
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.families.behavior.tasks.trial_tables import (
    answers_by_stimulus,
    read_trial_tables,
)
from neuroledger.models.model import Perform, Task
from neuroledger.spec.channels import STIMULI, Channels
from neuroledger.spec.registry import builder

__all__ = ["StoredAnswers", "stored_answers", "stored_probabilities"]


@dataclass(frozen=True)
class StoredAnswers:
    """A model with stored labels ``(presentation,)`` or probabilities ``(presentation, choice)``, one row per stimulus.

    It gives no responses, and no decisions about other stimuli or objects.
    """

    id: str
    answers: xr.DataArray = field(repr=False)

    takes = STIMULI

    @property
    def kind(self) -> str:
        """Kind of the stored decisions: ``probabilities`` or ``label``."""
        if "choice" in self.answers.dims:
            return "probabilities"
        return "label"

    @property
    def gives(self) -> Channels:
        """The stored kind of decisions; labels are also available from probabilities."""
        return frozenset({"decisions:label", f"decisions:{self.kind}"})

    def answer(self, question: Perform) -> xr.DataArray:
        """Return the stored decisions; see :func:`neuroledger.models.model.perform`."""
        return self.perform(question.task, question.stimuli)

    def perform(self, task: Task, stimuli: StimulusSet) -> xr.DataArray:
        """Return the stored answers; from probabilities, the task ``label`` selects the most probable choice.

        Raises
        ------
        ModelError
            A stimulus or a choice is not in the table.
        """
        rows = locate(stimuli.ids, self.answers["stimulus_id"].values)
        if (rows < 0).any():
            first = stimuli.ids[int(np.flatnonzero(rows < 0)[0])]
            raise ModelError(
                f"model {self.id!r} has no stored answer for {int((rows < 0).sum())} stimuli, first {first!r}"
            )
        answers = self.answers.isel(presentation=rows)
        if task.name == self.kind:
            return answers
        return self._most_probable(answers, task.choices)

    def _most_probable(
        self, answers: xr.DataArray, choices: Sequence[str]
    ) -> xr.DataArray:
        columns = locate(choices, answers["choice"].values)
        if not choices or (columns < 0).any():
            known = ", ".join(map(str, answers["choice"].values[:5]))
            raise ModelError(
                f"model {self.id!r} has probabilities for {known}, …, but not for all of the {len(choices)} choices"
            )
        names = np.asarray(choices)[answers.values[:, columns].argmax(axis=1)]
        return _by_stimulus(names, answers["stimulus_id"].values)


@builder("stored_answers", version=1, takes=STIMULI, gives={"decisions:label"})
def stored_answers(*, id: str, weights: Mapping[str, Path]) -> StoredAnswers:
    """Create a model from labels in tables of the model-vs-human toolbox, which are pinned like weights.

    Raises
    ------
    DataError
        A file is not a trial table, or contains two answers for one stimulus.
    """
    tables = [weights[name] for name in sorted(weights)]
    answers = confined(
        lambda: answers_by_stimulus(read_trial_tables(tables)),
        limits_for(tables),
        f"model {id!r}: its answers",
    )
    return StoredAnswers(
        id, _by_stimulus(np.asarray(list(answers.values())), np.asarray(list(answers)))
    )


@builder(
    "stored_probabilities",
    version=1,
    takes=STIMULI,
    gives={"decisions:probabilities", "decisions:label"},
)
def stored_probabilities(*, id: str, weights: Mapping[str, Path]) -> StoredAnswers:
    """Create a model from probabilities in one netCDF file in the format of Brain-Score, pinned like weights.

    The file contains one array ``(presentation, choice)``; stimuli are identified by ``stimulus_id`` or ``image_id``,
    objects by ``choice`` or ``choice_``.

    Raises
    ------
    ModelError
        There is not exactly one file, or names are missing or duplicated.
    """
    if len(weights) != 1:
        raise ModelError(
            f"model {id!r} needs one file of probabilities, but {len(weights)} are declared"
        )
    (path,) = weights.values()
    probabilities = confined(
        lambda: read(path), limits_for([path]), f"model {id!r}: {path.name}"
    )
    if set(probabilities.dims) != {"presentation", "choice"}:
        raise ModelError(
            f"model {id!r}: {path.name} has the dimensions {probabilities.dims}, not (presentation, choice)"
        )
    probabilities = probabilities.transpose("presentation", "choice")
    stimuli = coordinate(probabilities, "stimulus_id", "image_id")
    names = [name for name in ("choice", "choice_") if name in probabilities.coords]
    objects = None
    if names:
        objects = probabilities[names[0]].values
    if stimuli is None or objects is None:
        raise ModelError(
            f"model {id!r}: its file lacks the coordinates of stimuli (stimulus_id, image_id) or objects (choice)"
        )
    if (
        len(set(stimuli.tolist())) < stimuli.size
        or len(set(objects.tolist())) < objects.size
    ):
        raise ModelError(
            f"model {id!r}: its file contains a stimulus or an object twice"
        )
    table = _by_stimulus(
        probabilities.values.astype(np.float64), stimuli.astype(str), "choice"
    )
    return StoredAnswers(id, table.assign_coords(choice=objects.astype(str)))


def _by_stimulus(values: np.ndarray, ids: np.ndarray, *dims: str) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims=("presentation", *dims),
        coords={"stimulus_id": ("presentation", ids)},
    )
